//! [`Supervisor`]: connects to Redis, monitors and replaces the connection, and sends probes, all
//! in the background. No request waits for any of it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tracing::{info, warn};

use super::connect::{self, NewConnection};
use super::error::ConnectError;
use super::history::History;
use super::watch::{CallResult, Reason};
use super::{Connection, Link};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::net::lookup::Resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::held::Held;
use crate::store::redis::append::Appending;
use crate::store::redis::call;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::cluster::Cluster;
use crate::store::redis::durability;
use crate::store::redis::heartbeat::{self, Sender};
use crate::store::redis::stating;

/// Interval of PINGs on an idle connection. Two per second also keep it open at a server with an
/// idle timeout of a second.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of commands of the supervisor.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Time in microseconds that a gateway needs to connect and to state what it holds, once it looks
/// for Redis. It does so at least every `open_max`.
const STATING_US: u64 = 2 * MICROS_PER_SECOND;

/// After a connection of this duration, failures are logged again, in milliseconds.
const STEADY_MS: u64 = 10_000;

/// Keeps a [`Link`] connected, for as long as the process lives.
pub struct Supervisor {
    link: Arc<Link>,
    settings: Redis,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    /// Random number that identifies this process.
    process: u64,
    /// Records for the stream of refusals.
    appending: Option<Appending>,
    /// Units that requests of this process hold.
    held: Option<Arc<Held>>,
    /// Whether limits are counted whose counts must not be lost.
    has_quotas: bool,
    /// Whether the server has been asked whether it keeps them.
    has_asked: AtomicBool,
    /// The cluster that the server is a master of. It makes all calls but checks and probes.
    cluster: Option<Weak<Cluster>>,
}

#[async_trait]
impl BackgroundService for Supervisor {
    /// Does not stop at a shutdown, as requests in flight still use the connection. Only the
    /// heartbeats end.
    async fn start(&self, shutdown: ShutdownWatch) {
        tokio::join!(self.run(), self.link.peers.leave_at(shutdown));
    }
}

impl Supervisor {
    pub(super) fn new(link: Arc<Link>, settings: Redis, resolver: Resolver) -> Self {
        let process = link.breaker.random();
        let reads = BlockingCalls::default();
        Self {
            link,
            settings,
            resolver,
            reads,
            process,
            appending: None,
            held: None,
            has_quotas: false,
            has_asked: AtomicBool::new(false),
            cluster: None,
        }
    }

    /// Also sends records to the stream of refusals.
    pub fn appending(self, appending: Appending) -> Self {
        Self { appending: Some(appending), ..self }
    }

    /// Also states what requests of this process hold.
    pub fn stating(self, held: Arc<Held>) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Warns once if the server does not keep the counts of quotas.
    pub fn keeping_quotas(self, has_quotas: bool) -> Self {
        Self { has_quotas, ..self }
    }

    /// Connects to a master of `cluster`.
    pub fn in_cluster(self, cluster: Weak<Cluster>) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Name of this process in records: 16 hexadecimal digits.
    pub fn gateway(&self) -> String {
        format!("{:016x}", self.process)
    }

    /// A reader of streams in the same Redis.
    pub fn history(&self) -> History {
        History::new(self.settings.clone(), Arc::clone(&self.resolver))
    }

    /// Link that it connects.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Connects and reconnects. Never returns.
    pub async fn run(&self) {
        let mut kept = None;
        loop {
            self.link.breaker.until_probe().await;
            match self.recover(kept.take()).await {
                Ok(fresh) => kept = self.hold(fresh).await,
                Err((error, fresh)) => {
                    let is_logged = self.link.breaker.open(&error.to_string());
                    let wanted = self.link.journal.lock().wants_down(error.kind(), clock::now());
                    if wanted && !is_logged {
                        warn!("cannot reach Redis, retrying: {error}");
                    }
                    self.link.attempts.send_modify(|attempts| attempts.failed += 1);
                    kept = fresh;
                }
            }
        }
    }

    /// Returns a connection on which enough probes have succeeded: the previous one or a new one.
    ///
    /// # Errors
    /// Why there is none, and the connection if it can be kept.
    async fn recover(
        &self,
        kept: Option<NewConnection>,
    ) -> Result<NewConnection, (ConnectError, Option<NewConnection>)> {
        let kept = kept.filter(|fresh| fresh.connection.health.broken().is_none());
        let is_new = kept.is_none();
        let mut fresh = if let Some(fresh) = kept {
            fresh
        } else {
            let fresh = connect::connect(&self.settings, &self.resolver, &self.reads).await;
            fresh.map_err(|error| (error, None))?
        };
        for number in 0..self.settings.breaker.probes {
            // Requests wait for the first connection to a master that has just got slots.
            let is_first = self.cluster.is_some() && self.link.connections() == 0;
            if number > 0 && !is_first {
                sleep(PROBE_INTERVAL).await;
            }
            if let Err(error) = self.probe(&mut fresh).await {
                self.link.withdraw();
                let keep = matches!(&error, ConnectError::Refused { class, .. }
                    if !class.asks_for_another_connection());
                return Err((error, keep.then_some(fresh)));
            }
        }
        self.link.connections.fetch_add(u64::from(is_new), Ordering::Relaxed);
        Ok(fresh)
    }

    /// Sends a probe, with the timeout of a check.
    async fn probe(&self, fresh: &mut NewConnection) -> Result<(), ConnectError> {
        let at = || fresh.address.clone();
        let step = "a probe";
        let mut redis = fresh.connection.redis.clone();
        let number = self.probe_number();
        let probe = async {
            match number {
                Some(number) => call::probe(&mut redis, &self.settings.prefix, number).await,
                None => redis::cmd("PING").query_async(&mut redis).await.map(|()| Ok(())),
            }
        };
        match timeout(self.settings.timeout, probe).await {
            Ok(Ok(Ok(()))) => {
                fresh.connection.health.note(CallResult::Answered);
                Ok(())
            }
            Ok(Ok(Err(error))) => Err(ConnectError::Refused {
                at: at(),
                step,
                class: error.class(),
                text: error.to_string(),
            }),
            Ok(Err(error)) => {
                let class = classify(&error);
                let text = fresh.secrets.describe(&error) + self.link.help(class);
                Err(ConnectError::Refused { at: at(), step, class, text })
            }
            Err(_) => Err(ConnectError::TooSlow { at: at(), budget: self.settings.timeout }),
        }
    }

    /// Number of the bucket of probes: in a cluster, of one that the master has; `None` if it has
    /// no slot yet.
    fn probe_number(&self) -> Option<u64> {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        match (&self.settings.address, cluster) {
            (Address::Server(at), Some(cluster)) => cluster.probe_number(at),
            _ => Some(self.process),
        }
    }

    /// Publishes a connection to requests until it breaks or the circuit breaker opens. Returns the
    /// connection in the second case.
    async fn hold(&self, fresh: NewConnection) -> Option<NewConnection> {
        let NewConnection { connection, mut driver, address, secrets } = fresh;
        let started = clock::now();
        if self.link.is_reached() {
            let settling_us = self.settings.breaker.open_max_us.saturating_add(STATING_US);
            self.link.settle_until(started.saturating_add(settling_us));
        }
        if self.link.is_reached() || self.cluster.is_some() {
            self.link.note_replaced(started);
        }
        self.link.publish(connection.clone());
        // Logged only after the connection is published.
        if self.link.journal.lock().wants_connected() {
            info!("connected to Redis at {address}");
        }
        self.link.breaker.recovered();
        self.link.reached.store(true, Ordering::Relaxed);
        self.link.attempts.send_modify(|attempts| attempts.succeeded += 1);
        let reason = tokio::select! {
            reason = connection.health.until_broken() => Some(reason),
            () = driver.until_closed() => Some(connection.health.broken().unwrap_or(Reason::Closed)),
            reason = until_ping_fails(&connection) => Some(reason),
            () = self.link.breaker.until_open() => connection.health.broken(),
            never = self.keep_sending_heartbeats(&connection) => match never {},
            never = self.keep_appending(&connection) => match never {},
            never = self.keep_stating(&connection) => match never {},
            never = self.ask_for_durability(&connection) => match never {},
            () = self.link.breaker.keep_advancing() => None,
        };
        let Some(reason) = reason else {
            return Some(NewConnection { connection, driver, address, secrets });
        };
        connection.health.give_up(reason);
        self.link.withdraw();
        if clock::now().saturating_sub(started) / 1_000 >= STEADY_MS {
            self.link.journal.lock().reset();
        }
        self.link.journal.lock().wants_down("lost", clock::now());
        self.link.breaker.open(&format!("lost Redis at {address}: {}", reason.text()));
        None
    }

    /// States what requests of this process hold.
    async fn keep_stating(&self, connection: &Connection) -> Infallible {
        match &self.held {
            Some(held) => stating::keep_stating(connection, held, &self.settings.prefix).await,
            None => pending().await,
        }
    }

    /// Asks the server once whether it keeps the counts of quotas, and warns if not.
    async fn ask_for_durability(&self, connection: &Connection) -> Infallible {
        if self.has_quotas && !self.has_asked.load(Ordering::Relaxed) {
            let mut redis = connection.redis.clone();
            match timeout(REPLY_TIMEOUT, durability::ask(&mut redis)).await {
                Ok(found) => durability::log(found),
                Err(_) => return pending().await,
            }
            self.has_asked.store(true, Ordering::Relaxed);
        }
        pending().await
    }

    /// Sends heartbeats until the gateway leaves, and records the number of live gateways. A
    /// failure has no effect on checks.
    async fn keep_sending_heartbeats(&self, connection: &Connection) -> Infallible {
        if self.cluster.is_some() {
            return pending().await;
        }
        let (peers, mut redis) = (&self.link.peers, connection.redis.clone());
        let sender = Sender { prefix: &self.settings.prefix, process: self.process };
        let mut interval = tokio::time::interval(heartbeat::INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = peers.until_leaving() => {
                    // Otherwise the others miss the gateway only later.
                    let _ = timeout(REPLY_TIMEOUT, peers.announce_leave(&mut redis, sender)).await;
                    return pending().await;
                }
                _ = interval.tick() => {}
            }
            match timeout(REPLY_TIMEOUT, peers.announce(&mut redis, sender)).await {
                Ok(Ok(counts)) => {
                    peers.counted(counts);
                    if self.link.journal.lock().wants_end("announce") {
                        info!("Redis counts this gateway again");
                    }
                }
                Ok(Err(error)) if self.link.journal.lock().wants("announce", clock::now()) => {
                    warn!(
                        "Redis does not count this gateway: {}; for its part in an outage, set \
                         `instances` under `[server]`",
                        self.link.describe(&error)
                    );
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    /// Sends records to the stream, one at a time, so that the result of each is known. A failure
    /// has no effect on checks.
    async fn keep_appending(&self, connection: &Connection) -> Infallible {
        let Some(appending) = &self.appending else { return pending().await };
        while let Some(mut sending) = appending.next().await {
            sending.entry.fields.push(("gateway", self.gateway()));
            let key = format!("{}{}", self.settings.prefix, sending.entry.stream);
            let mut redis = connection.redis.clone();
            match timeout(REPLY_TIMEOUT, call::append(&mut redis, &key, &sending.entry)).await {
                Ok(Ok(())) => {
                    connection.health.note(CallResult::Answered);
                    sending.arrived();
                    if self.link.journal.lock().wants_end("append") {
                        info!("Redis takes refusals into {key} again");
                    }
                }
                Ok(Err(error)) if self.link.journal.lock().wants("append", clock::now()) => {
                    let help = match classify(&error) {
                        ErrorClass::NoPermission => "; its user needs `+xadd`",
                        _ => "",
                    };
                    let text = self.link.describe(&error);
                    warn!("Redis does not take refusals into {key}: {text}{help}");
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        pending().await
    }
}

/// Sends PINGs on an idle connection, and returns once one is not answered: the only way to notice
/// a peer that is gone without closing the connection.
async fn until_ping_fails(connection: &Connection) -> Reason {
    let mut interval = tokio::time::interval(PING_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if connection.health.take_answered() {
            continue;
        }
        let mut redis = connection.redis.clone();
        let ping = redis::cmd("PING");
        match timeout(REPLY_TIMEOUT, ping.query_async::<redis::Value>(&mut redis)).await {
            Ok(Ok(_)) => connection.health.note(CallResult::Answered),
            Ok(Err(error)) => match classify(&error) {
                ErrorClass::Connection => return Reason::Closed,
                class if class.asks_for_another_connection() => return Reason::Class(class),
                // An error reply is an answer, too.
                _ => connection.health.note(CallResult::Answered),
            },
            Err(_) => return Reason::PingTimeout,
        }
    }
}
