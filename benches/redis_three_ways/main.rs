//! Compares methods to keep a token bucket in a real Redis: cost and exactness.
//!
//! ```sh
//! make bench-redis            # measures, and writes into docs/benchmarks.md and docs/benchmarks/tables.md
//! cargo bench --bench redis_three_ways             # measures and prints
//! cargo bench --bench redis_three_ways -- --quick  # short rounds: to see that it works
//! cargo bench --bench redis_three_ways -- Hot/64/  # only what has that in its name
//! ```
//!
//! Reading order: `ways` (the methods; `script`, `commands`, `transactions` and `ours` have one
//! each), `load` (the clients), `cost` and `exactness` (the measurements), `report`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark speaks by its output, and its numbers are small"
)]

mod arithmetic;
mod commands;
mod cost;
mod exactness;
mod goals;
mod load;
mod ours;
mod process;
mod report;
mod script;
mod server;
mod transactions;
mod ways;

use std::time::Duration;

use report::Report;
use server::RedisServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use ways::Ways;

/// The system's allocator with counters.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Duration and number of rounds.
pub(crate) struct Plan {
    /// Rounds of each method. The rounds of all methods are interleaved, so that a slow phase of
    /// the machine affects all.
    pub(crate) rounds: usize,
    /// Measured time of a round.
    pub(crate) round: Duration,
    /// Time before the measurement.
    pub(crate) warm_up: Duration,
    /// Filters on names; everything runs if empty.
    only: Vec<String>,
}

impl Plan {
    fn of(arguments: &[String]) -> Self {
        let only = arguments.iter().filter(|argument| !argument.starts_with('-')).cloned();
        let quick = arguments.iter().any(|argument| argument == "--quick");
        let (rounds, round_ms, warm_up_ms) = if quick { (1, 200, 50) } else { (5, 1_000, 200) };
        let [round, warm_up] = [round_ms, warm_up_ms].map(Duration::from_millis);
        Self { rounds, round, warm_up, only: only.collect() }
    }

    /// Whether the filters select this name.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = Plan::of(&arguments);
    let is_written = arguments.iter().any(|argument| argument == "--write");
    if is_written {
        report::require_clean();
    }
    let server = RedisServer::start();
    // One thread for all clients leaves the second core to Redis.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ways = Ways::connect(&runtime, &server);
    if !plan.only.is_empty() {
        print!("{}", report::costs(&cost::measure(&runtime, &server, &ways, &plan)));
        return;
    }
    let exactness = exactness::measure(&runtime, &server, &ways);
    let costs = cost::measure(&runtime, &server, &ways, &plan);
    let report = Report::new(&server, &plan, &costs, &exactness);
    print!("{report}");
    if is_written {
        report.write();
    }
}
