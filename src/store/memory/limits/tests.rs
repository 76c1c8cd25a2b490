//! Rules that change: what clients keep, and what the store does not.

use proptest::prelude::*;

use crate::limit::Limit;
use crate::limit::MICROS_PER_SECOND as SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::limit::share::Share;
use crate::store::memory::MemoryStore;

fn charge(client: u128, limit_index: u32, limit: Limit, cost: u64) -> Charge {
    let bucket = BucketId((client + 1).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645));
    Charge { bucket, rule: 0, limit_index, limit, cost, mode: Mode::Enforce }
}

/// The client's level, without taking anything.
fn level(store: &MemoryStore, charge: Charge, now: u64) -> i64 {
    let more_than_any = Charge { cost: charge.limit.capacity() + 1, ..charge };
    store.peek(&[more_than_any], now, Share::WHOLE).outcomes[0].level
}

fn limits() -> impl Strategy<Value = Limit> {
    let period = prop_oneof![1..50_u64, Just(SECOND), Just(86_400 * SECOND)];
    (1..1_000_u64, period, 1..1_000_u64)
        .prop_map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap())
}

proptest! {
    /// Whatever the rule was and is: up to the change the bucket fills by the old one, then the
    /// client has the same fraction of the new, which fills on by that.
    #[test]
    fn row_46_any_rule_that_changes_leaves_each_client_its_fraction(
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
        let kept = new.converted(left.refilled(&old, changed), &old);
        prop_assert_eq!(level(&store, charge(7, numbers[0], new, 1), changed), kept.level);
        let now = changed + since;
        let filled = kept.refilled(&new, now).level;
        prop_assert_eq!(level(&store, charge(7, numbers[0], new, 1), now), filled);
        // Whoever was full is full.
        prop_assert_eq!(level(&store, charge(8, numbers[0], new, 1), changed), new.full());
    }

    /// Where there is no room for all, and rules change before, between or after: nobody gets more
    /// than if all had been kept.
    #[test]
    fn a_change_of_rules_is_no_second_burst_for_those_that_were_dropped(
        old in limits(),
        new in limits(),
        seed in any::<u64>(),
        steps in prop::collection::vec((0..40_u128, 1..400_u64, 0..20_000_u64), 1..120),
        change in 0..120_usize,
    ) {
        let store = MemoryStore::with_seed(8, &[old], seed);
        let mut kept = [None::<Bucket>; 40];
        let (mut limit, mut number, mut now) = (old, 0, 1_000);
        for (step, (client, cost, wait)) in steps.into_iter().enumerate() {
            now += wait;
            if step == change {
                number = store.adopt(&[new], now)[0];
                limit = new;
                for bucket in kept.iter_mut().flatten() {
                    *bucket = new.converted(bucket.refilled(&old, now), &old);
                }
            }
            let place = &mut kept[usize::try_from(client).unwrap()];
            let bucket = place.unwrap_or(Bucket::full(&limit, now)).refilled(&limit, now);
            let charge = charge(client, number, limit, cost.min(limit.capacity()));
            let answer = store.take(&[charge], now, Share::WHOLE);
            let outcome = answer.outcomes[0];
            let taken = if answer.allowed() { limit.units(charge.cost) } else { 0 };
            prop_assert!(outcome.level + taken <= bucket.level, "{outcome:?} of {bucket:?}");
            *place = Some(bucket.less(taken));
        }
    }
}

#[test]
fn ten_thousand_files_of_ever_other_rates_leave_no_more_than_buckets_need() {
    let limit = |number: u64| Limit::token_bucket(10, SECOND + number, 1_000 + number).unwrap();
    let store = MemoryStore::new(10_000, &[limit(0)]);
    let (mut numbers, mut now) = (vec![0], 0);
    let mut kept: Vec<Bucket> = vec![Bucket::full(&limit(0), 0); 50];
    for number in 0..10_000 {
        let is = limit(number);
        // Half of the clients come by every rule, and have what they should have.
        for (client, bucket) in kept.iter_mut().enumerate().take(25) {
            let charge = charge(client as u128, numbers[0], is, 5);
            let answer = store.take(&[charge], now, Share::WHOLE);
            let expected = bucket.refilled(&is, now);
            let expected =
                if expected.holds(&is, 5) { expected.less(is.units(5)) } else { expected };
            assert_eq!(answer.outcomes[0].level, expected.level, "rule {number}");
            *bucket = expected;
        }
        // The others come once, and their buckets stay under the rule of then.
        if let 0..25 = number {
            let client = 25 + u128::from(number);
            assert!(store.take(&[charge(client, numbers[0], is, 5)], now, Share::WHOLE).allowed());
        }
        now += SECOND / 2;
        let next = limit(number + 1);
        numbers = store.adopt(&[next], now);
        for bucket in &mut kept {
            *bucket = next.converted(bucket.refilled(&is, now), &is);
        }
    }
    // What was retired within the last seconds, what buckets name, and as many again.
    let known = store.limits.load().len();
    assert!(known < 200, "{known} limits are known");
}

#[test]
fn a_number_is_given_anew_only_when_nobody_can_mean_the_old_limit() {
    let limit = |number: u64| Limit::token_bucket(1, SECOND, 1 + number).unwrap();
    let store = MemoryStore::new(100, &[limit(0)]);
    // A bucket of the first rule stays; the clock stands still, then goes on.
    assert!(store.take(&[charge(1, 0, limit(0), 1)], 0, Share::WHOLE).allowed());
    for number in 1..200 {
        assert_eq!(store.adopt(&[limit(number)], 0), [u32::try_from(number).unwrap()]);
    }
    let later = 11 * SECOND;
    // Of what is known, the rules in force and the one that a bucket names stay.
    let two = store.adopt(&[limit(199), limit(500)], later);
    assert_eq!(two[0], 199);
    let mut known = 0;
    for (number, now) in (600..900).zip(later..).chain((900..1_200).zip(2 * later..)) {
        let numbers = store.adopt(&[limit(199), limit(500), limit(number)], now);
        assert!(!numbers.contains(&0) && numbers[..2] == two[..], "{numbers:?}");
        known = if number == 899 { store.limits.load().len() } else { known };
    }
    // Twice as many as had been in use, before the numbers of before were looked for.
    assert!(store.limits.load().len() <= 2 * known, "{} of {known}", store.limits.load().len());
    // The first rule again has its own number again, and its bucket was never touched.
    assert_eq!(store.adopt(&[limit(0)], 3 * later), [0]);
}
