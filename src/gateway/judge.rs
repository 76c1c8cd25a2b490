//! The steps of one decision, in order.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header;
use pingora::proxy::Session;

use super::exchange::{CheckTime, Exchange};
use super::waiting::Wait;
use super::{Gateway, forward, waiting};
use crate::base::clock;
use crate::base::request_id::RequestId;
use crate::decide::decision::Decision;
use crate::decide::raw_head::RawHead;
use crate::decide::{self, Head, Precheck, Rejection};
use crate::downstream::ConnectionInfo;
use crate::limit::charge::Charges;
use crate::policy::client::Client;
use crate::store::limiter::Taken;

impl Gateway {
    /// Decides on a request and takes its tokens. Sets the client, the route and the time of the check
    /// in the exchange.
    pub(super) async fn judge(&self, session: &Session, exchange: &mut Exchange) -> Decision {
        let snapshot = Arc::clone(&exchange.snapshot);
        let policy = &snapshot.policy;
        let connection = Arc::clone(&exchange.connection);
        let head = head_over(session, &connection);
        let precheck = decide::precheck(policy, &head);
        let required_by = precheck.key_required_by();
        let Precheck { identity, is_own_limits, route, charges, scope, refusal, .. } = precheck;
        let identity = match identity {
            Ok(identity) => identity,
            Err(rejection) => return Decision::Rejected(rejection),
        };
        let client = identity.client;
        exchange.client = Some(client);
        exchange.key_from = identity.key_from;
        exchange.route = route;
        let mut chosen = None;
        if refusal.is_none() {
            let route = route.and_then(|route| policy.routes.get(route as usize));
            chosen = route.and_then(|route| self.turns.upstream(policy, route, &client));
            exchange.upstream = chosen.as_ref().map(|chosen| chosen.upstream);
        }
        exchange.via_trusted_proxy = identity.via_trusted_proxy;
        if identity.via_trusted_proxy {
            let given = head.headers.get(forward::REQUEST_ID);
            let adopted = given.and_then(|given| RequestId::adopt(given.as_bytes()));
            exchange.request_id = adopted.unwrap_or_else(|| exchange.request_id.clone());
        }

        if let Some(rule) = required_by {
            snapshot.series.refused_by_policy(&self.metrics, policy, rule, client.plan);
        }
        if let (None, Some(upstream), false) = (refusal, exchange.upstream_index(), is_own_limits)
            && !self.enter(exchange, upstream, client.plan)
        {
            return Decision::Rejected(Rejection::Shed);
        }
        let place = if waiting::can_delay(policy, &charges) {
            let place = self.waiting.enter(policy.server.limits.max_waiting_requests);
            if place.is_none() {
                exchange.slot = None;
                return Decision::Rejected(Rejection::QueueFull);
            }
            place
        } else {
            None
        };
        let taken = self.take(exchange, &client, charges).await;
        let mut decision = Decision::of(refusal, taken, || self.limiter.retry_after_us());
        if let Decision::Allowed { check, shadow_key_rules } = &mut decision {
            if is_own_limits {
                let check = check.take();
                return Box::pin(self.own_limits(session, &snapshot, client, check)).await;
            }
            if let Some(chosen) = &mut chosen {
                chosen.is_used = true;
            }
            let denials = |route| policy.shadow_key_denials(&client, route, scope);
            for rule in route.into_iter().flat_map(denials) {
                snapshot.series.refused_by_policy(&self.metrics, policy, rule, client.plan);
                shadow_key_rules.push(rule);
            }
            if let (Some(place), Some(check)) = (place, check) {
                exchange.wait = Wait::of(policy, check, place);
            }
        } else {
            exchange.slot = None;
        }
        decision
    }

    /// Adds the request to those in flight at its upstream. Returns whether it may go on: not if there are as many as
    /// may be.
    fn enter(&self, exchange: &mut Exchange, upstream: usize, plan: u32) -> bool {
        let snapshot = &exchange.snapshot;
        let policy = &snapshot.policy;
        let max = policy.upstreams.get(upstream).and_then(|upstream| upstream.max_in_flight);
        let Some(load) = snapshot.loads.get(upstream) else { return true };
        let slot = load.enter(max, &policy.priorities, plan);
        if slot.is_none() {
            snapshot.series.shed(&self.metrics, policy, upstream, plan);
        }
        exchange.slot = slot;
        exchange.slot.is_some()
    }

    /// Takes the tokens of the charges; `None` if there are no charges.
    async fn take(
        &self,
        exchange: &mut Exchange,
        client: &Client,
        charges: Charges,
    ) -> Option<Taken> {
        if charges.is_empty() {
            return None;
        }
        let started = clock::now();
        let snapshot = &exchange.snapshot;
        let (taken, holds) = self.limiter.take(charges, &snapshot.stored_rules, started).await;
        exchange.holds = holds;
        let took = clock::now().saturating_sub(started);
        exchange.check = Some(CheckTime { started, took });
        self.observe_check(taken.source, took);
        snapshot.series.count(&self.metrics, &snapshot.policy, client.plan, &taken);
        snapshot.consumption.record(&snapshot.policy, client, &taken, started);
        if let Some(usage) = &self.usage {
            usage.ledger().note(&snapshot.policy, client, &taken, started);
        }
        Some(taken)
    }
}

/// As [`head`], with what is known of the connection.
fn head_over<'a>(session: &'a Session, connection: &'a ConnectionInfo) -> Head<'a> {
    head(session)
        .with_certificate(connection.certificate_subject())
        .with_hidden_client(connection.is_client_hidden)
}

/// The parts of a request that the decision depends on.
pub(super) fn head(session: &Session) -> Head<'_> {
    let request = session.req_header();
    let peer = session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip);
    let raw = session.as_http1().map_or(RawHead::Plain, |http1| {
        let is_chunked = request.headers.contains_key(header::TRANSFER_ENCODING);
        RawHead::of(&http1.get_headers_raw_bytes(), is_chunked)
    });
    Head::of(request, request.raw_path(), peer, raw)
}
