//! What clients may ask Redis for free: a bound, so that asking what is left burdens nobody more
//! than asking for the thing itself.
//!
//! - One client's buckets are looked up in Redis once in [`KEPT`] ticks; in between it is told what
//!   was seen, refilled to now.
//! - Questions of one client wait for the one that is under way.
//! - All clients together look at most [`A_SECOND`] times a second. Beyond that they are told what
//!   this process knows.

use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use crate::limit::TICKS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::charge::Charge;
use crate::limit::quota::Quota;

/// How long what was seen is told again, in ticks.
pub(super) const KEPT: u64 = TICKS_PER_SECOND / 5;

/// How often Redis is looked into, in looks a second; so many may come at once.
pub(super) const A_SECOND: u64 = 500;

/// How many clients are remembered. With more at once, some ask Redis sooner than they need.
const SLOTS: usize = 1024;

/// Buckets that were looked at lately.
pub(super) struct Glances {
    /// Made when somebody first asks: most gateways are never asked.
    slots: OnceLock<Box<[Turn<Option<Seen>>]>>,
    hasher: foldhash::fast::RandomState,
    allowed: Mutex<Option<Bucket>>,
}

/// What came of a look at one client's buckets.
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
    /// The place of what was seen of these buckets. Two clients may share one, and then know
    /// nothing of each other.
    pub(super) fn slot(&self, charges: &[Charge]) -> &Turn<Option<Seen>> {
        use std::hash::{BuildHasher as _, Hasher as _};

        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Turn::default()).collect());
        let mut hasher = self.hasher.build_hasher();
        for charge in charges {
            hasher.write_u128(charge.bucket.0);
        }
        let index = usize::try_from(hasher.finish() % SLOTS as u64).unwrap_or_default();
        &slots[index]
    }

    /// Whether one more look at Redis is within bounds; counts it then.
    pub(super) fn admits(&self, now: u64) -> bool {
        let Ok(quota) = Quota::new(A_SECOND, TICKS_PER_SECOND, A_SECOND) else { return false };
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

    /// Whether these buckets were looked at so lately that they are not to be looked at again.
    pub(super) fn is_of(&self, charges: &[Charge], now: u64) -> bool {
        now.saturating_sub(self.at) < KEPT && *self.charges == *charges
    }

    /// What they hold at `now`, unless somebody has taken from them since; none where that was not
    /// seen.
    pub(super) fn levels(&self, now: u64) -> Option<Vec<i64>> {
        let level = |(charge, level): (&Charge, &i64)| {
            Bucket { level: *level, at: self.at }.refilled(&charge.quota, now).level
        };
        Some(self.charges.iter().zip(self.levels.as_ref()?).map(level).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::charge::{BucketId, Mode};

    fn charge(bucket: u128, burst: u64) -> Charge {
        let quota = Quota::new(10, TICKS_PER_SECOND, burst).unwrap();
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
            assert_eq!(seen.is_of(&charges, now), is_told, "at {now}");
            assert_eq!(seen.levels(now), Some(levels.to_vec()), "at {now}");
        }
        assert_eq!(Seen::new(&charges, None, 0).levels(1), None);
    }

    #[test]
    fn nobody_is_told_of_other_buckets_or_of_other_quotas() {
        let seen = Seen::new(&[charge(1, 50)], Some(vec![7]), 0);
        assert!(seen.is_of(&[charge(1, 50)], 1));
        for others in [&[charge(2, 50)][..], &[charge(1, 49)], &[], &[charge(1, 50); 2]] {
            assert!(!seen.is_of(others, 1), "{others:?}");
        }
    }

    #[test]
    fn redis_is_looked_into_so_many_times_a_second_and_no_more() {
        let glances = Glances::default();
        let second = TICKS_PER_SECOND;
        let admitted = |now| (0..2 * A_SECOND).filter(|_| glances.admits(now)).count() as u64;
        assert_eq!(admitted(5), A_SECOND);
        assert_eq!(admitted(5), 0);
        assert_eq!(admitted(5 + second / 10), A_SECOND / 10);
        assert_eq!(admitted(5 + 9 * second), A_SECOND);
    }

    #[test]
    fn one_client_has_one_place() {
        let glances = Glances::default();
        let charges = [charge(1, 50), charge(2, 50)];
        assert!(std::ptr::eq(glances.slot(&charges), glances.slot(&charges)));
    }
}
