//! [`Returned`]: tokens that a request took and does not use, and how many of them its bucket gets
//! back.
//!
//! The bucket gets back at most what keeps its limit exact: no request is allowed that would not be
//! allowed if the tokens had never been taken. `lua/take.lua` has the same rule, for buckets in
//! Redis.
//!
//! - A token bucket may have been full without the request. What it has refilled since would have
//!   been lost, and is not given back.
//! - In a leaky bucket, later requests may wait already because of those tokens. It gets them back
//!   only if it is full then, so that no request waits for nothing.
//! - A fixed window counts what was taken in its period, and gets nothing back in the next one.
//! - A sliding window gets tokens back while they are in it. Its oldest ones are dropped, which
//!   leave it first.
//! - Units of requests in flight are free once the request ends, and are not given back.

use super::Limit;
use super::bucket::Bucket;
use crate::base::now::Now;

/// Tokens that a request took and does not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Units that were taken.
    pub units: i64,
    /// Time at which they were taken in microseconds, by the clock of the bucket.
    pub taken_at: u64,
    /// End of the period in which they were taken, in microseconds of Unix time; 0 unless the limit
    /// is a fixed window.
    pub period_end: u64,
    /// Whether the bucket delays requests.
    pub is_leaky: bool,
}

impl Returned {
    /// `units` of `limit` that a store whose clock is Unix time took at `taken_at`.
    pub fn new(limit: &Limit, units: i64, taken_at: u64) -> Self {
        let left_us = if limit.calendar().is_some() { limit.left_us(taken_at) } else { 0 };
        let period_end = if left_us == 0 { 0 } else { taken_at.saturating_add(left_us) };
        Self { units, taken_at, period_end, is_leaky: false }
    }

    /// `units` of `limit` that were taken in this process at `taken_at`.
    pub fn here(limit: &Limit, units: i64, taken_at: Now) -> Self {
        let is_window = limit.calendar().is_some();
        let period_end = if is_window { limit.empty_full_at(taken_at) } else { 0 };
        Self { units, taken_at: taken_at.us, period_end, is_leaky: false }
    }

    /// The same, of a bucket that delays requests if `is_leaky`.
    #[must_use]
    pub const fn of_leaky(self, is_leaky: bool) -> Self {
        Self { is_leaky, ..self }
    }

    /// Units that `bucket` gets back at `now`, to which it has been refilled.
    pub fn back_to(&self, bucket: Bucket, limit: &Limit, now: u64) -> i64 {
        let time =
            if limit.calendar().is_some() || limit.log().is_none() { bucket.at } else { now };
        let units = self.left(limit, time).min(limit.full().saturating_sub(bucket.level)).max(0);
        let is_full = bucket.level.saturating_add(units) >= limit.full();
        if self.is_leaky && !is_full { 0 } else { units }
    }

    /// Units that are left to give back at `time` in microseconds by the clock of the bucket, of a
    /// fixed window at the end of its period.
    pub fn left(&self, limit: &Limit, time: u64) -> i64 {
        match limit {
            // If the clock went back since, nothing: the bucket may have been refilled.
            Limit::TokenBucket(bucket) => match time.checked_sub(self.taken_at) {
                Some(elapsed) => self.units.saturating_sub(bucket.units_in(elapsed)).max(0),
                None => 0,
            },
            Limit::FixedWindow(_) if time == self.period_end => self.units,
            Limit::SlidingWindow(window)
                if self.taken_at.saturating_add(window.window_us()) > time =>
            {
                self.units
            }
            Limit::FixedWindow(_) | Limit::SlidingWindow(_) | Limit::Concurrency(_) => 0,
        }
    }
}
