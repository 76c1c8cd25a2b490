//! The monotonic clock and the wall clock. Every decision uses a time that was read here; other
//! modules read the clock of tokio only for timeouts.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::duration::micros;

/// Microseconds since the first call in this process. Monotonic: changes of the wall clock have no
/// effect.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    micros(elapsed)
}

/// Microseconds since the Unix epoch by the wall clock. Of the decisions, only those of calendar
/// periods follow it, through [`unix_time`](super::unix_time).
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub fn unix_us() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    micros(elapsed)
}

/// Whole seconds since the Unix epoch by the wall clock.
pub fn unix_seconds() -> u64 {
    let micros_per_second = 1_000_000;
    unix_us() / micros_per_second
}
