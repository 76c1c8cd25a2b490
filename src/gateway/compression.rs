//! Compresses the responses of upstreams. Which ones, and by which coding, is decided by
//! [`policy::compression`](crate::policy::compression).
//!
//! Every part of a body is passed on when it arrives: the encoder is flushed after it, as that of
//! Envoy. What is compressed together is therefore what the server has sent together, at most 64
//! KiB.

mod encoder;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use pingora::prelude::{Error, ErrorType, ResponseHeader, Result};
use pingora::proxy::Session;

use super::exchange::Exchange;
use crate::net::vary;
use crate::policy::compression::{Action, OF_THE_ORIGINAL, Request, revalidated, weakened};
pub(super) use encoder::Encoder;

/// Decides whether a response with a body is compressed, and changes its head accordingly.
///
/// # Errors
/// Never: names and values are valid.
pub(super) fn begin(
    session: &Session,
    response: &mut ResponseHeader,
    exchange: &mut Exchange,
) -> Result<()> {
    let action = action(session, response, exchange);
    if action == Action::Pass { Ok(()) } else { apply(action, session, response, exchange) }
}

fn action(session: &Session, response: &ResponseHeader, exchange: &Exchange) -> Action {
    let Some(compression) = exchange.compression() else { return Action::Pass };
    let request = session.req_header();
    let request =
        Request { method: &request.method, version: request.version, headers: &request.headers };
    compression.action(request, response.status, &response.headers)
}

fn apply(
    action: Action,
    session: &Session,
    response: &mut ResponseHeader,
    exchange: &mut Exchange,
) -> Result<()> {
    if let Some(vary) = vary::also(&response.headers, &header::ACCEPT_ENCODING) {
        response.insert_header("Vary", vary)?;
    }
    let etag = response.headers.get(header::ETAG);
    let Action::Compress(coding) = action else {
        let is_revalidated = response.status == StatusCode::NOT_MODIFIED;
        let etag = etag.filter(|_| is_revalidated);
        if let Some(etag) = etag.and_then(|etag| revalidated(etag, &session.req_header().headers)) {
            response.insert_header(header::ETAG, etag)?;
        }
        return Ok(());
    };
    // Without memory for an encoder, the response passes as it is.
    let Ok(encoder) = Encoder::new(coding) else { return Ok(()) };
    if let Some(etag) = etag.and_then(weakened) {
        response.insert_header(header::ETAG, etag)?;
    }
    for name in &OF_THE_ORIGINAL {
        response.remove_header(name);
    }
    let name = HeaderValue::from_static(coding.name());
    response.insert_header("Content-Encoding", name)?;
    if session.as_http1().is_some() {
        response.insert_header("Transfer-Encoding", "chunked")?;
    }
    exchange.encoder = Some(Box::new(encoder));
    Ok(())
}

/// Compresses a part of the body, if the response is compressed. `is_end`: it is the last one.
///
/// # Errors
/// The encoder has failed.
pub(super) fn encode(
    body: &mut Option<Bytes>,
    is_end: bool,
    exchange: &mut Exchange,
) -> Result<()> {
    let Some(encoder) = &mut exchange.encoder else { return Ok(()) };
    let mut output = match body.take().filter(|part| !part.is_empty()) {
        Some(part) => encoder.encode(&part).map_err(failed)?,
        None => Bytes::new(),
    };
    if is_end && let Some(rest) = end(exchange)? {
        output = if output.is_empty() { rest } else { [output, rest].concat().into() };
    }
    *body = Some(output).filter(|output| !output.is_empty());
    Ok(())
}

/// The end of a body that is compressed; `None` if it is not.
///
/// # Errors
/// The encoder has failed.
pub(super) fn end(exchange: &mut Exchange) -> Result<Option<Bytes>> {
    let Some(encoder) = exchange.encoder.take() else { return Ok(None) };
    encoder.finish().map(Some).map_err(failed)
}

#[cold]
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
fn failed(error: std::io::Error) -> Box<Error> {
    let words = "compression of the response failed";
    Error::because(ErrorType::InternalError, words, error).into_in()
}
