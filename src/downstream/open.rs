//! The open client connections: how many there are, in all and from each address, and since when
//! each of them is idle.
//!
//! A connection costs a slot of 48 bytes, its entry of 16 and, if it is the only one of its
//! address, about 40 more.

use std::collections::HashMap;
use std::collections::hash_map;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use slab::Slab;

/// The table of open connections. Clones share it.
#[derive(Clone, Debug)]
pub struct OpenConnections(Arc<Table>);

/// A client connection in the table, until it is dropped.
#[derive(Debug)]
pub struct Entry {
    table: Arc<Table>,
    shard: u32,
    key: u32,
}

/// Why an idle connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedCause {
    /// Few connections are left below `server.limits.max_connections`.
    Room,
    /// The process has no file descriptors left.
    Descriptors,
    /// The process is over its memory limit.
    Memory,
}

/// Which limit of connections a connection exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverLimit;

#[derive(Debug)]
struct Table {
    counts: Mutex<Counts>,
    /// Locked for each change between idle and busy, so there are several.
    shards: [Mutex<Slab<Slot>>; SHARDS],
    /// The shard of the next connection.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize, RandomState>,
}

/// One connection.
#[derive(Debug)]
struct Slot {
    /// Since when it has had no request, or its next one has begun to arrive, in microseconds;
    /// [`BUSY`] while it serves one.
    idle_since: u64,
    /// Wakes its task.
    waker: Option<Waker>,
    /// The address that it is counted by.
    address: Option<IpAddr>,
    shed: Option<ShedCause>,
    /// Whether one of its requests has been decided.
    is_decided: bool,
}

const SHARDS: usize = 16;

/// [`Slot::idle_since`] of a connection that serves a request, or that has just been accepted.
const BUSY: u64 = u64::MAX;

impl Default for OpenConnections {
    fn default() -> Self {
        Self(Arc::new(Table {
            counts: Mutex::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            next: AtomicUsize::new(0),
        }))
    }
}

impl OpenConnections {
    pub fn count(&self) -> usize {
        self.0.counts.lock().all
    }

    /// Returns the number of connections of which no request has been decided. Those that have been
    /// idle since before `idle_before` are not counted.
    pub(super) fn undecided(&self, idle_before: u64) -> usize {
        let is_counted = |slot: &Slot| !slot.is_decided && slot.idle_since >= idle_before;
        let of_shard = |slots: &Mutex<Slab<Slot>>| {
            slots.lock().iter().filter(|(_, slot)| is_counted(slot)).count()
        };
        self.0.shards.iter().map(of_shard).sum()
    }

    /// Adds a connection, busy and without an address.
    ///
    /// # Errors
    /// There are `max` connections.
    pub(super) fn add(&self, max: usize) -> Result<Entry, OverLimit> {
        let table = &self.0;
        {
            let mut counts = table.counts.lock();
            if counts.all >= max {
                return Err(OverLimit);
            }
            counts.all += 1;
        }
        let shard = table.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let slot =
            Slot { idle_since: BUSY, waker: None, address: None, shed: None, is_decided: false };
        let key = table.shards[shard].lock().insert(slot);
        // Neither is larger: a process has fewer descriptors.
        let (shard, key) = (shard.try_into().unwrap_or(0), key.try_into().unwrap_or(u32::MAX));
        Ok(Entry { table: Arc::clone(table), shard, key })
    }

    /// Asks connections that have been idle since before `idle_before` to close, at most `most` of
    /// them, those that have been idle for the longest time. Returns their number.
    pub(super) fn shed(&self, most: usize, idle_before: u64, cause: ShedCause) -> usize {
        if most == 0 {
            return 0;
        }
        let mut idle = Vec::new();
        for (shard, slots) in self.0.shards.iter().enumerate() {
            let slots = slots.lock();
            let of_shard = slots.iter().filter(|(_, slot)| slot.is_idle_before(idle_before));
            idle.extend(of_shard.map(|(key, slot)| (slot.idle_since, shard, key)));
        }
        if idle.len() > most {
            idle.select_nth_unstable(most);
            idle.truncate(most);
        }
        let mut asked = 0;
        for (since, shard, key) in idle {
            let mut slots = self.0.shards[shard].lock();
            // It may have become busy, or another connection may have its slot.
            let slot = slots.get_mut(key).filter(|slot| slot.idle_since == since);
            let Some(slot) = slot else { continue };
            slot.shed = Some(cause);
            let waker = slot.waker.take();
            drop(slots);
            asked += 1;
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        asked
    }
}

impl Slot {
    fn is_idle_before(&self, time: u64) -> bool {
        self.idle_since < time && self.shed.is_none()
    }
}

impl Entry {
    /// Counts the connection by `address`. Called once at most.
    ///
    /// # Errors
    /// There are `max` connections from this address.
    pub(super) fn count_by(&self, address: IpAddr, max: usize) -> Result<(), OverLimit> {
        {
            let mut counts = self.table.counts.lock();
            let count = counts.by_address.entry(address).or_default();
            if *count >= max {
                return Err(OverLimit);
            }
            *count += 1;
        }
        self.with(|slot| slot.address = Some(address));
        Ok(())
    }

    /// Marks the connection as idle since `now`.
    pub(super) fn note_idle(&self, now: u64) {
        self.with(|slot| slot.idle_since = now);
    }

    /// How long the connection has been idle at `now`, in microseconds; 0 while it is busy.
    pub(super) fn idle_us(&self, now: u64) -> u64 {
        self.with(|slot| now.saturating_sub(slot.idle_since)).unwrap_or(0)
    }

    /// Marks the connection as busy. It is then no longer asked to close.
    pub(super) fn note_busy(&self) {
        self.with(|slot| {
            slot.idle_since = BUSY;
            slot.shed = None;
        });
    }

    /// Notes that a request of the connection has been decided.
    pub(super) fn note_decided(&self) {
        self.with(|slot| slot.is_decided = true);
    }

    /// Is ready when the connection is asked to close; the last task that polled is woken then.
    pub(super) fn poll_shed(&self, context: &mut Context<'_>) -> Poll<ShedCause> {
        let shed = self.with(|slot| {
            if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                slot.waker = Some(context.waker().clone());
            }
            slot.shed
        });
        shed.flatten().map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits for a result, unless the connection is asked to close before.
    ///
    /// # Errors
    /// Why it is to close.
    pub(super) async fn unless_shed<T>(
        &self,
        result: impl Future<Output = T>,
    ) -> Result<T, ShedCause> {
        tokio::select! {
            biased;
            result = result => Ok(result),
            cause = poll_fn(|context| self.poll_shed(context)) => Err(cause),
        }
    }

    /// Why the connection was asked to close, if it was.
    pub(super) fn shed_cause(&self) -> Option<ShedCause> {
        self.with(|slot| slot.shed).flatten()
    }

    fn with<T>(&self, apply: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.shard()?.lock().get_mut(self.key as usize).map(apply)
    }

    fn shard(&self) -> Option<&Mutex<Slab<Slot>>> {
        self.table.shards.get(self.shard as usize)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let slot = self.shard().and_then(|shard| shard.lock().try_remove(self.key as usize));
        let mut counts = self.table.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        let Some(address) = slot.and_then(|slot| slot.address) else { return };
        if let hash_map::Entry::Occupied(mut count) = counts.by_address.entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    fn is_asked_to_close(entry: &Entry) -> bool {
        entry.poll_shed(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn slot_is_small() {
        assert!(size_of::<Slot>() <= 48, "{}", size_of::<Slot>());
        assert!(size_of::<Entry>() <= 16, "{}", size_of::<Entry>());
    }

    #[test]
    fn limits_hold_in_all_and_by_address() {
        let table = OpenConnections::default();
        let first = table.add(2).unwrap();
        assert_eq!(first.count_by(ip(1), 1), Ok(()));
        let second = table.add(2).unwrap();
        assert_eq!(second.count_by(ip(1), 1), Err(OverLimit));
        assert_eq!(table.add(2).err(), Some(OverLimit));
        drop(first);
        assert_eq!(second.count_by(ip(1), 1), Ok(()));
        assert!(table.add(2).is_ok());
    }

    #[test]
    fn longest_idle_connections_are_asked_to_close_first() {
        let table = OpenConnections::default();
        let entries: Vec<_> = (0..40).map(|_| table.add(100).unwrap()).collect();
        for (entry, since) in entries.iter().zip(0..) {
            entry.note_idle(1000 - since);
        }
        entries[39].note_busy();
        assert_eq!(table.shed(10, 1001, ShedCause::Memory), 10);
        let asked: Vec<_> = (0..40).filter(|index| is_asked_to_close(&entries[*index])).collect();
        assert_eq!(asked, (29..39).collect::<Vec<_>>());
        assert_eq!(entries[29].shed_cause(), Some(ShedCause::Memory));
        // Those that were asked before are not counted again, and the rest has not been idle for
        // long enough.
        assert_eq!(table.shed(100, 1000 - 25, ShedCause::Room), 3);
    }

    #[test]
    fn connection_that_becomes_busy_is_not_closed() {
        let table = OpenConnections::default();
        let entry = table.add(1).unwrap();
        entry.note_idle(0);
        assert_eq!(table.shed(1, 1, ShedCause::Descriptors), 1);
        entry.note_busy();
        assert!(!is_asked_to_close(&entry));
        assert_eq!(table.shed(1, u64::MAX, ShedCause::Descriptors), 0);
    }

    #[test]
    fn undecided_connections_are_counted_unless_they_have_been_idle_for_long() {
        let table = OpenConnections::default();
        let entry = table.add(1).unwrap();
        assert_eq!(table.undecided(u64::MAX), 1);
        entry.note_idle(5);
        assert_eq!((table.undecided(5), table.undecided(6)), (1, 0));
        entry.note_busy();
        assert_eq!(table.undecided(6), 1);
        entry.note_decided();
        assert_eq!(table.undecided(0), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Open(u8),
        Close(usize),
        Idle(usize, u64),
        Busy(usize),
        Shed(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u8..6).prop_map(Step::Open),
            2 => any::<usize>().prop_map(Step::Close),
            2 => (any::<usize>(), 0_u64..1000).prop_map(|(which, since)| Step::Idle(which, since)),
            1 => any::<usize>().prop_map(Step::Busy),
            1 => (0_usize..5).prop_map(Step::Shed),
        ]
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn counts_equal_the_open_connections_in_any_order(steps in prop::collection::vec(step(), 0..200)) {
            const MAX: usize = 12;
            const MAX_PER_ADDRESS: usize = 4;
            let table = OpenConnections::default();
            let mut open: Vec<(u8, Entry)> = Vec::new();
            for step in steps {
                match step {
                    Step::Open(last) => {
                        let of_address = open.iter().filter(|(own, _)| *own == last).count();
                        let added = table.add(MAX);
                        prop_assert_eq!(added.is_ok(), open.len() < MAX);
                        let Ok(entry) = added else { continue };
                        let counted = entry.count_by(ip(last), MAX_PER_ADDRESS);
                        prop_assert_eq!(counted.is_ok(), of_address < MAX_PER_ADDRESS);
                        if counted.is_ok() {
                            open.push((last, entry));
                        }
                    }
                    Step::Close(which) if !open.is_empty() => {
                        let which = which % open.len();
                        open.swap_remove(which);
                    }
                    Step::Idle(which, since) if !open.is_empty() => {
                        open[which % open.len()].1.note_idle(since);
                    }
                    Step::Busy(which) if !open.is_empty() => open[which % open.len()].1.note_busy(),
                    Step::Shed(most) => {
                        prop_assert!(table.shed(most, u64::MAX, ShedCause::Room) <= most);
                    }
                    Step::Close(_) | Step::Idle(..) | Step::Busy(_) => {}
                }
                prop_assert_eq!(table.count(), open.len());
            }
            open.clear();
            let counts = table.0.counts.lock();
            prop_assert_eq!((counts.all, counts.by_address.len()), (0, 0));
            prop_assert!(table.0.shards.iter().all(|shard| shard.lock().is_empty()));
        }
    }

    #[test]
    fn counts_return_to_zero_after_many_threads() {
        let table = OpenConnections::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let table = table.clone();
                scope.spawn(move || {
                    let mut open = std::collections::VecDeque::new();
                    for round in 0..2_000_u64 {
                        if let Ok(entry) = table.add(100)
                            && entry
                                .count_by(
                                    ip(u8::try_from((u64::from(thread) + round) % 5).unwrap()),
                                    30,
                                )
                                .is_ok()
                        {
                            entry.note_idle(round);
                            open.push_back(entry);
                        }
                        if round % 3 > 0 {
                            open.pop_front();
                        }
                        assert!(table.count() <= 100);
                        table.shed(1, round, ShedCause::Room);
                    }
                });
            }
        });
        let counts = table.0.counts.lock();
        assert_eq!((counts.all, counts.by_address.len()), (0, 0));
    }
}
