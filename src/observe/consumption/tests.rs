use std::collections::HashMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::client::ClientKey;
use crate::limit::charge::{Answer, BucketId, Charge, Charges, Mode, Outcome, Outcomes};
use crate::limit::reading::Times;
use crate::limit::share::Share;
use crate::load::from_text;
use crate::store::limiter::Source;

const FILE: &str = "[plans.free]\n[upstreams.api]\nservers = ['demo']\n[routes.all]\n\
    [keys.a]\nsha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'\nplan = 'free'\n\
    [keys.b]\nsha256 = '1f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'\nplan = 'free'\n\
    [rules.per-key]\nper = ['key']\nrate = '10/s'\n[rules.per-ip]\nper = ['ip']\nrate = '10/s'\n\
    [rules.all]\nper = []\nrate = '10/s'\n";

fn policy() -> Policy {
    from_text("gateway.toml", FILE).unwrap()
}

fn client(policy: &Policy, key: Option<&str>, ip: u32) -> Client {
    let known = |id| ClientKey::Known(Arc::clone(policy.keys.named(id).unwrap()));
    let key = key.map_or(ClientKey::Missing, known);
    Client { ip: Some(IpAddr::V4(ip.into())), ..Client::new(&policy.clients, key) }
}

/// A check against `rules`. The first lacks tokens unless `enough`.
fn taken(policy: &Policy, rules: &[u32], enough: bool) -> Taken {
    let charge = |rule: &u32| {
        let limit = policy.rules[*rule as usize].grant_by_plan[0].unwrap().limit;
        let bucket = BucketId((*rule).into());
        Charge { bucket, rule: *rule, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
    };
    let charges: Charges = rules.iter().map(charge).collect();
    let outcome = |index| Outcome {
        level: 0,
        enough: enough || index > 0,
        share: Share::WHOLE,
        times: Times::NONE,
    };
    let outcomes: Outcomes = (0..charges.len()).map(outcome).collect();
    let answer = Answer::of(&charges, outcomes);
    Taken::all(charges, answer, Source::Local)
}

fn by_item(policy: &Policy, merged: &Merged) -> HashMap<(u32, String), (u64, u64)> {
    let pair = |counted: &Counted| {
        let Counted { item, requests, refused, .. } = counted;
        let (kind, name) = counted.shown(policy);
        ((item.rule, format!("{kind} {name}")), (*requests, *refused))
    };
    merged.counted.iter().map(pair).collect()
}

#[test]
fn rules_count_clients_by_key_or_by_address() {
    let (policy, consumption) = (policy(), Consumption::default());
    let (all, none) = (taken(&policy, &[0, 1, 2], true), taken(&policy, &[0, 1, 2], false));
    consumption.record(&policy, &client(&policy, Some("b"), 7), &all, 0);
    consumption.record(&policy, &client(&policy, Some("b"), 8), &none, 0);
    consumption.record(&policy, &client(&policy, None, 7), &all, 0);
    let merged = consumption.merged(10);
    let expected = [
        ((0, "key b"), (2, 1)),
        ((0, "ip 0.0.0.7"), (1, 0)),
        ((1, "ip 0.0.0.7"), (2, 0)),
        ((1, "ip 0.0.0.8"), (1, 0)),
        ((2, "key b"), (2, 0)),
        ((2, "ip 0.0.0.7"), (1, 0)),
    ];
    let expected = expected.map(|((rule, id), counts)| ((rule, id.to_owned()), counts));
    assert_eq!(by_item(&policy, &merged), expected.into_iter().collect());
    assert_eq!((merged.total, merged.error_at_most, merged.span), (9, 0, 10));
}

#[test]
fn counts_older_than_two_windows_are_dropped() {
    let (policy, consumption) = (policy(), Consumption::default());
    let one = taken(&policy, &[1], true);
    consumption.record(&policy, &client(&policy, None, 1), &one, 0);
    consumption.record(&policy, &client(&policy, None, 2), &one, WINDOW_US);
    assert_eq!(consumption.merged(WINDOW_US + 5).counted.len(), 2);
    assert_eq!(consumption.merged(2 * WINDOW_US - 1).span, 2 * WINDOW_US - 1);
    assert_eq!(consumption.merged(2 * WINDOW_US).counted.len(), 1);
    assert_eq!(consumption.merged(4 * WINDOW_US).counted.len(), 0);
}

#[test]
fn reload_keeps_counts_of_rules_and_keys_by_name() {
    let (old, consumption) = (policy(), Consumption::default());
    consumption.record(&old, &client(&old, Some("a"), 7), &taken(&old, &[0, 1, 2], true), 0);
    consumption.record(&old, &client(&old, Some("b"), 7), &taken(&old, &[0, 1, 2], true), 0);
    let text = FILE.replace("[keys.a]", "[keys.c]").replace("[rules.per-key]", "[rules.other]");
    let text = text.replace("[rules.all]", "[rules.first]\nper = []\nrate = '1/s'\n[rules.all]");
    let new = from_text("gateway.toml", &text).unwrap();
    let merged = consumption.carried_over(&old, &new).merged(1);
    let expected = [((1, "ip 0.0.0.7".to_owned()), (2, 0)), ((3, "key b".to_owned()), (1, 0))];
    assert_eq!(by_item(&new, &merged), expected.into_iter().collect());
}

#[test]
fn memory_is_bounded_for_any_number_of_clients() {
    let (policy, consumption) = (policy(), Consumption::default());
    let (all, hot) = (taken(&policy, &[0, 1, 2], true), client(&policy, Some("a"), 200_000));
    for ip in 0..100_000 {
        consumption.record(&policy, &client(&policy, None, ip), &all, 0);
        if ip % 10 == 0 {
            consumption.record(&policy, &hot, &all, 0);
        }
    }
    let merged = consumption.merged(1);
    assert!(merged.counted.len() <= COUNTERS, "{}", merged.counted.len());
    assert_eq!(merged.total, 330_000);
    assert!(merged.error_at_most <= merged.total / COUNTERS as u64, "{}", merged.error_at_most);
    let hottest = merged.counted.iter().max_by_key(|counted| counted.requests).unwrap();
    assert!(hottest.requests - hottest.requests_error <= 10_000 && hottest.requests >= 10_000);
}

fn thread() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1..4_usize]
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(64))]

    /// For any requests of threads, one of which has half of them.
    #[test]
    fn merged_counts_are_never_too_low_and_their_error_is_bounded(
        requests in prop::collection::vec((thread(), 0_u32..3_000), 0..6_000),
    ) {
        let (policy, consumption) = (policy(), Consumption::default());
        let mut truth: HashMap<u32, u64> = HashMap::new();
        for (shard, ip) in &requests {
            let mut shard = consumption.shards.iter().nth(*shard).unwrap().lock();
            let client = client(&policy, None, *ip).address(64).id();
            shard.current.requests.add(Item { rule: 1, client }, || None);
            *truth.entry(*ip).or_default() += 1;
        }
        let merged = consumption.merged(1);
        prop_assert!(merged.error_at_most <= (requests.len() / COUNTERS) as u64);
        for counted in &merged.counted {
            let ClientId::Address(IpAddr::V4(ip)) = counted.item.client else { panic!() };
            let truth = truth[&ip.to_bits()];
            prop_assert!(counted.requests >= truth);
            prop_assert!(counted.requests - counted.requests_error <= truth);
            prop_assert!(counted.requests_error <= merged.error_at_most);
        }
    }
}
