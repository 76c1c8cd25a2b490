//! `GET /api/status`: the state of the gateway.

use super::Admin;
use super::breaker;
use crate::api::status::{
    Connections, KeyStoreStatus, Limits, LocalBuckets, Master, Memory, Overloaded, RedisStatus,
    RuleStatus, Status,
};
use crate::base::clock;
use crate::keys::store::KeyStore;
use crate::observe::metrics::Metrics;
use crate::policy::Rule;
use crate::runtime::{Runtime, Snapshot};
use crate::store::limiter::Limiter;
use crate::store::redis::availability::{self, MasterStatus};

impl RedisStatus {
    fn of(limiter: &Limiter) -> Self {
        let Some(nodes) = limiter.redis() else {
            return Self::default();
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

impl KeyStoreStatus {
    fn of(store: &KeyStore) -> Self {
        let (cached, cached_unknown) = store.cached_keys();
        Self {
            place: store.kept.place(),
            up: store.is_available(),
            read_before_s: store.synced_before_s(),
            cached,
            cached_unknown,
        }
    }
}

impl Status {
    pub(super) fn of(admin: &Admin) -> Self {
        let Runtime { current, limiter, store, .. } = &admin.runtime;
        let snapshot = current.load();
        let max = snapshot.policy.memory.max_buckets;
        let pressure = &admin.readiness.pressure;
        let memory = pressure.memory();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: snapshot.generation,
            uptime_s: clock::now() / crate::base::duration::MICROS_PER_SECOND,
            draining: admin.readiness.draining.is_draining(),
            ready: admin.not_ready().is_none(),
            redis: RedisStatus::of(limiter),
            breaker: breaker::of(limiter),
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
            connections: Some(Connections {
                open: pressure.open().count(),
                max: pressure.max_connections(&snapshot.policy),
                max_per_ip: pressure.max_connections_per_ip(&snapshot.policy),
                rejected_last_minute: admin.sampler.rejected_last_minute(),
            }),
            overloaded: Overloaded {
                descriptors: pressure.is_out_of_descriptors(),
                memory: pressure.is_over_memory(),
                paused: pressure.is_paused(),
            },
            key_store: admin.runtime.keys.as_deref().map(KeyStoreStatus::of),
            memory: Some(Memory { resident_bytes: memory.used_bytes, max_bytes: memory.max_bytes }),
            rules: RuleStatus::all(&snapshot, limiter, &admin.runtime.metrics),
        }
    }
}

impl RuleStatus {
    /// Those of the rules of which there is something to say.
    fn all(snapshot: &Snapshot, limiter: &Limiter, metrics: &Metrics) -> Vec<Self> {
        let bans = limiter.bans().counts(clock::now());
        let quotas = metrics.quotas.by_rule();
        let of = |rule: &Rule| {
            let mut shares = snapshot.rates.shares();
            let share = shares.find(|(name, _)| **name == *rule.name).map(|(_, share)| share);
            let (warned, overage_tokens) = quotas.get(&*rule.name).copied().unwrap_or_default();
            let bans = rule.ban.map(|_| bans.get(&*rule.name).copied().unwrap_or_default());
            let rate_percent = share.map(|thousandths| f64::from(thousandths) / 10.0);
            Self { rule: rule.name.to_string(), bans, rate_percent, warned, overage_tokens }
        };
        let all = snapshot.policy.rules.iter().filter(|rule| rule.enabled).map(of);
        let has_any = |it: &Self| {
            let is_quota = it.warned > 0 || it.overage_tokens > 0.0;
            it.bans.is_some() || it.rate_percent.is_some() || is_quota
        };
        all.filter(has_any).collect()
    }
}
