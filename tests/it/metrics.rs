//! What the operator sees: every request is counted, under names of the file and no others.

use std::time::Duration;

use crate::support::{DEMO, Gateway, Request, key, swarm, timed};

#[test]
fn every_answer_is_counted_by_route_plan_and_status() {
    let config = r#"
[plans.pro]

[routes.limited]
path = "/limited"
upstream = "api"

[rules.limited]
per = ["key"]
routes = ["limited"]
rate = "1/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{config}{}", key("acme", "secret", "pro")));
    let acme = |path: &str| Request::get(path).header("X-Api-Key", "secret");
    for request in [
        Request::get("/"),
        acme("/"),
        acme("/limited"),
        acme("/limited"),
        Request::get("/a/../b"),
        acme("/").header("X-Api-Key", "other"),
        Request::get("/").header("X-Api-Key", "unknown"),
    ] {
        gateway.send(&request);
    }
    // The last of them is counted when all of it is over, a moment after its answer.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    // (route, plan, status) -> requests; empty where a request did not come so far.
    let table = [
        (("all", "free", "200"), 1),
        (("all", "pro", "200"), 1),
        (("limited", "pro", "200"), 1),
        (("limited", "pro", "429"), 1),
        (("", "free", "400"), 1),
        (("", "", "400"), 1),
        (("all", "free", "401"), 1),
    ];
    for ((route, plan, status), expected) in table {
        let labels = [("route", route), ("plan", plan), ("status", status)];
        assert_eq!(gateway.count("tollgate_requests_total", &labels), expected, "{labels:?}");
    }
    assert_eq!(gateway.count("tollgate_requests_total", &[]), 7);
    let durations = "tollgate_request_duration_seconds_count";
    assert_eq!(gateway.count(durations, &[("route", "all")]), 3);
    assert_eq!(gateway.count(durations, &[("route", "limited")]), 2);
    assert_eq!(gateway.count("tollgate_check_duration_seconds_count", &[("source", "local")]), 2);
}

#[test]
fn row_72_clients_make_no_series() {
    let rules = "[rules.r]\nper = [\"key\", \"ip\", \"header:x-tenant\"]\nrate = \"9/d\"\n";
    let trusted = "trusted_proxies = [\"127.0.0.1\"]\n";
    let accept = "[clients]\non_unknown_key = \"accept\"\n";
    let gateway = Gateway::start(&format!("{trusted}{DEMO}{rules}{accept}"));
    let url = gateway.url("/");
    let series = || gateway.metrics().lines().filter(|line| line.starts_with("tollgate")).count();
    let meet = |count: usize| {
        swarm(count, |client, number| {
            client
                .get(format!("{url}path/{number}"))
                .header("x-api-key", format!("key-{number}"))
                .header("x-tenant", format!("tenant-{number}"))
                .header("x-forwarded-for", format!("10.0.{}.{}", number / 256, number % 256))
        })
    };
    meet(1);
    // A request is counted when all of it is over, a moment after its answer.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let before = series();
    meet(1_000);
    assert_eq!(series(), before);
}

#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_72_a_hundred_thousand_clients_make_no_larger_page() {
    const CLIENTS: usize = 100_000;
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"9/d\"\n[rules.all]\nper = []\nrate = \"9/s\"\nmode = \"shadow\"\n";
    let gateway = Gateway::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{DEMO}{rules}"));
    let url = gateway.url("/");
    let meet = |from: usize, count: usize| {
        swarm(count, |client, number| {
            let [.., a, b, c] = (from + number).to_be_bytes();
            client.get(&url).header("x-forwarded-for", format!("11.{a}.{b}.{c}"))
        })
    };
    meet(0, CLIENTS / 2);
    let (_, before) = gateway.memory_bytes();
    meet(CLIENTS / 2, CLIENTS / 2);
    let (page, took) = timed(|| gateway.metrics());
    assert!(page.len() < 200_000, "{} bytes", page.len());
    assert!(took < Duration::from_millis(50), "{took:?}");
    let (top, took) = timed(|| gateway.admin("/api/clients?limit=100"));
    assert!(top.text().len() < 100_000, "{} bytes", top.text().len());
    assert!(took < Duration::from_secs(1), "{took:?}");
    // The second half needs room for its buckets, and for nothing else.
    let grown = gateway.memory_bytes().1.saturating_sub(before) >> 20;
    println!("{} bytes of metrics, {} of clients, {grown} MiB more", page.len(), top.text().len());
    assert!(grown < 24, "memory grew by {grown} MiB");
}
