//! Refusals that need not be asked for again.
//!
//! When the shared store says that a bucket lacks the tokens until some instant, no request of
//! that cost can pass before it, whatever other gateways do: a level falls only by taking and
//! rises only with time. Until then such requests are refused here, so an attack on an exhausted
//! client costs the store nothing.
//!
//! Not so when somebody gives tokens back (a reset, a grant, new rules): an entry is good for
//! [`MAX_AGE`] at most, and [`DenyCache::clear`] drops all.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::limit::TICKS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome};
use crate::limit::quota::Quota;
use crate::limit::share::Share;

/// How long an entry may be good for, in ticks: how late another gateway's reset can take effect.
pub const MAX_AGE: u64 = TICKS_PER_SECOND;

/// Entries. A new one takes the place of the one that hashes to the same slot: what is forgotten
/// is asked for again.
const SLOTS: usize = 8_192;

/// What is known of exhausted buckets.
#[derive(Debug)]
pub struct DenyCache {
    slots: Box<[Mutex<Option<Exhausted>>]>,
    /// The tick behind that at which something was forgotten last: what the store was asked before,
    /// it may have answered before it was given tokens back.
    good_from: AtomicU64,
}

/// A bucket that lacked the tokens.
#[derive(Debug, Clone, Copy)]
struct Exhausted {
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
        let slots = (0..SLOTS).map(|_| Mutex::new(None)).collect();
        Self { slots, good_from: AtomicU64::new(0) }
    }
}

impl DenyCache {
    /// The refusal of a request at `now`, where it is certain without asking. Outcomes of buckets
    /// that nothing is known of are those of a full one.
    pub fn refusal(&self, charges: &[Charge], now: u64) -> Option<Answer> {
        // Each slot is read once: another thread may fill it between two looks.
        let outcome = |charge: &Charge| {
            let known = if charge.mode == Mode::Enforce { self.level(charge, now) } else { None };
            match known {
                Some(level) => Outcome { level, enough: false },
                None => Outcome { level: charge.quota.full(), enough: true },
            }
        };
        let answer = Answer::of(charges, charges.iter().map(outcome).collect(), Share::WHOLE);
        (!answer.allowed()).then_some(answer)
    }

    /// Remembers what a refusal says of its buckets. `sent_at` is when the store was asked: it
    /// decided then or later.
    pub fn remember(&self, charges: &[Charge], answer: &Answer, sent_at: u64) {
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if charge.mode == Mode::Enforce && !outcome.enough {
                let Charge { bucket, quota, .. } = *charge;
                let entry = Exhausted { bucket, quota, level: outcome.level, at: sent_at };
                let mut slot = self.slot(charge.bucket).lock();
                if sent_at >= self.good_from.load(Ordering::Acquire) {
                    *slot = Some(entry);
                }
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

    /// Forgets everything: somebody gave tokens back.
    pub fn clear(&self) {
        for slot in &self.slots {
            *slot.lock() = None;
        }
    }

    /// The bucket's level at `now`, where it is known to lack the charge's tokens.
    fn level(&self, charge: &Charge, now: u64) -> Option<i64> {
        let entry = (*self.slot(charge.bucket).lock())?;
        let age = now.saturating_sub(entry.at);
        if entry.bucket != charge.bucket || entry.quota != charge.quota || age > MAX_AGE {
            return None;
        }
        let added = charge.quota.units_in(age);
        let level = entry.level.saturating_add(added);
        (level < charge.quota.units(charge.cost)).then_some(level)
    }

    #[allow(clippy::cast_possible_truncation, reason = "the remainder is below SLOTS")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<Exhausted>> {
        &self.slots[(bucket.0 % SLOTS as u128) as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::take;

    fn charge(id: u128, quota: Quota, cost: u64) -> Charge {
        Charge { bucket: BucketId(id), rule: 0, quota_index: 0, quota, cost, mode: Mode::Enforce }
    }

    proptest! {
        /// At every instant the cache refuses only what the bucket itself refuses, and knows its
        /// level to the unit; up to its age it refuses all of it.
        #[test]
        fn cached_and_uncached_answers_agree_at_every_tick(
            tokens in 1_u64..50,
            period in 1_u64..100_000,
            burst in 1_u64..50,
            cost in 1_u64..50,
            level in -1_000_000_i64..1_000_000,
            wait in 0_u64..2_000_000,
            other_cost in 1_u64..50,
        ) {
            let quota = Quota::new(tokens, period, burst.max(cost).max(other_cost)).unwrap();
            let asked: Vec<Charge> = vec![charge(7, quota, cost)];
            let mut bucket = [Bucket { level: level % quota.full(), at: 1_000 }];
            let answer = take(&asked, &mut bucket, Share::WHOLE);
            prop_assume!(!answer.allowed());
            let cache = DenyCache::default();
            cache.remember(&asked, &answer, 1_000);

            let later: Vec<Charge> = vec![charge(7, quota, other_cost)];
            let now = 1_000 + wait;
            let mut truth = [bucket[0].refilled(&quota, now)];
            let uncached = take(&later, &mut truth, Share::WHOLE);
            match cache.refusal(&later, now) {
                Some(cached) => prop_assert_eq!(cached, uncached),
                None => prop_assert!(uncached.allowed() || wait > MAX_AGE),
            }
        }
    }

    #[test]
    fn nothing_is_known_of_other_buckets_or_after_a_reset() {
        let quota = Quota::new(1, 1_000_000, 5).unwrap();
        let asked: Vec<Charge> = vec![charge(7, quota, 1)];
        let mut empty = [Bucket { level: 0, at: 0 }];
        let answer = take(&asked, &mut empty, Share::WHOLE);
        let cache = DenyCache::default();
        cache.remember(&asked, &answer, 0);
        assert!(cache.refusal(&asked, 10).is_some());
        let other: Vec<Charge> = vec![charge(8, quota, 1)];
        assert!(cache.refusal(&other, 10).is_none());
        let same_slot: Vec<Charge> = vec![charge(7 + SLOTS as u128, quota, 1)];
        assert!(cache.refusal(&same_slot, 10).is_none());
        let doubled = Quota::new(2, 1_000_000, 10).unwrap();
        let other_rule: Vec<Charge> = vec![charge(7, doubled, 1)];
        assert!(cache.refusal(&other_rule, 10).is_none());
        cache.clear();
        assert!(cache.refusal(&asked, 10).is_none());
    }

    #[test]
    fn what_was_asked_before_tokens_were_given_back_is_not_remembered() {
        let quota = Quota::new(1, 1_000_000, 5).unwrap();
        let asked: Vec<Charge> = vec![charge(7, quota, 1)];
        let other: Vec<Charge> = vec![charge(8, quota, 1)];
        let answer = take(&asked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
        let cache = DenyCache::default();
        cache.remember(&asked, &answer, 1);
        cache.remember(&other, &answer, 1);
        cache.forget([BucketId(7)], 10);
        assert!(cache.refusal(&asked, 10).is_none() && cache.refusal(&other, 10).is_some());
        cache.remember(&asked, &answer, 10);
        assert!(cache.refusal(&asked, 10).is_none(), "its call left before");
        cache.remember(&asked, &answer, 11);
        assert!(cache.refusal(&asked, 11).is_some());
    }

    #[test]
    fn one_exhausted_bucket_refuses_the_whole_request() {
        let quota = Quota::new(1, 1_000_000, 5).unwrap();
        let asked: Vec<Charge> = vec![charge(7, quota, 1)];
        let answer = take(&asked, &mut [Bucket { level: 250_000, at: 0 }], Share::WHOLE);
        let cache = DenyCache::default();
        cache.remember(&asked, &answer, 0);
        let two: Vec<Charge> = vec![charge(1, quota, 1), charge(7, quota, 1)];
        let refusal = cache.refusal(&two, 500_000).unwrap();
        assert_eq!(refusal.denied_by(), Some(1));
        assert_eq!(refusal.outcomes[0], Outcome { level: 5_000_000, enough: true });
        assert_eq!(refusal.outcomes[1], Outcome { level: 750_000, enough: false });
        assert!(cache.refusal(&two, 750_000).is_none(), "enough by then");
    }

    /// Two threads fill one slot by turns while a third asks: whatever it finds there, a refusal
    /// has a rule that refused.
    #[test]
    fn every_cached_refusal_has_a_rule_that_refused() {
        let quota = Quota::new(1, 1_000_000, 5).unwrap();
        let cache = DenyCache::default();
        let asked: Vec<Charge> = vec![charge(7, quota, 1)];
        let colliding: Vec<Charge> = vec![charge(7 + SLOTS as u128, quota, 1)];
        let answer = take(&asked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for charges in [&asked, &colliding] {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        cache.remember(charges, &answer, 1);
                    }
                });
            }
            let refusals = std::iter::repeat_with(|| cache.refusal(&asked, 10)).flatten();
            let without =
                refusals.take(200_000).filter(|refusal| refusal.outcomes[0].enough).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(without, 0, "refusals without a rule that refused");
        });
    }
}
