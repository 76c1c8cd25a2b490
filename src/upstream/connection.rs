//! Connections to upstream servers.
//!
//! Pingora 0.9.1 bounds the time between two reads, not the time of a whole head, and its pool has
//! no notion of a connection that must first be found silent. So this module opens connections,
//! keeps them in [`IdleConnections`] and wraps them: the wrapper bounds the time to a final
//! response. Pingora never keeps one itself: when it tests a connection that it would keep, it
//! reads the end of the stream.
//!
//! Pingora also closes an upgraded connection at once if it reads the upstream's 101 before it has
//! taken the end of the request's empty body out of its pipe; an upstream on the same host loses up
//! to a fifth of its WebSockets to that (<https://github.com/cloudflare/pingora/issues/946>). The
//! end is in the pipe before the first read is tried, and pipe and connection are polled together:
//! so it is enough that the first read after a write is not ready when it is first polled.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use http::{Method, StatusCode, header};
use parking_lot::Mutex;
use pingora::connectors::L4Connect;
use pingora::prelude::{Error, ErrorType, ResponseHeader, Result};
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::l4::virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until, timeout, timeout_at};

use super::deadline::{Deadline, SetBy, TryLimit};
use super::dial::{Dial, Endpoint, Offer, Raced};
use super::gate::{Gate, Permit};
use super::idle::{Body, Idle};
use super::run::Run;
use super::transport::Transport;
use crate::base::clock;
use crate::base::duration::micros;
use crate::base::request_id::RequestId;
use crate::net::body_rate::{BodyMeter, Transfer};
use crate::net::framing;
use crate::policy::settings::MaxConnections;

/// One attempt to send a request to a server. Shared by the request and its connection.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) dial: Dial,
    pub(crate) request_id: RequestId,
    pub(crate) connects: Connects,
    /// Whether the request has a body. While the client sends it, nothing bounds the server's time.
    pub(crate) has_body: bool,
    /// Timeout of each part of the response's body, and of the head of the final response, from the
    /// end of the request.
    pub(crate) read_timeout: Duration,
    /// Another timeout of that head; `None`: the same.
    pub(crate) first_byte_timeout: Option<Duration>,
    /// Another time limit of that head, and of connecting; `None`: none.
    pub(crate) try_limit: Option<TryLimit>,
    /// Longest time until a new connection is open.
    pub(crate) connect_timeout: Duration,
    /// How long a connection that was upgraded may be silent in both directions.
    pub(crate) upgraded_idle_timeout: Duration,
    /// How long the connection is kept idle afterwards.
    pub(crate) idle_timeout: Duration,
    /// When the response must have ended; `None`: at any time.
    pub(crate) deadline: Option<Deadline>,
    pub(crate) max_connections: Option<MaxConnections>,
    /// A connection that was opened or taken before the attempt.
    pub(crate) opened: Mutex<Option<Opened>>,
    /// Longest pause of the client while it sends the request's body; `None`: Pingora bounds it,
    /// which it does for HTTP/1.
    pub(crate) client_timeout: Option<Duration>,
    pub(crate) progress: Mutex<Progress>,
}

/// A connection over HTTP/1.1.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) transport: Transport,
    /// Its use so far.
    pub(super) run: Run,
    /// Whether an earlier request has used it.
    pub(crate) is_reused: bool,
}

impl Opened {
    /// A connection that no request has used.
    pub(super) fn new(transport: Transport) -> Self {
        Self { transport, run: Run::new(clock::now()), is_reused: false }
    }
}

/// The limit on the connections of an upstream, for one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) max: MaxConnections,
    /// Longest wait for a connection.
    pub(super) longest: Duration,
}

/// The type of the error of a request that got no connection because of `max_connections`.
pub(crate) const OVERFLOW: ErrorType =
    ErrorType::Custom("the upstream has max_connections, and all are in use");

/// The type of the error of a request that got no connection in time, and has opened none itself:
/// it waited for those that other requests opened. The server may be well.
pub(crate) const QUEUED: ErrorType =
    ErrorType::Custom("no connection in time, while other requests connected to the server");

impl Bound {
    /// Waits until `take` returns a connection, or a permit for one.
    ///
    /// # Errors
    /// It takes too long, or too many wait already.
    pub(super) async fn acquire<T>(
        self,
        gate: &Gate,
        server: SocketAddr,
        take: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let acquired = timeout(self.longest, gate.acquire(server, self.max, take)).await;
        let overflow = || Error::new(OVERFLOW).into_up();
        acquired.map_err(|_| overflow())?.map_err(|_| overflow())
    }
}

/// A connection that an attempt may use.
enum Found {
    Idle(Opened),
    New(Permit),
}

/// Which connection an attempt uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connects {
    /// An idle one, if there is one.
    IdleFirst,
    /// A new one: after one idle connection was closed, for example by a restart of the server,
    /// others are likely to be closed, too.
    Anew,
    /// A new one, which the response may upgrade to another protocol.
    ForUpgrade,
}

/// How far an attempt has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    stage: Stage,
    /// Whether all of the request's body has come from the client.
    has_whole_body: bool,
    is_reused: bool,
    /// The connection is to another address than the selected one.
    raced: Option<Box<Raced>>,
    timed_out: Option<TimedOut>,
    /// When a part of the request's body came from the client last, in microseconds; 0: not yet.
    body_at: u64,
    /// Measures how fast the client sends the body; `None`: any rate will do.
    meter: Option<BodyMeter>,
    /// Whether the client may be waiting for a 100 before it sends the body.
    awaits_continue: bool,
    /// Wakes the task that waits for bytes of an upgraded connection.
    reader: Option<Waker>,
}

/// Which side was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedOut {
    /// The server took longer than a timeout of the attempt.
    Server,
    /// The client paused within the request's body for longer than its timeout.
    ClientSilent,
    /// The client sent the request's body below the minimum rate.
    ClientSlow,
    /// The deadline of the request has passed.
    Deadline(SetBy),
    /// No connection of `max_connections` became free.
    Overflow,
}

/// What is read next from the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The head of the final response, or of an interim one.
    #[default]
    Head,
    /// The next part of the body of the final response.
    Body,
    /// Nothing: the response has ended.
    Ended(Body),
    /// Bytes of the protocol to which the connection was upgraded.
    Upgraded,
}

/// Opens the connection of an attempt, for Pingora.
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Arc<Attempt>);

/// The connection of an attempt.
#[derive(Debug)]
struct Connection {
    /// `None`: the connection has been given back.
    stream: Option<Transport>,
    /// The server of its address; `None`: that of the attempt.
    server: Option<Box<Endpoint>>,
    attempt: Arc<Attempt>,
    has_written: bool,
    has_read: bool,
    /// Whether the client still sends the request's body.
    is_receiving: bool,
    /// When waiting for the current stage began, in microseconds.
    waiting_since: u64,
    timer: Option<(Stage, Pin<Box<Sleep>>)>,
    /// When the attempt got the connection, in microseconds.
    opened_at: u64,
    /// Its use before.
    run: Run,
    /// Bounds the pauses and the slowness of the client while it sends the request's body.
    client_timer: Option<Pin<Box<Sleep>>>,
    /// Until [`Attempt::deadline`].
    deadline_timer: Option<Pin<Box<Sleep>>>,
    /// Until the end of [`Attempt::try_limit`]; `None` also while the client sends the request's
    /// body.
    try_timer: Option<Pin<Box<Sleep>>>,
    last_write: Write,
}

/// How the last write to a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Accepted,
    /// It has to be continued.
    Blocked,
}

impl Progress {
    /// The progress of an attempt whose request has a body, which the client must send at this
    /// rate, in bytes a second, over the connection of this transfer; `None`: at any rate. With
    /// `awaits_continue`, it may wait for a 100 before.
    pub(crate) fn measured(
        min_rate: Option<NonZeroU64>,
        transfer: &Arc<Transfer>,
        awaits_continue: bool,
    ) -> Self {
        let meter = min_rate.map(|rate| BodyMeter::new(rate, Arc::clone(transfer)));
        Self { meter, awaits_continue, ..Self::default() }
    }
}

impl Attempt {
    /// Whether its connection has been used by an earlier request.
    pub(crate) fn is_reused(&self) -> bool {
        self.progress.lock().is_reused
    }

    /// Takes out to which other address than the selected one its connection is.
    pub(crate) fn take_raced(&self) -> Option<Box<Raced>> {
        self.progress.lock().raced.take()
    }

    /// Which side failed it by being too slow, if one did.
    pub(crate) fn timed_out(&self) -> Option<TimedOut> {
        self.progress.lock().timed_out
    }

    /// Notes that bytes of the request's body have come from the client.
    pub(crate) fn note_body(&self, now: u64, bytes: usize) {
        let mut progress = self.progress.lock();
        progress.body_at = now;
        progress.awaits_continue = false;
        if let Some(meter) = &mut progress.meter {
            meter.note(now, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// Notes that the client gets a 100.
    pub(crate) fn note_continue(&self) {
        self.progress.lock().awaits_continue = false;
    }

    /// Whether this wrapper bounds the time of each read instead of Pingora. Pingora's timeout
    /// would include the time in which the client sends its body, and for an upgrade it would only
    /// see one direction of the upgraded connection.
    pub(crate) fn bounds_every_read(&self) -> bool {
        self.has_body || self.connects == Connects::ForUpgrade || self.first_byte_timeout.is_some()
    }

    /// Whether the response has ended while the client still sends the request's body.
    pub(crate) fn is_answered_early(&self) -> bool {
        self.has_body && {
            let progress = self.progress.lock();
            matches!(progress.stage, Stage::Ended(_)) && !progress.has_whole_body
        }
    }

    /// Notes that all of the request's body has come from the client.
    pub(crate) fn note_whole_body(&self) {
        self.progress.lock().has_whole_body = true;
    }

    /// Notes the head of the final response to a request of this method.
    pub(crate) fn note_head(&self, method: &Method, response: &ResponseHeader) {
        let is_empty = || {
            let length = response.headers.get(header::CONTENT_LENGTH);
            length.is_some_and(|length| length.as_bytes() == b"0")
        };
        let mut progress = self.progress.lock();
        progress.stage = match response.status {
            StatusCode::SWITCHING_PROTOCOLS => {
                // It may have begun to wait for the next bytes with the timeout of the head.
                if let Some(reader) = progress.reader.take() {
                    reader.wake();
                }
                Stage::Upgraded
            }
            status if !framing::has_body(method, status) => Stage::Ended(Body::None),
            _ if is_empty() => Stage::Ended(Body::Some),
            _ => Stage::Body,
        };
    }

    /// Notes the end of the response's body.
    pub(crate) fn note_end(&self) {
        let mut progress = self.progress.lock();
        if progress.stage == Stage::Body {
            progress.stage = Stage::Ended(Body::Some);
        }
    }
}

impl Attempt {
    /// An idle connection, if one can be used.
    fn take_idle(&self) -> Option<Opened> {
        match self.connects {
            Connects::IdleFirst => self.dial.take_idle(clock::now()),
            Connects::Anew | Connects::ForUpgrade => None,
        }
    }

    /// A connection of those that the limit allows.
    #[cold]
    async fn acquire(&self, max: MaxConnections) -> Result<Opened> {
        let pool = &self.dial.pool;
        let bound = Bound { max, longest: self.connect_timeout };
        let is_reusable = self.connects == Connects::IdleFirst;
        let kept = Some(&self.dial.server).filter(|_| is_reusable);
        let take = || {
            let taken = || self.take_idle().map(Found::Idle);
            let permit = || pool.permit(max.open, kept, None).map(Found::New);
            // One that another request has put back meanwhile is not closed by `permit`.
            taken().or_else(permit).or_else(taken)
        };
        let found = bound.acquire(pool.idle().gate(), self.dial.server.address, take).await;
        match found.inspect_err(|_| self.progress.lock().timed_out = Some(TimedOut::Overflow))? {
            Found::Idle(opened) => Ok(opened),
            Found::New(permit) => self.open(permit).await,
        }
    }

    async fn open(&self, permit: Permit) -> Result<Opened> {
        let open = self.dial.open_within(self.connect_timeout, permit, Offer::Http1);
        open.await.map(Opened::new)
    }

    /// Waits for a connection, at most until the deadline or the end of the attempt.
    async fn in_time<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = self.deadline.map(|end| (end.at, Some(TimedOut::Deadline(end.set_by))));
        let attempt = self.try_limit.and_then(|limit| limit.of_connecting(self.connect_timeout));
        let attempt = attempt.map(|end| (end, None));
        let Some((end, late)) = deadline.into_iter().chain(attempt).min_by_key(|(end, _)| *end)
        else {
            return step.await;
        };
        timeout_at(end, step).await.unwrap_or_else(|_| {
            self.progress.lock().timed_out = late;
            Err(Error::new(ErrorType::ConnectTimedout).into_up())
        })
    }
}

#[async_trait]
impl L4Connect for Connector {
    async fn connect(&self, _: &PeerAddress) -> Result<Stream> {
        let attempt = &self.0;
        let opened = attempt.opened.lock().take();
        let opened = opened
            .or_else(|| if attempt.max_connections.is_none() { attempt.take_idle() } else { None });
        let Opened { mut transport, run, is_reused } = match (opened, attempt.max_connections) {
            (Some(opened), _) => opened,
            (None, None) => {
                let permit = attempt.dial.pool.idle().gate().open();
                Box::pin(attempt.in_time(attempt.open(permit))).await?
            }
            (None, Some(max)) => Box::pin(attempt.in_time(attempt.acquire(max))).await?,
        };
        let raced = transport.take_raced();
        let server = raced.as_ref().map(|raced| Box::new(raced.server.clone()));
        {
            let mut progress = attempt.progress.lock();
            progress.is_reused = is_reused;
            progress.raced = raced;
        }
        let try_limit = attempt.try_limit.filter(|_| !attempt.has_body);
        let connection = Connection {
            stream: Some(transport),
            server,
            attempt: Arc::clone(attempt),
            has_written: false,
            has_read: false,
            is_receiving: attempt.has_body,
            waiting_since: 0,
            timer: None,
            opened_at: clock::now(),
            run,
            client_timer: None,
            deadline_timer: attempt.deadline.map(|deadline| Box::pin(sleep_until(deadline.at))),
            try_timer: try_limit.map(|limit| Box::pin(sleep_until(limit.began + limit.timeout))),
            last_write: Write::Accepted,
        };
        Ok(VirtualSocketStream::new(Box::new(connection)).into())
    }
}

impl Connection {
    /// Gives the connection back. Pingora reads once more from a connection that it would keep, and
    /// drops it when it reads the end of the stream.
    fn release(&mut self, body: Body) {
        let (attempt, now) = (&self.attempt, clock::now());
        if let Some(stream) = self.stream.take() {
            let run = self.run.add(now.saturating_sub(self.opened_at));
            let idle = Idle { stream, request_id: attempt.request_id.clone(), body, run };
            attempt.dial.keep(self.server.as_deref(), idle, attempt.idle_timeout, now);
        }
    }

    /// Whether Pingora's own timeout between two reads is not enough.
    fn is_timed(&self, stage: Stage) -> bool {
        let every_read = self.attempt.bounds_every_read();
        match stage {
            // A head that takes more than one read can take any number of reads.
            Stage::Head => !self.is_receiving && (every_read || self.has_read),
            Stage::Body => !self.is_receiving && every_read,
            Stage::Upgraded => true,
            Stage::Ended(_) => false,
        }
    }

    fn restart_timer(&mut self) {
        self.waiting_since = clock::now();
        self.timer = None;
    }

    /// Fails once a read that is not ready has waited for too long. An upgraded connection ends
    /// instead.
    fn poll_timer(&mut self, stage: Stage, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_timed(stage) {
            return Poll::Pending;
        }
        if self.timer.as_ref().is_some_and(|(timed, _)| *timed != stage) {
            self.restart_timer();
        }
        let timeout = match stage {
            Stage::Upgraded => self.attempt.upgraded_idle_timeout,
            Stage::Head => self.attempt.first_byte_timeout.unwrap_or(self.attempt.read_timeout),
            Stage::Body | Stage::Ended(_) => self.attempt.read_timeout,
        };
        let waiting_since = self.waiting_since;
        let (_, timer) = self.timer.get_or_insert_with(|| {
            let waited = Duration::from_micros(clock::now().saturating_sub(waiting_since));
            (stage, Box::pin(tokio::time::sleep(timeout.saturating_sub(waited))))
        });
        ready!(timer.as_mut().poll(context));
        if stage == Stage::Upgraded {
            return Poll::Ready(Ok(()));
        }
        self.attempt.progress.lock().timed_out = Some(TimedOut::Server);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Fails once the deadline of the request has passed, or the attempt has taken too long. An
    /// upgraded connection has neither.
    fn poll_ends(&mut self, stage: Stage, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_past = |timer: &mut Option<Pin<Box<Sleep>>>, context: &mut Context<'_>| {
            timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready())
        };
        if stage != Stage::Head {
            self.try_timer = None;
        }
        if stage == Stage::Upgraded {
            self.deadline_timer = None;
        }
        let late = if is_past(&mut self.deadline_timer, context) {
            self.attempt.deadline.map(|deadline| TimedOut::Deadline(deadline.set_by))
        } else if is_past(&mut self.try_timer, context) {
            Some(TimedOut::Server)
        } else {
            return Poll::Pending;
        };
        self.attempt.progress.lock().timed_out = late;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// What is read next. Once the client has sent all of the request's body, the server's time
    /// begins.
    fn stage(&mut self) -> Stage {
        let progress = self.attempt.progress.lock();
        let (stage, has_whole_body) = (progress.stage, progress.has_whole_body);
        drop(progress);
        if self.is_receiving && has_whole_body {
            self.is_receiving = false;
            self.restart_timer();
            let limit = self.attempt.try_limit;
            self.try_timer = limit.map(|limit| Box::pin(tokio::time::sleep(limit.timeout)));
        }
        stage
    }

    /// Fails once the client has paused for too long within the request's body, or sends it too
    /// slowly.
    fn poll_client(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_receiving {
            return Poll::Pending;
        }
        loop {
            let now = clock::now();
            let Some((end, late)) = self.client_end(now) else { return Poll::Pending };
            if now >= end {
                self.attempt.progress.lock().timed_out = Some(late);
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let timer = self.client_timer.get_or_insert_with(|| {
                Box::pin(tokio::time::sleep(Duration::from_micros(end - now)))
            });
            ready!(timer.as_mut().poll(context));
            self.client_timer = None;
        }
    }

    /// When the client is too late unless it sends more of the request's body before, and why;
    /// `None`: never.
    fn client_end(&self, now: u64) -> Option<(u64, TimedOut)> {
        let mut progress = self.attempt.progress.lock();
        let is_expected = self.last_write == Write::Accepted && !progress.awaits_continue;
        let is_upgraded = progress.stage == Stage::Upgraded;
        let body_at = progress.body_at;
        let slow = progress.meter.as_mut().filter(|_| is_expected && !is_upgraded);
        let slow = slow.and_then(|meter| {
            meter.wait(now);
            meter.deadline()
        });
        let silent = self
            .attempt
            .client_timeout
            .map(|timeout| body_at.max(self.opened_at).saturating_add(micros(timeout)));
        let slow = slow.map(|end| (end, TimedOut::ClientSlow));
        let silent = silent.map(|end| (end, TimedOut::ClientSilent));
        slow.into_iter().chain(silent).min_by_key(|(end, _)| *end)
    }

    /// Notes how a write has ended. While the server accepts nothing, the client does not have to
    /// send anything.
    fn note_write(&mut self, write: Write) {
        if self.last_write != write
            && self.is_receiving
            && let Some(meter) = &mut self.attempt.progress.lock().meter
        {
            meter.pause(clock::now());
        }
        self.last_write = write;
    }

    fn stream(&mut self) -> io::Result<Pin<&mut Transport>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl VirtualSocket for Connection {
    /// Does nothing: [`Dial::open`] sets the options.
    fn set_socket_option(&self, _: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let stage = this.stage();
        if let Stage::Ended(body) = stage {
            this.release(body);
            return Poll::Ready(Ok(()));
        }
        // Also if bytes can be read: a response can trickle.
        if let Poll::Ready(passed) = this.poll_ends(stage, context) {
            return Poll::Ready(passed);
        }
        if std::mem::take(&mut this.has_written) {
            this.restart_timer();
            if this.attempt.connects == Connects::ForUpgrade {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let Poll::Ready(read) = this.stream()?.poll_read(context, buffer) else {
            if let Poll::Ready(paused) = this.poll_client(context) {
                return Poll::Ready(paused);
            }
            if this.attempt.connects == Connects::ForUpgrade && stage == Stage::Head {
                this.attempt.progress.lock().reader = Some(context.waker().clone());
            }
            return this.poll_timer(stage, context);
        };
        this.has_read = true;
        if matches!(stage, Stage::Body | Stage::Upgraded) && this.is_timed(stage) {
            this.restart_timer();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.has_written = true;
        let written = this.stream()?.poll_write(context, bytes);
        if written.is_pending() {
            // Pingora reads only after the write.
            let stage = this.stage();
            if let Poll::Ready(Err(late)) = this.poll_ends(stage, context) {
                return Poll::Ready(Err(late));
            }
        }
        this.note_write(if written.is_pending() { Write::Blocked } else { Write::Accepted });
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Some(stream) => Pin::new(stream).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::http2::tests::{NEEDS, dial, server};
    use crate::upstream::http2::{Acquired, Needs};

    #[tokio::test]
    async fn idle_connection_over_http2_is_closed_for_an_upgrade() {
        let dial = dial(server().await, "a");
        let max = MaxConnections { open: 1, waiting: 10 };
        let needs = Needs { max_connections: Some(max), ..NEEDS };
        let connect_timeout = needs.connect_timeout;
        let acquired = dial.pool.http2.acquire(&dial, needs).await.unwrap();
        assert!(matches!(acquired, Acquired::Http2(_)));
        drop(acquired);
        let attempt = Attempt {
            dial,
            request_id: RequestId::new(),
            connects: Connects::ForUpgrade,
            has_body: false,
            read_timeout: connect_timeout,
            first_byte_timeout: None,
            try_limit: None,
            connect_timeout,
            upgraded_idle_timeout: connect_timeout,
            idle_timeout: connect_timeout,
            deadline: None,
            max_connections: Some(max),
            opened: Mutex::default(),
            client_timeout: None,
            progress: Mutex::default(),
        };
        let opened = attempt.acquire(max).await.unwrap();
        assert!(!opened.is_reused);
        assert_eq!(attempt.dial.pool.connections(), (1, 0));
    }
}
