//! What an operator does to a bucket by hand.

use super::bucket::Bucket;
use super::quota::{MAX_UNITS, Quota};

/// A change of a bucket's level by hand. It only ever rises, and never above full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// The bucket is full, whatever it owed.
    Reset,
    /// So many tokens more, at least 1.
    Grant(u64),
}

/// More than any bucket lacks.
const ENOUGH: i64 = 4 * MAX_UNITS;

impl Adjustment {
    /// Units that are put into a bucket of that quota, as far as there is room.
    pub fn units(self, quota: &Quota) -> i64 {
        match self {
            Self::Reset => ENOUGH,
            Self::Grant(tokens) => quota.units(tokens).min(ENOUGH),
        }
    }

    /// The bucket afterwards.
    pub fn apply(self, bucket: Bucket, quota: &Quota) -> Bucket {
        let level = bucket.level.saturating_add(self.units(quota)).min(quota.full());
        Bucket { level, ..bucket }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_fills_the_largest_bucket_from_its_lowest_level() {
        let quota = Quota::new(1, MAX_UNITS.unsigned_abs(), 1).unwrap();
        assert_eq!((quota.full(), quota.lowest()), (MAX_UNITS, -MAX_UNITS));
        let after = Adjustment::Reset.apply(Bucket { level: quota.lowest(), at: 0 }, &quota);
        assert_eq!(after.level, MAX_UNITS);
    }

    #[test]
    fn a_bucket_is_never_more_than_full() {
        let quota = Quota::new(10, 1_000_000, 50).unwrap();
        // (level, what is done) -> level, of 5,000,000
        let table = [
            (0, Adjustment::Reset, 5_000_000),
            (quota.lowest(), Adjustment::Reset, 5_000_000),
            (5_000_000, Adjustment::Reset, 5_000_000),
            (0, Adjustment::Grant(1), 100_000),
            (-250_000, Adjustment::Grant(2), -50_000),
            (4_950_000, Adjustment::Grant(1), 5_000_000),
            (quota.lowest(), Adjustment::Grant(u64::MAX), 5_000_000),
        ];
        for (level, adjustment, expected) in table {
            let after = adjustment.apply(Bucket { level, at: 7 }, &quota);
            assert_eq!(after, Bucket { level: expected, at: 7 }, "{level}, {adjustment:?}");
        }
    }
}
