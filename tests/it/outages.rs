//! Redis fails in every way that it can while requests come, and the program goes on: rows 1 to 27
//! of the table of faults. What concerns the connection alone is tested beside it, in
//! `src/store/redis/link/tests/`.

// It is gone, or too far away: killed, unreachable, full of guests.
mod disconnects;
// It is somewhere else: another server has taken its place.
mod failover;
// It is there and does not answer, or too late.
mod timeouts;
// It answers that it will not.
mod error_replies;
// Logins and certificates that are no good, and then are.
mod credentials;
// It answers something else.
mod malformed_replies;
// What clients notice under steady load: nothing.
mod latency;
// What a client may take in an outage, and across it.
mod bounds;
// A gateway that restarts meanwhile.
mod restarts;
// Clocks that jump.
mod clocks;
// What operators and clients get to see of it.
mod observability;
// The same for longer than everybody wants to wait: `make test-outages`.
mod long;

use crate::support::{DEMO, FaultProxy, Gateway, Mode, Redis, Request, eventually, key, sleep_for};

/// Patience with Redis where a test is not about it: more than a busy machine takes away.
const LONG_TIMEOUT: &str = "200ms";

/// A rate that nobody reaches.
const HIGH_RATE: &str = "rate = \"1000000/s\"";

/// Redis, what may go wrong on the way to it, and a gateway that is connected.
struct Fixture {
    redis: Redis,
    proxy: FaultProxy,
    gateway: Gateway,
}

impl Fixture {
    /// With this rate per key, a line of the file.
    fn start(rate: &str) -> Self {
        Self::with_timeout(LONG_TIMEOUT, rate)
    }

    fn with_timeout(timeout: &str, rate: &str) -> Self {
        let redis = Redis::start();
        let proxy = FaultProxy::start(&redis);
        let gateway = Gateway::start(&config(&proxy.table(timeout), rate));
        wait_until_connected(&gateway);
        Self { redis, proxy, gateway }
    }

    /// Has something go wrong on the way, and put right again.
    #[track_caller]
    fn assert_survives(&self, mode: Mode) {
        assert_survives(&self.gateway, || self.proxy.set(mode), || self.proxy.set(Mode::Pass));
    }
}

/// A breaker that is quick to look whether Redis is back, where a test is not about that.
const FAST_BREAKER: &str =
    "\n[redis.breaker]\nopen = \"100ms\"\nopen_max = \"500ms\"\nramp_step = \"100ms\"\n";

/// A rule per key, and a client that has one.
fn config(redis: &str, rate: &str) -> String {
    config_with(FAST_BREAKER, redis, rate)
}

/// The same with another breaker.
fn config_with(breaker: &str, redis: &str, rate: &str) -> String {
    let rule = format!("\n[rules.per-key]\nper = [\"key\"]\n{rate}\n");
    let breaker = if redis.is_empty() { "" } else { breaker };
    [DEMO, redis, breaker, &rule, &key("acme", "secret", "free")].concat()
}

/// A request of the client with a key.
fn request() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

fn get(gateway: &Gateway) -> u16 {
    gateway.send(&request()).status
}

/// How many requests this source has decided.
fn decided_by(gateway: &Gateway, source: &str) -> u64 {
    gateway.count("tollgate_decisions_total", &[("source", source)])
}

/// 0 closed, 1 half open, 2 open.
fn breaker(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_breaker_state", &[])
}

fn times_opened(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_breaker_transitions_total", &[("to", "open")])
}

/// Waits until a gateway has its connection: what it decides before is its own.
#[track_caller]
fn linked(gateway: &Gateway) {
    eventually("a connection to Redis", || {
        gateway.log().contains("connected to Redis").then_some(())
    });
}

/// The same, and until Redis decides.
#[track_caller]
fn wait_until_connected(gateway: &Gateway) {
    linked(gateway);
    eventually("Redis to decide", || {
        assert_eq!(get(gateway), 200);
        (decided_by(gateway, "redis") > 0).then_some(())
    });
}

/// Sends requests, which all pass, until the gateway no longer asks Redis.
#[track_caller]
fn wait_until_open(gateway: &Gateway) {
    eventually("the breaker to open", || {
        assert_eq!(get(gateway), 200);
        (breaker(gateway) == 2).then_some(())
    });
}

/// Sends requests, which all pass, until Redis decides about all of them again, as it must within
/// 20 s of its return.
#[track_caller]
fn wait_until_closed(gateway: &Gateway) {
    let ten_requests = || {
        (0..10).for_each(|_| assert_eq!(get(gateway), 200));
        (decided_by(gateway, "redis"), breaker(gateway))
    };
    eventually("Redis to decide about each request again", || {
        let before = decided_by(gateway, "redis");
        (ten_requests() == (before + 10, 0)).then_some(())
    });
}

/// From `begin` to `end` something is wrong with Redis: no request fails because of it, and Redis
/// decides again when it is over.
#[track_caller]
fn assert_survives(gateway: &Gateway, begin: impl FnOnce(), end: impl FnOnce()) {
    begin();
    wait_until_open(gateway);
    let before = decided_by(gateway, "local");
    for _ in 0..20 {
        assert_eq!(get(gateway), 200);
    }
    assert_eq!(decided_by(gateway, "local"), before + 20, "nobody asks while it is open");
    end();
    wait_until_closed(gateway);
}
