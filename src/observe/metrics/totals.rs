//! Sums of all counters by plan, rule and source, for the dashboard and the admin API.

use std::collections::BTreeMap;

use prometheus::core::Collector as _;
use prometheus::proto::{Metric, MetricFamily};

use super::Metrics;
use crate::decide::label::DecisionLabel;
use crate::store::memory::MemoryStore;

/// Counters since the start, and current gauges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests by plan; the name is empty for requests that were refused before their plan was known.
    pub plans: BTreeMap<String, Requests>,
    /// Decisions by the name of the rule.
    pub rules: BTreeMap<String, Decisions>,
    /// Responses by the first digit of their status. Requests whose client disconnected first are not
    /// counted.
    pub statuses: BTreeMap<char, u64>,
    /// Checks, by what decided: `redis`, `cache`, `local` or `policy`.
    pub sources: BTreeMap<String, u64>,
    /// Calls to Redis, by result.
    pub redis_calls: BTreeMap<String, u64>,
    /// State changes of the circuit breaker, by the new state.
    pub transitions: BTreeMap<String, u64>,
    /// Requests retried on another endpoint.
    pub retries: u64,
    /// Gauges at the time of the call.
    pub now: Gauges,
}

/// Requests of one plan since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests with a response.
    pub answered: u64,
    /// Requests of these that a limit refused.
    pub refused: u64,
}

/// Decisions of one rule since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Requests that had enough tokens.
    pub allow: u64,
    /// Requests that the rule refused.
    pub deny: u64,
    /// Requests that the rule would have refused if it were enforced.
    pub shadow_deny: u64,
}

/// Current values of gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            if decision == DecisionLabel::Allow.as_str() {
                rule.allow += counted(series);
            } else if decision == DecisionLabel::Deny.as_str() {
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

fn each(families: &[MetricFamily], mut visit: impl FnMut(&Metric)) {
    families.iter().flat_map(MetricFamily::get_metric).for_each(&mut visit);
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

/// Value of a counter of whole numbers. The format has floats only.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number, never negative, and far below 2^53"
)]
fn counted(series: &Metric) -> u64 {
    series.get_counter().get_value() as u64
}
