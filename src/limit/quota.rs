//! What a bucket allows: how fast it fills and how much it holds, reduced to integers.

use thiserror::Error;

/// The largest integer that every store keeps exactly: a Lua number is a double (IEEE 754), which
/// is exact up to 2^53.
pub const MAX_UNITS: i64 = 1 << 53;

/// How many full buckets a debt can amount to. It takes more than so many gateways to get there,
/// with a limit so small that each of them grants a single request.
pub const MOST_DEBT: i64 = 1_000;

/// A token bucket's parameters.
///
/// A rate of N tokens per P ticks is divided by their greatest common divisor: each tick adds
/// [`units_per_us`](Self::units_per_us) units and a token is worth
/// [`units_per_token`](Self::units_per_token) units, so that no fraction of a token is ever lost
/// or invented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    units_per_us: i64,
    units_per_token: i64,
    burst: u64,
}

/// Why a rate and a burst make no quota. These are mistakes in a file, never answers to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QuotaError {
    /// A rate of no tokens would never let a drained bucket fill again.
    #[error("a rate of 0 would let nothing pass; to refuse requests, leave the route out instead")]
    ZeroRate,
    /// A period of no length has no rate.
    #[error("a rate needs a period longer than 0")]
    ZeroPeriod,
    /// A bucket that holds nothing refuses everything.
    #[error("a burst of 0 would refuse every request; the smallest is 1")]
    ZeroBurst,
    /// More tokens a tick than the stores count exactly.
    #[error("the rate is too large: at most {max_tokens} per period can be counted exactly", max_tokens = MAX_UNITS)]
    RateTooLarge,
    /// The full bucket would exceed [`MAX_UNITS`].
    #[error("the burst is too large for this rate: at most {max_burst} can be counted exactly")]
    BurstTooLarge {
        /// The largest burst that this rate allows.
        max_burst: u64,
    },
}

impl Quota {
    /// `tokens` per `period_us`, in a bucket that holds `burst` tokens.
    ///
    /// # Errors
    /// See [`QuotaError`]: any number at 0, or a full bucket beyond [`MAX_UNITS`].
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
        // Both are at most 2^53 by now.
        Ok(Self {
            units_per_us: units_per_us.cast_signed(),
            units_per_token: units_per_token.cast_signed(),
            burst,
        })
    }

    /// Units that one tick adds.
    pub const fn units_per_us(&self) -> i64 {
        self.units_per_us
    }

    /// Units that one token is worth.
    pub const fn units_per_token(&self) -> i64 {
        self.units_per_token
    }

    /// Tokens that the bucket holds when full, at least 1.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// The level of a full bucket, in units; at most [`MAX_UNITS`].
    pub const fn full(&self) -> i64 {
        self.burst.cast_signed() * self.units_per_token
    }

    /// The lowest level that a bucket can have, in units: debts beyond it are forgiven, so that
    /// nothing that somebody wrote in a bucket's place locks a client out for good.
    pub const fn lowest(&self) -> i64 {
        let lowest = self.full().saturating_mul(-MOST_DEBT);
        if lowest < -MAX_UNITS { -MAX_UNITS } else { lowest }
    }

    /// What `cost` tokens are worth, in units.
    pub const fn units(&self, cost: u64) -> i64 {
        clamped(cost).saturating_mul(self.units_per_token)
    }

    /// Units that so many ticks add.
    pub const fn units_in(&self, ticks: u64) -> i64 {
        clamped(ticks).saturating_mul(self.units_per_us)
    }

    /// Ticks until `missing` units have been added, rounded up: at that tick they are there, one
    /// tick before they are not.
    pub const fn time_to_add_us(&self, missing: i64) -> u64 {
        if missing <= 0 {
            return 0;
        }
        missing.unsigned_abs().div_ceil(self.units_per_us.unsigned_abs())
    }

    /// Ticks that an empty bucket takes to fill.
    pub const fn time_to_fill_us(&self) -> u64 {
        self.time_to_add_us(self.full())
    }
}

/// A count as a signed number; what does not fit is more than any bucket holds.
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
    fn a_rate_is_reduced_to_the_smallest_integers() {
        // (tokens, period, burst) -> (units per tick, units per token, full)
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
            assert_eq!(got, expected, "{tokens} per {period} ticks, burst {burst}");
        }
    }

    #[test]
    fn what_cannot_be_counted_exactly_is_refused() {
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
        assert!(Quota::new(u64::MAX, u64::MAX, 1 << 53).is_ok(), "1 per tick once reduced");
    }

    #[test]
    fn a_debt_is_a_thousand_full_buckets_at_most_and_stays_exact() {
        let table =
            [(1, -1_000), (9_007_199_254_740, -9_007_199_254_740_000), (1 << 44, -MAX_UNITS)];
        for (burst, lowest) in table {
            assert_eq!(Quota::new(1, 1, burst).unwrap().lowest(), lowest, "burst {burst}");
        }
    }

    #[test]
    fn times_are_rounded_up() {
        let quota = Quota::new(3, SECOND, 2).unwrap();
        assert_eq!(quota.time_to_add_us(1), 1);
        assert_eq!(quota.time_to_add_us(3), 1);
        assert_eq!(quota.time_to_add_us(4), 2);
        assert_eq!(quota.time_to_add_us(0), 0);
        assert_eq!(quota.time_to_add_us(-7), 0);
        assert_eq!(quota.time_to_fill_us(), 666_667);
    }
}
