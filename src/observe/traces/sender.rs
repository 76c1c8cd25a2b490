//! One export: a message of OTLP over HTTP/1.1, in protobuf.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use thiserror::Error;

use crate::net::http::{HttpClient, HttpError, Request};
use crate::net::tls;
use crate::policy::tracing::{Endpoint, Tracing};

/// Media type of requests and responses.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Maximum size of a response. It contains the number of rejected spans and the reason.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Sends messages, one after another, over a connection that is kept.
#[derive(Default)]
pub(super) struct Sender {
    client: Option<(Endpoint, HttpClient)>,
}

/// A successful response of the collector.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Number of spans of the message that the collector rejected.
    pub(super) rejected: u64,
    /// Why the collector rejected them; may be empty.
    pub(super) reason: String,
}

/// Why an export failed.
#[derive(Debug, Error)]
pub(super) enum ExportError {
    /// The collector did not respond, or the connection failed.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// The status of the response is not 2xx.
    #[error("it answers {status}")]
    Status {
        /// Status of the response, which is not 2xx.
        status: StatusCode,
        /// Value of `Retry-After`, if it is in seconds.
        retry_after: Option<Duration>,
    },
}

impl ExportError {
    /// Value of the label `result`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Http(HttpError::Connect(_)) => "connect",
            Self::Http(HttpError::Head(_) | HttpError::Body(_)) => "broken",
            Self::Http(HttpError::Timeout(_)) => "timeout",
            Self::Status { status, .. } if status.is_server_error() => "5xx",
            Self::Status { status, .. } if status.is_client_error() => "4xx",
            Self::Status { .. } => "other",
        }
    }

    /// Whether the specification of OTLP allows to send the same message again.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }

    /// Returns how long the collector asks to wait before the next try.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Http(_) => None,
        }
    }
}

impl Sender {
    /// Sends a message and reads the response, both within `tracing.timeout`.
    pub(super) async fn send(
        &mut self,
        tracing: &Tracing,
        body: &[u8],
    ) -> Result<Accepted, ExportError> {
        let endpoint = &tracing.endpoint;
        let kept = self.client.take().filter(|(other, _)| other == endpoint);
        let (_, client) = self.client.insert(kept.unwrap_or_else(|| connect_to(endpoint)));
        let mut headers = vec![(ACCEPT, PROTOBUF)];
        headers.extend(tracing.headers.iter().cloned());
        headers.push((CONTENT_TYPE, PROTOBUF));
        let request = Request { method: Method::POST, path: &endpoint.path, headers, body };
        let response = client.fetch(&request, tracing.timeout, MAX_RESPONSE_BYTES).await?;
        let status = response.status;
        if !status.is_success() {
            let retry_after = retry_after(&response.headers);
            return Err(ExportError::Status { status, retry_after });
        }
        // A body that is too long is not of a collector.
        Ok(accepted(&response.body.unwrap_or_default()))
    }
}

fn connect_to(endpoint: &Endpoint) -> (Endpoint, HttpClient) {
    let tls = endpoint.tls.clone().map(|tls| (tls::TRACING, tls));
    (endpoint.clone(), HttpClient::new(endpoint.origin.clone(), tls))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Decodes a successful response. One that cannot be decoded rejects nothing.
fn accepted(body: &[u8]) -> Accepted {
    let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    let Some(partial) = response.partial_success else { return Accepted::default() };
    Accepted {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        reason: partial.error_message,
    }
}

#[cfg(test)]
mod tests;
