//! Status and detail of a request that could not be served.

use http::StatusCode;
use pingora::prelude::{Error, ErrorSource, ErrorType};

/// Status and detail of a failure; `None` if the client has closed the connection.
pub(super) fn failure(error: &Error) -> Option<(StatusCode, &'static str)> {
    use ErrorType::{
        ConnectTimedout, ConnectionClosed, HTTPStatus, ReadError, ReadTimedout, WriteError,
        WriteTimedout,
    };
    Some(match (error.esource(), error.etype()) {
        (ErrorSource::Downstream, ReadTimedout) => {
            (StatusCode::REQUEST_TIMEOUT, "The rest of the request did not arrive in time.")
        }
        (ErrorSource::Downstream, ConnectionClosed | ReadError | WriteError | WriteTimedout) => {
            return None;
        }
        (ErrorSource::Downstream, _) => (StatusCode::BAD_REQUEST, "The request could not be read."),
        (_, HTTPStatus(status)) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            (status, "No server of the upstream has a known address.")
        }
        (ErrorSource::Upstream, ConnectTimedout) => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream could not be connected to in time.")
        }
        (ErrorSource::Upstream, ReadTimedout | WriteTimedout) => {
            (StatusCode::GATEWAY_TIMEOUT, "The upstream did not respond in time.")
        }
        (ErrorSource::Upstream, _) => (
            StatusCode::BAD_GATEWAY,
            "The upstream could not be reached, or its response was invalid.",
        ),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "The gateway failed to handle the request."),
    })
}
