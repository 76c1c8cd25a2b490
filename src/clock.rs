//! The only file that may ask for the time.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Ticks (microseconds) since the first call in this process. Monotonic: a jump of the wall clock
/// does not move it.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Ticks since 1970 by the wall clock, for what people read; never for a decision.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unix_ticks() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// As [`unix_ticks`], in whole seconds.
pub fn unix_seconds() -> u64 {
    let ticks_per_second = 1_000_000;
    unix_ticks() / ticks_per_second
}
