//! Failures of requests: their class, status and detail, and their cause in plain words. Pingora's names of
//! errors and its contexts, which may contain bytes of the upstream, reach neither clients nor the log.

use http::StatusCode;
use pingora::prelude::{Error, ErrorSource, ErrorType};

use crate::decide::reason::Failure;

/// Class of an error of Pingora.
pub(in crate::gateway) fn failure(error: &Error) -> Failure {
    use ErrorType::{
        BindError, ConnectError, ConnectNoRoute, ConnectProxyFailure, ConnectRefused,
        ConnectTimedout, ConnectionClosed, HTTPStatus, HandshakeError, InvalidCert, ReadError,
        ReadTimedout, SocketError, TLSHandshakeFailure, TLSHandshakeTimedout, TLSWantX509Lookup,
        WriteError, WriteTimedout,
    };
    match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ReadTimedout) => Failure::ClientTimeout,
        (ErrorSource::Downstream, ConnectionClosed | ReadError | WriteError | WriteTimedout) => {
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
            | SocketError | TLSWantX509Lookup | TLSHandshakeFailure | InvalidCert | HandshakeError,
        ) => Failure::UpstreamConnect,
        (ErrorSource::Upstream, ReadTimedout | WriteTimedout) => Failure::UpstreamTimeout,
        (ErrorSource::Upstream, _) => Failure::UpstreamBroken,
        _ => Failure::Internal,
    }
}

/// Status and detail of a failure; `None` if the client has closed the connection.
pub(super) const fn response(failure: Failure) -> Option<(StatusCode, &'static str)> {
    Some(match failure {
        Failure::ClientClosed => return None,
        Failure::ClientTimeout => {
            (StatusCode::REQUEST_TIMEOUT, "The rest of the request did not arrive in time.")
        }
        Failure::UnreadableRequest => (StatusCode::BAD_REQUEST, "The request could not be read."),
        Failure::NoServer => {
            (StatusCode::BAD_GATEWAY, "No server of the upstream has a known address.")
        }
        Failure::UpstreamConnectTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream could not be connected to in time.")
        }
        Failure::UpstreamTimeout => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream did not respond in time.")
        }
        Failure::UpstreamConnect | Failure::UpstreamBroken => (
            StatusCode::BAD_GATEWAY,
            "The upstream could not be reached, or its response was invalid.",
        ),
        Failure::Internal => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed to handle the request.")
        }
    })
}
