//! What a client has left, told to the client itself on `clients.limits_path`. Takes no token and
//! sends nothing on.
//!
//! Reading order: this file (the answer), `told` (what it says: the contract).

mod told;

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use pingora::proxy::Session;

use super::Gateway;
use super::exchange::{Exchange, Judged};
use super::respond::{self, LIMITS_METHODS};
use crate::decide::meetings::{Absent, Subject};
use crate::decide::{self, Refusal};
use crate::policy::Policy;
use crate::policy::client::{Client, ClientKey, counted_address};
use crate::store::limiter::Taken;
use crate::store::peek_cache::PeekClient;
use told::Listed;

impl Gateway {
    /// Answers a request for the limits of its own client. One with a key is refused where its
    /// address has nothing left, as it is everywhere: the answer would tell which keys are known
    /// to somebody who may guess no more.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) async fn tell_limits(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> pingora::Result<()> {
        let mut head = respond::ok(4)?;
        head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
        let is_options = session.req_header().method == Method::OPTIONS;
        let Some(client) = exchange.client.filter(|_| !is_options) else {
            head.insert_header("Allow", HeaderValue::from_static(LIMITS_METHODS))?;
            return respond::send_body(session, head, Bytes::new()).await;
        };
        let body = match self.limits(session, exchange, client).await {
            Ok(body) => body,
            Err(taken) => {
                exchange.judged = Some(Judged::of(taken));
                exchange.refusal = Some(Refusal::Limited);
                return respond::refuse(session, exchange, Refusal::Limited).await;
            }
        };
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
        respond::send_body(session, head, body).await
    }

    async fn limits(
        &self,
        session: &Session,
        exchange: &Exchange,
        client: Client,
    ) -> Result<Bytes, Taken> {
        let snapshot = &exchange.snapshot;
        let headers = &session.req_header().headers;
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
        // Others have paid for their guess.
        if matches!(client.key, ClientKey::Known(_)) {
            let taken = listed.by_address(&levels);
            if !taken.answer.allowed() {
                return Err(taken);
            }
        }
        Ok(respond::pretty(&listed.told(&levels)))
    }
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
