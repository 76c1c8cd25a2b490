//! [`Supervisor`]: connects to Redis, monitors and replaces the connection, and sends probes, all
//! in the background. No request waits for any of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tracing::{info, warn};

use super::connect::{self, NewConnection};
use super::error::ConnectError;
use super::watch::{CallResult, Reason};
use super::{Connection, Link};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::net::lookup::Resolver;
use crate::policy::redis::Redis;
use crate::store::redis::call;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::server_clock::ServerClock;

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

/// Number of the bucket of probes: in a cluster, of one that the master has; `None` if it has no
/// slot yet.
pub(super) type ProbeNumber = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The connections of one or more supervisors.
#[derive(Debug, Default)]
pub struct Connections {
    /// Number of connections so far that requests could use. Also notified when one is lost.
    pub count: watch::Sender<u64>,
    /// Set with the first of them.
    pub reached: Arc<AtomicBool>,
}

/// Keeps a [`Link`] connected, for as long as the process lives.
pub struct Supervisor {
    link: Arc<Link>,
    settings: Redis,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    probe_number: ProbeNumber,
    /// Those of all servers, with this one.
    all: Arc<Connections>,
}

impl Supervisor {
    pub(super) fn new(link: Arc<Link>, settings: Redis, resolver: Resolver) -> Self {
        let (number, reads) = (link.breaker.random(), BlockingCalls::default());
        let probe_number: ProbeNumber = Box::new(move || Some(number));
        Self { link, settings, resolver, reads, probe_number, all: Arc::default() }
    }

    /// Probes buckets of these numbers.
    pub(super) fn in_cluster(self, probe_number: ProbeNumber) -> Self {
        Self { probe_number, ..self }
    }

    /// Adds its connections to `all`.
    pub(in crate::store::redis) fn counting(self, all: Arc<Connections>) -> Self {
        Self { all, ..self }
    }

    /// Connects and reconnects. Never returns.
    pub async fn run(&self) -> Infallible {
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
            let is_first = self.link.is_in_cluster && self.link.connections() == 0;
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
        let number = (self.probe_number)();
        let probe = async {
            match number {
                Some(number) => {
                    let probed = call::probe(&mut redis, &self.settings.prefix, number).await?;
                    Ok(probed.map(Some))
                }
                None => redis::cmd("PING").query_async(&mut redis).await.map(|()| Ok(None)),
            }
        };
        let sent_at = clock::now();
        match timeout(self.settings.timeout, probe).await {
            Ok(Ok(Ok(ran_at))) => {
                fresh.connection.health.note(CallResult::Answered);
                if let Some(ran_at) = ran_at {
                    self.link.clock.here(ran_at, sent_at..clock::now());
                }
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

    /// Publishes a connection to requests until it breaks or the circuit breaker opens. Returns the
    /// connection in the second case.
    async fn hold(&self, fresh: NewConnection) -> Option<NewConnection> {
        let NewConnection { connection, mut driver, address, secrets } = fresh;
        let started = clock::now();
        if self.link.is_reached() {
            let settling_us = self.settings.breaker.open_max_us.saturating_add(STATING_US);
            self.link.settle_until(started.saturating_add(settling_us));
        }
        if self.link.is_reached() || self.link.is_in_cluster {
            self.link.note_replaced(started);
        }
        self.link.publish(connection.clone());
        // Logged only after the connection is published.
        if self.link.journal.lock().wants_connected() {
            info!("connected to Redis at {address}");
        }
        self.link.breaker.recovered();
        self.link.reached.store(true, Ordering::Relaxed);
        self.all.reached.store(true, Ordering::Relaxed);
        self.all.count.send_modify(|count| *count += 1);
        self.link.attempts.send_modify(|attempts| attempts.succeeded += 1);
        let reason = tokio::select! {
            reason = connection.health.until_broken() => Some(reason),
            () = driver.until_closed() => Some(connection.health.broken().unwrap_or(Reason::Closed)),
            reason = until_ping_fails(&connection, &self.link.clock) => Some(reason),
            () = self.link.breaker.until_open() => connection.health.broken(),
            () = self.link.breaker.keep_advancing() => None,
        };
        self.all.count.send_modify(|_| {});
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
}

/// Sends PINGs on an idle connection, and returns once one is not answered: the only way to notice
/// a peer that is gone without closing the connection. Also asks for the time then: the clocks
/// drift apart.
async fn until_ping_fails(connection: &Connection, server: &ServerClock) -> Reason {
    let mut interval = tokio::time::interval(PING_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if connection.health.take_answered() {
            continue;
        }
        let (ping, time) = (redis::cmd("PING"), redis::cmd("TIME"));
        let (mut redis, mut same) = (connection.redis.clone(), connection.redis.clone());
        let sent_at = clock::now();
        // Sent together, so that the second one delays nothing.
        let (reply, server_time) = tokio::join!(
            timeout(REPLY_TIMEOUT, ping.query_async::<redis::Value>(&mut redis)),
            timeout(REPLY_TIMEOUT, time.query_async::<(u64, u64)>(&mut same)),
        );
        match reply {
            Ok(Ok(_)) => connection.health.note(CallResult::Answered),
            Ok(Err(error)) => match classify(&error) {
                ErrorClass::Connection => return Reason::Closed,
                class if class.asks_for_another_connection() => return Reason::Class(class),
                // An error reply is an answer, too.
                _ => connection.health.note(CallResult::Answered),
            },
            Err(_) => return Reason::PingTimeout,
        }
        // It was no call: the next PING is due as before.
        connection.health.take_answered();
        if let Ok(Ok((seconds, us))) = server_time {
            let time_us = seconds.saturating_mul(MICROS_PER_SECOND).saturating_add(us);
            server.here(time_us, sent_at..clock::now());
        }
    }
}
