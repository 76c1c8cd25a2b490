//! Connection to Redis and its circuit breaker. Requests use the current connection and never wait
//! for one; a [`Supervisor`] connects and reconnects in the background.
//!
//! The connection manager of the `redis` crate is not suitable: it makes requests wait while it
//! connects, uses the same delays in every process, and never replaces a connection to a server
//! that was demoted, hangs, or once sent a malformed reply.
//!
//! Reading order: [`watch`] (what the result of a call means for connection and server), pure;
//! `health` (state of one connection); [`breaker`] (the circuit breaker); `stream`, `connect`,
//! `sentinel` (how a connection is made); `cluster` (topology of a cluster); `supervise`;
//! [`history`] (streams, read for an operator); [`records`] (automatic certificates); `journal` and
//! `error` (what is logged).

pub mod breaker;
pub(super) mod cluster;
mod connect;
pub(super) mod error;
mod health;
pub mod history;
pub(super) mod journal;
pub mod records;
mod sentinel;
mod stream;
mod supervise;
pub mod trial;
pub mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::class::{ErrorClass, classify};
use super::error_text::Secrets;
use super::server_clock::ServerClock;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::breaker::Settings;
use crate::net::lookup::system_resolver;
use crate::policy::redis::Redis;
use breaker::{BreakerHandle, BreakerSeries, BreakerStatus, Override};
use health::Health;
use journal::LogThrottle;
use supervise::ProbeNumber;
pub use supervise::{Connections, Supervisor};
use watch::{CallResult, Reason};

/// Time after a new connection in which calls repair buckets, in microseconds.
const REPAIR_US: u64 = 10 * MICROS_PER_SECOND;

/// Current connection, and whether requests may use it.
#[derive(Debug)]
pub struct Link {
    /// Written by the supervisor only.
    current: ArcSwapOption<Connection>,
    breaker: BreakerHandle,
    connections: AtomicU64,
    attempts: Sender<Attempts>,
    reached: AtomicBool,
    /// Time in microseconds until which other gateways may not have stated what they hold, after an
    /// outage.
    settling_until: AtomicU64,
    /// Time in microseconds of the last connection after another one; 0 if there was none. From
    /// then on, the server may be a replica that took over.
    replaced_at: AtomicU64,
    journal: Mutex<LogThrottle>,
    misses_windows: AtomicBool,
    /// Secrets that no error may show.
    secrets: Secrets,
    clock: ServerClock,
    /// Whether the server is a master of a cluster whose other masters this process knows.
    is_in_cluster: bool,
}

/// Numbers of successful and failed connection attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Attempts {
    succeeded: u64,
    failed: u64,
}

/// A connection. The result of each call has to be reported together with the connection it was
/// sent on: results on an old connection do not count for the next one.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Connection of the `redis` crate. It has no response timeout: the caller sets one.
    pub redis: MultiplexedConnection,
    health: Arc<Health>,
}

impl Default for Link {
    /// A link that is never connected.
    fn default() -> Self {
        Self::with(Settings::default(), None)
    }
}

impl Link {
    /// Creates a link without a connection, and the supervisor that connects it. Does no I/O.
    pub fn new(settings: &Redis, series: Option<BreakerSeries>) -> (Arc<Self>, Supervisor) {
        let link = Self::with(settings.breaker.clone(), series);
        let link = Arc::new(Self { secrets: Secrets::of(&settings.login), ..link });
        (Arc::clone(&link), Supervisor::new(link, settings.clone(), system_resolver()))
    }

    /// Like [`new`](Self::new), to a master of a cluster.
    pub(super) fn in_cluster(
        settings: &Redis,
        series: BreakerSeries,
        probe_number: ProbeNumber,
    ) -> (Arc<Self>, Supervisor) {
        let mut link = Self::with(settings.breaker.clone(), Some(series));
        link.breaker = link.breaker.of_master(settings.address.to_string());
        let secrets = Secrets::of(&settings.login);
        let link = Arc::new(Self { secrets, is_in_cluster: true, ..link });
        let supervisor = Supervisor::new(Arc::clone(&link), settings.clone(), system_resolver());
        (link, supervisor.in_cluster(probe_number))
    }

    fn with(breaker: Settings, series: Option<BreakerSeries>) -> Self {
        Self {
            current: ArcSwapOption::empty(),
            breaker: BreakerHandle::new(breaker, series),
            connections: AtomicU64::new(0),
            attempts: Sender::default(),
            reached: AtomicBool::new(false),
            settling_until: AtomicU64::new(0),
            replaced_at: AtomicU64::new(0),
            journal: Mutex::default(),
            misses_windows: AtomicBool::new(false),
            secrets: Secrets::default(),
            clock: ServerClock::default(),
            is_in_cluster: false,
        }
    }

    /// Whether this request may call Redis: there is a connection, and the circuit breaker allows
    /// it.
    pub fn admits(&self) -> bool {
        self.breaker.admits() && self.is_connected()
    }

    /// Whether every request calls Redis: there is a connection, and the circuit breaker is closed.
    pub fn admits_all(&self) -> bool {
        self.breaker.admits_all() && self.is_connected()
    }

    /// Current connection, if there is one and the circuit breaker is not open. Never waits.
    pub fn current(&self) -> Option<Connection> {
        if self.breaker.is_open() {
            return None;
        }
        let connection = self.current.load();
        connection
            .as_ref()
            .filter(|connection| connection.health.broken().is_none())
            .map(|connection| Connection::clone(connection))
    }

    /// Whether there is a connection and the circuit breaker is not open.
    pub fn is_up(&self) -> bool {
        !self.breaker.is_open() && self.is_connected()
    }

    fn is_connected(&self) -> bool {
        self.current.load().as_ref().is_some_and(|connection| connection.health.broken().is_none())
    }

    /// Whether Redis has been reached since the start.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// Waits for the result of the first connection attempt, at most for `limit`.
    pub async fn until_first_attempt(&self, limit: Duration) {
        let mut attempts = self.attempts.subscribe();
        let _ = timeout(limit, attempts.wait_for(|tried| *tried != Attempts::default())).await;
    }

    /// Whether other gateways may not have stated at `now` (microseconds) what they hold, after an
    /// outage.
    pub fn is_settling(&self, now: u64) -> bool {
        now < self.settling_until.load(Ordering::Relaxed)
    }

    /// Time in microseconds of a connection shortly before `now` to a server that may have taken
    /// over from another one.
    pub fn repairs_since(&self, now: u64) -> Option<u64> {
        let since = self.replaced_at.load(Ordering::Relaxed);
        (since > 0 && now.saturating_sub(since) < REPAIR_US).then_some(since)
    }

    /// Notes a connection at `now` to a server that may have taken over from another one.
    fn note_replaced(&self, now: u64) {
        self.replaced_at.store(now.max(1), Ordering::Relaxed);
    }

    fn settle_until(&self, time: u64) {
        self.settling_until.store(time, Ordering::Relaxed);
    }

    /// Clock of the server, as its replies show it. The probes of a new connection do before
    /// requests use it, and so do the calls of an idle one.
    pub fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Number of connections so far.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Probes Redis at once if it is unavailable, and waits for the result, at most until `ends`.
    /// Returns whether Redis is available. Does not probe while an operator overrides the circuit
    /// breaker with `open`.
    pub async fn probe_and_wait(&self, ends: Instant) -> bool {
        if !self.is_up() && self.breaker.status().r#override != Override::Open {
            let mut attempts = self.attempts.subscribe();
            let before = *attempts.borrow_and_update();
            self.breaker.probe_now();
            let _ = timeout_at(ends, attempts.wait_for(|attempts| *attempts != before)).await;
        }
        self.is_up()
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

    /// Records that a call on this connection was answered.
    pub fn answered(&self, connection: &Connection) {
        self.note(connection, CallResult::Answered, "");
    }

    /// Records that a call on this connection was not answered in time.
    pub fn timed_out(&self, connection: &Connection) {
        if self.note(connection, CallResult::TimedOut, Reason::Timeouts.text()) {
            // The peer may be gone without closing the connection: only a new one shows that.
            connection.health.give_up(Reason::Timeouts);
        }
    }

    /// Records that a reply on this connection does not belong to its call.
    pub fn malformed(&self, connection: &Connection) {
        let class = ErrorClass::Parse;
        self.note(connection, CallResult::Failed(class), Reason::Class(class).text());
    }

    /// Text of an error, without secrets.
    pub fn describe(&self, error: &RedisError) -> String {
        self.secrets.describe(error)
    }

    /// Advice for the operator about an error of this class, to append to its text.
    fn help(&self, class: ErrorClass) -> &'static str {
        match class {
            // The gateway uses the cluster already.
            ErrorClass::Cluster if self.is_in_cluster => "",
            _ => class.help(),
        }
    }

    /// Records that a call on this connection failed. Returns the class of the error.
    pub fn failed(&self, connection: &Connection, error: &RedisError) -> ErrorClass {
        let class = classify(error);
        let why = format!("Redis says: {}{}", self.describe(error), self.help(class));
        self.note(connection, CallResult::Failed(class), &why);
        class
    }

    /// Logs, at most once a minute, that the gateway's user may not read sliding windows.
    pub fn cannot_read_windows(&self) {
        self.misses_windows.store(true, Ordering::Relaxed);
        if self.journal.lock().wants("windows", clock::now()) {
            warn!(
                "the gateway's user may not run GETRANGE in Redis: rules of sliding windows are decided \
                 locally; they need `+getrange +setrange +pexpire`"
            );
        }
    }

    /// Whether the gateway's user could not read sliding windows when they were last read.
    pub fn misses_windows(&self) -> bool {
        self.misses_windows.load(Ordering::Relaxed)
    }

    /// Logs that the gateway's user may read sliding windows, if it was logged that it may not.
    pub fn can_read_windows(&self) {
        self.misses_windows.store(false, Ordering::Relaxed);
        if self.journal.lock().wants_end("windows") {
            info!(
                "the gateway's user may run GETRANGE again: Redis decides on rules of sliding windows"
            );
        }
    }

    /// Records the result of a call on this connection. Returns whether it opened the circuit
    /// breaker.
    fn note(&self, connection: &Connection, outcome: CallResult, why: &str) -> bool {
        let is_old = connection.health.broken().is_some();
        // The breaker first: the supervisor reads the reason there once the connection is given up.
        let opened = !is_old && self.breaker.note(outcome.event(), why);
        connection.health.note(outcome);
        opened
    }

    fn publish(&self, connection: Connection) {
        self.current.store(Some(Arc::new(connection)));
    }

    fn withdraw(&self) {
        self.current.store(None);
    }
}
