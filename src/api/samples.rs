//! Response of `GET /api/samples`, and the data of an event of `GET /api/events`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::status::BreakerState;
pub use crate::observe::metrics::{OutcomeCounts, RuleCounts};

/// Response of `GET /api/samples`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "SampleRange"))]
pub struct SampleRange<N: Ord = String> {
    /// Time between two samples, in milliseconds.
    #[serde(default)]
    pub step_ms: u64,
    /// Beginning of the range, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub from_ms: u64,
    /// End of the range.
    #[serde(default)]
    pub to_ms: u64,
    /// Name of the time zone of the gateway, such as `Europe/Berlin`; `null` if it has no name.
    pub time_zone: Option<String>,
    /// Present difference of that zone from UTC, in seconds.
    pub utc_offset_s: i32,
    /// The sum of the samples; `null` without any.
    pub total: Option<Sample<N>>,
    /// The samples that overlap the range, in the order of time.
    #[serde(default)]
    pub samples: Vec<Sample<N>>,
}

/// Counts of one span of time. Rows and counts of 0 are left out of maps.
// The gateway writes it with names that it borrows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Sample"))]
pub struct Sample<N: Ord = String> {
    /// End of the span, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Length of the span, in milliseconds.
    pub span_ms: u64,
    /// All complete requests, by outcome.
    #[serde(default)]
    pub requests: OutcomeCounts,
    /// The same by plan; the name is empty for requests whose plan is not known.
    pub plans: BTreeMap<N, OutcomeCounts>,
    /// Decisions by rule.
    pub rules: BTreeMap<N, RuleCounts>,
    /// Complete requests by route; the name is empty for requests without a route.
    #[serde(default)]
    pub routes: BTreeMap<N, RouteRequests>,
    /// Attempts to forward requests, by upstream.
    #[serde(default)]
    pub upstreams: BTreeMap<N, UpstreamRequests>,
    /// Durations of all complete requests.
    #[serde(default)]
    pub latency: Latency,
    /// Complete requests by class of their status (`2xx`); `none` without a response.
    #[serde(default)]
    pub statuses: BTreeMap<String, u64>,
    /// Checks by what decided: `redis`, `cache`, `local`, `policy` or `lease`.
    #[serde(default)]
    pub sources: BTreeMap<N, u64>,
    /// Calls to Redis by result.
    #[serde(default)]
    pub redis_calls: BTreeMap<N, u64>,
    /// Client connections that were closed without a response, or because the client is too slow,
    /// by reason.
    #[serde(default)]
    pub rejected_connections: BTreeMap<N, u64>,
    /// Requests retried on another endpoint.
    #[serde(default)]
    pub retries: u64,
    /// Requests in flight.
    #[serde(default)]
    pub in_flight: i64,
    /// Buckets in this process.
    #[serde(default)]
    pub local_buckets: usize,
    /// State of the circuit breaker: `closed`, `half_open` or `open`; `null` without Redis.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub breaker: Option<BreakerState>,
    /// Transitions of the breaker since the start, by new state.
    #[serde(default)]
    pub transitions: BTreeMap<N, u64>,
    /// Live gateways that share Redis; `null` without Redis.
    pub gateways: Option<i64>,
    /// Number of configurations that have been in force.
    #[serde(default)]
    pub generation: i64,
    /// Whether the file on disk is in force.
    #[serde(default = "yes")]
    pub config_valid: bool,
}

/// Complete requests of one route.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RouteRequests {
    pub requests: u64,
    /// Requests with a response of status 5xx.
    pub errors: u64,
    #[serde(flatten)]
    pub latency: Latency,
}

/// Attempts to forward requests to one upstream.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpstreamRequests {
    pub requests: u64,
    /// Responses of the upstream with status 5xx.
    pub errors: u64,
    /// Attempts without a complete response.
    #[serde(default)]
    pub failures: u64,
    #[serde(flatten)]
    pub latency: Latency,
}

/// Percentiles of durations in milliseconds; `null` without durations.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

fn yes() -> bool {
    true
}
