//! Failures of requests: their class, status and detail, and their cause in plain words. Pingora's
//! names of errors and its contexts, which may contain bytes of the upstream, reach neither clients
//! nor the log.

use std::borrow::Cow;

use http::StatusCode;
use pingora::prelude::{Error, ErrorSource, ErrorType};

use crate::decide::reason::Failure;
use crate::net::io_text;
use crate::upstream::connection::{OVERFLOW, QUEUED};
use crate::upstream::dial::io_error;

/// Cause of the failure of a gRPC call whose deadline, set by its client, has passed.
pub(in crate::gateway) const DEADLINE_PASSED: &str = "the deadline of the call has passed";

/// Cause of the failure of a request that took longer than `timeout`, while it waited for the
/// server.
pub(in crate::gateway) const REQUEST_TIMED_OUT: &str = "the request took longer than its timeout";

/// Cause of the failure of a request that took longer than `timeout`, while its client sent the
/// body or after the head of the response.
pub(in crate::gateway) const CLIENT_TOOK_ALL_TIME: &str =
    "the transfer of the request or of its response took longer than its timeout";

/// Cause of the failure of a request whose body is larger than `max_body_bytes`.
const BODY_TOO_LARGE: &str = "the body is too large";

/// Type of the failure of a request whose client sends the body below the minimum rate.
pub(in crate::gateway) const SLOW_BODY: ErrorType = ErrorType::Custom(TOO_SLOW);

/// Cause of the same.
const TOO_SLOW: &str = "the body arrives too slowly";

/// The error of a request whose body is larger than `max_body_bytes`.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
pub(in crate::gateway) fn body_too_large() -> Box<Error> {
    Error::new(ErrorType::Custom(BODY_TOO_LARGE)).into_down()
}

/// Cause of the failure of a gRPC call to a server that speaks HTTP/1.1.
pub(in crate::gateway) const NO_GRPC: &str =
    "the upstream speaks HTTP/1.1, which cannot carry gRPC";

/// Whether any client can cause a failure of this kind, although the server is well.
pub(in crate::gateway) fn is_at_will(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::Custom(DEADLINE_PASSED | CLIENT_TOOK_ALL_TIME | NO_GRPC))
}

/// Class of an error of Pingora.
pub(in crate::gateway) fn failure(error: &Error) -> Failure {
    use ErrorType::{
        BindError, ConnectError, ConnectNoRoute, ConnectProxyFailure, ConnectRefused,
        ConnectTimedout, ConnectionClosed, Custom, H2Error, HTTPStatus, HandshakeError,
        InvalidCert, ReadError, ReadTimedout, SocketError, TLSHandshakeFailure,
        TLSHandshakeTimedout, TLSWantX509Lookup, WriteError, WriteTimedout,
    };
    match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ReadTimedout) => Failure::ClientTimeout,
        (ErrorSource::Downstream, Custom(BODY_TOO_LARGE)) => Failure::BodyTooLarge,
        (ErrorSource::Downstream, Custom(TOO_SLOW)) => Failure::SlowBody,
        (ErrorSource::Downstream, WriteTimedout) => Failure::SlowReader,
        // `H2Error`: the client has reset the request.
        (ErrorSource::Downstream, ConnectionClosed | ReadError | WriteError | H2Error) => {
            Failure::ClientClosed
        }
        (ErrorSource::Downstream, _) => Failure::UnreadableRequest,
        (_, HTTPStatus(_)) => Failure::NoServer,
        (ErrorSource::Upstream, ConnectTimedout | TLSHandshakeTimedout) => {
            Failure::UpstreamConnectTimeout
        }
        (
            ErrorSource::Upstream,
            ConnectRefused | ConnectNoRoute | ConnectError | ConnectProxyFailure | BindError
            | SocketError | TLSWantX509Lookup | HandshakeError,
        ) => Failure::UpstreamConnect,
        (ErrorSource::Upstream, TLSHandshakeFailure | InvalidCert) => Failure::UpstreamTls,
        (ErrorSource::Upstream, ReadTimedout | WriteTimedout | Custom(DEADLINE_PASSED)) => {
            Failure::UpstreamTimeout
        }
        (ErrorSource::Upstream, etype) if *etype == OVERFLOW => Failure::UpstreamOverflow,
        (ErrorSource::Upstream, etype) if *etype == QUEUED => Failure::UpstreamConnectTimeout,
        (ErrorSource::Upstream, Custom(REQUEST_TIMED_OUT | CLIENT_TOOK_ALL_TIME)) => {
            Failure::RequestTimeout
        }
        (ErrorSource::Upstream, _) => Failure::UpstreamBroken,
        _ => Failure::Internal,
    }
}

/// Status and detail of a failure; `None` if the client has closed the connection.
pub(in crate::gateway) const fn response(failure: Failure) -> Option<(StatusCode, &'static str)> {
    Some(match failure {
        Failure::ClientClosed | Failure::SlowReader => return None,
        Failure::SlowBody => {
            (StatusCode::REQUEST_TIMEOUT, "The body of the request arrived too slowly.")
        }
        Failure::BodyTooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than this route accepts.")
        }
        Failure::ClientTimeout => {
            (StatusCode::REQUEST_TIMEOUT, "The rest of the request did not arrive in time.")
        }
        Failure::UnreadableRequest => (StatusCode::BAD_REQUEST, "The request could not be read."),
        Failure::NoServer => (StatusCode::BAD_GATEWAY, "No server of the upstream is available."),
        Failure::UpstreamConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream could not be connected to in time.")
        }
        Failure::UpstreamTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream did not respond in time.")
        }
        Failure::UpstreamOverflow => {
            (StatusCode::SERVICE_UNAVAILABLE, "All connections to the upstream are in use.")
        }
        Failure::RequestTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The request took longer than its time limit.")
        }
        Failure::UpstreamConnect | Failure::UpstreamTls | Failure::UpstreamBroken => (
            StatusCode::BAD_GATEWAY,
            "The upstream could not be reached, or its response was invalid.",
        ),
        Failure::Internal => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed to handle the request.")
        }
    })
}

/// Cause of an error in plain words, for the log.
pub(super) fn cause(error: &Error) -> Cow<'static, str> {
    use ErrorType::{
        ConnectNoRoute, ConnectRefused, ConnectTimedout, ConnectionClosed, Custom, H1Error,
        HTTPStatus, InvalidHTTPHeader, ReadTimedout, TLSHandshakeTimedout, WriteTimedout,
    };
    match error.etype() {
        // Errors that the gateway creates.
        Custom(words) => return Cow::Borrowed(words),
        ReadTimedout => return "no bytes arrived in time".into(),
        WriteTimedout => return "no bytes were accepted in time".into(),
        ConnectTimedout => return "no connection in time".into(),
        TLSHandshakeTimedout => return "no TLS handshake in time".into(),
        HTTPStatus(_) => return "no server has a known address and is enabled".into(),
        _ => {}
    }
    if let Some(io) = io_error(error) {
        return io_text::plain(io).into();
    }
    match error.etype() {
        ConnectionClosed => "the connection was closed too early",
        ConnectRefused => "connection refused",
        ConnectNoRoute => "no route to the server",
        InvalidHTTPHeader => "the head is not valid HTTP",
        H1Error => "the message is not valid HTTP",
        _ => "the connection failed",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::observe::process_log::ERRORS;

    #[test]
    fn cause_has_neither_names_nor_contexts_of_pingora() {
        for etype in ERRORS {
            let by_os = io::Error::from_raw_os_error(104);
            let errors = [
                Error::explain(etype.clone(), "bytes of the upstream"),
                Error::because(etype.clone(), "bytes of the upstream", by_os),
            ];
            for error in errors {
                let cause = cause(&error.into_up().more_context("Peer: x")).into_owned();
                for internal in [etype.as_str(), "bytes of", "Peer", "context", "os error"] {
                    assert!(!cause.contains(internal), "{cause}");
                }
            }
        }
    }

    #[test]
    fn cause_is_that_of_the_operating_system_if_there_is_one() {
        let refused = io::Error::from_raw_os_error(111);
        let error = Error::because(ErrorType::ConnectError, "connecting", refused).into_up();
        assert_eq!(failure(&error), Failure::UpstreamConnect);
        assert_eq!(cause(&error.more_context("Peer: x")), "connection refused");
    }

    #[test]
    fn failure_of_each_error() {
        let table = [
            (ErrorSource::Downstream, ErrorType::ReadTimedout, Failure::ClientTimeout),
            (ErrorSource::Downstream, ErrorType::WriteError, Failure::ClientClosed),
            (ErrorSource::Downstream, ErrorType::H1Error, Failure::UnreadableRequest),
            (ErrorSource::Downstream, ErrorType::H2Error, Failure::ClientClosed),
            (ErrorSource::Upstream, ErrorType::ConnectError, Failure::UpstreamConnect),
            (ErrorSource::Upstream, ErrorType::TLSHandshakeFailure, Failure::UpstreamTls),
            (ErrorSource::Upstream, ErrorType::ConnectTimedout, Failure::UpstreamConnectTimeout),
            (ErrorSource::Upstream, ErrorType::ReadTimedout, Failure::UpstreamTimeout),
            (ErrorSource::Upstream, ErrorType::Custom(DEADLINE_PASSED), Failure::UpstreamTimeout),
            (ErrorSource::Upstream, ErrorType::Custom(REQUEST_TIMED_OUT), Failure::RequestTimeout),
            (ErrorSource::Upstream, ErrorType::ConnectionClosed, Failure::UpstreamBroken),
            (ErrorSource::Upstream, OVERFLOW, Failure::UpstreamOverflow),
            (ErrorSource::Upstream, QUEUED, Failure::UpstreamConnectTimeout),
            (ErrorSource::Unset, ErrorType::HTTPStatus(502), Failure::NoServer),
            (ErrorSource::Internal, ErrorType::InternalError, Failure::Internal),
        ];
        for (source, etype, expected) in table {
            let mut error = Error::new(etype);
            error.esource = source;
            assert_eq!(failure(&error), expected, "{error:?}");
            assert_eq!(response(expected).is_none(), expected == Failure::ClientClosed);
        }
    }
}
