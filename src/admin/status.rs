//! `GET /api/status`: the state of the gateway.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Admin;
use super::breaker::Breaker;
use crate::base::clock;
use crate::runtime::Runtime;
use crate::store::limiter::Limiter;
use crate::store::redis::availability::{self, MasterStatus};

/// Response of `GET /api/status`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Status {
    version: &'static str,
    /// Number of configurations that have been in force.
    generation: u64,
    uptime_s: u64,
    draining: bool,
    /// Whether `/ready` answers 200.
    ready: bool,
    redis: RedisStatus,
    /// State of the circuit breaker; `null` without Redis.
    breaker: Option<Breaker>,
    /// Number of live gateways that share this Redis.
    gateways: u32,
    limits: Limits,
    buckets: LocalBuckets,
    connections: Connections,
    overloaded: Overloaded,
    memory: Memory,
}

/// The limits in force, compared with those of the gateways that share this Redis.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "LimitsInForce"))]
struct Limits {
    /// Hash of everything that decides on limits, in 16 hexadecimal digits: the same on gateways
    /// with the same limits.
    hash: String,
    /// Number of live gateways that share this Redis and have another hash.
    gateways_with_others: u32,
}

/// Open client connections.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Connections {
    open: usize,
    /// `server.limits.max_connections`, or fewer if the limit of open files allows fewer.
    max: usize,
    /// The maximum from one address: `server.limits.max_connections_per_ip`, or half of `max` if
    /// that is fewer.
    max_per_ip: usize,
    /// Connections that were closed without a response in the last minute, or because the client is
    /// too slow, by reason, as in `tollgate_connections_rejected_total`.
    rejected_last_minute: BTreeMap<String, u64>,
}

/// Resources that the process has run out of.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Overloaded {
    /// File descriptors.
    descriptors: bool,
    /// Memory, by `memory.max_bytes`.
    memory: bool,
    /// Whether new connections wait until less memory is used.
    paused: bool,
}

/// Memory of the process, read once a second.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Memory {
    resident_bytes: u64,
    /// `memory.max_bytes`; `null` without a limit.
    max_bytes: Option<u64>,
}

/// Redis, which stores the shared buckets.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RedisStatus {
    configured: bool,
    /// Whether Redis can be called; in a cluster, some master of it.
    connected: bool,
    /// Whether Redis has been reached since the start. Until then, buckets start as
    /// `redis.start_without` says.
    reached: bool,
    /// The masters of a Redis Cluster; empty with one server.
    masters: Vec<Master>,
    /// Which masters of a cluster are away, and what follows; `null` if all can be called.
    away: Option<String>,
}

/// A master of a Redis Cluster.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Master {
    address: String,
    /// Number of its slots.
    slots: usize,
    /// Whether it can be called: there is a connection, and the breaker is not open.
    connected: bool,
    breaker: Breaker,
}

impl RedisStatus {
    fn of(limiter: &Limiter) -> Self {
        let Some(nodes) = limiter.redis() else {
            return Self {
                configured: false,
                connected: false,
                reached: false,
                masters: Vec::new(),
                away: None,
            };
        };
        let masters = nodes.masters();
        let away = availability::summary(&masters);
        let master = |master: MasterStatus| Master {
            address: master.address,
            slots: master.slots,
            connected: master.is_connected,
            breaker: master.breaker.into(),
        };
        Self {
            configured: true,
            connected: nodes.is_partly_connected(),
            reached: nodes.all().iter().all(|node| node.is_reached()),
            masters: masters.into_iter().map(master).collect(),
            away,
        }
    }
}

/// Buckets in this process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LocalBuckets {
    local: usize,
    max: usize,
    /// Buckets that were evicted before they were full again.
    evictions: u64,
    /// Buckets with a debt from an outage.
    debts: usize,
}

impl Status {
    pub(super) fn of(admin: &Admin) -> Self {
        let Runtime { current, limiter, store, .. } = &admin.runtime;
        let snapshot = current.load();
        let max = snapshot.policy.memory.max_buckets;
        let pressure = &admin.readiness.pressure;
        let memory = pressure.memory();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            generation: snapshot.generation,
            uptime_s: clock::now() / crate::base::duration::MICROS_PER_SECOND,
            draining: admin.readiness.draining.is_draining(),
            ready: admin.not_ready().is_none(),
            redis: RedisStatus::of(limiter),
            breaker: Breaker::of(limiter),
            gateways: limiter.gateways(),
            limits: Limits {
                hash: snapshot.limits.to_string(),
                gateways_with_others: limiter.gateways_with_other_limits(),
            },
            buckets: LocalBuckets {
                local: store.len(),
                max,
                evictions: store.evictions(),
                debts: limiter.debts(),
            },
            connections: Connections {
                open: pressure.open().count(),
                max: pressure.max_connections(&snapshot.policy),
                max_per_ip: pressure.max_connections_per_ip(&snapshot.policy),
                rejected_last_minute: admin.sampler.rejected_last_minute(),
            },
            overloaded: Overloaded {
                descriptors: pressure.is_out_of_descriptors(),
                memory: pressure.is_over_memory(),
                paused: pressure.is_paused(),
            },
            memory: Memory { resident_bytes: memory.used_bytes, max_bytes: memory.max_bytes },
        }
    }
}
