//! Responses to gRPC clients: status 200, and the outcome in headers ("trailers-only").

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pingora::prelude::Error;
use pingora::proxy::Session;

use super::failure;

/// Name of the header or trailer with the status of a call.
pub(in crate::gateway) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Form {
    /// gRPC itself, which has trailers.
    Native,
    /// gRPC-Web, whose trailers are a part of the body; they can also be headers.
    Web,
    /// gRPC-Web with a body in Base64.
    WebText,
}

impl Form {
    /// The form of gRPC that a request has; `None`: it is no call.
    pub(in crate::gateway) fn of(session: &Session) -> Option<Self> {
        Self::of_type(session.req_header().headers.get(header::CONTENT_TYPE)?.as_bytes())
    }

    fn of_type(content_type: &[u8]) -> Option<Self> {
        let rest = content_type.strip_prefix(b"application/grpc")?;
        let end = rest.iter().position(|byte| b"+; ".contains(byte)).unwrap_or(rest.len());
        match rest.get(..end)? {
            b"" => Some(Self::Native),
            b"-web" => Some(Self::Web),
            b"-web-text" => Some(Self::WebText),
            _ => None,
        }
    }

    /// Media type of a response without a message.
    pub(super) const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Native => "application/grpc",
            Self::Web => "application/grpc-web",
            Self::WebText => "application/grpc-web-text",
        })
    }
}

/// Whether a request is a call of gRPC itself: a POST over HTTP/2. Anyone can send its media type
/// with another request.
pub(in crate::gateway) fn is_call(session: &Session) -> bool {
    session.is_http2()
        && session.req_header().method == Method::POST
        && Form::of(session) == Some(Form::Native)
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
    fn forms_by_content_type() {
        let table: [(&[u8], Option<Form>); 9] = [
            (b"application/grpc", Some(Form::Native)),
            (b"application/grpc+proto", Some(Form::Native)),
            (b"application/grpc; charset=utf-8", Some(Form::Native)),
            (b"application/grpc-web", Some(Form::Web)),
            (b"application/grpc-web+proto", Some(Form::Web)),
            (b"application/grpc-web-text+proto", Some(Form::WebText)),
            (b"application/grpcx", None),
            (b"application/grpc-other", None),
            (b"text/plain", None),
        ];
        for (content_type, expected) in table {
            assert_eq!(Form::of_type(content_type), expected);
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(grpc_message("100 % of \"x\"\n"), "100 %25 of \"x\"%0A");
        assert_eq!(grpc_message("ü"), "%C3%BC");
    }
}
