//! Redis does not respond, or too late.

use std::time::Duration;

use super::{
    Fixture, HIGH_RATE, assert_survives, get, times_opened, wait_until_closed,
    wait_until_connected, wait_until_open,
};
use crate::support::{
    CpuWaits, Gateway, Mode, Redis, Request, Stopwatch, eventually, inconclusive_if_stalled, key,
    send_concurrently, sleep_for,
};

#[test]
fn row_02_hanging_redis_fails_no_request() {
    let fixture = Fixture::start(HIGH_RATE);
    assert_survives(&fixture.gateway, || fixture.redis.pause(), || fixture.redis.resume());
}

#[test]
fn row_02_hanging_network_fails_no_request() {
    Fixture::start(HIGH_RATE).assert_survives(Mode::Hang);
}

#[test]
fn row_03_redis_sleeping_for_two_seconds_fails_no_request() {
    let fixture = Fixture::start(HIGH_RATE);
    std::thread::scope(|scope| {
        scope.spawn(|| fixture.redis.query::<String>(&["DEBUG", "SLEEP", "2"]));
        wait_until_open(&fixture.gateway);
    });
    wait_until_closed(&fixture.gateway);
}

/// Each call takes three times the timeout: the breaker stays open.
#[test]
fn row_03_breaker_stays_open_while_redis_is_too_slow() {
    let fixture = Fixture::with_timeout("100ms", HIGH_RATE);
    fixture.proxy.set(Mode::Delay(Duration::from_millis(300)));
    wait_until_open(&fixture.gateway);
    let opened = times_opened(&fixture.gateway);
    // A breaker that closed would open again after five of these.
    let (waits, watch) = (CpuWaits::now(), Stopwatch::start());
    while watch.elapsed().as_secs() < 3 {
        assert_eq!(get(&fixture.gateway), 200);
        sleep_for(Duration::from_millis(10));
    }
    let again = times_opened(&fixture.gateway) - opened;
    // At most once per window of 5 s. A gateway without a CPU from the timeout to the late reply
    // to a probe takes it for one in time, and closes the breaker.
    if again > 1 {
        let late = Duration::from_millis(200);
        let found = format!("{again} times in 3 s");
        inconclusive_if_stalled(&found, waits.stall_of_servers(), late);
    }
    fixture.proxy.set(Mode::Pass);
    wait_until_closed(&fixture.gateway);
}

/// There are never five timeouts in a row, but half of all calls time out.
#[test]
fn row_03_breaker_opens_if_every_second_call_is_too_slow() {
    let fixture = Fixture::with_timeout("100ms", HIGH_RATE);
    fixture.proxy.set(Mode::DelayAlternate(Duration::from_millis(150)));
    wait_until_open(&fixture.gateway);
    fixture.proxy.set(Mode::Pass);
    wait_until_closed(&fixture.gateway);
}

/// A late reply reaches no client: each client sees its own limit and at most its own remaining
/// tokens.
#[test]
fn row_20_late_replies_reach_no_other_client() {
    let redis = Redis::start();
    let proxy = crate::support::FaultProxy::start(&redis);
    let rules = "[plans.small]\n[rules.per-key]\nper = [\"key\"]\nrate = \"500/d\"\n\
                 plans.small = { rate = \"100/d\" }\n";
    let keys = [key("acme", "secret", "free"), key("tiny", "tiny", "small")].concat();
    let table = proxy.table("20ms");
    let demo = crate::support::DEMO;
    let gateway = Gateway::start(&format!("{demo}{table}{rules}{keys}"));
    wait_until_connected(&gateway);
    proxy.set(Mode::DelayAlternate(Duration::from_millis(30)));
    let ask = |secret: &str, limit: &str| {
        let answer = gateway.send(&Request::get("/").header("X-Api-Key", secret));
        assert_eq!(answer.header("x-ratelimit-limit"), Some(limit));
        answer.remaining()
    };
    std::thread::scope(|scope| {
        for (secret, limit) in [("secret", "500"), ("tiny", "100")] {
            let ask = &ask;
            scope.spawn(move || {
                let most: u64 = limit.parse().unwrap();
                for number in 1..60 {
                    let left = ask(secret, limit);
                    assert!(left <= most - number, "{left} after {number} of {most}");
                }
            });
        }
    });
}

/// An endless script: Redis first does not respond, then replies BUSY.
#[test]
fn row_21_redis_blocked_by_a_script_fails_no_request() {
    let redis = Redis::start();
    let gateway = Gateway::start(&super::config(&redis.table_with_timeout("50ms"), HIGH_RATE));
    wait_until_connected(&gateway);
    redis.configure("lua-time-limit", "300");
    std::thread::scope(|scope| {
        let script = scope.spawn(|| redis.session().execute(&["EVAL", "while true do end", "0"]));
        wait_until_open(&gateway);
        eventually("the script to be killed", || {
            get(&gateway);
            redis.try_query::<String>(&["SCRIPT", "KILL"]).ok()
        });
        assert!(script.join().unwrap().is_err(), "killed");
    });
    wait_until_closed(&gateway);
}

/// 500 concurrent requests while Redis hangs: none fails.
#[test]
fn row_02_500_clients_pass_while_redis_hangs() {
    let fixture = Fixture::with_timeout("100ms", HIGH_RATE);
    fixture.redis.pause();
    let counts = send_concurrently(500, 2_000, |client, _| {
        client.get(fixture.gateway.url("/")).header("X-Api-Key", "secret")
    });
    fixture.redis.resume();
    assert_eq!(counts.get(&200), Some(&2_000), "{counts:?}");
    wait_until_closed(&fixture.gateway);
}
