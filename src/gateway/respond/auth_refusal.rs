//! The response of a server that is asked about a request (`forward_auth`), as the client gets it.

use http::{HeaderValue, header};
use pingora::prelude::{ResponseHeader, Result};
use pingora::proxy::Session;

use super::send_body;
use crate::client::auth_answer::AuthRefusal;
use crate::gateway::exchange::Exchange;
use crate::gateway::{header_edits, limit_headers};

/// Writes the response.
///
/// # Errors
/// The client has closed the connection.
pub(super) async fn respond(
    session: &mut Session,
    exchange: &Exchange,
    refusal: &AuthRefusal,
) -> Result<()> {
    let mut head = ResponseHeader::build(refusal.status, Some(refusal.headers.len() + 8))?;
    for (name, value) in &refusal.headers {
        head.append_header(name.clone(), value.clone())?;
    }
    if !head.headers.contains_key(header::CACHE_CONTROL) {
        head.insert_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    }
    limit_headers::insert(&mut head, exchange)?;
    header_edits::complete_own_response(session.req_header(), &mut head, exchange)?;
    send_body(session, exchange, head, refusal.body.clone()).await
}
