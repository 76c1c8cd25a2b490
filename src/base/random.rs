//! Random numbers, and times that differ by chance, so that gateways do not all do the same at
//! once.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::clock;

/// Bits of a number that a double does not hold.
const LOW_BITS: u32 = u64::BITS - f64::MANTISSA_DIGITS;

/// A random number that a double holds exactly.
pub(crate) fn number() -> u64 {
    exact_in_double(getrandom::u64().unwrap_or_else(|_| clock::unix_us() << LOW_BITS))
}

/// The upper bits of a number, as many as a double holds exactly.
pub(crate) const fn exact_in_double(number: u64) -> u64 {
    number >> LOW_BITS
}

/// A duration between these two, in milliseconds.
pub(crate) fn pause_ms(range: &RangeInclusive<u64>) -> Duration {
    // Without random numbers, the process' own times still differ a little.
    let random = getrandom::u64().unwrap_or_else(|_| clock::now());
    let span_ms = range.end().saturating_sub(*range.start());
    Duration::from_millis(range.start() + random % (span_ms + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_within_its_bounds() {
        for _ in 0..100 {
            assert!((5..=7).contains(&pause_ms(&(5..=7)).as_millis()));
        }
    }
}
