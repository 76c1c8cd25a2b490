//! The requests in flight at an upstream, and the limit on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::retry_budget::RetryBudget;
use crate::limit::in_flight::adaptive::{Adaptive, Outcome, Sample};
use crate::limit::in_flight::threshold;
use crate::policy::priorities::Priorities;
use crate::policy::settings::MaxInFlight;

/// The requests in flight at one upstream. A reload keeps it.
#[derive(Debug, Default)]
pub struct Load {
    /// The budget of its retries.
    pub retries: RetryBudget,
    in_flight: AtomicU32,
    /// Those of them whose responses have begun.
    answered: AtomicU32,
    adaptive: Mutex<Adaptive>,
    /// Copies of requests to other upstreams in flight.
    mirrored: AtomicU32,
    /// The limit of `adaptive`, 0 before its first sample. Written with its lock held.
    adaptive_limit: AtomicU32,
}

/// One request in flight, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    load: Arc<Load>,
    is_answered: bool,
}

/// One copy of a request in flight, until it is dropped.
#[derive(Debug)]
pub struct MirrorSlot(Arc<Load>);

impl Load {
    /// Adds a request of a client on `plan` at `now` (microseconds), unless as many are in flight
    /// as its priority may have.
    pub fn enter(
        self: &Arc<Self>,
        max: Option<MaxInFlight>,
        priorities: &Priorities,
        plan: u32,
        now: u64,
    ) -> Option<Slot> {
        let slot = || Slot { load: Arc::clone(self), is_answered: false };
        let Some(limit) = self.limit(max) else {
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            return Some(slot());
        };
        let is_added = |limit: u32| {
            let most = threshold(limit, priorities.rank(plan), priorities.ranks());
            let one_more = |count: u32| (count < most).then_some(count + 1);
            self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
        };
        let is_added = is_added(limit)
            || (max == Some(MaxInFlight::Auto) && self.refuse(now).is_some_and(is_added));
        is_added.then(slot)
    }

    /// Adapts the limit to a request that is refused at `now`, if all in flight have their
    /// responses. Returns the limit from then on.
    #[cold]
    fn refuse(&self, now: u64) -> Option<u32> {
        let in_flight = self.in_flight();
        if self.answered.load(Ordering::Relaxed) < in_flight {
            return None;
        }
        let mut adaptive = self.adaptive.lock();
        let limit = adaptive.refuse(in_flight, now);
        self.adaptive_limit.store(limit, Ordering::Relaxed);
        Some(limit)
    }

    /// Adds a copy of a request to another upstream, unless `most` are in flight.
    pub fn enter_mirrored(self: &Arc<Self>, most: u32) -> Option<MirrorSlot> {
        let one_more = |count: u32| (count < most).then_some(count + 1);
        self.mirrored.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(MirrorSlot(Arc::clone(self)))
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The limit in force of an upstream with this setting; `None`: any number.
    pub fn limit(&self, max: Option<MaxInFlight>) -> Option<u32> {
        Some(match max? {
            MaxInFlight::Requests(limit) => limit,
            MaxInFlight::Auto => match self.adaptive_limit.load(Ordering::Relaxed) {
                0 => Adaptive::default().limit(),
                limit => limit,
            },
        })
    }

    /// Adapts the limit of `max_in_flight = "auto"` to a request that was sent at `started`, in
    /// microseconds.
    pub fn sample(&self, started: u64, outcome: Outcome, now: u64) {
        let in_flight = self.in_flight();
        let mut adaptive = self.adaptive.lock();
        let limit = adaptive.add(Sample { started, outcome, in_flight }, now);
        self.adaptive_limit.store(limit, Ordering::Relaxed);
    }
}

impl Slot {
    /// Notes that the response to the request has begun.
    pub fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.load.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_answered {
            self.load.answered.fetch_sub(1, Ordering::Relaxed);
        }
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for MirrorSlot {
    fn drop(&mut self) {
        self.0.mirrored.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: u32 = 0;
    const HIGH: u32 = 1;

    #[test]
    fn lower_priority_is_refused_first() {
        let (load, priorities) = (Arc::new(Load::default()), Priorities::new(&[0, 10]));
        let max = Some(MaxInFlight::Requests(4));
        let enter = |plan| load.enter(max, &priorities, plan, 0);
        let low = [enter(LOW).unwrap(), enter(LOW).unwrap()];
        assert!(enter(LOW).is_none());
        let _high = [enter(HIGH).unwrap(), enter(HIGH).unwrap()];
        assert!(enter(HIGH).is_none());
        assert_eq!(load.in_flight(), 4);
        drop(low);
        assert!(enter(LOW).is_none() && enter(HIGH).is_some());
    }

    #[test]
    fn any_number_is_counted_without_a_limit() {
        let (load, priorities) = (Arc::new(Load::default()), Priorities::new(&[0]));
        let slots: Vec<Slot> =
            (0..100).filter_map(|_| load.enter(None, &priorities, 0, 0)).collect();
        assert_eq!((slots.len(), load.in_flight(), load.limit(None)), (100, 100, None));
        drop(slots);
        assert_eq!(load.in_flight(), 0);
    }

    /// All of the limit are streams that began at once, and go on.
    #[test]
    fn adaptive_limit_grows_over_streams_of_which_none_waits() {
        const SECOND: u64 = 1_000_000;
        let (load, priorities) = (Arc::new(Load::default()), Priorities::new(&[0]));
        let enter = |now| load.enter(Some(MaxInFlight::Auto), &priorities, 0, now);
        let mut streams: Vec<Slot> = (0..16).filter_map(|_| enter(1)).collect();
        assert_eq!(streams.len(), 16);
        for _ in &streams {
            load.sample(1, Outcome::Answered(5_000), 5_001);
        }
        assert!(enter(2 * SECOND).is_none(), "their responses have not begun");
        streams.iter_mut().for_each(Slot::answered);
        assert!(enter(SECOND).is_none());
        streams.extend(enter(SECOND + 5_001));
        assert_eq!((streams.len(), load.limit(Some(MaxInFlight::Auto))), (17, Some(32)));
        // Without a sample since, once a second.
        streams.extend((0..15).filter_map(|_| enter(SECOND + 5_001)));
        streams.iter_mut().for_each(Slot::answered);
        assert!(streams.len() == 32 && enter(2 * SECOND).is_none());
        assert!(enter(2 * SECOND + 5_001).is_some());
        drop(streams);
        assert_eq!((load.in_flight(), load.answered.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn copies_have_a_limit_of_their_own() {
        let load = Arc::new(Load::default());
        let copies = [load.enter_mirrored(2).unwrap(), load.enter_mirrored(2).unwrap()];
        assert!(load.enter_mirrored(2).is_none());
        assert_eq!(load.in_flight(), 0);
        drop(copies);
        assert!(load.enter_mirrored(1).is_some());
    }

    #[test]
    fn concurrent_requests_never_exceed_the_limit() {
        let (load, priorities) = (Arc::new(Load::default()), Priorities::new(&[0]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let slot = load.enter(Some(MaxInFlight::Requests(2)), &priorities, 0, 0);
                        assert!(load.in_flight() <= 2);
                        drop(slot);
                    }
                });
            }
        });
        assert_eq!(load.in_flight(), 0);
    }
}
