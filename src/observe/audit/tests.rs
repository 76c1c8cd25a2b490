use std::net::IpAddr;

use super::*;
use crate::client::{Client, ClientKey};
use crate::decide::Unauthenticated;
use crate::decide::decision::LimitCheck;
use crate::limit::charge::{Answer, BucketId, Charge, Charges, Outcome, Outcomes};
use crate::limit::reading::Times;
use crate::limit::share::Share;
use crate::load::from_text;
use crate::policy::charges::KeyRequired;
use crate::store::limiter::{Source, Taken};

const FILE: &str = "[plans.free]\n[plans.pro]\n[upstreams.api]\nservers = ['demo']\n\
    [routes.search]\npath = '/search'\ncost = 5\n[routes.rest]\n\
    [keys.acme]\nsha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'\nplan = 'pro'\n\
    rules.per-key = { rate = '250/s', burst = 1000 }\n\
    [rules.per-key]\nper = ['key']\nplans.free = { rate = '10/s' }\nplans.pro = { rate = '100/s', burst = 500 }\n\
    [rules.per-ip]\nper = ['ip']\nrate = '20/s'\nmode = 'shadow'\n";

const PER_KEY: u32 = 0;
const PER_IP: u32 = 1;

fn policy() -> Arc<Policy> {
    Arc::new(from_text("gateway.toml", FILE).unwrap())
}

fn audit() -> Audit {
    Audit {
        tallies: Tallies::default(),
        runs: Mutex::default(),
        changes: Mutex::default(),
        failures: FailureLog::default(),
        started_us: 0,
        stream: None,
        stream_length: AtomicU64::new(0),
    }
}

fn client(key: ClientKey, ip: u32) -> Client {
    let (ip, plan) = (Some(IpAddr::V4(ip.into())), u32::from(key != ClientKey::Missing));
    Client { ip, key, plan, tenant: None, certificate: None }
}

/// The result of checking both rules at a cost of 5; those in `short` lack tokens.
fn check(policy: &Policy, short: &[u32]) -> LimitCheck {
    let charge = |rule: u32| {
        let grant = policy.rules[rule as usize].grant_by_plan[1].unwrap();
        let mode = policy.rules[rule as usize].mode;
        let bucket = BucketId(rule.into());
        Charge { bucket, rule, limit_index: grant.index, limit: grant.limit, cost: 5, mode }
    };
    let charges: Charges = [PER_KEY, PER_IP].map(charge).to_vec();
    let outcome = |charge: &Charge| Outcome {
        level: charge.limit.units(3),
        enough: !short.contains(&charge.rule),
        share: Share::WHOLE,
        times: Times::NONE,
    };
    let outcomes: Outcomes = charges.iter().map(outcome).collect();
    let answer = Answer::of(&charges, outcomes);
    LimitCheck::of(Taken::all(charges, answer, Source::Redis))
}

fn limited(policy: &Policy, short: &[u32]) -> Decision {
    Decision::Limited { check: check(policy, short), unauthenticated: None }
}

fn find(audit: &Audit) -> Vec<RefusalRunView> {
    audit.find(&Query { limit: 1_000, ..Query::default() }).runs
}

#[test]
fn refusal_has_its_kind_limit_route_cost_and_generation() {
    let (audit, policy) = (audit(), policy());
    let acme = client(ClientKey::Known(Arc::clone(&policy.keys.all()[0])), 1);
    let record = |client: &Client, route, decision| {
        let key_from = match &client.key {
            ClientKey::Known(_) => Some(0),
            ClientKey::Unknown(_) => Some(1),
            ClientKey::Missing => None,
        };
        let request = AuditedRequest {
            policy: &policy,
            generation: 7,
            client,
            route,
            key_from,
            key_refusal: None,
            key_name: None,
        };
        audit.record(&request, &decision);
    };
    let unauthenticated = |reason| Decision::Unauthenticated { reason, check: None };
    let allowed = |short| Decision::Allowed {
        check: Some(check(&policy, short)),
        shadow_key_rules: Vec::new(),
    };
    record(&acme, Some(0), limited(&policy, &[PER_KEY, PER_IP]));
    record(&acme, Some(1), limited(&policy, &[PER_KEY]));
    record(&acme, Some(0), Decision::Unavailable { rule: PER_KEY, retry_after_us: 9 });
    record(&client(ClientKey::Missing, 2), Some(1), unauthenticated(Unauthenticated::KeyMissing));
    let required = Unauthenticated::KeyRequired(KeyRequired { rule: PER_KEY });
    record(&client(ClientKey::Missing, 3), Some(1), unauthenticated(required));
    record(
        &client(ClientKey::Unknown([0; 32]), 4),
        None,
        unauthenticated(Unauthenticated::KeyUnknown { source: 1 }),
    );
    record(&acme, Some(0), allowed(&[PER_IP]));
    record(&acme, Some(0), allowed(&[]));
    record(&acme, None, Decision::OwnLimits { check: Some(check(&policy, &[PER_IP])), view: None });
    // Of addresses without tokens: a key that was not looked up, and an expired token.
    for (ip, refusal) in [(5, KeyRefusal::Unchecked), (6, KeyRefusal::Expired)] {
        let client = client(ClientKey::Missing, ip);
        let request = AuditedRequest {
            policy: &policy,
            generation: 7,
            client: &client,
            route: None,
            key_from: Some(1),
            key_refusal: Some(refusal),
            key_name: None,
        };
        audit.record(&request, &limited(&policy, &[PER_IP]));
    }
    let mut shown: Vec<String> = find(&audit)
        .iter()
        .map(|run| {
            let mut fields = run.fields();
            fields.retain(|(name, _)| !["first", "last"].contains(name));
            let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
            fields.collect::<Vec<_>>().join(" ")
        })
        .collect();
    shown.sort();
    insta::assert_snapshot!(shown.join("\n"));
}

/// Floods from many clients, between two collections.
#[test]
fn flood_of_one_kind_is_bounded_and_counted() {
    let (audit, policy) = (audit(), policy());
    let record = |ip, decision: &Decision| {
        let client = client(ClientKey::Missing, ip);
        audit.record(
            &AuditedRequest {
                policy: &policy,
                generation: 1,
                client: &client,
                route: None,
                key_from: None,
                key_refusal: None,
                key_name: None,
            },
            decision,
        );
    };
    let unauthenticated =
        Decision::Unauthenticated { reason: Unauthenticated::KeyMissing, check: None };
    for ip in 0..10_000 {
        record(ip, &unauthenticated);
    }
    record(1, &limited(&policy, &[PER_KEY]));
    let Matches { runs, more, dropped, .. } = audit.find(&Query { limit: 10, ..Query::default() });
    assert_eq!((runs.len() + more, dropped), (513, 10_000 - 512));
    let limits = Query { kinds: Some(vec![Kind::Limit]), limit: 10, ..Query::default() };
    assert_eq!((audit.find(&limits).runs.len(), audit.find(&limits).dropped), (1, 0));
}
