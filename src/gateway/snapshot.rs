//! Everything that a file says, ready to serve requests by.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::pool::Pool;
use crate::observe::consumption::Consumption;
use crate::observe::metrics::{PolicySeries, ServerHealth};
use crate::policy::Policy;
use crate::store::redis::script::RuleName;

/// The snapshot that new requests live by. Written by a reload alone.
pub type Current = ArcSwap<Snapshot>;

/// What a request lives by, from its first phase to its last.
pub struct Snapshot {
    /// How many files have been in force, this one included.
    pub generation: u64,
    /// The rules.
    pub policy: Arc<Policy>,
    /// The policy's own series.
    pub series: PolicySeries,
    /// Who asks most.
    pub consumption: Consumption,
    /// What the policy's rules are called in Redis.
    pub rule_names: Arc<[RuleName]>,
    /// One for each of the policy's upstreams.
    pub pools: Vec<Arc<Pool>>,
}

impl Snapshot {
    /// Everything that the first policy needs to serve requests. `pools` has one for each of its
    /// upstreams.
    pub fn new(policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        Self::with(1, policy, Consumption::default(), pools)
    }

    /// The same for a policy that follows that of `previous`.
    pub fn following(previous: &Self, policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        let consumption = previous.consumption.carried_over(&previous.policy, &policy);
        Self::with(previous.generation + 1, policy, consumption, pools)
    }

    /// Every server of every upstream, and whether requests go there at `now` (ticks).
    pub fn servers(&self, now: u64) -> Vec<ServerHealth<'_>> {
        let each = self.policy.upstreams.iter().zip(&self.pools);
        each.flat_map(|(upstream, pool)| {
            pool.health(now).into_iter().map(|(server, is_healthy)| ServerHealth {
                upstream: &upstream.name,
                server,
                is_healthy,
            })
        })
        .collect()
    }

    fn with(
        generation: u64,
        policy: Policy,
        consumption: Consumption,
        pools: Vec<Arc<Pool>>,
    ) -> Self {
        let series = PolicySeries::new(&policy);
        let rule_names = policy.rules.iter().map(RuleName::of).collect();
        Self { generation, policy: Arc::new(policy), series, consumption, rule_names, pools }
    }
}
