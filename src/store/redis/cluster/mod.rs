//! Redis Cluster: the masters that have the buckets, and which of them has a key.
//!
//! Each master is a [`Node`] with a connection, a batcher and a circuit breaker, so that one that
//! fails sends only its buckets to local decisions. The client of the `redis` crate for clusters is
//! not used: it makes requests wait while it connects, and repeats commands.
//!
//! Reading order: [`slots`] (slot of a key), [`topology`] (master of a slot), [`redirect`] (errors
//! by which a node names another one), this file (the current masters), `follow` (calls that a node
//! redirects), [`supervise`] (keeps the masters up to date, and makes the calls that concern no
//! single master).

mod follow;
pub mod redirect;
pub mod slots;
pub mod supervise;
pub mod topology;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::IntGaugeVec;
use smallvec::SmallVec;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::availability::MasterStatus;
use super::batch::Target;
use super::batch::repair::Seen;
use super::heartbeat::Peers;
use super::keys::KeySpace;
use super::link::breaker::Override;
use super::link::history::History;
use super::link::{Connection, Supervisor};
use super::node::{Node, NodeSeries};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::failure;
use crate::limit::charge::{BucketId, Charge, Charges};
use crate::net::address::HostPort;
use crate::net::lookup::system_resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::debts::Debts;
use crate::store::held::Held;
use crate::store::rule::StoredRule;
pub use follow::{CallReply, Via};
pub use supervise::ClusterSupervisor;
use topology::{NO_MASTER, Topology, probe_number};

/// Time in microseconds after a redirection by which a slot counts as being moved.
const MIGRATION_US: u64 = 2 * MICROS_PER_SECOND;

/// Time in microseconds in which a redirection overrides a topology: the node that described it may
/// not have heard of the move.
const MOVE_US: u64 = MICROS_PER_SECOND;

/// Masters that slots have moved to, by redirections, and the time of each in microseconds.
type Moves = HashMap<u16, (HostPort, u64)>;

/// The masters of a Redis Cluster.
pub struct Cluster {
    settings: Redis,
    keys: Arc<KeySpace>,
    members: ArcSwap<Members>,
    /// Slots that have moved lately. Held while the masters are changed.
    moves: Mutex<Moves>,
    /// Ends the wait for the next question for the topology.
    refresh: Notify,
    /// Number of attempts to learn the topology and to reach its masters.
    attempts: watch::Sender<u64>,
    reached: Arc<AtomicBool>,
    debts: Arc<Debts>,
    held: Arc<Held>,
    series: ClusterSeries,
    peers: Peers,
    /// Override of the circuit breakers, also for masters to come.
    r#override: Mutex<Override>,
    /// Number that identifies this process.
    process: u64,
    /// Slots that are being moved, and the time in microseconds until which they count as such.
    migrating: Mutex<HashMap<u16, u64>>,
    /// Whether there may be any.
    has_migrating: AtomicBool,
    /// Levels that the masters reported, to repair a replica that takes over.
    seen: Option<Arc<Seen>>,
    /// Reads streams.
    history: Arc<History>,
    /// This cluster, for its nodes.
    this: Weak<Self>,
}

/// Prometheus series of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSeries {
    /// Those that all nodes count in, and the state of the breaker that is furthest from closed.
    pub all: NodeSeries,
    /// State of the breaker of each node, by `node`.
    pub breakers: IntGaugeVec,
}

/// The masters at one time.
#[derive(Default)]
struct Members {
    masters: Vec<Member>,
    /// Index of the master of each slot; [`NO_MASTER`] without one. Empty before the topology is
    /// known.
    owners: Vec<AtomicU16>,
}

/// A master, and the task that keeps it connected.
#[derive(Clone)]
struct Member {
    at: HostPort,
    node: Arc<Node>,
    _task: Arc<Task>,
}

/// A task that is stopped when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The charges of a request whose buckets are in one slot.
pub struct Part {
    /// Slot of the buckets.
    pub slot: u16,
    /// Master of the slot; `None` if it is unknown.
    pub node: Option<Arc<Node>>,
    /// The charges, in the order of the request.
    pub charges: Charges,
}

/// Parts of a request, one for each slot.
pub type Parts = SmallVec<[Part; 2]>;

impl Cluster {
    /// The cluster of `settings`, and the supervisor that learns its masters. It keeps at most
    /// `max_debts` debts, and states `held`. Does no I/O.
    pub fn new(
        settings: &Redis,
        max_debts: usize,
        held: Arc<Held>,
        series: ClusterSeries,
    ) -> (Arc<Self>, ClusterSupervisor) {
        let debts = Debts::new(max_debts).counting(series.all.calls.dropped.clone());
        let peers = Peers::new(Some(series.all.link.peers.clone()));
        let cluster = Arc::new_cyclic(|this| Self {
            settings: settings.clone(),
            keys: Arc::new(KeySpace::new(&settings.prefix, settings.lanes, settings.colocate)),
            members: ArcSwap::default(),
            moves: Mutex::default(),
            refresh: Notify::new(),
            attempts: watch::Sender::new(0),
            reached: Arc::default(),
            debts: Arc::new(debts),
            held,
            series,
            peers,
            r#override: Mutex::default(),
            process: getrandom::u64().unwrap_or_else(|_| clock::now()),
            migrating: Mutex::default(),
            has_migrating: AtomicBool::new(false),
            seen: settings.has_repair().then(Arc::<Seen>::default),
            history: Arc::new(History::new(settings.clone(), system_resolver())),
            this: this.clone(),
        });
        (Arc::clone(&cluster), ClusterSupervisor::new(cluster))
    }

    /// Splits the charges of a request by slot, and those of a slot that is being moved by bucket.
    /// `rules` are those of the policy that they come from, by index.
    pub fn parts(&self, charges: &[Charge], rules: &[StoredRule]) -> Parts {
        let members = self.members.load();
        let mut parts = Parts::new();
        for charge in charges {
            let rule = rules.get(charge.rule as usize);
            let slot = rule.map_or(0, |rule| self.slot_of(charge.bucket, rule));
            let is_whole = !self.is_migrating(slot);
            match parts.iter_mut().find(|part| part.slot == slot && is_whole) {
                Some(part) => part.charges.push(*charge),
                None => parts.push(Part {
                    slot,
                    node: members.of(slot).map(|member| Arc::clone(&member.node)),
                    charges: std::iter::once(*charge).collect(),
                }),
            }
        }
        parts
    }

    /// Splits a part whose slot is being moved by bucket: its keys may be at two masters.
    pub fn by_bucket(&self, part: &Part) -> Parts {
        let node = self.node_of_slot(part.slot);
        let one = |charge: &Charge| Part {
            slot: part.slot,
            node: node.clone(),
            charges: std::iter::once(*charge).collect(),
        };
        part.charges.iter().map(one).collect()
    }

    /// The current masters.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.members.load().masters.iter().map(|member| Arc::clone(&member.node)).collect()
    }

    /// State of each master.
    pub fn masters(&self) -> Vec<MasterStatus> {
        let members = self.members.load();
        let mut slots = vec![0; members.masters.len()];
        for owner in &members.owners {
            let owner = usize::from(owner.load(Ordering::Relaxed));
            if let Some(slots) = slots.get_mut(owner) {
                *slots += 1;
            }
        }
        let each = members.masters.iter().zip(slots);
        let status = |(member, slots): (&Member, usize)| MasterStatus {
            address: member.at.to_string(),
            slots,
            is_connected: member.node.is_connected(),
            breaker: member.node.breaker(),
        };
        each.map(status).collect()
    }

    /// The master that has a key.
    pub fn node_of_key(&self, key: &str) -> Option<Arc<Node>> {
        self.node_of_slot(slots::slot_of_key(key.as_bytes()))
    }

    /// The master of a slot.
    pub fn node_of_slot(&self, slot: u16) -> Option<Arc<Node>> {
        self.members.load().of(slot).map(|member| Arc::clone(&member.node))
    }

    pub fn slot_of(&self, bucket: BucketId, rule: &StoredRule) -> u16 {
        self.keys.keys().slot(bucket, rule)
    }

    /// Names of the keys.
    pub fn keys(&self) -> &KeySpace {
        &self.keys
    }

    /// Debts of this process to its buckets.
    pub fn debts(&self) -> &Arc<Debts> {
        &self.debts
    }

    /// Units that requests of this process hold.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Flag that is set once a master has been reached.
    pub fn reached(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reached)
    }

    /// The gateways that share the cluster.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Address of the configuration, for logs and status.
    pub fn address(&self) -> &Address {
        &self.settings.address
    }

    /// Maximum time that a check may wait.
    pub fn budget(&self) -> Duration {
        self.settings.timeout
    }

    /// Whether every slot has a master that can be called.
    pub fn is_connected(&self) -> bool {
        let members = self.members.load();
        !members.owners.is_empty()
            && members.owners.iter().all(|owner| owner.load(Ordering::Relaxed) != NO_MASTER)
            && members.masters.iter().all(|member| member.node.is_connected())
    }

    /// Sets or ends the override of all circuit breakers.
    pub fn set_override(&self, wanted: Override) {
        *self.r#override.lock() = wanted;
        for node in self.nodes() {
            node.set_override(wanted);
        }
    }

    /// A number whose bucket of probes is in a slot of the master at `at`; `None` if it has no
    /// slot.
    pub(super) fn probe_number(&self, at: &HostPort) -> Option<u64> {
        let members = self.members.load();
        let index = members.masters.iter().position(|member| member.at == *at)?;
        probe_number(self.process, |slot| members.index_of(slot) == Some(index))
    }

    /// Whether a slot is being moved from one master to another.
    pub fn is_migrating(&self, slot: u16) -> bool {
        if !self.has_migrating.load(Ordering::Relaxed) {
            return false;
        }
        let now = clock::now();
        let mut migrating = self.migrating.lock();
        migrating.retain(|_, until| *until > now);
        self.has_migrating.store(!migrating.is_empty(), Ordering::Relaxed);
        migrating.contains_key(&slot)
    }

    /// Notes that a slot is being moved.
    fn note_migrating(&self, slot: u16) {
        self.migrating.lock().insert(slot, clock::now().saturating_add(MIGRATION_US));
        self.has_migrating.store(true, Ordering::Relaxed);
    }

    /// Notes that a slot has moved to the master at `at`.
    fn note_moved(&self, slot: u16, at: &HostPort) {
        let mut moves = self.moves.lock();
        moves.insert(slot, (at.clone(), clock::now()));
        self.adopt(at, Some(slot));
        let members = self.members.load();
        let found = members.masters.iter().position(|member| member.at == *at);
        if let (Some(index), Some(owner)) = (found, members.owners.get(usize::from(slot))) {
            owner.store(u16::try_from(index).unwrap_or(NO_MASTER), Ordering::Relaxed);
        }
        drop(moves);
        self.refresh.notify_one();
    }

    /// The master at `at`, if it is known.
    fn node_at(&self, at: &HostPort) -> Option<Arc<Node>> {
        let members = self.members.load();
        let member = members.masters.iter().find(|member| member.at == *at);
        member.map(|member| Arc::clone(&member.node))
    }

    /// Connection to the master at `at`, if it is known and can be called.
    fn connection_to(&self, at: &HostPort) -> Option<(Arc<Node>, Connection)> {
        let node = self.node_at(at)?;
        let connection = node.batcher().link().current()?;
        Some((node, connection))
    }

    /// Starts a node for a master that was not known before another one named it: a replica that
    /// has taken over, or a new master. It has `slot`; its others follow with the topology.
    fn adopt(&self, at: &HostPort, slot: Option<u16>) {
        let before = self.members.load_full();
        let is_known = before.masters.iter().any(|member| member.at == *at);
        if is_known || before.masters.len() >= topology::MAX_MASTERS {
            return;
        }
        let owner = |owner: &AtomicU16| AtomicU16::new(owner.load(Ordering::Relaxed));
        let mut owners: Vec<AtomicU16> = before.owners.iter().map(owner).collect();
        if let Some(owner) = slot.and_then(|slot| owners.get_mut(usize::from(slot))) {
            *owner = AtomicU16::new(u16::try_from(before.masters.len()).unwrap_or(NO_MASTER));
        }
        let masters = before.masters.iter().cloned().chain([self.start(at)]).collect();
        self.members.store(Arc::new(Members { masters, owners }));
    }

    /// Takes over a topology: keeps the masters that stay, starts new ones, and stops the others.
    /// Returns whether the masters have changed.
    fn apply(&self, topology: Topology) -> bool {
        let mut moves = self.moves.lock();
        let now = clock::now();
        moves.retain(|_, (_, time)| now.saturating_sub(*time) < MOVE_US);
        let topology = topology.after(moves.iter().map(|(slot, (at, _))| (*slot, at)));
        let before = self.members.load_full();
        let member = |at: &HostPort| {
            let kept = before.masters.iter().find(|member| member.at == *at);
            kept.cloned().unwrap_or_else(|| self.start(at))
        };
        let masters: Vec<Member> = topology.masters.iter().map(member).collect();
        let owners = topology.owners.iter().map(|owner| AtomicU16::new(*owner)).collect();
        let has_changed = masters.len() != before.masters.len()
            || masters.iter().any(|one| before.masters.iter().all(|was| was.at != one.at));
        self.members.store(Arc::new(Members { masters, owners }));
        for gone in before.masters.iter().filter(|was| !topology.masters.contains(&was.at)) {
            let _ = self.series.breakers.remove_label_values(&[&gone.at.to_string()]);
            self.dismiss(gone.clone());
        }
        has_changed
    }

    /// Ends the connection to a node that is no master any more, once its calls in flight are over.
    fn dismiss(&self, gone: Member) {
        let calls = 2 * self.settings.timeout;
        tokio::spawn(async move {
            tokio::time::sleep(calls).await;
            drop(gone);
        });
    }

    /// Starts a node for the master at `at`.
    fn start(&self, at: &HostPort) -> Member {
        let settings = Redis { address: Address::Server(at.clone()), ..self.settings.clone() };
        let mut series = self.series.all.clone();
        series.link.breaker.state = self.series.breakers.with_label_values(&[&at.to_string()]);
        let target = |link| Target {
            link,
            keys: Arc::clone(&self.keys),
            cluster: Some(self.this.clone()),
            debts: Arc::clone(&self.debts),
            held: Arc::clone(&self.held),
            seen: self.seen.clone(),
        };
        let (node, supervisor) = Node::in_cluster(&settings, series, self.this.clone(), target);
        node.set_override(*self.r#override.lock());
        let task =
            Arc::new(Task(tokio::spawn(failure::watch_task("redis master", run(supervisor)))));
        Member { at: at.clone(), node: Arc::new(node), _task: task }
    }
}

async fn run(supervisor: Supervisor) {
    supervisor.run().await;
}

impl Members {
    fn index_of(&self, slot: u16) -> Option<usize> {
        let index = self.owners.get(usize::from(slot))?.load(Ordering::Relaxed);
        (index != NO_MASTER).then_some(usize::from(index))
    }

    /// The master of a slot.
    fn of(&self, slot: u16) -> Option<&Member> {
        self.masters.get(self.index_of(slot)?)
    }
}
