//! A gateway that restarts: what it granted without Redis is not granted again.

use super::{breaker, config, decided_by, get, linked};
use crate::support::{Gateway, Redis, Request, eventually};

/// A rate that gives nothing back while a test runs.
const FIVE_AN_HOUR: &str = "rate = \"5/h\"";

/// How many of ten requests pass.
fn passed(gateway: &Gateway) -> usize {
    (0..10).filter(|_| get(gateway) == 200).count()
}

/// Overrides the breaker.
#[track_caller]
fn set_breaker(gateway: &Gateway, state: &str) {
    let body = format!("{{\"state\": \"{state}\"}}");
    let answer = gateway.ask_admin(&Request::new("POST", "/api/breaker").body(body));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Ends a gateway by SIGTERM. Returns what it logged.
#[track_caller]
fn terminated(mut gateway: Gateway) -> String {
    gateway.terminate();
    let (code, _) = gateway.exit();
    assert_eq!(code, Some(0), "{}", gateway.log());
    gateway.log()
}

/// Redis could be reached all the time: a restart forgets nothing.
#[test]
fn sigterm_settles_debts() {
    let redis = Redis::start();
    let text = config(&redis.table(), FIVE_AN_HOUR);
    let gateway = Gateway::start(&text);
    linked(&gateway);
    set_breaker(&gateway, "open");
    assert_eq!(passed(&gateway), 5, "granted without Redis");
    set_breaker(&gateway, "auto");
    let log = terminated(gateway);
    assert!(log.contains("debts settled buckets=1 tokens=5"), "{log}");
    let restarted = Gateway::start(&text);
    linked(&restarted);
    assert_eq!(passed(&restarted), 0);
    assert!(decided_by(&restarted, "redis") > 0);
}

/// Debts that Redis does not take are named in the log, and do not hold the end up.
#[test]
fn sigterm_without_redis_logs_what_is_lost() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&config(&redis.table(), FIVE_AN_HOUR));
    linked(&gateway);
    redis.kill();
    eventually("the breaker to open", || (breaker(&gateway) == 2).then_some(()));
    assert_eq!(passed(&gateway), 5);
    let log = terminated(gateway);
    assert!(log.contains("debts not settled buckets=1 tokens=5"), "{log}");
}
