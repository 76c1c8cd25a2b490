//! State of one token bucket, and its transitions: refill, charge, rescale.

use super::quota::{MAX_UNITS, Quota};

/// Largest backward step of the clock, in microseconds, that does not move a bucket's timestamp.
/// Such steps occur between readings of two threads, and when a server's time is corrected.
pub const CLOCK_SLACK_US: u64 = super::MICROS_PER_SECOND;

/// State of a token bucket: a level in units of its [`Quota`], and a timestamp in microseconds.
///
/// A level below zero is a debt: tokens that gateways granted locally while they could not reach the
/// shared store. Requests are denied until the bucket has refilled above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Units in the bucket at time [`at`](Self::at); at most the quota's full level.
    pub level: i64,
    /// Time of the level, in microseconds.
    pub at: u64,
}

impl Bucket {
    /// A full bucket at `now`.
    pub const fn full(quota: &Quota, now: u64) -> Self {
        Self { level: quota.full(), at: now }
    }

    /// Returns the bucket refilled to `now`, at most to full.
    ///
    /// If `now` is before the bucket's time by up to [`CLOCK_SLACK_US`], the bucket does not change, so
    /// no token is added twice when the clock moves forward again. If the clock went back further,
    /// the bucket keeps its level and refills from `now`; otherwise it would not refill until the
    /// clock had caught up. Each such step back and forward again adds the tokens of the step's
    /// length once more. So does any step forward, which looks like elapsed time.
    pub const fn refilled(self, quota: &Quota, now: u64) -> Self {
        if now <= self.at {
            let at = if self.at > now.saturating_add(CLOCK_SLACK_US) { now } else { self.at };
            return Self { level: min(self.level, quota.full()), at };
        }
        let added = quota.units_in(now - self.at);
        Self { level: min(self.level.saturating_add(added), quota.full()), at: now }
    }

    /// Returns the bucket under another quota, at the same fraction of full. Used after a rule's rate
    /// or burst has changed. `was_full` is the full level under the old quota, at least 1.
    ///
    /// Computed in doubles and rounded down, as in `take.lua`, so that both stores agree to the
    /// unit.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "levels are at most 2^53, where doubles are exact"
    )]
    pub fn rescaled(self, was_full: i64, quota: &Quota) -> Self {
        if was_full == quota.full() {
            return self;
        }
        let fraction = self.level as f64 / was_full as f64;
        let level = (fraction * quota.full() as f64).floor() as i64;
        Self { level: level.clamp(-MAX_UNITS, quota.full()), at: self.at }
    }

    /// Whether the bucket holds at least `cost` tokens at its own time.
    pub const fn holds(&self, quota: &Quota, cost: u64) -> bool {
        self.level >= quota.units(cost)
    }

    /// Returns the bucket less `units`. The level may fall below zero.
    pub const fn less(self, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units), at: self.at }
    }

    /// Returns the bucket less a debt of `units`, at least [`Quota::lowest`].
    pub fn owing(self, quota: &Quota, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units).max(quota.lowest()), at: self.at }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken.
    pub const fn full_at(&self, quota: &Quota) -> u64 {
        self.at.saturating_add(quota.time_to_add_us(quota.full().saturating_sub(self.level)))
    }
}

/// `Ord::min` is not callable in a `const fn`.
const fn min(a: i64, b: i64) -> i64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rate 10 tokens per second, burst 2: a token is 100,000 units, a microsecond adds one.
    fn quota() -> Quota {
        Quota::new(10, 1_000_000, 2).unwrap()
    }

    #[test]
    fn refill_adds_elapsed_time_up_to_full() {
        let quota = quota();
        // (level, at, now) -> (level, at)
        let table = [
            ((0, 0, 0), (0, 0)),
            ((0, 0, 1), (1, 1)),
            ((0, 0, 100_000), (100_000, 100_000)),
            ((0, 0, 200_001), (200_000, 200_001)),
            ((199_999, 5, 6), (200_000, 6)),
            ((200_000, 5, u64::MAX), (200_000, u64::MAX)),
            ((50, 1_000, 999), (50, 1_000)),
            ((50, 1_000, 0), (50, 1_000)),
            ((50, 1_000_000, 0), (50, 1_000_000)),
            ((50, 1_000_001, 0), (50, 0)),
            ((9_000_000, 1_000, 1_000), (200_000, 1_000)),
            ((-100_000, 0, 99_999), (-1, 99_999)),
            ((-100_000, 0, 400_000), (200_000, 400_000)),
        ];
        for ((level, at, now), (level_after, at_after)) in table {
            let after = Bucket { level, at }.refilled(&quota, now);
            assert_eq!(after, Bucket { level: level_after, at: at_after }, "{level}@{at} at {now}");
        }
    }

    #[test]
    fn clock_swing_beyond_the_slack_refills_by_its_length() {
        let quota = Quota::new(10, 1_000_000, 50).unwrap();
        // (microseconds back and forward again, tokens that three such swings add)
        for (swing, tokens) in [(1_000_000, 0), (1_000_001, 30), (2_000_000, 60), (60_000_000, 150)]
        {
            let (now, mut added) = (100_000_000, 0);
            let mut bucket = Bucket { level: 0, at: now };
            for _ in 0..3 {
                bucket = bucket.refilled(&quota, now - swing).refilled(&quota, now);
                added += bucket.level / quota.units_per_token();
                bucket.level = 0;
            }
            assert_eq!(added, tokens, "{swing}");
        }
    }

    #[test]
    fn bucket_holds_a_cost_only_with_all_its_units() {
        let quota = quota();
        let bucket = Bucket { level: 100_000, at: 7 };
        assert!(bucket.holds(&quota, 1));
        assert!(!bucket.holds(&quota, 2));
        assert!(!Bucket { level: 99_999, at: 7 }.holds(&quota, 1));
        assert!(!Bucket::full(&quota, 0).holds(&quota, u64::MAX));
        assert_eq!(bucket.less(100_000), Bucket { level: 0, at: 7 });
        assert_eq!(bucket.less(100_001), Bucket { level: -1, at: 7 });
    }

    #[test]
    fn rescaled_bucket_keeps_its_fraction_of_full() {
        let quota = quota();
        // (level, full before) -> level of 200,000
        let table = [
            ((60, 100), 120_000),
            ((100, 100), 200_000),
            ((0, 100), 0),
            ((1, 3), 66_666),
            ((-1, 2), -100_000),
            ((-1, 3), -66_667),
            ((200_000, 200_000), 200_000),
            ((1 << 53, 1 << 53), 200_000),
        ];
        for ((level, was_full), expected) in table {
            let rescaled = Bucket { level, at: 7 }.rescaled(was_full, &quota);
            assert_eq!(rescaled, Bucket { level: expected, at: 7 }, "{level} of {was_full}");
        }
    }

    #[test]
    fn full_at_is_exact_to_the_microsecond() {
        let quota = quota();
        let bucket = Bucket { level: 1, at: 10 };
        let full_at = bucket.full_at(&quota);
        assert_eq!(bucket.refilled(&quota, full_at).level, quota.full());
        assert!(bucket.refilled(&quota, full_at - 1).level < quota.full());
    }
}
