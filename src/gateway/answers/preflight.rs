//! Response to a CORS preflight request. It takes no tokens, needs no API key, and nothing is sent
//! to an upstream.

use bytes::Bytes;
use http::StatusCode;
use pingora::prelude::{ResponseHeader, Result};
use pingora::proxy::Session;

use crate::gateway::exchange::Exchange;
use crate::gateway::respond;

/// Writes the response, whose headers [`cors`](crate::gateway::cors) adds.
///
/// # Errors
/// The client has closed the connection.
pub(in crate::gateway) async fn respond(session: &mut Session, exchange: &Exchange) -> Result<()> {
    let head = ResponseHeader::build(StatusCode::NO_CONTENT, Some(8))?;
    respond::send_body(session, exchange, head, Bytes::new()).await
}
