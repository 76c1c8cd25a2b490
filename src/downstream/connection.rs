//! What the requests of one client connection share.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderValue;
use pingora::server::ShutdownWatch;

use super::head::HeadProgress;
use super::open::{Entry, ShedCause};
use crate::base::clock;
use crate::net::body_rate::Transfer;
use crate::net::tls_info::TlsInfo;
use crate::observe::metrics::{ConnectionSeries, OpenConnection};

tokio::task_local! {
    /// The connection of the current task. Set while a request is served.
    static CONNECTION: Arc<ConnectionInfo>;
}

/// One client connection. Shared by its requests.
#[derive(Debug, Default)]
pub struct ConnectionInfo {
    /// Index of the listener that accepted it, in the order of the policy's listeners.
    pub listener: usize,
    /// Its TLS session; `None` for a connection in clear.
    pub tls: Option<TlsInfo>,
    /// Address of the client: that of the PROXY header, else that of the socket. `None` for a
    /// client of a Unix socket.
    pub peer: Option<SocketAddr>,
    /// Whether a proxy has sent a PROXY header without the address of the client. `peer` is that of
    /// the proxy, which has not written the client's requests.
    pub is_client_hidden: bool,
    /// The protocol of its requests.
    pub protocol: ClientProtocol,
    /// Value of `Strict-Transport-Security` in responses; `None`: the listener has none.
    pub hsts: Option<HeaderValue>,
    /// The HTTPS port to which every request is redirected; `None`: requests are served.
    pub redirect: Option<u16>,
    /// How far the head of the next request has been read, with HTTP/1.
    pub head: HeadProgress,
    /// The bytes that it receives and sends.
    pub transfer: Arc<Transfer>,
    /// Whether its requests have ended by an upgrade to another protocol.
    upgraded: AtomicBool,
    /// Why it closes because its client is too slow: a value of [`Slow`], or 0.
    slow: AtomicU8,
    /// How many requests it has had.
    requests: AtomicU64,
    /// Whether the last one that it may have has begun.
    had_last: AtomicBool,
    /// Whether one of them has been decided.
    decided: AtomicBool,
    /// Its place in the table of open connections; `None` in tests.
    pub(super) entry: Option<Entry>,
    /// Whether the listeners are closed; `None` in tests.
    pub shutdown: Option<ShutdownWatch>,
    /// Counts it as open since its first request.
    open: OnceLock<OpenConnection>,
}

/// Protocols between clients and the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientProtocol {
    /// HTTP/1.0 and HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// Why a client is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Slow {
    /// It sends the body of a request too slowly.
    Body = 1,
    /// It reads a response too slowly.
    Reader = 2,
}

impl Slow {
    /// The value of the label `reason` of `tollgate_connections_rejected_total`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Body => "body_rate",
            Self::Reader => "send_rate",
        }
    }
}

impl ConnectionInfo {
    /// Describes a connection from `peer` that the listener with this index has accepted.
    pub fn from_peer(listener: usize, peer: Option<SocketAddr>) -> Self {
        Self { listener, peer, ..Self::default() }
    }

    /// Returns the connection of the request that the current task serves. A task without one, as
    /// in tests, gets a connection without an address.
    pub fn current() -> Arc<Self> {
        CONNECTION.try_with(Arc::clone).unwrap_or_default()
    }

    /// Subject of the client's certificate, which has been verified; `None` without one.
    pub fn certificate_subject(&self) -> Option<&str> {
        Some(&self.tls.as_ref()?.client.as_ref()?.subject)
    }

    /// Runs a future whose requests come from this connection. Not an `async` function: its future
    /// would contain the other one twice.
    pub fn scope<F: Future>(self: Arc<Self>, serve: F) -> impl Future<Output = F::Output> {
        CONNECTION.scope(self, serve)
    }

    /// Notes that the connection has been upgraded to another protocol.
    pub fn note_upgraded(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }

    /// Whether the connection has been upgraded to another protocol.
    pub fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    /// Notes that the connection closes because its client is too slow.
    pub fn note_slow(&self, slow: Slow) {
        self.slow.store(slow as u8, Ordering::Relaxed);
    }

    /// Why the connection closes, if its client is too slow.
    pub fn slow(&self) -> Option<Slow> {
        let slow = self.slow.load(Ordering::Relaxed);
        [Slow::Body, Slow::Reader].into_iter().find(|candidate| *candidate as u8 == slow)
    }

    /// Counts a request. Returns whether it is the last one of `max`, the maximum; `None`: there is
    /// no maximum.
    pub fn is_last_request(&self, max: Option<u64>) -> bool {
        let count = self.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let is_last = max.is_some_and(|max| count >= max);
        if is_last {
            self.had_last.store(true, Ordering::Relaxed);
        }
        is_last
    }

    /// Notes that a request has been decided.
    pub fn note_decided(&self) {
        if let Some(entry) = &self.entry
            && !self.decided.load(Ordering::Relaxed)
        {
            self.decided.store(true, Ordering::Relaxed);
            entry.note_decided();
        }
    }

    /// Notes that the head of a request has been read: the connection is busy until its response
    /// has been written.
    pub fn note_head(&self) {
        self.head.note_whole();
        if self.protocol == ClientProtocol::Http1 {
            self.note_busy();
        }
    }

    /// Marks the connection as idle from now on, so that it is closed if the process is overloaded.
    pub(super) fn note_idle(&self) {
        if let Some(entry) = &self.entry {
            entry.note_idle(clock::now());
        }
    }

    /// How long the connection has been idle; zero while it is busy.
    pub(super) fn idle_time(&self) -> Duration {
        let idle_us = self.entry.as_ref().map_or(0, |entry| entry.idle_us(clock::now()));
        Duration::from_micros(idle_us)
    }

    /// Marks the connection as busy.
    pub(super) fn note_busy(&self) {
        if let Some(entry) = &self.entry {
            entry.note_busy();
        }
    }

    /// Is ready when the idle connection is to be closed.
    pub(super) fn poll_shed(&self, context: &mut Context<'_>) -> Poll<ShedCause> {
        self.entry.as_ref().map_or(Poll::Pending, |entry| entry.poll_shed(context))
    }

    /// Completes when the idle connection is to be closed.
    pub(super) async fn shed(&self) -> ShedCause {
        poll_fn(|context| self.poll_shed(context)).await
    }

    /// Why the connection was closed while it was idle, if it was.
    pub(super) fn shed_cause(&self) -> Option<ShedCause> {
        self.entry.as_ref()?.shed_cause()
    }

    /// Whether the connection closes after the response: the process drains, or it may have no
    /// further request.
    pub fn is_closing(&self) -> bool {
        self.had_last.load(Ordering::Relaxed)
            || self.shutdown.as_ref().is_some_and(|shutdown| *shutdown.borrow())
    }

    /// Counts the connection as open from its first request until it is dropped.
    pub fn count(&self, series: &ConnectionSeries) {
        self.open.get_or_init(|| series.open());
    }
}
