//! Responses of the admin port. Members that are not shown are ignored, and members that an older
//! gateway does not send have a default. `docs/admin-api.md` describes them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Response of `GET /api/status`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) generation: u64,
    pub(super) uptime_s: u64,
    #[serde(default)]
    pub(super) draining: bool,
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) redis: Redis,
    pub(super) breaker: Option<Breaker>,
    #[serde(default)]
    pub(super) gateways: u32,
    #[serde(default)]
    pub(super) buckets: BucketCounts,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Redis {
    pub(super) configured: bool,
    pub(super) connected: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Breaker {
    pub(super) state: String,
    pub(super) r#override: String,
    pub(super) since_ms: u64,
    pub(super) admits_percent: u32,
    pub(super) retry_after_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct BucketCounts {
    pub(super) local: u64,
    pub(super) max: u64,
    pub(super) evictions: u64,
    pub(super) debts: u64,
}

/// Response of `GET /api/clients`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Top {
    pub(super) since_ms: u64,
    pub(super) rules: Vec<TopOfRule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct TopOfRule {
    pub(super) rule: String,
    pub(super) clients: Vec<TopClient>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct TopClient {
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) requests: u64,
    pub(super) refused: u64,
}

/// Response of `GET /api/clients/{kind}/{id}/buckets`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Buckets {
    pub(super) client: BucketsOf,
    pub(super) levels: String,
    pub(super) rules: Vec<Bucket>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct BucketsOf {
    pub(super) plan: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Bucket {
    pub(super) rule: String,
    pub(super) mode: String,
    pub(super) rate: Option<String>,
    pub(super) burst: Option<u64>,
    #[serde(default)]
    pub(super) unknown: Vec<String>,
    pub(super) tokens: Option<i64>,
    pub(super) full_after_ms: Option<u64>,
    pub(super) why_not: Option<WhyNot>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct WhyNot {
    pub(super) why: String,
}

/// Response of `GET /api/upstreams`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Upstreams {
    pub(super) upstreams: Vec<UpstreamHealth>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct UpstreamHealth {
    pub(super) name: String,
    pub(super) servers: Vec<String>,
    pub(super) addresses: Vec<EndpointHealth>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct EndpointHealth {
    pub(super) address: String,
    pub(super) health: String,
    pub(super) retry_after_ms: u64,
}

/// Response of `GET /api/reloads`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Reloads {
    pub(super) reloads: Vec<Reload>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Reload {
    pub(super) at: String,
    pub(super) cause: String,
    pub(super) result: String,
    #[serde(default)]
    pub(super) changes: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    pub(super) more_changes: usize,
    #[serde(default)]
    pub(super) errors: Vec<Diagnostic>,
    #[serde(default)]
    pub(super) more_errors: usize,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Diagnostic {
    pub(super) message: String,
    pub(super) line: Option<u64>,
}

/// One second of `GET /api/events`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    pub(super) span_ms: u64,
    pub(super) plans: BTreeMap<String, Row>,
    pub(super) rules: BTreeMap<String, Row>,
    #[serde(default)]
    pub(super) sources: BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) in_flight: i64,
    #[serde(default = "yes")]
    pub(super) config_valid: bool,
}

/// Counts of one plan or one rule in one sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Row {
    pub(super) allowed: u64,
    pub(super) refused: u64,
    #[serde(default)]
    pub(super) shadow_refused: u64,
}

fn yes() -> bool {
    true
}
