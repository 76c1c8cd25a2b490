//! Fixed window: a kind of limit. Allows a number of tokens in each calendar period, such as a day
//! or a month in a time zone, and all of them again from the start of the next.
//!
//! Two periods meet at a boundary, so up to twice the limit can be allowed in a span across it that
//! is shorter than a period.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::MAX_UNITS;
use super::bucket::Bucket;
use super::calendar::{Bounds, Calendar};
use super::top_up::TopUps;
use super::verdict::Standing;
use crate::base::now::Now;

/// Parameters of a fixed window. A unit is a thousandth of a token, the smallest part that a cost
/// can have. So no change of the configuration changes the unit of a stored level.
///
/// In a [`Bucket`] of this kind, `level` is what is left of the current period, and `at` is the end
/// of that period in Unix time. From then on, the bucket is full. The level is above full if an
/// operator has granted more than the limit in this period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    /// Units in each period.
    full: i64,
    calendar: Calendar,
    overage: Overage,
    /// Thousandths of the limit, 1 to 1000, from which on clients are warned; 0: never.
    soft: u16,
}

/// What happens to a request that the rest of the period does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overage {
    /// It is refused.
    #[default]
    Refuse,
    /// It is allowed, and takes its tokens: the level falls below zero.
    Count,
}

impl Overage {
    /// The word of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Count => "count",
        }
    }
}

/// Error in the limit of a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FixedWindowError {
    /// The limit is 0: every request would be denied.
    #[error("a limit of 0 would refuse every request; the smallest is 1")]
    ZeroLimit,
    /// The limit would exceed [`MAX_UNITS`] thousandths.
    #[error("the limit is too large: at most {max} can be counted exactly", max = MAX_LIMIT)]
    LimitTooLarge,
}

/// Last byte of a stored value whose level is above full.
const ABOVE: u8 = b'+';

/// Largest number of tokens in a period.
const MAX_LIMIT: u64 = MAX_UNITS.unsigned_abs() / FixedWindow::PARTS;

impl FixedWindow {
    /// Parts of a token, which are units.
    pub const PARTS: u64 = 1_000;

    /// Creates a window of `limit` tokens in each period of `calendar`.
    ///
    /// # Errors
    /// If the limit is 0 or exceeds [`MAX_UNITS`] thousandths.
    pub const fn new(limit: u64, calendar: Calendar) -> Result<Self, FixedWindowError> {
        if limit == 0 {
            return Err(FixedWindowError::ZeroLimit);
        }
        if limit > MAX_LIMIT {
            return Err(FixedWindowError::LimitTooLarge);
        }
        let full = (limit * Self::PARTS).cast_signed();
        Ok(Self { full, calendar, overage: Overage::Refuse, soft: 0 })
    }

    /// The same window with other answers to what approaches or exceeds the limit. `soft` is in
    /// thousandths of the limit; 0: none.
    #[must_use]
    pub const fn with(self, overage: Overage, soft: u16) -> Self {
        Self { overage, soft, ..self }
    }

    /// What happens to requests beyond the limit.
    pub const fn overage(&self) -> Overage {
        self.overage
    }

    /// Thousandths of the limit from which on clients are warned; 0: never.
    pub const fn soft(&self) -> u16 {
        self.soft
    }

    /// Highest level, in units, at which clients are warned; `None`: never.
    pub const fn soft_level(&self) -> Option<i64> {
        if self.soft == 0 {
            return None;
        }
        // Both factors are small enough: full is at most 2^53.
        let (whole, rest) = (self.full / 1_000, self.full % 1_000);
        let share = self.soft as i64;
        Some(self.full - whole * share - (rest * share + 999) / 1_000)
    }

    /// Tokens in each period, at least 1.
    pub const fn limit(&self) -> u64 {
        self.full.unsigned_abs() / Self::PARTS
    }

    /// The periods.
    pub const fn calendar(&self) -> Calendar {
        self.calendar
    }

    /// Level at the start of a period in units, at most [`MAX_UNITS`].
    pub const fn full(&self) -> i64 {
        self.full
    }

    /// Lowest valid level in units, below zero. What was used in a period is counted whatever the
    /// limit is, and ends with the period.
    pub const fn lowest(&self) -> i64 {
        -MAX_UNITS
    }

    /// Highest valid level in units: an operator may grant more than the limit.
    pub const fn highest(&self) -> i64 {
        MAX_UNITS
    }

    /// Converts [`PARTS`](Self::PARTS) of a token to units, which they are. Saturates.
    pub const fn units(&self, parts: u64) -> i64 {
        if parts > i64::MAX.unsigned_abs() { i64::MAX } else { parts.cast_signed() }
    }

    /// Length in microseconds of the period that was computed last; 0 before the first.
    pub fn window_us(&self) -> u64 {
        self.calendar.last_length_us()
    }

    /// Microseconds from `unix_us` (Unix time) until the period ends.
    pub fn left_us(&self, unix_us: u64) -> u64 {
        self.calendar.bounds(unix_us).end_us.saturating_sub(unix_us).max(1)
    }
}

// === Transition ===

impl FixedWindow {
    /// Bucket of the period at `now` with this level.
    pub fn bucket(&self, level: i64, now: Now) -> Bucket {
        Bucket { level, at: self.calendar.bounds(now.unix_us).end_us }
    }

    /// Bucket at `now` with this level, that was seen to end at `end_us` (Unix time). If the next
    /// period ends about then, the clock went back over its start, and the bucket is of that one.
    /// Not exactly then, since Unix time may have been corrected meanwhile.
    pub fn bucket_until(&self, level: i64, end_us: u64, now: Now) -> Bucket {
        let bounds = self.calendar.bounds(now.unix_us);
        let half_us = bounds.next_end_us.saturating_sub(bounds.end_us) / 2;
        let is_of_next = end_us.abs_diff(bounds.next_end_us) < half_us;
        Bucket { level, at: if is_of_next { bounds.next_end_us } else { bounds.end_us } }
    }

    /// Returns the bucket at `now`: full if its period is over.
    pub fn refilled(&self, bucket: Bucket, now: Now) -> Bucket {
        self.advanced(bucket, self.calendar.bounds(now.unix_us), now.unix_us)
    }

    /// Returns the bucket at `unix_us` (Unix time). `bounds` are the current period and the next
    /// one according to the caller, whose clock may differ.
    ///
    /// The end of a bucket's period decides when it is full again, so it is reset once for each
    /// period, however many gateways with whatever clocks use it. If the bucket's period is another
    /// one, since its zone, anchor or period was changed, what was used counts in the current
    /// period.
    pub fn advanced(&self, bucket: Bucket, bounds: Bounds, unix_us: u64) -> Bucket {
        let Bounds { start_us, end_us, next_end_us } = bounds;
        let end = if unix_us >= start_us && unix_us < end_us {
            Some(end_us)
        } else if unix_us >= end_us && unix_us < next_end_us {
            Some(next_end_us)
        } else {
            // The caller's clock is wrong by a period or more.
            None
        };
        if unix_us >= bucket.at {
            return Bucket {
                level: self.full,
                at: end.unwrap_or_else(|| extrapolated(bounds, unix_us)),
            };
        }
        let at = match end {
            // The clock went back over the start of the bucket's period: it is not reset a second
            // time.
            Some(end) if end != next_end_us && bucket.at == next_end_us => bucket.at,
            Some(end) => end,
            None => bucket.at,
        };
        Bucket { level: bucket.level, at }
    }

    /// Converts a bucket of a window with `was` units in each period. What was used stays used.
    pub fn with_limit_changed(&self, bucket: Bucket, was: i64) -> Bucket {
        let level = self.full.saturating_sub(was.saturating_sub(bucket.level));
        Bucket { level: level.clamp(self.lowest(), self.highest()), at: bucket.at }
    }

    /// Returns the bucket at `now`, which is `kept` in a store with these top-ups, and changes
    /// these to what they are then. `refilled` is the same bucket without them.
    pub fn topped_up(
        &self,
        top_ups: &mut TopUps,
        kept: Bucket,
        refilled: Bucket,
        now: Now,
    ) -> Bucket {
        if now.unix_us < kept.at {
            return Bucket { level: top_ups.expire(refilled.level, now.unix_us), ..refilled };
        }
        let level = top_ups.expire(kept.level, now.unix_us);
        let level = refilled.level.saturating_add(top_ups.renew(level)).min(self.highest());
        Bucket { level, ..refilled }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken, by the clocks of
    /// `now`.
    pub const fn full_at(&self, bucket: Bucket, now: Now) -> u64 {
        if bucket.level == self.full { 0 } else { now.instant(bucket.at) }
    }
}

/// End of the period at `unix_us`, in periods as long as that of `bounds`. Exact for periods of one
/// length in UTC.
fn extrapolated(bounds: Bounds, unix_us: u64) -> u64 {
    let length = i128::from(bounds.end_us.saturating_sub(bounds.start_us)).max(1);
    let (start, unix_us) = (i128::from(bounds.start_us), i128::from(unix_us));
    let end = start + ((unix_us - start).div_euclid(length) + 1) * length;
    u64::try_from(end).unwrap_or(u64::MAX)
}

// === Standing ===

impl FixedWindow {
    /// Standing of a bucket at `level`: `remaining` tokens are left, a request needs `needed`
    /// units, and the period ends in `left_us` microseconds.
    pub const fn standing(
        &self,
        level: i64,
        needed: i64,
        remaining: u64,
        left_us: u64,
    ) -> Standing {
        let is_refused = needed > level && matches!(self.overage, Overage::Refuse);
        let retry_after_us = if is_refused { left_us } else { 0 };
        Standing { limit: self.limit(), remaining, retry_after_us, reset_us: left_us }
    }
}

// === Codec ===

impl FixedWindow {
    /// Bucket at `unix_us` from its stored value in Redis: level, end of its period, and minus the
    /// level at the start of a period when it was written, as doubles; then [`ABOVE`], if the level
    /// is above that. An invalid value counts as no value, which is a full bucket.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "levels are at most 2^53, where doubles are exact; times fit for 285 years"
    )]
    pub fn decode(&self, stored: &[u8], bounds: Bounds, unix_us: u64) -> Bucket {
        const EXACT: f64 = MAX_UNITS as f64;
        let double = |at: usize| Some(f64::from_le_bytes(*stored.get(at..)?.first_chunk()?));
        let is_above = stored.len() == 25 && stored.last() == Some(&ABOVE);
        let has_doubles = stored.len() == 24 || is_above;
        let doubles = has_doubles.then(|| Some((double(0)?, double(8)?, double(16)?)));
        // NaN fails every comparison.
        let valid = doubles.flatten().filter(|(level, end, negated)| {
            let limit = -negated;
            (1.0..=EXACT).contains(&limit)
                && limit % 1.0 == 0.0
                && *level <= if is_above { EXACT } else { limit }
                && *level >= -EXACT
                && *end >= 0.0
                && *end <= EXACT
        });
        let bucket = match valid {
            Some((level, end, negated)) => {
                let bucket = Bucket { level: level.floor() as i64, at: end.floor() as u64 };
                self.with_limit_changed(bucket, -negated as i64)
            }
            None => Bucket { level: self.full, at: 0 },
        };
        self.advanced(bucket, bounds, unix_us)
    }
}

#[cfg(test)]
mod tests;
