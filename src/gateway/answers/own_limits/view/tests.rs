use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, Method};
use proptest::prelude::*;

use super::*;
use crate::decide::applicability::{Absent, SelectedBy};
use crate::limit::charge::BucketId;
use crate::limit::reading::{Reading, Times};
use crate::limit::share::Share;
use crate::load::from_text;
use crate::policy::charges::RequestAttributes;

/// The keys of `acme` and of `monitor` are their names.
const FILE: &str = r#"
[plans.free]
[plans.pro]
[keys.acme]
sha256 = "822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757"
plan = "pro"
[keys.monitor]
sha256 = "7de97367c9cdc3c6db31aa114057b65cea1a7bafc71cf0595a2931011526a0a3"
plan = "free"
[upstreams.api]
servers = ["demo"]
[routes.search]
path = "/search"
cost = 5
[routes.rest]
"#;

const RULES: &str = r#"
[rules.per-key]
description = "What a plan buys."
per = ["key"]
plans.free = { rate = "10/s", burst = 50 }
plans.pro = { rate = "100/s", burst = 500 }
exempt = { keys = ["monitor"] }
[rules.search]
per = ["key", "route"]
routes = ["search"]
rate = "300/m"
[rules.each]
per = ["ip", "route"]
rate = "9/d"
exempt = { ips = ["192.0.2.9"] }
on_failure = "allow"
[rules.methods]
per = ["key", "method"]
rate = "7/h"
[rules.members]
per = ["key"]
on_missing = "deny"
routes = ["search"]
rate = "5/s"
[rules.everyone]
per = []
rate = "1000/s"
[rules.trial]
per = []
mode = "shadow"
rate = "6/s"
[rules.off]
per = []
enabled = false
rate = "6/s"
"#;

const ACME: Option<&str> = Some("acme");
const MONITOR: Option<&str> = Some("monitor");

fn client(policy: &Policy, ip: &str, key: Option<&str>) -> Client {
    let known = |id| ClientKey::Known(Arc::clone(policy.keys.named(id).unwrap()));
    let key = key.map_or(ClientKey::Missing, known);
    Client { ip: Some(ip.parse().unwrap()), ..Client::new(&policy.clients, key) }
}

fn rules_of<'a>(policy: &'a Policy, client: &Client, headers: &HeaderMap) -> ClientRules<'a> {
    let selected_by = match client.key {
        ClientKey::Missing => SelectedBy::Address,
        ClientKey::Known(_) | ClientKey::Unknown(_) => SelectedBy::Key,
    };
    let (host, absent) = (Some("h"), Absent::AllOthers);
    ClientRules::of(
        policy,
        &Subject { client, selected_by, route: None, method: None, host, headers, absent },
    )
}

/// The view of the client while each of its buckets lacks `lacking` tokens.
fn view(policy: &Policy, client: &Client, lacking: u64, source: Source) -> String {
    let rules = rules_of(policy, client, &HeaderMap::new());
    let reading = |charge: &Charge| {
        let level = charge.limit.full() - charge.limit.units(lacking);
        Reading::new(level, Times::NONE)
    };
    let readings = rules.charges().iter().map(reading).collect();
    let levels = Levels {
        readings,
        source,
        share: Share::WHOLE,
        is_local_fallback: policy.redis.is_some() && source == Source::Local,
    };
    let view = rules.view(&levels, &NowOf { ban_left_us: &|_| None, rate_share: &|_| None });
    let each = view.rules.iter().map(|rule| serde_json::to_string(rule).unwrap());
    let rules = each.collect::<Vec<_>>().join("\n");
    let client = serde_json::to_string(&view.client).unwrap();
    format!("{client} limited {}, approximate {}\n{rules}", view.limited, view.approximate)
}

#[test]
fn client_with_a_key() {
    let policy = from_text("f", &format!("{FILE}{RULES}")).unwrap();
    let acme = client(&policy, "192.0.2.1", ACME);
    insta::assert_snapshot!(view(&policy, &acme, 3, Source::Local));
}

#[test]
fn client_without_a_key_and_without_tokens() {
    let policy = from_text("f", &format!("{FILE}{RULES}")).unwrap();
    let anonymous = client(&policy, "2001:db8::1", None);
    insta::assert_snapshot!(view(&policy, &anonymous, 50, Source::Local));
}

#[test]
fn exempt_client() {
    let rules = "[rules.a]\nper = ['key']\nrate = '9/s'\nexempt = { keys = ['monitor'] }\n\
        [rules.b]\nper = ['ip']\nrate = '9/s'\nexempt = { ips = ['192.0.2.0/24'] }\n";
    let policy = from_text("f", &format!("{FILE}{rules}")).unwrap();
    let monitor = client(&policy, "192.0.2.9", MONITOR);
    insta::assert_snapshot!(view(&policy, &monitor, 0, Source::Local));
}

#[test]
fn client_while_redis_is_unavailable() {
    let redis = "[redis]\nurl = 'redis://127.0.0.1:1'\n";
    let rules = "[rules.a]\nper = ['key']\nrate = '9/s'\n\
        [rules.b]\nper = ['key']\nrate = '9/s'\non_failure = 'allow'\n\
        [rules.c]\nper = ['key']\nrate = '9/s'\non_failure = 'deny'\n";
    let policy = from_text("f", &format!("{FILE}{redis}{rules}")).unwrap();
    let acme = client(&policy, "192.0.2.1", ACME);
    insta::assert_snapshot!(view(&policy, &acme, 2, Source::Local));
    assert!(!view(&policy, &acme, 2, Source::Redis).contains("without_redis"));
}

#[test]
fn shared_bucket_is_hidden_if_headers_are_off() {
    let rules = "[rules.mine]\nper = ['key']\nrate = '9/s'\n[rules.ours]\nper = []\nrate = '9/s'\n";
    let hidden = |headers: &str| {
        let policy = from_text("f", &format!("{headers}{FILE}{rules}")).unwrap();
        let view = view(&policy, &client(&policy, "192.0.2.1", ACME), 2, Source::Local);
        view.lines()
            .filter(|line| line.contains("\"limit\"") && !line.contains("remaining"))
            .count()
    };
    assert_eq!((hidden(""), hidden("[headers]\nstyle = 'none'\n")), (0, 1));
}

#[test]
fn number_of_rules_and_routes_is_bounded() {
    use std::fmt::Write as _;

    let mut file = FILE.to_owned();
    for number in 0..150 {
        let _ = writeln!(file, "[routes.r{number}]\npath = '/{number}'\ncost = {}", 1 + number % 2);
    }
    file +=
        "[rules.each]\nper = ['key', 'route']\nrate = '9/s'\n[rules.all]\nper = []\nrate = '9/s'";
    let policy = from_text("f", &file).unwrap();
    let acme = client(&policy, "192.0.2.1", ACME);
    let rules = rules_of(&policy, &acme, &HeaderMap::new());
    assert_eq!((rules.charges().len(), rules.left_out), (MAX_RULES, 53));
    let (named, more) = rules.entries[0].routes(&policy);
    assert_eq!((named.len(), more), (1, 0));
    let all = ClientRule {
        route: None,
        ..ClientRule::of(
            &policy,
            &Subject {
                client: &acme,
                selected_by: SelectedBy::Key,
                route: None,
                method: None,
                host: None,
                headers: &HeaderMap::new(),
                absent: Absent::AllOthers,
            },
            1,
            &policy.rules[1],
        )
    };
    let (named, more) = all.routes(&policy);
    assert_eq!((named.len(), more), (MAX_ROUTES, 132));
}

/// One rule of a random file.
fn rule() -> impl Strategy<Value = String> {
    let per = prop::sample::subsequence(
        vec!["'ip'", "'key'", "'plan'", "'route'", "'host'", "'header:x-t'"],
        0..=6,
    );
    let routes = prop_oneof![Just(""), Just("routes = ['search']\n"), Just("routes = ['rest']\n")];
    let rate = prop_oneof![
        Just("rate = '9/s'\n"),
        Just("plans.pro.rate = '8/s'\n"),
        Just("rate = '9/s'\nplans.pro.rate = '8/s'\n"),
    ];
    let more = prop_oneof![
        4 => Just(""),
        1 => Just("mode = 'shadow'\n"),
        1 => Just("enabled = false\n"),
        1 => Just("exempt.keys = ['acme']\n"),
        1 => Just("exempt.ips = ['192.0.2.1']\n"),
    ];
    let missing = prop_oneof![Just("ip"), Just("skip"), Just("shared"), Just("deny")];
    (per, routes, rate, more, missing).prop_map(|(per, routes, rate, more, missing)| {
        let by_key = per.contains(&"'key'");
        let missing = if by_key { format!("on_missing = '{missing}'\n") } else { String::new() };
        format!("per = [{}]\n{routes}{rate}{more}{missing}", per.join(", "))
    })
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(300))]

    /// The view has exactly those buckets that requests of the client can take from.
    #[test]
    fn view_has_the_buckets_that_requests_take_from(
        rules in prop::collection::vec(rule(), 0..6),
        key in prop_oneof![Just(ACME), Just(MONITOR), Just(None)],
        tenant in any::<bool>(),
    ) {
        let rules = rules.iter().enumerate().map(|(i, rule)| format!("[rules.r{i}]\n{rule}"));
        let text = format!("{FILE}{}", rules.collect::<String>());
        let policy = from_text("f", &text).unwrap();
        let client = client(&policy, "192.0.2.1", key);
        let mut headers = HeaderMap::new();
        if tenant {
            headers.insert("x-t", "a".parse().unwrap());
        }
        let viewed: BTreeSet<(u32, BucketId)> = rules_of(&policy, &client, &headers)
            .charges()
            .iter()
            .map(|charge| (charge.rule, charge.bucket))
            .collect();
        let mut taken = BTreeSet::new();
        for (index, rule) in (0..).zip(&policy.rules) {
            for route in 0..2 {
                let attributes = RequestAttributes { route, method: &Method::GET, host: "h", path: "", headers: &headers };
                let charge = policy.charge(index, &client, &attributes, crate::policy::charges::Scope::All);
                if rule.mode == Mode::Enforce {
                    taken.extend(charge.ok().map(|charge| (index, charge.bucket)));
                }
            }
        }
        prop_assert_eq!(viewed, taken, "{}", text);
    }
}
