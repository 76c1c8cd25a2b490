//! Faults of a cluster of three masters and three replicas, under load from 64 connections.

// Slots move, and a replica takes over by hand: no count is lost.
mod moves;
// Masters fail, hang, or are cut off.
mod failures;
// What a gateway finds when it starts.
mod starts;

use std::time::Duration;

use crate::support::{
    DEMO, Gateway, RedisCluster, StatusCounts, key, send_concurrently, sleep_for,
};

/// A breaker with short times.
const FAST_BREAKER: &str =
    "[redis.breaker]\nopen = \"100ms\"\nopen_max = \"200ms\"\nramp_step = \"100ms\"\n";

/// Time for a check on a busy machine.
const LONG_TIMEOUT: &str = "timeout = \"1s\"\n";

/// Keys of this number of clients, `s0` and so on.
fn clients(count: usize) -> String {
    (0..count).map(|n| key(&format!("k{n}"), format!("s{n}"), "free")).collect()
}

/// A configuration with these lines of `[redis]`, these rules, and this number of clients.
fn config(redis: &RedisCluster, lines: &str, rules: &str, count: usize) -> String {
    let table = redis.table_with(lines);
    format!("{DEMO}{table}{FAST_BREAKER}{rules}{}", clients(count))
}

/// Sends requests from 64 connections, as these clients in turn.
fn send(gateways: &[Gateway], clients: std::ops::Range<usize>, count: usize) -> StatusCounts {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    send_concurrently(64, count, |client, number| {
        let secret = format!("s{}", clients.start + number / urls.len() % clients.len());
        client.get(&urls[number % urls.len()]).header("X-Api-Key", secret)
    })
}

/// Sends requests from 64 connections until `is_over`, at least 300: three for
/// each of 100 clients. The pauses leave some of the
/// processors to the servers and to other tests.
fn send_until(
    gateways: &[Gateway],
    clients: std::ops::Range<usize>,
    mut is_over: impl FnMut() -> bool,
) -> StatusCounts {
    let mut sum = StatusCounts::new();
    loop {
        add(&mut sum, send(gateways, clients.clone(), 300));
        if is_over() {
            return sum;
        }
        sleep_for(Duration::from_millis(300));
    }
}

fn add(sum: &mut StatusCounts, counts: StatusCounts) {
    for (status, count) in counts {
        *sum.entry(status).or_default() += count;
    }
}

/// Number of responses with 200. Asserts that the others are 429.
#[track_caller]
fn allowed(counts: &StatusCounts) -> usize {
    assert!(counts.keys().all(|status| [200, 429].contains(status)), "{counts:?}");
    counts.get(&200).copied().unwrap_or(0)
}
