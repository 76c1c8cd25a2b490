//! Who keeps the connection: makes it, watches it, replaces it, all in the background; and who finds
//! out whether the server is back, so that no request has to.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::connect::{self, Fresh};
use super::error::ConnectError;
use super::watch::{Outcome, Reason};
use super::{Connection, Link};
use crate::blocking::BlockingCalls;
use crate::clock;
use crate::net::lookup::Resolver;
use crate::policy::redis::Redis;
use crate::store::redis::append::Appending;
use crate::store::redis::call;
use crate::store::redis::class::{ErrorClass, classify};

/// How often an idle connection is tried. Twice a second also keeps it from being closed by a
/// server that is told to close connections idle for a second.
const LIVENESS: Duration = Duration::from_millis(500);

/// How long it may take to answer then.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two probes.
const BETWEEN_PROBES: Duration = Duration::from_millis(20);

/// How often this process says that it is there. Others miss it after ten seconds.
const ANNOUNCE: Duration = Duration::from_millis(2_500);

/// A connection that lived this long was a good one: what fails after it is news.
const STEADY_MS: u64 = 10_000;

/// Keeps a [`Link`] connected, for as long as the process lives.
pub struct Supervisor {
    link: Arc<Link>,
    settings: Redis,
    resolver: Resolver,
    /// Whatever reads certificates.
    reads: BlockingCalls,
    /// Tells this process from the others.
    process: u64,
    /// Records that go to a stream.
    appending: Option<Appending>,
}

#[async_trait]
impl BackgroundService for Supervisor {
    /// Does not stop at a shutdown: requests in flight still need their Redis.
    async fn start(&self, _shutdown: ShutdownWatch) {
        self.run().await;
    }
}

impl Supervisor {
    pub(super) fn new(link: Arc<Link>, settings: Redis, resolver: Resolver) -> Self {
        let process = link.breaker.random();
        let reads = BlockingCalls::default();
        Self { link, settings, resolver, reads, process, appending: None }
    }

    /// Sends records, too, to the stream of refusals.
    pub fn appending(self, appending: Appending) -> Self {
        Self { appending: Some(appending), ..self }
    }

    /// The link that it keeps.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Connects, again and again. Never returns.
    pub async fn run(&self) {
        let mut kept = None;
        loop {
            self.link.breaker.until_probe().await;
            match self.recover(kept.take()).await {
                Ok(fresh) => kept = self.hold(fresh).await,
                Err((error, fresh)) => {
                    let is_told = self.link.breaker.open(&error.to_string());
                    let wanted = self.link.journal.lock().wants_down(error.kind(), clock::now());
                    if wanted && !is_told {
                        warn!("no Redis yet, trying on: {error}");
                    }
                    self.link.attempts.send_modify(|attempts| attempts.failed += 1);
                    kept = fresh;
                }
            }
        }
    }

    /// A connection over which enough probes have succeeded: the one that there was, or another.
    /// With the error comes a connection that is worth keeping.
    async fn recover(&self, kept: Option<Fresh>) -> Result<Fresh, (ConnectError, Option<Fresh>)> {
        let kept = kept.filter(|fresh| fresh.line.health.broken().is_none());
        let is_new = kept.is_none();
        let mut fresh = if let Some(fresh) = kept {
            fresh
        } else {
            let fresh = connect::connect(&self.settings, &self.resolver, &self.reads).await;
            fresh.map_err(|error| (error, None))?
        };
        for number in 0..self.settings.breaker.probes {
            if number > 0 {
                sleep(BETWEEN_PROBES).await;
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

    /// What a check would do, within a check's time.
    async fn probe(&self, fresh: &mut Fresh) -> Result<(), ConnectError> {
        let at = || fresh.address.clone();
        let step = "a probe";
        let mut redis = fresh.line.redis.clone();
        let probe = call::probe(&mut redis, &self.settings.prefix, self.process);
        match timeout(self.settings.timeout, probe).await {
            Ok(Ok(Ok(()))) => {
                fresh.line.health.note(Outcome::Answered);
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
                let text = fresh.secrets.describe(&error) + class.help();
                Err(ConnectError::Refused { at: at(), step, class, text })
            }
            Err(_) => Err(ConnectError::TooSlow { at: at(), budget: self.settings.timeout }),
        }
    }

    /// Lends a connection to requests until it is no good any more, or the server is not. Returns
    /// the connection in the second case.
    async fn hold(&self, fresh: Fresh) -> Option<Fresh> {
        let Fresh { line, mut driver, address, secrets } = fresh;
        let started = clock::now();
        self.link.publish(line.clone());
        // Who reads this may rely on it.
        if self.link.journal.lock().wants_connected() {
            info!("connected to Redis at {address}");
        }
        self.link.breaker.recovered();
        self.link.reached.store(true, Ordering::Relaxed);
        self.link.attempts.send_modify(|attempts| attempts.succeeded += 1);
        let reason = tokio::select! {
            reason = line.health.until_broken() => Some(reason),
            () = driver.until_closed() => Some(line.health.broken().unwrap_or(Reason::Closed)),
            reason = until_silent(&line) => Some(reason),
            () = self.link.breaker.until_open() => line.health.broken(),
            never = self.keep_announcing(&line) => match never {},
            never = self.keep_appending(&line) => match never {},
            () = self.link.breaker.keep_advancing() => None,
        };
        let Some(reason) = reason else { return Some(Fresh { line, driver, address, secrets }) };
        line.health.give_up(reason);
        self.link.withdraw();
        if clock::now().saturating_sub(started) / 1_000 >= STEADY_MS {
            self.link.journal.lock().turn_the_page();
        }
        self.link.journal.lock().wants_down("lost", clock::now());
        self.link.breaker.open(&format!("lost Redis at {address}: {}", reason.text()));
        None
    }

    /// Says every few seconds that this process is there, and counts who else is. A server that
    /// does not allow it is no worse for checks.
    async fn keep_announcing(&self, line: &Connection) -> Infallible {
        let mut ticks = interval(ANNOUNCE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let mut redis = line.redis.clone();
            let announced = call::announce(&mut redis, &self.settings.prefix, self.process);
            match timeout(PATIENCE, announced).await {
                Ok(Ok(gateways)) => self.link.counted(gateways),
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

    /// Sends records one by one: there are few, and what becomes of each is known then. A server that
    /// takes none is no worse for checks.
    async fn keep_appending(&self, line: &Connection) -> Infallible {
        let key = format!("{}audit", self.settings.prefix);
        let Some(appending) = &self.appending else { return pending().await };
        while let Some(mut sending) = appending.next().await {
            sending.entry.fields.push(("gateway", format!("{:016x}", self.process)));
            let mut redis = line.redis.clone();
            match timeout(PATIENCE, call::append(&mut redis, &key, &sending.entry)).await {
                Ok(Ok(())) => {
                    line.health.note(Outcome::Answered);
                    sending.arrived();
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

/// Tries a connection that nobody uses, and returns when it does not answer. A peer that vanished
/// without a word is found in no other way.
async fn until_silent(line: &Connection) -> Reason {
    let mut ticks = interval(LIVENESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if line.health.take_answered() {
            continue;
        }
        let mut redis = line.redis.clone();
        let ping = redis::cmd("PING");
        match timeout(PATIENCE, ping.query_async::<redis::Value>(&mut redis)).await {
            Ok(Ok(_)) => line.health.note(Outcome::Answered),
            Ok(Err(error)) => match classify(&error) {
                ErrorClass::Connection => return Reason::Closed,
                class if class.asks_for_another_connection() => return Reason::Class(class),
                // An answer, if not the one that was asked for.
                _ => line.health.note(Outcome::Answered),
            },
            Err(_) => return Reason::Silence,
        }
    }
}
