//! Rate and burst of a token bucket, reduced to integers.

use thiserror::Error;

/// Largest integer that every store represents exactly: a Lua number is an IEEE 754 double, exact up
/// to 2^53.
pub const MAX_UNITS: i64 = 1 << 53;

/// Largest debt of a bucket, as a multiple of its full level. Only more gateways than this, under a
/// limit so small that each grants a single request, can exceed it.
pub const MAX_DEBT_BURSTS: i64 = 1_000;

/// Parameters of a token bucket.
///
/// A rate of N tokens per P microseconds is divided by their greatest common divisor. Each
/// microsecond adds [`units_per_us`](Self::units_per_us) units, and a token is
/// [`units_per_token`](Self::units_per_token) units. So levels are integers, and refills are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    units_per_us: i64,
    units_per_token: i64,
    burst: u64,
}

/// Error in a rate or burst of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuotaError {
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
    /// The full level would exceed [`MAX_UNITS`].
    #[error("the burst is too large for this rate: at most {max_burst} can be counted exactly")]
    BurstTooLarge {
        /// Largest valid burst for this rate.
        max_burst: u64,
    },
}

impl Quota {
    /// Creates a quota of `tokens` per `period_us` microseconds with a capacity of `burst` tokens.
    ///
    /// # Errors
    /// If an argument is 0, or the rate or the full level exceeds [`MAX_UNITS`].
    pub const fn new(tokens: u64, period_us: u64, burst: u64) -> Result<Self, QuotaError> {
        if tokens == 0 {
            return Err(QuotaError::ZeroRate);
        }
        if period_us == 0 {
            return Err(QuotaError::ZeroPeriod);
        }
        if burst == 0 {
            return Err(QuotaError::ZeroBurst);
        }
        let divisor = greatest_common_divisor(tokens, period_us);
        let (units_per_us, units_per_token) = (tokens / divisor, period_us / divisor);
        if units_per_us > MAX_UNITS.unsigned_abs() {
            return Err(QuotaError::RateTooLarge);
        }
        let max_burst = MAX_UNITS.unsigned_abs() / units_per_token;
        if burst > max_burst {
            return Err(QuotaError::BurstTooLarge { max_burst });
        }
        // Both are at most 2^53 here.
        Ok(Self {
            units_per_us: units_per_us.cast_signed(),
            units_per_token: units_per_token.cast_signed(),
            burst,
        })
    }

    /// Units added per microsecond, at least 1.
    pub const fn units_per_us(&self) -> i64 {
        self.units_per_us
    }

    /// Units per token, at least 1.
    pub const fn units_per_token(&self) -> i64 {
        self.units_per_token
    }

    /// Capacity of the bucket in tokens, at least 1.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Level of a full bucket in units, at most [`MAX_UNITS`].
    pub const fn full(&self) -> i64 {
        self.burst.cast_signed() * self.units_per_token
    }

    /// Lowest valid level in units, below zero. Larger debts are cut off here, so that a corrupt
    /// value in the store cannot block a client forever.
    pub const fn lowest(&self) -> i64 {
        let lowest = self.full().saturating_mul(-MAX_DEBT_BURSTS);
        if lowest < -MAX_UNITS { -MAX_UNITS } else { lowest }
    }

    /// Converts tokens to units. Saturates.
    pub const fn units(&self, cost: u64) -> i64 {
        clamped(cost).saturating_mul(self.units_per_token)
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
    pub const fn time_to_fill_us(&self) -> u64 {
        self.time_to_add_us(self.full())
    }
}

/// Converts to a signed number. Saturates; the maximum exceeds any level.
const fn clamped(count: u64) -> i64 {
    if count > i64::MAX.unsigned_abs() { i64::MAX } else { count.cast_signed() }
}

/// Euclid's algorithm.
const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = crate::limit::MICROS_PER_SECOND;
    const DAY: u64 = 86_400 * SECOND;

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
            let quota = Quota::new(tokens, period, burst).unwrap();
            let got = (quota.units_per_us(), quota.units_per_token(), quota.full());
            assert_eq!(got, expected, "{tokens} per {period} us, burst {burst}");
        }
    }

    #[test]
    fn quota_that_cannot_be_counted_exactly_is_an_error() {
        let table = [
            ((0, SECOND, 1), QuotaError::ZeroRate),
            ((1, 0, 1), QuotaError::ZeroPeriod),
            ((1, SECOND, 0), QuotaError::ZeroBurst),
            ((1, SECOND, 1 << 53), QuotaError::BurstTooLarge { max_burst: 9_007_199_254 }),
            ((1, u64::MAX, 1), QuotaError::BurstTooLarge { max_burst: 0 }),
            (((1 << 53) + 1, SECOND + 1, 1), QuotaError::RateTooLarge),
        ];
        for ((tokens, period, burst), expected) in table {
            assert_eq!(Quota::new(tokens, period, burst), Err(expected));
        }
        assert!(Quota::new(1, SECOND, 9_007_199_254).is_ok());
        assert!(Quota::new(u64::MAX, u64::MAX, 1 << 53).is_ok(), "1 per microsecond once reduced");
    }

    #[test]
    fn lowest_level_is_1000_full_buckets_and_at_least_minus_2_to_53() {
        let table =
            [(1, -1_000), (9_007_199_254_740, -9_007_199_254_740_000), (1 << 44, -MAX_UNITS)];
        for (burst, lowest) in table {
            assert_eq!(Quota::new(1, 1, burst).unwrap().lowest(), lowest, "burst {burst}");
        }
    }

    #[test]
    fn time_to_add_units_is_rounded_up() {
        let quota = Quota::new(3, SECOND, 2).unwrap();
        assert_eq!(quota.time_to_add_us(1), 1);
        assert_eq!(quota.time_to_add_us(3), 1);
        assert_eq!(quota.time_to_add_us(4), 2);
        assert_eq!(quota.time_to_add_us(0), 0);
        assert_eq!(quota.time_to_add_us(-7), 0);
        assert_eq!(quota.time_to_fill_us(), 666_667);
    }
}
