//! A node: one Redis server, and everything that this process keeps for it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use super::batch::repair::Seen;
use super::batch::{Batcher, CallSeries, Target};
use super::cluster::Cluster;
use super::link::breaker::{BreakerStatus, Override};
use super::link::history::History;
use super::link::{Link, LinkSeries, Supervisor};
use crate::policy::redis::Redis;
use crate::store::debts::Debts;
use crate::store::held::Held;

/// One Redis server, or the master of a group of sentinels: its connection and circuit breaker, the
/// checks that wait for a call of it, and the debts to its buckets.
pub struct Node {
    /// Address of the configuration, without user and password.
    address: String,
    batcher: Arc<Batcher>,
    /// Name of this process in the records of streams.
    gateway: String,
    /// Reads streams; `None` in tests.
    history: Option<Arc<History>>,
}

/// Prometheus series of a node.
#[derive(Clone, Debug)]
pub struct NodeSeries {
    /// Connection and circuit breaker.
    pub link: LinkSeries,
    /// Calls and their checks.
    pub calls: CallSeries,
}

impl Node {
    /// A node without a connection, and the supervisor that connects it. It keeps at most
    /// `max_debts` debts, and states `held`. Does no I/O.
    pub fn new(
        settings: &Redis,
        max_debts: usize,
        held: Arc<Held>,
        series: NodeSeries,
    ) -> (Self, Supervisor) {
        let (link, supervisor) = Link::new(settings, Some(series.link));
        let debts = Debts::new(max_debts).counting(series.calls.dropped.clone());
        let supervisor = supervisor.stating(Arc::clone(&held));
        let target = Target {
            seen: settings.has_repair().then(Arc::<Seen>::default),
            ..Target::server(link, &settings.prefix, Arc::new(debts), held)
        };
        let batcher = Batcher::new(target, settings.timeout, series.calls);
        let (gateway, history) = (supervisor.gateway(), Some(Arc::new(supervisor.history())));
        (Self { address: settings.address.to_string(), batcher, gateway, history }, supervisor)
    }

    /// A node that is a master of `cluster`, which has the rest of what calls carry.
    pub(super) fn in_cluster(
        settings: &Redis,
        series: NodeSeries,
        cluster: Weak<Cluster>,
        target: impl FnOnce(Arc<Link>) -> Target,
    ) -> (Self, Supervisor) {
        let (link, supervisor) = Link::in_cluster(settings, series.link);
        let supervisor = supervisor.in_cluster(cluster);
        let batcher = Batcher::new(target(link), settings.timeout, series.calls);
        let address = settings.address.to_string();
        (Self { address, batcher, gateway: String::new(), history: None }, supervisor)
    }

    /// A node at `address` that is reached through `batcher`.
    pub fn over(address: &str, batcher: Arc<Batcher>) -> Self {
        Self { address: address.to_owned(), batcher, gateway: String::new(), history: None }
    }

    /// Address of the configuration, for logs and status.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Name of this process in the records of streams: 16 hexadecimal digits.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Reads its streams.
    pub fn history(&self) -> Option<Arc<History>> {
        self.history.clone()
    }

    /// State of its circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.link().breaker()
    }

    /// Sets or ends the override of its circuit breaker.
    pub fn set_override(&self, wanted: Override) {
        self.link().set_override(wanted);
    }

    /// Whether it can be called: there is a connection, and the breaker is not open.
    pub fn is_connected(&self) -> bool {
        self.link().is_up()
    }

    /// Whether every request calls it: there is a connection, and the breaker is closed.
    pub fn admits_all(&self) -> bool {
        self.link().admits_all()
    }

    /// Whether it has been reached since the start.
    pub fn is_reached(&self) -> bool {
        self.link().is_reached()
    }

    /// Flag that is set once it has been reached.
    pub fn reached(&self) -> Arc<AtomicBool> {
        self.link().reached()
    }

    /// Microseconds until its next probe; 0 while its breaker is closed.
    pub fn retry_after_us(&self) -> u64 {
        self.link().retry_after_us()
    }

    /// Whether it was unavailable until shortly before `now` (microseconds), so that gateways may
    /// not have stated yet what they hold, or some requests are decided locally.
    pub fn is_settling(&self, now: u64) -> bool {
        self.link().is_settling(now) || !self.admits_all()
    }

    /// Debts of this process to its buckets.
    pub fn debts(&self) -> &Arc<Debts> {
        self.batcher.debts()
    }

    /// The batcher that sends checks to it.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.batcher
    }

    fn link(&self) -> &Link {
        self.batcher.link()
    }
}
