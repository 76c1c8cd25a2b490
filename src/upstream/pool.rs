//! The servers of one upstream: round robin, passive health, and name look-ups.

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
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tracing::warn;

use super::idle::IdleConnections;
use crate::limit::MICROS_PER_SECOND;
use crate::net::address::HostPort;
use crate::policy::settings::{Target, Upstream};

/// Deadline of one name look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server is ejected after a connection to it failed, in microseconds. Without ejection,
/// each time that round robin selects it, a request loses a try.
const EJECTION_US: u64 = 5 * MICROS_PER_SECOND;

/// The servers of one upstream.
pub struct Pool {
    balancer: LoadBalancer<RoundRobin>,
    /// Ejected servers, and the time in microseconds at which each ejection ends.
    ejected: RwLock<HashMap<SocketAddr, u64>>,
    /// Whether any server is configured by name, so that look-ups can change its addresses.
    pub(crate) has_names: bool,
    name: Arc<str>,
    /// Idle connections to its servers.
    pub idle: Arc<IdleConnections>,
    /// The servers as configured.
    target: Target,
}

/// The servers of an upstream as configured.
struct Origins(Vec<HostPort>);

impl Pool {
    /// Creates a pool of the upstream's servers. It has no addresses until [`look_up`](Self::look_up) has run.
    pub fn new(upstream: &Upstream) -> Self {
        let origins = match &upstream.target {
            Target::Demo => Vec::new(),
            Target::Servers(origins) => origins.clone(),
        };
        let has_names = origins.iter().any(|origin| origin.address().is_none());
        let backends = Backends::new(Box::new(Origins(origins)));
        Self {
            balancer: LoadBalancer::from_backends(backends),
            ejected: RwLock::default(),
            has_names,
            name: Arc::clone(&upstream.name),
            idle: Arc::new(IdleConnections::new(Arc::clone(&upstream.name))),
            target: upstream.target.clone(),
        }
    }

    /// Returns a pool for each of `upstreams`, in their order. A pool of `previous` with the same
    /// name and servers is reused, with its health state and idle connections. The names of all
    /// other pools are looked up in parallel. A name without an address is logged; a later look-up
    /// may find one.
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

    /// Selects the next server by round robin at `now` (microseconds). It prefers servers that are not
    /// ejected, and returns `not` only if there is no other server.
    pub fn select(&self, not: Option<SocketAddr>, now: u64) -> Option<SocketAddr> {
        /// Steps after which round robin stops looking for an accepted server.
        const STEPS: usize = 256;
        let backends = self.balancer.backends().get_backend();
        if let (1, Some(only)) = (backends.len(), backends.first()) {
            return only.addr.as_inet().copied();
        }
        let ejected = self.ejected.read();
        let is_up = |server: &SocketAddr| ejected.get(server).is_none_or(|until| *until <= now);
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

    /// Ejects a server for 5 s because a connection to it failed at `now` (microseconds).
    pub fn eject(&self, server: SocketAddr, now: u64) {
        let mut ejected = self.ejected.write();
        ejected.retain(|_, until| *until > now);
        ejected.insert(server, now.saturating_add(EJECTION_US));
    }

    /// Ends the ejection of a server because a connection to it succeeded.
    pub fn readmit(&self, server: SocketAddr) {
        if self.ejected.read().contains_key(&server) {
            self.ejected.write().remove(&server);
        }
    }

    /// Returns the address of every server as of the last look-up, and the microseconds until its
    /// ejection ends (0: it is not ejected).
    pub fn addresses(&self, now: u64) -> Vec<(SocketAddr, u64)> {
        let ejected = self.ejected.read();
        let backends = self.balancer.backends().get_backend();
        let addresses = backends.iter().filter_map(|backend| backend.addr.as_inet().copied());
        let until = |address| ejected.get(&address).map_or(0, |until| until.saturating_sub(now));
        addresses.map(|address| (address, until(address))).collect()
    }

    /// Returns every server's address and whether it is healthy (not ejected) at `now`. If no name
    /// has an address, returns the names, all unhealthy.
    pub fn health(&self, now: u64) -> Vec<(String, bool)> {
        let addresses = self.addresses(now);
        if let (Target::Servers(origins), true) = (&self.target, addresses.is_empty()) {
            return origins.iter().map(|origin| (origin.to_string(), false)).collect();
        }
        addresses.into_iter().map(|(address, left)| (address.to_string(), left == 0)).collect()
    }

    /// Looks up the addresses of all servers. If no server has one, the previous addresses stay.
    pub async fn look_up(&self) {
        if let Err(error) = self.balancer.update().await {
            warn!(upstream = &*self.name, "{error}");
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

impl HostPort {
    /// Returns the address if the server is configured by address instead of by name.
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
