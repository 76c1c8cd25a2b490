//! May a request pass? The steps of one decision, in order.

use std::borrow::Cow;

use pingora::prelude::RequestHeader;
use pingora::proxy::Session;

use super::exchange::{Exchange, Judged, RequestId};
use super::guard::{self, Malformed};
use super::{Gateway, forward};
use crate::clock;
use crate::identity::{self, IdentityError};
use crate::limit::charge::Charges;
use crate::limit::verdict::Verdict;
use crate::policy::charges::{Facts, KeyRequired};
use crate::policy::client::{Client, ClientKey};
use crate::policy::path::PathError;
use crate::policy::settings::{OnMissingKey, OnUnknownKey};
use crate::store::limiter::Source;

/// Why a request does not pass. Its limits, where they are the reason, stand in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no request that could be sent on.
    Malformed(Malformed),
    /// Its path has no meaning, or more than one.
    Path(PathError),
    /// It has no client.
    Identity(IdentityError),
    /// No route matches.
    NoRoute,
    /// It has no key and needs one.
    KeyMissing,
    /// Its key is unknown.
    KeyUnknown,
    /// A rule lacks the tokens.
    Limited,
    /// A rule cannot be asked, and wants nothing to pass then.
    Unavailable {
        /// Ticks until it may be asked again.
        retry_after: u64,
    },
}

impl Gateway {
    /// Decides on a request and takes its tokens. What it found out stands in the exchange.
    pub(super) async fn judge(
        &self,
        session: &Session,
        exchange: &mut Exchange,
    ) -> Result<(), Refusal> {
        let snapshot = std::sync::Arc::clone(&exchange.snapshot);
        let policy = &snapshot.policy;
        let request = session.req_header();
        guard::check(&policy.server, session).map_err(Refusal::Malformed)?;

        let peer = session
            .client_addr()
            .and_then(|address| address.as_inet())
            .map(std::net::SocketAddr::ip);
        let identity = identity::identify(policy, peer, &request.headers, request.uri.query())
            .map_err(Refusal::Identity)?;
        let client = identity.client;
        exchange.client = Some(client);
        exchange.via_trusted_proxy = identity.via_trusted_proxy;
        if identity.via_trusted_proxy {
            let given = request.headers.get(forward::REQUEST_ID);
            let adopted = given.and_then(|given| RequestId::adopt(given.as_bytes()));
            exchange.request_id = adopted.unwrap_or_else(|| exchange.request_id.clone());
        }

        let host = host(request);
        let path = request.uri.path();
        let route = policy.router.find(&host, path, &request.method).map_err(Refusal::Path)?;
        exchange.route = route;
        let route = route.ok_or(Refusal::NoRoute)?;
        let facts =
            Facts { route, method: &request.method, host: &host, headers: &request.headers };

        if let Some(refusal) = unauthenticated(exchange, &client) {
            return self.count_by_address(exchange, &client, &facts, refusal).await;
        }
        match policy.charges(&client, &facts) {
            Ok(charges) => {
                self.take(exchange, &client, charges).await?;
                for rule in policy.shadow_demands(&client, route) {
                    self.metrics.refused_by_policy(policy, rule, client.plan);
                }
                Ok(())
            }
            Err(KeyRequired { rule }) => {
                self.metrics.refused_by_policy(policy, rule, client.plan);
                self.count_by_address(exchange, &client, &facts, Refusal::KeyMissing).await
            }
        }
    }

    /// Refuses a request without a valid key, after the rules per address have counted it: they
    /// may refuse it first, so that keys cannot be guessed at leisure.
    async fn count_by_address(
        &self,
        exchange: &mut Exchange,
        client: &Client,
        facts: &Facts<'_>,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        let charges = exchange.snapshot.policy.address_charges(client, facts);
        self.take(exchange, client, charges).await?;
        Err(refusal)
    }

    async fn take(
        &self,
        exchange: &mut Exchange,
        client: &Client,
        charges: Charges,
    ) -> Result<(), Refusal> {
        if charges.is_empty() {
            return Ok(());
        }
        let started = clock::now();
        let snapshot = &exchange.snapshot;
        let taken = self.limiter.take(charges, &snapshot.rule_names, started).await;
        self.observe_check(taken.source, clock::now().saturating_sub(started));
        snapshot.series.count(&self.metrics, &snapshot.policy, client.plan, &taken);
        if taken.source == Source::Policy {
            return Err(Refusal::Unavailable { retry_after: self.limiter.tried_again_in() });
        }
        let verdict = Verdict::of(&taken.charges, &taken.answer);
        exchange.judged = Some(Judged { taken, verdict });
        match verdict {
            Verdict::Refused { .. } => Err(Refusal::Limited),
            Verdict::Allowed { .. } | Verdict::Unlimited => Ok(()),
        }
    }
}

/// Whether the file demands a key that this client does not have.
fn unauthenticated(exchange: &Exchange, client: &Client) -> Option<Refusal> {
    let clients = &exchange.snapshot.policy.clients;
    match client.key {
        ClientKey::Known(_) => None,
        ClientKey::Missing => {
            (clients.on_missing_key == OnMissingKey::Deny).then_some(Refusal::KeyMissing)
        }
        ClientKey::Unknown(_) => {
            (clients.on_unknown_key == OnUnknownKey::Deny).then_some(Refusal::KeyUnknown)
        }
    }
}

/// The host that a request is for, in lower case, without port and without a final dot.
fn host(request: &RequestHeader) -> Cow<'_, str> {
    let header = request.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = header.unwrap_or_default();
    let host = match host.rsplit_once(':') {
        // A colon inside brackets is an IPv6 address'.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}
