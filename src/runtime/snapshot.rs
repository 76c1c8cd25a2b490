//! The configuration in force, resolved for the request path.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::observe::consumption::Consumption;
use crate::observe::metrics::{PolicySeries, ServerHealth};
use crate::policy::Policy;
use crate::store::redis::script::StoredRule;
use crate::upstream::pool::Pool;

/// The snapshot that new requests load. Only [`Runtime::apply`](super::Runtime::apply) replaces it.
pub type CurrentSnapshot = ArcSwap<Snapshot>;

/// Everything that requests need of one configuration. A request loads a snapshot once and uses it to
/// its end, even if a reload replaces the current one meanwhile.
pub struct Snapshot {
    /// Number of configurations that have been in force, this one included.
    pub generation: u64,
    /// The configuration, with names resolved and values checked.
    pub policy: Arc<Policy>,
    /// Prometheus series with labels from the policy.
    pub series: PolicySeries,
    /// The clients with the most requests.
    pub consumption: Consumption,
    /// Names of the policy's rules in Redis, in the order of `policy.rules`.
    pub stored_rules: Arc<[StoredRule]>,
    /// Upstream pools, in the order of `policy.upstreams`.
    pub pools: Vec<Arc<Pool>>,
}

impl Snapshot {
    /// Creates the first snapshot of a process, of generation 1. `pools` has one pool for each of
    /// the policy's upstreams, in their order.
    pub fn new(policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        Self::with(1, policy, Consumption::default(), pools)
    }

    /// Creates the snapshot of the generation after `previous`. The counts of clients that both policies
    /// have in common are carried over.
    pub fn following(previous: &Self, policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        let consumption = previous.consumption.carried_over(&previous.policy, &policy);
        Self::with(previous.generation + 1, policy, consumption, pools)
    }

    /// Returns every server of every upstream, and whether it is healthy at `now` (microseconds).
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
        let stored_rules = policy.rules.iter().map(StoredRule::of).collect();
        Self { generation, policy: Arc::new(policy), series, consumption, stored_rules, pools }
    }
}
