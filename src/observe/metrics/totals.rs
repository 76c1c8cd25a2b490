//! What has been counted so far, summed as people look at it: by plan, by rule, by source.

use std::collections::BTreeMap;

use prometheus::core::Collector as _;
use prometheus::proto::{Metric, MetricFamily};

use super::{Decision, Metrics};
use crate::store::memory::MemoryStore;

/// Counters and gauges at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By plan; empty where a request had no client.
    pub plans: BTreeMap<String, Requests>,
    /// By rule.
    pub rules: BTreeMap<String, Decisions>,
    /// Answers by the first digit of their status. Those that were never sent are not among them.
    pub statuses: BTreeMap<char, u64>,
    /// Decisions on requests, by who decided.
    pub sources: BTreeMap<String, u64>,
    /// Calls to Redis, by how they went.
    pub redis_calls: BTreeMap<String, u64>,
    /// Changes of the breaker, by the state that followed.
    pub transitions: BTreeMap<String, u64>,
    /// Requests sent again to another server.
    pub retries: u64,
    /// What does not add up: the state of things now.
    pub now: Gauges,
}

/// Requests of one plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// All that were answered.
    pub answered: u64,
    /// Those among them that a limit refused.
    pub refused: u64,
}

/// Decisions of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// It had the tokens.
    pub allow: u64,
    /// It refused.
    pub deny: u64,
    /// It would have refused, but is only tried out.
    pub shadow_deny: u64,
}

/// The state of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that are being served.
    pub in_flight: i64,
    /// Buckets in this process.
    pub local_buckets: usize,
    /// 0 closed, 1 half open, 2 open.
    pub breaker: i64,
    /// Live gateways that share the Redis.
    pub gateways: i64,
    /// How many files have been in force.
    pub generation: i64,
    /// Whether the file is what is in force.
    pub config_valid: bool,
}

impl Metrics {
    /// What has been counted so far.
    pub fn totals(&self, store: &MemoryStore) -> Totals {
        let mut totals = Totals { now: self.gauges(store), ..Totals::default() };
        each(&self.requests.collect(), |series| {
            let answered = counted(series);
            totals.plans.entry(label(series, "plan")).or_default().answered += answered;
            if let Some(class) = label(series, "status").chars().next() {
                *totals.statuses.entry(class).or_default() += answered;
            }
        });
        each(&self.refused.collect(), |series| {
            totals.plans.entry(label(series, "plan")).or_default().refused += counted(series);
        });
        each(&self.decisions.collect(), |series| {
            let rule = totals.rules.entry(label(series, "rule")).or_default();
            let decision = label(series, "decision");
            if decision == Decision::Allow.label() {
                rule.allow += counted(series);
            } else if decision == Decision::Deny.label() {
                rule.deny += counted(series);
            } else {
                rule.shadow_deny += counted(series);
            }
        });
        each(&self.check_duration.collect(), |series| {
            let count = series.get_histogram().get_sample_count();
            *totals.sources.entry(label(series, "source")).or_default() += count;
        });
        totals.redis_calls = by_label(&self.redis_calls.calls.collect(), "result");
        totals.transitions = by_label(&self.link.breaker.transitions.collect(), "to");
        totals.retries = by_label(&self.upstreams.retries.collect(), "upstream").values().sum();
        totals
    }

    fn gauges(&self, store: &MemoryStore) -> Gauges {
        Gauges {
            in_flight: self.in_flight.get(),
            local_buckets: store.len(),
            breaker: self.link.breaker.state.get(),
            gateways: self.link.gateways.get(),
            generation: self.config.generation(),
            config_valid: self.config.is_good(),
        }
    }
}

fn each(families: &[MetricFamily], mut look: impl FnMut(&Metric)) {
    families.iter().flat_map(MetricFamily::get_metric).for_each(&mut look);
}

fn by_label(families: &[MetricFamily], name: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    each(families, |series| *sums.entry(label(series, name)).or_default() += counted(series));
    sums
}

fn label(series: &Metric, name: &str) -> String {
    let pair = series.get_label().iter().find(|pair| pair.name() == name);
    pair.map_or_else(String::new, |pair| pair.value().to_string())
}

/// A counter of whole numbers, which the format knows as a float.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number, never negative, and far below 2^53"
)]
fn counted(series: &Metric) -> u64 {
    series.get_counter().get_value() as u64
}
