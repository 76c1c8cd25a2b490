//! Runs of similar events, which are reported together: refusals of one client by one rule,
//! failures at one server.

use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;

/// One point in time by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// Microseconds of the monotonic clock, which measures runs.
    pub(super) monotonic_us: u64,
    /// Microseconds since 1970, which is shown.
    pub(super) unix_us: u64,
}

impl Times {
    pub(super) fn now() -> Self {
        Self { monotonic_us: clock::now(), unix_us: clock::unix_us() }
    }
}

/// A run ends after this time without an event, in microseconds.
const QUIET_US: u64 = 10 * MICROS_PER_SECOND;

/// A run ends at this age in any case, in microseconds, so that a long one is reported while it
/// continues.
const MAX_AGE_US: u64 = 60 * MICROS_PER_SECOND;

/// Whether a run whose first and last events were at these times is over at `now`, in microseconds
/// of the monotonic clock.
pub(super) fn is_over(first: Times, last: Times, now: u64) -> bool {
    now.saturating_sub(last.monotonic_us) >= QUIET_US
        || now.saturating_sub(first.monotonic_us) >= MAX_AGE_US
}
