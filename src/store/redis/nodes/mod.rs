//! [`Nodes`]: the servers that have the buckets, the masters of a Redis Cluster or one server, and
//! which of them has a key.
//!
//! Each is a [`Node`] with a connection, a batcher and a circuit breaker, so that one that fails
//! sends only its buckets to local decisions. One server is a cluster with one master, which has
//! all buckets and never moves any. The client of the `redis` crate for clusters is not used: it
//! makes requests wait while it connects, and repeats commands.
//!
//! Reading order: this file (the nodes at this time), `follow` (calls that a node redirects),
//! `operator` (reading and adjusting buckets of several nodes), [`supervise`] (keeps the nodes up
//! to date, and makes the calls that concern no single one), `statements` (what requests hold),
//! `lapsed` and `settle` (debts).

mod failed;
#[cfg(test)]
pub(crate) mod fixture;
mod follow;
mod lapsed;
mod operator;
mod settle;
mod statements;
pub mod supervise;

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

use super::availability::{self, MasterStatus};
use super::batch::repair::Seen;
use super::batch::settle::Sum;
use super::batch::{Batcher, CallSeries, Target};
use super::cluster::slots;
use super::cluster::topology::{self, NO_MASTER, Topology};
use super::heartbeat::{PeerSeries, Peers};
use super::keys::{KeySpace, probe_number};
use super::link::breaker::{BreakerSeries, BreakerStatus, Override};
use super::link::history::History;
use super::link::{Connection, Connections, Link};
use super::node::Node;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::failure;
use crate::limit::charge::{self, BucketId, Charge, Charges};
use crate::net::address::HostPort;
use crate::net::lookup::system_resolver;
use crate::policy::redis::{Address, Redis};
use crate::store::debts::Debts;
use crate::store::held::Held;
use crate::store::rule::StoredRule;
pub use follow::{CallReply, Via};
pub use supervise::NodesSupervisor;

/// Time in microseconds after a redirection by which a slot counts as being moved.
const MIGRATION_US: u64 = 2 * MICROS_PER_SECOND;

/// Time in microseconds in which a redirection overrides a topology: the node that described it may
/// not have heard of the move.
const MOVE_US: u64 = MICROS_PER_SECOND;

/// Masters that slots have moved to, by redirections, and the time of each in microseconds.
type Moves = HashMap<u16, (HostPort, u64)>;

/// The servers that have the buckets.
pub struct Nodes {
    settings: Redis,
    carried: Carried,
    members: ArcSwap<Members>,
    /// Slots that have moved lately. Held while the masters are changed.
    moves: Mutex<Moves>,
    /// Ends the wait for the next question for the topology.
    refresh: Notify,
    /// Whether the first attempt to learn the topology of a cluster has ended.
    has_asked: watch::Sender<bool>,
    connections: Arc<Connections>,
    series: RedisSeries,
    peers: Peers,
    /// Override of the circuit breakers, also for masters to come.
    r#override: Mutex<Override>,
    /// Number that identifies this process.
    process: u64,
    /// Slots that are being moved, and the time in microseconds until which they count as such.
    migrating: Mutex<HashMap<u16, u64>>,
    /// Whether there may be any.
    has_migrating: AtomicBool,
    /// Reads streams.
    history: Arc<History>,
    /// These nodes, for each master of a cluster.
    this: Weak<Self>,
}

/// What calls to any of the nodes carry.
#[derive(Clone)]
struct Carried {
    keys: Arc<KeySpace>,
    debts: Arc<Debts>,
    held: Arc<Held>,
    /// Levels that the nodes reported, to repair a replica that takes over.
    seen: Option<Arc<Seen>>,
}

/// Prometheus series of Redis.
#[derive(Clone, Debug)]
pub struct RedisSeries {
    /// The circuit breaker; in a cluster the changes of all, and the state of all as that of one.
    pub breaker: BreakerSeries,
    /// State of the breaker of each master of a cluster, by `node`.
    pub breakers: IntGaugeVec,
    /// Calls and their checks.
    pub calls: CallSeries,
    /// The gateways that share Redis.
    pub peers: PeerSeries,
}

/// The nodes at one time.
#[derive(Default)]
struct Members {
    masters: Vec<Member>,
    /// Index of the master of each slot; [`NO_MASTER`] without one. Empty before the topology of a
    /// cluster is known. One server has one slot.
    owners: Vec<AtomicU16>,
}

/// A master of a cluster, or the one server.
#[derive(Clone)]
struct Member {
    /// `None`: the one server is a socket, or the master that sentinels name.
    at: Option<HostPort>,
    node: Arc<Node>,
    /// Keeps a master of a cluster connected.
    _task: Option<Arc<Task>>,
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
    /// Slot of the buckets; 0 of one server.
    pub slot: u16,
    /// Master of the slot; `None` if it is unknown.
    pub node: Option<Arc<Node>>,
    /// The charges, in the order of the request.
    pub charges: Charges,
}

/// Parts of a request, one for each slot.
pub type Parts = SmallVec<[Part; 2]>;

impl Nodes {
    /// The nodes of `settings`, without connections, and the supervisor that connects them. They
    /// keep at most `max_debts` debts, and state `held`. Does no I/O.
    pub fn new(
        settings: &Redis,
        max_debts: usize,
        held: Arc<Held>,
        series: RedisSeries,
    ) -> (Arc<Self>, NodesSupervisor) {
        let debts = Arc::new(Debts::new(max_debts).counting(series.calls.dropped.clone()));
        let seen = settings.has_repair().then(Arc::<Seen>::default);
        if let Address::Cluster(_) = settings.address {
            let keys = KeySpace::new(&settings.prefix, settings.lanes, settings.colocate);
            let carried = Carried { keys: Arc::new(keys), debts, held, seen };
            let nodes = Self::with(settings, carried, Members::default(), series);
            return (Arc::clone(&nodes), NodesSupervisor::new(nodes, None));
        }
        let (link, supervisor) = Link::new(settings, Some(series.breaker.clone()));
        let target = Target { seen, ..Target::server(link, &settings.prefix, debts, held) };
        let batcher = Batcher::new(target, settings.timeout, series.calls.clone());
        let nodes = Self::over(settings, batcher, series);
        let supervisor = supervisor.counting(Arc::clone(&nodes.connections));
        (Arc::clone(&nodes), NodesSupervisor::new(nodes, Some(supervisor)))
    }

    /// The one server of `settings`, which is reached through `batcher`.
    pub fn over(settings: &Redis, batcher: Arc<Batcher>, series: RedisSeries) -> Arc<Self> {
        let Target { keys, debts, held, seen, .. } = batcher.target();
        let at = match &settings.address {
            Address::Server(at) => Some(at.clone()),
            Address::Sentinel(_) | Address::Socket(_) | Address::Cluster(_) => None,
        };
        let node = Arc::new(Node::over(&settings.address.to_string(), batcher));
        let member = Member { at, node, _task: None };
        let members = Members { masters: vec![member], owners: vec![AtomicU16::new(0)] };
        Self::with(settings, Carried { keys, debts, held, seen }, members, series)
    }

    fn with(
        settings: &Redis,
        carried: Carried,
        members: Members,
        series: RedisSeries,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            settings: settings.clone(),
            carried,
            members: ArcSwap::from_pointee(members),
            moves: Mutex::default(),
            refresh: Notify::new(),
            has_asked: watch::Sender::new(false),
            connections: Arc::default(),
            peers: Peers::new(Some(series.peers.clone())),
            series,
            r#override: Mutex::default(),
            process: getrandom::u64().unwrap_or_else(|_| clock::now()),
            migrating: Mutex::default(),
            has_migrating: AtomicBool::new(false),
            history: Arc::new(History::new(settings.clone(), system_resolver())),
            this: this.clone(),
        })
    }

    /// Whether they are the masters of a Redis Cluster.
    fn is_cluster(&self) -> bool {
        matches!(self.settings.address, Address::Cluster(_))
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

    /// All of them at this time.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.members.load().masters.iter().map(|member| Arc::clone(&member.node)).collect()
    }

    /// The one server; `None` for a cluster.
    pub fn one(&self) -> Option<Arc<Node>> {
        (!self.is_cluster()).then(|| self.node_of_slot(0)).flatten()
    }

    /// State of each master of a cluster; empty with one server.
    pub fn masters(&self) -> Vec<MasterStatus> {
        if self.is_cluster() { self.status() } else { Vec::new() }
    }

    fn status(&self) -> Vec<MasterStatus> {
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
            address: member.node.address().to_owned(),
            slots,
            is_connected: member.node.is_connected(),
            breaker: member.node.breaker(),
        };
        each.map(status).collect()
    }

    /// The circuit breaker, in a cluster those of all masters as one: see
    /// [`availability::breaker`]. `None` while no master is known.
    pub fn breaker(&self) -> Option<BreakerStatus> {
        availability::breaker(&self.status())
    }

    /// The node that has a bucket; `None` if it is not known.
    pub fn node_of(&self, bucket: BucketId, rule: &StoredRule) -> Option<Arc<Node>> {
        self.node_of_slot(self.slot_of(bucket, rule))
    }

    /// The node that has a key.
    fn node_of_key(&self, key: &str) -> Option<Arc<Node>> {
        let slot = if self.is_cluster() { slots::slot_of_key(key.as_bytes()) } else { 0 };
        self.node_of_slot(slot)
    }

    /// The node that has a slot.
    pub fn node_of_slot(&self, slot: u16) -> Option<Arc<Node>> {
        self.members.load().of(slot).map(|member| Arc::clone(&member.node))
    }

    fn slot_of(&self, bucket: BucketId, rule: &StoredRule) -> u16 {
        if self.is_cluster() { self.carried.keys.keys().slot(bucket, rule) } else { 0 }
    }

    /// Groups what concerns buckets by the slot of each: one group for one server. The order of the
    /// groups differs from call to call.
    pub fn by_slot<T>(
        &self,
        all: Vec<T>,
        bucket: impl Fn(&T) -> (BucketId, &StoredRule),
    ) -> HashMap<u16, Vec<T>> {
        let mut slots: HashMap<u16, Vec<T>> = HashMap::new();
        for one in all {
            let (id, rule) = bucket(&one);
            slots.entry(self.slot_of(id, rule)).or_default().push(one);
        }
        slots
    }

    /// Debts of this process to the buckets.
    pub fn debts(&self) -> &Arc<Debts> {
        &self.carried.debts
    }

    /// Whether a statement of what requests hold is due.
    pub fn has_statements(&self) -> bool {
        !self.carried.held.is_empty()
    }

    /// Whether there are debts that are not settled, also in calls that are not answered.
    pub fn has_debts(&self) -> bool {
        !self.debts().is_empty() || self.debts().in_flight().debts > 0
    }

    /// Sum of the debts that are not settled.
    pub fn unsettled(&self) -> Sum {
        Sum::of(self.debts())
    }

    /// Flag that is set once a node has been reached.
    pub fn reached(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.connections.reached)
    }

    /// The gateways that share them.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Name of this process in the records of streams: 16 hexadecimal digits.
    pub fn gateway(&self) -> String {
        format!("{:016x}", self.process)
    }

    /// Reads streams.
    pub fn history(&self) -> Arc<History> {
        Arc::clone(&self.history)
    }

    /// Maximum time that a check may wait.
    pub fn budget(&self) -> Duration {
        self.settings.timeout
    }

    /// Whether all buckets can be called: every slot has a node that can be called.
    pub fn is_connected(&self) -> bool {
        let members = self.members.load();
        !members.owners.is_empty()
            && members.owners.iter().all(|owner| owner.load(Ordering::Relaxed) != NO_MASTER)
            && members.masters.iter().all(|member| member.node.is_connected())
    }

    /// Whether some buckets can be called.
    pub fn is_partly_connected(&self) -> bool {
        self.members.load().masters.iter().any(|member| member.node.is_connected())
    }

    /// Whether every request calls Redis: the breakers of all nodes are closed.
    pub fn admits_all(&self) -> bool {
        self.is_connected()
            && self.members.load().masters.iter().all(|member| member.node.admits_all())
    }

    /// Whether a node of these charges was unavailable until shortly before `now` (microseconds),
    /// so that gateways may not have stated there yet what they hold.
    pub fn is_settling(&self, charges: &[Charge], rules: &[StoredRule], now: u64) -> bool {
        let is_settling = |part: &Part| {
            charge::held(&part.charges).next().is_some()
                && part.node.as_ref().is_none_or(|node| node.is_settling(now))
        };
        self.parts(charges, rules).iter().any(is_settling)
    }

    /// Sets or ends the override of all circuit breakers.
    pub fn set_override(&self, wanted: Override) {
        *self.r#override.lock() = wanted;
        for node in self.all() {
            node.set_override(wanted);
        }
    }

    /// A number whose bucket of probes is in a slot of the master at `at`; `None` if it has no
    /// slot.
    fn probe_number(&self, at: &HostPort) -> Option<u64> {
        let members = self.members.load();
        let index = members.masters.iter().position(|member| member.is_at(at))?;
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
        let found = members.masters.iter().position(|member| member.is_at(at));
        if let (Some(index), Some(owner)) = (found, members.owners.get(usize::from(slot))) {
            owner.store(u16::try_from(index).unwrap_or(NO_MASTER), Ordering::Relaxed);
        }
        drop(moves);
        self.refresh.notify_one();
    }

    /// The master at `at`, if it is known.
    fn node_at(&self, at: &HostPort) -> Option<Arc<Node>> {
        let members = self.members.load();
        let member = members.masters.iter().find(|member| member.is_at(at));
        member.map(|member| Arc::clone(&member.node))
    }

    /// Connection to the master at `at`, if it is known and can be called.
    fn connection_to(&self, at: &HostPort) -> Option<(Arc<Node>, Connection)> {
        let node = self.node_at(at)?;
        let connection = node.link().current()?;
        Some((node, connection))
    }

    /// Starts a node for a master that was not known before another one named it: a replica that
    /// has taken over, or a new master. It has `slot`; its others follow with the topology.
    fn adopt(&self, at: &HostPort, slot: Option<u16>) {
        let before = self.members.load_full();
        let is_known = before.masters.iter().any(|member| member.is_at(at));
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
            let kept = before.masters.iter().find(|member| member.is_at(at));
            kept.cloned().unwrap_or_else(|| self.start(at))
        };
        let masters: Vec<Member> = topology.masters.iter().map(member).collect();
        let owners = topology.owners.iter().map(|owner| AtomicU16::new(*owner)).collect();
        let has_changed = masters.len() != before.masters.len()
            || masters.iter().any(|one| before.masters.iter().all(|was| was.at != one.at));
        self.members.store(Arc::new(Members { masters, owners }));
        let is_gone = |was: &&Member| !topology.masters.iter().any(|at| was.is_at(at));
        for gone in before.masters.iter().filter(is_gone) {
            let _ = self.series.breakers.remove_label_values(&[gone.node.address()]);
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

    /// Starts a node for the master of a cluster at `at`.
    fn start(&self, at: &HostPort) -> Member {
        let settings = Redis { address: Address::Server(at.clone()), ..self.settings.clone() };
        let address = settings.address.to_string();
        let state = self.series.breakers.with_label_values(&[&address]);
        let series = BreakerSeries { state, ..self.series.breaker.clone() };
        let (nodes, master) = (self.this.clone(), at.clone());
        let probe_number = Box::new(move || nodes.upgrade()?.probe_number(&master));
        let (link, supervisor) = Link::in_cluster(&settings, series, probe_number);
        let Carried { keys, debts, held, seen } = self.carried.clone();
        let target = Target { link, keys, cluster: Some(self.this.clone()), debts, held, seen };
        let batcher = Batcher::new(target, self.settings.timeout, self.series.calls.clone());
        let node = Arc::new(Node::over(&address, batcher));
        node.set_override(*self.r#override.lock());
        let supervisor = supervisor.counting(Arc::clone(&self.connections));
        let run = async move {
            supervisor.run().await;
        };
        let task = Task(tokio::spawn(failure::watch_task("redis master", run)));
        Member { at: Some(at.clone()), node, _task: Some(Arc::new(task)) }
    }
}

impl Member {
    fn is_at(&self, at: &HostPort) -> bool {
        self.at.as_ref() == Some(at)
    }
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
