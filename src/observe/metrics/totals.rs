//! Counters and gauges of the process that samples contain.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::core::Collector as _;
use prometheus::proto::{Metric, MetricFamily};
use serde::{Deserialize, Serialize};

use super::Metrics;
use crate::store::memory::MemoryStore;

/// Counters since the start, and current gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Checks, by what decided: `redis`, `cache`, `local`, `policy` or `lease`.
    pub sources: BTreeMap<String, u64>,
    /// Calls to Redis, by result.
    pub redis_calls: BTreeMap<String, u64>,
    /// Client connections that were closed without a response, by reason.
    pub rejected_connections: BTreeMap<String, u64>,
    /// State changes of the circuit breaker, by the new state.
    pub transitions: Arc<BTreeMap<String, u64>>,
    /// Gauges at the time of the call.
    pub now: Gauges,
}

/// Current values of gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gauges {
    /// Number of requests that have begun and not yet ended.
    pub in_flight: i64,
    /// Buckets in this process.
    pub local_buckets: usize,
    /// State of the circuit breaker: 0 closed, 1 half open, 2 open.
    pub breaker: i64,
    /// Live gateways that share Redis.
    pub gateways: i64,
    /// Number of configurations that have been in force.
    pub generation: i64,
    /// Whether the file on disk is in force.
    pub config_valid: bool,
}

impl Metrics {
    /// The current totals. Buckets are counted in `store`.
    pub fn totals(&self, store: &MemoryStore) -> Totals {
        let mut totals = Totals { now: self.gauges(store), ..Totals::default() };
        each(&self.check_duration.collect(), |series| {
            let count = series.get_histogram().get_sample_count();
            *totals.sources.entry(label(series, "source")).or_default() += count;
        });
        totals.redis_calls = by_label(&self.redis.calls.calls.collect(), "result");
        totals.rejected_connections = by_label(&self.connections.rejected.collect(), "reason");
        totals.transitions = Arc::new(by_label(&self.redis.breaker.transitions.collect(), "to"));
        totals
    }

    fn gauges(&self, store: &MemoryStore) -> Gauges {
        Gauges {
            in_flight: self.in_flight.get(),
            local_buckets: store.len(),
            breaker: self.redis.breaker.state.get(),
            gateways: self.redis.peers.gateways.get(),
            generation: self.config.generation(),
            config_valid: self.config.is_good(),
        }
    }
}

pub(super) fn each(families: &[MetricFamily], mut visit: impl FnMut(&Metric)) {
    families.iter().flat_map(MetricFamily::get_metric).for_each(&mut visit);
}

fn by_label(families: &[MetricFamily], name: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    each(families, |series| *sums.entry(label(series, name)).or_default() += counted(series));
    sums
}

pub(super) fn label(series: &Metric, name: &str) -> String {
    let pair = series.get_label().iter().find(|pair| pair.name() == name);
    pair.map_or_else(String::new, |pair| pair.value().to_string())
}

/// Value of a counter of whole numbers. The format has floats only.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number, never negative, and far below 2^53"
)]
pub(super) fn counted(series: &Metric) -> u64 {
    series.get_counter().get_value() as u64
}
