//! State of one bucket: a level, and the time of that level.

use super::Limit;
use crate::base::now::Now;

/// Largest backward step of the clock, in microseconds, that does not move a bucket's timestamp.
/// Such steps occur between clock readings of two threads, and when a server's time is corrected.
pub const CLOCK_SLACK_US: u64 = crate::base::duration::MICROS_PER_SECOND;

/// State of a bucket: a level in units of its [`Limit`], and a timestamp in microseconds. What
/// passing time does to the level, and what the timestamp means, is defined by the kind of limit.
///
/// A level below zero is a debt: tokens that gateways granted locally while they could not reach
/// the shared store. Requests are denied until the bucket has refilled above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Available units at time [`at`](Self::at); at most the limit's full level.
    pub level: i64,
    /// Time of the level, in microseconds. Of a fixed window, the end of its period: see
    /// [`FixedWindow`](super::fixed_window::FixedWindow).
    pub at: u64,
}

impl Bucket {
    /// A full bucket at `now`.
    pub fn full(limit: &Limit, now: Now) -> Self {
        limit.bucket(limit.full(), now)
    }

    /// Returns the bucket refilled to `now`, at most to full. A clock that went back by up to
    /// [`CLOCK_SLACK_US`] changes nothing.
    #[inline]
    pub fn refilled(self, limit: &Limit, now: Now) -> Self {
        limit.refilled(self, now)
    }

    /// Whether the bucket holds at least `cost` tokens at its own time.
    pub const fn holds(&self, limit: &Limit, cost: u64) -> bool {
        self.level >= limit.units(cost)
    }

    /// Returns the bucket less `units`. The level may fall below zero.
    pub const fn less(self, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units), at: self.at }
    }

    /// Returns the bucket less a debt of `units`. The level is at least [`Limit::lowest`].
    pub fn less_debt(self, limit: &Limit, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units).max(limit.lowest()), at: self.at }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken, by the clocks of
    /// `now`.
    pub fn full_at(&self, limit: &Limit, now: Now) -> u64 {
        limit.full_at(*self, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_holds_a_cost_only_with_all_its_units() {
        // Rate 10 tokens per second, burst 2: a token is 100,000 units.
        let limit = Limit::token_bucket(10, 1_000_000, 2).unwrap();
        let bucket = Bucket { level: 100_000, at: 7 };
        assert!(bucket.holds(&limit, 1));
        assert!(!bucket.holds(&limit, 2));
        assert!(!Bucket { level: 99_999, at: 7 }.holds(&limit, 1));
        assert!(!Bucket::full(&limit, Now::unix(0)).holds(&limit, u64::MAX));
        assert_eq!(bucket.less(100_000), Bucket { level: 0, at: 7 });
        assert_eq!(bucket.less(100_001), Bucket { level: -1, at: 7 });
    }
}
