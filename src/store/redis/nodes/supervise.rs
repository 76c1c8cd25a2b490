//! [`NodesSupervisor`]: connects one server, or learns the masters of a cluster; and makes the
//! calls that concern no single node: heartbeats, records for streams, and statements of what
//! requests hold. All in the background; no request waits for it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use pingora::server::ShutdownWatch;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tracing::{info, warn};

use super::failed::FailedNodes;
use super::{Member, Members, Nodes};
use crate::base::background::Background;
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
use crate::store::redis::cluster::topology::NO_MASTER;
use crate::store::redis::durability;
use crate::store::redis::heartbeat::{self, Sender};
use crate::store::redis::link::breaker::{BreakerState, Override};
use crate::store::redis::link::cluster::topology;
use crate::store::redis::link::journal::LogThrottle;
use crate::store::redis::link::{Connection, Supervisor};
use crate::store::redis::node::Node;
use crate::store::redis::stating::{self, PAUSE, RENEWAL_INTERVAL};

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

/// Keeps [`Nodes`] connected and up to date, for as long as the process lives.
pub struct NodesSupervisor {
    nodes: Arc<Nodes>,
    /// Connects the one server; `None` for a cluster, each of whose masters has its own.
    one: Option<Supervisor>,
    resolver: Resolver,
    /// Threads that read certificates.
    reads: BlockingCalls,
    /// Records for the stream of refusals.
    appending: Option<Appending>,
    /// Whether limits are counted whose counts must not be lost.
    has_quotas: bool,
}

impl Background for NodesSupervisor {
    /// Does not stop at a shutdown, as requests in flight still use the connections. Only the
    /// heartbeats end.
    fn start(&self, shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            tokio::join!(self.run(), self.nodes.peers.leave_at(shutdown));
        })
    }
}

impl NodesSupervisor {
    pub(super) fn new(nodes: Arc<Nodes>, one: Option<Supervisor>) -> Self {
        let (resolver, reads) = (system_resolver(), BlockingCalls::default());
        Self { nodes, one, resolver, reads, appending: None, has_quotas: false }
    }

    /// Also sends records to the stream of refusals.
    pub fn appending(self, appending: Appending) -> Self {
        Self { appending: Some(appending), ..self }
    }

    /// Warns once if a server does not keep the counts of quotas.
    pub fn keeping_quotas(self, has_quotas: bool) -> Self {
        Self { has_quotas, ..self }
    }

    /// Keeps the nodes connected and up to date. Never returns.
    pub async fn run(&self) {
        let keep_connected = async {
            if let Some(one) = &self.one {
                return one.run().await;
            }
            tokio::select! {
                never = self.keep_refreshing() => never,
                never = self.keep_watching() => never,
            }
        };
        tokio::select! {
            never = keep_connected => match never {},
            never = self.keep_sending_heartbeats() => match never {},
            never = self.keep_appending() => match never {},
            never = self.keep_stating() => match never {},
            never = self.nodes.keep_settling_lapsed() => match never {},
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
                    info!("the masters of {} are known again", self.nodes.settings.address);
                }
                Ok(()) => {}
                Err(error) => {
                    if !is_logged {
                        warn!(
                            "cannot learn the masters of {}: {error}",
                            self.nodes.settings.address
                        );
                    }
                    is_logged = true;
                }
            }
            self.nodes.has_asked.send_replace(true);
            let interval =
                if self.nodes.is_connected() { REFRESH_INTERVAL } else { SEARCH_INTERVAL };
            // Gateways that have started together do not ask together.
            let spread = interval.mul_f64(f64::from(random_byte()) / 1_024.0);
            sleep(REFRESH_PAUSE).await;
            tokio::select! {
                () = self.nodes.refresh.notified() => {}
                () = sleep(interval + spread) => {}
            }
        }
    }

    async fn learn(&self) -> Result<(), String> {
        let (settings, Address::Cluster(seeds)) =
            (&self.nodes.settings, &self.nodes.settings.address)
        else {
            return Err("the configuration has no cluster".to_owned());
        };
        let nodes = asked(&self.nodes.members.load(), seeds);
        let learned = topology(settings, &nodes, &self.resolver, &self.reads).await;
        let topology = learned.map_err(|error| error.to_string())?;
        let without = topology.owners.iter().filter(|owner| **owner == NO_MASTER).count();
        if self.nodes.apply(topology) {
            let members = self.nodes.members.load();
            let masters = members.masters.iter().map(|member| member.node.address());
            info!("the cluster's masters are {}", masters.collect::<Vec<&str>>().join(", "));
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

    /// Shows the breakers as one, and logs which masters are away.
    async fn keep_watching(&self) -> Infallible {
        let mut interval = tokio::time::interval(WATCH_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut logged, mut was_connected) = (None, false);
        loop {
            interval.tick().await;
            let is_connected = self.nodes.is_connected();
            if std::mem::replace(&mut was_connected, is_connected) && !is_connected {
                // The present wait of `keep_refreshing` is that of a cluster whose masters can all
                // be called.
                self.nodes.refresh.notify_one();
            }
            let masters = self.nodes.masters();
            let state = availability::breaker(&masters).map(|breaker| breaker.state);
            let state = state.unwrap_or(BreakerState::Closed);
            self.nodes.series.breaker.state.set(state as i64);
            log_away(&masters, &mut logged);
        }
    }

    /// Sends heartbeats until the gateway leaves, and records the number of live gateways. A
    /// failure has no effect on checks.
    async fn keep_sending_heartbeats(&self) -> Infallible {
        let mut interval = tokio::time::interval(heartbeat::INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (peers, prefix) = (&self.nodes.peers, &self.nodes.settings.prefix);
        let sender = Sender { prefix, process: self.nodes.process };
        let key = heartbeat::key(prefix);
        let mut connections = self.nodes.connections.count.subscribe();
        let mut journal = LogThrottle::default();
        loop {
            tokio::select! {
                biased;
                () = peers.until_leaving() => {
                    let announce_leave = |mut redis: MultiplexedConnection| {
                        async move { peers.announce_leave(&mut redis, sender).await }.boxed()
                    };
                    // Otherwise the others miss the gateway only later.
                    let _ = self.nodes.on_key(&key, announce_leave).await;
                    return pending().await;
                }
                // A server may have lost the heartbeats before.
                _ = connections.changed() => {}
                _ = interval.tick() => {}
            }
            let announce = |mut redis: MultiplexedConnection| {
                async move { peers.announce(&mut redis, sender).await }.boxed()
            };
            match self.nodes.on_key(&key, announce).await {
                Some(Ok(counts)) => {
                    peers.counted(counts);
                    if journal.wants_end("announce") {
                        info!("Redis counts this gateway again");
                    }
                }
                Some(Err((_, why))) if journal.wants("announce", clock::now()) => {
                    warn!(
                        "Redis does not count this gateway: {why}; for its part in an outage, set \
                         `instances` under `[server]`"
                    );
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    /// Sends records to the stream, one at a time, so that the result of each is known. They wait
    /// while its server cannot be called. A failure has no effect on checks.
    async fn keep_appending(&self) -> Infallible {
        let Some(appending) = &self.appending else { return pending().await };
        let mut connections = self.nodes.connections.count.subscribe();
        let mut journal = LogThrottle::default();
        loop {
            self.nodes.until(Nodes::is_partly_connected).await;
            let next = tokio::select! {
                biased;
                _ = connections.changed() => continue,
                next = appending.next() => next,
            };
            let Some(mut sending) = next else { return pending().await };
            sending.entry.fields.push(("gateway", self.nodes.gateway()));
            let key = &self.nodes.carried.keys.named(sending.entry.stream);
            self.nodes.until(|nodes| nodes.connection_of_key(key).is_some()).await;
            let entry = &sending.entry;
            let append = |mut redis: MultiplexedConnection| {
                async move { call::append(&mut redis, key, entry).await }.boxed()
            };
            match self.nodes.on_key(key, append).await {
                Some(Ok(())) => {
                    sending.arrived();
                    if journal.wants_end("append") {
                        info!("Redis takes refusals into {key} again");
                    }
                }
                Some(Err((class, why))) if journal.wants("append", clock::now()) => {
                    let help = match class {
                        ErrorClass::NoPermission => "; its user needs `+xadd`",
                        _ => "",
                    };
                    warn!("Redis does not take refusals into {key}: {why}{help}");
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    /// States what requests of this process hold.
    async fn keep_stating(&self) -> Infallible {
        let held = &self.nodes.carried.held;
        let mut interval = tokio::time::interval(RENEWAL_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut connections = self.nodes.connections.count.subscribe();
        let mut last_count = 0;
        let mut failed = FailedNodes::default();
        loop {
            let count = *connections.borrow_and_update();
            if count != last_count {
                // A node that was away, or another one, may have lost the statements.
                last_count = count;
                failed = FailedNodes::default();
                held.renew(true, clock::now());
            }
            let last = self.nodes.state_some(&mut failed).await;
            tokio::select! {
                biased;
                _ = connections.changed() => {}
                () = stating::until_next(last, held, &mut interval) => {}
            }
        }
    }

    /// Asks a node once whether it keeps the counts of quotas, and warns if not.
    async fn ask_for_durability(&self) -> Infallible {
        if !self.has_quotas {
            return pending().await;
        }
        let mut connections = self.nodes.connections.count.subscribe();
        loop {
            let nodes = self.nodes.all();
            if let Some(connection) = nodes.iter().find_map(|node| node.link().current()) {
                let mut redis = connection.redis.clone();
                if let Ok(found) = timeout(REPLY_TIMEOUT, durability::ask(&mut redis)).await {
                    durability::log(found);
                    return pending().await;
                }
            }
            // An error means that the nodes are gone.
            let _ = connections.changed().await;
        }
    }
}

impl Nodes {
    /// Waits until nodes can be called.
    async fn until(&self, can_be_called: impl Fn(&Self) -> bool) {
        let mut connections = self.connections.count.subscribe();
        while !can_be_called(self) {
            // A topology may name another master without a new connection.
            let _ = timeout(PAUSE, connections.changed()).await;
        }
    }

    fn connection_of_key(&self, key: &str) -> Option<(Arc<Node>, Connection)> {
        let node = self.node_of_key(key)?;
        let connection = node.link().current()?;
        Some((node, connection))
    }

    /// Runs a command on the node that has a key; also on another one that it has moved to. `None`
    /// if it cannot be called.
    ///
    /// # Errors
    /// Class and text of the error that the node answers.
    async fn on_key<'a, T>(
        &self,
        key: &str,
        run: impl Fn(MultiplexedConnection) -> BoxFuture<'a, RedisResult<T>>,
    ) -> Option<Result<T, (ErrorClass, String)>> {
        let (node, mut connection) = self.connection_of_key(key)?;
        for _ in 0..2 {
            let reply = timeout(REPLY_TIMEOUT, run(connection.redis.clone())).await.ok()?;
            let error = match reply {
                Ok(reply) => return Some(Ok(reply)),
                Err(error) => error,
            };
            match (self.moved_to(&error), classify(&error)) {
                (Some(other), _) => connection = other.connection,
                // The node notices it by its own calls.
                (None, ErrorClass::Connection | ErrorClass::Cluster) => return None,
                (None, class) => return Some(Err((class, node.link().describe(&error)))),
            }
        }
        None
    }

    /// Waits for the result of the first attempt to connect to each node, at most for `limit`.
    /// Returns whether a node was reached.
    pub async fn until_first_attempt(&self, limit: Duration) -> bool {
        let attempted = async {
            if self.is_cluster() {
                // An error means that the nodes are gone.
                let _ = self.has_asked.subscribe().wait_for(|has_asked| *has_asked).await;
            }
            let nodes = self.all();
            join_all(nodes.iter().map(|node| node.link().until_first_attempt(limit))).await;
        };
        let _ = timeout(limit, attempted).await;
        self.all().iter().any(|node| node.is_reached())
    }

    /// States what requests hold, settles all debts, and takes those of ended periods from top-ups:
    /// each of the three within about `limit`.
    pub async fn settle(&self, limit: Duration) -> Settlement {
        self.state_all(limit).await;
        let settlement = self.settle_all(limit).await;
        // What is left is lost with the process.
        let _ = timeout(limit, self.settle_lapsed()).await;
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
    let mut nodes: Vec<HostPort> = Vec::new();
    let at = |members: &[&Member]| {
        members.iter().filter_map(|member| member.at.clone()).collect::<Vec<_>>()
    };
    let all = at(&up).into_iter().chain(seeds.iter().cloned()).chain(at(&down));
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
