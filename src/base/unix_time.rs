//! Unix time of an instant of the process' clock, which does not begin at the Unix epoch. For
//! limits that count in calendar periods, and for the times of the access log and of traces.

use std::sync::atomic::{AtomicU64, Ordering};

use super::now::Now;

/// Unix time less the process' clock, in microseconds. 0, as in tests: the clock is Unix time.
static OFFSET_US: AtomicU64 = AtomicU64::new(0);

/// Sets the Unix time at `now` (microseconds of the process' clock). Called at the start and once a
/// second, because the process' clock does not follow corrections of the time, or stand-by.
pub fn set(unix_us: u64, now: u64) {
    OFFSET_US.store(unix_us.saturating_sub(now), Ordering::Relaxed);
}

/// Unix time at `now`, both in microseconds.
pub fn of(now: u64) -> u64 {
    now.saturating_add(OFFSET_US.load(Ordering::Relaxed))
}

/// The instant `now` of the process' clock, in microseconds, by both clocks.
pub fn at(now: u64) -> Now {
    Now { us: now, unix_us: of(now) }
}
