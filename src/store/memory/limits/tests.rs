//! Changes of rules: levels of clients, and the number of limits.

use proptest::prelude::*;

use crate::base::duration::MICROS_PER_SECOND as SECOND;
use crate::base::now::Now;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::share::Share;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::store::memory::MemoryStore;

fn charge(client: u128, limit_index: u32, limit: Limit, cost: u64) -> Charge {
    let bucket = BucketId((client + 1).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645));
    Charge { bucket, rule: 0, limit_index, limit, cost, mode: Mode::Enforce }
}

/// Level of the client's bucket.
fn level(store: &MemoryStore, charge: Charge, now: u64) -> i64 {
    let cost = (charge.limit.capacity() + 1) * charge.limit.parts();
    let more_than_any = Charge { cost, ..charge };
    store.peek(&[more_than_any], now, Share::WHOLE).outcomes[0].level
}

fn limits() -> impl Strategy<Value = Limit> {
    let period = prop_oneof![1..50_u64, Just(SECOND), Just(86_400 * SECOND)];
    (1..1_000_u64, period, 1..1_000_u64)
        .prop_map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap())
}

/// The limit of a single client is not in the list of a reload: it has the same number afterwards,
/// and its bucket the same level.
#[test]
fn limit_beside_those_of_the_file_survives_reloads() {
    let of = |tokens| Limit::token_bucket(tokens, 86_400 * SECOND, tokens).unwrap();
    let store = MemoryStore::new(1_000, &[of(5)]);
    let number = store.number_of(of(7)).unwrap();
    assert_eq!((number, store.number_of(of(7))), (1, Some(1)));
    assert_eq!(store.number_of(of(5)), Some(0), "the file has it");
    let taken = charge(7, number, of(7), 3 * of(7).parts());
    assert!(store.take(&[taken], 1_000, Share::WHOLE).allowed());
    for (time, tokens) in (1..100).zip(10..) {
        // Numbers of earlier limits are reused after 10 s.
        let now = time * 11 * SECOND;
        let numbers = store.adopt(&[of(tokens)], now);
        let again = store.number_of(of(7)).unwrap();
        assert_ne!(again, numbers[0]);
        let left = level(&store, charge(7, again, of(7), 1), now);
        assert_eq!(of(7).tokens(left), 4, "after {time} reloads");
    }
}

#[test]
fn limits_of_single_clients_that_find_no_place_are_counted() {
    let of = |tokens| Limit::token_bucket(tokens, 86_400 * SECOND, tokens).unwrap();
    let all: Vec<Limit> = (1..=10_000).map(of).collect();
    let store = MemoryStore::new(1_000, &all);
    assert_eq!((store.number_of(of(7)), store.limits_beyond()), (Some(6), 0));
    assert_eq!((store.number_of(of(20_000)), store.limits_beyond()), (None, 1));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// Until the change, the bucket refills by the old limit. Then the client keeps its fraction
    /// under the new limit, by which the bucket refills from then on.
    #[test]
    fn row_46_changed_rule_keeps_the_fraction_of_each_bucket(
        old in limits(),
        new in limits(),
        cost in 1..1_000_u64,
        wait in 0..2_000_000_u64,
        since in 0..2_000_000_u64,
    ) {
        let store = MemoryStore::new(1_000, &[old]);
        let taken = charge(7, 0, old, cost.min(old.capacity()));
        prop_assert!(store.take(&[taken], 1_000, Share::WHOLE).allowed());
        let changed = 1_000 + wait;
        let numbers = store.adopt(&[new], changed);
        let left = Bucket { level: old.full() - old.units(taken.cost), at: 1_000 };
        let kept = new.converted(left.refilled(&old, Now::unix(changed)), &old);
        prop_assert_eq!(level(&store, charge(7, numbers[0], new, 1), changed), kept.level);
        let now = changed + since;
        let filled = kept.refilled(&new, Now::unix(now)).level;
        prop_assert_eq!(level(&store, charge(7, numbers[0], new, 1), now), filled);
        // A full bucket remains full.
        prop_assert_eq!(level(&store, charge(8, numbers[0], new, 1), changed), new.full());
    }

    /// With evictions before, between and after changes of rules, no client gets more tokens than
    /// without evictions.
    #[test]
    fn changed_rule_grants_no_second_burst_to_evicted_buckets(
        limits in [limits(), limits()],
        (seed, steps, change) in evictions(),
    ) {
        grants_no_more_than_without_evictions(limits, seed, steps, change)?;
    }

    /// The same of fixed windows, whose clients keep what they have used.
    #[test]
    fn changed_window_grants_no_second_quota_to_evicted_buckets(
        limits in [windows(), windows()],
        (seed, steps, change) in evictions(),
    ) {
        grants_no_more_than_without_evictions(limits, seed, steps, change)?;
    }

    /// The same of sliding windows.
    #[test]
    fn changed_sliding_window_grants_no_second_limit_to_evicted_buckets(
        limits in [sliding_windows(), sliding_windows()],
        (seed, steps, change) in evictions(),
    ) {
        let store = MemoryStore::with_seed(8, &[limits[0]], seed);
        let mut logs: Vec<StampLog> = vec![StampLog::default(); 40];
        let (mut limit, mut number, mut now) = (limits[0], 0, 1_000);
        for (step, (client, cost, wait)) in steps.into_iter().enumerate() {
            now += wait;
            if step == change {
                // Only stamps that are in the window are kept.
                let window = limit.log().unwrap();
                for log in &mut logs {
                    let level = log.bucket(&window, now).level;
                    log.record(&window, level, now);
                }
                number = store.adopt(&limits[1..], now)[0];
                limit = limits[1];
            }
            let (window, log) = (limit.log().unwrap(), &mut logs[usize::try_from(client).unwrap()]);
            let charge = charge(client, number, limit, cost.min(limit.capacity()));
            let level = log.bucket(&window, now).level;
            let answer = store.take(&[charge], now, Share::WHOLE);
            let taken = if answer.allowed() { limit.units(charge.cost) } else { 0 };
            prop_assert!(answer.outcomes[0].level + taken <= level, "{answer:?} of {level} at {now}");
            log.record(&window, level - taken, now);
        }
    }

    #[test]
    fn changed_window_keeps_what_was_used(
        (old, new) in (windows(), windows()),
        used in 1..10_u64,
    ) {
        let store = MemoryStore::new(1_000, &[old]);
        let used = used.min(old.capacity());
        prop_assert!(store.take(&[charge(7, 0, old, used * old.parts())], 1_000, Share::WHOLE).allowed());
        let number = store.adopt(&[new], 2_000)[0];
        let left = new.full() - new.token_units(used);
        prop_assert_eq!(level(&store, charge(7, number, new, 1), 3_000), left.max(new.lowest()));
        prop_assert_eq!(level(&store, charge(8, number, new, 1), 3_000), new.full());
        // The next period begins at the same second or minute for both.
        prop_assert_eq!(level(&store, charge(7, number, new, 1), 60 * SECOND), new.full());
    }
}

fn sliding_windows() -> impl Strategy<Value = Limit> {
    (1..1_000_u64, 1..200_000_u64).prop_map(|(limit, window_us)| {
        Limit::SlidingWindow(SlidingWindow::new(limit, window_us).unwrap())
    })
}

fn windows() -> impl Strategy<Value = Limit> {
    let period = prop_oneof![Just(Period::Second), Just(Period::Minute)];
    (1..1_000_u64, period).prop_map(|(limit, period)| {
        let calendar = Calendar::new(period, "UTC", 1).unwrap();
        Limit::FixedWindow(FixedWindow::new(limit, calendar).unwrap())
    })
}

/// Client, cost in tokens, and microseconds since the previous request.
type Steps = Vec<(u128, u64, u64)>;

/// A seed, requests, and the request before which the rule changes.
fn evictions() -> impl Strategy<Value = (u64, Steps, usize)> {
    let steps = prop::collection::vec((0..40_u128, 1..400_u64, 0..20_000_u64), 1..120);
    (any::<u64>(), steps, 0..120_usize)
}

fn grants_no_more_than_without_evictions(
    [old, new]: [Limit; 2],
    seed: u64,
    steps: Steps,
    changed_before: usize,
) -> Result<(), TestCaseError> {
    let store = MemoryStore::with_seed(8, &[old], seed);
    let mut kept = [None::<Bucket>; 40];
    let (mut limit, mut number, mut now) = (old, 0, 1_000);
    for (step, (client, cost, wait)) in steps.into_iter().enumerate() {
        now += wait;
        if step == changed_before {
            number = store.adopt(&[new], now)[0];
            limit = new;
            for bucket in kept.iter_mut().flatten() {
                *bucket = new.converted(bucket.refilled(&old, Now::unix(now)), &old);
            }
        }
        let place = &mut kept[usize::try_from(client).unwrap()];
        let bucket =
            place.unwrap_or(Bucket::full(&limit, Now::unix(now))).refilled(&limit, Now::unix(now));
        let charge = charge(client, number, limit, cost.min(limit.capacity()) * limit.parts());
        let answer = store.take(&[charge], now, Share::WHOLE);
        let outcome = answer.outcomes[0];
        let taken = if answer.allowed() { limit.units(charge.cost) } else { 0 };
        prop_assert!(outcome.level + taken <= bucket.level, "{outcome:?} of {bucket:?}");
        // A denied request changes nothing.
        if taken > 0 {
            *place = Some(bucket.less(taken));
        }
    }
    Ok(())
}

#[test]
fn two_thousand_reloads_keep_only_the_limits_that_buckets_need() {
    let limit = |number: u64| Limit::token_bucket(10, SECOND + number, 1_000 + number).unwrap();
    let store = MemoryStore::new(10_000, &[limit(0)]);
    let (mut numbers, mut now) = (vec![0], 0);
    let mut kept: Vec<Bucket> = vec![Bucket::full(&limit(0), Now::unix(0)); 50];
    for number in 0..2_000 {
        let is = limit(number);
        // Half of the clients send a request under every rule, and have the expected level.
        for (client, bucket) in kept.iter_mut().enumerate().take(25) {
            let charge = charge(client as u128, numbers[0], is, 5);
            let answer = store.take(&[charge], now, Share::WHOLE);
            let expected = bucket.refilled(&is, Now::unix(now));
            let expected =
                if expected.holds(&is, 5) { expected.less(is.units(5)) } else { expected };
            assert_eq!(answer.outcomes[0].level, expected.level, "rule {number}");
            *bucket = expected;
        }
        // The others send one request, and their buckets keep the limit of that time.
        if let 0..25 = number {
            let client = 25 + u128::from(number);
            assert!(store.take(&[charge(client, numbers[0], is, 5)], now, Share::WHOLE).allowed());
        }
        now += SECOND / 2;
        let next = limit(number + 1);
        numbers = store.adopt(&[next], now);
        for bucket in &mut kept {
            *bucket = next.converted(bucket.refilled(&is, Now::unix(now)), &is);
        }
    }
    // Limits retired in the last seconds, limits of buckets, and as many again.
    let known = store.limits.load().len();
    assert!(known < 200, "{known} limits are known");
}

#[test]
fn number_is_reused_only_after_its_old_limit_is_unused() {
    let limit = |number: u64| Limit::token_bucket(1, SECOND, 1 + number).unwrap();
    let store = MemoryStore::new(100, &[limit(0)]);
    // A bucket of the first limit remains. The clock stops, then continues.
    assert!(store.take(&[charge(1, 0, limit(0), 1)], 0, Share::WHOLE).allowed());
    for number in 1..200 {
        assert_eq!(store.adopt(&[limit(number)], 0), [u32::try_from(number).unwrap()]);
    }
    let later = 11 * SECOND;
    // The limits in force and the one of the bucket are kept.
    let two = store.adopt(&[limit(199), limit(500)], later);
    assert_eq!(two[0], 199);
    let mut known = 0;
    for (number, now) in (600..900).zip(later..).chain((900..1_200).zip(2 * later..)) {
        let numbers = store.adopt(&[limit(199), limit(500), limit(number)], now);
        assert!(!numbers.contains(&0) && numbers[..2] == two[..], "{numbers:?}");
        known = if number == 899 { store.limits.load().len() } else { known };
    }
    // At most twice as many as were in use, until free numbers are searched for.
    assert!(store.limits.load().len() <= 2 * known, "{} of {known}", store.limits.load().len());
    // The first limit gets its number again, and its bucket has not changed.
    assert_eq!(store.adopt(&[limit(0)], 3 * later), [0]);
}
