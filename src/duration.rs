//! Durations as numbers. Reads no clock.

use std::time::Duration;

/// Converts to whole microseconds, rounded down. Saturates.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
