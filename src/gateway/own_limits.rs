//! What a client has left, told to the client itself on `clients.limits_path`. Takes no token and
//! sends nothing on.
//!
//! Reading order: this file (the answer), `told` (what it says: the contract).

mod told;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use pingora::proxy::Session;

use super::{Gateway, respond};
use crate::decide;
use crate::decide::decision::{Decision, LimitCheck};
use crate::decide::meetings::{Absent, Subject};
use crate::decide::problem::OWN_LIMITS_METHODS;
use crate::policy::Policy;
use crate::policy::client::{Client, ClientKey, counted_address};
use crate::runtime::Snapshot;
use crate::store::peek_cache::PeekClient;
use told::Listed;

impl Gateway {
    /// Decides on a request of a client for its own limits. `check` is the check of the rules by address,
    /// if the request may be a guess at a key.
    ///
    /// A client with a known key is denied if its address has no tokens left, as it is on any route:
    /// otherwise the response would tell a client that may guess no more which keys are known.
    pub(super) async fn own_limits(
        &self,
        session: &Session,
        snapshot: &Snapshot,
        client: Client,
        check: Option<LimitCheck>,
    ) -> Decision {
        let request = session.req_header();
        if request.method == Method::OPTIONS {
            return Decision::OwnLimits { check, view: None };
        }
        let headers = &request.headers;
        let host = decide::host(headers);
        let listed = Listed::of(
            &snapshot.policy,
            &Subject {
                client,
                by_key: client.key != ClientKey::Missing,
                route: None,
                method: None,
                host: Some(&host),
                headers,
                absent: Absent::AllOthers,
            },
        );
        let asker = asker(&snapshot.policy, &client);
        let levels = self.limiter.peek_cached(asker, &listed.charges(), &snapshot.rule_names).await;
        // A client with an unknown key has been charged for its guess.
        if matches!(client.key, ClientKey::Known(_)) {
            let by_address = LimitCheck::of(listed.by_address(&levels));
            if !by_address.allowed() {
                return Decision::Limited(by_address);
            }
        }
        Decision::OwnLimits { check, view: Some(respond::pretty(&listed.told(&levels))) }
    }
}

/// Writes the response to a request of a client for its own limits.
///
/// # Errors
/// The client has closed the connection.
pub(super) async fn respond(session: &mut Session, view: Option<Bytes>) -> pingora::Result<()> {
    let mut head = respond::ok(4)?;
    head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    let (name, value) = match view {
        None => (header::ALLOW, OWN_LIMITS_METHODS),
        Some(_) => (header::CONTENT_TYPE, "application/json"),
    };
    head.insert_header(name, HeaderValue::from_static(value))?;
    respond::send_body(session, head, view.unwrap_or_default()).await
}

fn asker(policy: &Policy, client: &Client) -> PeekClient {
    let prefix = policy.clients.ipv6_prefix;
    match client.key {
        ClientKey::Known(key) => PeekClient::Key(key),
        ClientKey::Unknown(_) | ClientKey::Missing => {
            PeekClient::Address(client.ip.map(|ip| counted_address(ip, prefix)))
        }
    }
}
