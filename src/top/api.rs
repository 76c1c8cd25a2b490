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
    pub(super) limits: Limits,
    #[serde(default)]
    pub(super) buckets: BucketCounts,
    pub(super) connections: Option<Connections>,
    #[serde(default)]
    pub(super) overloaded: Overloaded,
    pub(super) memory: Option<Memory>,
}

/// The limits in force; those of an older gateway have no hash.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Limits {
    pub(super) hash: String,
    pub(super) gateways_with_others: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Redis {
    pub(super) configured: bool,
    pub(super) connected: bool,
    #[serde(default)]
    pub(super) masters: Vec<Master>,
    pub(super) away: Option<String>,
}

/// A master of a Redis Cluster.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Master {
    pub(super) address: String,
    pub(super) connected: bool,
    pub(super) breaker: Breaker,
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

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Connections {
    pub(super) open: u64,
    pub(super) max: u64,
    #[serde(default)]
    pub(super) rejected_last_minute: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Overloaded {
    pub(super) descriptors: bool,
    pub(super) memory: bool,
    #[serde(default)]
    pub(super) paused: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Memory {
    pub(super) resident_bytes: u64,
    pub(super) max_bytes: Option<u64>,
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
    #[serde(default)]
    pub(super) in_flight: u32,
    #[serde(default)]
    pub(super) limit: Option<u32>,
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

/// Response of `GET /api/audit`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Audit {
    pub(super) refusal_runs: Vec<RefusalRun>,
    #[serde(default)]
    pub(super) more: u64,
}

/// The refusals of one client by one rule, each within 10 s of the one before.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct RefusalRun {
    pub(super) first: String,
    pub(super) last: String,
    pub(super) count: u64,
    pub(super) key: Option<String>,
    pub(super) ip: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) open: bool,
}

fn yes() -> bool {
    true
}
