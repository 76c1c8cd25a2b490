use std::collections::HashMap;

use proptest::prelude::*;

use super::least_request::{Load, better_of_two, inverse, least};
use super::maglev::{Maglev, has_room};
use super::plan::{Availability, Candidate, FULL, Level, other, plan};
use super::round_robin::SmoothWeights;
use crate::base::hash::{hash, mix};

const UP: Availability = Availability::Up { since: 0 };
const DOWN: Availability = Availability::Down { until: u64::MAX };

fn candidate(weight: u16, priority: u8, availability: Availability) -> Candidate {
    Candidate { weight, priority, availability }
}

/// How often each index is picked.
fn count(picks: impl Iterator<Item = usize>) -> HashMap<usize, u32> {
    let mut counts = HashMap::new();
    for pick in picks {
        *counts.entry(pick).or_default() += 1;
    }
    counts
}

/// Whether each of `counts` is within 2 % of all picks of its share by weight.
fn follows_weights(counts: &HashMap<usize, u32>, weights: &[u32]) -> bool {
    let all: u32 = counts.values().sum();
    let sum: u32 = weights.iter().sum();
    weights.iter().enumerate().all(|(index, weight)| {
        let count = counts.get(&index).copied().unwrap_or_default();
        let share = f64::from(*weight) / f64::from(sum);
        (f64::from(count) / f64::from(all) - share).abs() <= 0.02
    })
}

fn maglev(weights: &[u16]) -> Maglev {
    let names: Vec<String> = (0..weights.len()).map(|n| format!("10.0.0.{n}:80")).collect();
    let each = names.iter().zip(weights).enumerate();
    Maglev::new(each.map(|(n, (name, weight))| (n.try_into().unwrap(), name.as_bytes(), *weight)))
}

#[test]
fn next_priority_takes_over_when_none_is_healthy() {
    let mut candidates = [candidate(1, 0, UP), candidate(2, 1, UP), candidate(1, 1, UP)];
    let chosen = |candidates: &[Candidate]| {
        let plan = plan(candidates, 0, 5);
        (plan.level, plan.chosen.iter().map(|(index, _)| *index).collect::<Vec<_>>())
    };
    assert_eq!(chosen(&candidates), (Level::Healthy(0), vec![0]));
    candidates[0].availability = DOWN;
    assert_eq!(chosen(&candidates), (Level::Healthy(1), vec![1, 2]));
    candidates[1].availability = DOWN;
    candidates[2].availability = DOWN;
    assert_eq!(chosen(&candidates), (Level::All, vec![0, 1, 2]));
}

#[test]
fn weight_rises_after_an_endpoint_has_become_healthy() {
    let candidates = [candidate(10, 0, Availability::Up { since: 1_000_000 }), candidate(1, 0, UP)];
    let at = |now| {
        let plan = plan(&candidates, 30_000_000, now);
        (plan.chosen[0].1, plan.chosen[1].1, plan.until - now)
    };
    let step = 30_000_000 / 64;
    assert_eq!(at(1_000_000), (1_000, 1_000, step));
    assert_eq!(at(16_000_000), (5_000, 1_000, step));
    assert_eq!(at(31_000_000), (10_000, 1_000, u64::MAX - 31_000_000));
}

#[test]
fn plan_is_made_again_when_an_ejection_ends() {
    let candidates = [candidate(1, 0, Availability::Down { until: 70 }), candidate(1, 0, UP)];
    let plan = plan(&candidates, 0, 50);
    assert_eq!((plan.chosen, plan.until), (vec![(1, 1_000)], 70));
}

#[test]
fn requests_in_flight_follow_the_weights() {
    let weights = [1, 2, 5];
    let mut in_flight = [0_u32; 3];
    let mut random = 1;
    for _ in 0..800 {
        random = mix(random);
        let load = |(at, weight): (usize, &u32)| Load {
            in_flight: in_flight[at],
            inverse: inverse(*weight),
        };
        in_flight[least(weights.iter().enumerate().map(load), random).unwrap()] += 1;
    }
    assert_eq!(in_flight, [100, 200, 500]);
}

#[test]
fn idle_endpoints_get_the_same_number_of_requests() {
    let idle = Load { in_flight: 0, inverse: inverse(1) };
    let one = count((0..20_000).filter_map(|n| least([idle; 7].into_iter(), mix(n))));
    let two =
        count((0..20_000).filter_map(|n| better_of_two(&[1, 2, 3, 4, 5, 6, 7], |_| idle, mix(n))));
    assert!(follows_weights(&one, &[1; 7]), "{one:?}");
    assert!(follows_weights(&two, &[1; 7]), "{two:?}");
}

#[test]
fn better_of_two_avoids_the_busy_endpoint() {
    let load = |at| Load { in_flight: if at == 1 { 9 } else { 0 }, inverse: inverse(1) };
    let counts = count((0..1_000).filter_map(|n| better_of_two(&[1, 2, 3], load, mix(n))));
    assert_eq!(counts.get(&1), None);
    assert_eq!(better_of_two(&[1], load, 5), Some(0));
    assert_eq!(better_of_two(&[], load, 5), None);
}

/// How many of 50 requests in flight each endpoint has on average, if the oldest one ends when
/// another begins.
fn average_in_flight(weights: &[u32]) -> Vec<f64> {
    const REQUESTS: u64 = 20_000;
    let add = |sum: &mut u64, weight: &u32| {
        *sum += u64::from(*weight);
        Some(*sum)
    };
    let ends: Vec<u64> = weights.iter().scan(0, add).collect();
    let (mut in_flight, mut sums) = (vec![0_u32; weights.len()], vec![0_u64; weights.len()]);
    let mut oldest = std::collections::VecDeque::new();
    for number in 0..REQUESTS {
        let load = |at: usize| Load { in_flight: in_flight[at], inverse: inverse(weights[at]) };
        let at = better_of_two(&ends, load, mix(number)).unwrap();
        in_flight[at] += 1;
        oldest.push_back(at);
        if oldest.len() > 50 {
            in_flight[oldest.pop_front().unwrap()] -= 1;
        }
        sums.iter_mut().zip(&in_flight).for_each(|(sum, one)| *sum += u64::from(*one));
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    sums.into_iter().map(|sum| sum as f64 / REQUESTS as f64).collect()
}

#[test]
fn requests_in_flight_follow_the_weights_with_random_two() {
    for weights in [&[9, 1, 1, 1, 1, 1, 1, 1, 1, 1][..], &[4, 2, 1, 1], &[1; 8], &[1_000, 1]] {
        let sum: u32 = weights.iter().sum();
        for (weight, found) in weights.iter().zip(average_in_flight(weights)) {
            let expected = 50.0 * f64::from(*weight) / f64::from(sum);
            assert!((found - expected).abs() <= 2.5, "{weights:?}: {weight} has {found}");
        }
    }
}

#[test]
fn only_the_clients_of_an_endpoint_that_leaves_move() {
    let (before, after) = (maglev(&[1; 10]), maglev(&[1; 9]));
    let picks = |table: &Maglev, accepts: &dyn Fn(usize) -> bool| {
        (0..20_000_u64).map(|n| table.pick(mix(n), accepts).unwrap()).collect::<Vec<_>>()
    };
    let all = picks(&before, &|_| true);
    // It is not healthy: nothing else moves.
    let without = picks(&before, &|index| index != 9);
    assert!(all.iter().zip(&without).all(|(a, b)| a == b || *a == 9));
    assert!(follows_weights(&count(without.into_iter()), &[1, 1, 1, 1, 1, 1, 1, 1, 1, 0]));
    // It has been removed: little else moves.
    let moved = all.iter().zip(picks(&after, &|_| true)).filter(|(a, b)| *a != b).count();
    assert!(moved < 20_000 / 10 + 20_000 / 33, "{moved}");
}

#[test]
fn endpoint_has_at_most_a_quarter_more_than_its_share() {
    let table = maglev(&[1; 4]);
    let mut in_flight = [0_u32; 4];
    // All requests of one client.
    for number in 1..=100 {
        let accepts = |index: usize| has_room(in_flight[index], 1, number, 4);
        in_flight[table.pick(hash(b"one"), accepts).unwrap()] += 1;
    }
    assert!(in_flight.iter().all(|number| *number <= 32), "{in_flight:?}");
    assert_eq!(in_flight.iter().sum::<u32>(), 100);
    assert!(in_flight.contains(&32), "{in_flight:?}");
}

#[test]
fn another_endpoint_is_healthy_if_possible() {
    let mut candidates = [candidate(1, 0, UP), candidate(1, 0, DOWN), candidate(1, 1, UP)];
    let is_first = |index| index == 0;
    assert_eq!(other(&candidates, is_first, 7), Some(2));
    candidates[2].availability = DOWN;
    assert_eq!(
        (other(&candidates, is_first, 0), other(&candidates, is_first, 1)),
        (Some(1), Some(2))
    );
    assert_eq!(other(&candidates[..1], is_first, 0), None);
}

fn availability() -> impl Strategy<Value = Availability> {
    prop_oneof![Just(UP), Just(Availability::Up { since: 9 }), Just(DOWN),]
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn endpoint_that_is_down_is_chosen_only_if_all_are(
        parts in prop::collection::vec((1..=1000_u16, 0..3_u8, availability()), 1..20),
        now in 0..100_u64,
    ) {
        let candidates: Vec<_> = parts.iter().map(|(w, p, a)| candidate(*w, *p, *a)).collect();
        let plan = plan(&candidates, 50, now);
        prop_assert!(!plan.chosen.is_empty());
        for (index, _) in plan.chosen {
            let chosen = candidates[index].availability;
            if chosen == DOWN {
                let is_up = |c: &Candidate| matches!(c.availability, Availability::Up { .. });
                prop_assert!(!candidates.iter().any(is_up));
            }
        }
    }

    #[test]
    fn round_robin_follows_the_weights(weights in prop::collection::vec(1..=1000_u32, 1..20)) {
        let mut round = SmoothWeights::default();
        let indexes: Vec<usize> = (0..weights.len()).collect();
        round.keep(weights.len(), &indexes);
        let parts = || weights.iter().map(|weight| weight * 1_000).enumerate();
        let counts = count((0..5_000).filter_map(|_| round.next(parts(), None)));
        prop_assert!(follows_weights(&counts, &weights), "{counts:?}");
    }

    #[test]
    fn shares_add_up_to_all_weights(weight in 1..=1000_u16) {
        let plan = plan(&[candidate(weight, 0, UP)], 0, 0);
        prop_assert_eq!(u64::from(plan.chosen[0].1), u64::from(weight) * FULL);
    }
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(16))]

    #[test]
    fn consistent_hashing_follows_the_weights(weights in prop::collection::vec(1..=1000_u16, 1..20)) {
        let table = maglev(&weights);
        let counts = count((0..10_000_u64).filter_map(|n| table.pick(mix(n), |_| true)));
        let weights: Vec<u32> = weights.into_iter().map(u32::from).collect();
        prop_assert!(follows_weights(&counts, &weights), "{counts:?}");
    }
}
