//! The cost of allowed requests.

use tokio::runtime::Runtime;
use tollgate::base::clock;

use crate::arithmetic::Limit;
use crate::load::{self, Counts, Load, Running};
use crate::server::{Done, RedisServer};
use crate::ways::{Way, Ways};
use crate::{Plan, process};

/// Numbers of concurrent clients.
pub(crate) const CLIENTS: [usize; 4] = [1, 16, 64, 256];

/// Number of users, each with a bucket.
const USERS: u64 = 100_000;

/// The buckets that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// One bucket for all requests.
    Hot,
    /// One bucket per user.
    Distinct,
}

/// All rounds of one method under one load.
pub(crate) struct Cell {
    pub(crate) way: Way,
    pub(crate) keys: Keys,
    pub(crate) clients: usize,
    rounds: Vec<Sample>,
}

/// Results of one round, per request.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Wall time.
    pub(crate) nanoseconds: f64,
    /// Commands sent to Redis.
    pub(crate) calls: f64,
    pub(crate) allocations: f64,
    /// CPU time of Redis, microseconds.
    pub(crate) redis_us: f64,
    /// CPU time of this process, microseconds.
    pub(crate) own_us: f64,
    /// Fraction of the requests that gave up.
    pub(crate) undecided: f64,
}

/// Values of all counters.
struct Reading {
    at_us: u64,
    counts: Counts,
    allocations: usize,
    own_us: f64,
}

impl Keys {
    pub(crate) const ALL: [Self; 2] = [Self::Hot, Self::Distinct];

    /// Never exhausted, because denied requests cost less. The buckets of users take an hour to
    /// refill one token, so that none expires.
    fn limit(self) -> Limit {
        match self {
            Self::Hot => Limit::new(1_000, 1, 9_000_000_000),
            Self::Distinct => Limit::new(1, 3_600, 2_000_000),
        }
    }

    fn load(self, way: Way, clients: usize) -> Load {
        let (first_user, users) = if self == Self::Hot { (USERS, 1) } else { (0, USERS) };
        let limit = self.limit();
        Load { way, clients, first_user, users, limit, most_requests: u64::MAX }
    }
}

impl Cell {
    /// The name for the filter of the command line.
    fn name(&self) -> String {
        format!("{:?}/{}/{}", self.keys, self.clients, self.way.name())
    }

    /// Median, minimum and maximum over the rounds.
    pub(crate) fn of(&self, number: impl Fn(&Sample) -> f64) -> (f64, f64, f64) {
        let mut numbers: Vec<f64> = self.rounds.iter().map(number).collect();
        numbers.sort_by(f64::total_cmp);
        (numbers[numbers.len() / 2], numbers[0], numbers[numbers.len() - 1])
    }

    /// The median.
    pub(crate) fn median(&self, number: impl Fn(&Sample) -> f64) -> f64 {
        self.of(number).0
    }
}

/// Runs every method under every load, round by round.
pub(crate) fn measure(
    runtime: &Runtime,
    server: &RedisServer,
    ways: &Ways,
    plan: &Plan,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for keys in Keys::ALL {
        for clients in CLIENTS {
            cells.extend(Way::ALL.map(|way| Cell { way, keys, clients, rounds: Vec::new() }));
        }
    }
    cells.retain(|cell: &Cell| plan.wants(&cell.name()));
    if cells.iter().any(|cell| cell.keys == Keys::Distinct) {
        fill(runtime, ways);
    }
    for round in 0..plan.rounds {
        for cell in &mut cells {
            let load = cell.keys.load(cell.way, cell.clients);
            cell.rounds.push(sample(runtime, server, ways, load, plan));
        }
        eprintln!("round {} of {} done", round + 1, plan.rounds);
    }
    cells
}

/// Takes a token from nearly all buckets of users, so that they exist.
fn fill(runtime: &Runtime, ways: &Ways) {
    for way in [Way::Script, Way::Commands, Way::Transactions, Way::Ours] {
        let load = Load { most_requests: 3 * USERS, ..Keys::Distinct.load(way, 64) };
        load.start(runtime, ways).finish(runtime);
    }
}

fn sample(runtime: &Runtime, server: &RedisServer, ways: &Ways, load: Load, plan: &Plan) -> Sample {
    server.reset();
    let running = load.start(runtime, ways);
    load::wait(runtime, plan.warm_up);
    let Done { calls, cpu_us } = server.done();
    let before = Reading::of(&running);
    load::wait(runtime, plan.round);
    let after = Reading::of(&running);
    let done = server.done();
    running.stop(runtime);
    let requests = after.counts.requests() - before.counts.requests();
    let each = |total: f64| total / requests.max(1) as f64;
    Sample {
        nanoseconds: each((after.at_us - before.at_us) as f64 * 1e3),
        calls: each((done.calls - calls) as f64),
        allocations: each((after.allocations - before.allocations) as f64),
        redis_us: each(done.cpu_us - cpu_us),
        own_us: each(after.own_us - before.own_us),
        undecided: each((after.counts.undecided - before.counts.undecided) as f64),
    }
}

impl Reading {
    fn of(running: &Running) -> Self {
        let at_us = clock::now();
        let (counts, allocations) = (running.counts(), process::allocations());
        Self { at_us, counts, allocations, own_us: process::cpu_us() }
    }
}
