//! Who keeps the connection: makes it, watches it, replaces it, all in the background.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use super::backoff::{self, STEADY_MS};
use super::connect::{self, Fresh, Resolver};
use super::watch::{Outcome, Reason};
use super::{Line, Link};
use crate::clock;
use crate::policy::redis::{Place, Redis};
use crate::store::redis::class::{ErrorClass, classify};

/// How often an idle connection is tried. Twice a second also keeps it from being closed by a
/// server that is told to close connections idle for a second.
const LIVENESS: Duration = Duration::from_millis(500);

/// How long it may take to answer then.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest wait between two attempts.
const MOST_MS: u64 = 5_000;

/// The same with sentinels. They are there to be asked, and a failover should not last longer than
/// they make it.
const MOST_WITH_SENTINELS_MS: u64 = 1_000;

/// Keeps a [`Link`] connected, for as long as the process lives.
pub struct Supervisor {
    link: Arc<Link>,
    settings: Redis,
    resolver: Resolver,
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
        Self { link, settings, resolver }
    }

    /// Connects, again and again. Never returns.
    pub async fn run(&self) {
        let most_ms = match self.settings.place {
            Place::Sentinel(_) => MOST_WITH_SENTINELS_MS,
            Place::Server(_) | Place::Socket(_) => MOST_MS,
        };
        let mut failures = 0;
        loop {
            let lived_ms = match connect::connect(&self.settings, &self.resolver).await {
                Ok(fresh) => self.hold(fresh).await,
                Err(error) => {
                    if self.link.journal.lock().wants_down(error.kind(), clock::now()) {
                        warn!("no connection to Redis, trying on: {error}");
                    }
                    0
                }
            };
            failures = backoff::failures_after(failures, lived_ms);
            let random = getrandom::u64().unwrap_or_else(|_| clock::now());
            let delay_ms = backoff::delay_ms(failures.saturating_sub(1), most_ms, random);
            sleep(Duration::from_millis(delay_ms)).await;
        }
    }

    /// Lends a connection to requests until it is no good any more. How long that was, in ms.
    async fn hold(&self, fresh: Fresh) -> u64 {
        let Fresh { line, mut driver, address } = fresh;
        let started = clock::now();
        if self.link.journal.lock().wants_connected() {
            info!("connected to Redis at {address}");
        }
        self.link.publish(line.clone());
        let reason = tokio::select! {
            reason = line.health.until_broken() => reason,
            () = driver.until_closed() => line.health.broken().unwrap_or(Reason::Closed),
            reason = until_silent(&line) => reason,
        };
        line.health.give_up(reason);
        self.link.withdraw();
        let lived_ms = clock::now().saturating_sub(started) / 1_000;
        if lived_ms >= STEADY_MS {
            self.link.journal.lock().turn_the_page();
        }
        if self.link.journal.lock().wants_down("lost", clock::now()) {
            warn!("lost Redis at {address}: {}; connecting anew", reason.text());
        }
        lived_ms
    }
}

/// Tries a connection that nobody uses, and returns when it does not answer. A peer that vanished
/// without a word is found in no other way.
async fn until_silent(line: &Line) -> Reason {
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
            Ok(Ok(_)) => line.note(Outcome::Answered),
            Ok(Err(error)) => match classify(&error) {
                ErrorClass::Connection => return Reason::Closed,
                class if class.asks_for_another_connection() => return Reason::Class(class),
                // An answer, if not the one that was asked for.
                _ => line.note(Outcome::Answered),
            },
            Err(_) => return Reason::Silence,
        }
    }
}
