//! Refusals on their way to the audit. Each thread adds up its own, so that requests do not wait
//! for each other or for a search; the audit collects them once a second and before each search.
//!
//! Every kind has its own bound: a flood of requests without a key, or a shadow rule that would
//! refuse all traffic, takes no room from the refusals by limits.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::refusal::Refusal;
use super::{AuditedRequest, Kind};
use crate::base::shard::Sharded;
use crate::client::Client;
use crate::client::identifier::ClientId;
use crate::client::principal::CredentialState;
use crate::decide::reason::Reason;
use crate::limit::cost::Cost;
use crate::observe::run_span::Times;
use crate::policy::Policy;

/// Maximum number of clients and rules that one shard counts between two collections.
const fn capacity(kind: Kind) -> usize {
    match kind {
        Kind::Limit => 4_096,
        Kind::Unavailable | Kind::Unauthorized | Kind::Shadow => 512,
    }
}

/// Refusals that have not been collected.
#[derive(Debug)]
pub(super) struct Tallies(Sharded<Shard>);

/// The refusals of one thread.
#[derive(Debug)]
struct Shard {
    tallies: [HashMap<TallyId, Tally, RandomState>; Kind::ALL.len()],
    /// Number of refusals beyond the capacity, by kind.
    beyond: [u64; Kind::ALL.len()],
}

/// What refusals of one kind are counted by. Indexes refer to the policy of the generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TallyId {
    generation: u64,
    client: ClientId,
    /// Id of the client's tenant: a client by a token can be of several.
    tenant: Option<Arc<str>>,
    rule: Option<u32>,
    reason: Option<Reason>,
    key_from: Option<usize>,
    credential: CredentialState,
    key_name: Option<Arc<str>>,
}

/// Refusals of one client by one rule, added up.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) policy: Arc<Policy>,
    pub(super) generation: u64,
    pub(super) kind: Kind,
    /// The client of the first refusal.
    pub(super) client: Client,
    /// Index of the rule.
    pub(super) rule: Option<u32>,
    pub(super) reason: Option<Reason>,
    /// Index of the source of the key that no client is known by.
    pub(super) key_from: Option<usize>,
    /// What is known about that key.
    pub(super) credential: CredentialState,
    /// Name of the known key.
    pub(super) key_name: Option<Arc<str>>,
    pub(super) first: Times,
    pub(super) last: Times,
    pub(super) count: u64,
    /// Index of the route of the last refusal.
    pub(super) route: Option<u32>,
    /// Whether earlier refusals were on other routes.
    pub(super) other_routes: bool,
    /// Cost of the last refused request.
    pub(super) cost: Option<Cost>,
    /// Whole tokens left at the last refusal.
    pub(super) tokens: Option<u64>,
}

impl Default for Tallies {
    fn default() -> Self {
        Self(Sharded::new(Shard::default))
    }
}

impl Default for Shard {
    fn default() -> Self {
        let tallies = Kind::ALL.map(|_| HashMap::default());
        Self { tallies, beyond: [0; Kind::ALL.len()] }
    }
}

impl Tallies {
    /// Counts a refusal.
    pub(super) fn add(&self, request: &AuditedRequest<'_>, refusal: Refusal, at: Times) {
        if let Some(shard) = self.0.own() {
            shard.lock().add(request, refusal, at);
        }
    }

    /// Passes all tallies to `collect`, and the number of refusals of a kind that are in none.
    pub(super) fn collect(
        &self,
        mut collect: impl FnMut(Tally),
        mut beyond: impl FnMut(Kind, u64),
    ) {
        for shard in self.0.iter() {
            // Only taken under the lock: a thread that serves requests may wait for it.
            let Shard { tallies, beyond: counts } = std::mem::take(&mut *shard.lock());
            tallies.into_iter().flatten().for_each(|(_, tally)| collect(tally));
            for (kind, count) in Kind::ALL.into_iter().zip(counts) {
                beyond(kind, count);
            }
        }
    }
}

impl Shard {
    fn add(&mut self, request: &AuditedRequest<'_>, refusal: Refusal, at: Times) {
        let Refusal { kind, rule, reason, tokens, .. } = refusal;
        let (index, route) = (kind as usize, request.route);
        let (Some(tallies), Some(beyond)) =
            (self.tallies.get_mut(index), self.beyond.get_mut(index))
        else {
            return;
        };
        let counted = request.client.known_or_address(request.policy.clients.ipv6_prefix).id();
        let generation = request.generation;
        let is_known = request.client.principal().is_some();
        let key_from = request.key_from.filter(|_| !is_known);
        let key_name = request.key_name.cloned();
        let tenant = request.client.tenant.as_ref().map(|tenant| Arc::clone(&tenant.id));
        let credential = CredentialState::of(request.key_refusal);
        let id = TallyId {
            generation,
            client: counted,
            tenant,
            rule,
            reason,
            key_from,
            credential,
            key_name,
        };
        let cost = refusal.cost.or_else(|| request.cost_of_route(kind));
        if let Some(tally) = tallies.get_mut(&id) {
            tally.other_routes |= tally.route != route;
            tally.count += 1;
            (tally.last, tally.route, tally.cost, tally.tokens) = (at, route, cost, tokens);
            return;
        }
        if tallies.len() >= capacity(kind) {
            *beyond += 1;
            return;
        }
        let tally = Tally {
            policy: Arc::clone(request.policy),
            generation,
            kind,
            client: request.client.clone(),
            rule,
            reason,
            key_from,
            credential,
            key_name: id.key_name.clone(),
            first: at,
            last: at,
            count: 1,
            route,
            other_routes: false,
            cost,
            tokens,
        };
        tallies.insert(id, tally);
    }
}
