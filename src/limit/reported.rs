//! [`Reported`]: the level that a shared store reported for a bucket, and what it says about later
//! times, while other gateways use the bucket, too.

use super::Limit;
use super::bucket::Bucket;
use super::charge::{Charge, Outcome};
use super::reading::Times;
use crate::base::now::Now;

/// Divisor of a sliding window: a number of tokens in it that was seen longer ago than this part of
/// it is not claimed, since many of them may have left it.
const WINDOW_PART: u64 = 8;

/// A level that a store reported for the bucket of a charge.
#[derive(Debug, Clone, Copy)]
pub struct Reported {
    /// Limit that the level is counted in. It says nothing about another limit of the bucket, as
    /// there is around a reload.
    limit: Limit,
    /// Units in the bucket at time `at`.
    level: i64,
    /// Time at which the call was sent, by the clock of this process. The store decided then or
    /// later, so the refilled level is an upper bound.
    at: u64,
    /// Earliest time at which the bucket's period can end, or the newest stamp can leave a sliding
    /// window; `u64::MAX` for other kinds.
    ends_at: u64,
    /// Of a sliding window without room: the cost of the request, and the earliest time at which
    /// there can be room for it.
    short: Option<(u64, u64)>,
}

impl Reported {
    /// The outcome of a charge, in the reply to a call that was sent at `sent_at` (microseconds).
    pub fn of(charge: &Charge, outcome: &Outcome, sent_at: u64) -> Self {
        let Charge { limit, cost, .. } = *charge;
        let Times { left_us, wait_us } = outcome.times;
        let ends_at = if left_us == 0 { u64::MAX } else { sent_at.saturating_add(left_us) };
        let short = (wait_us > 0).then(|| (cost, sent_at.saturating_add(wait_us)));
        Self { limit, level: outcome.level, at: sent_at, ends_at, short }
    }

    /// Time at which the call was sent, in microseconds.
    pub const fn sent_at(&self) -> u64 {
        self.at
    }

    /// Upper bound of the level at `now`, as far as it decides on a charge of the bucket, and its
    /// times; `None` if it is not known.
    pub fn upper_bound(&self, charge: &Charge, now: u64) -> Option<(i64, Times)> {
        if self.limit != charge.limit || now >= self.ends_at {
            return None;
        }
        match &self.limit {
            Limit::TokenBucket(bucket) => {
                let before = Bucket { level: self.level, at: self.at };
                Some((bucket.refilled(before, now).level, Times::NONE))
            }
            Limit::FixedWindow(_) | Limit::Concurrency(_) => {
                Some((self.level, Times::period(self.ends_at - now)))
            }
            Limit::SlidingWindow(_) => self.upper_bound_of_log(charge, now),
        }
    }

    /// Of a sliding window; `None` if it may have room for the charge and may have none.
    fn upper_bound_of_log(&self, charge: &Charge, now: u64) -> Option<(i64, Times)> {
        let left_us = if self.ends_at == u64::MAX { 0 } else { self.ends_at - now };
        if self.level >= charge.limit.units(charge.cost) {
            return Some((self.level, Times { left_us, wait_us: 0 }));
        }
        let (_, room_at) =
            self.short.filter(|(cost, room_at)| *cost == charge.cost && now < *room_at)?;
        Some((self.level, Times { left_us, wait_us: room_at - now }))
    }

    /// Whether this level replaces `kept`, of the same bucket: it is newer or, within one call, of
    /// a later check with a lower level.
    pub fn replaces(&self, kept: &Self) -> bool {
        let is_lower = self.limit != kept.limit || self.level <= kept.level;
        self.at > kept.at || (self.at == kept.at && is_lower)
    }
}

impl Limit {
    /// The highest level that a bucket can have until `latest`, if it had `level` in the reply to a
    /// call that was sent at `sent_at`, and the end of the period that this holds for, in Unix
    /// time: 0 unless the limit is a fixed window. All in microseconds. `None` if it may be full.
    pub fn highest_until(&self, level: i64, sent_at: Now, latest: u64) -> Option<(i64, u64)> {
        let found = match self {
            Self::TokenBucket(bucket) => {
                (bucket.refilled(Bucket { level, at: sent_at.us }, latest).level, 0)
            }
            Self::FixedWindow(window) => (level, window.bucket(level, sent_at).at),
            Self::SlidingWindow(window) => {
                let age_us = latest.saturating_sub(sent_at.us);
                if age_us > window.window_us() / WINDOW_PART {
                    return None;
                }
                (level, 0)
            }
            // Units are free as soon as a request ends.
            Self::Concurrency(_) => return None,
        };
        (found.0 < self.highest()).then_some(found)
    }
}
