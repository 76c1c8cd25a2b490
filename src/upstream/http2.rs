//! HTTP/2 connections to the servers of one upstream, each shared by many requests.
//!
//! Pingora 0.9.1 pools HTTP/2 connections only if it can compare the address of their socket, which
//! a connection with TLS of the gateway's own does not show it; it opens one connection for each
//! request of a burst; and its only timeout is one between two reads, which also cuts streams that
//! are idle by design.
//!
//! A server that has disappeared is found by PING, or by TCP keep-alive if no request waits.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use h2::client::{Builder, SendRequest};
use parking_lot::Mutex;
use pingora::prelude::{Error, ErrorType, Result};
use socket2::{SockRef, TcpKeepalive};
use tokio::time::MissedTickBehavior;
use tracing::warn;

use super::connection::{Bound, Opened};
use super::dial::{Dial, Endpoint, Offer, Raced};
use super::gate::{Gate, Permit};
use super::liveness::{CHECK_INTERVAL, Due, Liveness, Readings};
use super::transport::{Counted, Transport};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::duration::micros;

/// Maximum number of requests at a time on one connection. A server may allow fewer.
const MAX_STREAMS: usize = 100;

/// Bytes of a response that a server can send before the client has read them. The gateway holds no
/// more of each: capacity is released when the client's connection has taken the bytes.
const STREAM_WINDOW: u32 = 128 * 1024;

/// The same for all responses of a connection: one slow client must not stop the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;

/// Largest frame that a server can send.
const MAX_FRAME_BYTES: u32 = 64 * 1024;

/// Maximum size of the decoded head of a response.
const MAX_HEAD_BYTES: u32 = 1024 * 1024;

/// How long it is remembered which version of HTTP a server has selected, in microseconds.
const MEMORY_US: u64 = 600 * MICROS_PER_SECOND;

/// Connections to the servers of one upstream.
#[derive(Debug)]
pub(crate) struct Http2Connections {
    /// `None` after [`close`](Self::close): no connection is shared any more.
    servers: Mutex<Option<HashMap<Endpoint, Arc<Server>>>>,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http1,
    Http2,
}

/// A connection to a server that speaks either version.
pub(crate) enum Acquired {
    /// A connection over which the server speaks HTTP/1.1.
    Http1(Opened),
    Http2(Stream),
}

/// The right to send one request. The connection counts it until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) sender: SendRequest<Bytes>,
    /// Whether the connection has been used by an earlier request.
    pub(crate) is_reused: bool,
    /// The connection is to another address than the selected one.
    pub(crate) raced: Option<Box<Raced>>,
    place: Place,
}

impl Stream {
    /// Notes that the head or a part of the response has come.
    pub(crate) fn note_response(&self) {
        self.place.connection.responses.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that a request may use.
enum Found {
    Place(Place),
    /// Over HTTP/1.1.
    Idle(Opened),
    New(Permit),
}

#[derive(Debug, Default)]
struct Server {
    /// Held while a connection is opened, so that a burst of requests opens one.
    connecting: tokio::sync::Mutex<()>,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// The version that the server has selected, and until when that is remembered.
    selected: Mutex<Option<(Version, u64)>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Bytes>,
    /// Number of requests in flight.
    streams: AtomicUsize,
    /// Number of requests that have begun.
    requests: AtomicU64,
    /// Number of heads and parts of responses.
    responses: AtomicU64,
    /// When it is closed if it has no stream, in microseconds.
    expires_at: AtomicU64,
    is_closed: AtomicBool,
    /// Counts it among those to the servers of its upstream.
    gate: Arc<Gate>,
    server: SocketAddr,
}

/// Marks a connection as closed when it is dropped, however its task ends.
struct ConnectionEnd(Weak<Connection>);

/// One of the places for streams of a connection.
#[derive(Debug)]
struct Place {
    connection: Arc<Connection>,
    idle_timeout: Duration,
}

impl Http2Connections {
    pub(super) fn new() -> Self {
        Self { servers: Mutex::new(Some(HashMap::new())) }
    }

    /// Opens a stream: on a connection that is open, unless `is_new` requires a new one, which no
    /// other request uses. Connections are closed after `idle_timeout` without a stream.
    ///
    /// With [`Offer::Both`], an idle connection over HTTP/1.1 is taken if the server selected that
    /// version last. Every new connection offers both: since then, the server may have been
    /// replaced by one that speaks HTTP/2 only.
    ///
    /// # Errors
    /// As [`Dial::open`], or if the server does not select HTTP/2 although that is the only offer.
    pub(crate) async fn acquire(
        &self,
        dial: &Dial,
        offer: Offer,
        is_new: bool,
        idle_timeout: Duration,
    ) -> Result<Acquired> {
        let is_shared = !is_new && dial.proxy_header.is_none();
        let shared = if is_shared { self.server(&dial.server) } else { None };
        let Some(server) = shared else {
            let permit = dial.pool.idle().gate().open();
            return connect(dial, offer, permit).await?.acquire(idle_timeout, None).await;
        };
        if let Some(stream) = server.reuse(idle_timeout).await {
            return Ok(Acquired::Http2(stream));
        }
        let is_http1 =
            || offer == Offer::Both && server.selected(clock::now()) == Some(Version::Http1);
        if is_http1() {
            return server.take_or_open(dial, offer, idle_timeout).await;
        }
        let connecting = server.connecting.lock().await;
        if let Some(stream) = server.reuse(idle_timeout).await {
            return Ok(Acquired::Http2(stream));
        }
        if is_http1() {
            // Another request has found out meanwhile. Its connection is not shared.
            drop(connecting);
            return server.take_or_open(dial, offer, idle_timeout).await;
        }
        server.open(dial, offer, idle_timeout, dial.pool.idle().gate().open()).await
    }

    /// The connections to a server; `None` after [`close`](Self::close).
    fn server(&self, server: &Endpoint) -> Option<Arc<Server>> {
        let mut guard = self.servers.lock();
        Some(Arc::clone(guard.as_mut()?.entry(server.clone()).or_default()))
    }

    /// As [`acquire`](Self::acquire), of the connections that `bound` allows.
    #[cold]
    pub(crate) async fn acquire_bounded(
        &self,
        dial: &Dial,
        offer: Offer,
        is_new: bool,
        idle_timeout: Duration,
        bound: Bound,
    ) -> Result<Acquired> {
        let (gate, to) = (dial.pool.idle().gate(), dial.server.address);
        let permit = |kept| self.permit(dial, bound.max.open, kept).map(Found::New);
        let server = {
            let mut guard = self.servers.lock();
            let shared = guard.as_mut().filter(|_| dial.proxy_header.is_none());
            shared.map(|servers| Arc::clone(servers.entry(dial.server.clone()).or_default()))
        };
        let is_http1 = |server: &Server| {
            offer == Offer::Both && server.selected(clock::now()) == Some(Version::Http1)
        };
        // A server that refused the request, since it had too many at once, might do so on any
        // connection on which it has not said yet how many it takes.
        let responses = u64::from(is_new);
        let shared = || {
            let server = server.as_ref()?;
            let place = server.place(idle_timeout, responses).map(Found::Place);
            let idle = || if is_http1(server) { dial.take_idle(clock::now()) } else { None };
            place.or_else(|| idle().map(Found::Idle))
        };
        let take = || {
            if is_new {
                // If another connection is not allowed, one that is open has to do.
                permit(None).or_else(shared)
            } else {
                // One that another request has left meanwhile is not closed by `permit`.
                shared().or_else(|| permit(Some(&dial.server))).or_else(shared)
            }
        };
        loop {
            match (bound.acquire(gate, to, take).await?, &server) {
                (Found::Idle(opened), _) => return Ok(Acquired::Http1(opened)),
                (Found::Place(place), _) => {
                    if let Some(stream) = place.reuse().await {
                        return Ok(Acquired::Http2(stream));
                    }
                }
                (Found::New(permit), Some(server)) if !is_new => {
                    let _connecting = server.connecting.lock().await;
                    if let Some(stream) = server.reuse(idle_timeout).await {
                        return Ok(Acquired::Http2(stream));
                    }
                    let acquired = server.open(dial, offer, idle_timeout, permit).await;
                    // Others have a place on it.
                    gate.note_free(Some(to));
                    return acquired;
                }
                (Found::New(permit), _) => {
                    return connect(dial, offer, permit).await?.acquire(idle_timeout, None).await;
                }
            }
        }
    }

    /// A permit to open a connection while there are fewer than `most`. If there are not, closes an
    /// idle one, but for one to `kept` that can be used: over HTTP/1.1 at once, over HTTP/2 soon.
    fn permit(&self, dial: &Dial, most: u32, kept: Option<&Endpoint>) -> Option<Permit> {
        let permit = dial.pool.idle().permit(most, kept);
        if permit.is_none()
            && let Some(servers) = self.servers.lock().as_ref()
        {
            let mut others = servers.iter().filter(|(endpoint, _)| Some(*endpoint) != kept);
            let _ = others.find_map(|(_, server)| server.remove_idle());
        }
        permit
    }

    /// Closes connections that have had no stream for too long, and forgets servers without
    /// connections.
    pub(super) fn sweep(&self, now: u64) {
        let mut guard = self.servers.lock();
        let Some(servers) = guard.as_mut() else { return };
        servers.retain(|_, server| {
            let mut connections = server.connections.lock();
            connections.retain(|connection| {
                let is_idle = connection.streams.load(Ordering::Acquire) == 0
                    && connection.expires_at.load(Ordering::Relaxed) <= now;
                !is_idle && !connection.is_closed.load(Ordering::Relaxed)
            });
            !connections.is_empty()
                || server.selected(now).is_some()
                || Arc::strong_count(server) > 1
        });
    }

    /// Closes all connections as soon as they have no stream. None is shared from now on.
    pub(super) fn close(&self) {
        *self.servers.lock() = None;
    }
}

impl Server {
    fn selected(&self, now: u64) -> Option<Version> {
        let selected = *self.selected.lock();
        selected.filter(|(_, until)| now < *until).map(|(version, _)| version)
    }

    /// An idle connection over HTTP/1.1, else a new one.
    async fn take_or_open(
        &self,
        dial: &Dial,
        offer: Offer,
        idle_timeout: Duration,
    ) -> Result<Acquired> {
        match dial.take_idle(clock::now()) {
            Some(opened) => Ok(Acquired::Http1(opened)),
            None => self.open(dial, offer, idle_timeout, dial.pool.idle().gate().open()).await,
        }
    }

    /// Opens a connection, which later requests share if it is one over HTTP/2.
    async fn open(
        &self,
        dial: &Dial,
        offer: Offer,
        idle_timeout: Duration,
        permit: Permit,
    ) -> Result<Acquired> {
        let connected = connect(dial, offer, permit).await?;
        let version = match &connected {
            Connected::Http1(_) => Version::Http1,
            Connected::Http2(..) => Version::Http2,
        };
        let other = match &connected {
            Connected::Http2(_, Some(raced)) => dial.pool.http2.server(&raced.server),
            _ => None,
        };
        let server = other.as_deref().unwrap_or(self);
        *server.selected.lock() = Some((version, clock::now().saturating_add(MEMORY_US)));
        connected.acquire(idle_timeout, Some(server)).await
    }

    /// A stream on a connection that is open and has a place.
    async fn reuse(&self, idle_timeout: Duration) -> Option<Stream> {
        loop {
            if let Some(stream) = self.place(idle_timeout, 0)?.reuse().await {
                return Some(stream);
            }
        }
    }

    /// A place on a connection that is open, and that has had this many parts of responses.
    fn place(&self, idle_timeout: Duration, responses: u64) -> Option<Place> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.is_closed.load(Ordering::Relaxed));
        let has_had = |connection: &&Arc<Connection>| {
            connection.responses.load(Ordering::Relaxed) >= responses
        };
        connections.iter().filter(has_had).find_map(|connection| connection.place(idle_timeout))
    }

    /// Removes a connection without a stream, which is closed soon.
    fn remove_idle(&self) -> Option<Arc<Connection>> {
        let mut connections = self.connections.lock();
        let is_idle =
            |connection: &Arc<Connection>| connection.streams.load(Ordering::Acquire) == 0;
        let at = connections.iter().position(is_idle)?;
        Some(connections.swap_remove(at))
    }
}

impl Connection {
    /// Takes a place, if there is one.
    fn place(self: &Arc<Self>, idle_timeout: Duration) -> Option<Place> {
        let most = MAX_STREAMS.min(self.sender.current_max_send_streams());
        let taken = self.streams.fetch_update(Ordering::AcqRel, Ordering::Acquire, |streams| {
            (streams < most).then_some(streams + 1)
        });
        self.requests.fetch_add(u64::from(taken.is_ok()), Ordering::Relaxed);
        taken.ok().map(|_| Place { connection: Arc::clone(self), idle_timeout })
    }
}

impl Place {
    /// A stream, unless the server has announced that it closes the connection.
    async fn reuse(self) -> Option<Stream> {
        let connection = Arc::clone(&self.connection);
        let stream = self.stream(true, None).await;
        if stream.is_err() {
            connection.is_closed.store(true, Ordering::Relaxed);
        }
        stream.ok()
    }

    async fn stream(self, is_reused: bool, raced: Option<Box<Raced>>) -> Result<Stream> {
        let sender = self.connection.sender.clone();
        let sender = sender.ready().await.map_err(in_words)?;
        Ok(Stream { sender, is_reused, raced, place: self })
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        if let Some(connection) = self.0.upgrade() {
            connection.is_closed.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let timeout = micros(self.idle_timeout);
        self.connection.expires_at.store(clock::now().saturating_add(timeout), Ordering::Relaxed);
        self.connection.streams.fetch_sub(1, Ordering::AcqRel);
        self.connection.gate.note_free(Some(self.connection.server));
    }
}

/// A new connection.
enum Connected {
    Http1(Transport),
    /// Also if it is to another address than the selected one.
    Http2(Arc<Connection>, Option<Box<Raced>>),
}

impl Connected {
    /// The connection for its first request; `server` shares it with others if it is one over
    /// HTTP/2.
    async fn acquire(self, idle_timeout: Duration, server: Option<&Server>) -> Result<Acquired> {
        match self {
            Self::Http1(transport) => Ok(Acquired::Http1(Opened::new(transport))),
            Self::Http2(connection, raced) => {
                let place = connection.place(idle_timeout).ok_or_else(closed)?;
                if let Some(server) = server {
                    server.connections.lock().push(connection);
                }
                place.stream(false, raced).await.map(Acquired::Http2)
            }
        }
    }
}

async fn connect(dial: &Dial, offer: Offer, permit: Permit) -> Result<Connected> {
    let mut transport = dial.open_with(permit, offer).await?;
    let is_http2 = !transport.is_tls() || transport.has_selected_http2();
    if !is_http2 {
        if offer == Offer::Http2 {
            let words = "the server did not select HTTP/2 in the TLS handshake";
            return Err(Error::new(ErrorType::Custom(words)).into_up());
        }
        return Ok(Connected::Http1(transport));
    }
    let raced = transport.take_raced();
    let server = raced.as_ref().map_or(dial.server.address, |raced| raced.server.address);
    let socket = SockRef::from(transport.tcp());
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10));
    // Without it, a server that has disappeared is found when the kernel gives up.
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(30)));
    let reads = Arc::new(AtomicU64::new(0));
    let (sender, driver) = Builder::new()
        .enable_push(false)
        .initial_max_send_streams(MAX_STREAMS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES)
        .handshake(Counted { transport, reads: Arc::clone(&reads) })
        .await
        .map_err(in_words)?;
    let connection = Arc::new(Connection {
        sender,
        streams: AtomicUsize::new(0),
        requests: AtomicU64::new(0),
        responses: AtomicU64::new(0),
        expires_at: AtomicU64::new(0),
        is_closed: AtomicBool::new(false),
        gate: Arc::clone(dial.pool.idle().gate()),
        server,
    });
    let end = ConnectionEnd(Arc::downgrade(&connection));
    let upstream = Arc::clone(dial.pool.name());
    tokio::spawn(async move {
        if drive(driver, &end.0, &reads).await == Due::Close {
            let upstream = &*upstream;
            warn!(upstream, %server, "a server does not answer on an HTTP/2 connection, which is closed");
        }
        drop(end);
    });
    Ok(Connected::Http2(connection, raced))
}

/// Reads and writes until the connection has ended ([`Due::Nothing`]) or must be closed. Requests
/// on it get the error.
async fn drive(
    mut driver: h2::client::Connection<Counted, Bytes>,
    connection: &Weak<Connection>,
    reads: &AtomicU64,
) -> Due {
    let mut pings = driver.ping_pong();
    let mut liveness = Liveness::new(clock::now());
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Reads first: after a pause of the gateway, the answer may have come.
            biased;
            _ = &mut driver => return Due::Nothing,
            _ = checks.tick() => {}
        }
        // Without a connection, the driver ends with the last stream.
        let (Some(connection), Some(pings)) = (connection.upgrade(), &mut pings) else { continue };
        let readings = Readings {
            reads: reads.load(Ordering::Relaxed),
            responses: connection.responses.load(Ordering::Relaxed),
            requests: connection.requests.load(Ordering::Relaxed),
            streams: connection.streams.load(Ordering::Relaxed),
        };
        match liveness.check(clock::now(), readings) {
            Due::Nothing => {}
            Due::Ping => {
                // Takes the answer to the last one, without which no other can be sent.
                let _ = pings.poll_pong(&mut Context::from_waker(Waker::noop()));
                let _ = pings.send_ping(Ping::opaque());
            }
            Due::Close => return Due::Close,
        }
    }
}

#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
fn closed() -> Box<Error> {
    Error::new(ErrorType::Custom("the server allows no stream")).into_up()
}

/// The error of a connection or a stream, without anything that the server sent.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
pub(crate) fn in_words(error: h2::Error) -> Box<Error> {
    let words = if error.is_io() {
        let io = error.into_io().unwrap_or_else(|| std::io::ErrorKind::ConnectionReset.into());
        return Error::because(ErrorType::ReadError, "on an HTTP/2 connection", io).into_up();
    } else if error.is_go_away() && error.is_remote() {
        "the server closed the HTTP/2 connection"
    } else if error.is_reset() && error.is_remote() {
        "the server reset the HTTP/2 stream"
    } else {
        "the server does not speak HTTP/2 correctly"
    };
    Error::new(ErrorType::Custom(words)).into_up()
}

/// Whether the server has certainly not processed the request that failed with this error (RFC
/// 9113, section 8.7).
pub(crate) fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    // With another reason, the error is also that of streams that were processed.
    let is_closing = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (is_refused || is_closing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::pool::Pool;

    /// An HTTP/2 server in clear that accepts requests and does not respond.
    async fn server() -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while connection.accept().await.is_some() {}
                });
            }
        });
        address
    }

    fn dial(address: std::net::SocketAddr, host: &str) -> Dial {
        let file = format!(
            "[upstreams.api]\nservers = [\"{address}\"]\nprotocol = \"h2c\"\n[routes.all]\n"
        );
        let policy = crate::load::from_text("gateway.toml", &file).unwrap();
        Dial {
            server: Endpoint { address, host: Some(host.into()), generation: 0 },
            pool: Arc::new(Pool::new(&policy.upstreams[0])),
            proxy_header: None,
            tries_families: false,
        }
    }

    #[tokio::test]
    async fn connection_verified_for_one_name_is_not_used_for_another() {
        let address = server().await;
        let connections = Http2Connections::new();
        for (host, expected) in [("a", false), ("a", true), ("b", false), ("b", true), ("a", true)]
        {
            let dial = dial(address, host);
            let timeout = Duration::from_secs(60);
            let acquired = connections.acquire(&dial, Offer::Http2, false, timeout).await.unwrap();
            let Acquired::Http2(stream) = acquired else { panic!("HTTP/1.1") };
            assert_eq!(stream.is_reused, expected, "{host}");
        }
    }
}
