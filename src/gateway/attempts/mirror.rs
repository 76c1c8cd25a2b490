//! Copies of requests, which a second upstream gets (`mirror`). Its responses are read and dropped.
//!
//! A copy is sent once the client has sent the whole body, in a task of its own: the request itself
//! waits for nothing of it. The body is the one that is kept for retries.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderName, StatusCode, Version, header};
use parking_lot::Mutex;
use pingora::connectors::L4Connect as _;
use pingora::prelude::{Error, RequestHeader, Result};
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::proxy::Session;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::http2::{offer_to, request};
use super::{affinity, select};
use crate::base::clock;
use crate::base::request_id::RequestId;
use crate::gateway::Gateway;
use crate::gateway::exchange::{Counted, Exchange};
use crate::net::http::send;
use crate::observe::metrics::{Metrics, MirrorResult, UpstreamResult};
use crate::policy::mirror::Mirror;
use crate::policy::servers::Balance;
use crate::policy::settings::Upstream;
use crate::runtime::Snapshot;
use crate::upstream::connection::{Attempt, Connector, Connects, OVERFLOW, Opened, QUEUED};
use crate::upstream::dial::{Dial, Raced, failed_in_place};
use crate::upstream::endpoint::InFlight;
use crate::upstream::health::EjectReason;
use crate::upstream::http2::{Acquired, Needs, Stream, Usable};
use crate::upstream::load::MirrorSlot;
use crate::upstream::pool::Wanted;

/// Names the upstream of the request in its copy.
const MIRRORED_FROM: HeaderName = HeaderName::from_static("x-mirrored-from");

/// Bytes of a response that are read. After more of them, its connection or stream is closed.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// The copy of a request, until it is sent.
#[derive(Default)]
pub(in crate::gateway) enum Mirroring {
    /// The request has not been sent to a server yet.
    #[default]
    Undecided,
    /// Its head as the server got it. The body is not complete yet.
    Pending(Box<RequestHeader>),
    /// There is none, or no more.
    Done,
}

/// A copy that is being sent.
struct Copy {
    snapshot: Arc<Snapshot>,
    metrics: Arc<Metrics>,
    /// Index of the upstream that gets it.
    to: usize,
    dial: Dial,
    endpoint: InFlight,
    request_id: RequestId,
    head: RequestHeader,
    body: Bytes,
    /// Counted until the copy ends.
    _slot: MirrorSlot,
    _in_flight: Counted,
}

/// Why no response to a copy has come.
type Failed = UpstreamResult;

impl Mirroring {
    pub(in crate::gateway) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending(_))
    }
}

/// Notes the head of a request as its server gets it, if the request is to be mirrored. Of several
/// attempts, the first one decides.
pub(in crate::gateway) fn note_head(
    session: &Session,
    head: &RequestHeader,
    exchange: &mut Exchange,
) {
    let Some(mirror) = exchange.mirror() else { return };
    if !matches!(exchange.mirroring, Mirroring::Undecided) {
        return;
    }
    let is_included = !session.is_upgrade_req() && mirror.includes(exchange.request_id.as_str());
    exchange.mirroring =
        if is_included { Mirroring::Pending(Box::new(head.clone())) } else { Mirroring::Done };
}

impl Gateway {
    /// Mirrors a request that Pingora forwards, whose client has sent the whole body.
    #[cold]
    pub(in crate::gateway) fn mirror_over_http1(&self, session: &Session, exchange: &mut Exchange) {
        let kept = session.as_ref();
        let is_whole = !kept.retry_buffer_truncated();
        let body = is_whole.then(|| kept.get_retry_buffer().unwrap_or_default());
        self.mirror(session, exchange, body);
    }

    /// Sends the copy of a request with this body, if it is to be mirrored; `None`: the body is
    /// larger than what is kept of it.
    pub(in crate::gateway) fn mirror(
        &self,
        session: &Session,
        exchange: &mut Exchange,
        body: Option<Bytes>,
    ) {
        if !exchange.mirroring.is_pending() {
            return;
        }
        let pending = mem::replace(&mut exchange.mirroring, Mirroring::Done);
        let (Mirroring::Pending(head), Some(mirror)) = (pending, exchange.mirror()) else { return };
        match self.copy(session, exchange, mirror, *head, body) {
            Ok(copy) => drop(tokio::spawn(copy.send(mirror.timeout))),
            Err(result) => self.metrics.count_mirrored(&mirror.name, result),
        }
    }

    /// The copy of a request.
    ///
    /// # Errors
    /// No copy is sent.
    fn copy(
        &self,
        session: &Session,
        exchange: &Exchange,
        mirror: &Mirror,
        mut head: RequestHeader,
        body: Option<Bytes>,
    ) -> Result<Copy, MirrorResult> {
        let no_server = || MirrorResult::Sent(UpstreamResult::NoServer);
        let body = body.filter(|body| body.len() <= mirror.max_body_bytes);
        let body = body.ok_or(MirrorResult::TooLarge)?;
        let (snapshot, to) = (Arc::clone(&exchange.snapshot), mirror.to as usize);
        let load = snapshot.loads.get(to).ok_or_else(no_server)?;
        let slot = load.enter_mirrored(mirror.max_in_flight).ok_or(MirrorResult::Dropped)?;
        let upstream = snapshot.policy.upstreams.get(to).ok_or_else(no_server)?;
        let pool = snapshot.pools.get(to).ok_or_else(no_server)?;
        let hash = match &upstream.balance {
            Balance::Hash(source) => {
                affinity::hash(source, &session.req_header().headers, exchange)
            }
            Balance::RoundRobin | Balance::LeastRequest | Balance::RandomTwo => 0,
        };
        let wanted = Wanted { not: &[], cookie: None, hash };
        let endpoint = pool.select(wanted, clock::now()).ok_or_else(no_server)?;
        let proxy_header =
            upstream.proxy_protocol.map(|version| select::proxy_header(session, version));
        let server = pool.endpoint(endpoint.address());
        let dial = Dial {
            server,
            pool: Arc::clone(pool),
            proxy_header,
            tries_families: true,
            is_selected: true,
        };
        let from = exchange.upstream().map_or("", |upstream| &upstream.name);
        prepare(&mut head, from, &body).map_err(|_| no_server())?;
        Ok(Copy {
            metrics: Arc::clone(&self.metrics),
            to,
            dial,
            endpoint,
            request_id: exchange.request_id.clone(),
            head,
            body,
            _slot: slot,
            _in_flight: Counted::new(self.metrics.mirrored_in_flight().clone()),
            snapshot,
        })
    }
}

/// Prepares the head of a copy with this body. `from`: the upstream of the request itself.
///
/// # Errors
/// Never: names and values are valid.
fn prepare(head: &mut RequestHeader, from: &str, body: &Bytes) -> Result<()> {
    let has_body = head.headers.contains_key(header::CONTENT_LENGTH)
        || head.headers.contains_key(header::TRANSFER_ENCODING)
        || !body.is_empty();
    request::remove_hop_by_hop(head);
    head.set_version(Version::HTTP_11);
    if has_body {
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
    }
    head.insert_header(MIRRORED_FROM, from)
}

impl Copy {
    /// Sends the copy, and counts its result.
    async fn send(mut self, longest: Duration) {
        let sent = timeout(longest, self.exchange()).await;
        let result = match sent {
            Ok(Ok(result) | Err(result)) => result,
            Err(_) => UpstreamResult::Timeout,
        };
        let name = self.upstream().map_or("", |upstream| &upstream.name);
        self.metrics.count_mirrored(name, MirrorResult::Sent(result));
    }

    fn upstream(&self) -> Option<&Upstream> {
        self.snapshot.policy.upstreams.get(self.to)
    }

    /// Sends the copy and reads the response.
    async fn exchange(&mut self) -> Result<UpstreamResult, Failed> {
        let snapshot = Arc::clone(&self.snapshot);
        let upstream = snapshot.policy.upstreams.get(self.to).ok_or(UpstreamResult::NoServer)?;
        let Some(offer) = offer_to(upstream) else {
            return self.http1(upstream, None).await;
        };
        let needs = Needs::of(upstream, offer, Usable::Any);
        match self.dial.pool.http2.acquire(&self.dial, needs).await {
            Ok(Acquired::Http1(opened)) => self.http1(upstream, Some(opened)).await,
            Ok(Acquired::Http2(mut stream)) => {
                self.connected(stream.raced.take());
                self.http2(upstream, stream).await
            }
            Err(error) => Err(self.failed_to_connect(&error)),
        }
    }

    /// Notes that the server has been connected to. `raced`: at another address.
    fn connected(&mut self, raced: Option<Box<Raced>>) {
        let (pool, now) = (Arc::clone(&self.dial.pool), clock::now());
        if let Some(raced) = raced {
            for reason in pool.lost_to(&raced, now) {
                self.count_ejection(reason);
            }
            self.replace_endpoint(&raced);
        }
        pool.reachable(&self.endpoint, now);
    }

    /// Notes that the server could not be connected to.
    fn failed_to_connect(&mut self, error: &Error) -> Failed {
        if *error.etype() == OVERFLOW {
            return UpstreamResult::Overflow;
        }
        if *error.etype() != QUEUED {
            if let Some(raced) = failed_in_place(error) {
                self.replace_endpoint(raced);
            }
            let ejected = self.dial.pool.unreachable(&self.endpoint, clock::now());
            if let Some(reason) = ejected {
                self.count_ejection(reason);
            }
        }
        UpstreamResult::Connect
    }

    /// Counts the copy at the endpoint that was connected to, in place of the selected one.
    fn replace_endpoint(&mut self, raced: &Raced) {
        if let Some(endpoint) = self.dial.pool.begin_at(raced.server.address) {
            self.endpoint = endpoint;
        }
    }

    fn count_ejection(&self, reason: EjectReason) {
        let (series, policy) = (&self.snapshot.series, &self.snapshot.policy);
        if let Some(series) = series.upstream(&self.metrics, policy, self.to) {
            series.ejected(reason);
        }
    }

    async fn http1(
        &mut self,
        upstream: &Upstream,
        opened: Option<Opened>,
    ) -> Result<UpstreamResult, Failed> {
        let attempt = Arc::new(self.attempt(upstream, opened));
        let connector = Connector(Arc::clone(&attempt));
        let peer = PeerAddress::Inet(self.dial.server.address);
        let stream = match connector.connect(&peer).await {
            Ok(stream) => stream,
            Err(error) => return Err(self.failed_to_connect(&error)),
        };
        self.connected(attempt.take_raced());
        let broken = |_: Box<Error>| UpstreamResult::Broken;
        let mut session = send(Box::new(stream), &self.head, &self.body).await.map_err(broken)?;
        let response = session.resp_header().ok_or(UpstreamResult::Broken)?;
        attempt.note_head(&self.head.method, response);
        let result = answer(response.status);
        let mut left = MAX_RESPONSE_BYTES;
        while let Some(part) = session.read_body_ref().await.map_err(broken)? {
            let Some(rest) = left.checked_sub(part.len()) else { return Ok(result) };
            left = rest;
        }
        attempt.note_end();
        session.respect_keepalive();
        if let Some(mut stream) = session.reuse().await {
            // Gives the connection back, which is kept for further requests.
            let _ = stream.read(&mut [0]).await;
        }
        Ok(result)
    }

    /// The attempt as its connection sees it. The whole request is there, so only the server can be
    /// slow.
    fn attempt(&self, upstream: &Upstream, opened: Option<Opened>) -> Attempt {
        Attempt {
            dial: self.dial.clone(),
            request_id: self.request_id.clone(),
            connects: Connects::IdleFirst,
            has_body: false,
            read_timeout: upstream.read_timeout,
            first_byte_timeout: upstream.time_limits.first_byte,
            try_limit: None,
            connect_timeout: upstream.connect_timeout,
            upgraded_idle_timeout: Duration::ZERO,
            idle_timeout: upstream.idle_timeout,
            deadline: None,
            max_connections: upstream.max_connections,
            opened: Mutex::new(opened),
            client_timeout: None,
            progress: Mutex::default(),
        }
    }

    async fn http2(&self, upstream: &Upstream, stream: Stream) -> Result<UpstreamResult, Failed> {
        let scheme = if upstream.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let broken = |_: h2::Error| UpstreamResult::Broken;
        let head = request::of(self.head.clone(), scheme).map_err(|_| UpstreamResult::Broken)?;
        let mut stream = stream;
        let is_end = self.body.is_empty();
        let (response, mut upload) = stream.sender.send_request(head, is_end).map_err(broken)?;
        if !is_end {
            upload.send_data(self.body.clone(), true).map_err(broken)?;
        }
        let (head, mut body) = response.await.map_err(broken)?.into_parts();
        stream.note_response();
        let result = answer(head.status);
        let mut left = MAX_RESPONSE_BYTES;
        while let Some(part) = body.data().await {
            let part = part.map_err(broken)?;
            stream.note_response();
            body.flow_control().release_capacity(part.len()).map_err(broken)?;
            let Some(rest) = left.checked_sub(part.len()) else { return Ok(result) };
            left = rest;
        }
        Ok(result)
    }
}

fn answer(status: StatusCode) -> UpstreamResult {
    UpstreamResult::Answer(u8::try_from(status.as_u16() / 100).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn prepared(headers: &[(&'static str, &'static str)], body: &'static str) -> RequestHeader {
        let mut head = RequestHeader::build("POST", b"/a?b=c", None).unwrap();
        head.insert_header("Host", "api.test").unwrap();
        for (name, value) in headers {
            head.insert_header(*name, *value).unwrap();
        }
        prepare(&mut head, "api", &Bytes::from_static(body.as_bytes())).unwrap();
        head
    }

    #[test]
    fn head_of_a_copy_has_the_length_of_its_body() {
        let of = |headers: &[_], body| {
            let head = prepared(headers, body);
            let value = |name: &str| head.headers.get(name).cloned();
            assert_eq!(value("x-mirrored-from"), Some(HeaderValue::from_static("api")));
            assert_eq!((value("transfer-encoding"), value("connection")), (None, None));
            value("content-length")
        };
        let value = |text| Some(HeaderValue::from_static(text));
        assert_eq!(of(&[], ""), None);
        assert_eq!(of(&[("Transfer-Encoding", "chunked"), ("Connection", "x")], "abc"), value("3"));
        assert_eq!(of(&[("Transfer-Encoding", "chunked")], ""), value("0"));
        assert_eq!(of(&[("Content-Length", "3")], "abc"), value("3"));
        assert_eq!(of(&[("X-Mirrored-From", "client")], ""), None);
    }
}
