//! Start level of unknown buckets, in a process that must not start with full ones.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limit::bucket::Bucket;
use crate::limit::charge::Charge;
use crate::limit::share::Share;

/// Start level of unknown buckets: full, or empty after [`Start::empty`].
#[derive(Debug, Default)]
pub(super) struct Start {
    empty: OnceLock<Empty>,
}

/// Unknown buckets are empty at `at`, and refill from then on.
#[derive(Debug)]
struct Empty {
    at: u64,
    share: Share,
    /// Once set, unknown buckets start full.
    ends: Arc<AtomicBool>,
}

impl Start {
    /// Makes unknown buckets start empty at `now`, until `ends` is set. The process grants `share`
    /// of each. Further calls have no effect.
    pub(super) fn empty(&self, share: Share, ends: Arc<AtomicBool>, now: u64) {
        let _ = self.empty.set(Empty { at: now, share, ends });
    }

    /// Start value of the charge's unknown bucket at `now`, at most `bucket`: see
    /// [`Limit::started_empty`](crate::limit::Limit::started_empty), after a request of the same
    /// cost.
    pub(super) fn at_most(&self, bucket: Bucket, charge: &Charge, now: u64) -> Bucket {
        let Some(empty) = self.empty.get() else { return bucket };
        if empty.ends.load(Ordering::Relaxed) {
            return bucket;
        }
        let units = empty.share.taken(&charge.limit, charge.cost);
        charge.limit.started_empty(bucket, units, empty.at, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::now::Now;
    use crate::limit::Limit;
    use crate::limit::charge::{BucketId, Mode};
    use crate::limit::sliding_window::SlidingWindow;

    #[test]
    fn unknown_sliding_windows_start_with_all_stamps_of_the_start() {
        let limit = Limit::SlidingWindow(SlidingWindow::new(5, 100).unwrap());
        let (bucket, mode) = (BucketId(0), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let start = Start::default();
        let ends = Arc::new(AtomicBool::new(false));
        start.empty(Share::one_of(3), Arc::clone(&ends), 50);
        let at = |now| start.at_most(Bucket::full(&limit, Now::unix(now)), &charge, now);
        assert_eq!(at(50), Bucket { level: 0, at: 50 });
        assert_eq!(at(149), Bucket { level: 0, at: 50 });
        assert_eq!(at(150).level, 5);
        ends.store(true, Ordering::Relaxed);
        assert_eq!(at(149).level, 5);
    }

    #[test]
    fn unknown_buckets_start_empty_and_refill_until_ends_is_set() {
        // A microsecond adds a unit, a token is 100 units, burst 10.
        let limit = Limit::token_bucket(1, 100, 10).unwrap();
        let level = |gateways, cost, now, is_over| {
            let (bucket, mode) = (BucketId(0), Mode::Enforce);
            let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode };
            let start = Start::default();
            start.empty(Share::one_of(gateways), Arc::new(AtomicBool::new(is_over)), 50);
            start.at_most(Bucket::full(&limit, Now::unix(now)), &charge, now).level
        };
        // (gateways, cost, now, over) -> level
        let table = [
            ((1, 1, 50, false), 0),
            ((1, 10, 50, false), 0),
            ((1, 1, 649, false), 599),
            ((1, 1, 9_000, false), 1_000),
            ((3, 1, 50, false), 0),
            ((3, 5, 50, false), -500),
            ((20, 1, 1_050, false), 0),
            ((20, 1, 50, true), 1_000),
            ((1, 1, 0, false), 0),
        ];
        for ((gateways, cost, now, is_over), expected) in table {
            let level = level(gateways, cost, now, is_over);
            assert_eq!(level, expected, "{gateways}, {cost}, at {now}, {is_over}");
        }
        let full = Bucket::full(&limit, Now::unix(7));
        let charge = Charge {
            bucket: BucketId(0),
            rule: 0,
            limit_index: 0,
            limit,
            cost: 1,
            mode: Mode::Enforce,
        };
        assert_eq!(Start::default().at_most(full, &charge, 7), full, "full by default");
    }
}
