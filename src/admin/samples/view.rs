//! A sample as JSON: a member of `GET /api/samples`, and the data of an event of `GET /api/events`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sample::{Rows, Sample};
use crate::observe::metrics::{Durations, OutcomeCounts, RouteCounts, RuleCounts, UpstreamCounts};

/// Counts of one span of time. Rows and counts of 0 are left out of maps.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Sample"))]
pub(super) struct SampleView<'a> {
    /// End of the span, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Length of the span, in milliseconds.
    span_ms: u64,
    /// All complete requests, by outcome.
    requests: OutcomesView,
    /// The same by plan; the name is empty for requests whose plan is not known.
    plans: BTreeMap<&'a str, OutcomesView>,
    /// Decisions by rule.
    rules: BTreeMap<&'a str, RuleView>,
    /// Complete requests by route; the name is empty for requests without a route.
    routes: BTreeMap<&'a str, RouteView>,
    /// Attempts to forward requests, by upstream.
    upstreams: BTreeMap<&'a str, UpstreamView>,
    /// Durations of all complete requests.
    latency: LatencyView,
    /// Complete requests by class of their status (`2xx`); `none` without a response.
    statuses: BTreeMap<String, u64>,
    /// Checks by what decided: `redis`, `cache`, `local`, `policy` or `lease`.
    sources: BTreeMap<&'a str, u64>,
    /// Calls to Redis by result.
    redis_calls: BTreeMap<&'a str, u64>,
    /// Client connections that were closed without a response, or because the client is too slow,
    /// by reason.
    rejected_connections: BTreeMap<&'a str, u64>,
    /// Requests retried on another endpoint.
    retries: u64,
    /// Requests in flight.
    in_flight: i64,
    /// Buckets in this process.
    local_buckets: usize,
    /// State of the circuit breaker: `closed`, `half_open` or `open`; `null` without Redis.
    breaker: Option<&'static str>,
    /// Transitions of the breaker since the start, by new state.
    transitions: &'a BTreeMap<String, u64>,
    /// Live gateways that share Redis; `null` without Redis.
    gateways: Option<i64>,
    /// Number of configurations that have been in force.
    generation: i64,
    /// Whether the file on disk is in force.
    config_valid: bool,
}

/// Complete requests by outcome.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RequestOutcomes"))]
struct OutcomesView {
    /// Requests that passed all checks.
    allowed: u64,
    /// Requests that a rate limit refused (429).
    refused: u64,
    /// Requests that a rule with `on_failure = "deny"` could not check (503).
    unavailable: u64,
    /// Requests without a valid API key that needed one (401).
    unauthorized: u64,
    /// Requests refused for another reason before rate limits (400, 404, 405, …).
    rejected: u64,
}

/// Decisions of one rule.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RuleDecisions"))]
struct RuleView {
    /// Requests that had enough tokens.
    allowed: u64,
    /// Requests that the rule refused. A request that several rules refuse counts for one of them.
    refused: u64,
    /// Requests that the rule would have refused if it were enforced.
    shadow_refused: u64,
}

/// Complete requests of one route.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RouteRequests"))]
struct RouteView {
    requests: u64,
    /// Requests with a response of status 5xx.
    errors: u64,
    #[serde(flatten)]
    latency: LatencyView,
}

/// Attempts to forward requests to one upstream.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "UpstreamRequests"))]
struct UpstreamView {
    requests: u64,
    /// Responses of the upstream with status 5xx.
    errors: u64,
    /// Attempts without a complete response.
    failures: u64,
    #[serde(flatten)]
    latency: LatencyView,
}

/// Percentiles of durations in milliseconds; `null` without durations.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Latency"))]
struct LatencyView {
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl<'a> SampleView<'a> {
    /// The view of a sample, with the breaker and the number of gateways if `shares_redis`.
    pub(super) fn of(sample: &'a Sample, shares_redis: bool) -> Self {
        let gauges = &sample.gauges;
        let breaker = match gauges.breaker {
            0 => "closed",
            1 => "half_open",
            _ => "open",
        };
        let statuses = (0..).zip(sample.statuses).filter(|(_, count)| *count > 0);
        let class = |digit: u8| if digit == 0 { "none".to_owned() } else { format!("{digit}xx") };
        Self {
            at_ms: sample.at_ms,
            span_ms: sample.span_ms,
            requests: OutcomesView::of(&sample.requests()),
            plans: rows(&sample.plans, OutcomesView::of),
            rules: rows(&sample.rules, RuleView::of),
            routes: rows(&sample.routes, RouteView::of),
            upstreams: rows(&sample.upstreams, UpstreamView::of),
            latency: LatencyView::of(&sample.durations),
            statuses: statuses.map(|(digit, count)| (class(digit), count)).collect(),
            sources: rows(&sample.sources, |count| *count),
            redis_calls: rows(&sample.redis_calls, |count| *count),
            rejected_connections: rows(&sample.rejected_connections, |count| *count),
            retries: sample.retries,
            in_flight: gauges.in_flight,
            local_buckets: gauges.local_buckets,
            breaker: shares_redis.then_some(breaker),
            transitions: &sample.transitions,
            gateways: shares_redis.then_some(gauges.gateways),
            generation: gauges.generation,
            config_valid: gauges.config_valid,
        }
    }
}

fn rows<R, V>(rows: &Rows<R>, view: impl Fn(&R) -> V) -> BTreeMap<&str, V> {
    rows.iter().map(|(name, row)| (name, view(row))).collect()
}

impl OutcomesView {
    fn of(counts: &OutcomeCounts) -> Self {
        let OutcomeCounts { allowed, refused, unavailable, unauthorized, rejected } = *counts;
        Self { allowed, refused, unavailable, unauthorized, rejected }
    }
}

impl RuleView {
    fn of(counts: &RuleCounts) -> Self {
        let RuleCounts { allowed, refused, shadow_refused } = *counts;
        Self { allowed, refused, shadow_refused }
    }
}

impl RouteView {
    fn of(counts: &RouteCounts) -> Self {
        let RouteCounts { requests, errors, ref durations } = *counts;
        Self { requests, errors, latency: LatencyView::of(durations) }
    }
}

impl UpstreamView {
    fn of(counts: &UpstreamCounts) -> Self {
        let UpstreamCounts { requests, errors, failures, ref durations } = *counts;
        Self { requests, errors, failures, latency: LatencyView::of(durations) }
    }
}

impl LatencyView {
    fn of(durations: &Durations) -> Self {
        let percentiles = durations.percentiles();
        let ms = |us: f64| us.round() / 1_000.0;
        Self {
            p50_ms: percentiles.map(|found| ms(found.p50_us)),
            p99_ms: percentiles.map(|found| ms(found.p99_us)),
        }
    }
}

#[cfg(test)]
mod tests;
