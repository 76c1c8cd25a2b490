//! [`ClusterSupervisor`]: learns the masters of a cluster, and makes the calls that concern no
//! single master: heartbeats, records for streams, and statements of what requests hold. All in the
//! background; no request waits for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};
use tracing::{info, warn};

use super::{Cluster, Members, NO_MASTER};
use crate::base::blocking::BlockingCalls;
use crate::base::clock;
use crate::net::address::HostPort;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::redis::Address;
use crate::store::redis::append::Appending;
use crate::store::redis::availability::{self, MasterStatus};
use crate::store::redis::batch::settle::Settlement;
use crate::store::redis::call;
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::durability;
use crate::store::redis::heartbeat::{self, Sender};
use crate::store::redis::link::breaker::{BreakerState, Override};
use crate::store::redis::link::cluster::topology;
use crate::store::redis::link::history::History;
use crate::store::redis::script::MAX_CHECKS;
use crate::store::redis::stating::{self, MAX_STATEMENTS, PAUSE, RENEWAL_INTERVAL, Stated};

/// Interval at which the topology is asked for while all masters can be called.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which it is asked for while a master cannot be called.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// Minimum time between two questions.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);

/// Interval at which the state of the breakers is shown as that of one.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of commands of the supervisor.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps a [`Cluster`] up to date, for as long as the process lives.
pub struct ClusterSupervisor {
    cluster: Arc<Cluster>,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    /// Records for the stream of refusals.
    appending: Option<Appending>,
    /// Whether limits are counted whose counts must not be lost.
    has_quotas: bool,
}

#[async_trait]
impl BackgroundService for ClusterSupervisor {
    /// Does not stop at a shutdown, as requests in flight still use the connections. Only the
    /// heartbeats end.
    async fn start(&self, shutdown: ShutdownWatch) {
        tokio::join!(self.run(), self.cluster.peers.leave_at(shutdown));
    }
}

impl ClusterSupervisor {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let (resolver, reads) = (system_resolver(), BlockingCalls::default());
        Self { cluster, resolver, reads, appending: None, has_quotas: false }
    }

    /// Also sends records to the stream of refusals.
    pub fn appending(self, appending: Appending) -> Self {
        Self { appending: Some(appending), ..self }
    }

    /// Warns if a master does not keep the counts of quotas.
    pub fn keeping_quotas(self, has_quotas: bool) -> Self {
        Self { has_quotas, ..self }
    }

    /// The cluster that it keeps up to date.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Keeps the cluster up to date. Never returns.
    pub async fn run(&self) {
        tokio::select! {
            never = self.keep_refreshing() => match never {},
            never = self.keep_watching() => match never {},
            never = self.keep_sending_heartbeats() => match never {},
            never = self.keep_appending() => match never {},
            never = self.keep_stating() => match never {},
            never = self.ask_for_durability() => match never {},
        }
    }

    /// Asks for the topology at an interval, after a redirection, and more often while a master
    /// cannot be called.
    async fn keep_refreshing(&self) -> Infallible {
        let mut is_logged = false;
        loop {
            match self.learn().await {
                Ok(()) if std::mem::take(&mut is_logged) => {
                    info!("the masters of {} are known again", self.cluster.address());
                }
                Ok(()) => {}
                Err(error) => {
                    if !is_logged {
                        warn!("cannot learn the masters of {}: {error}", self.cluster.address());
                    }
                    is_logged = true;
                    self.cluster.attempts.send_modify(|attempts| *attempts += 1);
                }
            }
            let interval =
                if self.cluster.is_connected() { REFRESH_INTERVAL } else { SEARCH_INTERVAL };
            // Gateways that have started together do not ask together.
            let spread = interval.mul_f64(f64::from(random_byte()) / 1_024.0);
            sleep(REFRESH_PAUSE).await;
            tokio::select! {
                () = self.cluster.refresh.notified() => {}
                () = sleep(interval + spread) => {}
            }
        }
    }

    async fn learn(&self) -> Result<(), String> {
        let (settings, Address::Cluster(seeds)) =
            (&self.cluster.settings, &self.cluster.settings.address)
        else {
            return Err("the configuration has no cluster".to_owned());
        };
        let nodes = asked(&self.cluster.members.load(), seeds);
        let learned = topology(settings, &nodes, &self.resolver, &self.reads).await;
        let topology = learned.map_err(|error| error.to_string())?;
        let without = topology.owners.iter().filter(|owner| **owner == NO_MASTER).count();
        if self.cluster.apply(topology) {
            let members = self.cluster.members.load();
            let masters = members.masters.iter().map(|member| member.at.to_string());
            info!("the cluster's masters are {}", masters.collect::<Vec<String>>().join(", "));
            if let Some(lanes) = settings.lanes
                && usize::from(lanes) < members.masters.len()
            {
                let masters = members.masters.len();
                warn!(
                    "{masters} masters share {lanes} lanes: some have no buckets; raise `redis.lanes`"
                );
            }
            if without > 0 {
                warn!("{without} slots of the cluster have no master; their limits are local");
            }
        }
        Ok(())
    }

    /// Shows the breakers as one, logs which masters are away, and counts the first attempts to
    /// connect.
    async fn keep_watching(&self) -> Infallible {
        let mut interval = tokio::time::interval(WATCH_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut logged, mut was_connected) = (None, false);
        loop {
            interval.tick().await;
            let is_connected = self.cluster.is_connected();
            if std::mem::replace(&mut was_connected, is_connected) && !is_connected {
                // The present wait of `keep_refreshing` is that of a cluster whose masters can all
                // be called.
                self.cluster.refresh.notify_one();
            }
            let masters = self.cluster.masters();
            let state = availability::breaker(&masters).map(|breaker| breaker.state);
            let state = state.unwrap_or(BreakerState::Closed);
            self.cluster.series.all.link.breaker.state.set(state as i64);
            log_away(&masters, &mut logged);
            let nodes = self.cluster.nodes();
            let is_reached = nodes.iter().any(|node| node.is_reached());
            if is_reached {
                self.cluster.reached.store(true, Ordering::Relaxed);
            }
            if is_connected {
                self.cluster.attempts.send_if_modified(|attempts| {
                    let is_first = *attempts == 0;
                    *attempts += u64::from(is_first);
                    is_first
                });
            }
        }
    }

    /// Sends heartbeats until the gateway leaves, and records the number of live gateways. A
    /// failure has no effect on checks.
    async fn keep_sending_heartbeats(&self) -> Infallible {
        let mut interval = tokio::time::interval(heartbeat::INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (peers, prefix) = (&self.cluster.peers, self.cluster.keys().prefix());
        let sender = Sender { prefix, process: self.cluster.process };
        let key = heartbeat::key(prefix);
        let mut is_logged = false;
        let mut is_counted = false;
        loop {
            tokio::select! {
                biased;
                () = peers.until_leaving() => {
                    let announce_leave = |mut redis: MultiplexedConnection| {
                        async move { peers.announce_leave(&mut redis, sender).await }.boxed()
                    };
                    // Otherwise the others miss the gateway only later.
                    let _ = self.cluster.on_key(&key, announce_leave).await;
                    return pending().await;
                }
                _ = interval.tick() => {}
            }
            let announce = |mut redis: MultiplexedConnection| {
                async move { peers.announce(&mut redis, sender).await }.boxed()
            };
            match self.cluster.on_key(&key, announce).await {
                Some(Ok(counts)) => {
                    peers.counted(counts);
                    is_counted = true;
                    if std::mem::take(&mut is_logged) {
                        info!("Redis counts this gateway again");
                    }
                }
                Some(Err(why)) if !is_logged => {
                    is_logged = true;
                    warn!(
                        "Redis does not count this gateway: {why}; for its part in an outage, set \
                         `instances` under `[server]`"
                    );
                }
                // The first heartbeats may find no connection yet.
                None if !is_counted => interval.reset_after(PAUSE),
                Some(Err(_)) | None => {}
            }
        }
    }

    /// Sends records to the stream, one at a time, so that the result of each is known.
    async fn keep_appending(&self) -> Infallible {
        let Some(appending) = &self.appending else { return pending().await };
        let mut is_logged = false;
        while let Some(mut sending) = appending.next().await {
            sending.entry.fields.push(("gateway", self.cluster.gateway()));
            let key = self.cluster.keys().named(sending.entry.stream);
            let (key, entry) = (&key, &sending.entry);
            let append = |mut redis: MultiplexedConnection| {
                async move { call::append(&mut redis, key, entry).await }.boxed()
            };
            match self.cluster.on_key(key, append).await {
                Some(Ok(())) => {
                    sending.arrived();
                    if std::mem::take(&mut is_logged) {
                        info!("Redis takes refusals into {key} again");
                    }
                }
                Some(Err(why)) if !is_logged => {
                    is_logged = true;
                    warn!("Redis does not take refusals into {key}: {why}");
                }
                Some(Err(_)) => {}
                None => sleep(PAUSE).await,
            }
        }
        pending().await
    }

    /// States what requests of this process hold.
    async fn keep_stating(&self) -> Infallible {
        let held = &self.cluster.held;
        let mut interval = tokio::time::interval(RENEWAL_INTERVAL);
        let mut connections: u64 = 0;
        loop {
            let now_connections =
                self.cluster.nodes().iter().map(|node| node.batcher().link().connections()).sum();
            if now_connections != connections {
                // A master that was away, or another one, may have lost the statements.
                connections = now_connections;
                held.renew(true, clock::now());
            }
            stating::until_next(self.cluster.state_some().await, held, &mut interval).await;
        }
    }

    /// Asks a master once whether it keeps the counts of quotas, and warns if not.
    async fn ask_for_durability(&self) -> Infallible {
        if !self.has_quotas {
            return pending().await;
        }
        loop {
            sleep(REPLY_TIMEOUT).await;
            let nodes = self.cluster.nodes();
            let Some(connection) = nodes.iter().find_map(|node| node.batcher().link().current())
            else {
                continue;
            };
            let mut redis = connection.redis.clone();
            if let Ok(found) = timeout(REPLY_TIMEOUT, durability::ask(&mut redis)).await {
                durability::log(found);
                return pending().await;
            }
        }
    }
}

impl Cluster {
    /// Name of this process in records: 16 hexadecimal digits.
    pub fn gateway(&self) -> String {
        format!("{:016x}", self.process)
    }

    /// A reader of streams in the cluster.
    pub fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// Runs a command on the master that has a key; also on another one that it has moved to.
    /// `None` if it cannot be called.
    ///
    /// # Errors
    /// The text of the error that the master answers.
    pub async fn on_key<'a, T>(
        &self,
        key: &str,
        run: impl Fn(MultiplexedConnection) -> BoxFuture<'a, RedisResult<T>>,
    ) -> Option<Result<T, String>> {
        let node = self.node_of_key(key)?;
        let mut connection = node.batcher().link().current()?;
        for _ in 0..2 {
            let reply = timeout(REPLY_TIMEOUT, run(connection.redis.clone())).await.ok()?;
            let error = match reply {
                Ok(reply) => return Some(Ok(reply)),
                Err(error) => error,
            };
            match (self.moved_to(&error), classify(&error)) {
                (Some(other), _) => connection = other,
                // The node notices it by its own calls.
                (None, ErrorClass::Connection | ErrorClass::Cluster) => return None,
                (None, class) => {
                    let text = node.batcher().link().describe(&error);
                    return Some(Err(text + class.help()));
                }
            }
        }
        None
    }

    /// Waits until all masters are connected or an attempt has failed, at most for `limit`.
    pub async fn until_first_attempt(&self, limit: Duration) {
        let mut attempts = self.attempts.subscribe();
        let _ = timeout(limit, attempts.wait_for(|attempts| *attempts > 0)).await;
    }

    /// Makes statements that are due: one call for each slot.
    async fn state_some(&self) -> Stated {
        let due = self.held.take_due(MAX_STATEMENTS, clock::now());
        if due.is_empty() {
            return Stated::Nothing;
        }
        let mut slots: HashMap<u16, Vec<_>> = HashMap::new();
        for one in due {
            slots.entry(self.slot_of(one.bucket, &one.rule)).or_default().push(one);
        }
        let states = slots.into_iter().map(|(slot, due)| async move {
            let node = self.node_of_slot(slot);
            let connection = node.and_then(|node| node.batcher().link().current());
            if let Some(connection) = connection {
                let moved = |error: &RedisError| self.note_redirect(error, slot);
                let keys = self.keys.keys();
                return stating::state(&connection, &self.held, due, keys, moved).await;
            }
            for one in due {
                self.held.stated(one.bucket, one.statement, false);
            }
            Stated::Failed
        });
        if join_all(states).await.contains(&Stated::Failed) { Stated::Failed } else { Stated::Some }
    }

    /// Makes all statements that are due, within about `limit`.
    pub async fn state_all(&self, limit: Duration) {
        let all = async { while self.state_some().await == Stated::Some {} };
        let _ = timeout(limit, all).await;
    }

    /// Settles all debts, within about `limit`: see
    /// [`Batcher::settle_all`](crate::store::redis::batch::Batcher::settle_all).
    pub async fn settle_all(&self, limit: Duration) -> Settlement {
        let ends = Instant::now() + limit;
        let mut settlement = Settlement::default();
        let mut left = Vec::new();
        let nodes = self.nodes();
        join_all(nodes.iter().map(|node| node.batcher().link().probe_and_wait(ends))).await;
        while Instant::now() < ends {
            let taken = self.debts.take_some(MAX_CHECKS, clock::now());
            if taken.is_empty() {
                break;
            }
            let mut slots: HashMap<u16, Vec<_>> = HashMap::new();
            for one in taken {
                slots.entry(self.slot_of(one.0, &one.1.rule)).or_default().push(one);
            }
            let mut calls = Vec::new();
            for (slot, taken) in slots {
                match self.node_of_slot(slot).filter(|node| node.is_connected()) {
                    Some(node) => {
                        calls.push(async move { node.batcher().settle_some(taken, ends).await });
                    }
                    None => left.extend(taken),
                }
            }
            let mut has_failed = false;
            for (part, result) in join_all(calls).await {
                settlement.add(part);
                if let Err(why) = result {
                    has_failed = true;
                    settlement.why = settlement.why.take().or(Some(why));
                }
            }
            if has_failed {
                break;
            }
        }
        if !left.is_empty() {
            settlement.why = settlement.why.take().or(Some("a master is unavailable".to_owned()));
            for (bucket, owed, _) in left {
                self.debts.put_back(bucket, owed, clock::now());
            }
        }
        settlement
    }
}

/// Logs which masters that were reached before are away, if it is not what was `logged` last.
fn log_away(masters: &[MasterStatus], logged: &mut Option<String>) {
    let is_overridden = masters.iter().any(|master| master.breaker.r#override != Override::Auto);
    let away = availability::summary(masters);
    if is_overridden || away == *logged {
        return;
    }
    if let Some(away) = &away {
        warn!("{away}");
    } else {
        info!("all masters of the cluster can be called again");
    }
    *logged = away;
}

/// Nodes to ask for the topology: masters that can be called, then those of the configuration, then
/// the others.
fn asked(members: &Members, seeds: &[HostPort]) -> Vec<HostPort> {
    let (up, down): (Vec<_>, Vec<_>) =
        members.masters.iter().partition(|member| member.node.is_connected());
    let at = |member: &&super::Member| member.at.clone();
    let mut nodes: Vec<HostPort> = Vec::new();
    let all = up.iter().map(at).chain(seeds.iter().cloned()).chain(down.iter().map(at));
    for node in all {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes
}

fn random_byte() -> u8 {
    getrandom::u32().map_or(0, |number| number.to_le_bytes()[0])
}
