//! Who serves an upstream: its servers in turn, their names looked up again while running.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use pingora::lb::discovery::ServiceDiscovery;
use pingora::lb::selection::RoundRobin;
use pingora::lb::{Backend, Backends, LoadBalancer};
use pingora::prelude::{Error, ErrorType, Result};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tracing::warn;

use super::Current;
use super::idle::IdleConnections;
use crate::clock;
use crate::limit::MICROS_PER_SECOND;
use crate::policy::settings::{Origin, Target, Upstream};

/// How often names are looked up. Pods and containers move; caching is the resolver's business.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a lookup may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server that could not be connected to is passed over, in ticks, while there are
/// others: without, every turn that is its own costs a request a try.
const DOWN_FOR: u64 = 5 * MICROS_PER_SECOND;

/// The servers of one upstream.
pub struct Pool {
    balancer: LoadBalancer<RoundRobin>,
    /// Servers that could not be connected to, and the tick until which each is passed over.
    down: RwLock<HashMap<SocketAddr, u64>>,
    has_names: bool,
    name: Arc<str>,
    /// Connections to its servers that no request uses.
    pub idle: Arc<IdleConnections>,
    /// What the file says of its servers.
    target: Target,
}

/// Keeps the addresses and the idle connections of all pools up to date, whichever snapshot they belong to.
pub struct Lookups {
    current: Arc<Current>,
}

/// An upstream's servers as the file lists them.
struct Origins(Vec<Origin>);

impl Pool {
    /// A pool of the upstream's servers, empty until [`look_up`](Self::look_up) has run.
    pub fn new(upstream: &Upstream) -> Self {
        let origins = match &upstream.target {
            Target::Demo => Vec::new(),
            Target::Servers(origins) => origins.clone(),
        };
        let has_names = origins.iter().any(|origin| origin.address().is_none());
        let backends = Backends::new(Box::new(Origins(origins)));
        Self {
            balancer: LoadBalancer::from_backends(backends),
            down: RwLock::default(),
            has_names,
            name: Arc::clone(&upstream.name),
            idle: Arc::new(IdleConnections::new(Arc::clone(&upstream.name))),
            target: upstream.target.clone(),
        }
    }

    /// A pool for each of `upstreams`, ready to be picked from. Where `previous` has one of the
    /// same name and servers it goes on, with all that it knows; the others are looked up, all at
    /// once. A name without an address is logged, and looked up again later.
    pub async fn for_all(upstreams: &[Upstream], previous: &[Arc<Self>]) -> Vec<Arc<Self>> {
        let mut lookups = JoinSet::new();
        let pool = |upstream: &Upstream| {
            let is_same =
                |pool: &&Arc<Self>| pool.name == upstream.name && pool.target == upstream.target;
            if let Some(pool) = previous.iter().find(is_same) {
                return Arc::clone(pool);
            }
            let pool = Arc::new(Self::new(upstream));
            let new = Arc::clone(&pool);
            lookups.spawn(async move { new.look_up().await });
            pool
        };
        let pools = upstreams.iter().map(pool).collect();
        while lookups.join_next().await.is_some() {}
        pools
    }

    /// The next server in turn at `now` (ticks): one that was not found down lately, where there is
    /// one, and another than `not` in any case where there is another.
    pub fn pick(&self, not: Option<SocketAddr>, now: u64) -> Option<SocketAddr> {
        /// Round robin ends in the other servers after at most so many steps.
        const STEPS: usize = 256;
        let backends = self.balancer.backends().get_backend();
        if let (1, Some(only)) = (backends.len(), backends.first()) {
            return only.addr.as_inet().copied();
        }
        let down = self.down.read();
        let is_up = |server: &SocketAddr| down.get(server).is_none_or(|until| *until <= now);
        let pick = |accept: &dyn Fn(&SocketAddr) -> bool| {
            let accept = |backend: &Backend, ready: bool| {
                ready && backend.addr.as_inet().is_some_and(accept)
            };
            self.balancer.select_with(b"", STEPS, accept)?.addr.as_inet().copied()
        };
        pick(&|server| Some(*server) != not && is_up(server))
            .or_else(|| pick(&|server| Some(*server) != not))
            .or(not)
    }

    /// Notes that a server could not be connected to at `now` (ticks).
    pub fn note_down(&self, server: SocketAddr, now: u64) {
        let mut down = self.down.write();
        down.retain(|_, until| *until > now);
        down.insert(server, now.saturating_add(DOWN_FOR));
    }

    /// Notes that a server could be connected to.
    pub fn note_up(&self, server: SocketAddr) {
        if self.down.read().contains_key(&server) {
            self.down.write().remove(&server);
        }
    }

    /// Every server's address as it was last looked up, and the ticks for which it is still passed
    /// over at `now`; 0: it is not.
    pub fn addresses(&self, now: u64) -> Vec<(SocketAddr, u64)> {
        let down = self.down.read();
        let backends = self.balancer.backends().get_backend();
        let addresses = backends.iter().filter_map(|backend| backend.addr.as_inet().copied());
        let until = |address| down.get(&address).map_or(0, |until| until.saturating_sub(now));
        addresses.map(|address| (address, until(address))).collect()
    }

    /// Every server by its address, and whether it is taken for healthy at `now`. Where no name has
    /// an address, the names, and none is.
    pub fn health(&self, now: u64) -> Vec<(String, bool)> {
        let addresses = self.addresses(now);
        if let (Target::Servers(origins), true) = (&self.target, addresses.is_empty()) {
            return origins.iter().map(|origin| (origin.to_string(), false)).collect();
        }
        addresses.into_iter().map(|(address, left)| (address.to_string(), left == 0)).collect()
    }

    /// Looks up every server's address. Where a name has none, those known before stay.
    pub async fn look_up(&self) {
        if let Err(error) = self.balancer.update().await {
            warn!(upstream = &*self.name, "{error}");
        }
    }
}

impl Lookups {
    /// Looks after the pools of whatever snapshot is `current`.
    pub fn new(current: Arc<Current>) -> Self {
        Self { current }
    }
}

#[async_trait]
impl BackgroundService for Lookups {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                () = tokio::time::sleep(LOOKUP_INTERVAL) => {}
            }
            let snapshot = self.current.load_full();
            for pool in &snapshot.pools {
                pool.idle.sweep(clock::now());
                if pool.has_names {
                    pool.look_up().await;
                }
            }
        }
    }
}

#[async_trait]
impl ServiceDiscovery for Origins {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut backends = BTreeSet::new();
        for origin in &self.0 {
            match origin.look_up().await {
                Ok(addresses) => {
                    for address in addresses {
                        backends.insert(Backend::new(&address.to_string())?);
                    }
                }
                // One name without an address must not take the others out of service.
                Err(error) => warn!(server = %origin, "no address: {error}"),
            }
        }
        if backends.is_empty() && !self.0.is_empty() {
            return Error::e_explain(ErrorType::ConnectNoRoute, "no server has an address");
        }
        Ok((backends, HashMap::new()))
    }
}

impl Origin {
    /// The address, where the file gives one instead of a name.
    fn address(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.parse().ok()?, self.port))
    }

    async fn look_up(&self) -> std::io::Result<Vec<SocketAddr>> {
        if let Some(address) = self.address() {
            return Ok(vec![address]);
        }
        let lookup = lookup_host((self.host.as_str(), self.port));
        Ok(tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await??.collect())
    }
}
