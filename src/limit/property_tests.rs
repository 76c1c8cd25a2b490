//! Property tests of the token bucket, for any limit and any schedule of requests.

use proptest::prelude::*;

use super::bucket::Bucket;
use super::charge::{BucketId, Charge, Mode, take};
use super::cost::Cost;
use super::reading::Times;
use super::share::Share;
use super::token_bucket::{TokenBucket, TokenBucketError};
use super::verdict::{Standing, Verdict};
use super::{Limit, MAX_UNITS};
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::now::Now;

/// A limit and the numbers it was created from, not reduced.
#[derive(Clone, Copy, Debug)]
struct Written {
    tokens: u64,
    period: u64,
    limit: Limit,
}

/// Numbers of 1 to `bits` bits, each length equally often.
fn magnitude(bits: u32) -> impl Strategy<Value = u64> {
    (1..=bits, any::<u64>()).prop_map(|(bits, number)| (number >> (64 - bits)).max(1))
}

/// Any valid limit, from a token per age to several per microsecond, with any burst.
fn limits() -> impl Strategy<Value = Written> {
    (magnitude(64), magnitude(64), magnitude(54)).prop_filter_map(
        "the rate cannot be counted",
        |(tokens, period, burst)| {
            let limit = match Limit::token_bucket(tokens, period, burst) {
                Err(TokenBucketError::BurstTooLarge { max_burst }) => {
                    Limit::token_bucket(tokens, period, burst % (max_burst + 1))
                }
                limit => limit,
            };
            limit.ok().map(|limit| Written { tokens, period, limit })
        },
    )
}

/// Limits that fill within some tens of microseconds, so that short schedules cover every case.
fn small_limits() -> impl Strategy<Value = Limit> {
    (1..10_u64, 1..30_u64, 1..10_u64)
        .prop_map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap())
}

/// A limit and a bucket of it at any level, in debt or not, at any time that leaves room to wait.
fn buckets() -> impl Strategy<Value = (Limit, Bucket)> {
    (limits(), any::<i64>(), 0..u64::MAX / 2).prop_map(|(Written { limit, .. }, level, at)| {
        (limit, Bucket { level: level % (limit.full() + 1), at })
    })
}

/// Standing with the whole share of the bucket.
fn standing(limit: &Limit, level: i64, cost: u64) -> Standing {
    limit.standing(level, cost, Share::WHOLE, Times::NONE)
}

/// Requests: microseconds since the previous one, and a cost.
fn requests(steps: std::ops::Range<i64>) -> impl Strategy<Value = Vec<(i64, u64)>> {
    let step = prop_oneof![Just(0), steps.start.max(-2)..3, steps];
    prop::collection::vec((step, 1..5_u64), 1..80)
}

/// Plays requests under a wrong clock. Each step is the elapsed microseconds, the clock's offset,
/// and a number of requests. Returns the units granted, the total time, and the lengths of the
/// clock's forward steps.
fn granted_under_a_stepping_clock(limit: Limit, steps: &[(u64, i64, u64)]) -> (i64, u64, Vec<u64>) {
    const START: u64 = 10_000_000;
    let mut bucket = Bucket::full(&limit, Now::unix(START));
    let (mut passed, mut elapsed, mut was_off, mut forward) = (0, 0, 0, Vec::new());
    for (us, off, requests) in steps {
        elapsed += us;
        forward.push(u64::try_from(off - was_off).unwrap_or(0));
        was_off = *off;
        let now = (START + elapsed).saturating_add_signed(*off);
        for _ in 0..*requests {
            passed += if take_one(&mut bucket, limit, 1, now) { limit.units(1) } else { 0 };
        }
    }
    (passed, elapsed, forward)
}

/// Times of the requests, and costs within the burst.
fn played(limit: Limit, requests: Vec<(i64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let mut now = 10_000_u64;
    requests.into_iter().map(move |(step, cost)| {
        now = now.saturating_add_signed(step);
        (now, cost.min(limit.capacity()))
    })
}

fn charge(limit: Limit, cost: u64, mode: Mode) -> Charge {
    Charge { bucket: BucketId(0), rule: 0, limit_index: 0, limit, cost, mode }
}

/// Takes from one bucket as a store does. Returns whether the request was allowed.
fn take_one(bucket: &mut Bucket, limit: Limit, cost: u64, now: u64) -> bool {
    let mut refilled = [bucket.refilled(&limit, Now::unix(now))];
    let allowed =
        take(&[charge(limit, cost, Mode::Enforce)], &mut refilled, Share::WHOLE).allowed();
    if allowed {
        *bucket = refilled[0];
    }
    allowed
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn request_is_allowed_exactly_at_retry_after((limit, bucket) in buckets(), cost: u64) {
        let cost = 1 + cost % limit.capacity();
        let wait = standing(&limit, bucket.level, cost).retry_after_us;
        let passes_after = |us| take_one(&mut bucket.clone(), limit, cost, bucket.at + us);
        prop_assert!(passes_after(wait));
        prop_assert!(wait == 0 || !passes_after(wait - 1), "a microsecond early");
    }

    #[test]
    fn bucket_is_full_exactly_at_reset((limit, bucket) in buckets()) {
        let wait = standing(&limit, bucket.level, 1).reset_us;
        let level_after = |us| bucket.refilled(&limit, Now::unix(bucket.at + us)).level;
        prop_assert_eq!(bucket.full_at(&limit, Now::unix(0)), bucket.at + wait);
        prop_assert_eq!(level_after(wait), limit.full());
        prop_assert!(wait == 0 || level_after(wait - 1) < limit.full(), "a microsecond early");
    }

    #[test]
    fn remaining_is_the_largest_cost_that_the_bucket_holds((limit, bucket) in buckets()) {
        let remaining = standing(&limit, bucket.level, 1).remaining;
        prop_assert!(remaining <= limit.capacity());
        prop_assert!(remaining == 0 || bucket.holds(&limit, remaining));
        prop_assert!(!bucket.holds(&limit, remaining + 1));
    }

    #[test]
    fn stored_and_reported_numbers_are_exact_in_a_double(
        (limit, bucket) in buckets(),
        now: u64,
        cost: u64,
    ) {
        let cost = 1 + cost % limit.capacity();
        let refilled = bucket.refilled(&limit, Now::unix(now));
        let standing = standing(&limit, refilled.level.max(0), cost);
        let stored = [limit.full(), limit.units_in(1), limit.units(1), refilled.level];
        let reported = [standing.limit, standing.remaining, standing.retry_after_us, standing.reset_us];
        prop_assert!(stored.iter().all(|number| *number <= MAX_UNITS));
        prop_assert!(reported.iter().all(|number| *number <= MAX_UNITS.unsigned_abs()));
        prop_assert!(refilled.level <= limit.full());
    }

    /// The reference does not reduce the rate and uses integers that cannot overflow.
    #[test]
    fn bucket_agrees_with_unbounded_arithmetic(
        written in limits(),
        requests in prop::collection::vec((magnitude(63), magnitude(54)), 1..50),
    ) {
        let Written { tokens, period, limit } = written;
        let wide = |number: u64| u128::from(number);
        let full = wide(limit.capacity()) * wide(period);
        let mut bucket = Bucket::full(&limit, Now::unix(0));
        let (mut level, mut at) = (full, 0);
        for (step, cost) in requests {
            let now = u64::saturating_add(at, step);
            let cost = 1 + cost % limit.capacity();
            // On overflow the bucket is full.
            let added = wide(now - at).checked_mul(wide(tokens));
            let refilled = added.map_or(full, |added| full.min(level.saturating_add(added)));
            let enough = refilled >= wide(cost) * wide(period);
            let before = bucket.refilled(&limit, Now::unix(now));
            let tokens = (before.level / limit.units(1)).unsigned_abs();
            prop_assert_eq!(wide(tokens), refilled / wide(period));
            prop_assert_eq!(take_one(&mut bucket, limit, cost, now), enough);
            if enough {
                (level, at) = (refilled - wide(cost) * wide(period), now);
            }
        }
    }

    #[test]
    fn frequent_refills_lose_no_fraction(
        (limit, bucket) in buckets(),
        elapsed in 0..300_u64,
    ) {
        let at_once = bucket.refilled(&limit, Now::unix(bucket.at + elapsed));
        let in_steps = (1..=elapsed)
            .fold(bucket, |refilled, us| refilled.refilled(&limit, Now::unix(bucket.at + us)));
        prop_assert_eq!(in_steps, at_once);
    }

    #[test]
    fn granted_tokens_are_within_burst_and_rate_over_any_span(
        limit in small_limits(),
        requests in requests(-40..40),
    ) {
        let mut bucket = Bucket::full(&limit, Now::unix(0));
        let mut passed = Vec::new();
        for (now, cost) in played(limit, requests) {
            if take_one(&mut bucket, limit, cost, now) {
                passed.push((now, limit.units(cost)));
            }
        }
        for start in 0..passed.len() {
            // The clock may go back: the span is from the earliest to the latest time.
            let (mut first, mut last, mut taken) = (u64::MAX, 0, 0);
            for (now, units) in &passed[start..] {
                (first, last) = (first.min(*now), last.max(*now));
                taken += units;
                let most = limit.full() + limit.units_in(last - first);
                prop_assert!(taken <= most, "{taken} of {most} units from {first} to {last}");
            }
        }
    }

    #[test]
    fn forward_clock_step_grants_at_most_its_length_at_the_rate(
        (tokens, burst) in (1..20_u64, 1..200_u64),
        steps in prop::collection::vec((0..400_000_u64, -5_000_000..5_000_000_i64, 0..20_u64), 1..60),
    ) {
        let limit = Limit::token_bucket(tokens, MICROS_PER_SECOND, burst).unwrap();
        let (passed, elapsed, forward) = granted_under_a_stepping_clock(limit, &steps);
        let steps: i64 = forward.iter().map(|us| limit.full().min(limit.units_in(*us))).sum();
        let most = limit.full() + limit.units_in(elapsed) + steps;
        prop_assert!(passed <= most, "{passed} of {most} units");
    }

    #[test]
    fn clock_steps_within_the_slack_grant_no_tokens(
        (tokens, burst) in (1..20_u64, 1..200_u64),
        steps in prop::collection::vec((0..400_000_u64, -1_000_000..=0_i64, 0..20_u64), 1..60),
    ) {
        let limit = Limit::token_bucket(tokens, MICROS_PER_SECOND, burst).unwrap();
        let (passed, elapsed, _) = granted_under_a_stepping_clock(limit, &steps);
        let most = limit.full() + limit.units_in(elapsed);
        prop_assert!(passed <= most, "{passed} of {most} units");
    }

    /// In both directions: a request is allowed if and only if it is within burst and rate.
    #[test]
    fn request_is_denied_exactly_if_it_exceeds_burst_or_rate(
        limit in small_limits(),
        requests in requests(0..40),
    ) {
        let mut bucket = Bucket::full(&limit, Now::unix(0));
        let mut passed: Vec<(u64, i64)> = Vec::new();
        for (now, cost) in played(limit, requests) {
            let mut units = limit.units(cost);
            let mut within = units <= limit.full();
            for (then, taken) in passed.iter().rev() {
                units += taken;
                within &= units <= limit.full() + limit.units_in(now - then);
            }
            prop_assert_eq!(take_one(&mut bucket, limit, cost, now), within, "{} at {}", cost, now);
            if within {
                passed.push((now, limit.units(cost)));
            }
        }
    }

    #[test]
    fn client_within_the_rate_is_never_denied(
        Written { limit, .. } in limits(),
        (cost, start) in (any::<u64>(), 0..u64::MAX / 2),
        idle in prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0..1_000_u64], 1..60),
    ) {
        let cost = 1 + cost % limit.capacity();
        let mut bucket = Bucket::full(&limit, Now::unix(start));
        let mut now = start;
        for idle in idle {
            prop_assert!(take_one(&mut bucket, limit, cost, now));
            now += limit.time_to_add_us(limit.units(cost)) + idle;
        }
    }

    #[test]
    fn tokens_are_taken_from_all_buckets_or_from_none(
        rules in prop::collection::vec((small_limits(), any::<i64>(), 1..10_u64, any::<bool>()), 1..9),
    ) {
        let mut charges = Vec::new();
        let mut buckets = Vec::new();
        for (limit, level, cost, shadow) in rules {
            let mode = if shadow { Mode::Shadow } else { Mode::Enforce };
            charges.push(charge(limit, cost.min(limit.capacity()), mode));
            buckets.push(Bucket { level: level % (limit.full() + 1), at: 0 });
        }
        let before = buckets.clone();
        let answer = take(&charges, &mut buckets, Share::WHOLE);
        let held = |index: usize| before[index].holds(&charges[index].limit, charges[index].cost);
        let enforced = (0..charges.len()).filter(|index| charges[*index].mode == Mode::Enforce);
        prop_assert_eq!(answer.allowed(), enforced.clone().all(held));
        for index in 0..charges.len() {
            let taken = before[index].level - buckets[index].level;
            let cost = charges[index].limit.units(charges[index].cost);
            let is_taken = answer.allowed() && held(index);
            prop_assert_eq!(taken, if is_taken { cost } else { 0 });
            prop_assert_eq!(answer.outcomes[index].level, buckets[index].level);
            prop_assert_eq!(answer.outcomes[index].enough, held(index));
        }
        // The reported rule denies the request, and has the longest retry after.
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

/// A limit by window: limit, window in microseconds, burst.
fn windows() -> impl Strategy<Value = (u64, u64, u64)> {
    (2..40_u64, 1..200_u64)
        .prop_flat_map(|(limit, window_us)| (Just(limit), Just(window_us), 1..limit))
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn limit_by_window_is_never_exceeded_in_any_window(
        (limit, window_us, burst) in windows(),
        requests in prop::collection::vec((0..60_u64, 1..4_u64), 1..400),
    ) {
        let bucket = TokenBucket::by_window(limit, window_us, burst).unwrap();
        let parameters = Limit::TokenBucket(bucket);
        let mut bucket = Bucket { level: parameters.full(), at: 0 };
        let mut allowed: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (wait, cost) in requests {
            now += wait;
            let cost = cost.min(burst);
            if take_one(&mut bucket, parameters, cost, now) {
                allowed.push((now, cost));
                // The window that ends now, with both of its ends.
                let in_window = allowed.iter().rev().take_while(|(at, _)| now - at <= window_us);
                let tokens: u64 = in_window.map(|(_, cost)| cost).sum();
                prop_assert!(tokens <= limit, "{tokens} in the window that ends at {now}");
            }
        }
    }

    #[test]
    fn steady_requests_at_the_rest_of_a_limit_by_window_always_pass(
        (limit, window_us, burst) in windows(),
        drained in any::<bool>(),
    ) {
        let bucket = TokenBucket::by_window(limit, window_us, burst).unwrap();
        let parameters = Limit::TokenBucket(bucket);
        let level = if drained { parameters.units(1) } else { parameters.full() };
        let mut bucket = Bucket { level, at: 0 };
        let interval_us = window_us.div_ceil(limit - burst);
        for request in 0..500_u64 {
            let now = request * interval_us;
            let allowed = take_one(&mut bucket, parameters, 1, now);
            prop_assert!(allowed, "request {request} at {now}");
        }
    }
}

/// Parts of a token as costs with up to three decimals take.
fn parts() -> impl Strategy<Value = u16> {
    prop::sample::select(&[1, 2, 4, 5, 8, 10, 20, 25, 40, 100, 125, 200, 250, 500, 1_000][..])
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn tokens_of_several_parts_have_the_same_rate_burst_and_times(
        Written { limit, .. } in limits(),
        parts in parts(),
        tokens in 1..1_000_u64,
    ) {
        let Ok(divided) = limit.with_parts(parts) else { return Ok(()) };
        prop_assert_eq!(divided.parts(), u64::from(parts));
        prop_assert_eq!(divided.capacity(), limit.capacity());
        prop_assert_eq!(divided.window_us(), limit.window_us());
        prop_assert_eq!(divided.full(), divided.token_units(limit.capacity()));
        prop_assert_eq!(divided.units(u64::from(parts)), divided.token_units(1));
        let wait_us = |limit: &Limit| limit.time_to_add_us(limit.token_units(tokens));
        if tokens <= limit.capacity() {
            prop_assert_eq!(wait_us(&divided), wait_us(&limit));
        }
        prop_assert_eq!(divided.with_parts(1).unwrap(), limit);
        let Limit::TokenBucket(bucket) = divided else { return Ok(()) };
        let (rate, token, burst, parts) = bucket.parameters();
        let again = Limit::token_bucket(rate, token, burst).unwrap().with_parts(parts);
        prop_assert_eq!(again.unwrap(), divided);
    }

    #[test]
    fn costs_in_parts_are_decided_as_the_same_costs_in_tokens(
        limit in small_limits(),
        parts in parts(),
        requests in prop::collection::vec((0..20_u64, 1..4_u64), 1..100),
    ) {
        let divided = limit.with_parts(parts).unwrap();
        let mut buckets = [Bucket::full(&limit, Now::unix(0)), Bucket::full(&divided, Now::unix(0))];
        let mut now = 0;
        for (wait, cost) in requests {
            now += wait;
            let [whole, of_parts] = &mut buckets;
            let cost_in_parts = cost * u64::from(parts);
            let allowed = take_one(whole, limit, cost, now);
            prop_assert_eq!(take_one(of_parts, divided, cost_in_parts, now), allowed);
            let standings = [
                standing(&limit, whole.refilled(&limit, Now::unix(now)).level, cost),
                standing(&divided, of_parts.refilled(&divided, Now::unix(now)).level, cost_in_parts),
            ];
            prop_assert_eq!(standings[0], standings[1]);
        }
    }

    #[test]
    fn no_more_than_burst_and_rate_pass_in_thousandths_of_a_token(
        (tokens, period_us, burst) in (1..10_u64, 1..30_u64, 1..10_u64),
        requests in prop::collection::vec((0..4_u64, 1..3_000_u64), 1..300),
    ) {
        let limit = Limit::token_bucket(tokens, period_us, burst).unwrap().with_parts(1_000).unwrap();
        let mut bucket = Bucket::full(&limit, Now::unix(0));
        let (mut now, mut passed) = (0, 0);
        for (wait, thousandths) in requests {
            now += wait;
            let cost = Cost::from_thousandths(thousandths.min(burst * 1_000)).unwrap();
            if take_one(&mut bucket, limit, cost.in_parts(limit.parts()), now) {
                passed += cost.thousandths();
            }
            let bound = burst * 1_000 * period_us + tokens * 1_000 * now;
            prop_assert!(passed * period_us <= bound, "{passed} thousandths until {now}");
        }
    }
}

#[test]
fn half_a_token_at_a_token_a_second_allows_exactly_two_requests_a_second() {
    let limit = Limit::token_bucket(1, MICROS_PER_SECOND, 1).unwrap().with_parts(2).unwrap();
    let half = Cost::parse("0.5").unwrap().in_parts(limit.parts());
    let mut bucket = Bucket::full(&limit, Now::unix(0));
    let mut allowed = Vec::new();
    for ms in 0..3_000 {
        if take_one(&mut bucket, limit, half, ms * 1_000) {
            allowed.push(ms);
        }
    }
    // The burst is one token, which is two requests.
    assert_eq!(allowed, [0, 1, 500, 1_000, 1_500, 2_000, 2_500]);
    let level = bucket.refilled(&limit, Now::unix(2_999_000)).level;
    let standing = standing(&limit, level, half);
    assert_eq!((standing.limit, standing.remaining, standing.retry_after_us), (1, 0, 1_000));
}
