//! Explanations agree with the gateway: for generated configurations and requests, the status, the
//! limiting rule and its remaining tokens are equal.

mod generated;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use tollgate::decide::{Refusal, Rejection, credential, precheck};
use tollgate::explain::request::RequestSpec;
use tollgate::explain::{Explainer, json as bodies};
use tollgate::limit::share::Share;
use tollgate::limit::verdict::{Standing, Verdict};
use tollgate::runtime::{CurrentSnapshot, Snapshot};
use tollgate::store::limiter::Limiter;
use tollgate::store::memory::MemoryStore;

use crate::support::{DEMO, Gateway, Redis, Request, Response, key, tollgate};
use generated::{Sent, files, requests};

/// Result of a request: its status, the limiting rule, and its remaining tokens.
#[derive(Debug, PartialEq, Eq)]
struct Observed {
    status: u64,
    rule: Option<String>,
    remaining: Option<u64>,
}

impl Observed {
    /// The result in an explanation. The status of an allowed request is 200 here.
    fn explained(explanation: &Value) -> Self {
        let verdict = &explanation["verdict"];
        let status = match verdict["decision"].as_str() {
            Some("allow") => 200,
            _ => verdict["status"].as_u64().unwrap(),
        };
        let rule = verdict["rule"].as_str().map(str::to_owned);
        Self { status, rule, remaining: verdict["remaining"].as_u64() }
    }

    /// The result in a response.
    fn answered(response: &Response) -> Self {
        let rule = response.header("RateLimit").map(|limit| limit.split('"').nth(1).unwrap());
        Self {
            status: response.status.into(),
            rule: rule.map(str::to_owned),
            remaining: response.header("X-RateLimit-Remaining").map(|left| left.parse().unwrap()),
        }
    }
}

/// The decision about a request, without HTTP.
fn decided(snapshot: &Snapshot, store: &MemoryStore, spec: &RequestSpec) -> Observed {
    let policy = &snapshot.policy;
    let request = spec.request(policy).unwrap();
    let head = request.head();
    let credential = credential(policy, &head);
    let found = credential.map(|credential| policy.keys.look_up(credential.as_ref(), || 0));
    let precheck = precheck(policy, &head, found);
    let answer = store.take(&precheck.charges, tollgate::base::clock::now(), Share::WHOLE);
    let verdict = Verdict::of(&precheck.charges, &answer);
    let status = match (verdict, precheck.refused()) {
        (Verdict::Refused { .. }, _) => 429,
        (_, None) => 200,
        (_, Some(Refusal::Rejected(Rejection::NoRoute))) => 404,
        (_, Some(Refusal::Rejected(Rejection::TraceNotNamed))) => 405,
        (_, Some(Refusal::Unauthenticated(_))) => 401,
        (_, Some(_)) => 400,
    };
    let spoken = verdict.reported_charge().map(|index| {
        let charge = &precheck.charges[index];
        let standing = Standing::of(charge, &answer.outcomes[index]);
        (policy.rules[charge.rule as usize].name.to_string(), standing.remaining)
    });
    Observed {
        status,
        rule: spoken.as_ref().map(|(rule, _)| rule.clone()),
        remaining: spoken.map(|(_, remaining)| remaining),
    }
}

proptest! {
    #![proptest_config(crate::support::with_cases(300))]

    /// Explaining takes no tokens: two explanations of a request are equal.
    #[test]
    fn explanation_agrees_with_the_decision(
        file in files(),
        requests in prop::collection::vec(requests(), 1..40),
    ) {
        let policy = tollgate::load::from_text("gateway.toml", &file)
            .unwrap_or_else(|report| panic!("{report}"));
        let store = Arc::new(MemoryStore::new(10_000, &policy.limits));
        let current = Arc::new(CurrentSnapshot::from_pointee(Snapshot::new(policy, Vec::new())));
        let snapshot = current.load_full();
        let limiter = Arc::new(Limiter::local(Arc::clone(&store)));
        let explainer = Explainer::new(current, limiter);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for sent in requests {
            let spec = bodies::read(sent.spec().to_string().as_bytes()).unwrap();
            let explain = || {
                let explanation = runtime.block_on(explainer.explain(&spec)).unwrap();
                serde_json::to_value(explanation).unwrap()
            };
            let (first, second) = (explain(), explain());
            prop_assert_eq!(Observed::explained(&first), Observed::explained(&second));
            let done = decided(&snapshot, &store, &spec);
            prop_assert_eq!(Observed::explained(&first), done, "{}\n{:?}\n{:#}", file, sent, first);
        }
    }
}

/// Compares a response of a real gateway with the explanation of its admin port.
fn assert_agrees(gateway: &Gateway, file: &str, sent: &Sent) -> u64 {
    let explained = gateway.explain(sent.spec().to_string());
    assert_eq!(explained.status, 200, "{}", explained.text());
    let explanation = explained.json();
    let answered = gateway.send(&sent.request());
    let (view, actual) = (Observed::explained(&explanation), Observed::answered(&answered));
    if explanation["levels"] == "redis" && actual.status == 429 && view.rule != actual.rule {
        // With several denying rules, the deny cache may name another one for up to a second.
        assert_eq!(view.status, 429, "{file}\n{sent:?}\n{explanation:#}");
        let rules = explanation["rules"].as_array().unwrap();
        let named = rules.iter().find(|rule| rule["name"].as_str() == actual.rule.as_deref());
        let named = named.map(|rule| (rule["enough"].as_bool(), rule["tokens"].as_u64()));
        assert_eq!(
            named,
            Some((Some(false), actual.remaining)),
            "{file}\n{sent:?}\n{explanation:#}"
        );
    } else {
        assert_eq!(view, actual, "{file}\n{sent:?}\n{explanation:#}\n{answered:?}");
    }
    actual.status
}

/// The statuses of all requests, to check that every kind occurred.
fn agreement(table: &str, count: usize, seed: [u8; 32]) -> Vec<u64> {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng};

    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let file = files().new_tree(&mut runner).unwrap().current();
    let file = format!("{}{table}", file.replace("[server]", generated::ON_ANY_PORT));
    let gateway = Gateway::start_full(&file);
    if !table.is_empty() {
        gateway.wait_for_redis();
    }
    let mut statuses = Vec::new();
    for _ in 0..count {
        let sent = requests().new_tree(&mut runner).unwrap().current();
        statuses.push(assert_agrees(&gateway, &file, &sent));
    }
    statuses
}

#[test]
fn admin_explain_agrees_with_the_gateway() {
    let mut statuses: Vec<u64> = (1..=12).flat_map(|seed| agreement("", 120, [seed; 32])).collect();
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, [200, 400, 401, 404, 405, 429], "every kind of response occurred");
}

#[test]
fn admin_explain_agrees_with_a_gateway_with_redis() {
    let redis = Redis::start();
    for seed in 13..=15 {
        redis.query::<()>(&["FLUSHALL"]);
        agreement(&redis.table(), 120, [seed; 32]);
    }
}

#[test]
fn explain_reads_redis_with_documented_acl_rights_and_writes_nothing() {
    let redis = Redis::start();
    let rights =
        "on >pw resetkeys ~tollgate:* resetchannels -@all +ping +eval +evalsha +time +get +set";
    let rights: Vec<&str> =
        ["ACL", "SETUSER", "tollgate"].into_iter().chain(rights.split(' ')).collect();
    redis.query::<String>(&rights);
    let login = format!("{}username = \"tollgate\"\npassword = \"pw\"\n", redis.table());
    let rules = "[rules.per-key]\nper = [\"key\"]\nrate = \"10/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{login}{}", key("acme", "secret", "free")));
    gateway.wait_for_redis();
    for _ in 0..4 {
        let request = Request::get("/").header("X-Api-Key", "secret");
        assert_eq!(gateway.send(&request).status, 200);
    }
    let keys: Vec<String> = redis.query(&["KEYS", "*}:per-key"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let stored = || -> Vec<u8> { redis.query(&["GET", &keys[0]]) };
    let (before, writes) = (stored(), redis.calls("set"));
    let explanation = gateway.explain(json!({"key": "secret"}).to_string()).json();
    assert_eq!(explanation["levels"], "redis", "{explanation:#}");
    assert_eq!(explanation["rules"][0]["tokens"], 6);
    assert_eq!(explanation["verdict"]["remaining"], 5);
    assert_eq!(explanation["rules"][0]["bucket"], keys[0], "the key in Redis");
    assert_eq!((stored(), redis.calls("set")), (before, writes));
}

/// Setting of `[redis]`: buckets start full without Redis.
const FULL: &str = "start_without = \"full\"\n";

#[test]
fn explain_without_redis_uses_local_levels() {
    let redis = Redis::stopped();
    let rules = "[rules.all]\nper = []\nrate = \"10/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}{FULL}", redis.table()));
    assert_eq!(gateway.get("/").status, 200);
    let explanation = gateway.explain("{}").json();
    assert_eq!(explanation["levels"], "local");
    assert_eq!(explanation["rules"][0]["tokens"], 9);
}

/// During an outage, an explanation follows `on_failure` of each rule.
#[test]
fn explain_without_redis_follows_on_failure() {
    let redis = Redis::stopped();
    let rule = |name: &str, rest: &str| {
        format!("[rules.{name}]\nper = []\nrate = \"10/d\"\nroutes = [\"all\"]\n{rest}\n")
    };
    let waiving = rule("open", "on_failure = \"allow\"");
    let gateway =
        Gateway::start(&format!("{DEMO}{waiving}{}{}{FULL}", rule("all", ""), redis.table()));
    let explanation = gateway.explain("{}").json();
    assert_eq!(explanation["levels"], "local", "{explanation:#}");
    let [open, all] = ["open", "all"].map(|name| {
        let rules = explanation["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["name"] == name).unwrap()
    });
    assert_eq!((&open["waived"], &open["tokens"]), (&json!(true), &json!(null)));
    assert_eq!((&all["waived"], &all["tokens"]), (&json!(null), &json!(10)));
    assert_eq!(explanation["verdict"]["decision"], "allow");

    let denying = rule("shut", "on_failure = \"deny\"");
    let gateway = Gateway::start(&format!("{DEMO}{denying}{}", redis.table()));
    let explanation = gateway.explain("{}").json();
    assert_eq!(explanation["levels"], "unavailable", "{explanation:#}");
    let verdict = &explanation["verdict"];
    assert_eq!((&verdict["decision"], &verdict["status"]), (&json!("deny"), &json!(503)));
    assert_eq!(gateway.get("/").status, 503, "the gateway does as explained");
}

#[test]
fn invalid_explain_requests_are_400_with_the_reason() {
    let gateway = Gateway::start(DEMO);
    let table = [
        ("{", 400, "the body is not JSON: error at line 1, column 1"),
        ("{\"kee\": \"a\"}", 400, "the body has an unknown name `kee`: did you mean `key`?"),
        ("{\"key\": 5318008}", 400, "`key` is a number, not a string"),
        ("{\"path\": \"/a b\"}", 400, "the path contains a space or a control character"),
        ("", 400, "the body is not JSON"),
    ];
    for (body, status, detail) in table {
        let answer = gateway.explain(body);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let view = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(view.starts_with(detail), "{view}");
        assert!(!view.contains("5318008"), "{view}");
    }
    let long = format!("{{\"path\": \"/{}\"}}", "x".repeat(64 * 1024));
    assert_eq!(gateway.explain(&long).status, 413);
    let just = format!("{{\"path\": \"/{}\"}}", "x".repeat(64 * 1024 - 13));
    assert_eq!(gateway.explain(just).json()["verdict"]["status"], 414);
    let answer = gateway.admin("/api/explain");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    let post = Request::new("POST", "/metrics").body("");
    let answer = gateway.send_admin(&post);
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
}

/// The example in the documentation is the output of the program.
#[test]
fn explain_example_in_docs_is_current() {
    let page = include_str!("../../docs/explain.md");
    let (call, shown) = page.split_once("$ tollgate ").unwrap().1.split_once('\n').unwrap();
    let shown = shown.split_once("```").unwrap().0;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
    let call: Vec<&str> = call.split(' ').chain(["-c", file]).collect();
    assert_eq!(tollgate(&call, "").stdout, shown);
}

#[test]
fn explain_command_needs_no_gateway() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
    let call = ["explain", "-c", file, "--path", "/api/search", "--key", "demo-pro"];
    let text = tollgate(&call, "");
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.contains("acme, by its key in header:x-api-key"), "{}", text.stdout);
    assert!(text.stdout.contains("POST /api/explain"), "{}", text.stdout);
    assert!(!text.stdout.contains("demo-pro"), "{}", text.stdout);
    let json = tollgate(&[&call[..], &["--json", "--header", "x-api-key: no"]].concat(), "");
    let explanation: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, explanation["verdict"]["status"].as_u64()), (Some(0), Some(400)));
    let wrong = [
        &["explain", "-c", "/none"][..],
        &["explain", "-c", file, "--path", "/a b"],
        &["explain", "-c", file, "--header", "x"],
        &["explain", "-c", file, "--ip", "here"],
        &["explain", "-c", file, "--key", "a\nb"],
    ];
    for call in wrong {
        let outcome = tollgate(call, "");
        assert_eq!((outcome.code, &*outcome.stdout), (Some(64), ""), "{outcome:?}");
        assert!(outcome.stderr.starts_with("error: "), "{outcome:?}");
    }
}
