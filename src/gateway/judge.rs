//! May a request pass? The steps of one decision, in order.

use std::net::SocketAddr;

use http::header;
use pingora::proxy::Session;

use super::exchange::{Exchange, Judged};
use super::{Gateway, forward};
use crate::clock;
use crate::decide::{self, Case, Head, Refusal};
use crate::limit::charge::Charges;
use crate::limit::verdict::Verdict;
use crate::policy::client::Client;
use crate::request_id::RequestId;
use crate::store::limiter::Source;

impl Gateway {
    /// Decides on a request and takes its tokens. What it found out stands in the exchange.
    pub(super) async fn judge(
        &self,
        session: &Session,
        exchange: &mut Exchange,
    ) -> Result<(), Refusal> {
        let snapshot = std::sync::Arc::clone(&exchange.snapshot);
        let policy = &snapshot.policy;
        let head = head(session);
        let Case { identity, asks_limits, route, charges, demanded_by, refusal, .. } =
            decide::decide(policy, &head);
        let identity = identity?;
        exchange.asks_limits = asks_limits;
        exchange.route = route;
        let client = identity.client;
        exchange.client = Some(client);
        exchange.via_trusted_proxy = identity.via_trusted_proxy;
        if identity.via_trusted_proxy {
            let given = head.headers.get(forward::REQUEST_ID);
            let adopted = given.and_then(|given| RequestId::adopt(given.as_bytes()));
            exchange.request_id = adopted.unwrap_or_else(|| exchange.request_id.clone());
        }

        exchange.refused_unasked = demanded_by;
        if let Some(rule) = demanded_by {
            self.metrics.refused_by_policy(policy, rule, client.plan);
        }
        self.take(exchange, &client, charges).await?;
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        for rule in route.into_iter().flat_map(|route| policy.shadow_demands(&client, route)) {
            self.metrics.refused_by_policy(policy, rule, client.plan);
            exchange.shadow_demand.get_or_insert(rule);
        }
        Ok(())
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
        let ticks = clock::now().saturating_sub(started);
        exchange.check_started = Some(started);
        exchange.check_us = Some(ticks);
        self.observe_check(taken.source, ticks);
        snapshot.series.count(&self.metrics, &snapshot.policy, client.plan, &taken);
        snapshot.consumption.record(&snapshot.policy, client, &taken, started);
        if taken.source == Source::Policy {
            exchange.refused_unasked = taken.charges.first().map(|charge| charge.rule);
            return Err(Refusal::Unavailable { retry_after: self.limiter.retry_after_us() });
        }
        let judged = Judged::of(taken);
        let verdict = judged.verdict;
        exchange.judged = Some(judged);
        match verdict {
            Verdict::Refused { .. } => Err(Refusal::Limited),
            Verdict::Allowed { .. } | Verdict::Unlimited => Ok(()),
        }
    }
}

/// What a request says of itself, as far as anything is decided by it.
fn head(session: &Session) -> Head<'_> {
    let request = session.req_header();
    let peer = session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip);
    let in_chunks = request.headers.contains_key(header::TRANSFER_ENCODING);
    Head::of(request, request.raw_path(), peer, in_chunks && sent_content_length(session))
}

/// Whether the client sent `Content-Length`. Pingora drops it beside `Transfer-Encoding`, so only
/// the bytes that came still tell.
fn sent_content_length(session: &Session) -> bool {
    const NAME: &[u8] = b"content-length";
    let Some(http1) = session.as_http1() else { return false };
    let head = http1.get_headers_raw_bytes();
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))
}
