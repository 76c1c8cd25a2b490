//! Explains the response to a request that is not sent, and the reason. It uses the code that
//! decides on real requests ([`precheck`]); nothing is counted, and no tokens are taken.
//!
//! Reading order: this file, `request` (the request to explain), `json` (its form on the admin
//! port), `report` (the explanation: a contract), `resolved`, `cors` and `rules` (how it is
//! derived), `wording` (codes and sentences), `text` (for a terminal).

pub mod json;
pub mod report;
pub mod request;
pub mod text;

mod cors;
pub(crate) mod resolved;
mod rules;
pub(crate) mod wording;

#[cfg(test)]
mod random_tables;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::base::clock;
use crate::client::credential::{Credential, CredentialKind};
use crate::client::principal::{Found, KeyRefusal, Principal};
use crate::decide::{Precheck, Rejection, credential, precheck};
use crate::keys::store::KeyStore;
use crate::policy::Policy;
use crate::runtime::{CurrentSnapshot, Snapshot};
use crate::store::limiter::{Limiter, Taken};
use crate::tokens::{NoKeys, Tokens};
use crate::upstream::health::{HealthView, State};
use crate::upstream::pool::EndpointView;
use report::Explanation;
use request::{HypotheticalRequest, RequestSpec, SpecError};

/// How long an explanation waits for its turn to verify a password.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the buckets that a request takes from.
#[derive(Debug, Clone, Copy)]
pub enum PeekResult<'a> {
    /// The buckets were not read.
    NotRead,
    /// The request takes from no bucket.
    NoBuckets,
    /// Their levels were read, and no tokens were taken.
    Read {
        /// What the store would answer now.
        taken: &'a Taken,
        /// Microseconds until the next probe of Redis; 0 while the breaker is closed, and without
        /// Redis.
        retry_after_us: u64,
    },
}

/// Explains requests with the configuration and the buckets of a running gateway.
pub struct Explainer {
    current: Arc<CurrentSnapshot>,
    limiter: Arc<Limiter>,
    keys: Option<Arc<KeyStore>>,
    /// The turn to verify a password, which takes time.
    verification: Arc<Semaphore>,
}

impl Explainer {
    /// Creates an explainer of the configuration in `current` and the buckets of `limiter`.
    pub fn new(current: Arc<CurrentSnapshot>, limiter: Arc<Limiter>) -> Self {
        Self { current, limiter, keys: None, verification: Arc::new(Semaphore::new(1)) }
    }

    /// The same, which also knows the clients of the key store.
    pub fn with_keys(self, keys: Option<Arc<KeyStore>>) -> Self {
        Self { keys, ..self }
    }

    /// The client of the key store that the request is assumed to have a key of.
    async fn stored_client(&self, policy: &Policy, spec: &RequestSpec) -> Option<Arc<Principal>> {
        let id = spec.key_id.as_deref().filter(|id| policy.keys.named(id).is_none())?;
        // An error is logged by the task that follows the store.
        self.keys.as_ref()?.client(policy, id).await.ok().flatten()
    }

    /// Finds whose login a request has, from the source with this index: away from the threads that
    /// serve the admin port, and one at a time.
    async fn verify(&self, snapshot: &Arc<Snapshot>, login: Vec<u8>, source: usize) -> Found {
        let unchecked = || Found::unusable(source, KeyRefusal::Unchecked);
        let turn = timeout(PATIENCE, Arc::clone(&self.verification).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return unchecked() };
        let snapshot = Arc::clone(snapshot);
        let verification = spawn_blocking(move || {
            // Also if the caller is gone: its turn ends with the work.
            let _turn = turn;
            let passwords = snapshot.policy.passwords.as_ref();
            passwords.map(|passwords| passwords.check(&login, source))
        });
        verification.await.ok().flatten().unwrap_or_else(unchecked)
    }

    /// Explains a request, with the current levels of its buckets.
    ///
    /// # Errors
    /// If no client could send the request.
    pub async fn explain(&self, spec: &RequestSpec) -> Result<Explanation, SpecError> {
        let snapshot = self.current.load_full();
        let policy = &snapshot.policy;
        let request = spec.request_of(policy, self.stored_client(policy, spec).await)?;
        let mut found = match login(policy, &request) {
            Some((login, source)) => Ok(self.verify(&snapshot, login, source).await),
            None => found(policy, &snapshot.tokens, &request),
        };
        let unknown = found.as_ref().ok().and_then(Found::unknown_key);
        if let (Some(keys), Some(unknown)) = (&self.keys, unknown) {
            found = Ok(keys.find(policy, snapshot.generation, unknown, clock::now()).await);
        }
        let head = request.head();
        let precheck = precheck(policy, &head, found);
        let explanation = |levels| {
            let mut explanation =
                resolved::explanation(&snapshot.policy, &request, &precheck, levels);
            for (rule, index) in explanation.rules.iter_mut().zip(0..) {
                let share = snapshot.rates.share(index);
                rule.rate_percent = share.map(|share| f64::from(share) / 10.0);
            }
            let upstream = explanation.route.upstream.as_deref();
            explanation.route.endpoints_down =
                upstream.map_or_else(Vec::new, |name| endpoints_down(&snapshot, name));
            explanation.route.lookups_failing =
                upstream.map_or_else(Vec::new, |name| lookups_failing(&snapshot, name));
            explanation
        };
        if precheck.charges.is_empty() {
            return Ok(explanation(PeekResult::NoBuckets));
        }
        let rules = &snapshot.stored_rules;
        let mut charges = precheck.charges.clone();
        snapshot.rates.apply(&mut charges);
        let taken = self.limiter.peek(&charges, rules, clock::now()).await;
        let retry_after_us = self.limiter.retry_after_us();
        Ok(explanation(PeekResult::Read { taken: &taken, retry_after_us }))
    }
}

/// The endpoints of an upstream that get no requests, with the reason.
fn endpoints_down(snapshot: &Snapshot, upstream: &str) -> Vec<String> {
    let pool = snapshot.pools.iter().find(|pool| **pool.name() == *upstream);
    let views = pool.map_or_else(Vec::new, |pool| pool.endpoints(clock::now()));
    let down = views.into_iter().filter(|view| view.health.state != State::Up);
    down.map(|EndpointView { address, health: HealthView { state, reason, .. }, .. }| {
        format!("{address} {}: {reason}", state.name())
    })
    .collect()
}

/// The names of servers of an upstream whose last look-up failed, with the reason.
fn lookups_failing(snapshot: &Snapshot, upstream: &str) -> Vec<String> {
    let Some(pool) = snapshot.pools.iter().find(|pool| **pool.name() == *upstream) else {
        return Vec::new();
    };
    let failing = pool.lookups().filter(|(_, view)| !view.reason.is_empty());
    failing
        .map(|(server, view)| format!("{server} {}: {}", view.state.name(), view.reason))
        .collect()
}

/// Explains a request without the levels of its buckets.
///
/// # Errors
/// If no client could send the request.
pub fn by_rules(policy: &Policy, spec: &RequestSpec) -> Result<Explanation, SpecError> {
    let request = spec.request(policy)?;
    let tokens = Tokens::new(&policy.clients, None);
    let precheck = prechecked(policy, &tokens, &request);
    let levels =
        if precheck.charges.is_empty() { PeekResult::NoBuckets } else { PeekResult::NotRead };
    Ok(resolved::explanation(policy, &request, &precheck, levels))
}

/// What is decided about the request before a bucket is read.
fn prechecked<'a>(
    policy: &Policy,
    tokens: &Tokens,
    request: &'a HypotheticalRequest,
) -> Precheck<'a> {
    precheck(policy, &request.head(), found(policy, tokens, request))
}

/// Whose key the request has: the one that it is assumed to have, in the first place where keys are
/// read.
fn found(
    policy: &Policy,
    tokens: &Tokens,
    request: &HypotheticalRequest,
) -> Result<Found, Rejection> {
    let assumed = request.assumed_key.as_ref().filter(|_| !policy.clients.key_sources.is_empty());
    if let (Some(passwords), Some((login, source))) = (&policy.passwords, login(policy, request)) {
        return Ok(passwords.check(&login, source));
    }
    let read = credential(policy, &request.head());
    if matches!(read, Ok(_) | Err(Rejection::Identity(_))) && is_named_by_server(policy, request) {
        return Ok(Found::NO_KEY);
    }
    read.and_then(|credential| {
        if let Some(known) = assumed {
            return Ok(Found::of(known, 0));
        }
        let found = tokens.look_up(policy, credential.as_ref(), clock::unix_us);
        found.map_err(|NoKeys| Rejection::NoTokenKeys)
    })
}

/// Whether the server that is asked about the request names its client, so that the gateway reads
/// no credential. The server is not asked: the request counts as one whose client it does not name.
fn is_named_by_server(policy: &Policy, request: &HypotheticalRequest) -> bool {
    if policy.forward_auth.is_empty() {
        return false;
    }
    let precheck = precheck(policy, &request.head(), Ok(Found::without_answer()));
    policy.forward_auth_of(precheck.route).is_some_and(|settings| settings.client.is_some())
}

/// The login that the request has, unless it is assumed to have a key, and the index of its source.
fn login(policy: &Policy, request: &HypotheticalRequest) -> Option<(Vec<u8>, usize)> {
    let is_read = policy.passwords.is_some() && !is_named_by_server(policy, request);
    if request.assumed_key.is_some() || !is_read {
        return None;
    }
    match credential(policy, &request.head()).ok()?? {
        Credential { source, kind: CredentialKind::Password(login), .. } => {
            Some((login.0.into_owned(), source))
        }
        _ => None,
    }
}
