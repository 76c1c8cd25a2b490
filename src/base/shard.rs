//! Data that each thread writes in a shard of its own, so that threads do not wait for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Number of shards. More threads than this share them.
pub(crate) const SHARDS: usize = 16;

/// One `T` for each thread.
#[derive(Debug)]
pub(crate) struct Sharded<T>(Box<[Padded<T>]>);

/// A shard on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(Mutex<T>);

impl<T> Sharded<T> {
    pub(crate) fn new(shard: impl FnMut() -> T) -> Self {
        let shards = std::iter::repeat_with(shard).take(SHARDS);
        Self(shards.map(|shard| Padded(Mutex::new(shard))).collect())
    }

    /// The shard of this thread.
    pub(crate) fn own(&self) -> Option<&Mutex<T>> {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        self.0.get(OWN.with(Cell::get)).map(|shard| &shard.0)
    }

    /// As many shards, each made from one of these.
    pub(crate) fn map<U>(&self, shard: impl Fn(&Mutex<T>) -> U) -> Sharded<U> {
        Sharded(self.iter().map(|from| Padded(Mutex::new(shard(from)))).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.0.iter().map(|shard| &shard.0)
    }
}
