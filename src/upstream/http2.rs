//! HTTP/2 connections to the servers of one upstream, each shared by many requests.
//!
//! Pingora 0.9.1 pools HTTP/2 connections only if it can compare the address of their socket, which
//! a connection with TLS of the gateway's own does not show it; it opens one connection for each
//! request of a burst; and its only timeout is one between two reads, which also cuts streams that
//! are idle by design.
//!
//! A server that has disappeared is found by PING, or by TCP keep-alive if no request waits.

mod queue;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
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
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};
use tracing::warn;

use self::queue::{Opening, Queue, Turn, Waiting};
use super::connection::{Bound, Opened, QUEUED};
use super::dial::{Dial, Endpoint, Offer, Raced, blame};
use super::gate::{Gate, Permit};
use super::health::UNREACHABLE_US;
use super::liveness::{CHECK_INTERVAL, Due, Liveness, Readings};
use super::transport::{Counted, Transport};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::duration::micros;
use crate::policy::settings::{MaxConnections, Upstream};

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
    /// How many requests at a time a connection accepted last, 1 to [`MAX_STREAMS`]: what a new one
    /// is expected to accept.
    streams: Arc<AtomicUsize>,
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

/// What a request needs of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) offer: Offer,
    pub(crate) usable: Usable,
    /// How long the connection is kept without a stream.
    pub(crate) idle_timeout: Duration,
    /// Longest time until a new connection is open, and longest wait for one that others open or
    /// use.
    pub(crate) connect_timeout: Duration,
    pub(crate) max_connections: Option<MaxConnections>,
}

impl Needs {
    pub(crate) fn of(upstream: &Upstream, offer: Offer, usable: Usable) -> Self {
        Self {
            offer,
            usable,
            idle_timeout: upstream.idle_timeout,
            connect_timeout: upstream.connect_timeout,
            max_connections: upstream.max_connections,
        }
    }

    /// Whether a connection over HTTP/1.1 will do, which the server has selected last.
    fn takes_http1(&self, server: &Server) -> bool {
        self.offer == Offer::Both && server.selected(clock::now()) == Some(Version::Http1)
    }

    /// Whether also an idle one.
    fn takes_idle(&self, server: &Server) -> bool {
        !self.usable.excludes_some() && self.takes_http1(server)
    }
}

/// Which connections that are open a request can use. Times are microseconds of the monotonic
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usable {
    Any,
    /// Those that have had a response, or were opened since then. A server that refused the
    /// request, since it had too many at once, might do so on any connection on which it has not
    /// said yet how many it takes.
    Answered(u64),
    /// Those that were opened since then: after one was closed, for example by a restart of the
    /// server, others are likely to be closed, too.
    OpenedSince(u64),
}

impl Usable {
    /// Whether some connections that are open cannot be used.
    fn excludes_some(self) -> bool {
        self != Self::Any
    }

    fn has(self, connection: &Connection) -> bool {
        match self {
            Self::Any => true,
            Self::Answered(since) => {
                connection.opened_at >= since || connection.responses.load(Ordering::Relaxed) > 0
            }
            Self::OpenedSince(since) => connection.opened_at >= since,
        }
    }
}

/// What a request may use.
#[derive(Debug)]
enum Found {
    Place(Place),
    /// A connection over HTTP/1.1.
    Idle(Opened),
    /// A new connection. Others wait for it if it may be one over HTTP/2.
    New(Permit, Option<Opening>),
    /// A connection that another request opens.
    Soon,
    /// Connections to an address that has connected in place of this one.
    Elsewhere,
}

#[derive(Debug, Default)]
struct Server {
    queue: Arc<Queue>,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// The version that the server has selected, and until when that is remembered.
    selected: Mutex<Option<(Version, u64)>>,
    /// The address that connected in place of this one, which it lost to or which failed, and until
    /// when that is remembered.
    winner: Mutex<Option<(SocketAddr, u64)>>,
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
    /// When it was opened, in microseconds.
    opened_at: u64,
    /// [`Http2Connections::streams`].
    accepted_last: Arc<AtomicUsize>,
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
        Self {
            servers: Mutex::new(Some(HashMap::new())),
            streams: Arc::new(AtomicUsize::new(MAX_STREAMS)),
        }
    }

    /// Opens a stream: on a connection that is open, or that is opened for it and those that wait
    /// as well. Connections are closed after `idle_timeout` without a stream.
    ///
    /// With [`Offer::Both`], an idle connection over HTTP/1.1 is taken if the server selected that
    /// version last. Every new connection offers both: since then, the server may have been
    /// replaced by one that speaks HTTP/2 only.
    ///
    /// # Errors
    /// As [`Dial::open_within`], or if the server does not select HTTP/2 although that is the only
    /// offer; [`OVERFLOW`](super::connection::OVERFLOW), or [`QUEUED`] if no connection was opened
    /// for the request itself.
    pub(crate) async fn acquire(&self, dial: &Dial, needs: Needs) -> Result<Acquired> {
        let shared = if needs.max_connections.is_none() { self.shared(dial) } else { None };
        if let Some(server) = shared {
            if let Some(stream) = server.reuse(dial, needs).await {
                return Ok(Acquired::Http2(stream));
            }
            if needs.takes_idle(&server)
                && let Some(opened) = dial.take_idle(clock::now())
            {
                return Ok(Acquired::Http1(opened));
            }
        }
        Box::pin(self.join(dial, needs)).await
    }

    /// Waits for a place on a connection, or opens one.
    async fn join(&self, selected: &Dial, needs: Needs) -> Result<Acquired> {
        let until = Instant::now() + needs.connect_timeout;
        let mut place_in_queue = None;
        let mut has_waited = false;
        loop {
            let other = self.in_place_of(selected);
            let dial = other.as_ref().unwrap_or(selected);
            let Some(server) = self.shared(dial) else {
                return self.open_alone(dial, needs).await;
            };
            let queue = &server.queue;
            let waiting = place_in_queue.take().filter(|waiting: &Waiting| waiting.is_in(queue));
            let waiting = place_in_queue.insert(waiting.unwrap_or_else(|| Waiting::new(queue)));
            let woken = waiting.woken();
            if has_waited && let Some(stream) = server.reuse(dial, needs).await {
                // Before requests that came later, and wait for one of the connections allowed.
                return Ok(Acquired::Http2(stream));
            }
            match self.find(selected, dial, &server, waiting, needs, until).await? {
                Found::Place(place) => {
                    if let Some(stream) = place.reuse(dial.in_place()).await {
                        return Ok(Acquired::Http2(stream));
                    }
                }
                Found::Idle(opened) => return Ok(Acquired::Http1(opened)),
                Found::New(permit, opening) => {
                    drop(woken);
                    if opening.is_none() {
                        // Others do not wait for this connection: the next one opens its own.
                        place_in_queue = None;
                    }
                    let opened = self.open(dial, &server, needs, permit, opening).await;
                    drop(place_in_queue);
                    return opened;
                }
                Found::Soon => {
                    let late = |_| Error::new(QUEUED).into_up();
                    timeout_at(until, woken).await.map_err(late)?;
                    has_waited = true;
                }
                Found::Elsewhere => {}
            }
        }
    }

    /// What a request in the queue of this server uses, as far as the limit on connections allows.
    async fn find(
        &self,
        selected: &Dial,
        dial: &Dial,
        server: &Server,
        waiting: &Waiting,
        needs: Needs,
        until: Instant,
    ) -> Result<Found> {
        let (gate, to) = (dial.pool.idle().gate(), dial.server.address);
        let kept = Some(&dial.server).filter(|_| !needs.usable.excludes_some());
        let shared = || {
            let place = server.place(needs.idle_timeout, needs.usable).map(Found::Place);
            let idle =
                || if needs.takes_idle(server) { dial.take_idle(clock::now()) } else { None };
            place.or_else(|| idle().map(Found::Idle))
        };
        let permit = || match needs.max_connections {
            None => Some(gate.open()),
            Some(max) => dial.pool.permit(max.open, kept, kept),
        };
        let new = || permit().map(|permit| Found::New(permit, None));
        let places = self.streams.load(Ordering::Relaxed);
        let take_or_open = || {
            if needs.takes_http1(server) {
                // Its connections are not shared, so others do not wait for this one.
                return new().or_else(|| {
                    server.queue.wake();
                    None
                });
            }
            // A connection may have been opened just before.
            match waiting.turn(places, (gate, to), || shared().or_else(new)) {
                Turn::Waits => Some(Found::Soon),
                Turn::Opens(Found::New(permit, _), opening) => {
                    Some(Found::New(permit, Some(opening)))
                }
                Turn::Opens(found, _) => Some(found),
                Turn::Cannot => None,
            }
        };
        let elsewhere = || {
            let other = self.in_place_of(selected)?;
            (other.server != dial.server).then_some(Found::Elsewhere)
        };
        // If another connection is not allowed, one that is open has to do.
        let any =
            || Some(Found::Place(server.place(needs.idle_timeout, Usable::Answered(u64::MAX))?));
        let take = || {
            // One that another request has left meanwhile is not closed by `permit`.
            shared().or_else(elsewhere).or_else(take_or_open).or_else(shared).or_else(any)
        };
        match needs.max_connections {
            None => take().ok_or_else(|| Error::new(QUEUED).into_up()),
            Some(max) => {
                let longest = until.saturating_duration_since(Instant::now());
                Bound { max, longest }.acquire(gate, to, take).await
            }
        }
    }

    /// The connections to the server of a request that shares them; `None`: it does not, or after
    /// [`close`](Self::close).
    fn shared(&self, dial: &Dial) -> Option<Arc<Server>> {
        if dial.proxy_header.is_none() { self.server(&dial.server) } else { None }
    }

    /// The connections to a server; `None` after [`close`](Self::close).
    fn server(&self, server: &Endpoint) -> Option<Arc<Server>> {
        let mut guard = self.servers.lock();
        Some(Arc::clone(guard.as_mut()?.entry(server.clone()).or_default()))
    }

    /// The same to an address that connected in place of the selected one a short time ago, and
    /// that still gets requests.
    fn in_place_of(&self, selected: &Dial) -> Option<Dial> {
        if !selected.tries_families {
            return None;
        }
        let now = clock::now();
        let winner = self.shared(selected)?.winner(now)?;
        let is_up = selected.pool.others(selected.server.address, now).contains(&winner);
        is_up.then(|| selected.replaced_by(winner))
    }

    /// Opens a connection that is not shared.
    async fn open_alone(&self, dial: &Dial, needs: Needs) -> Result<Acquired> {
        let (pool, gate) = (&dial.pool, dial.pool.idle().gate());
        let permit = match needs.max_connections {
            None => gate.open(),
            Some(max) => {
                let bound = Bound { max, longest: needs.connect_timeout };
                let take = || pool.permit(max.open, None, None);
                bound.acquire(gate, dial.server.address, take).await?
            }
        };
        let connected = connect(dial, needs, permit, &self.streams).await?;
        connected.acquire(needs.idle_timeout, None).await
    }

    /// Opens a connection, which other requests share if it is one over HTTP/2.
    async fn open(
        &self,
        dial: &Dial,
        server: &Server,
        needs: Needs,
        permit: Permit,
        mut opening: Option<Opening>,
    ) -> Result<Acquired> {
        let mut connecting = pin!(connect(dial, needs, permit, &self.streams));
        let half = needs.connect_timeout / 2;
        let connected = if let Ok(connected) = timeout(half, &mut connecting).await {
            connected?
        } else {
            // A packet may be lost: another request opens one without waiting for this.
            opening = None;
            connecting.await?
        };
        let until = clock::now().saturating_add(UNREACHABLE_US);
        let winner = connected.raced().filter(|raced| raced.server != dial.server);
        *server.winner.lock() = winner.map(|raced| (raced.server.address, until));
        let other = winner.and_then(|raced| self.server(&raced.server));
        let server = other.as_deref().unwrap_or(server);
        server.note_version(connected.version(), clock::now());
        if matches!(needs.usable, Usable::OpenedSince(_)) {
            // It is in place of another one. So there are not more with each failure.
            drop(server.remove_idle());
        }
        let acquired = connected.acquire(needs.idle_timeout, Some(server)).await;
        // Others have a place on it.
        drop(opening);
        acquired
    }

    /// Closes a connection without a stream soon, but for one to `kept`.
    #[cold]
    pub(super) fn close_idle(&self, kept: Option<&Endpoint>) {
        if let Some(servers) = self.servers.lock().as_ref() {
            let mut others = servers.iter().filter(|(endpoint, _)| Some(*endpoint) != kept);
            let _ = others.find_map(|(_, server)| server.remove_idle());
        }
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
                || server.winner(now).is_some()
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

    /// Notes which version the server has selected at `now`.
    fn note_version(&self, version: Version, now: u64) {
        *self.selected.lock() = Some((version, now.saturating_add(MEMORY_US)));
    }

    /// The address that connected in place of this one, if that is remembered at `now`.
    fn winner(&self, now: u64) -> Option<SocketAddr> {
        let winner = *self.winner.lock();
        winner.filter(|(_, until)| now < *until).map(|(address, _)| address)
    }

    /// A stream on a connection that is open and has a place.
    async fn reuse(&self, dial: &Dial, needs: Needs) -> Option<Stream> {
        loop {
            let place = self.place(needs.idle_timeout, needs.usable)?;
            if let Some(stream) = place.reuse(dial.in_place()).await {
                return Some(stream);
            }
        }
    }

    /// A place on a connection that is open and can be used.
    fn place(&self, idle_timeout: Duration, usable: Usable) -> Option<Place> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.is_closed.load(Ordering::Relaxed));
        let mut all = connections.iter().filter(|connection| usable.has(connection));
        all.find_map(|connection| connection.place(idle_timeout))
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
    /// A stream, unless the server has announced that it closes the connection. `raced`: as of
    /// [`Stream`].
    async fn reuse(self, raced: Option<Box<Raced>>) -> Option<Stream> {
        let connection = Arc::clone(&self.connection);
        let stream = self.stream(true, raced).await;
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
        let (connection, timeout) = (&self.connection, micros(self.idle_timeout));
        let accepted = connection.sender.current_max_send_streams().clamp(1, MAX_STREAMS);
        // The common case writes to shared memory only if that changes a value.
        if connection.accepted_last.load(Ordering::Relaxed) != accepted {
            connection.accepted_last.store(accepted, Ordering::Relaxed);
        }
        connection.expires_at.store(clock::now().saturating_add(timeout), Ordering::Relaxed);
        connection.streams.fetch_sub(1, Ordering::AcqRel);
        connection.gate.note_free(Some(connection.server));
    }
}

/// A new connection.
enum Connected {
    Http1(Transport),
    /// Also if it is to another address than the selected one.
    Http2(Arc<Connection>, Option<Box<Raced>>),
}

impl Connected {
    fn version(&self) -> Version {
        match self {
            Self::Http1(_) => Version::Http1,
            Self::Http2(..) => Version::Http2,
        }
    }

    /// To which other address than the selected one it is.
    fn raced(&self) -> Option<&Raced> {
        match self {
            Self::Http1(transport) => transport.raced(),
            Self::Http2(_, raced) => raced.as_deref(),
        }
    }

    /// The connection for its first request; `server` shares it with others if it is one over
    /// HTTP/2.
    async fn acquire(self, idle_timeout: Duration, server: Option<&Server>) -> Result<Acquired> {
        match self {
            Self::Http1(transport) => Ok(Acquired::Http1(Opened::new(transport))),
            Self::Http2(connection, raced) => {
                let Some(place) = connection.place(idle_timeout) else {
                    return Err(blame(raced, closed()));
                };
                if let Some(server) = server {
                    server.connections.lock().push(connection);
                    server.queue.wake();
                }
                match place.stream(false, None).await {
                    Ok(stream) => Ok(Acquired::Http2(Stream { raced, ..stream })),
                    Err(error) => Err(blame(raced, error)),
                }
            }
        }
    }
}

async fn connect(
    dial: &Dial,
    needs: Needs,
    permit: Permit,
    streams: &Arc<AtomicUsize>,
) -> Result<Connected> {
    let mut transport = dial.open_within(needs.connect_timeout, permit, needs.offer).await?;
    let is_http2 = !transport.is_tls() || transport.has_selected_http2();
    if !is_http2 && needs.offer != Offer::Http2 {
        return Ok(Connected::Http1(transport));
    }
    let raced = transport.take_raced();
    let server = raced.as_ref().map_or(dial.server.address, |raced| raced.server.address);
    let begun = if is_http2 {
        begin(dial, server, transport, streams).await
    } else {
        let words = "the server did not select HTTP/2 in the TLS handshake";
        Err(Error::new(ErrorType::Custom(words)).into_up())
    };
    match begun {
        Ok(connection) => Ok(Connected::Http2(connection, raced)),
        Err(error) => Err(blame(raced, error)),
    }
}

/// Begins a connection over HTTP/2 to this address of a server.
async fn begin(
    dial: &Dial,
    server: SocketAddr,
    transport: Transport,
    streams: &Arc<AtomicUsize>,
) -> Result<Arc<Connection>> {
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
        .initial_max_send_streams(streams.load(Ordering::Relaxed))
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
        opened_at: clock::now(),
        accepted_last: Arc::clone(streams),
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
    Ok(connection)
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
pub(super) mod tests;
