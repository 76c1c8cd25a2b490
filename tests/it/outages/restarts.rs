//! Restarts of the gateway: tokens granted without Redis are not granted again.

use super::{breaker, config, decided_by, get, linked, request};
use crate::support::{Gateway, Redis, Request, eventually};

/// A rate that refills no token during a test.
const FIVE_AN_HOUR: &str = "rate = \"5/h\"";

/// Number of ten requests that are allowed.
fn passed(gateway: &Gateway) -> usize {
    (0..10).filter(|_| get(gateway) == 200).count()
}

/// Overrides the breaker.
#[track_caller]
fn set_breaker(gateway: &Gateway, state: &str) {
    let body = format!("{{\"state\": \"{state}\"}}");
    let answer = gateway.send_admin(&Request::new("POST", "/api/breaker").body(body));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Stops a gateway with SIGTERM and returns its log.
#[track_caller]
fn terminated(mut gateway: Gateway) -> String {
    gateway.terminate();
    let (code, _) = gateway.exit();
    assert_eq!(code, Some(0), "{}", gateway.log());
    gateway.log()
}

/// Whether the gateway has reached Redis since its start.
fn reached(gateway: &Gateway) -> serde_json::Value {
    gateway.admin("/api/status").json()["redis"]["reached"].clone()
}

/// Waits until unknown buckets start full: the connection is noted after it is logged.
#[track_caller]
fn wait_until_reached(gateway: &Gateway) {
    linked(gateway);
    eventually("Redis to be reached", || (reached(gateway) == true).then_some(()));
}

/// Redis is reachable all the time: a restart loses no debt.
#[test]
fn sigterm_settles_debts() {
    let redis = Redis::start();
    let text = config(&redis.table(), FIVE_AN_HOUR);
    let gateway = Gateway::start(&text);
    wait_until_reached(&gateway);
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

/// The documented bound is 5 + 2 * 5, for any number of starts while Redis is down.
#[test]
fn restarts_in_an_outage_stay_within_the_bound() {
    let redis = Redis::stopped();
    let text = config(&redis.table(), FIVE_AN_HOUR);
    let starts = (0..5).map(|_| {
        let gateway = Gateway::start(&text);
        let passed = passed(&gateway);
        eventually("the breaker to open", || (breaker(&gateway) == 2).then_some(()));
        terminated(gateway);
        passed
    });
    let passed: usize = starts.sum();
    assert!(passed <= 15, "{passed} passed");
}

/// `start_without = "full"` prefers additional bursts to denied requests.
#[test]
fn start_without_full_grants_a_burst_for_each_start() {
    let redis = Redis::stopped();
    let text = config(&format!("{}start_without = \"full\"\n", redis.table()), FIVE_AN_HOUR);
    for _ in 0..2 {
        let gateway = Gateway::start(&text);
        assert_eq!(passed(&gateway), 5);
        terminated(gateway);
    }
}

/// Once Redis has been reached, unknown buckets start full, as without a restart.
#[test]
fn buckets_start_empty_until_redis_is_reached() {
    let mut redis = Redis::stopped();
    let gateway = Gateway::start(&config(&redis.table(), FIVE_AN_HOUR));
    assert_eq!(passed(&gateway), 0);
    let log = gateway.log();
    assert!(log.contains("Redis not reached at the start"), "{log}");
    assert_eq!(reached(&gateway), false);
    redis.launch();
    wait_until_reached(&gateway);
    redis.kill();
    eventually("the breaker to open", || (breaker(&gateway) == 2).then_some(()));
    // A client without a key, whose bucket is unknown to the gateway.
    let passed = (0..10).filter(|_| gateway.get("/").status == 200).count();
    assert_eq!(passed, 5);
}

/// Client connections wait for the first connection attempt to Redis.
#[test]
fn first_request_after_the_start_is_decided_by_redis() {
    let redis = Redis::start();
    let text = config(&redis.table(), "rate = \"100/d\"");
    for start in 1..=5 {
        let gateway = Gateway::start(&text);
        let answer = gateway.send(&request());
        assert_eq!((answer.status, decided_by(&gateway, "redis")), (200, 1), "start {start}");
        assert_eq!(answer.remaining(), 100 - start);
    }
}

/// Unsettled debts are logged and do not delay the shutdown.
#[test]
fn sigterm_without_redis_logs_unsettled_debts() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&config(&redis.table(), FIVE_AN_HOUR));
    wait_until_reached(&gateway);
    redis.kill();
    eventually("the breaker to open", || (breaker(&gateway) == 2).then_some(()));
    assert_eq!(passed(&gateway), 5);
    let log = terminated(gateway);
    assert!(log.contains("debts not settled buckets=1 tokens=5"), "{log}");
}
