//! Health checks of an endpoint, each over a connection of its own, which begins like those of
//! requests, with the same TLS and a PROXY header without a client.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use http::header::{CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use pingora::prelude::{Error, ErrorType, RequestHeader};
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::VirtualSocketStream;
use prost::Message as _;

use super::dial::{Dial, Offer};
use super::health::CheckFailure;
use super::pool::Pool;
use super::transport::Transport;
use crate::base::duration::micros;
use crate::net::grpc::Form;
use crate::net::http::{PRODUCT, send};
use crate::net::{io_text, proxy_protocol};
use crate::policy::health::{CheckKind, HealthChecks};
use crate::policy::settings::{Protocol, Upstream};

/// Number of gateways of which each checks an endpoint once in each interval. More gateways share
/// that many checks.
const MAX_CHECKS: u32 = 10;

/// Longest message of a health service that is read, in bytes.
const MAX_MESSAGE: usize = 1_024;

/// The request of `grpc.health.v1.Health/Check`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// Its response. 1 is `SERVING`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Time from the beginning of a check to that of the next one, in microseconds: the interval, 10 %
/// more or less by `random`, so that gateways do not check at the same time. With more than ten
/// gateways, each checks so much less often that an endpoint gets ten checks in an interval.
pub(super) fn pause_us(interval: Duration, gateways: u32, random: u64) -> u64 {
    let interval_us = micros(interval);
    let own_us =
        interval_us.saturating_mul(gateways.max(MAX_CHECKS).into()) / u64::from(MAX_CHECKS);
    let spread = own_us / 5;
    own_us - own_us / 10 + random.checked_rem(spread).unwrap_or(0)
}

/// Checks an endpoint within the time limit of its checks.
///
/// # Errors
/// The endpoint is not healthy.
pub(super) async fn check(
    pool: &Arc<Pool>,
    address: SocketAddr,
    checks: &HealthChecks,
) -> Result<(), CheckFailure> {
    let check = check_untimed(pool, address, checks);
    tokio::time::timeout(checks.timeout, check).await.unwrap_or(Err(CheckFailure::Timeout))
}

async fn check_untimed(
    pool: &Arc<Pool>,
    address: SocketAddr,
    checks: &HealthChecks,
) -> Result<(), CheckFailure> {
    let upstream = pool.upstream();
    let mut server = pool.endpoint(address);
    server.address.set_port(checks.port.unwrap_or(address.port()));
    let header =
        upstream.proxy_protocol.map(|version| proxy_protocol::encode(version, None).into());
    let dial = Dial {
        server,
        pool: Arc::clone(pool),
        proxy_header: header,
        tries_families: false,
        is_selected: true,
    };
    let offer = offer(upstream, &checks.kind);
    let transport = dial.open(offer).await.map_err(|error| connect_failure(&error))?;
    let is_http2 =
        if transport.is_tls() { transport.has_selected_http2() } else { offer == Offer::Http2 };
    let origin = |host: Option<&str>| Origin::of(pool, address, host);
    match &checks.kind {
        CheckKind::Tcp => Ok(()),
        _ if offer == Offer::Http2 && !is_http2 => Err(not_http2()),
        CheckKind::Grpc { service } => grpc(transport, &origin(None), service).await,
        CheckKind::Http { path, host, status } => {
            let origin = origin(host.as_deref());
            let found = if is_http2 {
                http2(transport, &origin, path).await?
            } else {
                http1(transport, &origin, path).await?
            };
            let is_healthy = match &**status {
                [] => (200..400).contains(&found.as_u16()),
                listed => listed.contains(&found.as_u16()),
            };
            if is_healthy { Ok(()) } else { Err(CheckFailure::Status(found.as_u16())) }
        }
    }
}

/// What the TLS handshake offers: as for requests, and HTTP/2 only for a call by gRPC.
fn offer(upstream: &Upstream, kind: &CheckKind) -> Offer {
    match (kind, upstream.protocol, upstream.tls.is_some()) {
        (CheckKind::Grpc { .. }, ..) | (_, Protocol::H2 | Protocol::H2c, _) => Offer::Http2,
        (_, Protocol::Http1, _) | (_, Protocol::Auto, false) => Offer::Http1,
        (_, Protocol::Auto, true) => Offer::Both,
    }
}

/// Where a request of a check goes.
struct Origin {
    scheme: &'static str,
    authority: String,
}

impl Origin {
    /// The origin of an endpoint; `host`: that of the checks, if they have one.
    fn of(pool: &Pool, address: SocketAddr, host: Option<&str>) -> Self {
        let scheme = if pool.upstream().tls.is_some() { "https" } else { "http" };
        let of_server = || pool.server(address).map(|server| server.to_string());
        let host = host.map(str::to_owned).or_else(of_server);
        Self { scheme, authority: host.unwrap_or_else(|| address.to_string()) }
    }

    fn uri(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.authority)
    }
}

async fn http1(
    transport: Transport,
    origin: &Origin,
    path: &str,
) -> Result<StatusCode, CheckFailure> {
    let head = || {
        let mut head = RequestHeader::build(Method::GET, path.as_bytes(), Some(2))?;
        head.insert_header(HOST, origin.authority.as_str())?;
        head.insert_header(USER_AGENT, PRODUCT)?;
        Ok(head)
    };
    let failed = |error: Box<Error>| CheckFailure::Protocol(error_text(&error));
    let head = head().map_err(failed)?;
    let stream = VirtualSocketStream::new(Box::new(transport));
    let session = send(Box::new(Stream::from(stream)), &head, b"").await.map_err(failed)?;
    Ok(session.get_status().unwrap_or_default())
}

async fn http2(
    transport: Transport,
    origin: &Origin,
    path: &str,
) -> Result<StatusCode, CheckFailure> {
    let request = Request::get(origin.uri(path)).version(Version::HTTP_2);
    let request = request.header(USER_AGENT, PRODUCT).body(());
    over_http2(transport, async |mut sender: SendRequest<Bytes>| {
        let request = request.map_err(|error| CheckFailure::Protocol(error.to_string()))?;
        let (response, _) = sender.send_request(request, true).map_err(h2_failure)?;
        Ok(response.await.map_err(h2_failure)?.status())
    })
    .await
}

async fn grpc(transport: Transport, origin: &Origin, service: &str) -> Result<(), CheckFailure> {
    let request = Request::post(origin.uri("/grpc.health.v1.Health/Check"))
        .version(Version::HTTP_2)
        .header(CONTENT_TYPE, Form::Native.content_type())
        .header(TE, "trailers")
        .header(USER_AGENT, PRODUCT)
        .body(());
    let message = HealthCheckRequest { service: service.to_owned() };
    over_http2(transport, async |mut sender: SendRequest<Bytes>| {
        let request = request.map_err(|error| CheckFailure::Protocol(error.to_string()))?;
        let (response, mut body) = sender.send_request(request, false).map_err(h2_failure)?;
        body.send_data(framed(&message), true).map_err(h2_failure)?;
        let (head, mut body) = response.await.map_err(h2_failure)?.into_parts();
        if head.status != StatusCode::OK {
            return Err(CheckFailure::Status(head.status.as_u16()));
        }
        grpc_status(&head.headers)?;
        let mut received = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(h2_failure)?;
            if received.len() + part.len() > MAX_MESSAGE {
                return Err(CheckFailure::Protocol("the response is too long".to_owned()));
            }
            received.extend_from_slice(&part);
            body.flow_control().release_capacity(part.len()).map_err(h2_failure)?;
        }
        let trailers = body.trailers().await.map_err(h2_failure)?;
        grpc_status(&trailers.unwrap_or_default())?;
        serving(&received)
    })
    .await
}

/// The message with the prefix of gRPC: not compressed, and its length.
fn framed(message: &HealthCheckRequest) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.encoded_len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Fails if the headers have a status of gRPC that is not 0.
fn grpc_status(headers: &HeaderMap) -> Result<(), CheckFailure> {
    let Some(status) = headers.get("grpc-status") else { return Ok(()) };
    match status.as_bytes() {
        b"0" => Ok(()),
        b"5" => Err(CheckFailure::NotServing("unknown service")),
        b"12" => Err(CheckFailure::NotServing("no health service")),
        _ => {
            let status = String::from_utf8_lossy(status.as_bytes());
            Err(CheckFailure::Protocol(format!("grpc-status {}", status.escape_debug())))
        }
    }
}

/// Whether the message of a health service says that the service serves.
fn serving(body: &[u8]) -> Result<(), CheckFailure> {
    let malformed =
        || CheckFailure::Protocol("malformed response of the health service".to_owned());
    let [0, a, b, c, d, message @ ..] = body else { return Err(malformed()) };
    if u32::from_be_bytes([*a, *b, *c, *d]) as usize != message.len() {
        return Err(malformed());
    }
    match HealthCheckResponse::decode(message).map_err(|_| malformed())?.status {
        1 => Ok(()),
        0 => Err(CheckFailure::NotServing("unknown")),
        2 => Err(CheckFailure::NotServing("not serving")),
        3 => Err(CheckFailure::NotServing("unknown service")),
        _ => Err(malformed()),
    }
}

/// Makes one request over HTTP/2, and closes the connection.
async fn over_http2<T>(
    transport: Transport,
    request: impl AsyncFnOnce(SendRequest<Bytes>) -> Result<T, CheckFailure>,
) -> Result<T, CheckFailure> {
    let mut builder = client::Builder::new();
    builder.enable_push(false);
    let (sender, mut connection) = builder.handshake(transport).await.map_err(h2_failure)?;
    let ended = poll_fn(|context| std::pin::Pin::new(&mut connection).poll(context));
    tokio::select! {
        result = async { request(sender.ready().await.map_err(h2_failure)?).await } => result,
        end = ended => Err(match end {
            Err(error) => h2_failure(error),
            Ok(()) => CheckFailure::Protocol("the connection was closed".to_owned()),
        }),
    }
}

fn h2_failure(error: h2::Error) -> CheckFailure {
    CheckFailure::Protocol(error_text(&super::http2::in_words(error)))
}

fn not_http2() -> CheckFailure {
    CheckFailure::Protocol("the server did not select HTTP/2 in the TLS handshake".to_owned())
}

fn connect_failure(error: &Error) -> CheckFailure {
    CheckFailure::Connect(error_text(error))
}

/// The cause of an error in words.
fn error_text(error: &Error) -> String {
    let cause = error.cause.as_ref();
    match (cause.and_then(|cause| cause.downcast_ref::<io::Error>()), error.etype()) {
        (Some(error), _) => io_text::plain(error),
        (None, ErrorType::Custom(words)) => (*words).to_owned(),
        (None, ErrorType::ConnectionClosed) => "the connection was closed".to_owned(),
        (None, _) => "the response is not valid HTTP".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoint_gets_ten_checks_in_an_interval_however_many_gateways_there_are() {
        let interval = Duration::from_secs(2);
        for (gateways, pause_us) in
            [(0, 2_000_000), (1, 2_000_000), (10, 2_000_000), (40, 8_000_000)]
        {
            for random in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
                let pause = super::pause_us(interval, gateways, random);
                let deviation = pause.abs_diff(pause_us);
                assert!(deviation <= pause_us / 10, "{gateways} gateways: {pause}");
            }
        }
        let mean =
            (0..10_000_u64).map(|number| super::pause_us(interval, 1, number * 40)).sum::<u64>();
        assert!((mean / 10_000).abs_diff(2_000_000) < 10_000, "{mean}");
        assert!(super::pause_us(Duration::from_millis(100), u32::MAX, 7) > 100_000);
    }

    #[test]
    fn response_of_a_health_service_is_read() {
        let framed = |message: &[u8]| {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            [&[0], &length[..], message].concat()
        };
        assert_eq!(serving(&framed(&[8, 1])), Ok(()));
        for (message, word) in [
            (&[8, 2][..], "not serving"),
            (&[8, 3], "unknown service"),
            (&[], "unknown"),
            (&[8, 0], "unknown"),
        ] {
            assert_eq!(serving(&framed(message)), Err(CheckFailure::NotServing(word)));
        }
        let malformed =
            [&[][..], &[0, 0, 0, 0, 2, 8], &[1, 0, 0, 0, 2, 8, 1], &framed(&[8, 9]), &framed(&[8])];
        for body in malformed {
            assert!(matches!(serving(body), Err(CheckFailure::Protocol(_))), "{body:?}");
        }
    }

    #[test]
    fn status_of_grpc_says_what_is_wrong() {
        let status = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", http::HeaderValue::from_static(value));
            grpc_status(&headers)
        };
        assert_eq!((status("0"), grpc_status(&HeaderMap::new())), (Ok(()), Ok(())));
        assert_eq!(status("5"), Err(CheckFailure::NotServing("unknown service")));
        assert_eq!(status("12"), Err(CheckFailure::NotServing("no health service")));
        assert_eq!(status("14"), Err(CheckFailure::Protocol("grpc-status 14".to_owned())));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn only_the_response_with_the_status_serving_is_healthy(
            prefix in prop_oneof![
                Just(vec![0, 0, 0, 0, 2]),
                prop::collection::vec(any::<u8>(), 0..6),
            ],
            message in prop_oneof![
                Just(vec![8, 1]),
                prop::collection::vec(0_u8..16, 0..4),
            ],
        ) {
            let body = [prefix, message].concat();
            let message = body.get(5..).unwrap_or_default();
            let length = body.get(4).copied().map(usize::from);
            let has_prefix = body.starts_with(&[0; 4]) && length == Some(message.len());
            let decoded = HealthCheckResponse::decode(message);
            let expected = has_prefix && decoded.is_ok_and(|response| response.status == 1);
            prop_assert_eq!(serving(&body).is_ok(), expected);
        }
    }
}
