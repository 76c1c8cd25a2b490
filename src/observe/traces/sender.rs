//! One message to the collector: OTLP over HTTP/1.1, in protobuf, over a connection that is kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use pingora::prelude::RequestHeader;
use pingora::protocols::Stream;
use pingora::protocols::http::v1::client::HttpSession;
use pingora::protocols::l4::stream::Stream as RawStream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use prost::Message as _;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::net::tls;
use crate::policy::tracing::{Endpoint, Tracing};

/// The form of messages and answers.
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

const OURSELVES: HeaderValue =
    HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

/// How much of an answer is read. A collector says in it how many spans it refused.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Sends messages, one after the other.
#[derive(Default)]
pub(super) struct Sender {
    kept: Option<(Endpoint, Stream)>,
}

/// What a collector said of a message that it took.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// How many spans of it were refused.
    pub(super) rejected: u64,
    /// Why.
    pub(super) reason: String,
}

/// Why a message was not taken.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// There is no connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// It broke off, or what answers speaks no HTTP.
    #[error("{}", .0.to_string().trim())]
    Broken(Box<pingora::Error>),
    /// All of it took longer than the file allows.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// It was answered with a status that is no success.
    #[error("it answers {status}")]
    Status {
        /// The status.
        status: StatusCode,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// What metrics call it.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Broken(_) => "broken",
            Self::Timeout(_) => "timeout",
            Self::Status { status, .. } if status.is_server_error() => "5xx",
            Self::Status { status, .. } if status.is_client_error() => "4xx",
            Self::Status { .. } => "other",
        }
    }

    /// Whether the same message may be taken later, as OTLP has it.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Broken(_) | Self::Timeout(_) => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }

    /// How long the collector wants to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Connect(_) | Self::Broken(_) | Self::Timeout(_) => None,
        }
    }
}

impl Sender {
    /// Sends a message and reads the answer, within the time that the file allows.
    pub(super) async fn send(
        &mut self,
        tracing: &Tracing,
        body: &[u8],
    ) -> Result<Accepted, Failure> {
        let sent = tokio::time::timeout(tracing.timeout, self.send_somehow(tracing, body));
        sent.await.unwrap_or(Err(Failure::Timeout(tracing.timeout)))
    }

    async fn send_somehow(&mut self, tracing: &Tracing, body: &[u8]) -> Result<Accepted, Failure> {
        let kept = self.kept.take().filter(|(endpoint, _)| *endpoint == tracing.endpoint);
        if let Some((_, stream)) = kept {
            match self.exchange(stream, tracing, body).await {
                // The collector may have closed it meanwhile, and has not answered in any case.
                Err(Failure::Broken(_)) => {}
                answered => return answered,
            }
        }
        let stream = connect(&tracing.endpoint).await.map_err(Failure::Connect)?;
        self.exchange(stream, tracing, body).await
    }

    async fn exchange(
        &mut self,
        stream: Stream,
        tracing: &Tracing,
        body: &[u8],
    ) -> Result<Accepted, Failure> {
        let mut session = HttpSession::new(stream);
        let (status, retry_after, answer) =
            talk(&mut session, tracing, body).await.map_err(Failure::Broken)?;
        session.respect_keepalive();
        if let Some(stream) = session.reuse().await {
            self.kept = Some((tracing.endpoint.clone(), stream));
        }
        if !status.is_success() {
            return Err(Failure::Status { status, retry_after });
        }
        Ok(accepted(&answer))
    }
}

/// Sends a message and reads the answer: status, how long to stay away, and body.
async fn talk(
    session: &mut HttpSession,
    tracing: &Tracing,
    body: &[u8],
) -> pingora::Result<(StatusCode, Option<Duration>, Vec<u8>)> {
    session.write_request_header(Box::new(head(tracing, body.len())?)).await?;
    session.write_body(body).await?;
    session.finish_body().await?;
    session.read_response().await?;
    while session.get_status().is_some_and(|status| status.is_informational()) {
        session.read_response().await?;
    }
    let mut answer = Vec::new();
    while let Some(part) = session.read_body_ref().await? {
        answer.extend_from_slice(part);
        if answer.len() > MAX_ANSWER_BYTES {
            // Whatever that is, it is no answer to us: the connection is not used again.
            break;
        }
    }
    let seconds =
        session.get_header(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let status = session.get_status().unwrap_or(StatusCode::BAD_GATEWAY);
    Ok((status, seconds.map(Duration::from_secs), answer))
}

fn head(tracing: &Tracing, length: usize) -> pingora::Result<RequestHeader> {
    let endpoint = &tracing.endpoint;
    let mut head = RequestHeader::build(Method::POST, endpoint.path.as_bytes(), None)?;
    head.insert_header(HOST, endpoint.origin.to_string())?;
    head.insert_header(USER_AGENT, OURSELVES)?;
    head.insert_header(ACCEPT, PROTOBUF)?;
    for (name, value) in &tracing.headers {
        head.insert_header(name.clone(), value.clone())?;
    }
    head.insert_header(CONTENT_TYPE, PROTOBUF)?;
    head.insert_header(CONTENT_LENGTH, length)?;
    Ok(head)
}

/// What a good answer says. One that cannot be read says nothing.
fn accepted(answer: &[u8]) -> Accepted {
    let response = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let Some(partial) = response.partial_success else { return Accepted::default() };
    Accepted {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        reason: partial.error_message,
    }
}

async fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
    let origin = &endpoint.origin;
    let stream = TcpStream::connect((origin.host.as_str(), origin.port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &endpoint.tls else { return Ok(Box::new(RawStream::from(stream))) };
    // Read anew each time: a renewed authority needs no restart.
    let connector = tls::connector(tls::TRACING, tls).map_err(io::Error::other)?;
    let name = tls::server_name(&origin.host)?;
    let stream = connector.connect(name, stream).await?;
    let stream = VirtualSocketStream::new(Box::new(Encrypted(Box::new(stream))));
    Ok(Box::new(RawStream::from(stream)))
}

/// An encrypted connection, as Pingora wants to have it.
#[derive(Debug)]
struct Encrypted(Box<TlsStream<TcpStream>>);

impl VirtualSocket for Encrypted {
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
