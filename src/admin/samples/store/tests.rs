//! Resolutions agree with each other, also after pauses and when the clock is set.

use proptest::prelude::*;

use super::super::sample::Rows;
use super::super::sample::tests::sample;
use super::*;
use crate::observe::metrics::{
    Durations, Increases, Name, OutcomeCounts, RouteCounts, RuleCounts, Totals, UpstreamCounts,
};

/// Unix time of the first sample, in milliseconds.
pub(in crate::admin::samples) const START_MS: u64 = 1_795_278_840_123;

/// A store with one sample a second, each with one allowed request.
pub(in crate::admin::samples) fn filled(seconds: u64) -> SampleStore {
    let mut store = SampleStore::default();
    for second in 1..=seconds {
        store.push(&mut sample(START_MS + second * 1_000, "free", 1, 0));
    }
    store
}

fn requests(samples: &[Arc<Sample>]) -> u64 {
    samples.iter().map(|sample| sample.requests().all()).sum()
}

#[test]
fn range_is_shown_in_the_finest_resolution_that_covers_it() {
    const HOUR: u64 = 3_600;
    let store = filled(25 * HOUR);
    let end_ms = START_MS + 25 * HOUR * 1_000;
    // age of the beginning in seconds, step, samples at most
    let table = [
        (60, 1_000, 61),
        (299, 1_000, 300),
        (310, 10_000, 32),
        (HOUR, 10_000, 361),
        (HOUR + 60, 60_000, 62),
        (6 * HOUR, 60_000, 361),
        (6 * HOUR + 600, 300_000, 75),
        (23 * HOUR, 300_000, 277),
        (24 * HOUR, 300_000, 289),
        (1_000 * HOUR, 300_000, 289),
    ];
    for (age, step_ms, most) in table {
        let found = store.find(end_ms - (age * 1_000).min(end_ms), end_ms);
        assert_eq!(found.step_ms, step_ms, "{age}");
        assert!((most - 2..=most).contains(&found.samples.len()), "{age}: {}", found.samples.len());
    }
    // 24 hours, and the part of the last step that is over.
    let all = requests(&store.find(0, u64::MAX).samples);
    assert!((24 * HOUR..=24 * HOUR + 300).contains(&all), "{all}");
    let hour_ago = end_ms - HOUR * 1_000 * 2;
    let found = store.find(hour_ago, hour_ago + 60_000 * 5);
    assert!((5..=6).contains(&found.samples.len()), "{}", found.samples.len());
}

#[test]
fn short_life_is_shown_second_by_second_for_any_range() {
    let store = filled(20);
    let found = store.find(0, u64::MAX);
    assert_eq!((found.step_ms, found.samples.len()), (1_000, 20));
    assert_eq!(store.find(START_MS + 5_500, START_MS + 7_500).samples.len(), 3);
    assert_eq!(SampleStore::default().find(0, u64::MAX).samples.len(), 0);
}

#[test]
fn samples_stay_in_order_when_the_clock_is_set_back() {
    let mut store = filled(100);
    store.push(&mut sample(START_MS + 101_000 - 3_600_000, "free", 1, 0));
    let found = store.find(0, u64::MAX);
    assert_eq!(requests(&found.samples), 101);
    let times: Vec<u64> = found.samples.iter().map(|sample| sample.at_ms).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1_000), "{times:?}");
    assert_eq!(times.last(), Some(&(START_MS + 101_000 - 3_600_000)));
}

#[test]
fn clock_set_forward_leaves_a_gap() {
    let mut store = filled(100);
    store.push(&mut sample(START_MS + 101_000 + 3_600_000, "free", 1, 0));
    let found = store.find(START_MS + 50_000, u64::MAX);
    assert_eq!((found.step_ms, found.samples.len()), (1_000, 51));
    assert_eq!(store.find(START_MS + 200_000, START_MS + 3_600_000).samples.len(), 0);
}

#[test]
fn long_pause_is_one_sample() {
    let mut store = filled(10);
    let mut pause = Sample { span_ms: 700_000, ..sample(START_MS + 710_000, "free", 5, 0) };
    store.push(&mut pause);
    for resolution in 0..RESOLUTIONS.len() {
        let samples = &store.tiers[resolution].samples;
        assert_eq!(samples.iter().map(|sample| sample.span_ms).sum::<u64>(), 710_000);
    }
    let within = store.find(START_MS + 300_000, START_MS + 301_000);
    assert_eq!(requests(&within.samples), 5);
}

/// A sample with 40 plans, rules, routes and upstreams, whose durations fill 60 buckets each.
fn largest_sample(at_ms: u64) -> Sample {
    let names = (0..60).map(|number| Name::from(format!("name-of-{number:03}")));
    let names: Vec<Name> = names.collect();
    let durations = Durations::of((0..20_000).map(|number| 100 + number));
    let mut counted = Increases::default();
    for name in names {
        let plan = OutcomeCounts { allowed: 20_000, ..OutcomeCounts::default() };
        counted.plans.insert(Name::clone(&name), plan);
        let rule = RuleCounts { allowed: 20_000, ..RuleCounts::default() };
        counted.rules.insert(Name::clone(&name), rule);
        let durations = durations.clone();
        let route = RouteCounts { requests: 20_000, durations, ..RouteCounts::default() };
        counted.routes.insert(Name::clone(&name), route);
        let durations = Durations::clone(&counted.routes[&name].durations);
        let upstream = UpstreamCounts { requests: 20_000, durations, ..UpstreamCounts::default() };
        counted.upstreams.insert(name, upstream);
    }
    let totals = Totals::default();
    Sample::of(counted, &totals, &totals, at_ms, 1_000)
}

fn bytes(sample: &Sample) -> usize {
    fn rows<R>(rows: &Rows<R>, more: impl Fn(&R) -> usize) -> usize {
        rows.iter().map(|(_, row)| size_of::<(Name, R)>() + more(row)).sum()
    }
    size_of::<Sample>()
        + rows(&sample.plans, |_| 0)
        + rows(&sample.rules, |_| 0)
        + rows(&sample.routes, |row| row.durations.bytes())
        + rows(&sample.upstreams, |row| row.durations.bytes())
}

#[test]
fn memory_is_bounded_whatever_the_number_of_names() {
    let mut store = SampleStore::default();
    for step in 1..=400 {
        // Each resolution keeps a sample of every step of the coarsest one.
        store.push(&mut largest_sample(START_MS + step * 300_000));
    }
    let tiers = store.tiers.iter().flat_map(|tier| &tier.samples);
    let (samples, bytes) =
        tiers.fold((0, 0), |(samples, sum), one| (samples + 1, sum + bytes(one)));
    assert_eq!(samples, 300 + 361 + 361 + 289);
    println!("{bytes} bytes");
    assert!(bytes < 30 << 20, "{bytes} bytes");
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(64))]
    #[test]
    fn every_resolution_has_the_sum_of_the_finest(
        steps in prop::collection::vec((-5_000_i64..9_000, 1..3_000_u64, 0..9_u64, 0..60_u32), 1..290),
    ) {
        let mut store = SampleStore::default();
        let (mut now, mut expected) = (START_MS, 0);
        for (step, span_ms, allowed, name) in steps {
            now = now.saturating_add_signed(step);
            expected += allowed;
            let one = sample(now, &format!("plan-{name}"), allowed, 0);
            store.push(&mut Sample { span_ms, ..one });
        }
        let spans = |tier: &Tier| tier.samples.iter().map(|sample| sample.span_ms).sum::<u64>();
        for tier in &store.tiers {
            let samples: Vec<_> = tier.samples.iter().map(Arc::clone).collect();
            prop_assert_eq!(requests(&samples), expected);
            prop_assert_eq!(spans(tier), spans(&store.tiers[0]));
            prop_assert!(samples.windows(2).all(|pair| pair[0].at_ms < pair[1].at_ms));
        }
    }
}
