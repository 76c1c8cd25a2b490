//! Responses to gRPC clients: status 200, and the outcome in headers ("trailers-only").

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pingora::prelude::Error;
use pingora::proxy::Session;

use super::failure;
use crate::net::grpc::Form;

/// Name of the header or trailer with the status of a call.
pub(in crate::gateway) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether a request is a call of gRPC itself: a POST over HTTP/2. Anyone can send its media type
/// with another request.
pub(in crate::gateway) fn is_call(session: &Session) -> bool {
    session.is_http2()
        && session.req_header().method == Method::POST
        && Form::of(&session.req_header().headers) == Some(Form::Native)
}

/// Whether the head of a response without a message ends a call with UNAVAILABLE.
pub(in crate::gateway) fn is_unavailable(headers: &HeaderMap) -> bool {
    headers.get(STATUS).is_some_and(|status| status.as_bytes() == b"14")
}

/// The trailers that end a call whose response has begun; `None` if the client has closed the
/// connection.
pub(in crate::gateway) fn failure_trailers(error: &Error) -> Option<HeaderMap> {
    let (status, detail) = failure::response(failure::failure(error))?;
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert(STATUS, grpc_status(status).into());
    trailers.insert(MESSAGE, HeaderValue::try_from(grpc_message(detail)).ok()?);
    Some(trailers)
}

/// Converts an HTTP status to a gRPC status code (gRPC, "Status codes and their use in gRPC").
pub(super) fn grpc_status(status: StatusCode) -> u16 {
    const INVALID_ARGUMENT: u16 = 3;
    const DEADLINE_EXCEEDED: u16 = 4;
    const PERMISSION_DENIED: u16 = 7;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const UNIMPLEMENTED: u16 = 12;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    const UNAUTHENTICATED: u16 = 16;
    match status {
        // As gRPC servers answer a message above their limit.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => RESOURCE_EXHAUSTED,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::NOT_FOUND => UNIMPLEMENTED,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => DEADLINE_EXCEEDED,
        StatusCode::INTERNAL_SERVER_ERROR => INTERNAL,
        status if status.is_client_error() => INVALID_ARGUMENT,
        _ => UNAVAILABLE,
    }
}

/// Encodes text as a `grpc-message`: `%` and all bytes outside of visible ASCII and the space.
pub(super) fn grpc_message(text: &str) -> String {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(grpc_message("100 % of \"x\"\n"), "100 %25 of \"x\"%0A");
        assert_eq!(grpc_message("ü"), "%C3%BC");
    }
}
