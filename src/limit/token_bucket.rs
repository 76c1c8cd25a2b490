//! Token bucket: a kind of limit. Tokens are added at a constant rate, up to the burst.
//!
//! Allows at most `burst + rate * t` tokens in any span of `t`.

use thiserror::Error;

use super::bucket::{Bucket, CLOCK_SLACK_US};
use super::cost::greatest_common_divisor;
use super::verdict::Standing;
use super::{MAX_DEBT_BURSTS, MAX_UNITS};

/// Parameters of a token bucket.
///
/// A rate of N tokens per P microseconds is divided by their greatest common divisor. Each
/// microsecond adds `units_per_us` units, and a token is `parts` times `units_per_part` units, all
/// at least 1. So levels are integers, and refills are exact. Requests take whole parts of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    units_per_us: i64,
    units_per_part: i64,
    burst: u64,
    /// Parts of a token: 1 unless costs have decimals.
    parts: u16,
}

/// Error in a rate or burst of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenBucketError {
    /// The rate is 0: an empty bucket would never refill.
    #[error("a rate of 0 would let nothing pass; to refuse requests, leave the route out instead")]
    ZeroRate,
    /// The period is 0.
    #[error("a rate needs a period longer than 0")]
    ZeroPeriod,
    /// The burst is 0: every request would be denied.
    #[error("a burst of 0 would refuse every request; the smallest is 1")]
    ZeroBurst,
    /// More tokens per microsecond than [`MAX_UNITS`].
    #[error("the rate is too large: at most {max_tokens} per period can be counted exactly", max_tokens = MAX_UNITS)]
    RateTooLarge,
    /// The burst of a limit by window is not below the limit, so that no rate remains.
    #[error("a burst of {burst} leaves no rate: it must be less than the limit of {limit}")]
    BurstNotBelowLimit {
        /// Maximum number of tokens in a window.
        limit: u64,
        /// Capacity in tokens.
        burst: u64,
    },
    /// The full level would exceed [`MAX_UNITS`].
    #[error("the burst is too large for this rate: at most {max_burst} can be counted exactly")]
    BurstTooLarge {
        /// Largest valid burst for this rate.
        max_burst: u64,
    },
}

impl TokenBucket {
    /// Creates a bucket of `tokens` per `period_us` microseconds with a capacity of `burst` tokens.
    ///
    /// # Errors
    /// If an argument is 0, or the rate or the full level exceeds [`MAX_UNITS`].
    pub const fn new(tokens: u64, period_us: u64, burst: u64) -> Result<Self, TokenBucketError> {
        if tokens == 0 {
            return Err(TokenBucketError::ZeroRate);
        }
        if period_us == 0 {
            return Err(TokenBucketError::ZeroPeriod);
        }
        if burst == 0 {
            return Err(TokenBucketError::ZeroBurst);
        }
        let divisor = greatest_common_divisor(tokens, period_us);
        let (units_per_us, units_per_token) = (tokens / divisor, period_us / divisor);
        if units_per_us > MAX_UNITS.unsigned_abs() {
            return Err(TokenBucketError::RateTooLarge);
        }
        let max_burst = MAX_UNITS.unsigned_abs() / units_per_token;
        if burst > max_burst {
            return Err(TokenBucketError::BurstTooLarge { max_burst });
        }
        // Both are at most 2^53 here.
        Ok(Self {
            units_per_us: units_per_us.cast_signed(),
            units_per_part: units_per_token.cast_signed(),
            burst,
            parts: 1,
        })
    }

    /// The same rate and burst, with tokens of `parts` parts. Units are as large as they can be.
    ///
    /// # Errors
    /// If `parts` is 0, or the rate or the full level would exceed [`MAX_UNITS`].
    pub const fn with_parts(self, parts: u16) -> Result<Self, TokenBucketError> {
        if parts == 0 {
            return Err(TokenBucketError::ZeroRate);
        }
        let (rate, token) = (self.units_per_us.unsigned_abs(), self.units(self.parts()));
        let divisor = greatest_common_divisor(rate, token.unsigned_abs());
        let (rate, token) = (rate / divisor, token.unsigned_abs() / divisor);
        let wanted = parts as u64;
        // At most 1000 times what it was, which is at most 2^53.
        let factor = wanted / greatest_common_divisor(token, wanted);
        let (rate, token) = (rate * factor, token * factor);
        if rate > MAX_UNITS.unsigned_abs() {
            return Err(TokenBucketError::RateTooLarge);
        }
        let max_burst = MAX_UNITS.unsigned_abs() / token;
        if self.burst > max_burst {
            return Err(TokenBucketError::BurstTooLarge { max_burst });
        }
        Ok(Self {
            units_per_us: rate.cast_signed(),
            units_per_part: (token / wanted).cast_signed(),
            burst: self.burst,
            parts,
        })
    }

    /// The same rate and burst, in units of which the rate is a multiple of 100: for
    /// [`slowed`](Self::slowed). `None` if the rate or the full level would exceed [`MAX_UNITS`].
    pub fn adaptable(self) -> Option<Self> {
        let divisor = greatest_common_divisor(self.units_per_us.unsigned_abs(), 100);
        let factor = (100 / divisor).cast_signed();
        let units_per_us = self.units_per_us.checked_mul(factor)?;
        let units_per_part = self.units_per_part.checked_mul(factor)?;
        let full = i64::try_from(self.burst).ok()?.checked_mul(self.parts.into())?;
        let is_exact = units_per_us <= MAX_UNITS && full.checked_mul(units_per_part)? <= MAX_UNITS;
        is_exact.then_some(Self { units_per_us, units_per_part, ..self })
    }

    /// The same burst, with this part of the rate, in hundredths. Levels have the same units.
    pub fn slowed(self, hundredths: u16) -> Self {
        let units_per_us = self.units_per_us / 100 * i64::from(hundredths.min(100));
        let rest = self.units_per_us % 100 * i64::from(hundredths.min(100)) / 100;
        Self { units_per_us: (units_per_us + rest).max(1), ..self }
    }

    /// Parts of a token, at least 1.
    pub const fn parts(&self) -> u64 {
        self.parts as u64
    }

    /// Creates a bucket that yields at most `limit` tokens in any window of `window_us`
    /// microseconds, both ends included. Its capacity is `burst` tokens and its rate is `limit -
    /// burst` tokens per window: a full bucket, and what is added in a window, are `limit` tokens
    /// together.
    ///
    /// # Errors
    /// If `burst` is not below `limit`, or as [`new`](Self::new) for that rate and burst.
    pub const fn by_window(
        limit: u64,
        window_us: u64,
        burst: u64,
    ) -> Result<Self, TokenBucketError> {
        if burst >= limit {
            return Err(TokenBucketError::BurstNotBelowLimit { limit, burst });
        }
        Self::new(limit - burst, window_us, burst)
    }

    /// Capacity of the bucket in tokens, at least 1.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The arguments of [`new`](Self::new) and [`with_parts`](Self::with_parts) that create this
    /// bucket.
    pub const fn parameters(&self) -> (u64, u64, u64, u16) {
        let (units_per_us, token) = (self.units_per_us, self.units(self.parts()));
        (units_per_us.unsigned_abs(), token.unsigned_abs(), self.burst, self.parts)
    }

    /// Level of a full bucket in units, at most [`MAX_UNITS`].
    pub const fn full(&self) -> i64 {
        self.burst.cast_signed() * self.units_per_part * self.parts as i64
    }

    /// Lowest valid level in units, below zero. Larger debts are cut off here, so that a corrupt
    /// value in the store cannot block a client forever.
    pub const fn lowest(&self) -> i64 {
        let lowest = self.full().saturating_mul(-MAX_DEBT_BURSTS);
        if lowest < -MAX_UNITS { -MAX_UNITS } else { lowest }
    }

    /// Converts parts of a token to units. Saturates.
    pub const fn units(&self, parts: u64) -> i64 {
        clamped(parts).saturating_mul(self.units_per_part)
    }

    /// Units added in `us` microseconds. Saturates.
    pub const fn units_in(&self, us: u64) -> i64 {
        clamped(us).saturating_mul(self.units_per_us)
    }

    /// Microseconds until `missing` units have been added, rounded up; 0 if none are missing. One
    /// microsecond earlier, fewer have been added.
    pub const fn time_to_add_us(&self, missing: i64) -> u64 {
        if missing <= 0 {
            return 0;
        }
        missing.unsigned_abs().div_ceil(self.units_per_us.unsigned_abs())
    }

    /// Microseconds in which an empty bucket fills.
    pub const fn window_us(&self) -> u64 {
        self.time_to_add_us(self.full())
    }
}

// === Transition ===

impl TokenBucket {
    /// Returns the bucket refilled to `now`, at most to full.
    ///
    /// If `now` is before the bucket's time by up to [`CLOCK_SLACK_US`], the bucket does not
    /// change, so no token is added twice when the clock moves forward again. If the clock went
    /// back further, the bucket keeps its level and refills from `now`; otherwise it would not
    /// refill until the clock had caught up. Each such step back and forward again adds the tokens
    /// of the step's length once more. So does any step forward, which looks like elapsed time.
    pub const fn refilled(&self, bucket: Bucket, now: u64) -> Bucket {
        if now <= bucket.at {
            let at = if bucket.at > now.saturating_add(CLOCK_SLACK_US) { now } else { bucket.at };
            return Bucket { level: min(bucket.level, self.full()), at };
        }
        let added = self.units_in(now - bucket.at);
        Bucket { level: min(bucket.level.saturating_add(added), self.full()), at: now }
    }

    /// Converts a bucket whose full level was `was_full`, at least 1, to these parameters. It keeps
    /// its fraction of full. Used after a rule's rate or burst has changed.
    ///
    /// Computed in doubles and rounded down, as in `take.lua`, so that both stores agree to the
    /// unit.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "levels are at most 2^53, where doubles are exact"
    )]
    pub fn rescaled(&self, bucket: Bucket, was_full: i64) -> Bucket {
        if was_full == self.full() {
            return bucket;
        }
        let fraction = bucket.level as f64 / was_full as f64;
        let level = (fraction * self.full() as f64).floor() as i64;
        Bucket { level: level.clamp(-MAX_UNITS, self.full()), at: bucket.at }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken.
    pub const fn full_at(&self, bucket: Bucket) -> u64 {
        bucket.at.saturating_add(self.time_to_add_us(self.full().saturating_sub(bucket.level)))
    }
}

// === Standing ===

impl TokenBucket {
    /// Standing of a bucket at `level`: `remaining` tokens are left, and a request needs `needed`
    /// units.
    pub const fn standing(&self, level: i64, needed: i64, remaining: u64) -> Standing {
        Standing {
            limit: self.burst,
            remaining,
            retry_after_us: self.time_to_add_us(needed.saturating_sub(level)),
            reset_us: self.time_to_add_us(self.full().saturating_sub(level)),
        }
    }
}

// === Codec ===

impl TokenBucket {
    /// Units added per microsecond, at least 1.
    pub const fn units_per_us(&self) -> i64 {
        self.units_per_us
    }

    /// Bucket at `now` from its stored value in Redis: level, time of the level, and level of a
    /// full bucket when it was written, as doubles. An invalid value counts as no value, which is a
    /// full bucket.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "levels are at most 2^53, where doubles are exact; times fit for 285 years"
    )]
    pub fn decode(&self, stored: &[u8], now: u64) -> Bucket {
        const EXACT: f64 = MAX_UNITS as f64;
        let double = |at: usize| Some(f64::from_le_bytes(*stored.get(at..)?.first_chunk()?));
        let doubles = (stored.len() == 24).then(|| Some((double(0)?, double(8)?, double(16)?)));
        // NaN fails every comparison.
        let valid = doubles.flatten().filter(|(level, at, full)| {
            (1.0..=EXACT).contains(full)
                && full % 1.0 == 0.0
                && level <= full
                && *level >= (-MAX_DEBT_BURSTS as f64 * full).max(-EXACT)
                && *at >= 0.0
        });
        let Some((level, at, full)) = valid else { return Bucket { level: self.full(), at: now } };
        let bucket = Bucket { level: level.floor() as i64, at: at.floor() as u64 };
        self.refilled(self.rescaled(bucket, full as i64), now)
    }
}

/// `Ord::min` is not callable in a `const fn`.
const fn min(a: i64, b: i64) -> i64 {
    if a < b { a } else { b }
}

/// Converts to a signed number. Saturates; the maximum exceeds any level.
const fn clamped(count: u64) -> i64 {
    if count > i64::MAX.unsigned_abs() { i64::MAX } else { count.cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = crate::base::duration::MICROS_PER_SECOND;
    const DAY: u64 = 86_400 * SECOND;

    /// Rate 10 tokens per second, burst 2: a token is 100,000 units, a microsecond adds one.
    fn bucket_of_two() -> TokenBucket {
        TokenBucket::new(10, SECOND, 2).unwrap()
    }

    #[test]
    fn rate_is_reduced_to_the_smallest_integers() {
        // (tokens, period, burst) -> (units per microsecond, units per token, full)
        let table = [
            ((10, SECOND, 50), (1, 100_000, 5_000_000)),
            ((3, SECOND, 1), (3, 1_000_000, 1_000_000)),
            ((100, DAY, 100), (1, 864_000_000, 86_400_000_000)),
            ((1_000_000, SECOND, 7), (1, 1, 7)),
            ((4_000_000, SECOND, 7), (4, 1, 7)),
            ((5, 250_000, 5), (1, 50_000, 250_000)),
        ];
        for ((tokens, period, burst), expected) in table {
            let bucket = TokenBucket::new(tokens, period, burst).unwrap();
            let got = (bucket.units_per_us, bucket.units_per_part, bucket.full());
            assert_eq!(got, expected, "{tokens} per {period} us, burst {burst}");
        }
    }

    #[test]
    fn parameters_that_cannot_be_counted_exactly_are_an_error() {
        let table = [
            ((0, SECOND, 1), TokenBucketError::ZeroRate),
            ((1, 0, 1), TokenBucketError::ZeroPeriod),
            ((1, SECOND, 0), TokenBucketError::ZeroBurst),
            ((1, SECOND, 1 << 53), TokenBucketError::BurstTooLarge { max_burst: 9_007_199_254 }),
            ((1, u64::MAX, 1), TokenBucketError::BurstTooLarge { max_burst: 0 }),
            (((1 << 53) + 1, SECOND + 1, 1), TokenBucketError::RateTooLarge),
        ];
        for ((tokens, period, burst), expected) in table {
            assert_eq!(TokenBucket::new(tokens, period, burst), Err(expected));
        }
        assert!(TokenBucket::new(1, SECOND, 9_007_199_254).is_ok());
        assert!(
            TokenBucket::new(u64::MAX, u64::MAX, 1 << 53).is_ok(),
            "1 per microsecond once reduced"
        );
    }

    #[test]
    fn lowest_level_is_1000_full_buckets_and_at_least_minus_2_to_53() {
        let table =
            [(1, -1_000), (9_007_199_254_740, -9_007_199_254_740_000), (1 << 44, -MAX_UNITS)];
        for (burst, lowest) in table {
            assert_eq!(TokenBucket::new(1, 1, burst).unwrap().lowest(), lowest, "burst {burst}");
        }
    }

    #[test]
    fn time_to_add_units_is_rounded_up() {
        let bucket = TokenBucket::new(3, SECOND, 2).unwrap();
        assert_eq!(bucket.time_to_add_us(1), 1);
        assert_eq!(bucket.time_to_add_us(3), 1);
        assert_eq!(bucket.time_to_add_us(4), 2);
        assert_eq!(bucket.time_to_add_us(0), 0);
        assert_eq!(bucket.time_to_add_us(-7), 0);
        assert_eq!(bucket.window_us(), 666_667);
    }

    #[test]
    fn refill_adds_elapsed_time_up_to_full() {
        let limit = bucket_of_two();
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
            let after = limit.refilled(Bucket { level, at }, now);
            assert_eq!(after, Bucket { level: level_after, at: at_after }, "{level}@{at} at {now}");
        }
    }

    #[test]
    fn clock_swing_beyond_the_slack_refills_by_its_length() {
        let limit = TokenBucket::new(10, 1_000_000, 50).unwrap();
        // (microseconds back and forward again, tokens that three such swings add)
        for (swing, tokens) in [(1_000_000, 0), (1_000_001, 30), (2_000_000, 60), (60_000_000, 150)]
        {
            let (now, mut added) = (100_000_000, 0);
            let mut bucket = Bucket { level: 0, at: now };
            for _ in 0..3 {
                bucket = limit.refilled(limit.refilled(bucket, now - swing), now);
                added += bucket.level / limit.units(1);
                bucket.level = 0;
            }
            assert_eq!(added, tokens, "{swing}");
        }
    }

    #[test]
    fn rescaled_bucket_keeps_its_fraction_of_full() {
        let limit = bucket_of_two();
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
            let rescaled = limit.rescaled(Bucket { level, at: 7 }, was_full);
            assert_eq!(rescaled, Bucket { level: expected, at: 7 }, "{level} of {was_full}");
        }
    }

    #[test]
    fn full_at_is_exact_to_the_microsecond() {
        let limit = bucket_of_two();
        let bucket = Bucket { level: 1, at: 10 };
        let full_at = limit.full_at(bucket);
        assert_eq!(limit.refilled(bucket, full_at).level, limit.full());
        assert!(limit.refilled(bucket, full_at - 1).level < limit.full());
    }
}
