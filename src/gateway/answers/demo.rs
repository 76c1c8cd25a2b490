//! The built-in upstream `demo`: echoes properties of the request, so that limits can be tried out
//! without an upstream.

use http::{HeaderValue, header};
use pingora::prelude::Result;
use pingora::proxy::Session;
use serde::Serialize;

use crate::client::ClientKey;
use crate::gateway::exchange::Exchange;
use crate::gateway::request::body_drain;
use crate::gateway::{header_edits, limit_headers, respond};

/// Body of the response.
#[derive(Serialize)]
struct Echo<'a> {
    message: &'static str,
    method: &'a str,
    path: &'a str,
    client: &'a str,
    plan: &'a str,
    route: &'a str,
    request_id: &'a str,
}

/// Writes the response to an allowed request.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(session: &mut Session, exchange: &Exchange) -> Result<()> {
    let policy = &exchange.snapshot.policy;
    // curl 7.88 sends the rest of a body after a response with status 200, but reads no more of an
    // HTTP/2 connection then, so it waits for a window forever.
    body_drain::consume(session, policy.server.read_timeout).await;
    let request = session.req_header();
    let client = exchange.client();
    let name = match client.map(|client| &client.key) {
        Some(ClientKey::Known(known)) => &*known.id,
        Some(ClientKey::Unknown(_)) => "unknown key",
        Some(ClientKey::Missing) | None => "anonymous",
    };
    let echo = Echo {
        message: "Hello from tollgate's demo upstream. Next, set [upstreams] to your own servers.",
        method: request.method.as_str(),
        path: request.uri.path(),
        client: name,
        plan: client.map_or("", |client| policy.plan_name(client.plan)),
        route: exchange.route().map_or("", |route| &route.name),
        request_id: exchange.request_id.as_str(),
    };
    let body = respond::pretty(&echo);
    let mut head = respond::ok(10)?;
    head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
    limit_headers::insert(&mut head, exchange)?;
    header_edits::edit_response(session.req_header(), &mut head, exchange)?;
    respond::send_body(session, exchange, head, body).await
}
