//! Faults of Redis under load: rows 1 to 27 of docs/faults.md. `src/store/redis/link/tests/` tests
//! the connection itself.

// Redis is killed or unreachable, or has no room for clients.
mod disconnects;
// Another server takes over.
mod failover;
// Redis does not respond, or too late.
mod timeouts;
// Redis responds with errors.
mod error_replies;
// Wrong passwords and certificates.
mod credentials;
// Redis sends malformed replies.
mod malformed_replies;
// Response times under steady load.
pub(crate) mod latency;
// The bound on tokens granted in an outage.
mod bounds;
// Restarts of the gateway in an outage.
mod restarts;
// Clock jumps.
mod clocks;
// Metrics, logs and headers in an outage.
mod observability;
// Longer tests: `make test-outages`.
mod long;

use crate::support::{DEMO, FaultProxy, Gateway, Mode, Redis, Request, eventually, key, sleep_for};

/// Timeout of checks in tests that are not about it: longer than delays of a busy machine.
const LONG_TIMEOUT: &str = "200ms";

/// A rate that no test reaches.
const HIGH_RATE: &str = "rate = \"1000000/s\"";

/// Redis, a fault proxy, and a connected gateway.
struct Fixture {
    redis: Redis,
    proxy: FaultProxy,
    gateway: Gateway,
}

impl Fixture {
    /// Starts the fixture; `rate` is the line of the rule per key.
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

    /// Asserts that the gateway survives a mode of the fault proxy.
    #[track_caller]
    fn assert_survives(&self, mode: Mode) {
        assert_survives(&self.gateway, || self.proxy.set(mode), || self.proxy.set(Mode::Pass));
    }
}

/// A breaker with short times, for tests that are not about these times.
const FAST_BREAKER: &str =
    "\n[redis.breaker]\nopen = \"100ms\"\nopen_max = \"500ms\"\nramp_step = \"100ms\"\n";

/// A configuration with a rule per key and one key.
fn config(redis: &str, rate: &str) -> String {
    config_with(FAST_BREAKER, redis, rate)
}

/// The same configuration with another breaker.
fn config_with(breaker: &str, redis: &str, rate: &str) -> String {
    let rule = format!("\n[rules.per-key]\nper = [\"key\"]\n{rate}\n");
    let breaker = if redis.is_empty() { "" } else { breaker };
    [DEMO, redis, breaker, &rule, &key("acme", "secret", "free")].concat()
}

/// A request with the key.
fn request() -> Request {
    Request::get("/").header("X-Api-Key", "secret")
}

fn get(gateway: &Gateway) -> u16 {
    gateway.send(&request()).status
}

/// Number of decisions by this source.
fn decided_by(gateway: &Gateway, source: &str) -> u64 {
    gateway.count("tollgate_decisions_total", &[("source", source)])
}

/// 0 closed, 1 half open, 2 open.
fn breaker(gateway: &Gateway) -> u64 {
    gateway.existing("tollgate_breaker_state", &[]).expect("a breaker")
}

fn times_opened(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_breaker_transitions_total", &[("to", "open")])
}

/// Waits until the gateway is connected to Redis.
#[track_caller]
fn linked(gateway: &Gateway) {
    eventually("a connection to Redis", || {
        gateway.log().contains("connected to Redis").then_some(())
    });
}

/// Waits until the gateway is connected and Redis decides.
#[track_caller]
fn wait_until_connected(gateway: &Gateway) {
    linked(gateway);
    eventually("Redis to decide", || {
        assert_eq!(get(gateway), 200);
        (decided_by(gateway, "redis") > 0).then_some(())
    });
}

/// Sends requests, which must all be allowed, until the breaker is open.
#[track_caller]
fn wait_until_open(gateway: &Gateway) {
    eventually("the breaker to open", || {
        assert_eq!(get(gateway), 200);
        (breaker(gateway) == 2).then_some(())
    });
}

/// Sends requests, which must all be allowed, until Redis decides all of them again; at most 20 s.
#[track_caller]
fn wait_until_closed(gateway: &Gateway) {
    let ten_requests = || {
        (0..10).for_each(|_| assert_eq!(get(gateway), 200));
        (decided_by(gateway, "redis"), breaker(gateway))
    };
    eventually("Redis to decide about each request again", || {
        // One request while the breaker is open: twenty gateways may wait at once.
        if breaker(gateway) != 0 {
            assert_eq!(get(gateway), 200);
            return None;
        }
        let before = decided_by(gateway, "redis");
        (ten_requests() == (before + 10, 0)).then_some(())
    });
}

/// Asserts that no request fails between `begin` and `end` of a fault, and that Redis decides again
/// afterwards.
#[track_caller]
fn assert_survives(gateway: &Gateway, begin: impl FnOnce(), end: impl FnOnce()) {
    begin();
    wait_until_open(gateway);
    let before = decided_by(gateway, "local");
    for _ in 0..20 {
        assert_eq!(get(gateway), 200);
    }
    assert_eq!(
        decided_by(gateway, "local"),
        before + 20,
        "Redis is not used while the breaker is open"
    );
    end();
    wait_until_closed(gateway);
}
