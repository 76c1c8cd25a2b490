//! Deny cache: refuses requests without calling the shared store while they certainly exceed a
//! limit.
//!
//! If the shared store reports that a bucket is short until some time, no request of that cost can
//! be allowed before it, whatever other gateways do: a level falls only by charges and rises only
//! with time. Requests until then are refused here, so that a flood from an exhausted client does
//! not load the store.
//!
//! A refusal reports the rule with the longest retry after. So the cache answers only if it has,
//! for every enforced rule of the request, a level that the store reported at most [`MAX_AGE_US`]
//! ago. It refills these levels to the current time. They include the charges of this gateway's
//! later requests, but not those of other gateways. An exhausted client costs the store one call
//! per [`MAX_AGE_US`], however many rules apply to it.
//!
//! The level of a sliding window rises when stamps leave it, which the cache does not know. It
//! knows the time until which the window has no room for the cost of the request, so it refuses
//! only requests of that cost, until then.
//!
//! A level can also rise by a reset, a grant or a reload. Therefore entries expire after
//! [`MAX_AGE_US`], and [`DenyCache::forget`] and [`DenyCache::clear`] remove them at once.
//!
//! Units that requests hold are free as soon as one ends, so the cache neither has such buckets nor
//! refuses by them.
//!
//! `tests/model` checks this file under all interleavings of threads.

use crate::base::duration::MICROS_PER_SECOND;
use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome, Outcomes};
use crate::limit::reading::Times;
use crate::limit::share::Share;

/// Lifetime of an entry in microseconds, and so the maximum delay of a reset by another gateway.
pub const MAX_AGE_US: u64 = MICROS_PER_SECOND;

/// Default number of slots. A refusal uses one for each enforced rule. An entry replaces the one
/// that hashes to the same slot; a lost entry costs one more call of the store.
const SLOTS: usize = 16_384;

/// Last known levels of the buckets of denied requests. Fixed size; each slot has its own lock.
#[derive(Debug)]
pub struct DenyCache {
    slots: Box<[Mutex<Option<CachedLevel>>]>,
    /// Calls sent before this time are not remembered. It is just after the last `forget` or
    /// `clear`: earlier calls may have been answered before the tokens were given back.
    valid_from: AtomicU64,
}

/// Last level that the store reported for a bucket.
#[derive(Debug, Clone, Copy)]
struct CachedLevel {
    bucket: BucketId,
    /// Limit that the level is counted in. The entry does not apply to another limit of the bucket,
    /// as there is around a reload.
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

impl Default for DenyCache {
    fn default() -> Self {
        Self::with_slots(SLOTS)
    }
}

impl DenyCache {
    /// Creates an empty cache with `slots` slots, rounded up to a power of two.
    pub fn with_slots(slots: usize) -> Self {
        let slots = (0..slots.next_power_of_two()).map(|_| Mutex::new(None)).collect();
        Self { slots, valid_from: AtomicU64::new(0) }
    }

    /// Returns the refusal of a request at `now` (microseconds), if the cache knows the buckets of
    /// all its enforced rules and at least one is short. Outcomes of shadow rules are those of full
    /// buckets.
    pub fn refusal(&self, charges: &[Charge], now: u64) -> Option<Answer> {
        let mut outcomes = Outcomes::new();
        for charge in charges {
            outcomes.push(match charge.mode {
                Mode::Enforce if charge.limit.is_held() => Outcome::full(charge),
                Mode::Enforce => {
                    // Each slot is read once: another thread may change it between two reads.
                    let (level, times) = self.level(charge, now)?;
                    let enough = level >= charge.limit.units(charge.cost);
                    Outcome { level, enough, share: Share::WHOLE, times }
                }
                Mode::Shadow => Outcome::full(charge),
            });
        }
        let answer = Answer::of(charges, outcomes);
        (!answer.allowed()).then_some(answer)
    }

    /// Records the bucket levels in an answer of the store. A refusal adds entries for all enforced
    /// rules; an answer that allows updates existing entries only. `sent_at` is the time at which
    /// the call was sent, in microseconds.
    pub fn remember(&self, charges: &[Charge], answer: &Answer, sent_at: u64) {
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if charge.mode == Mode::Shadow || charge.limit.is_held() {
                continue;
            }
            let Charge { bucket, limit, cost, .. } = *charge;
            let Times { left_us, wait_us } = outcome.times;
            let ends_at = if left_us == 0 { u64::MAX } else { sent_at.saturating_add(left_us) };
            let short = (wait_us > 0).then(|| (cost, sent_at.saturating_add(wait_us)));
            let entry =
                CachedLevel { bucket, limit, level: outcome.level, at: sent_at, ends_at, short };
            let mut slot = self.slot(bucket).lock();
            let replaces = match &*slot {
                Some(kept) if kept.bucket == bucket => entry.replaces(kept),
                Some(_) | None => !answer.allowed(),
            };
            if replaces && sent_at >= self.valid_from.load(Ordering::Acquire) {
                *slot = Some(entry);
            }
        }
    }

    /// Removes the entries of buckets to which tokens were given back before `now`.
    pub fn forget(&self, buckets: impl IntoIterator<Item = BucketId>, now: u64) {
        self.valid_from.fetch_max(now.saturating_add(1), Ordering::AcqRel);
        for bucket in buckets {
            let mut slot = self.slot(bucket).lock();
            if slot.is_some_and(|entry| entry.bucket == bucket) {
                *slot = None;
            }
        }
    }

    /// Removes all entries, after tokens were given back before `now`.
    pub fn clear(&self, now: u64) {
        self.valid_from.fetch_max(now.saturating_add(1), Ordering::AcqRel);
        for slot in &self.slots {
            *slot.lock() = None;
        }
    }

    /// Upper bound of the level of the charge's bucket at `now`, as far as it decides on the
    /// charge, and its times; `None` if unknown or expired.
    fn level(&self, charge: &Charge, now: u64) -> Option<(i64, Times)> {
        let entry = (*self.slot(charge.bucket).lock())?;
        let age = now.saturating_sub(entry.at);
        if entry.bucket != charge.bucket || entry.limit != charge.limit || age > MAX_AGE_US {
            return None;
        }
        if now >= entry.ends_at {
            return None;
        }
        if charge.limit.log().is_some() {
            return entry.level_of_log(charge, now);
        }
        if !charge.limit.refills() {
            return Some((entry.level, Times::period(entry.ends_at - now)));
        }
        let bucket = Bucket { level: entry.level, at: entry.at };
        Some((bucket.refilled(&charge.limit, now).level, Times::NONE))
    }

    /// Slot of a bucket. The number of slots is a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<CachedLevel>> {
        &self.slots[bucket.0 as usize & (self.slots.len() - 1)]
    }
}

impl CachedLevel {
    /// Level and times of a sliding window at `now`; `None` if it may have room for the charge and
    /// may have none.
    fn level_of_log(&self, charge: &Charge, now: u64) -> Option<(i64, Times)> {
        let left_us = if self.ends_at == u64::MAX { 0 } else { self.ends_at - now };
        if self.level >= charge.limit.units(charge.cost) {
            return Some((self.level, Times { left_us, wait_us: 0 }));
        }
        let (_, room_at) =
            self.short.filter(|(cost, room_at)| *cost == charge.cost && now < *room_at)?;
        Some((self.level, Times { left_us, wait_us: room_at - now }))
    }

    /// Whether this entry replaces `kept`, of the same bucket: it is newer or, within one call, of
    /// a later check with a lower level.
    fn replaces(&self, kept: &Self) -> bool {
        let is_lower = self.limit != kept.limit || self.level <= kept.level;
        self.at > kept.at || (self.at == kept.at && is_lower)
    }
}

#[cfg(test)]
mod tests;
