//! The connection to Redis. Requests borrow it and never wait for it: it is there, or it is not.
//! A [`Supervisor`] makes and replaces it in the background.
//!
//! Not the client's own connection manager: that one makes requests wait while it connects, waits
//! the same times in every process, and never replaces a connection to a server that was demoted,
//! hangs, or once answered nonsense.
//!
//! Reading order: [`watch`] (what a call says of connection and server), pure; `health` (what is
//! known of one connection); `breaker` (the circuit breaker, shared); `stream`, `connect`, `sentinel` (how a
//! connection is made); `supervise`; `journal` and `error` (what is logged of it).

pub mod breaker;
mod connect;
mod error;
mod health;
mod journal;
mod sentinel;
mod stream;
mod supervise;
pub mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus::IntGauge;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, timeout, timeout_at};

use super::class::{ErrorClass, classify};
use super::error_text::Secrets;
use crate::clock;
use crate::limit::breaker::Settings;
use crate::limit::membership::Membership;
use crate::net::lookup::system_resolver;
use crate::policy::redis::Redis;
use breaker::{BreakerHandle, BreakerSeries, BreakerStatus, Override};
use health::Health;
use journal::Journal;
pub use supervise::Supervisor;
use watch::{Outcome, Reason};

/// Where requests find the connection, and whether they should.
#[derive(Debug)]
pub struct Link {
    /// Written by the supervisor only.
    current: ArcSwapOption<Connection>,
    breaker: BreakerHandle,
    connections: AtomicU64,
    attempts: Sender<Attempts>,
    reached: Arc<AtomicBool>,
    membership: Mutex<Membership>,
    gateways: Option<IntGauge>,
    journal: Mutex<Journal>,
    /// What no error may show.
    secrets: Secrets,
}

/// How often the supervisor has found the server in order, and how often not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Attempts {
    succeeded: u64,
    failed: u64,
}

/// What is counted of a link.
#[derive(Debug, Clone)]
pub struct LinkSeries {
    /// Its breaker.
    pub breaker: BreakerSeries,
    /// How many gateways share the server.
    pub gateways: IntGauge,
}

/// A connection on loan. What became of each call on it is to be noted, with it: news of one
/// connection says nothing of the next.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The connection itself. It waits for an answer for ever: the time is the caller's to limit.
    pub redis: MultiplexedConnection,
    health: Arc<Health>,
}

impl Default for Link {
    /// A link that leads nowhere.
    fn default() -> Self {
        Self::with(Settings::default(), None)
    }
}

impl Link {
    /// A link without a connection, and who will see to one. Does no I/O.
    pub fn new(settings: &Redis, series: Option<LinkSeries>) -> (Arc<Self>, Supervisor) {
        let link = Self::with(settings.breaker.clone(), series);
        let link = Arc::new(Self { secrets: Secrets::of(&settings.login), ..link });
        let resolver = system_resolver();
        (Arc::clone(&link), Supervisor::new(link, settings.clone(), resolver))
    }

    fn with(breaker: Settings, series: Option<LinkSeries>) -> Self {
        let (breaker_series, gateways) =
            series.map_or((None, None), |series| (Some(series.breaker), Some(series.gateways)));
        Self {
            current: ArcSwapOption::empty(),
            breaker: BreakerHandle::new(breaker, breaker_series),
            connections: AtomicU64::new(0),
            attempts: Sender::default(),
            reached: Arc::default(),
            membership: Mutex::new(Membership::new()),
            gateways,
            journal: Mutex::default(),
            secrets: Secrets::default(),
        }
    }

    /// Whether this request may ask: there is a connection, and the breaker lets it.
    pub fn admits(&self) -> bool {
        self.breaker.admits() && self.is_connected()
    }

    /// Whether every request asks: the breaker is closed, and there is a connection.
    pub fn admits_all(&self) -> bool {
        self.breaker.admits_all() && self.is_connected()
    }

    /// The connection, if there is one that answers. Never connects, never waits.
    pub fn current(&self) -> Option<Connection> {
        if self.breaker.is_open() {
            return None;
        }
        let line = self.current.load();
        line.as_ref()
            .filter(|line| line.health.broken().is_none())
            .map(|line| Connection::clone(line))
    }

    /// Whether anybody can ask now.
    pub fn is_up(&self) -> bool {
        !self.breaker.is_open() && self.is_connected()
    }

    fn is_connected(&self) -> bool {
        self.current.load().as_ref().is_some_and(|line| line.health.broken().is_none())
    }

    /// Whether the server has been found in order since the start.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// The same, for those who outlive a look.
    pub fn reached(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reached)
    }

    /// Waits until the supervisor has tried the server once, at most for `patience`.
    pub async fn until_tried(&self, patience: Duration) {
        let mut attempts = self.attempts.subscribe();
        let _ = timeout(patience, attempts.wait_for(|tried| *tried != Attempts::default())).await;
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Has the supervisor try the server now where nobody asks it, and waits for the outcome, at
    /// most until `ends`. Returns whether the server can be asked. It does not try
    /// while an operator overrides the breaker with `open`.
    pub async fn try_now(&self, ends: Instant) -> bool {
        if !self.is_up() && self.breaker.status().r#override != Override::Open {
            let mut attempts = self.attempts.subscribe();
            let before = *attempts.borrow_and_update();
            self.breaker.probe_now();
            let _ = timeout_at(ends, attempts.wait_for(|attempts| *attempts != before)).await;
        }
        self.is_up()
    }

    /// How many gateways share the server, at least 1, as far as could be counted.
    pub fn gateways(&self) -> u32 {
        self.membership.lock().live()
    }

    /// Microseconds until the next probe of Redis; 0 while the breaker is closed.
    pub fn retry_after_us(&self) -> u64 {
        self.breaker.retry_after_us()
    }

    /// Status of the circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.breaker.status()
    }

    /// Sets or ends the override of the breaker.
    pub fn set_override(&self, wanted: Override) {
        self.breaker.set_override(wanted);
    }

    /// Notes that a call on `line` was answered.
    pub fn answered(&self, line: &Connection) {
        self.note(line, Outcome::Answered, "");
    }

    /// Notes that a call on `line` was not answered in time.
    pub fn timed_out(&self, line: &Connection) {
        if self.note(line, Outcome::TimedOut, Reason::Timeouts.text()) {
            // The peer may be gone without a word: only a new connection tells.
            line.health.give_up(Reason::Timeouts);
        }
    }

    /// Notes that a reply on `line` is none that was asked for.
    pub fn misled(&self, line: &Connection) {
        let class = ErrorClass::Parse;
        self.note(line, Outcome::Failed(class), Reason::Class(class).text());
    }

    /// What the server says in an error, as it may be shown.
    pub fn describe(&self, error: &RedisError) -> String {
        self.secrets.describe(error)
    }

    /// Notes that a call on `line` ended in `error`, and says of what class that is.
    pub fn failed(&self, line: &Connection, error: &RedisError) -> ErrorClass {
        let class = classify(error);
        let why = format!("Redis says: {}{}", self.describe(error), class.help());
        self.note(line, Outcome::Failed(class), &why);
        class
    }

    /// Notes what became of a call on `line`. Returns whether that opened the breaker.
    fn note(&self, line: &Connection, outcome: Outcome, why: &str) -> bool {
        let is_old = line.health.broken().is_some();
        // First the breaker: whoever finds the line given up looks for the reason there.
        let opened = !is_old && self.breaker.note(outcome.event(), why);
        line.health.note(outcome);
        opened
    }

    fn counted(&self, gateways: u32) {
        self.membership.lock().observe(gateways, clock::now());
        if let Some(gauge) = &self.gateways {
            gauge.set(i64::from(gateways));
        }
    }

    fn publish(&self, line: Connection) {
        self.current.store(Some(Arc::new(line)));
    }

    fn withdraw(&self) {
        self.current.store(None);
    }
}
