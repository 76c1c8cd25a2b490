//! What clients may ask Redis for free: a bound, so that asking what is left burdens nobody more
//! than asking for the thing itself.
//!
//! - One client has Redis looked into once in [`KEPT`] ticks; in between it is told what was seen,
//!   refilled to now, or of other buckets what this process knows.
//! - Questions of one client wait for the one that is under way, no longer than a check waits.
//! - All clients together look at most [`A_SECOND`] times a second. Beyond that they are told what
//!   this process knows.

use std::net::IpAddr;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use crate::limit::MICROS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::charge::Charge;
use crate::limit::quota::Quota;

/// How long what was seen is told again, in ticks.
pub(super) const KEPT: u64 = MICROS_PER_SECOND / 5;

/// How often Redis is looked into, in looks a second; so many may come at once.
pub(super) const A_SECOND: u64 = 500;

/// How many clients are remembered. With more at once, some ask Redis sooner than they need.
const SLOTS: usize = 1024;

/// Who asks, as far as looks are bounded by it: whoever chooses what his buckets are called (by
/// keys that are in no file, hosts, headers) is still the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asker {
    /// A known key, by its index.
    Key(u32),
    /// An address, cut to what is counted as one client; none on a Unix socket.
    Address(Option<IpAddr>),
}

/// Buckets that were looked at lately.
pub(super) struct Glances {
    /// Made when somebody first asks: most gateways are never asked.
    slots: OnceLock<Box<[Turn<Option<Seen>>]>>,
    hasher: foldhash::fast::RandomState,
    allowed: Mutex<Option<Bucket>>,
}

/// What came of a look at some client's buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    charges: Vec<Charge>,
    /// None: Redis was not there to ask.
    levels: Option<Vec<i64>>,
    /// When that was, in ticks.
    at: u64,
}

impl Default for Glances {
    fn default() -> Self {
        let hasher = foldhash::fast::RandomState::default();
        Self { slots: OnceLock::new(), hasher, allowed: Mutex::new(None) }
    }
}

impl Glances {
    /// The place of what was last seen for whoever asks. Two may share one; each is told of its own
    /// buckets alone.
    pub(super) fn slot(&self, asker: Asker) -> &Turn<Option<Seen>> {
        use std::hash::BuildHasher as _;

        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Turn::default()).collect());
        let hash = self.hasher.hash_one(asker);
        &slots[usize::try_from(hash % SLOTS as u64).unwrap_or_default()]
    }

    /// Whether one more look at Redis is within bounds; counts it then.
    pub(super) fn admits(&self, now: u64) -> bool {
        let Ok(quota) = Quota::new(A_SECOND, MICROS_PER_SECOND, A_SECOND) else { return false };
        let mut allowed = self.allowed.lock();
        let bucket = allowed.unwrap_or(Bucket::full(&quota, now)).refilled(&quota, now);
        let admits = bucket.holds(&quota, 1);
        *allowed = Some(if admits { bucket.less(quota.units(1)) } else { bucket });
        admits
    }
}

impl Seen {
    pub(super) fn new(charges: &[Charge], levels: Option<Vec<i64>>, at: u64) -> Self {
        Self { charges: charges.to_vec(), levels, at }
    }

    /// Whether that was so lately that Redis is not to be looked into again.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.at) < KEPT
    }

    /// Whether Redis was there.
    pub(super) fn was_answered(&self) -> bool {
        self.levels.is_some()
    }

    /// What these buckets hold at `now`, unless somebody has taken from them since; none where they
    /// were not seen.
    pub(super) fn levels(&self, charges: &[Charge], now: u64) -> Option<Vec<i64>> {
        let levels = self.levels.as_ref().filter(|_| *self.charges == *charges)?;
        let level = |(charge, level): (&Charge, &i64)| {
            Bucket { level: *level, at: self.at }.refilled(&charge.quota, now).level
        };
        Some(charges.iter().zip(levels).map(level).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::charge::{BucketId, Mode};

    fn charge(bucket: u128, burst: u64) -> Charge {
        let quota = Quota::new(10, MICROS_PER_SECOND, burst).unwrap();
        let bucket = BucketId(bucket);
        Charge { bucket, rule: 0, quota_index: 0, quota, cost: 1, mode: Mode::Enforce }
    }

    #[test]
    fn what_was_seen_is_told_for_a_while_and_fills_meanwhile() {
        let charges = [charge(1, 50), charge(2, 50)];
        let seen = Seen::new(&charges, Some(vec![0, 4_999_999]), 1_000);
        // now -> (whether it is told, levels)
        let table = [
            (1_000, (true, [0, 4_999_999])),
            (1_007, (true, [7, 5_000_000])),
            (1_000 + KEPT - 1, (true, [199_999, 5_000_000])),
            (1_000 + KEPT, (false, [200_000, 5_000_000])),
            (999, (true, [0, 4_999_999])),
        ];
        for (now, (is_told, levels)) in table {
            assert_eq!(seen.is_fresh(now), is_told, "at {now}");
            assert_eq!(seen.levels(&charges, now), Some(levels.to_vec()), "at {now}");
        }
        let unseen = Seen::new(&charges, None, 0);
        assert_eq!((unseen.was_answered(), unseen.levels(&charges, 1)), (false, None));
    }

    #[test]
    fn nobody_is_told_of_other_buckets_or_of_other_quotas() {
        let seen = Seen::new(&[charge(1, 50)], Some(vec![7]), 0);
        assert!(seen.levels(&[charge(1, 50)], 1).is_some());
        for others in [&[charge(2, 50)][..], &[charge(1, 49)], &[], &[charge(1, 50); 2]] {
            assert_eq!(seen.levels(others, 1), None, "{others:?}");
        }
    }

    #[test]
    fn redis_is_looked_into_so_many_times_a_second_and_no_more() {
        let glances = Glances::default();
        let second = MICROS_PER_SECOND;
        let admitted = |now| (0..2 * A_SECOND).filter(|_| glances.admits(now)).count() as u64;
        assert_eq!(admitted(5), A_SECOND);
        assert_eq!(admitted(5), 0);
        assert_eq!(admitted(5 + second / 10), A_SECOND / 10);
        assert_eq!(admitted(5 + 9 * second), A_SECOND);
    }

    #[test]
    fn one_client_has_one_place() {
        let glances = Glances::default();
        for asker in [Asker::Key(7), Asker::Address(None)] {
            assert!(std::ptr::eq(glances.slot(asker), glances.slot(asker)));
        }
    }
}
