//! It is there and does not answer, or too late.

use std::time::Duration;

use super::{FREELY, Scene, connected, heals, opens, survives, times_opened};
use crate::support::{Gateway, Mode, Redis, Request, eventually, key, lasting, rush};

#[test]
fn row_02_hanging_redis_fails_no_request() {
    let scene = Scene::start(FREELY);
    survives(&scene.gateway, || scene.redis.pause(), || scene.redis.resume());
}

#[test]
fn row_02_hanging_network_fails_no_request() {
    Scene::start(FREELY).survives(Mode::Hang);
}

#[test]
fn row_03_redis_sleeping_for_two_seconds_fails_no_request() {
    let scene = Scene::start(FREELY);
    std::thread::scope(|scope| {
        scope.spawn(|| scene.redis.ask::<String>(&["DEBUG", "SLEEP", "2"]));
        opens(&scene.gateway);
    });
    heals(&scene.gateway);
}

/// Each call would take three budgets: Redis is let alone, and is not tried again and again.
#[test]
fn row_03_breaker_stays_open_while_redis_is_too_slow() {
    let scene = Scene::with_patience("10ms", FREELY);
    scene.proxy.set(Mode::Delay(Duration::from_millis(30)));
    opens(&scene.gateway);
    let opened = times_opened(&scene.gateway);
    lasting(Duration::from_secs(3));
    assert!(times_opened(&scene.gateway) <= opened + 1, "at most once per window of 5 s");
    scene.proxy.set(Mode::Pass);
    heals(&scene.gateway);
}

/// Never five timeouts in a row, but half of all calls.
#[test]
fn row_03_breaker_opens_if_every_second_call_is_too_slow() {
    let scene = Scene::with_patience("100ms", FREELY);
    scene.proxy.set(Mode::DelayAlternate(Duration::from_millis(150)));
    opens(&scene.gateway);
    scene.proxy.set(Mode::Pass);
    heals(&scene.gateway);
}

/// An answer that comes too late is nobody's: every client sees its own limit, and never more left
/// than its own requests have left.
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
    connected(&gateway);
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

/// A script that does not end, which Redis first keeps silent about and then says.
#[test]
fn row_21_redis_blocked_by_a_script_fails_no_request() {
    let redis = Redis::start();
    let gateway = Gateway::start(&super::config(&redis.table_with_patience("50ms"), FREELY));
    connected(&gateway);
    redis.configure("lua-time-limit", "300");
    std::thread::scope(|scope| {
        let script = scope.spawn(|| redis.session().say(&["EVAL", "while true do end", "0"]));
        opens(&gateway);
        eventually("the script to be killed", || {
            super::get(&gateway);
            redis.try_ask::<String>(&["SCRIPT", "KILL"]).ok()
        });
        assert!(script.join().unwrap().is_err(), "killed");
    });
    heals(&gateway);
}

/// Hundreds of requests at once, and nobody answers: none of them fails.
#[test]
fn row_02_500_clients_pass_while_redis_hangs() {
    let scene = Scene::with_patience("10ms", FREELY);
    scene.redis.pause();
    let tally = rush(500, 2_000, |client, _| {
        client.get(scene.gateway.url("/")).header("X-Api-Key", "secret")
    });
    scene.redis.resume();
    assert_eq!(tally.get(&200), Some(&2_000), "{tally:?}");
    heals(&scene.gateway);
}
