use serde_json::{Value, json};

use super::*;

fn run(first: &str, last: &str, count: u64, more: &Value) -> Value {
    let mut run = json!({
        "first": format!("2026-11-21T{first}.000250Z"), "last": format!("2026-11-21T{last}.310002Z"),
        "count": count, "kind": "limit", "status": 429, "reason": "limited", "key": "acme",
        "key_from": null, "ip": "203.0.113.7", "rule": "per-key", "plan": "pro", "rate": "100/s",
        "burst": 500, "route": "search", "other_routes": false, "cost": 5, "tokens": 3,
        "generation": 1, "open": false, "gateway": "9d0b1c6e5f2a4837",
    });
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run
}

fn page(search: Search, runs: &[Value], more: &Value) -> Page {
    let mut answer = json!({
        "refusal_runs": runs, "more": 0, "dropped": 0, "kept_since": "2026-11-21T08:00:00.000000Z",
        "time_zone": "+01:00",
    });
    answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let refusals = serde_json::from_value(answer).unwrap();
    let buckets = json!({ "levels": "redis", "rules": [
        { "rule": "per-key", "rate": "100/s", "burst": 500, "window_ms": 5_000, "tokens": 2, "full_after_ms": 4_975 },
        { "rule": "search", "tokens": null, "full_after_ms": null },
    ] });
    let buckets = serde_json::from_value(buckets).unwrap();
    Page { search, refusals, buckets: vec![("/api/clients/key/acme".to_owned(), buckets)] }
}

fn of_acme() -> Search {
    Search { key: Some("acme".to_owned()), ..Search::default() }
}

#[test]
fn key_refused_by_a_limit() {
    let runs = vec![
        run("09:04:01", "09:04:19", 200, &json!({ "open": true, "other_routes": true })),
        run("09:03:01", "09:03:50", 212, &json!({})),
    ];
    insta::assert_snapshot!(page(of_acme(), &runs, &json!({ "more": 3 })).render());
}

/// Any client of Redis can write to the stream.
#[test]
fn counts_beyond_all_numbers_are_not_added_up() {
    let run = |at| run(at, at, u64::MAX, &json!({}));
    let page = page(of_acme(), &[run("09:04:01"), run("09:03:01")], &json!({}));
    assert!(page.render().contains(&format!("refused {} requests", u64::MAX)));
}

#[test]
fn every_kind_over_all_gateways() {
    let none = json!({ "key": null, "rule": null, "plan": null, "rate": null, "burst": null,
        "cost": null, "tokens": null, "kind": "unauthorized", "status": 401 });
    let with = |more: Value| {
        let mut all = none.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let unknown = with(json!({ "reason": "unknown_key", "key_from": "header:x-api-key" }));
    let missing = with(json!({ "reason": "missing_key", "ip": null, "route": null }));
    let unavailable = json!({ "kind": "unavailable", "status": 503, "reason": "redis_unavailable",
        "tokens": null, "gateway": "1111111111111111" });
    let shadow = json!({ "kind": "shadow", "status": null, "reason": null, "rule": "planned" });
    let runs = vec![
        run("09:03:01", "09:03:01", 1, &unavailable),
        run("09:03:01", "09:03:02", 2, &unknown),
        run("09:03:01", "09:03:02", 3, &missing),
        run("09:03:01", "09:03:02", 4, &shadow),
    ];
    let search = Search { all_gateways: true, ..Search::default() };
    let incomplete = json!({ "incomplete": "Redis did not answer within 3 s" });
    insta::assert_snapshot!(page(search, &runs, &incomplete).render());
}

#[test]
fn nothing_found_says_what_was_searched_and_what_else_to_try() {
    let range = json!({ "since": "2026-11-21T09:03:00Z", "until": "2026-11-21T09:05:00Z" });
    insta::assert_snapshot!(page(of_acme(), &[], &range).render());
}

#[test]
fn nothing_found_on_this_gateway_is_not_said_of_all_gateways() {
    let search = Search { all_gateways: true, ..of_acme() };
    let incomplete = json!({ "incomplete": "Redis did not answer within 3 s" });
    let text = page(search, &[], &incomplete).render();
    assert!(text.starts_with("No refusals of key acme on this gateway (times"), "{text}");
    assert!(text.ends_with("\nIncomplete: Redis did not answer within 3 s.\n"), "{text}");
}

#[test]
fn wait_for_the_cost_follows_from_the_time_to_full() {
    let bucket = |window_ms: Option<u64>, burst, full_after_ms| -> RuleBucket {
        let bucket = json!({
            "rule": "r", "window_ms": window_ms, "burst": burst, "tokens": 0, "full_after_ms": full_after_ms
        });
        serde_json::from_value(bucket).unwrap()
    };
    for (window_ms, burst, full_after_ms, cost, expected) in [
        // 20/m, burst 50.
        (Some(150_000), 50, 150_000, "5", Some(15_000)),
        (Some(150_000), 50, 135_000, "5", Some(0)),
        (Some(150_000), 50, 150_000, "0.5", Some(1_500)),
        // 3/250ms, burst 10.
        (Some(834), 10, 834, "1", Some(84)),
        // 1/h, burst 1.
        (Some(3_600_000), 1, 3_599_001, "1", Some(3_599_001)),
        (Some(3_600_000), 1, 3_599_001, "1.001", None),
        (Some(1), 0, 1, "0.001", None),
        (None, 1, 1, "1", None),
    ] {
        let bucket = bucket(window_ms, burst, full_after_ms);
        let wait_ms = bucket.wait_ms(Cost::parse(cost).unwrap());
        assert_eq!(wait_ms, expected, "{window_ms:?} {cost}");
    }
}

#[test]
fn bucket_of_a_gateway_without_redis_is_named_as_such() {
    let mut page = page(of_acme(), &[run("09:03:01", "09:03:50", 212, &json!({}))], &json!({}));
    page.buckets[0].1.levels = "local".into();
    let text = page.render();
    let expected = "with 429; this gateway, without Redis, holds its bucket, which has 2 tokens now, 5 in 1 s, \
                    and is full again in 5 s.";
    assert!(text.contains(expected), "{text}");
}

/// A client with a wrong key shares its address with clients without one.
#[test]
fn sentence_says_what_key_the_requests_had() {
    let of = |key_state: &str, from: Value, reason: &str| {
        let more = json!({ "key": null, "key_state": key_state, "key_from": from, "reason": reason,
            "rule": "per-ip", "plan": "free" });
        let text = page(Search::default(), &[run("09:03:01", "09:03:01", 21, &more)], &json!({}));
        text.render().lines().next().unwrap().to_owned()
    };
    let missing = of("missing", Value::Null, "limited");
    assert!(missing.contains("21 requests of address 203.0.113.7 without a key at"), "{missing}");
    let unknown = of("unknown", json!("header:x-api-key"), "limited_unknown_key");
    let words = "of address 203.0.113.7 with an unknown key in header:x-api-key at";
    assert!(unknown.contains(words), "{unknown}");
    let refused = of("refused", json!("bearer"), "limited_refused_key");
    assert!(refused.contains(" with a refused key or token in bearer at"), "{refused}");
    let unverified = of("unverified", json!("bearer"), "limited_unverified_key");
    assert!(unverified.contains(" with an unverified key or token in bearer at"), "{unverified}");
}

#[test]
fn changes_are_a_table() {
    let change = |at: &str, clients: Value, what: &str| {
        json!({ "at": format!("2026-11-21T{at}.000250Z"), "by": "billing", "peer": null,
            "call": "POST /api/keys", "status": 201, "what": what, "clients": clients,
            "gateway": null })
    };
    let changes = json!([
        change("09:04:01", json!(["a", "b", "c"]), "3 clients imported, 0 unchanged, 0 failed"),
        change("09:03:01", json!(["acme"]), "client acme disabled"),
        change("09:02:01", json!([]), "breaker open"),
    ]);
    let page = page(of_acme(), &[], &json!({ "changes": changes, "more_changes": 2 }));
    insta::assert_snapshot!(page.render());
}
