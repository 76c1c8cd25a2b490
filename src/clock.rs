//! The only file that may ask for the time.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the first call in this process. Monotonic: a jump of the wall clock
/// does not move it.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since 1970 by the wall clock, for display only; never for a decision.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unix_us() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// As [`unix_us`], in whole seconds.
pub fn unix_seconds() -> u64 {
    let micros_per_second = 1_000_000;
    unix_us() / micros_per_second
}
