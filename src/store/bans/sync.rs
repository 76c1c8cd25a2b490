//! [`BanSync`]: the task that exchanges refusals and bans with the other gateways, through Redis.
//! It makes one call at a time, on a connection that no check uses.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use redis::Cmd;
use tracing::{info, warn};

use super::script::{self, CHANGES, ENDS, Position, RECORDS, Reply, Update};
use super::{Bans, MAX_CLIENTS};
use crate::base::clock;
use crate::base::random::pause_ms;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};

/// Interval of calls.
const INTERVAL: Duration = Duration::from_millis(250);

/// Number of intervals between two calls that have nothing to send.
const IDLE_INTERVALS: u32 = 3;

/// Shortest and longest time after a failure. It differs by chance, so that gateways which lost
/// Redis together do not connect to it together.
const RETRY_MS: RangeInclusive<u64> = 500..=1_500;

/// Most changes that one call sends, and that its reply has: Redis takes about a millisecond.
const AT_ONCE: usize = 128;

/// Exchanges bans with the other gateways.
pub struct BanSync {
    bans: Arc<Bans>,
    records: Records,
}

impl BanSync {
    /// Creates the task, for the Redis of the settings. Does no I/O.
    pub fn new(bans: Arc<Bans>, redis: &Redis) -> Self {
        Self { bans, records: Records::new(redis.clone()) }
    }

    async fn run(&self) {
        let (mut position, mut is_failing, mut idle) = (Position::default(), false, 0);
        loop {
            if !self.bans.are_used() {
                self.bans.has_new.notified().await;
                continue;
            }
            let pause = {
                let updates = self.bans.take_updates(AT_ONCE, clock::now());
                if updates.is_empty() && idle > 0 {
                    idle -= 1;
                    INTERVAL
                } else {
                    idle = IDLE_INTERVALS;
                    let result = self.exchange(updates, &mut position).await;
                    self.note(result.as_ref().err(), &mut is_failing);
                    match result {
                        Ok(true) => Duration::ZERO,
                        Ok(false) => INTERVAL,
                        Err(_) => pause_ms(&RETRY_MS),
                    }
                }
            };
            tokio::select! {
                () = self.bans.has_new.notified() => idle = 0,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Sends these updates, and applies what has changed in Redis. Returns whether there is more.
    async fn exchange(
        &self,
        updates: Vec<Update>,
        position: &mut Position,
    ) -> Result<bool, RecordsError> {
        let is_full = updates.len() == AT_ONCE;
        let command = self.command(&updates, *position);
        let sent_at = clock::now();
        let reply = self.records.call_all(&[command]).await.map(|mut replies| replies.pop());
        let reply = reply.and_then(|reply| reply.unwrap_or_else(|| Err(RecordsError::malformed())));
        let reply = reply
            .and_then(|reply| Reply::read(reply).ok_or_else(RecordsError::malformed))
            .inspect_err(|_| self.bans.put_back(updates))?;
        let is_other = reply.is_other && *position != Position::default();
        *position = reply.position;
        let has_more = reply.has_more || is_full;
        self.bans.apply(reply.changes, sent_at);
        if is_other {
            // After what Redis knows: a ban that was lifted meanwhile does not begin again.
            self.bans.send_all(clock::now());
        }
        Ok(has_more)
    }

    fn command(&self, updates: &[Update], position: Position) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script::SOURCE).arg(3 + updates.len());
        for key in [RECORDS, CHANGES, ENDS] {
            command.arg(self.records.key(key));
        }
        for update in updates {
            command.arg(self.records.key(&update.key()));
        }
        command.arg("").arg(position.epoch).arg(position.number);
        command.arg(AT_ONCE).arg(MAX_CLIENTS).arg(script::encode(updates));
        command
    }

    /// Notes whether Redis can be called, and logs when that changes.
    fn note(&self, failure: Option<&RecordsError>, is_failing: &mut bool) {
        match failure {
            None if *is_failing => info!("bans are shared again"),
            Some(cause) if !*is_failing => {
                warn!(%cause, "bans are not shared: this gateway counts the refusals of its own");
            }
            _ => {}
        }
        *is_failing = failure.is_some();
        self.bans.note_alone(*is_failing);
    }
}

#[async_trait]
impl BackgroundService for BanSync {
    /// Runs until the process ends: bans apply to requests of connections that drain.
    async fn start(&self, _shutdown: ShutdownWatch) {
        self.run().await;
    }
}
