//! Changes of a bucket: reset and grant by an operator, and tokens that are given back.

use super::bucket::Bucket;
use super::{Limit, MAX_UNITS};

/// A change of a bucket's level. It raises the level, at most to full unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// Fills the bucket, and cancels its debt.
    Reset,
    /// Adds this number of tokens, at least 1.
    Grant(u64),
    /// Adds this number of tokens, at least 1, also above the limit of a fixed window's period.
    GrantAbove(u64),
    /// Adds this number of units, at least 0: what a request took.
    GiveBack(i64),
}

/// Units that fill any bucket, even from its lowest level.
const FILL_UNITS: i64 = 4 * MAX_UNITS;

impl Adjustment {
    /// Units to add to a bucket of `limit`, before the result is capped at a full bucket.
    pub fn units(self, limit: &Limit) -> i64 {
        match self {
            Self::Reset => FILL_UNITS,
            Self::Grant(tokens) | Self::GrantAbove(tokens) => {
                limit.token_units(tokens).min(FILL_UNITS)
            }
            Self::GiveBack(units) => units.min(FILL_UNITS),
        }
    }

    /// Whether what was used of top-ups that have expired is forgotten before the change: what an
    /// operator adds is not given back to them.
    pub const fn forgets_expired(self) -> bool {
        !matches!(self, Self::GiveBack(_))
    }

    /// Returns the bucket after the change.
    pub fn apply(self, bucket: Bucket, limit: &Limit) -> Bucket {
        let most = match self {
            Self::GrantAbove(_) => limit.highest(),
            Self::Reset | Self::Grant(_) | Self::GiveBack(_) => limit.full(),
        };
        let level = bucket.level.saturating_add(self.units(limit)).min(most);
        Bucket { level: level.max(bucket.level), ..bucket }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::fixed_window::FixedWindow;

    #[test]
    fn reset_fills_the_largest_bucket_from_its_lowest_level() {
        let limit = Limit::token_bucket(1, MAX_UNITS.unsigned_abs(), 1).unwrap();
        assert_eq!((limit.full(), limit.lowest()), (MAX_UNITS, -MAX_UNITS));
        let after = Adjustment::Reset.apply(Bucket { level: limit.lowest(), at: 0 }, &limit);
        assert_eq!(after.level, MAX_UNITS);
    }

    #[test]
    fn grant_above_the_limit_exceeds_it_in_a_period_only() {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let month = Limit::FixedWindow(FixedWindow::new(1_000, calendar).unwrap());
        let of = |limit: &Limit, level, adjustment: Adjustment| {
            adjustment.apply(Bucket { level, at: 7 }, limit).level
        };
        assert_eq!(of(&month, 41_000, Adjustment::GrantAbove(5_000)), 5_041_000);
        assert_eq!(of(&month, 0, Adjustment::GrantAbove(u64::MAX)), MAX_UNITS);
        // Neither takes away what is above.
        for adjustment in [Adjustment::Reset, Adjustment::Grant(9), Adjustment::GiveBack(9)] {
            assert_eq!(of(&month, 5_041_000, adjustment), 5_041_000, "{adjustment:?}");
        }
        let bucket = Limit::token_bucket(10, 1_000_000, 50).unwrap();
        assert_eq!(of(&bucket, 0, Adjustment::GrantAbove(5_000)), bucket.full());
    }

    #[test]
    fn adjusted_bucket_is_at_most_full() {
        let limit = Limit::token_bucket(10, 1_000_000, 50).unwrap();
        // (level, adjustment) -> level; full is 5,000,000
        let table = [
            (0, Adjustment::Reset, 5_000_000),
            (limit.lowest(), Adjustment::Reset, 5_000_000),
            (5_000_000, Adjustment::Reset, 5_000_000),
            (0, Adjustment::Grant(1), 100_000),
            (-250_000, Adjustment::Grant(2), -50_000),
            (4_950_000, Adjustment::Grant(1), 5_000_000),
            (limit.lowest(), Adjustment::Grant(u64::MAX), 5_000_000),
        ];
        for (level, adjustment, expected) in table {
            let after = adjustment.apply(Bucket { level, at: 7 }, &limit);
            assert_eq!(after, Bucket { level: expected, at: 7 }, "{level}, {adjustment:?}");
        }
    }
}
