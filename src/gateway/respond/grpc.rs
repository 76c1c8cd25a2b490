//! Responses to gRPC clients: status 200, and the outcome in headers ("trailers-only").

use http::{StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pingora::proxy::Session;

/// Returns whether the request is a gRPC call.
pub(super) fn is_grpc(session: &Session) -> bool {
    let kind = session.req_header().headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Converts an HTTP status to a gRPC status code (gRPC, "Status codes and their use in gRPC").
pub(super) fn grpc_status(status: StatusCode) -> u16 {
    const INVALID_ARGUMENT: u16 = 3;
    const DEADLINE_EXCEEDED: u16 = 4;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const UNIMPLEMENTED: u16 = 12;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    const UNAUTHENTICATED: u16 = 16;
    match status {
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
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
