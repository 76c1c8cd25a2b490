//! The configuration in force, resolved for the request path.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::rates::Rates;
use crate::auth::forward::ForwardAuthChecks;
use crate::auth::introspection::IntrospectionChecks;
use crate::observe::consumption::Consumption;
use crate::observe::metrics::{NameLookup, PolicySeries, ServerHealth, UpstreamLoad};
use crate::policy::Policy;
use crate::policy::limits_hash::LimitsHash;
use crate::policy::settings::Upstream;
use crate::store::rule::StoredRule;
use crate::tokens::Tokens;
use crate::upstream::load::Load;
use crate::upstream::pool::Pool;

/// The snapshot that new requests load. Only [`Runtime::apply`](super::Runtime::apply) replaces it.
pub type CurrentSnapshot = ArcSwap<Snapshot>;

/// Everything that requests need of one configuration. A request loads a snapshot once and uses it
/// to its end, even if a reload replaces the current one meanwhile.
pub struct Snapshot {
    /// Number of configurations that have been in force, this one included.
    pub generation: u64,
    /// The configuration, with names resolved and values checked.
    pub policy: Arc<Policy>,
    pub limits: LimitsHash,
    /// Prometheus series with labels from the policy.
    pub series: PolicySeries,
    /// The clients with the most requests.
    pub consumption: Consumption,
    /// Names of the policy's rules in Redis, in the order of `policy.rules`.
    pub stored_rules: Arc<[StoredRule]>,
    /// Upstream pools, in the order of `policy.upstreams`.
    pub pools: Vec<Arc<Pool>>,
    /// Requests in flight at each upstream, in the order of `policy.upstreams`.
    pub loads: Vec<Arc<Load>>,
    /// What part of their rates rules have now.
    pub rates: Rates,
    /// The keys of token issuers, and verified tokens.
    pub tokens: Tokens,
    /// Asks the issuer of bearer tokens about them; `None`: it is not asked.
    pub introspection: Option<IntrospectionChecks>,
    /// Servers that are asked about requests, in the order of `policy.forward_auth`.
    pub forward_auth: Vec<ForwardAuthChecks>,
}

impl Snapshot {
    /// Creates the first snapshot of a process, of generation 1. `pools` has one pool for each of
    /// the policy's upstreams, in their order.
    pub fn new(policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        let loads = policy.upstreams.iter().map(|_| Arc::default()).collect();
        let tokens = Tokens::new(&policy.clients, None);
        let rates = Rates::of(&policy, None);
        Self::with(1, policy, rates, Consumption::default(), pools, loads, tokens)
    }

    /// Creates the snapshot of the generation after `previous`. The counts of clients that both
    /// policies have in common are carried over.
    pub fn following(
        previous: &Self,
        policy: Policy,
        pools: Vec<Arc<Pool>>,
        tokens: Tokens,
    ) -> Self {
        let consumption = previous.consumption.carried_over(&previous.policy, &policy);
        let load = |upstream: &Upstream| {
            let each = previous.policy.upstreams.iter().zip(&previous.loads);
            let same = each.into_iter().find(|(known, _)| known.name == upstream.name);
            same.map_or_else(Arc::default, |(_, load)| Arc::clone(load))
        };
        let loads = policy.upstreams.iter().map(load).collect();
        let rates = Rates::of(&policy, Some(&previous.rates));
        Self::with(previous.generation + 1, policy, rates, consumption, pools, loads, tokens)
    }

    /// Returns every server of every upstream, and its state at `now` (microseconds).
    pub fn servers(&self, now: u64) -> Vec<ServerHealth<'_>> {
        let each = self.policy.upstreams.iter().zip(&self.pools);
        each.flat_map(|(upstream, pool)| {
            pool.health(now).into_iter().map(|(server, state)| ServerHealth {
                upstream: &upstream.name,
                server,
                state,
            })
        })
        .collect()
    }

    /// Returns how the last look-up of each name of a server went.
    pub fn lookups(&self) -> Vec<NameLookup<'_>> {
        let each = self.policy.upstreams.iter().zip(&self.pools);
        each.flat_map(|(upstream, pool)| {
            pool.lookups().map(|(server, view)| NameLookup {
                upstream: &upstream.name,
                server: server.to_string(),
                state: view.state,
            })
        })
        .collect()
    }

    /// Returns the name of each upstream that no request can be forwarded to, because no server has
    /// a known address.
    pub fn upstreams_without_address(&self) -> impl Iterator<Item = &str> {
        let each = self.policy.upstreams.iter().zip(&self.pools);
        each.filter(|(_, pool)| pool.has_no_address()).map(|(upstream, _)| &*upstream.name)
    }

    /// Returns the requests in flight at each upstream, and the limit on them.
    pub fn loads(&self) -> Vec<UpstreamLoad<'_>> {
        let each = self.policy.upstreams.iter().zip(&self.loads).zip(&self.pools);
        each.map(|((upstream, load), pool)| {
            let (connections, pending) = pool.connections();
            UpstreamLoad {
                upstream: &upstream.name,
                in_flight: load.in_flight(),
                limit: load.limit(upstream.max_in_flight),
                connections,
                pending,
            }
        })
        .collect()
    }

    fn with(
        generation: u64,
        policy: Policy,
        rates: Rates,
        consumption: Consumption,
        pools: Vec<Arc<Pool>>,
        loads: Vec<Arc<Load>>,
        tokens: Tokens,
    ) -> Self {
        let series = PolicySeries::new(&policy);
        let limits = LimitsHash::of(&policy);
        let introspection = policy.introspection.as_deref().map(IntrospectionChecks::new);
        let forward_auth = policy.forward_auth.iter().map(ForwardAuthChecks::new).collect();
        let stored_rules = policy.rules.iter().map(StoredRule::of).collect();
        Self {
            generation,
            policy: Arc::new(policy),
            limits,
            series,
            consumption,
            stored_rules,
            pools,
            loads,
            rates,
            tokens,
            introspection,
            forward_auth,
        }
    }
}
