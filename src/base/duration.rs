//! Durations as numbers. Reads no clock.

use std::time::Duration;

/// Microseconds in a second.
pub const MICROS_PER_SECOND: u64 = 1_000_000;

/// Converts to whole microseconds, rounded down. Saturates.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Converts microseconds to whole seconds, rounded up, so that a client that waits for the result
/// is never early.
pub const fn seconds_up(us: u64) -> u64 {
    us.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        for (us, seconds) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (2_000_000, 2)] {
            assert_eq!(seconds_up(us), seconds, "{us}");
        }
    }
}
