//! Responses of `GET /api/status` and `GET /api/breaker`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::store::redis::link::breaker::{BreakerState, Override};

/// Response of `GET /api/status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Status {
    pub version: String,
    /// Number of configurations that have been in force.
    pub generation: u64,
    pub uptime_s: u64,
    #[serde(default)]
    pub draining: bool,
    /// Whether `/ready` answers 200.
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub redis: RedisStatus,
    /// State of the circuit breaker; `null` without Redis.
    pub breaker: Option<Breaker>,
    /// Number of live gateways that share this Redis.
    #[serde(default)]
    pub gateways: u32,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub buckets: LocalBuckets,
    #[cfg_attr(test, schemars(with = "Connections"))]
    pub connections: Option<Connections>,
    #[serde(default)]
    pub overloaded: Overloaded,
    #[cfg_attr(test, schemars(with = "Memory"))]
    pub memory: Option<Memory>,
    /// The key store; `null` without one.
    #[serde(default)]
    pub key_store: Option<KeyStoreStatus>,
    /// Rules that ban clients, that adapt their rate, or of whose quotas clients have been warned
    /// or have used more, in the order of the file.
    #[serde(default)]
    pub rules: Vec<RuleStatus>,
}

/// What a rule does besides counting.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RuleStatus {
    pub rule: String,
    /// Number of clients that it has banned; `null` if it bans none.
    pub bans: Option<u64>,
    /// Share of the rate that it has now, in percent; `null` if it does not adapt.
    pub rate_percent: Option<f64>,
    /// Requests through this gateway since its start of clients that had used the share of `soft`.
    pub warned: u64,
    /// Tokens that requests through this gateway have taken beyond quotas since its start.
    pub overage_tokens: f64,
}

/// The limits in force, compared with those of the gateways that share this Redis.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "LimitsInForce"))]
pub struct Limits {
    /// Hash of everything that decides on limits, in 16 hexadecimal digits: the same on gateways
    /// with the same limits.
    pub hash: String,
    /// Number of live gateways that share this Redis and have another hash.
    pub gateways_with_others: u32,
}

/// Open client connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Connections {
    pub open: usize,
    /// `server.limits.max_connections`, or fewer if the limit of open files allows fewer.
    pub max: usize,
    /// The maximum from one address: `server.limits.max_connections_per_ip`, or half of `max` if
    /// that is fewer.
    pub max_per_ip: usize,
    /// Connections that were closed without a response in the last minute, or because the client is
    /// too slow, by reason, as in `tollgate_connections_rejected_total`.
    pub rejected_last_minute: BTreeMap<String, u64>,
}

/// Resources that the process has run out of.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Overloaded {
    /// File descriptors.
    pub descriptors: bool,
    /// Memory, by `memory.max_bytes`.
    pub memory: bool,
    /// Whether new connections wait until less memory is used.
    pub paused: bool,
}

/// Clients with API keys that are not in the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct KeyStoreStatus {
    /// Where they are: `redis`, or `file:` and a path.
    pub place: String,
    /// Whether the store could be read at the last attempt.
    pub up: bool,
    /// How long ago changes were last read, in seconds; `null`: never.
    pub read_before_s: Option<u64>,
    /// Number of API keys in memory.
    pub cached: usize,
    /// Number of unknown API keys in memory.
    pub cached_unknown: usize,
}

/// Memory of the process, read once a second.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Memory {
    pub resident_bytes: u64,
    /// `memory.max_bytes`; `null` without a limit.
    pub max_bytes: Option<u64>,
}

/// Redis, which stores the shared buckets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RedisStatus {
    pub configured: bool,
    /// Whether Redis can be called; in a cluster, some master of it.
    pub connected: bool,
    /// Whether Redis has been reached since the start. Until then, buckets start as
    /// `redis.start_without` says.
    pub reached: bool,
    /// The masters of a Redis Cluster; empty with one server.
    pub masters: Vec<Master>,
    /// Which masters of a cluster are away, and what follows; `null` if all can be called.
    pub away: Option<String>,
}

/// A master of a Redis Cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Master {
    pub address: String,
    /// Number of its slots.
    #[serde(default)]
    pub slots: usize,
    /// Whether it can be called: there is a connection, and the breaker is not open.
    pub connected: bool,
    pub breaker: Breaker,
}

/// Buckets in this process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LocalBuckets {
    pub local: usize,
    pub max: usize,
    /// Buckets that were evicted before they were full again.
    pub evictions: u64,
    /// Buckets with a debt from an outage.
    pub debts: usize,
}

/// State of the circuit breaker. In a Redis Cluster, of those of all masters: closed if all are,
/// open if all are, otherwise half open.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Breaker {
    /// State, with the override applied: `closed`, `half_open` or `open`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub state: BreakerState,
    /// The operator's override: `open`, `closed`, or `auto` for none.
    #[cfg_attr(test, schemars(with = "String"))]
    pub r#override: Override,
    /// Milliseconds since the breaker entered this state.
    pub since_ms: u64,
    /// Percent of the requests that use Redis; in a cluster, the mean over its slots.
    pub admits_percent: u32,
    /// Milliseconds until the next probe of Redis, rounded up; 0 unless the breaker is open and not
    /// overridden.
    pub retry_after_ms: u64,
}
