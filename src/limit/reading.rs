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
            let level = limit
                .bucket(level, now.at(now.us.saturating_sub(age_us)))
                .refilled(limit, now)
                .level;
            return Self { level, times: Times::period(limit.left_us_at(now)), top_ups };
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
