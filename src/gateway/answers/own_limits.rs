//! Response to a client that asks for its own limits on `clients.limits_path`. Takes no tokens;
//! nothing is sent to an upstream.
//!
//! Reading order: this file (the decision and the response), `view` (the body).

mod view;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use pingora::proxy::Session;

use crate::base::clock;
use crate::client::{Client, ClientKey};
use crate::decide;
use crate::decide::applicability::{Absent, SelectedBy, Subject};
use crate::decide::decision::{Decision, LimitCheck};
use crate::decide::problem::own_limits_methods;
use crate::gateway::exchange::Exchange;
use crate::gateway::{Gateway, respond};
use view::{ClientRules, NowOf};

impl Gateway {
    /// Decides on a request of a client for its own limits, or for a new key. `check` is the result
    /// of the rules by address, if the request may be an attempt to guess a key.
    ///
    /// A client with a known key is denied if its address has no tokens left, as it is on any
    /// route: otherwise the response would reveal which keys are known to a client that must stop
    /// guessing.
    pub(in crate::gateway) async fn own_limits(
        &self,
        session: &mut Session,
        exchange: &Exchange,
        client: &Client,
        check: Option<LimitCheck>,
    ) -> Decision {
        let snapshot = &exchange.snapshot;
        let request = session.req_header();
        if request.method == Method::OPTIONS {
            return Decision::OwnLimits { check, view: None };
        }
        let headers = &request.headers;
        let host = decide::host(headers);
        let rules = ClientRules::of(
            &snapshot.policy,
            &Subject {
                client,
                selected_by: match client.key {
                    ClientKey::Missing => SelectedBy::Address,
                    ClientKey::Known(_) | ClientKey::Unknown(_) => SelectedBy::Key,
                },
                route: None,
                method: None,
                host: Some(&host),
                headers,
                absent: Absent::AllOthers,
            },
        );
        let peeking = client.known_or_address(snapshot.policy.clients.ipv6_prefix).id();
        let mut charges = rules.charges();
        snapshot.rates.apply(&mut charges);
        let levels = self.limiter.peek_cached(peeking, &charges, &snapshot.stored_rules).await;
        // A client with an unknown key has been charged for its guess.
        if client.principal().is_some() {
            let by_address = LimitCheck::of(rules.by_address(&levels));
            if !by_address.allowed() {
                return Decision::Limited { check: by_address, unauthenticated: None };
            }
        }
        if request.method == Method::POST {
            return Box::pin(self.rotate_own_key(session, exchange, client)).await;
        }
        let (bans, now) = (self.limiter.bans(), clock::now());
        let now = NowOf {
            ban_left_us: &|charge| bans.left_us(charge.bucket, now),
            rate_share: &|rule| snapshot.rates.share(rule),
        };
        let view = rules.view(&levels, &now);
        Decision::OwnLimits { check, view: Some(respond::pretty(&view)) }
    }
}

/// Writes the response. `view` is the body; `None` for `OPTIONS`.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(
    session: &mut Session,
    exchange: &Exchange,
    view: Option<Bytes>,
) -> pingora::Result<()> {
    let mut head = respond::ok(4)?;
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    let (name, value) = match view {
        None => ("Allow", own_limits_methods(&exchange.snapshot.policy)),
        Some(_) => ("Content-Type", "application/json"),
    };
    head.insert_header(name, HeaderValue::from_static(value))?;
    respond::send_body(session, exchange, head, view.unwrap_or_default()).await
}
