//! [`KeyFollower`]: the task that looks up keys, and reads which have changed. It makes one call at
//! a time, and each look-up reads the changes so far, too: what it has found is in the cache before
//! later changes are read, so that no old record outlives the change.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::cache::Cached;
use super::changes::{Advance, Change, Position};
use super::kept::{KeptError, LookedUp};
use super::store::{KeyStore, LookUp, LookUps};
use crate::base::background::Background;
use crate::base::clock;
use crate::base::hash::Digest;
use crate::base::random::pause_ms;

/// Interval in which changes are read.
const INTERVAL: Duration = Duration::from_millis(250);

/// Shortest and longest time after a failure. It differs by chance, so that gateways which lost
/// Redis together do not connect to it together.
const RETRY_MS: RangeInclusive<u64> = 200..=500;

/// A call that fails within this time, in microseconds, is made once more.
const AT_ONCE_US: u64 = 50_000;

/// Maximum number of look-ups in one call.
const LOOKUPS_AT_ONCE: usize = 64;

/// Interval in which the last uses of clients are written. A write to a file waits for the disk.
const USES_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of clients whose use is written at once.
const USES_AT_ONCE: usize = 1_000;

/// Shortest time between two calls for look-ups: at most 500 of them a second.
const LOOKUP_PAUSE: Duration = Duration::from_millis(2);

/// Looks up keys, and follows changes.
pub struct KeyFollower {
    store: Arc<KeyStore>,
    look_ups: Mutex<LookUps>,
}

impl KeyFollower {
    /// Creates the task. `look_ups` is the queue of the store.
    pub fn new(store: Arc<KeyStore>, look_ups: LookUps) -> Self {
        Self { store, look_ups: Mutex::new(look_ups) }
    }

    async fn run(&self) {
        let mut look_ups = self.look_ups.lock().await;
        let mut position = Position::default();
        let mut uses_due = Instant::now() + USES_INTERVAL;
        let mut waiting: Vec<LookUp> = Vec::with_capacity(LOOKUPS_AT_ONCE);
        loop {
            let mut due = match self.follow(&mut position).await {
                Ok(()) => {
                    self.note_success();
                    self.store.note_overrides(clock::now());
                    if uses_due <= Instant::now() {
                        self.note_uses().await;
                        uses_due = Instant::now() + USES_INTERVAL;
                    }
                    Instant::now() + INTERVAL
                }
                Err(error) => {
                    self.note_failure(&error);
                    Instant::now() + pause_ms(&RETRY_MS)
                }
            };
            loop {
                tokio::select! {
                    biased;
                    () = sleep_until(due) => break,
                    () = self.store.has_changed.notified() => break,
                    count = look_ups.recv_many(&mut waiting, LOOKUPS_AT_ONCE) => {
                        if count == 0 {
                            return;
                        }
                        if let Err(error) = self.look_up(&mut waiting, &mut position).await {
                            self.note_failure(&error);
                            due = Instant::now() + pause_ms(&RETRY_MS);
                        }
                        sleep(LOOKUP_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Reads the changes since `position`, and forgets the keys that they are about.
    async fn follow(&self, position: &mut Position) -> Result<(), KeptError> {
        loop {
            let began = clock::now();
            let (changes, may_have_more) = match self.store.kept.changes(*position).await {
                Err(_) if is_soon(began) => self.store.kept.changes(*position).await?,
                changes => changes?,
            };
            self.apply(position, changes, may_have_more);
            if !may_have_more {
                return Ok(());
            }
        }
    }

    /// Moves to the last of `changes`, and forgets the keys that they are about.
    fn apply(&self, position: &mut Position, changes: Vec<Change>, may_have_more: bool) {
        let was_known = *position != Position::Unknown;
        match position.advance(changes) {
            Advance::Changed(digests) => self.store.cache.forget(&digests),
            Advance::Lost => {
                self.store.cache.clear();
                if was_known {
                    warn!("changes of the key store were missed: all keys are looked up again");
                }
            }
        }
        if !may_have_more {
            self.store.synced_at.store(clock::now().max(1), Ordering::Relaxed);
        }
    }

    /// Looks up the keys that requests wait for. After an error they get no answer.
    async fn look_up(
        &self,
        waiting: &mut Vec<LookUp>,
        position: &mut Position,
    ) -> Result<(), KeptError> {
        let mut waiting = std::mem::take(waiting);
        // Requests that have given up need no look-up.
        waiting.retain(LookUp::is_waited_for);
        let KeyStore { cache, is_failing, kept, .. } = &*self.store;
        if is_failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        // An earlier call may have answered some.
        let (known, unknown): (Vec<LookUp>, Vec<LookUp>) =
            waiting.into_iter().partition(|look_up| cache.get(&look_up.digest).is_some());
        for look_up in known {
            if let Some(found) = cache.get(&look_up.digest) {
                look_up.answer(found);
            }
        }
        let mut digests: Vec<Digest> = unknown.iter().map(|look_up| look_up.digest).collect();
        digests.sort_unstable();
        digests.dedup();
        if digests.is_empty() {
            return Ok(());
        }
        let began = clock::now();
        let looked_up = match kept.look_up(&digests, *position).await {
            Err(_) if is_soon(began) => kept.look_up(&digests, *position).await?,
            looked_up => looked_up?,
        };
        let LookedUp { records, changes, may_have_more } = looked_up;
        self.apply(position, changes, may_have_more);
        let found = digests.iter().zip(&records);
        let found: HashMap<Digest, Cached> =
            found.map(|(digest, it)| (*digest, Cached::of(digest, it.as_ref()))).collect();
        if !may_have_more {
            for (digest, found) in &found {
                cache.put(*digest, found.clone());
            }
        }
        for look_up in unknown {
            if let Some(found) = found.get(&look_up.digest) {
                look_up.answer(found.clone());
            }
        }
        Ok(())
    }

    /// Writes when some of the clients have last sent requests.
    async fn note_uses(&self) {
        let clients = self.store.uses.take(USES_AT_ONCE);
        if clients.is_empty() {
            return;
        }
        // Approximate: what is lost is noted at a later request. A store that does not answer shows
        // in the next call.
        if let Err(error) = self.store.kept.note_uses(&clients, clock::unix_us()).await {
            debug!(%error, "the last uses of clients are not noted");
        }
    }

    fn note_success(&self) {
        if self.store.is_failing.swap(false, Ordering::Relaxed) {
            info!("the key store can be read again");
        }
        self.store.series.is_up.set(1);
    }

    fn note_failure(&self, cause: &KeptError) {
        if *cause == KeptError::Released {
            // This process drains, with the keys that it has in memory.
            return;
        }
        self.store.series.is_up.set(0);
        if !self.store.is_failing.swap(true, Ordering::Relaxed) {
            warn!(%cause, "the key store cannot be read: keys in memory are used until key_store.max_stale");
        }
    }
}

/// Whether a call that began at `began` (microseconds) failed so soon that it is worth another one:
/// the server had closed the connection, as a restart does.
fn is_soon(began: u64) -> bool {
    clock::now().saturating_sub(began) < AT_ONCE_US
}

impl Background for KeyFollower {
    /// Runs until the process ends: requests in flight, and those of connections that drain, need
    /// their keys, and changes apply to them.
    fn start(&self, _shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(self.run())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::sync::oneshot;

    use super::*;
    use crate::keys::file::KeyFile;
    use crate::keys::kept::Kept;
    use crate::observe::metrics::Metrics;
    use crate::policy::key_store::{KeyStore as Settings, OnStoreFailure, Place};
    use crate::store::memory::MemoryStore;

    /// Only this process changes the file, so that changes can be read while the file cannot.
    #[tokio::test]
    async fn file_that_cannot_be_read_fails_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let path = missing.join("keys.redb");
        let settings = Settings {
            place: Place::File(path.clone()),
            cache: 100,
            max_stale: Duration::from_secs(1),
            on_store_failure: OnStoreFailure::Deny,
            self_rotation: false,
        };
        let series = Metrics::new("test").unwrap().keys;
        let kept = Kept::File(Arc::new(KeyFile::new(path)));
        let buckets = Arc::new(MemoryStore::new(64, &[]));
        let (store, look_ups) = KeyStore::new(&settings, kept, buckets, series);
        let follower = KeyFollower::new(Arc::clone(&store), look_ups);
        let mut position = Position::default();
        let look_up = async |position: &mut Position| {
            let (answer, answered) = oneshot::channel();
            let mut waiting = vec![LookUp { digest: [1; 32], answer }];
            follower.look_up(&mut waiting, position).await.map(|()| answered)
        };
        // Nothing has used it yet.
        follower.follow(&mut position).await.unwrap();
        look_up(&mut position).await.unwrap_err();
        let synced_at = store.synced_at.load(Ordering::Relaxed);
        for _ in 0..2 {
            follower.follow(&mut position).await.unwrap_err();
        }
        assert_eq!(store.synced_at.load(Ordering::Relaxed), synced_at);
        fs::create_dir(missing).unwrap();
        follower.follow(&mut position).await.unwrap();
        let answered = look_up(&mut position).await.unwrap();
        assert!(matches!(answered.await, Ok(Cached::Unknown)));
    }
}
