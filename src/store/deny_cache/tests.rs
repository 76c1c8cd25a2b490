use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::base::now::Now;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::take;
use crate::limit::reading::Times;
use crate::limit::share::Share;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::limit::verdict::{Standing, Verdict};

fn charge(id: u128, limit: Limit, cost: u64) -> Charge {
    Charge { bucket: BucketId(id), rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// The cache refuses only requests that the bucket denies, and has its exact level. Until its
    /// maximum age it refuses all of them.
    #[test]
    fn cached_and_uncached_answers_agree_at_every_microsecond(
        tokens in 1_u64..50,
        period in 1_u64..100_000,
        burst in 1_u64..50,
        cost in 1_u64..50,
        level in -1_000_000_i64..1_000_000,
        wait in 0_u64..2_000_000,
        other_cost in 1_u64..50,
    ) {
        let limit = Limit::token_bucket(tokens, period, burst.max(cost).max(other_cost)).unwrap();
        let checked: Vec<Charge> = vec![charge(7, limit, cost)];
        let mut bucket = [Bucket { level: level % limit.full(), at: 1_000 }];
        let answer = take(&checked, &mut bucket, Share::WHOLE);
        prop_assume!(!answer.allowed());
        let cache = DenyCache::default();
        cache.remember(&checked, &answer, 1_000);

        let later: Vec<Charge> = vec![charge(7, limit, other_cost)];
        let now = 1_000 + wait;
        let mut truth = [bucket[0].refilled(&limit, Now::unix(now))];
        let uncached = take(&later, &mut truth, Share::WHOLE);
        match cache.refusal(&later, now) {
            Some(cached) => prop_assert_eq!(cached, uncached),
            None => prop_assert!(uncached.allowed() || wait > MAX_AGE_US),
        }
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// Of a sliding window, the cache refuses no request that the log would allow, and names the
    /// same wait.
    #[test]
    fn cache_refuses_only_what_a_log_refuses_at_every_microsecond(
        (limit, window_us) in (1_u64..20, 1_u64..2_000_000),
        steps in prop::collection::vec((0_u64..200_000, 1_u64..4), 1..40),
        (cost, other_cost, wait) in (1_u64..20, 1_u64..20, 0_u64..1_500_000),
    ) {
        let window = SlidingWindow::new(limit, window_us).unwrap();
        let limit = Limit::SlidingWindow(window);
        let of = |cost: u64| vec![charge(7, limit, cost.min(limit.capacity()))];
        let (mut log, mut now) = (StampLog::default(), 1_000);
        let take_now = |log: &mut StampLog, charges: &[Charge], now: u64| {
            let mut bucket = [log.bucket(&window, now)];
            let answer = take(charges, &mut bucket, Share::WHOLE);
            let needed = limit.units(charges[0].cost);
            let times = log.times(&window, answer.outcomes[0].level, needed, now);
            if answer.allowed() {
                log.record(&window, bucket[0].level, now);
            }
            answer.with_times(|_, _| times)
        };
        for (step, cost) in steps {
            now += step;
            take_now(&mut log, &of(cost), now);
        }
        let answer = take_now(&mut log, &of(cost), now);
        let cache = DenyCache::default();
        cache.remember(&of(cost), &answer, now);
        let later = now + wait;
        let cached = cache.refusal(&of(other_cost), later);
        let uncached = take_now(&mut log.clone(), &of(other_cost), later);
        if let Some(cached) = &cached {
            prop_assert!(!uncached.allowed());
            let wait_us = |answer: &Answer| answer.outcomes[0].times.wait_us;
            prop_assert_eq!(wait_us(cached), wait_us(&uncached));
        }
        if other_cost == cost && !answer.allowed() && wait <= MAX_AGE_US {
            prop_assert_eq!(cached.is_some(), !uncached.allowed());
        }
    }
}

#[test]
fn entry_does_not_apply_to_other_buckets_or_after_a_reset() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let checked: Vec<Charge> = vec![charge(7, limit, 1)];
    let mut empty = [Bucket { level: 0, at: 0 }];
    let answer = take(&checked, &mut empty, Share::WHOLE);
    let cache = DenyCache::default();
    cache.remember(&checked, &answer, 0);
    assert!(cache.refusal(&checked, 10).is_some());
    let other: Vec<Charge> = vec![charge(8, limit, 1)];
    assert!(cache.refusal(&other, 10).is_none());
    let same_slot: Vec<Charge> = vec![charge(7 + SLOTS as u128, limit, 1)];
    assert!(cache.refusal(&same_slot, 10).is_none());
    let doubled = Limit::token_bucket(2, 1_000_000, 10).unwrap();
    let other_rule: Vec<Charge> = vec![charge(7, doubled, 1)];
    assert!(cache.refusal(&other_rule, 10).is_none());
    cache.clear(10);
    assert!(cache.refusal(&checked, 10).is_none());
}

#[test]
fn answer_from_before_a_grant_is_not_remembered() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let checked: Vec<Charge> = vec![charge(7, limit, 1)];
    let other: Vec<Charge> = vec![charge(8, limit, 1)];
    let answer = take(&checked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
    let cache = DenyCache::default();
    cache.remember(&checked, &answer, 1);
    cache.remember(&other, &answer, 1);
    cache.forget([BucketId(7)], 10);
    assert!(cache.refusal(&checked, 10).is_none() && cache.refusal(&other, 10).is_some());
    cache.remember(&checked, &answer, 10);
    assert!(cache.refusal(&checked, 10).is_none(), "its call was sent before");
    cache.remember(&checked, &answer, 11);
    assert!(cache.refusal(&checked, 11).is_some());
}

#[test]
fn one_exhausted_bucket_refuses_the_whole_request() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let cache = DenyCache::default();
    let two: Vec<Charge> = vec![charge(1, limit, 1), charge(7, limit, 1)];
    let buckets = [2_000_000, 250_000].map(|level| Bucket { level, at: 0 });
    cache.remember(&two, &take(&two, &mut buckets.clone(), Share::WHOLE), 0);
    let refusal = cache.refusal(&two, 500_000).unwrap();
    assert_eq!(refusal.denied_by(), Some(1));
    assert_eq!(
        refusal.outcomes[0],
        Outcome { level: 2_500_000, enough: true, share: Share::WHOLE, times: Times::NONE }
    );
    assert_eq!(
        refusal.outcomes[1],
        Outcome { level: 750_000, enough: false, share: Share::WHOLE, times: Times::NONE }
    );
    assert!(cache.refusal(&two, 750_000).is_none(), "enough tokens again");
}

/// Two threads write one slot alternately while a third reads it: each refusal has a rule that was
/// short.
#[test]
fn concurrent_refusal_is_by_a_rule_that_was_short() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let cache = DenyCache::default();
    let checked: Vec<Charge> = vec![charge(7, limit, 1)];
    let colliding: Vec<Charge> = vec![charge(7 + SLOTS as u128, limit, 1)];
    let answer = take(&checked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for charges in [&checked, &colliding] {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    cache.remember(charges, &answer, 1);
                }
            });
        }
        let refusals = std::iter::repeat_with(|| cache.refusal(&checked, 10)).flatten();
        let without = refusals.take(200_000).filter(|refusal| refusal.outcomes[0].enough).count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(without, 0, "refusals without a rule that was short");
    });
}

/// Rule that an answer reports, and its retry after.
fn named(charges: &[Charge], answer: &Answer) -> Option<(u32, u64)> {
    let Verdict::Refused { binding } = Verdict::of(charges, answer) else { return None };
    let standing = Standing::of(&charges[binding], &answer.outcomes[binding]);
    Some((charges[binding].rule, standing.retry_after_us))
}

/// The entry of the fast rule does not determine the retry after of the slow one.
#[test]
fn refusal_is_cached_only_where_every_enforced_rule_is_known() {
    let quick = charge(1, Limit::token_bucket(1, 500_000, 5).unwrap(), 1);
    let slow = charge(2, Limit::token_bucket(1, 60_000_000, 5).unwrap(), 1);
    let shadow = Charge { mode: Mode::Shadow, ..charge(3, quick.limit, 1) };
    let empty = Bucket { level: 0, at: 0 };
    let (cache, both) = (DenyCache::default(), [quick, slow]);
    let answer = take(&[quick], &mut [empty], Share::WHOLE);
    cache.remember(&[quick], &answer, 0);
    assert!(cache.refusal(&[quick], 100_000).is_some());
    assert_eq!(cache.refusal(&both, 100_000), None, "no entry of the slow rule");
    let answer = take(&both, &mut [empty, empty], Share::WHOLE);
    cache.remember(&both, &answer, 100_000);
    for charges in [&both[..], &[quick, shadow, slow]] {
        let refusal = cache.refusal(charges, 200_000).unwrap();
        assert_eq!(named(charges, &refusal), Some((slow.rule, 59_900_000)));
    }
}

/// One step of a schedule: microseconds that pass, whether another gateway sends the request, which
/// rules apply to it, and its cost.
type Step = (u64, bool, [bool; 3], u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let us = prop_oneof![4 => 0..200_000_u64, 1 => 0..3_000_000_u64];
    let step = (us, prop::bool::weighted(0.3), any::<[bool; 3]>(), 1..4_u64);
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// A cached refusal reports the same rule and retry after as the store, unless another gateway
    /// took from the buckets since, at most a second ago.
    #[test]
    fn cached_refusal_names_the_rule_and_the_wait_of_the_store(
        rates in prop::array::uniform3((1..20_u64, prop_oneof![Just(1_000_000_u64), Just(60_000_000)], 3..9_u64)),
        steps in steps(),
    ) {
        let limits = rates.map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap());
        let mut store = limits.map(|limit| Bucket::full(&limit, Now::unix(0)));
        // Last level of each bucket that this gateway received, and its time.
        let mut seen: HashMap<u32, Bucket> = HashMap::new();
        let cache = DenyCache::default();
        let mut now = 0;
        for (us, is_other, applies, cost) in steps {
            now += us;
            let rules: Vec<u32> = (0..3).filter(|rule| applies[*rule as usize]).collect();
            let charges: Vec<Charge> = rules
                .iter()
                .map(|rule| Charge { rule: *rule, ..charge((*rule).into(), limits[*rule as usize], cost) })
                .collect();
            let refilled = |rule: &u32, bucket: Bucket| bucket.refilled(&limits[*rule as usize], Now::unix(now));
            let mut buckets: Vec<Bucket> =
                rules.iter().map(|rule| refilled(rule, store[*rule as usize])).collect();
            let truth = take(&charges, &mut buckets, Share::WHOLE);
            if !is_other && let Some(cached) = cache.refusal(&charges, now) {
                prop_assert!(!truth.allowed());
                let mut known: Vec<Bucket> = Vec::new();
                for rule in &rules {
                    let bucket = seen.get(rule).copied();
                    prop_assert!(bucket.is_some_and(|bucket| now - bucket.at <= MAX_AGE_US));
                    known.extend(bucket.map(|bucket| refilled(rule, bucket)));
                }
                let is_current = known == buckets;
                prop_assert_eq!(&take(&charges, &mut known, Share::WHOLE), &cached);
                prop_assert!(!is_current || cached == truth);
                let wait = |answer: &Answer| named(&charges, answer).map(|(_, wait)| wait);
                prop_assert!(wait(&cached) <= wait(&truth), "at most the wait of the store");
                continue;
            }
            for (rule, bucket) in rules.iter().zip(&buckets) {
                store[*rule as usize] = *bucket;
                if !is_other {
                    seen.insert(*rule, *bucket);
                }
            }
            if !is_other {
                cache.remember(&charges, &truth, now);
            }
        }
    }
}

/// A call that was sent before the cache was cleared.
#[test]
fn answer_to_a_call_from_before_the_clearing_is_not_remembered() {
    let checked = [charge(7, Limit::token_bucket(1, 1_000_000, 5).unwrap(), 1)];
    let answer = take(&checked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
    let cache = DenyCache::default();
    cache.clear(10);
    cache.remember(&checked, &answer, 10);
    assert_eq!(cache.refusal(&checked, 10), None);
    cache.remember(&checked, &answer, 11);
    assert!(cache.refusal(&checked, 11).is_some());
}

/// Answers arrive in any order. The newest counts; within one call, the lowest level.
#[test]
fn older_answer_does_not_replace_a_newer_one() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let checked = [charge(7, limit, 1)];
    // (level, sent at) of two answers -> level at 100 us
    let table = [
        ((400_000, 20), (300_000, 10), 400_080),
        ((300_000, 10), (400_000, 20), 400_080),
        ((400_000, 20), (300_000, 20), 300_080),
        ((300_000, 20), (400_000, 20), 300_080),
    ];
    for (first, second, level) in table {
        let cache = DenyCache::default();
        for (level, sent_at) in [first, second] {
            let answer = take(&checked, &mut [Bucket { level, at: 0 }], Share::WHOLE);
            cache.remember(&checked, &answer, sent_at);
        }
        assert_eq!(cache.refusal(&checked, 100).unwrap().outcomes[0].level, level, "{first:?}");
    }
}

#[test]
fn answer_that_allows_replaces_no_entry_of_another_bucket() {
    let limit = Limit::token_bucket(1, 1_000_000, 5).unwrap();
    let cache = DenyCache::with_slots(1);
    let exhausted = [charge(0, limit, 1)];
    let answer = take(&exhausted, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
    cache.remember(&exhausted, &answer, 1);
    let other = [charge(1, limit, 1)];
    let mut full = [Bucket::full(&limit, Now::unix(0))];
    cache.remember(&other, &take(&other, &mut full, Share::WHOLE), 2);
    assert!(cache.refusal(&exhausted, 3).is_some());
}

#[test]
fn entry_expires_after_its_maximum_age() {
    let limit = Limit::token_bucket(1, 10_000_000, 5).unwrap();
    let cache = DenyCache::with_slots(1);
    let checked = [charge(0, limit, 1)];
    let answer = take(&checked, &mut [Bucket { level: 0, at: 0 }], Share::WHOLE);
    cache.remember(&checked, &answer, 7);
    assert!(cache.refusal(&checked, 7 + MAX_AGE_US).is_some());
    assert!(cache.refusal(&checked, 8 + MAX_AGE_US).is_none());
}
