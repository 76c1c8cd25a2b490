//! [`Reading`]: the level of a bucket, and [`Times`] that do not follow from the level.

use super::charge::Charge;
use crate::base::now::Now;

/// Times of a bucket that do not follow from its level. All 0 for kinds whose times do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Microseconds until the bucket is full: until the period of a fixed window ends, or until the
    /// newest token has left a sliding window.
    pub left_us: u64,
    /// Microseconds until a sliding window has room for the cost of the charge; 0 if it has.
    pub wait_us: u64,
}

impl Times {
    /// For kinds whose times follow from the level.
    pub const NONE: Self = Self { left_us: 0, wait_us: 0 };

    /// Of a fixed window whose period ends in `left_us` microseconds.
    pub const fn period(left_us: u64) -> Self {
        Self { left_us, wait_us: 0 }
    }
}

/// What is left of the top-ups of a fixed window. All 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOfTopUps {
    /// Units, which the level includes.
    pub units: i64,
    /// Unix time in microseconds at which the first of them expires.
    pub expires_us: u64,
}

/// State of a charge's bucket, read without taking tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Level in the limit's units.
    pub level: i64,
    /// Times from the reading on.
    pub times: Times,
    /// Of a fixed window.
    pub top_ups: LeftOfTopUps,
}

impl Reading {
    /// Of a bucket without top-ups.
    pub const fn new(level: i64, times: Times) -> Self {
        Self { level, times, top_ups: LeftOfTopUps { units: 0, expires_us: 0 } }
    }

    /// The same bucket `age_us` microseconds later at `now`, if nothing was taken since. A lower
    /// bound of the level of a sliding window.
    #[must_use]
    pub fn later(self, charge: &Charge, age_us: u64, now: Now) -> Self {
        let limit = &charge.limit;
        let Self { level, times, top_ups } = self;
        if limit.log().is_none() {
            let kept = limit.bucket(level, now.at(now.us.saturating_sub(age_us)));
            let refilled = kept.refilled(limit, now);
            // What is left of each is not known after the end of the period or of the first.
            let is_known = refilled.at == kept.at && now.unix_us < top_ups.expires_us;
            let top_ups = if is_known { top_ups } else { LeftOfTopUps::default() };
            let times = Times::period(limit.left_us_at(now));
            return Self { level: refilled.level, times, top_ups };
        }
        let level = if times.left_us <= age_us {
            limit.full()
        } else if times.wait_us > 0 && times.wait_us <= age_us {
            level.max(limit.units(charge.cost))
        } else {
            level
        };
        let left = |us: u64| us.saturating_sub(age_us);
        let times = Times { left_us: left(times.left_us), wait_us: left(times.wait_us) };
        Self { level, times, top_ups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::{BucketId, Mode};
    use crate::limit::fixed_window::FixedWindow;

    #[test]
    fn top_ups_of_an_earlier_reading_end_with_the_period_and_with_the_first_expiry() {
        let calendar = Calendar::new(Period::Hour, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(10, calendar).unwrap());
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
        let hour_us = 3_600_000_000;
        let left = |expires_us, unix_us| {
            let top_ups = LeftOfTopUps { units: 5_000, expires_us };
            let reading = Reading { top_ups, ..Reading::new(15_000, Times::period(9)) };
            reading.later(&charge, 100, Now { us: 1_000, unix_us }).top_ups.units
        };
        assert_eq!(left(2 * hour_us, hour_us - 1), 5_000);
        assert_eq!(left(2 * hour_us, hour_us + 50), 0, "the period has ended");
        assert_eq!((left(500, 499), left(500, 500)), (5_000, 0));
    }
}
