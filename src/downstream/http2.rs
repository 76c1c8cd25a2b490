//! The requests of an HTTP/2 connection, each in its own task.
//!
//! Pingora 0.9.1 has a loop for this, but without a deadline for the preface, and without limits on
//! the age of a connection or on the time of its shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use h2::Reason;
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora::protocols::{Digest, GetSocketDigest as _};
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::ConnectionInfo;
use super::ended::Ended;
use super::lifetime::{Activity, Due, Lifetime, jittered};
use super::open::ShedCause;
use super::rest;
use super::stream::ClientStream;
use crate::base::clock;
use crate::base::duration::micros;
use crate::policy::settings::{Http2, Server};

/// Requests that may be malformed before the connection is closed, as in Pingora.
const MAX_MALFORMED: usize = 32;

/// Bytes of a request body that a client can send before the gateway reads them.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The same for all requests of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of a response that the gateway holds at most for a client that does not read them. The
/// library's default is 400 KiB: 40 MiB for a connection with 100 requests.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Longest time until a connection that is closed to free resources is cut off. It had no request
/// in flight; one that the client has sent before it learned of the end is served.
const SHED_TIMEOUT: Duration = Duration::from_secs(1);

/// The limits of a connection: those in force when it was accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Http2Limits {
    http2: Http2,
    head_timeout: Duration,
    max_requests: Option<u64>,
    /// Longest time without a request from the announcement that the connection closes until it
    /// does.
    close_timeout: Duration,
}

/// What the tasks of the requests of a connection share with its loop.
#[derive(Debug)]
struct Requests {
    connection: Arc<ConnectionInfo>,
    open: AtomicUsize,
    /// When the last one ended, in microseconds.
    idle_since: AtomicU64,
}

/// A connection whose end has been announced.
#[derive(Clone, Copy, Debug)]
struct Closing {
    ended: Ended,
    /// How long it stays open without a request.
    timeout: Duration,
    /// Whether the client has had enough time to learn of it: further requests are refused.
    is_overdue: bool,
}

/// Counts a request as open until it is dropped.
struct OpenRequest(Arc<Requests>);

/// What a connection waits for.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would be one more allocation"
)]
enum Event {
    Accepted(pingora::Result<Option<H2Accept>>),
    Drain,
    Shed,
    Due,
}

/// A connection between two events.
struct State<'a> {
    limits: &'a Http2Limits,
    lifetime: Lifetime,
    connection: Arc<ConnectionInfo>,
    requests: Arc<Requests>,
    malformed: usize,
    closing: Option<Closing>,
}

/// What follows from an event. The connection waits for the same time as before unless it says
/// otherwise.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would be one more allocation"
)]
enum Next {
    Serve(HttpSession),
    /// The client has had enough time to learn of the end.
    Refuse(HttpSession),
    Ignore,
    /// Nothing, until this time, in microseconds.
    Check(u64),
    /// The end is announced, for this reason; the connection stays open for this time.
    Close(Ended, Duration),
    End(Ended),
}

/// Serves requests until the connection closes.
pub(super) async fn serve<A>(
    app: &Arc<A>,
    stream: Box<ClientStream>,
    limits: &Http2Limits,
    mut shutdown: ShutdownWatch,
) -> Ended
where
    A: HttpServerApp + Send + Sync + 'static,
{
    let connection = Arc::clone(stream.connection());
    let digest = digest(&stream);
    let handshake = handshake(stream, Some(options(&limits.http2)));
    let mut http2 = match timeout(limits.head_timeout, handshake).await {
        Ok(Ok(http2)) => http2,
        Ok(Err(_)) => return Ended::Preface,
        Err(_) => return Ended::HeadTimeout,
    };
    let requests = Arc::new(Requests::new(&connection, clock::now()));
    let lifetime = lifetime(&limits.http2);
    let mut state = State { limits, lifetime, connection, requests, malformed: 0, closing: None };
    let mut timer = pin!(sleep_until(Instant::now()));
    loop {
        let is_closing = state.closing.is_some();
        let event = tokio::select! {
            biased;
            // An error means that the server has ended.
            _ = shutdown.wait_for(|is_draining| *is_draining), if !is_closing => Event::Drain,
            accepted = HttpSession::from_h2_conn(&mut http2, Arc::clone(&digest)) => {
                Event::Accepted(accepted)
            }
            () = timer.as_mut() => Event::Due,
            _ = state.connection.shed(), if !is_closing => Event::Shed,
        };
        let wait = match state.next(event) {
            Next::Serve(session) => {
                state.requests.serve(app, session, &shutdown);
                if !state.is_last_request() {
                    continue;
                }
                http2.graceful_shutdown();
                state.close(Ended::Uncounted, limits.close_timeout)
            }
            Next::Refuse(mut session) => {
                session.shutdown_with_reason(Reason::REFUSED_STREAM);
                continue;
            }
            Next::Ignore => continue,
            Next::Check(time) => Duration::from_micros(time.saturating_sub(clock::now())),
            Next::Close(ended, timeout) => {
                http2.graceful_shutdown();
                state.close(ended, timeout)
            }
            Next::End(ended) => return ended,
        };
        timer.as_mut().reset(Instant::now() + wait);
    }
}

impl State<'_> {
    /// What follows from an event.
    fn next(&mut self, event: Event) -> Next {
        match event {
            Event::Accepted(Ok(Some(H2Accept::Session(session)))) => {
                let limits = self.limits;
                let is_refused =
                    self.closing.as_mut().is_some_and(|closing| closing.refuses(limits));
                if is_refused { Next::Refuse(session) } else { Next::Serve(session) }
            }
            Event::Accepted(Ok(Some(H2Accept::Rejected))) => {
                self.malformed += 1;
                if self.malformed >= MAX_MALFORMED {
                    Next::End(Ended::Malformed)
                } else {
                    Next::Ignore
                }
            }
            // The connection has ended, by either side.
            Event::Accepted(Ok(None) | Err(_)) => Next::End(ended(&self.connection, self.closing)),
            Event::Due => self.check(),
            Event::Shed => match self.requests.shed_cause() {
                Some(cause) => Next::Close(Ended::Shed(cause), SHED_TIMEOUT),
                None => Next::Ignore,
            },
            Event::Drain => Next::Close(Ended::Uncounted, self.limits.close_timeout),
        }
    }

    /// What follows from the time and the requests.
    fn check(&mut self) -> Next {
        let (now, activity) = (clock::now(), self.requests.activity());
        match &mut self.closing {
            None => match self.lifetime.check(now, activity) {
                Due::At(time) => Next::Check(time),
                Due::Close => Next::Close(Ended::Uncounted, self.limits.close_timeout),
            },
            Some(closing) => match closing.check(now, activity) {
                Due::At(time) => Next::Check(time),
                Due::Close => Next::End(closing.ended),
            },
        }
    }

    /// Whether a request that was accepted is the last one of a connection that is not closing.
    fn is_last_request(&self) -> bool {
        self.closing.is_none() && self.connection.is_last_request(self.limits.max_requests)
    }

    /// Notes that the end has been announced. Returns how long the connection stays open.
    fn close(&mut self, ended: Ended, timeout: Duration) -> Duration {
        self.closing.insert(Closing::new(ended, timeout)).timeout
    }
}

/// Why a connection has ended.
fn ended(connection: &ConnectionInfo, closing: Option<Closing>) -> Ended {
    if connection.head.has_timed_out() {
        return Ended::HeadTimeout;
    }
    let slow = connection.slow().map(Ended::Slow);
    slow.or(closing.map(|closing| closing.ended)).unwrap_or(Ended::Uncounted)
}

impl Closing {
    fn new(ended: Ended, timeout: Duration) -> Self {
        Self { ended, timeout, is_overdue: false }
    }

    /// Whether a request that has arrived is refused. One that is not has the ordinary time to end.
    fn refuses(&mut self, limits: &Http2Limits) -> bool {
        self.timeout = limits.close_timeout;
        self.is_overdue
    }

    /// Decides at `now`, some time after the announcement.
    fn check(&mut self, now: u64, activity: Activity) -> Due {
        self.is_overdue = true;
        // After a request, its client may still read the response.
        Lifetime { idle_us: micros(self.timeout), aged_at: None }.check(now, activity)
    }
}

impl Http2Limits {
    pub(super) fn of(server: &Server) -> Self {
        Self {
            http2: server.http2,
            head_timeout: server.limits.head_timeout,
            max_requests: server.limits.max_requests_per_connection,
            close_timeout: server.drain_timeout,
        }
    }
}

fn digest(stream: &ClientStream) -> Arc<Digest> {
    Arc::new(Digest { socket_digest: stream.get_socket_digest(), ..Digest::default() })
}

fn options(settings: &Http2) -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(settings.max_concurrent_streams)
        .max_header_list_size(settings.max_header_list_bytes)
        .max_pending_accept_reset_streams(settings.max_pending_resets)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    options
}

fn lifetime(settings: &Http2) -> Lifetime {
    let aged_at = settings.max_connection_age.map(|age| {
        let random = getrandom::u32().unwrap_or_default();
        clock::now().saturating_add(jittered(micros(age), random))
    });
    Lifetime { idle_us: micros(settings.idle_timeout), aged_at }
}

impl Requests {
    fn new(connection: &Arc<ConnectionInfo>, now: u64) -> Self {
        connection.note_idle();
        let connection = Arc::clone(connection);
        Self { connection, open: AtomicUsize::new(0), idle_since: AtomicU64::new(now) }
    }

    /// Serves a request in its own task.
    fn serve<A>(self: &Arc<Self>, app: &Arc<A>, session: HttpSession, shutdown: &ShutdownWatch)
    where
        A: HttpServerApp + Send + Sync + 'static,
    {
        let request = self.begin();
        let (app, shutdown) = (Arc::clone(app), shutdown.clone());
        tokio::spawn(Arc::clone(&self.connection).scope(async move {
            let _request = request;
            let serve = app.process_new_http(ServerSession::new_http2(session), &shutdown);
            rest::bounded(serve).await;
        }));
    }

    fn begin(self: &Arc<Self>) -> OpenRequest {
        if self.open.fetch_add(1, Ordering::Relaxed) == 0 {
            self.connection.note_busy();
        }
        OpenRequest(Arc::clone(self))
    }

    /// Why the connection is to be closed; `None` if a request has arrived at the same time.
    fn shed_cause(&self) -> Option<ShedCause> {
        match self.activity() {
            Activity::Busy => {
                self.connection.note_busy();
                None
            }
            Activity::IdleSince(_) => self.connection.shed_cause(),
        }
    }

    fn activity(&self) -> Activity {
        // Ordered with the end of a request, so that the time is not that of an earlier one.
        match self.open.load(Ordering::Acquire) {
            0 => Activity::IdleSince(self.idle_since.load(Ordering::Relaxed)),
            _ => Activity::Busy,
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.idle_since.store(clock::now(), Ordering::Relaxed);
        if self.0.open.fetch_sub(1, Ordering::Release) == 1 {
            // A request that begins now may be marked before: `Event::Shed` looks again.
            self.0.connection.note_idle();
        }
    }
}
