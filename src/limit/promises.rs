//! What the arithmetic promises to clients, for any quota and any schedule.

use proptest::prelude::*;

use super::MICROS_PER_SECOND;
use super::bucket::Bucket;
use super::charge::{BucketId, Charge, Mode, take};
use super::quota::{MAX_UNITS, Quota, QuotaError};
use super::share::Share;
use super::verdict::{Standing, Verdict};

/// A quota and the numbers it was made of, not reduced.
#[derive(Clone, Copy, Debug)]
struct Written {
    tokens: u64,
    period: u64,
    quota: Quota,
}

/// Of any magnitude up to `bits` bits, small ones as often as huge ones.
fn magnitude(bits: u32) -> impl Strategy<Value = u64> {
    (1..=bits, any::<u64>()).prop_map(|(bits, number)| (number >> (64 - bits)).max(1))
}

/// Any quota that can be: from a token in ages to more than a token a tick, up to the deepest.
fn quotas() -> impl Strategy<Value = Written> {
    (magnitude(64), magnitude(64), magnitude(54)).prop_filter_map(
        "the rate cannot be counted",
        |(tokens, period, burst)| {
            let quota = match Quota::new(tokens, period, burst) {
                Err(QuotaError::BurstTooLarge { max_burst }) => {
                    Quota::new(tokens, period, burst % (max_burst + 1))
                }
                quota => quota,
            };
            quota.ok().map(|quota| Written { tokens, period, quota })
        },
    )
}

/// Quotas that fill in some tens of ticks, so that short schedules meet every case.
fn small_quotas() -> impl Strategy<Value = Quota> {
    (1..10_u64, 1..30_u64, 1..10_u64)
        .prop_map(|(tokens, period, burst)| Quota::new(tokens, period, burst).unwrap())
}

/// A quota and a bucket of it, at any level, in debt or not, at any tick that leaves room to wait.
fn buckets() -> impl Strategy<Value = (Quota, Bucket)> {
    (quotas(), any::<i64>(), 0..u64::MAX / 2).prop_map(|(Written { quota, .. }, level, at)| {
        (quota, Bucket { level: level % (quota.full() + 1), at })
    })
}

/// Where the bucket stands with whoever sees all of it.
fn standing(quota: &Quota, level: i64, cost: u64) -> Standing {
    Standing::of_bucket(quota, level, cost, Share::WHOLE)
}

/// Requests: ticks since the last one, and a cost.
fn requests(steps: std::ops::Range<i64>) -> impl Strategy<Value = Vec<(i64, u64)>> {
    let step = prop_oneof![Just(0), steps.start.max(-2)..3, steps];
    prop::collection::vec((step, 1..5_u64), 1..80)
}

/// Requests by a clock that is off: for each step the ticks that pass, how far the clock is off
/// then, and how many requests come. Returns the units that passed, the ticks in all, and the
/// lengths of the clock's steps forward.
fn passed_by_a_clock_that_steps(quota: Quota, steps: &[(u64, i64, u64)]) -> (i64, u64, Vec<u64>) {
    const START: u64 = 10_000_000;
    let mut bucket = Bucket::full(&quota, START);
    let (mut passed, mut elapsed, mut was_off, mut forward) = (0, 0, 0, Vec::new());
    for (ticks, off, requests) in steps {
        elapsed += ticks;
        forward.push(u64::try_from(off - was_off).unwrap_or(0));
        was_off = *off;
        let now = (START + elapsed).saturating_add_signed(*off);
        for _ in 0..*requests {
            passed += if take_one(&mut bucket, quota, 1, now) { quota.units(1) } else { 0 };
        }
    }
    (passed, elapsed, forward)
}

/// The requests' instants, and costs that the quota can grant.
fn played(quota: Quota, requests: Vec<(i64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let mut now = 10_000_u64;
    requests.into_iter().map(move |(step, cost)| {
        now = now.saturating_add_signed(step);
        (now, cost.min(quota.burst()))
    })
}

fn charge(quota: Quota, cost: u64, mode: Mode) -> Charge {
    Charge { bucket: BucketId(0), rule: 0, quota_index: 0, quota, cost, mode }
}

/// Takes from one bucket as a store would; says whether the request passed.
fn take_one(bucket: &mut Bucket, quota: Quota, cost: u64, now: u64) -> bool {
    let mut refilled = [bucket.refilled(&quota, now)];
    let allowed =
        take(&[charge(quota, cost, Mode::Enforce)], &mut refilled, Share::WHOLE).allowed();
    if allowed {
        *bucket = refilled[0];
    }
    allowed
}

proptest! {
    #[test]
    fn a_client_passes_exactly_at_retry_after((quota, bucket) in buckets(), cost: u64) {
        let cost = 1 + cost % quota.burst();
        let wait = standing(&quota, bucket.level, cost).retry_after_us;
        let passes_after = |ticks| take_one(&mut bucket.clone(), quota, cost, bucket.at + ticks);
        prop_assert!(passes_after(wait));
        prop_assert!(wait == 0 || !passes_after(wait - 1), "a tick early");
    }

    #[test]
    fn a_bucket_is_full_exactly_at_reset((quota, bucket) in buckets()) {
        let wait = standing(&quota, bucket.level, 1).reset_us;
        let level_after = |ticks| bucket.refilled(&quota, bucket.at + ticks).level;
        prop_assert_eq!(bucket.full_at(&quota), bucket.at + wait);
        prop_assert_eq!(level_after(wait), quota.full());
        prop_assert!(wait == 0 || level_after(wait - 1) < quota.full(), "a tick early");
    }

    #[test]
    fn what_remains_can_be_taken_and_no_token_more((quota, bucket) in buckets()) {
        let remaining = standing(&quota, bucket.level, 1).remaining;
        prop_assert!(remaining <= quota.burst());
        prop_assert!(remaining == 0 || bucket.holds(&quota, remaining));
        prop_assert!(!bucket.holds(&quota, remaining + 1));
    }

    #[test]
    fn nothing_that_is_kept_or_told_exceeds_what_a_double_holds(
        (quota, bucket) in buckets(),
        now: u64,
        cost: u64,
    ) {
        let cost = 1 + cost % quota.burst();
        let refilled = bucket.refilled(&quota, now);
        let standing = standing(&quota, refilled.level.max(0), cost);
        let kept = [quota.full(), quota.units_per_us(), quota.units_per_token(), refilled.level];
        let told = [standing.limit, standing.remaining, standing.retry_after_us, standing.reset_us];
        prop_assert!(kept.iter().all(|number| *number <= MAX_UNITS));
        prop_assert!(told.iter().all(|number| *number <= MAX_UNITS.unsigned_abs()));
        prop_assert!(refilled.level <= quota.full());
    }

    /// The reference counts without reducing anything, in integers that cannot overflow.
    #[test]
    fn it_agrees_with_arithmetic_that_knows_no_bounds(
        written in quotas(),
        requests in prop::collection::vec((magnitude(63), magnitude(54)), 1..50),
    ) {
        let Written { tokens, period, quota } = written;
        let wide = |number: u64| u128::from(number);
        let full = wide(quota.burst()) * wide(period);
        let mut bucket = Bucket::full(&quota, 0);
        let (mut level, mut at) = (full, 0);
        for (step, cost) in requests {
            let now = u64::saturating_add(at, step);
            let cost = 1 + cost % quota.burst();
            // A full bucket stays full: no need to go beyond it, however long the wait.
            let added = wide(now - at).checked_mul(wide(tokens));
            let refilled = added.map_or(full, |added| full.min(level.saturating_add(added)));
            let enough = refilled >= wide(cost) * wide(period);
            let before = bucket.refilled(&quota, now);
            let tokens = (before.level / quota.units_per_token()).unsigned_abs();
            prop_assert_eq!(wide(tokens), refilled / wide(period));
            prop_assert_eq!(take_one(&mut bucket, quota, cost, now), enough);
            if enough {
                (level, at) = (refilled - wide(cost) * wide(period), now);
            }
        }
    }

    #[test]
    fn no_fraction_is_lost_to_looking_often(
        (quota, bucket) in buckets(),
        ticks in 0..300_u64,
    ) {
        let at_once = bucket.refilled(&quota, bucket.at + ticks);
        let tick_by_tick = (1..=ticks)
            .fold(bucket, |looked_at, tick| looked_at.refilled(&quota, bucket.at + tick));
        prop_assert_eq!(tick_by_tick, at_once);
    }

    #[test]
    fn nobody_passes_more_than_burst_and_rate_allow_over_any_span(
        quota in small_quotas(),
        requests in requests(-40..40),
    ) {
        let mut bucket = Bucket::full(&quota, 0);
        let mut passed = Vec::new();
        for (now, cost) in played(quota, requests) {
            if take_one(&mut bucket, quota, cost, now) {
                passed.push((now, quota.units(cost)));
            }
        }
        for start in 0..passed.len() {
            // The clock may go back: the span is from the earliest to the latest instant.
            let (mut first, mut last, mut taken) = (u64::MAX, 0, 0);
            for (now, units) in &passed[start..] {
                (first, last) = (first.min(*now), last.max(*now));
                taken += units;
                let most = quota.full() + quota.units_in(last - first);
                prop_assert!(taken <= most, "{taken} of {most} units from {first} to {last}");
            }
        }
    }

    #[test]
    fn a_clock_step_forward_grants_at_most_its_length_at_the_rate(
        (tokens, burst) in (1..20_u64, 1..200_u64),
        steps in prop::collection::vec((0..400_000_u64, -5_000_000..5_000_000_i64, 0..20_u64), 1..60),
    ) {
        let quota = Quota::new(tokens, MICROS_PER_SECOND, burst).unwrap();
        let (passed, elapsed, forward) = passed_by_a_clock_that_steps(quota, &steps);
        let steps: i64 = forward.iter().map(|ticks| quota.full().min(quota.units_in(*ticks))).sum();
        let most = quota.full() + quota.units_in(elapsed) + steps;
        prop_assert!(passed <= most, "{passed} of {most} units");
    }

    #[test]
    fn clock_steps_within_the_slack_grant_nothing(
        (tokens, burst) in (1..20_u64, 1..200_u64),
        steps in prop::collection::vec((0..400_000_u64, -1_000_000..=0_i64, 0..20_u64), 1..60),
    ) {
        let quota = Quota::new(tokens, MICROS_PER_SECOND, burst).unwrap();
        let (passed, elapsed, _) = passed_by_a_clock_that_steps(quota, &steps);
        let most = quota.full() + quota.units_in(elapsed);
        prop_assert!(passed <= most, "{passed} of {most} units");
    }

    /// Both ways: whoever keeps to burst and rate always passes, whoever does not never does.
    #[test]
    fn a_request_is_refused_only_where_it_would_exceed_burst_and_rate(
        quota in small_quotas(),
        requests in requests(0..40),
    ) {
        let mut bucket = Bucket::full(&quota, 0);
        let mut passed: Vec<(u64, i64)> = Vec::new();
        for (now, cost) in played(quota, requests) {
            let mut units = quota.units(cost);
            let mut within = units <= quota.full();
            for (then, taken) in passed.iter().rev() {
                units += taken;
                within &= units <= quota.full() + quota.units_in(now - then);
            }
            prop_assert_eq!(take_one(&mut bucket, quota, cost, now), within, "{} at {}", cost, now);
            if within {
                passed.push((now, quota.units(cost)));
            }
        }
    }

    #[test]
    fn a_client_that_keeps_to_the_rate_is_never_refused(
        Written { quota, .. } in quotas(),
        (cost, start) in (any::<u64>(), 0..u64::MAX / 2),
        idle in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0..1_000_u64], 1..60),
    ) {
        let cost = 1 + cost % quota.burst();
        let mut bucket = Bucket::full(&quota, start);
        let mut now = start;
        for idle in idle {
            prop_assert!(take_one(&mut bucket, quota, cost, now));
            now += quota.time_to_add_us(quota.units(cost)) + idle;
        }
    }

    #[test]
    fn several_buckets_pay_all_or_none(
        rules in prop::collection::vec((small_quotas(), any::<i64>(), 1..10_u64, any::<bool>()), 1..9),
    ) {
        let mut charges = Vec::new();
        let mut buckets = Vec::new();
        for (quota, level, cost, shadow) in rules {
            let mode = if shadow { Mode::Shadow } else { Mode::Enforce };
            charges.push(charge(quota, cost.min(quota.burst()), mode));
            buckets.push(Bucket { level: level % (quota.full() + 1), at: 0 });
        }
        let before = buckets.clone();
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        let held = |index: usize| before[index].holds(&charges[index].quota, charges[index].cost);
        let enforced = (0..charges.len()).filter(|index| charges[*index].mode == Mode::Enforce);
        prop_assert_eq!(answer.allowed(), enforced.clone().all(held));
        for index in 0..charges.len() {
            let taken = before[index].level - buckets[index].level;
            let owed = charges[index].quota.units(charges[index].cost);
            let pays = answer.allowed() && held(index);
            prop_assert_eq!(taken, if pays { owed } else { 0 });
            prop_assert_eq!(answer.outcomes[index].level, buckets[index].level);
            prop_assert_eq!(answer.outcomes[index].enough, held(index));
        }
        // The rule that the client is told of is one that refuses, and the last one to.
        if let Verdict::Refused { binding } = Verdict::of(&charges, &answer) {
            let wait = |index: usize| {
                Standing::of(&charges[index], &answer.outcomes[index]).retry_after_us
            };
            prop_assert!(!answer.allowed() && !held(binding));
            prop_assert!(enforced.clone().all(|index| wait(index) <= wait(binding)));
        } else {
            prop_assert!(answer.allowed());
        }
    }
}
