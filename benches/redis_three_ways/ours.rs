//! The store of tollgate: checks share calls, and certain denials need none.

use std::sync::Arc;
use std::time::Duration;

use tollgate::base::clock;
use tollgate::limit::Limit as Kind;
use tollgate::limit::breaker::Settings;
use tollgate::limit::charge::{BucketId, Charge, Charges, Mode};
use tollgate::net::address::HostPort;
use tollgate::observe::metrics::Metrics;
use tollgate::policy::redis::{Address, Colocate, Login, Ready, Redis, StartWithout};
use tollgate::policy::{Lease, OnFailure};
use tollgate::store::debts::Debts;
use tollgate::store::limiter::{Limiter, Source};
use tollgate::store::memory::MemoryStore;
use tollgate::store::redis::batch::{Batcher, Target};
use tollgate::store::redis::link::Link;
use tollgate::store::redis::nodes::Nodes;
use tollgate::store::rule::StoredRule;

use crate::arithmetic::Limit;
use crate::ways::Taken;

/// The store, with and without the deny cache.
#[derive(Clone)]
pub(crate) struct Ours {
    batcher: Arc<Batcher>,
    limiter: Arc<Limiter>,
    rules: Arc<[StoredRule]>,
}

impl Ours {
    /// Creates the store as the gateway does, with one connection.
    pub(crate) async fn connect(port: u16) -> Self {
        let settings = settings(port);
        let (link, supervisor) = Link::new(&settings, None);
        tokio::spawn(async move { supervisor.run().await });
        while link.current().is_none() {
            tokio::task::yield_now().await;
        }
        let series = Metrics::new("bench").unwrap().redis();
        let Redis { prefix, timeout, .. } = &settings;
        let debts = Arc::new(Debts::new(1_000));
        // Checks that time out are decided locally; the benchmark counts them separately.
        let memory = Arc::new(MemoryStore::new(1_000_000, &[Kind::token_bucket(1, 1, 1).unwrap()]));
        let batcher = || {
            let held = Arc::clone(memory.held());
            let target = Target::server(Arc::clone(&link), prefix, Arc::clone(&debts), held);
            Batcher::new(target, *timeout, series.calls.clone())
        };
        let rule = StoredRule {
            name: Arc::from("bench"),
            salt: 0,
            on_failure: OnFailure::Local,
            lease: Lease::Off,
            is_leaky: false,
            ban: None,
        };
        let nodes = Nodes::over(&settings, batcher(), series.clone());
        Self {
            batcher: batcher(),
            limiter: Arc::new(Limiter::shared(Arc::clone(&memory), nodes, None)),
            rules: Arc::from([rule]),
        }
    }

    /// Takes a token of a user, without the deny cache.
    pub(crate) async fn take(&self, user: u64, limit: &Limit) -> Taken {
        let rules = Arc::clone(&self.rules);
        match self.batcher.take(charges(user, limit), rules).await {
            Ok(answered) => Taken::of(answered.answer.allowed()),
            Err(_) => Taken::Undecided,
        }
    }

    /// Takes a token of a user, as the gateway does.
    pub(crate) async fn take_cached(&self, user: u64, limit: &Limit) -> Taken {
        let charges = charges(user, limit);
        let (taken, _) = self.limiter.take(charges, &self.rules, clock::now()).await;
        match taken.source {
            Source::Redis | Source::Cache | Source::Lease => Taken::of(taken.answer.allowed()),
            Source::Local | Source::Policy | Source::Ban => Taken::Undecided,
        }
    }
}

/// The settings of a configuration with only a server.
fn settings(port: u16) -> Redis {
    Redis {
        address: Address::Server(HostPort { host: "127.0.0.1".to_string(), port }),
        tls: None,
        login: Login::default(),
        database: 0,
        timeout: Duration::from_millis(10),
        on_failure: OnFailure::Local,
        prefix: "tollgate:".to_string(),
        lanes: None,
        colocate: Colocate::Off,
        repair: true,
        ready: Ready::default(),
        start_without: StartWithout::default(),
        breaker: Settings::default(),
    }
}

/// The charges of a request of a user.
fn charges(user: u64, limit: &Limit) -> Charges {
    let limit = limit.kind;
    let bucket = BucketId(u128::from(mixed(user)) << 64 | u128::from(mixed(!user)));
    let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce };
    std::iter::once(charge).collect()
}

/// A pseudo-random permutation (splitmix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
