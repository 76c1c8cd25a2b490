//! Sliding window: a kind of limit. Allows a number of tokens in any window of its length, exactly:
//! it keeps the time of each token, a *stamp*, in a [`StampLog`](super::stamp_log::StampLog).
//!
//! A token counts in the window (now - length, now]. So a request of cost c is allowed if and only
//! if the c-th oldest of as many stamps as the limit has left the window.

use thiserror::Error;

use super::MAX_UNITS;
use super::bucket::{Bucket, CLOCK_SLACK_US};
use super::reading::Times;
use super::verdict::Standing;

/// Parameters of a sliding window. A unit is a token.
///
/// In a [`Bucket`] of this kind, `level` is the limit less the stamps in the window, and `at` is
/// the newest stamp. It suffices without the log where each stamp counts as the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    limit: i64,
    window_us: u64,
}

/// Error in the limit of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SlidingWindowError {
    /// The limit is 0: every request would be denied.
    #[error("a limit of 0 would refuse every request; the smallest is 1")]
    ZeroLimit,
    /// The limit exceeds [`SlidingWindow::MAX_LIMIT`].
    #[error(
        "the limit of a sliding window is at most {max}: it keeps the time of each token",
        max = SlidingWindow::MAX_LIMIT
    )]
    LimitTooLarge,
    /// The window has no length.
    #[error("a limit needs a period longer than 0")]
    ZeroWindow,
    /// The window exceeds [`SlidingWindow::MAX_WINDOW_US`].
    #[error("the period of the limit is too long to be counted exactly")]
    WindowTooLong,
}

impl SlidingWindow {
    /// Largest limit: a log of it takes 32 KiB.
    pub const MAX_LIMIT: u64 = 4_096;

    /// Longest window in microseconds: times within the clock's slack of it are exact in a double.
    pub const MAX_WINDOW_US: u64 = MAX_UNITS.unsigned_abs() - CLOCK_SLACK_US;

    /// Creates a limit of `limit` tokens in any window of `window_us` microseconds.
    ///
    /// # Errors
    /// If an argument is 0 or too large.
    pub const fn new(limit: u64, window_us: u64) -> Result<Self, SlidingWindowError> {
        if limit == 0 {
            return Err(SlidingWindowError::ZeroLimit);
        }
        if limit > Self::MAX_LIMIT {
            return Err(SlidingWindowError::LimitTooLarge);
        }
        if window_us == 0 {
            return Err(SlidingWindowError::ZeroWindow);
        }
        if window_us > Self::MAX_WINDOW_US {
            return Err(SlidingWindowError::WindowTooLong);
        }
        Ok(Self { limit: limit.cast_signed(), window_us })
    }

    /// Tokens in a window, at least 1.
    pub const fn limit(&self) -> u64 {
        self.limit.unsigned_abs()
    }

    /// Length of the window in microseconds, at least 1.
    pub const fn window_us(&self) -> u64 {
        self.window_us
    }

    /// Level without stamps in the window.
    pub const fn full(&self) -> i64 {
        self.limit
    }

    /// Converts tokens to units, which they are. Saturates.
    pub const fn units(&self, tokens: u64) -> i64 {
        if tokens > i64::MAX.unsigned_abs() { i64::MAX } else { tokens.cast_signed() }
    }
}

// === Transition, without the log ===

impl SlidingWindow {
    /// Returns the bucket at `now`: full if its newest stamp has left the window.
    pub const fn refilled(&self, bucket: Bucket, now: u64) -> Bucket {
        // As in the log: stamps after a clock that went back by more than a second count from the
        // current time on.
        let at = if bucket.at > now.saturating_add(CLOCK_SLACK_US) { now } else { bucket.at };
        let has_left = at.saturating_add(self.window_us) <= now;
        let level = if has_left || bucket.level > self.limit { self.limit } else { bucket.level };
        Bucket { level, at }
    }

    /// Converts a bucket of a window of `was` tokens. What was used stays used, at most the limit.
    pub fn with_limit_changed(&self, bucket: Bucket, was: i64) -> Bucket {
        let used = was.saturating_sub(bucket.level);
        Bucket { level: self.limit.saturating_sub(used).clamp(0, self.limit), at: bucket.at }
    }

    /// Time in microseconds at which the bucket is full if no tokens are taken.
    pub const fn full_at(&self, bucket: Bucket) -> u64 {
        if bucket.level >= self.limit { 0 } else { bucket.at.saturating_add(self.window_us) }
    }
}

// === Standing ===

impl SlidingWindow {
    /// Standing of a bucket at `level`: `remaining` tokens are left, and a request needs `needed`.
    pub const fn standing(
        &self,
        level: i64,
        needed: i64,
        remaining: u64,
        times: Times,
    ) -> Standing {
        let retry_after_us = if needed > level { times.wait_us } else { 0 };
        let reset_us = if level < self.limit { times.left_us } else { 0 };
        Standing { limit: self.limit(), remaining, retry_after_us, reset_us }
    }
}
