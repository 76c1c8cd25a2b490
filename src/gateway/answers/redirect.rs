//! Listeners that only redirect to HTTPS (`redirect = "https"`).

use http::{StatusCode, header};
use pingora::prelude::{ResponseHeader, Result};
use pingora::proxy::Session;

use crate::decide::decision::Decision;
use crate::decide::{Rejection, guard};
use crate::gateway::exchange::Exchange;
use crate::gateway::judge::{self, Judged};
use crate::gateway::respond;
use crate::net::address::Authority;

/// The port that `https` URLs leave out.
const HTTPS_PORT: u16 = 443;

/// Responds with 308 to the same URL over HTTPS at this port; with 400 to a request without a valid
/// host. A redirect takes no tokens.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(
    session: &mut Session,
    exchange: &mut Exchange,
    port: u16,
) -> Result<()> {
    let head = judge::head(session);
    let checked = guard::check(&exchange.snapshot.policy.server, &head);
    let location = checked.and_then(|()| location(&head, port).ok_or(guard::Malformed::NoHost));
    let location = match location {
        Ok(location) => location,
        Err(malformed) => {
            let decision = Decision::Rejected(Rejection::Malformed(malformed));
            exchange.judged = Some(Judged::of(decision));
            return respond::respond(session, exchange).await.map(drop);
        }
    };
    exchange.judged = Some(Judged::of(Decision::UNCHECKED));
    let mut head = ResponseHeader::build(StatusCode::PERMANENT_REDIRECT, Some(4))?;
    head.insert_header("Location", location)?;
    respond::send_body(session, exchange, head, bytes::Bytes::new()).await
}

/// The URL of a request over HTTPS; `None` if the request has no host.
fn location(head: &crate::decide::Head<'_>, port: u16) -> Option<String> {
    let host = head.headers.get(header::HOST)?.to_str().ok()?;
    let host = Authority::split(host).ok()?.host;
    if host.is_empty() {
        return None;
    }
    let port = if port == HTTPS_PORT { String::new() } else { format!(":{port}") };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    // `OPTIONS *`.
    let path = if path.starts_with('/') { path } else { "/" };
    Some(format!("https://{host}{port}{path}"))
}
