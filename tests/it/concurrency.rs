//! Limits on requests in flight: `kind = "concurrency"`.

mod chaos;
mod cluster;
mod counting;
mod gateways;
mod outages;

use std::time::Duration;

use crate::support::{
    Connection, Gateway, Redis, Request, Stopwatch, check, eventually, full_config, proxy_to,
    within,
};
use counting::Counting;

/// A configuration with one limit on all requests in flight.
fn config(upstream: &Counting, more: &str, settings: &str) -> String {
    let rule = format!("[rules.in-flight]\nper = []\nkind = \"concurrency\"\n{settings}\n");
    // However busy the machine is, requests that the upstream does not answer last.
    let upstream = proxy_to(&[upstream.address()])
        .replace("\n\n[routes", "\nread_timeout = \"10m\"\n\n[routes");
    format!("{upstream}{more}\n{rule}")
}

/// A request that the upstream does not answer, on a connection of its client. Waits until the
/// upstream has it. Is sent again if it is refused: a client can have its response just before the
/// gateway releases the unit.
fn hang(gateway: &Gateway, upstream: &Counting) -> Connection {
    eventually("the upstream to have the request", || {
        // At each attempt: requests that another client gave up may still end.
        let before = upstream.now();
        let mut connection = gateway.connect();
        connection.write(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
        let arrived = || (upstream.now() > before).then_some(());
        within(Duration::from_millis(500), arrived).map(|()| connection)
    })
}

/// Sends requests that the upstream does not answer until one is refused. Returns the connections
/// of the others.
fn fill(gateway: &Gateway, upstream: &Counting) -> Vec<Connection> {
    let mut connections = Vec::new();
    let is_free = || (gateway.get("/").status == 200).then_some(());
    // A unit is released just after the response, and in Redis some milliseconds later: on a busy
    // machine, that takes longer than the next request.
    while within(Duration::from_millis(200), is_free).is_some() {
        connections.push(hang(gateway, upstream));
    }
    connections
}

fn held(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_held_units", &[("rule", "in-flight")])
}

#[test]
fn responses_say_what_is_free_and_guess_when_to_retry() {
    let upstream = Counting::start();
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let gateway = Gateway::start(&config(&upstream, &table, "limit = 2"));
        if !table.is_empty() {
            eventually("Redis", || (gateway.admin("/ready").status == 200).then_some(()));
        }
        let passed = gateway.get("/");
        assert_eq!((passed.status, passed.remaining()), (200, 1));
        assert_eq!(passed.header("x-ratelimit-limit"), Some("2"));
        let policy = "\"in-flight\";q=2;qu=\"concurrent-requests\"";
        assert_eq!(passed.header("ratelimit-policy"), Some(policy));
        let hanging = fill(&gateway, &upstream);
        assert_eq!((hanging.len(), held(&gateway)), (2, 2));
        let refused = gateway.get("/");
        assert_eq!((refused.status, refused.remaining()), (429, 0));
        assert_eq!(refused.header("x-ratelimit-reason"), Some("in-flight"));
        let retry_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=2).contains(&retry_s), "{retry_s}");
        let words = "Limit \\\"in-flight\\\" (2 in flight, plan free) is used by requests in flight; \
                     retry in about ";
        assert!(refused.text().contains(words), "{}", refused.text());
        // A unit is free as soon as a client leaves, and as soon as a response has ended.
        drop(hanging);
        eventually("both units to be free", || (held(&gateway) == 0).then_some(()));
        let mut connection = gateway.connect();
        for _ in 0..50 {
            assert_eq!(connection.send(&Request::get("/")).status, 200);
        }
        // Nothing is left in this gateway, nor in Redis for the next one.
        drop(gateway);
    }
    assert_eq!(upstream.peak(), 2);
}

#[test]
fn cost_is_the_number_of_units() {
    let upstream = Counting::start();
    let text = config(&upstream, "", "limit = 5").replace("path = ", "cost = 2.5\npath = ");
    let gateway = Gateway::start(&text);
    let first = hang(&gateway, &upstream);
    let second = hang(&gateway, &upstream);
    assert_eq!(gateway.get("/").status, 429);
    drop(first);
    eventually("a request to pass", || (gateway.get("/").status == 200).then_some(()));
    drop(second);
    assert_eq!(upstream.peak(), 2);
}

#[test]
fn cost_of_the_rule_replaces_that_of_the_route() {
    let upstream = Counting::start();
    let text =
        config(&upstream, "", "limit = 2\ncost = 1").replace("path = ", "cost = 20\npath = ");
    let gateway = Gateway::start(&text);
    let hanging = [hang(&gateway, &upstream), hang(&gateway, &upstream)];
    let refused = gateway.get("/");
    assert_eq!(refused.status, 429);
    assert!(!refused.text().contains("20 tokens"), "{}", refused.text());
    drop(hanging);
    eventually("it to be free", || (held(&gateway) == 0).then_some(()));
}

#[test]
fn shadow_rule_counts_and_refuses_nothing() {
    let upstream = Counting::start();
    let gateway = Gateway::start(&config(&upstream, "", "limit = 1\nmode = \"shadow\""));
    let hanging: Vec<Connection> = (0..3).map(|_| hang(&gateway, &upstream)).collect();
    let label = ("decision", "shadow_deny");
    assert_eq!(gateway.count("tollgate_decisions_total", &[label]), 2);
    assert_eq!(held(&gateway), 1);
    drop(hanging);
    eventually("it to be free", || (held(&gateway) == 0).then_some(()));
}

#[test]
fn reload_keeps_what_is_held() {
    let upstream = Counting::start();
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let with = |limit: usize| config(&upstream, &table, &format!("limit = {limit}"));
        let gateway = Gateway::start(&with(3));
        if !table.is_empty() {
            eventually("Redis", || (gateway.admin("/ready").status == 200).then_some(()));
        }
        let mut hanging = fill(&gateway, &upstream);
        assert_eq!(hanging.len(), 3);
        gateway.apply(&with(4));
        hanging.extend(fill(&gateway, &upstream));
        assert_eq!(hanging.len(), 4);
        gateway.apply(&with(2));
        hanging.pop();
        hanging.pop();
        eventually("two to be left", || (held(&gateway) == 2).then_some(()));
        assert_eq!(gateway.get("/").status, 429, "as many are in flight as may be");
        // The rule is removed while requests hold its units, and comes back.
        gateway.apply(&format!("{}{table}", proxy_to(&[upstream.address()])));
        assert_eq!(gateway.get("/").status, 200);
        hanging.pop();
        eventually("the release to count", || (held(&gateway) == 1).then_some(()));
        gateway.apply(&with(2));
        hanging.extend(fill(&gateway, &upstream));
        assert_eq!(hanging.len(), 2);
        // Of another kind, it is full.
        let bucket =
            with(2).replace("concurrency", "token_bucket").replace("limit = 2", "rate = \"2/d\"");
        gateway.apply(&bucket);
        assert_eq!([0; 3].map(|_| gateway.get("/").status), [200, 200, 429]);
        drop(hanging);
        eventually("all to be released", || (held(&gateway) == 0).then_some(()));
        assert_eq!(gateway.get("/").status, 429, "a release adds nothing to the token bucket");
        gateway.apply(&with(2));
        let hanging = fill(&gateway, &upstream);
        assert_eq!(hanging.len(), 2);
        drop(hanging);
        eventually("all to be released", || (upstream.now() == 0).then_some(()));
    }
}

#[test]
fn reset_frees_units_of_requests_in_flight_once() {
    let upstream = Counting::start();
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let limits = "[clients]\nlimits_path = \"/limits\"\n";
        let text = config(&upstream, &format!("{limits}{table}"), "limit = 2");
        let gateway = Gateway::start(&text.replace("per = []", "per = [\"ip\"]"));
        if !table.is_empty() {
            eventually("Redis", || (gateway.admin("/ready").status == 200).then_some(()));
        }
        let old = fill(&gateway, &upstream);
        let client = || gateway.admin("/api/clients/ip/127.0.0.1/buckets").json();
        let shown = client();
        assert_eq!(shown["rules"][0]["tokens"], 0, "{shown}");
        let own = gateway.get("/limits").json();
        let own = &own["rules"][0];
        assert_eq!((&own["limit"], &own["remaining"]), (&2.into(), &0.into()), "{own}");
        let explained = gateway.explain(r#"{"ip":"127.0.0.1"}"#);
        assert!(explained.text().contains("\"kind\": \"concurrency\""), "{}", explained.text());
        let reset = Request::new("POST", "/api/clients/ip/127.0.0.1/reset");
        let answer = gateway.send_admin(&reset);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(client()["rules"][0]["tokens"], 2);
        let new = fill(&gateway, &upstream);
        assert_eq!(new.len(), 2);
        drop(old);
        eventually("the old ones to end", || (upstream.now() == 2).then_some(()));
        assert_eq!(gateway.get("/").status, 429, "they free no units of the new ones");
        drop(new);
        eventually("a request to pass", || (gateway.get("/").status == 200).then_some(()));
    }
}

#[test]
fn request_that_waits_in_a_leaky_bucket_holds_its_unit() {
    let upstream = Counting::start();
    let leaky =
        "[rules.shape]\nper = []\nkind = \"leaky_bucket\"\nrate = \"1/4s\"\nmax_delay = \"1m\"\n";
    let gateway = Gateway::start(&config(&upstream, leaky, "limit = 1"));
    assert_eq!(gateway.get("/").status, 200);
    eventually("its unit to be free", || (held(&gateway) == 0).then_some(()));
    let mut waiting = gateway.connect();
    waiting.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it to wait", || {
        (gateway.count("tollgate_waiting_requests", &[]) == 1).then_some(())
    });
    assert_eq!(gateway.get("/").status, 429);
    assert_eq!(held(&gateway), 1);
    drop(waiting);
    eventually("the unit to be free", || (held(&gateway) == 0).then_some(()));
}

#[test]
fn refused_request_of_an_exhausted_client_holds_nothing() {
    let upstream = Counting::start();
    let redis = Redis::start();
    let bucket = "[rules.rate]\nper = []\nrate = \"1/d\"\n";
    let text = config(&upstream, &format!("{bucket}{}", redis.table()), "limit = 3");
    let gateway = Gateway::start(&text);
    eventually("Redis", || (gateway.admin("/ready").status == 200).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
    let calls = redis.script_calls();
    let watch = Stopwatch::start();
    for _ in 0..100 {
        let refused = gateway.get("/");
        assert_eq!((refused.status, refused.header("x-ratelimit-reason")), (429, Some("rate")));
    }
    assert_eq!(held(&gateway), 0);
    // The deny cache knows the token bucket, and needs to know no units. A heartbeat and a renewal
    // may come between, and each second a call for the expired entry.
    let (calls, took) = (redis.script_calls() - calls, watch.elapsed());
    assert!(calls < 20 + 3 * took.as_secs(), "{calls} calls in {took:?}");
}

#[test]
fn check_and_policy_show_the_limit() {
    let upstream = Counting::start();
    let text = config(&upstream, "", "limit = 20\nplans.free = { limit = 5 }");
    let outcome = check(full_config(&text).as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let gateway = Gateway::start(&text);
    let policy = gateway.admin("/api/policy").json();
    let rule = &policy["rules"][0];
    assert_eq!(rule["kind"], "concurrency");
    let limits = rule["limits"].as_array().unwrap();
    assert!(
        limits.iter().any(|limit| limit["rate"] == "5 in flight" && limit["burst"] == 5),
        "{rule}"
    );
}
