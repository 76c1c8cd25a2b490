//! A sample as JSON: a member of `GET /api/samples`, and the data of an event of `GET /api/events`.

use std::collections::BTreeMap;

use super::sample::{Rows, Sample};
use crate::api::samples::{Latency, RouteRequests, Sample as SampleView, UpstreamRequests};
use crate::api::status::BreakerState;
use crate::observe::metrics::{Durations, RouteCounts, UpstreamCounts};

impl<'a> SampleView<&'a str> {
    /// The view of a sample, with the breaker and the number of gateways if `shares_redis`.
    pub(super) fn of(sample: &'a Sample, shares_redis: bool) -> Self {
        let gauges = &sample.gauges;
        let breaker = match gauges.breaker {
            0 => BreakerState::Closed,
            1 => BreakerState::HalfOpen,
            _ => BreakerState::Open,
        };
        let statuses = (0..).zip(sample.statuses).filter(|(_, count)| *count > 0);
        let class = |digit: u8| if digit == 0 { "none".to_owned() } else { format!("{digit}xx") };
        Self {
            at_ms: sample.at_ms,
            span_ms: sample.span_ms,
            requests: sample.requests(),
            plans: rows(&sample.plans, |row| *row),
            rules: rows(&sample.rules, |row| *row),
            routes: rows(&sample.routes, RouteRequests::of),
            upstreams: rows(&sample.upstreams, UpstreamRequests::of),
            latency: Latency::of(&sample.durations),
            statuses: statuses.map(|(digit, count)| (class(digit), count)).collect(),
            sources: rows(&sample.sources, |count| *count),
            redis_calls: rows(&sample.redis_calls, |count| *count),
            rejected_connections: rows(&sample.rejected_connections, |count| *count),
            retries: sample.retries,
            in_flight: gauges.in_flight,
            local_buckets: gauges.local_buckets,
            breaker: shares_redis.then_some(breaker),
            transitions: sample.transitions.iter().map(|(state, n)| (&**state, *n)).collect(),
            gateways: shares_redis.then_some(gauges.gateways),
            generation: gauges.generation,
            config_valid: gauges.config_valid,
        }
    }
}

fn rows<R, V>(rows: &Rows<R>, view: impl Fn(&R) -> V) -> BTreeMap<&str, V> {
    rows.iter().map(|(name, row)| (name, view(row))).collect()
}

impl RouteRequests {
    fn of(counts: &RouteCounts) -> Self {
        let RouteCounts { requests, errors, ref durations } = *counts;
        Self { requests, errors, latency: Latency::of(durations) }
    }
}

impl UpstreamRequests {
    fn of(counts: &UpstreamCounts) -> Self {
        let UpstreamCounts { requests, errors, failures, ref durations } = *counts;
        Self { requests, errors, failures, latency: Latency::of(durations) }
    }
}

impl Latency {
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
