//! [`BanSync`]: the task that exchanges refusals and bans with the other gateways, through Redis.
//! It makes one call at a time, on a connection that no check uses.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use redis::Cmd;
use tracing::{info, warn};

use super::script::{self, CHANGES, ENDS, Position, RECORDS, Reply, Update};
use super::{Bans, MAX_CLIENTS};
use crate::base::background::Background;
use crate::base::clock;
use crate::base::random::pause_ms;
use crate::limit::charge::BucketId;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};

/// Interval of calls.
const INTERVAL: Duration = Duration::from_millis(250);

/// Pause before a call for what the last one had no room for, so that gateways which refuse many
/// clients leave most of Redis' time to checks.
const PAUSE: Duration = Duration::from_millis(20);

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

/// What this gateway knows of the bans in Redis.
#[derive(Debug, Default)]
struct Known {
    position: Position,
    /// While all records are read, to find those that Redis has lost.
    reading: Option<Reading>,
    /// Whether the last call read records once more, and not changes.
    was_beside: bool,
    /// The connection that the last call used.
    connection: u64,
}

/// All records of Redis, in the order of their changes.
#[derive(Debug)]
struct Reading {
    /// Number of the last change that was read, if they are read once more, beside later changes.
    beside: Option<u64>,
    read: HashSet<BucketId>,
}

impl Known {
    /// From where the next call reads, and whether it reads records once more. Calls do so by
    /// turns: changes that others make meanwhile do not wait.
    fn next(&mut self) -> (Position, bool) {
        let number = self.reading.as_ref().and_then(|reading| reading.beside);
        let number = number.filter(|_| !self.was_beside);
        self.was_beside = number.is_some();
        (
            number.map_or(self.position, |number| Position { number, ..self.position }),
            self.was_beside,
        )
    }

    /// Notes the reply to a call, and the connection on which it came. Redis may have lost changes
    /// if that is a new one: the server may be another one, or have been started again. That there
    /// are fewer changes than before shows it only until there are as many again.
    ///
    /// Returns the buckets of all records when they are read. What this gateway knows besides,
    /// Redis has lost.
    fn note(
        &mut self,
        reply: &Reply,
        is_beside: bool,
        connection: u64,
    ) -> Option<HashSet<BucketId>> {
        let is_new = std::mem::replace(&mut self.connection, connection) != connection;
        if reply.is_other || !is_beside {
            self.position = reply.position;
        }
        if reply.is_other {
            // This reply begins with the first record.
            self.reading = Some(Reading { beside: None, read: HashSet::new() });
        } else if is_new {
            self.reading = Some(Reading { beside: Some(0), read: HashSet::new() });
            return None;
        }
        let reading = self.reading.as_mut()?;
        if let Some(number) = &mut reading.beside {
            if !is_beside {
                return None;
            }
            *number = reply.position.number;
        }
        reading.read.extend(reply.changes.iter().map(|change| change.bucket));
        if reply.has_more { None } else { self.reading.take().map(|reading| reading.read) }
    }
}

impl BanSync {
    /// Creates the task, for the Redis of the settings. Does no I/O.
    pub fn new(bans: Arc<Bans>, redis: &Redis) -> Self {
        Self { bans, records: Records::new(redis.clone()) }
    }

    async fn run(&self) {
        let (mut known, mut is_failing, mut idle) = (Known::default(), false, 0);
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
                    let result = self.exchange(updates, &mut known).await;
                    self.note(result.as_ref().err(), &mut is_failing);
                    match result {
                        Ok(true) => PAUSE,
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
        known: &mut Known,
    ) -> Result<bool, RecordsError> {
        let is_full = updates.len() == AT_ONCE;
        let (position, is_beside) = known.next();
        let command = self.command(&updates, position);
        let sent_at = clock::now();
        let reply = self.records.call_all(&[command]).await.map(|mut replies| replies.pop());
        let reply = reply.and_then(|reply| reply.unwrap_or_else(|| Err(RecordsError::malformed())));
        let mut reply = reply
            .and_then(|reply| Reply::read(reply).ok_or_else(RecordsError::malformed))
            .inspect_err(|_| self.bans.put_back(updates))?;
        let all = known.note(&reply, is_beside, self.records.opened());
        if is_beside {
            // The refusals since a ban was lifted count.
            let is_banned = |bucket| self.bans.left_us(bucket, sent_at).is_some();
            reply.changes.retain(|change| change.number > 0 || is_banned(change.bucket));
        }
        self.bans.apply(reply.changes, sent_at);
        if let Some(all) = all {
            // After all that Redis knows: a ban that was lifted meanwhile does not begin again.
            self.bans.send_missing(&all, clock::now());
        }
        Ok(reply.has_more || known.reading.is_some() || is_full)
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

impl Background for BanSync {
    /// Runs until the process ends: bans apply to requests of connections that drain.
    fn start(&self, _shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(self.run())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::limit::ban::BanRule;
    use crate::limit::charge::BucketId;
    use crate::store::bans::about::About;
    use crate::store::bans::script::What;
    use crate::store::redis::fixture::RedisServer;

    const MINUTE_US: u64 = 60_000_000;

    const RULE: BanRule =
        BanRule { after: 3, within_us: MINUTE_US, for_us: MINUTE_US, grow: 1, max_us: MINUTE_US };

    fn about(id: usize) -> About {
        About {
            rule: "r".to_owned(),
            kind: "ip".to_owned(),
            id: id.to_string(),
            tenant: None,
            by: None,
            reason: None,
        }
    }

    fn gateway(server: &RedisServer) -> BanSync {
        BanSync::new(Arc::new(Bans::new(true)), &server.settings())
    }

    fn begin(sync: &BanSync, id: usize) {
        sync.bans.set(BucketId(id as u128), &RULE, about(id), MINUTE_US, clock::now());
    }

    /// Calls until there is no more.
    async fn exchange_all(sync: &BanSync, known: &mut Known) {
        loop {
            let updates = sync.bans.take_updates(AT_ONCE, clock::now());
            if !sync.exchange(updates, known).await.unwrap() {
                return;
            }
        }
    }

    /// A gateway that was cut off while Redis lost its records restores the bans that it knows, but
    /// not those that were lifted meanwhile, on whatever page of the reply they are.
    #[tokio::test]
    async fn lifted_bans_stay_lifted_after_a_loss_and_others_are_restored() {
        const CLIENTS: usize = 3 * AT_ONCE;
        let server = RedisServer::start(&[]);
        let [sync, other] = [gateway(&server), gateway(&server)];
        let mut known = Known::default();
        for id in 0..CLIENTS {
            begin(&sync, id);
        }
        exchange_all(&sync, &mut known).await;
        redis::cmd("FLUSHALL").query::<()>(&mut server.client()).unwrap();
        let is_lifted = |id: usize| id.is_multiple_of(2);
        let lifted: Vec<Update> = (0..CLIENTS)
            .filter(|id| is_lifted(*id))
            .map(|id| Update {
                bucket: BucketId(id as u128),
                about: Arc::new(about(id)),
                what: What::Lift,
            })
            .collect();
        for updates in lifted.chunks(AT_ONCE) {
            other.exchange(updates.to_vec(), &mut Known::default()).await.unwrap();
        }
        exchange_all(&sync, &mut known).await;
        exchange_all(&sync, &mut known).await;
        let mut of_other = Known::default();
        exchange_all(&other, &mut of_other).await;
        let now = clock::now();
        for id in 0..CLIENTS {
            for bans in [&sync.bans, &other.bans] {
                let is_banned = bans.left_us(BucketId(id as u128), now).is_some();
                assert_eq!(is_banned, !is_lifted(id), "{id}");
            }
        }
    }

    /// A replica that takes over without the last changes has, some changes later, as many as the
    /// master had.
    #[tokio::test]
    async fn bans_that_a_failover_has_lost_are_restored_after_as_many_others() {
        let server = RedisServer::start(&[]);
        let [sync, other] = [gateway(&server), gateway(&server)];
        let (mut known, mut of_other) = (Known::default(), Known::default());
        begin(&sync, 0);
        exchange_all(&sync, &mut known).await;
        let mut client = server.client();
        for key in [RECORDS, CHANGES, ENDS].map(|key| sync.records.key(key)) {
            let copied: bool = redis::cmd("COPY")
                .arg(&key)
                .arg(format!("{key}:replica"))
                .query(&mut client)
                .unwrap();
            assert!(copied);
        }
        begin(&sync, 1);
        exchange_all(&sync, &mut known).await;
        for key in [RECORDS, CHANGES, ENDS].map(|key| sync.records.key(key)) {
            redis::cmd("RENAME")
                .arg(format!("{key}:replica"))
                .arg(key)
                .query::<()>(&mut client)
                .unwrap();
        }
        redis::cmd("CLIENT").arg(&["KILL", "SKIPME", "yes"]).query::<()>(&mut client).unwrap();
        begin(&other, 2);
        exchange_all(&other, &mut of_other).await;
        // The first call may find that its connection was closed.
        let _ = sync.exchange(Vec::new(), &mut known).await;
        exchange_all(&sync, &mut known).await;
        exchange_all(&sync, &mut known).await;
        exchange_all(&other, &mut of_other).await;
        for bans in [&sync.bans, &other.bans] {
            let counts = bans.counts(clock::now());
            assert_eq!(counts, HashMap::from([("r".to_owned(), 3)]));
        }
    }

    /// Records that are read once more are many, after each lost connection.
    #[tokio::test]
    async fn bans_of_others_do_not_wait_for_records_that_are_read_once_more() {
        const CLIENTS: usize = 5 * AT_ONCE;
        let server = RedisServer::start(&[]);
        let [sync, other] = [gateway(&server), gateway(&server)];
        let (mut known, mut of_other) = (Known::default(), Known::default());
        for id in 0..CLIENTS {
            begin(&sync, id);
        }
        exchange_all(&sync, &mut known).await;
        let mut client = server.client();
        redis::cmd("CLIENT").arg(&["KILL", "SKIPME", "yes"]).query::<()>(&mut client).unwrap();
        // The first call may find that its connection was closed.
        let _ = sync.exchange(Vec::new(), &mut known).await;
        assert!(sync.exchange(Vec::new(), &mut known).await.unwrap());
        begin(&other, CLIENTS);
        exchange_all(&other, &mut of_other).await;
        for _ in 0..2 {
            assert!(sync.exchange(Vec::new(), &mut known).await.unwrap());
        }
        let now = clock::now();
        assert!(sync.bans.left_us(BucketId(CLIENTS as u128), now).is_some());
        exchange_all(&sync, &mut known).await;
        assert!(sync.bans.take_updates(AT_ONCE, now).is_empty());
    }
}
