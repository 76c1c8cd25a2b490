//! The deny cache with concurrent inserts, removals and look-ups.

use loom::sync::Arc;
use loom::thread;
use model::limit::Limit;
use model::limit::bucket::Bucket;
use model::limit::charge::{Answer, BucketId, Charge, Mode, take};
use model::limit::share::Share;
use model::store::deny_cache::DenyCache;

/// Two slots: buckets whose ids differ by two share a slot.
const SLOTS: usize = 2;

/// A token is a million units; each microsecond adds one unit.
fn charge(bucket: u128) -> Charge {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let bucket = BucketId(bucket);
    Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
}

/// The result of the store for these levels.
fn answer(charges: &[Charge], levels: &[i64]) -> Answer {
    let mut buckets: Vec<Bucket> =
        levels.iter().map(|level| Bucket { level: *level, at: 0 }).collect();
    take(charges, &mut buckets, Share::WHOLE)
}

/// Runs two further threads on one cache.
fn beside<T>(
    cache: &Arc<DenyCache>,
    threads: [fn(&DenyCache); 2],
    this: impl FnOnce(&DenyCache) -> T,
) -> T {
    let running = threads.map(|run| {
        let cache = Arc::clone(cache);
        thread::spawn(move || run(&cache))
    });
    let result = this(cache);
    for thread in running {
        thread.join().unwrap();
    }
    result
}

#[test]
fn every_refusal_names_a_rule_that_lacked_the_tokens() {
    loom::model(|| {
        let cache = Arc::new(DenyCache::with_slots(SLOTS));
        cache.remember(&[charge(0)], &answer(&[charge(0)], &[7]), 1);
        let colliding = |cache: &DenyCache| {
            cache.remember(&[charge(2)], &answer(&[charge(2)], &[0]), 1);
        };
        let again = |cache: &DenyCache| {
            cache.remember(&[charge(0)], &answer(&[charge(0)], &[9]), 2);
        };
        let refusal = beside(&cache, [colliding, again], |cache| cache.refusal(&[charge(0)], 2));
        if let Some(refusal) = refusal {
            assert_eq!(refusal.denied_by(), Some(0));
            assert!([8, 9].contains(&refusal.outcomes[0].level), "{refusal:?}");
        }
    });
}

#[test]
fn request_with_two_rules_is_denied_only_if_both_are_cached() {
    loom::model(|| {
        let both = || [charge(0), charge(1)];
        let cache = Arc::new(DenyCache::with_slots(SLOTS));
        cache.remember(&both(), &answer(&both(), &[0, 3_000_000]), 1);
        let refused = |cache: &DenyCache| {
            let both = [charge(0), charge(1)];
            cache.remember(&both, &answer(&both, &[0, 0]), 2);
        };
        let colliding = |cache: &DenyCache| {
            cache.remember(&[charge(3)], &answer(&[charge(3)], &[0]), 2);
        };
        let refusal = beside(&cache, [refused, colliding], |cache| cache.refusal(&both(), 2));
        if let Some(refusal) = refusal {
            assert_eq!(refusal.denied_by(), Some(0));
            // The entry from before or after.
            assert!([0, 3_000_001].contains(&refusal.outcomes[1].level), "{refusal:?}");
            assert_eq!(refusal.outcomes[1].enough, refusal.outcomes[1].level > 0);
        }
    });
}

#[test]
fn reply_from_before_a_refund_is_never_cached() {
    let forgets: [fn(&DenyCache); 2] =
        [|cache| cache.forget([BucketId(0)], 10), |cache| cache.clear(10)];
    for forget in forgets {
        loom::model(move || {
            let cache = Arc::new(DenyCache::with_slots(SLOTS));
            let late = |cache: &DenyCache| {
                cache.remember(&[charge(0)], &answer(&[charge(0)], &[0]), 9);
            };
            beside(&cache, [late, forget], |cache| drop(cache.refusal(&[charge(0)], 10)));
            assert_eq!(cache.refusal(&[charge(0)], 10), None);
        });
    }
}

#[test]
fn newest_reply_stays_in_the_cache() {
    loom::model(|| {
        let cache = Arc::new(DenyCache::with_slots(SLOTS));
        cache.remember(&[charge(0)], &answer(&[charge(0)], &[900_000]), 1);
        let denied = |cache: &DenyCache| {
            cache.remember(&[charge(0)], &answer(&[charge(0)], &[400_000]), 3);
        };
        let allowed = |cache: &DenyCache| {
            cache.remember(&[charge(0)], &answer(&[charge(0)], &[1_500_000]), 2);
        };
        beside(&cache, [denied, allowed], |_| ());
        let refusal = cache.refusal(&[charge(0)], 3).unwrap();
        assert_eq!(refusal.outcomes[0].level, 400_000);
    });
}
