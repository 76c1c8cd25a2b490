//! [`Nodes`]: the servers that have the buckets, whether there is one or a cluster of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use super::append::Appending;
use super::availability::{self, MasterStatus};
use super::batch::Undecided;
use super::batch::adjust::{LevelChange, NotAdjusted};
use super::batch::settle::{Settlement, Sum};
use super::cluster::{Cluster, ClusterSeries, ClusterSupervisor};
use super::heartbeat::Peers;
use super::link::Supervisor;
use super::link::breaker::{BreakerStatus, Override};
use super::link::history::History;
use super::node::Node;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{self, BucketId, Charge};
use crate::limit::reading::Reading;
use crate::policy::redis::{Address, Redis};
use crate::store::debts::Debts;
use crate::store::held::Held;
use crate::store::rule::StoredRule;

/// The servers that have the buckets.
#[derive(Clone)]
pub enum Nodes {
    /// One server, or the master of a group of sentinels.
    One(Arc<Node>),
    /// The masters of a Redis Cluster.
    Cluster(Arc<Cluster>),
}

/// Keeps the nodes connected, for as long as the process lives.
pub enum NodesSupervisor {
    /// That of one server.
    One(Box<Supervisor>),
    Cluster(Box<ClusterSupervisor>),
}

impl NodesSupervisor {
    /// Also sends records to the stream of refusals.
    pub fn appending(self, appending: Appending) -> Self {
        match self {
            Self::One(one) => Self::One(Box::new(one.appending(appending))),
            Self::Cluster(all) => Self::Cluster(Box::new(all.appending(appending))),
        }
    }

    /// Warns once if a server does not keep the counts of quotas.
    pub fn keeping_quotas(self, has_quotas: bool) -> Self {
        match self {
            Self::One(one) => Self::One(Box::new(one.keeping_quotas(has_quotas))),
            Self::Cluster(all) => Self::Cluster(Box::new(all.keeping_quotas(has_quotas))),
        }
    }
}

#[async_trait]
impl BackgroundService for NodesSupervisor {
    async fn start(&self, shutdown: ShutdownWatch) {
        match self {
            Self::One(one) => one.start(shutdown).await,
            Self::Cluster(all) => all.start(shutdown).await,
        }
    }
}

impl Nodes {
    /// The servers of `settings`, without connections, and the supervisor that connects them. They
    /// keep at most `max_debts` debts, and state `held`. Does no I/O.
    pub fn new(
        settings: &Redis,
        max_debts: usize,
        held: Arc<Held>,
        series: ClusterSeries,
    ) -> (Self, NodesSupervisor) {
        if let Address::Cluster(_) = &settings.address {
            let (cluster, supervisor) = Cluster::new(settings, max_debts, held, series);
            return (Self::Cluster(cluster), NodesSupervisor::Cluster(Box::new(supervisor)));
        }
        let (node, supervisor) = Node::new(settings, max_debts, held, series.all);
        (Self::One(Arc::new(node)), NodesSupervisor::One(Box::new(supervisor)))
    }

    /// Waits for the result of the first connection attempts, at most for `limit`. Returns whether
    /// a node was reached.
    pub async fn until_first_attempt(&self, limit: Duration) -> bool {
        match self {
            Self::One(node) => node.batcher().link().until_first_attempt(limit).await,
            Self::Cluster(cluster) => cluster.until_first_attempt(limit).await,
        }
        self.all().iter().any(|node| node.is_reached())
    }

    /// All of them at this time.
    pub fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The one that has a bucket; `None` if it is not known.
    pub fn node_of(&self, bucket: BucketId, rule: &StoredRule) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.node_of_slot(cluster.slot_of(bucket, rule)),
        }
    }

    /// Whether all buckets can be called.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::One(node) => node.is_connected(),
            Self::Cluster(cluster) => cluster.is_connected(),
        }
    }

    /// Whether some buckets can be called.
    pub fn is_partly_connected(&self) -> bool {
        self.all().iter().any(|node| node.is_connected())
    }

    /// State of each master of a cluster; empty with one server.
    pub fn masters(&self) -> Vec<MasterStatus> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// The circuit breaker, in a cluster those of all masters as one: see
    /// [`availability::breaker`]. `None` while no master is known.
    pub fn breaker(&self) -> Option<BreakerStatus> {
        match self {
            Self::One(node) => Some(node.breaker()),
            Self::Cluster(cluster) => availability::breaker(&cluster.masters()),
        }
    }

    /// Whether every request calls Redis: the breakers of all nodes are closed.
    pub fn admits_all(&self) -> bool {
        match self {
            Self::One(node) => node.admits_all(),
            Self::Cluster(_) => {
                self.is_connected() && self.all().iter().all(|node| node.admits_all())
            }
        }
    }

    /// Flag that is set once a node has been reached.
    pub fn reached(&self) -> Arc<AtomicBool> {
        match self {
            Self::One(node) => node.reached(),
            Self::Cluster(cluster) => cluster.reached(),
        }
    }

    /// The gateways that share them.
    pub fn peers(&self) -> &Peers {
        match self {
            Self::One(node) => node.batcher().link().peers(),
            Self::Cluster(cluster) => cluster.peers(),
        }
    }

    /// Name of this process in the records of streams: 16 hexadecimal digits.
    pub fn gateway(&self) -> String {
        match self {
            Self::One(node) => node.gateway().to_owned(),
            Self::Cluster(cluster) => cluster.gateway(),
        }
    }

    /// Reads streams.
    pub fn history(&self) -> Option<Arc<History>> {
        match self {
            Self::One(node) => node.history(),
            Self::Cluster(cluster) => Some(cluster.history()),
        }
    }

    /// Sets or ends the override of the circuit breakers.
    pub fn set_override(&self, wanted: Override) {
        match self {
            Self::One(node) => node.set_override(wanted),
            Self::Cluster(cluster) => cluster.set_override(wanted),
        }
    }

    /// Maximum time that a check may wait.
    pub fn budget(&self) -> Duration {
        match self {
            Self::One(node) => node.batcher().budget(),
            Self::Cluster(cluster) => cluster.budget(),
        }
    }

    /// Debts of this process to the buckets.
    pub fn debts(&self) -> &Arc<Debts> {
        match self {
            Self::One(node) => node.debts(),
            Self::Cluster(cluster) => cluster.debts(),
        }
    }

    /// Whether a statement of what requests hold is due.
    pub fn has_statements(&self) -> bool {
        match self {
            Self::One(node) => !node.batcher().held().is_empty(),
            Self::Cluster(cluster) => !cluster.held().is_empty(),
        }
    }

    /// Whether a node of these charges was unavailable until shortly before `now` (microseconds),
    /// so that gateways may not have stated there yet what they hold.
    pub fn is_settling(&self, charges: &[Charge], rules: &[StoredRule], now: u64) -> bool {
        match self {
            Self::One(node) => node.is_settling(now),
            Self::Cluster(cluster) => {
                let parts = cluster.parts(charges, rules);
                let is_settling = |node: &Arc<Node>| node.is_settling(now);
                let holds_units =
                    |part: &super::cluster::Part| charge::held(&part.charges).next().is_some();
                let is_settling =
                    |part: &super::cluster::Part| part.node.as_ref().is_none_or(is_settling);
                parts.iter().any(|part| holds_units(part) && is_settling(part))
            }
        }
    }

    /// State of the charges' buckets: see [`Batcher::peek`](super::batch::Batcher::peek).
    ///
    /// # Errors
    /// A node does not answer, or not within `timeout`.
    pub async fn peek(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        timeout: Duration,
    ) -> Result<Vec<Option<Reading>>, Undecided> {
        let cluster = match self {
            Self::One(node) => return node.batcher().peek(charges, rules, timeout).await,
            Self::Cluster(cluster) => cluster,
        };
        let parts = cluster.parts(charges, rules);
        let peeks = parts.iter().map(|part| async move {
            let node = part.node.as_ref().ok_or(Undecided::NotTaken)?;
            node.batcher().peek(&part.charges, rules, timeout).await
        });
        let mut found = vec![None; charges.len()];
        for (part, readings) in parts.iter().zip(join_all(peeks).await) {
            for (charge, reading) in part.charges.iter().zip(readings?) {
                for at in positions(charges, charge) {
                    found[at] = reading;
                }
            }
        }
        Ok(found)
    }

    /// Adjusts buckets for an operator: see [`Batcher::adjust`](super::batch::Batcher::adjust). In
    /// a cluster, all or none holds for the buckets of each slot only.
    ///
    /// # Errors
    /// See [`NotAdjusted`]. In a cluster, [`NotAdjusted::Unknown`] also if some buckets were
    /// changed before an error.
    pub async fn adjust(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        adjustment: Adjustment,
    ) -> Result<Vec<LevelChange>, NotAdjusted> {
        let cluster = match self {
            Self::One(node) => return node.batcher().adjust(charges, rules, adjustment).await,
            Self::Cluster(cluster) => cluster,
        };
        let mut moved = vec![(0, 0); charges.len()];
        for (done, part) in cluster.parts(charges, rules).into_iter().enumerate() {
            let failed = |error| if done > 0 { NotAdjusted::Unknown } else { error };
            let node = part.node.ok_or_else(|| failed(NotAdjusted::Unchanged))?;
            let adjusted = node.batcher().adjust(&part.charges, rules, adjustment).await;
            let adjusted = adjusted.map_err(|error| match error {
                NotAdjusted::Unreadable(at) => {
                    let charge = part.charges.get(at);
                    let at = charge.and_then(|charge| positions(charges, charge).next());
                    failed(at.map_or(NotAdjusted::Unchanged, NotAdjusted::Unreadable))
                }
                NotAdjusted::Unchanged | NotAdjusted::Unknown => failed(error),
            })?;
            for (charge, change) in part.charges.iter().zip(adjusted) {
                for at in positions(charges, charge) {
                    moved[at] = change;
                }
            }
        }
        Ok(moved)
    }

    /// Settles the debts to the buckets of these charges: one call, or in a cluster one for each
    /// slot. Buckets without a debt are not called for.
    ///
    /// # Errors
    /// That of the first call that failed: see [`NotAdjusted`]. The other calls are made.
    pub async fn settle_debts(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
    ) -> Result<(), NotAdjusted> {
        let debts = self.debts();
        let owed: Vec<Charge> =
            charges.iter().filter(|charge| debts.has(charge.bucket)).copied().collect();
        if owed.is_empty() {
            return Ok(());
        }
        let nothing = Adjustment::GiveBack(0);
        let error = |error, part: &[Charge]| match error {
            NotAdjusted::Unreadable(at) => {
                let charge = part.get(at);
                let at = charge.and_then(|charge| positions(charges, charge).next());
                at.map_or(NotAdjusted::Unchanged, NotAdjusted::Unreadable)
            }
            error => error,
        };
        let cluster = match self {
            Self::One(node) => {
                let settled = node.batcher().adjust(&owed, rules, nothing).await;
                return settled.map(drop).map_err(|why| error(why, &owed));
            }
            Self::Cluster(cluster) => cluster,
        };
        let mut result = Ok(());
        for part in cluster.parts(&owed, rules) {
            let settled = match &part.node {
                Some(node) => node.batcher().adjust(&part.charges, rules, nothing).await.map(drop),
                None => Err(NotAdjusted::Unchanged),
            };
            result = result.and(settled.map_err(|why| error(why, &part.charges)));
        }
        result
    }

    /// Settles all debts, and states what requests hold, within about `timeout`.
    pub async fn settle(&self, timeout: Duration) -> Settlement {
        match self {
            Self::One(node) => {
                node.batcher().state_all(timeout).await;
                node.batcher().settle_all(timeout).await
            }
            Self::Cluster(cluster) => {
                cluster.state_all(timeout).await;
                cluster.settle_all(timeout).await
            }
        }
    }

    /// Sum of the debts that are not settled.
    pub fn unsettled(&self) -> Sum {
        Sum::of(self.debts())
    }
}

/// Places of the charges of a bucket.
fn positions<'a>(charges: &'a [Charge], of: &'a Charge) -> impl Iterator<Item = usize> + 'a {
    let is_same = |(_, charge): &(usize, &Charge)| charge.bucket == of.bucket;
    charges.iter().enumerate().filter(is_same).map(|(at, _)| at)
}
