//! One bucket: its level, the instant at which that level was true, and how it moves.

use super::quota::{MAX_UNITS, Quota};

/// How far a clock may go back, in ticks, without a bucket taking notice: readings of one clock by
/// two threads, or by a server before and after its time was set right.
pub const CLOCK_SLACK: u64 = super::MICROS_PER_SECOND;

/// A token bucket's whole state. Units are those of its [`Quota`], ticks those of the clock.
///
/// A level below zero is a debt: tokens that gateways granted while they could not see each other.
/// It is paid off at the bucket's own rate before anybody passes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Units in the bucket at [`at`](Self::at), at most the quota's full level.
    pub level: i64,
    /// The tick at which the level was true.
    pub at: u64,
}

impl Bucket {
    /// A bucket that nobody has taken from.
    pub const fn full(quota: &Quota, now: u64) -> Self {
        Self { level: quota.full(), at: now }
    }

    /// The same bucket at `now`: fuller by the ticks that passed, never beyond full.
    ///
    /// A clock that goes back by up to [`CLOCK_SLACK`] changes nothing, and gives no tokens twice
    /// when it goes forward again. If it goes back by more, the bucket keeps its level and fills
    /// from `now` on: it must not stand still until the clock is where it was. So a clock that goes
    /// back by more than that and forward again adds the step's length once more, each time; and so
    /// does any step forward, which cannot be told from time that passed.
    pub const fn refilled(self, quota: &Quota, now: u64) -> Self {
        if now <= self.at {
            let at = if self.at > now.saturating_add(CLOCK_SLACK) { now } else { self.at };
            return Self { level: min(self.level, quota.full()), at };
        }
        let added = quota.units_in(now - self.at);
        Self { level: min(self.level.saturating_add(added), quota.full()), at: now }
    }

    /// The same fraction of a bucket of another quota, where a rule's rate or burst has changed:
    /// `was_full` is the level of a full bucket under the old one, at least 1. In doubles, rounded
    /// down: the store in Redis can do no other, and both must agree to the unit.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "levels are at most 2^53, which doubles have exactly"
    )]
    pub fn rescaled(self, was_full: i64, quota: &Quota) -> Self {
        if was_full == quota.full() {
            return self;
        }
        let fraction = self.level as f64 / was_full as f64;
        let level = (fraction * quota.full() as f64).floor() as i64;
        Self { level: level.clamp(-MAX_UNITS, quota.full()), at: self.at }
    }

    /// Whether the bucket holds `cost` tokens at its own instant.
    pub const fn holds(&self, quota: &Quota, cost: u64) -> bool {
        self.level >= quota.units(cost)
    }

    /// The bucket after `units` were taken, whether they were there or not.
    pub const fn less(self, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units), at: self.at }
    }

    /// The bucket after a debt of `units` was taken off, as far as a bucket can be in debt.
    pub fn owing(self, quota: &Quota, units: i64) -> Self {
        Self { level: self.level.saturating_sub(units).max(quota.lowest()), at: self.at }
    }

    /// The tick at which the bucket is full again if nobody takes from it.
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

    /// 10 tokens a second, 2 tokens deep: a token is worth 100,000 units, a tick adds one.
    fn quota() -> Quota {
        Quota::new(10, 1_000_000, 2).unwrap()
    }

    #[test]
    fn levels_follow_the_clock() {
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
    fn each_swing_of_the_clock_beyond_the_slack_refills_its_length() {
        let quota = Quota::new(10, 1_000_000, 50).unwrap();
        // (ticks back and forward again, tokens that three such swings add)
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
    fn taking_needs_every_unit_of_the_cost() {
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
    fn a_new_quota_keeps_the_fraction() {
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
    fn full_again_is_exact_to_the_tick() {
        let quota = quota();
        let bucket = Bucket { level: 1, at: 10 };
        let full_at = bucket.full_at(&quota);
        assert_eq!(bucket.refilled(&quota, full_at).level, quota.full());
        assert!(bucket.refilled(&quota, full_at - 1).level < quota.full());
    }
}
