//! Responses of the admin port. Members that are not shown are ignored, and members that an older
//! gateway does not send have a default. `docs/admin-api.md` describes them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A sample of `GET /api/events` or `GET /api/samples`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    pub(super) span_ms: u64,
    /// Complete requests. The plan is empty for clients that were not identified.
    pub(super) plans: BTreeMap<String, Outcomes>,
    pub(super) rules: BTreeMap<String, Decisions>,
    /// Complete requests. The name is empty for requests without a route.
    #[serde(default)]
    pub(super) routes: BTreeMap<String, Traffic>,
    #[serde(default)]
    pub(super) upstreams: BTreeMap<String, Traffic>,
    #[serde(default)]
    pub(super) statuses: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) latency: Latency,
    #[serde(default)]
    pub(super) sources: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) in_flight: i64,
    #[serde(default = "yes")]
    pub(super) config_valid: bool,
}

/// Complete requests of one plan by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Outcomes {
    pub(super) allowed: u64,
    pub(super) refused: u64,
    #[serde(default)]
    pub(super) unavailable: u64,
    #[serde(default)]
    pub(super) unauthorized: u64,
    #[serde(default)]
    pub(super) rejected: u64,
}

/// Decisions of one rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Decisions {
    pub(super) allowed: u64,
    pub(super) refused: u64,
    #[serde(default)]
    pub(super) shadow_refused: u64,
}

/// Requests of one route or to one upstream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    pub(super) errors: u64,
    /// Only of upstreams.
    #[serde(default)]
    pub(super) failures: u64,
    #[serde(flatten)]
    pub(super) latency: Latency,
}

/// Percentiles in milliseconds; `None` without requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) struct Latency {
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// Response of `GET /api/samples`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Samples {
    pub(super) time_zone: Option<String>,
    pub(super) utc_offset_s: i32,
    /// The sum of the samples of the range.
    pub(super) total: Option<Sample>,
}

fn yes() -> bool {
    true
}
