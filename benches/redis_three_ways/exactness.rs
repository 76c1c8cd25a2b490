//! Exactness of each method, and the cost of denied requests.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::base::clock;
use tollgate::base::duration::MICROS_PER_SECOND;

use crate::arithmetic::Limit;
use crate::load::{self, Load};
use crate::server::RedisServer;
use crate::ways::{Way, Ways};

const CLIENTS: usize = 64;
const ROUNDS: u64 = 3;
const BURST: u64 = 10;
const RATE: u64 = 10;
const LENGTH: Duration = Duration::from_secs(3);

/// Number of denied requests of an attack.
pub(crate) const ATTACK: u64 = 100_000;

/// Exactness of one method.
pub(crate) struct Exactness {
    pub(crate) way: Way,
    /// Number of allowed requests, and the maximum for the elapsed time.
    pub(crate) grants: Vec<(u64, u64)>,
    /// Commands sent for [`ATTACK`] denied requests.
    pub(crate) attack_calls: u64,
    /// Wall time of each, in nanoseconds.
    pub(crate) attack_nanoseconds: f64,
    /// CPU time of Redis for all of them, in microseconds.
    pub(crate) attack_redis_us: f64,
}

/// Runs every method.
pub(crate) fn measure(runtime: &Runtime, server: &RedisServer, ways: &Ways) -> Vec<Exactness> {
    let mut all = Way::ALL.map(|way| attack(runtime, server, ways, way));
    for round in 0..ROUNDS {
        for exactness in &mut all {
            let granted = grant(runtime, ways, exactness.way, round);
            exactness.grants.push(granted);
        }
    }
    all.into()
}

/// An unused bucket. Both variants of tollgate use the same keys in Redis.
fn bucket(way: Way, round: u64) -> u64 {
    1_000_000 + 1_000 * (way as u64) + round
}

/// Runs all clients on one bucket. Returns the allowed requests and the maximum.
fn grant(runtime: &Runtime, ways: &Ways, way: Way, round: u64) -> (u64, u64) {
    let limit = Limit::new(RATE, 1, BURST);
    let first_user = bucket(way, round);
    let most_requests = u64::MAX;
    let load = Load { way, clients: CLIENTS, first_user, users: 1, limit, most_requests };
    let start = clock::now();
    let running = load.start(runtime, ways);
    load::wait(runtime, LENGTH);
    let counts = running.stop(runtime);
    let ticks = clock::now() - start;
    (counts.passed, BURST + RATE * ticks / MICROS_PER_SECOND)
}

/// Runs all clients on an exhausted bucket.
fn attack(runtime: &Runtime, server: &RedisServer, ways: &Ways, way: Way) -> Exactness {
    let limit = Limit::new(1, 3_600, BURST);
    let first_user = bucket(way, ROUNDS);
    let load = Load { way, clients: 1, first_user, users: 1, limit, most_requests: BURST };
    load.start(runtime, ways).finish(runtime);
    let load = Load { clients: CLIENTS, most_requests: ATTACK.next_multiple_of(64), ..load };
    server.reset();
    let before = server.done();
    let start = clock::now();
    let counts = load.start(runtime, ways).finish(runtime);
    let ticks = clock::now() - start;
    let done = server.done();
    assert!(counts.passed == 0, "{} passed a bucket that is empty", counts.passed);
    Exactness {
        way,
        grants: Vec::new(),
        attack_calls: done.calls,
        attack_nanoseconds: ticks as f64 * 1e3 / counts.requests() as f64,
        attack_redis_us: done.cpu_us - before.cpu_us,
    }
}
