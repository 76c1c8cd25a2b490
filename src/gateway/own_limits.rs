//! What a client has left, told to the client itself on `clients.limits_path`. Takes no token and
//! sends nothing on.
//!
//! Reading order: this file (the answer), `told` (what it says: the contract).

mod told;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use pingora::prelude::{ResponseHeader, Result};
use pingora::proxy::Session;

use super::Gateway;
use super::exchange::Exchange;
use super::respond::{self, LIMITS_METHODS};
use crate::decide;
use crate::decide::meetings::{Absent, Subject};
use crate::policy::client::{Client, ClientKey};
use told::Listed;

impl Gateway {
    /// Answers a request for the limits of its own client.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) async fn tell_limits(
        &self,
        session: &mut Session,
        exchange: &Exchange,
    ) -> Result<()> {
        let mut head = ResponseHeader::build(StatusCode::OK, Some(4))?;
        head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
        let is_options = session.req_header().method == Method::OPTIONS;
        let Some(client) = exchange.client.filter(|_| !is_options) else {
            head.insert_header("Allow", HeaderValue::from_static(LIMITS_METHODS))?;
            return respond::send_body(session, head, Bytes::new()).await;
        };
        let body = self.limits(session, exchange, client).await;
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
        respond::send_body(session, head, body).await
    }

    async fn limits(&self, session: &Session, exchange: &Exchange, client: Client) -> Bytes {
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
        let levels = self.limiter.glance(&listed.charges(), &snapshot.rule_names).await;
        let mut body = serde_json::to_vec_pretty(&listed.told(&levels)).unwrap_or_default();
        body.push(b'\n');
        body.into()
    }
}
