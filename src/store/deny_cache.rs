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
use crate::limit::charge::{self, Answer, BucketId, Charge, Mode, Outcome, Outcomes};
use crate::limit::reading::Times;
use crate::limit::reported::Reported;

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
    reported: Reported,
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
            // Each slot is read once: another thread may change it between two reads.
            outcomes.push(charge.outcome_at_most(|| self.level(charge, now))?);
        }
        let answer = Answer::of(charges, outcomes);
        (!answer.allowed()).then_some(answer)
    }

    /// Records the bucket levels in an answer of the store. A refusal adds entries for all enforced
    /// rules; an answer that allows updates existing entries only. `sent_at` is the time at which
    /// the call was sent, in microseconds.
    pub fn remember(&self, charges: &[Charge], answer: &Answer, sent_at: u64) {
        let enforced = |(charge, _): &(&Charge, &Outcome)| charge.mode == Mode::Enforce;
        for (charge, outcome) in charge::not_held(charges, answer).filter(enforced) {
            let (bucket, reported) = (charge.bucket, Reported::of(charge, outcome, sent_at));
            let mut slot = self.slot(bucket).lock();
            let replaces = match &*slot {
                Some(kept) if kept.bucket == bucket => reported.replaces(&kept.reported),
                Some(_) | None => !answer.allowed(),
            };
            if replaces && sent_at >= self.valid_from.load(Ordering::Acquire) {
                *slot = Some(CachedLevel { bucket, reported });
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
        let CachedLevel { bucket, reported } = (*self.slot(charge.bucket).lock())?;
        let age = now.saturating_sub(reported.sent_at());
        if bucket != charge.bucket || age > MAX_AGE_US {
            return None;
        }
        reported.upper_bound(charge, now)
    }

    /// Slot of a bucket. The number of slots is a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<CachedLevel>> {
        &self.slots[bucket.0 as usize & (self.slots.len() - 1)]
    }
}

#[cfg(test)]
mod tests;
