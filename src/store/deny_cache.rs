//! Refusals that need not be asked for again.
//!
//! When the shared store says that a bucket lacks the tokens until some instant, no request of
//! that cost can pass before it, whatever other gateways do: a level falls only by taking and
//! rises only with time. Until then such requests are refused here, so an attack on an exhausted
//! client costs the store nothing.
//!
//! A refusal names the rule that makes the client wait longest. So one is given here only where the
//! store has said of every enforced rule of the request, at most [`MAX_AGE`] ago, what its bucket
//! held: it is the store's answer of that time, refilled to now. What this gateway's own requests
//! took since is in it; what other gateways took since is not. A client that is exhausted costs the
//! store a call in [`MAX_AGE`], however many rules apply to it.
//!
//! Not so when somebody gives tokens back (a reset, a grant, new rules): an entry is good for
//! [`MAX_AGE`] at most, and [`DenyCache::clear`] drops all.
//!
//! `tests/model` checks this file under all interleavings of threads.

use crate::limit::MICROS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome, Outcomes};
use crate::limit::quota::Quota;
use crate::limit::share::Share;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// How long an entry may be good for, in ticks: how late another gateway's reset can take effect.
pub const MAX_AGE: u64 = MICROS_PER_SECOND;

/// Entries; a refusal makes one for each enforced rule. A new one takes the place of the one that
/// hashes to the same slot: what is forgotten is asked for again.
const SLOTS: usize = 16_384;

/// What is known of the buckets of denied requests.
#[derive(Debug)]
pub struct DenyCache {
    slots: Box<[Mutex<Option<Seen>>]>,
    /// The tick behind that at which something was forgotten last: what the store was asked before,
    /// it may have answered before it was given tokens back.
    good_from: AtomicU64,
}

/// What the store said of a bucket last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    bucket: BucketId,
    /// What the level is counted by. Under another quota it says nothing: a request that began
    /// before a reload may be refused after it.
    quota: Quota,
    /// Units in the bucket at `at`.
    level: i64,
    /// The tick of this process at or after which the store saw that level. The store may have
    /// seen it later, and the bucket be less full than is reckoned here; never fuller.
    at: u64,
}

impl Default for DenyCache {
    fn default() -> Self {
        Self::with_slots(SLOTS)
    }
}

impl DenyCache {
    /// An empty cache of at least so many slots.
    pub fn with_slots(slots: usize) -> Self {
        let slots = (0..slots.next_power_of_two()).map(|_| Mutex::new(None)).collect();
        Self { slots, good_from: AtomicU64::new(0) }
    }

    /// The refusal of a request at `now`, where it is certain without asking, and where every
    /// enforced rule of the request is known. Outcomes of shadow rules are those of full buckets.
    pub fn refusal(&self, charges: &[Charge], now: u64) -> Option<Answer> {
        let mut outcomes = Outcomes::new();
        for charge in charges {
            outcomes.push(match charge.mode {
                Mode::Enforce => {
                    // Each slot is read once: another thread may fill it between two looks.
                    let level = self.level(charge, now)?;
                    let enough = level >= charge.quota.units(charge.cost);
                    Outcome { level, enough, share: Share::WHOLE }
                }
                Mode::Shadow => Outcome::full(charge),
            });
        }
        let answer = Answer::of(charges, outcomes);
        (!answer.allowed()).then_some(answer)
    }

    /// Remembers what an answer of the store says of its buckets: a refusal of all that are
    /// enforced, an answer that allows of those that are known already. `sent_at` is when the store
    /// was asked: it decided then or later.
    pub fn remember(&self, charges: &[Charge], answer: &Answer, sent_at: u64) {
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if charge.mode == Mode::Shadow {
                continue;
            }
            let Charge { bucket, quota, .. } = *charge;
            let entry = Seen { bucket, quota, level: outcome.level, at: sent_at };
            let mut slot = self.slot(bucket).lock();
            let replaces = match &*slot {
                Some(kept) if kept.bucket == bucket => entry.replaces(kept),
                Some(_) | None => !answer.allowed(),
            };
            if replaces && sent_at >= self.good_from.load(Ordering::Acquire) {
                *slot = Some(entry);
            }
        }
    }

    /// Forgets what is known of these buckets: somebody gave tokens back, before `now`.
    pub fn forget(&self, buckets: impl IntoIterator<Item = BucketId>, now: u64) {
        self.good_from.fetch_max(now.saturating_add(1), Ordering::AcqRel);
        for bucket in buckets {
            let mut slot = self.slot(bucket).lock();
            if slot.is_some_and(|entry| entry.bucket == bucket) {
                *slot = None;
            }
        }
    }

    /// Forgets everything: somebody gave tokens back, before `now`.
    pub fn clear(&self, now: u64) {
        self.good_from.fetch_max(now.saturating_add(1), Ordering::AcqRel);
        for slot in &self.slots {
            *slot.lock() = None;
        }
    }

    /// The most that the charge's bucket can hold at `now`, where it is known.
    fn level(&self, charge: &Charge, now: u64) -> Option<i64> {
        let entry = (*self.slot(charge.bucket).lock())?;
        let age = now.saturating_sub(entry.at);
        if entry.bucket != charge.bucket || entry.quota != charge.quota || age > MAX_AGE {
            return None;
        }
        let added = charge.quota.units_in(age);
        Some(entry.level.saturating_add(added).min(charge.quota.full()))
    }

    /// The slot of a bucket: the number of slots is a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "the lowest bits are what is wanted")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<Seen>> {
        &self.slots[bucket.0 as usize & (self.slots.len() - 1)]
    }
}

impl Seen {
    /// Whether this says more of its bucket than `kept` does: it is newer or, of one call, what was
    /// left behind more of its checks.
    fn replaces(&self, kept: &Self) -> bool {
        let is_lower = self.quota != kept.quota || self.level <= kept.level;
        self.at > kept.at || (self.at == kept.at && is_lower)
    }
}

#[cfg(test)]
mod tests;
