//! The endpoints of one upstream: selection and name look-ups.
//!
//! Reading order: [`Pool`] here, `names` (the addresses of its servers), `health` (how the states
//! of endpoints change), `tests`.

mod health;
mod names;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use self::names::Named;

pub(crate) use super::active::Wanted;
use super::active::{Active, Listed, Rounds};
use super::balance::plan::Availability;
use super::dial::Endpoint;
use super::endpoint::{EndpointState, InFlight};
use super::gate::Permit;
use super::health::{HealthView, State};
use super::http2::Http2Connections;
use super::idle::IdleConnections;
use super::known::{Known, KnownAddresses};
use super::orders::{KnownOrders, Orders};
use super::sticky;
use super::tls::TlsClient;
use crate::net::address::{HostPort, Origin};
use crate::net::lookup::{self, Names};
use crate::policy::settings::{Target, Upstream};

/// Deadline of one name look-up, and the longest wait of a new configuration for all its names.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of concurrent name look-ups, of all upstreams together. Each has a few sockets,
/// or a thread if the system looks the name up. So many that names whose name servers do not answer
/// hardly delay others.
const MAX_LOOKUPS: usize = 64;

/// The look-ups that may still start.
static LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

/// The endpoints of one upstream.
pub struct Pool {
    /// The endpoints as of the last look-up, and those that requests are sent to.
    active: ArcSwap<Active>,
    /// Held while `active` is replaced.
    replacing: Mutex<()>,
    rounds: Rounds,
    /// The endpoints of the pool that this one replaced, whose state is kept.
    inherited: Vec<Arc<EndpointState>>,
    /// Whether any server is configured by name, so that look-ups can change its addresses.
    pub(crate) has_names: bool,
    name: Arc<str>,
    /// Orders of operators for its endpoints. Shared with the pool that replaces this one.
    orders: Arc<Orders>,
    /// The pool that has replaced this one, if there is one that shares the state of endpoints.
    successor: Mutex<Weak<Self>>,
    /// Idle connections over HTTP/1.1 to its servers. Shared with the pool that replaces this one,
    /// if only the choice among the servers changes, as are the next two.
    idle: Arc<IdleConnections>,
    /// Connections over HTTP/2 to its servers.
    pub(crate) http2: Arc<Http2Connections>,
    /// TLS to its servers; `None`: connections are in clear.
    tls: Option<Arc<TlsClient>>,
    /// The upstream as configured.
    upstream: Upstream,
    /// The servers as configured, with their addresses.
    servers: Vec<Named>,
    names: Names,
    /// Its first look-up.
    first_lookup: Mutex<Option<AbortHandle>>,
    /// Whether the last look-up of its names has left it without an address, which is logged once.
    is_without_address: AtomicBool,
}

/// An endpoint as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointView {
    pub address: SocketAddr,
    /// Its weight in the configuration.
    pub weight: u16,
    /// Its priority in the configuration.
    pub priority: u8,
    /// Requests in flight.
    pub in_flight: u32,
    /// Whether requests are sent to it, and why not.
    pub health: HealthView,
}

impl Pool {
    /// Creates a pool of the upstream's servers. It has no addresses until
    /// [`look_up`](Self::look_up) has run.
    pub fn new(upstream: &Upstream) -> Self {
        Self::with_names(upstream, lookup::names())
    }

    fn with_names(upstream: &Upstream, names: Names) -> Self {
        let servers = match &upstream.target {
            Target::Demo => &[],
            Target::Servers(servers) => servers.as_slice(),
        };
        let servers: Vec<_> = servers.iter().map(Named::new).collect();
        let has_names = servers.iter().any(Named::is_name);
        let tls = upstream.tls.clone().map(|tls| TlsClient::new(Arc::clone(&upstream.name), tls));
        Self {
            active: ArcSwap::default(),
            replacing: Mutex::default(),
            rounds: Rounds::new(),
            inherited: Vec::new(),
            has_names,
            name: Arc::clone(&upstream.name),
            orders: Arc::default(),
            successor: Mutex::default(),
            http2: Arc::new(Http2Connections::new()),
            idle: Arc::new(IdleConnections::new(Arc::clone(&upstream.name))),
            tls: tls.map(Arc::new),
            upstream: upstream.clone(),
            servers,
            names,
            first_lookup: Mutex::default(),
            is_without_address: AtomicBool::new(false),
        }
    }

    /// Returns a pool for each of `upstreams`, in their order. A pool of `previous` is reused if
    /// nothing of it changes. A new one takes over the state of endpoints from that of the same
    /// name, its connections if the servers are the same and connected to alike, and the addresses
    /// in `known`. The names of new pools are looked up in parallel, and new endpoints checked.
    /// Names without a known address, and checks, are waited for, 5 s at most; they then go on. A
    /// name without an address is logged; a later look-up may find one.
    pub async fn for_all(
        upstreams: &[Upstream],
        previous: &[Arc<Self>],
        known: &Known,
    ) -> Vec<Arc<Self>> {
        Self::for_all_with(upstreams, previous, known, &lookup::names()).await
    }

    async fn for_all_with(
        upstreams: &[Upstream],
        previous: &[Arc<Self>],
        known: &Known,
        names: &Names,
    ) -> Vec<Arc<Self>> {
        let (mut files, mut lookups) = (JoinSet::new(), JoinSet::new());
        let pool = |upstream: &Upstream| {
            let is_same = |pool: &&Arc<Self>| pool.is_of(upstream);
            if let Some(pool) = previous.iter().find(is_same) {
                return Arc::clone(pool);
            }
            let mut pool = Self::with_names(upstream, Arc::clone(names));
            pool.orders = Arc::new(known.orders.of(&upstream.name));
            let previous = previous.iter().find(|pool| pool.name == upstream.name);
            if let Some(previous) = previous {
                pool.inherited = previous.states();
                pool.orders = Arc::clone(&previous.orders);
                if previous.connects_as(upstream) {
                    pool.idle = Arc::clone(&previous.idle);
                    pool.http2 = Arc::clone(&previous.http2);
                    pool.tls.clone_from(&previous.tls);
                }
            }
            pool.begin_with(known);
            let pool = Arc::new(pool);
            if let Some(previous) = previous {
                *previous.successor.lock() = Arc::downgrade(&pool);
            }
            let new = Arc::clone(&pool);
            let (reading, read) = oneshot::channel::<()>();
            files.spawn(async move {
                new.refresh_tls().await;
                drop(reading);
            });
            let is_checked = upstream.health.is_some();
            if pool.has_names || is_checked {
                let new = Arc::clone(&pool);
                let lookup = async move {
                    if new.has_names {
                        new.look_up().await;
                    }
                    // The end of the channel: checks need the TLS files.
                    let _ = read.await;
                    new.check_new().await;
                };
                let lookup = if is_checked || pool.names_without_address().next().is_some() {
                    lookups.spawn(lookup)
                } else {
                    tokio::spawn(lookup).abort_handle()
                };
                *pool.first_lookup.lock() = Some(lookup);
            }
            pool
        };
        let pools = upstreams.iter().map(pool).collect();
        let found = async { while lookups.join_next().await.is_some() {} };
        let read = async { while files.join_next().await.is_some() {} };
        let (_, ()) = tokio::join!(tokio::time::timeout(LOOKUP_TIMEOUT, found), read);
        lookups.detach_all();
        pools
    }

    /// The addresses of all names of `pools`, and the orders of operators for endpoints.
    pub fn known(pools: &[Arc<Self>]) -> Known {
        let (mut addresses, mut orders) = (KnownAddresses::default(), KnownOrders::default());
        for pool in pools {
            orders.add(&pool.name, &pool.orders);
            for named in pool.servers.iter().filter(|named| named.is_name()) {
                addresses.add(&named.server.origin, &named.found.lock());
            }
        }
        Known { addresses, orders }
    }

    /// Begins with the addresses of servers that need no look-up, and with those in `known`.
    fn begin_with(&self, known: &Known) {
        for named in &self.servers {
            named.begin_with(known.addresses.of(&named.server.origin));
        }
        self.update();
    }

    /// Whether no request can be forwarded, because no server has a known address.
    pub fn has_no_address(&self) -> bool {
        !self.servers.is_empty() && self.active.load().all.is_empty()
    }

    /// Whether it is as `upstream` configures it.
    fn is_of(&self, upstream: &Upstream) -> bool {
        let own = &self.upstream;
        self.connects_as(upstream)
            && (&own.target, &own.resolvers) == (&upstream.target, &upstream.resolvers)
            && (&own.balance, &own.sticky) == (&upstream.balance, &upstream.sticky)
            && own.slow_start_us == upstream.slow_start_us
            && (&own.health, own.eject) == (&upstream.health, upstream.eject)
    }

    /// Whether its connections are to the servers of `upstream`, and as that configures them.
    fn connects_as(&self, upstream: &Upstream) -> bool {
        fn origins(upstream: &Upstream) -> HashSet<&Origin> {
            match &upstream.target {
                Target::Demo => HashSet::new(),
                Target::Servers(servers) => servers.iter().map(|server| &server.origin).collect(),
            }
        }
        let own = &self.upstream;
        (&own.name, &own.tls) == (&upstream.name, &upstream.tls)
            && (own.protocol, own.proxy_protocol) == (upstream.protocol, upstream.proxy_protocol)
            && origins(own) == origins(upstream)
    }

    /// The state of each of its endpoints.
    fn states(&self) -> Vec<Arc<EndpointState>> {
        self.active.load().all.iter().map(|listed| Arc::clone(&listed.state)).collect()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// TLS to its servers; `None`: connections are in clear.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsClient>> {
        self.tls.as_ref()
    }

    /// The server with this address. Its host is the name or IP address of the configuration; if
    /// several have the address, the first.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Endpoint {
        let is_verified = self.tls.as_ref().is_some_and(|tls| tls.verifies_hosts());
        let host = is_verified.then(|| {
            let active = self.active.load();
            let known = active.all.iter().find(|listed| listed.state.address == address);
            let known = known.map(|listed| Arc::clone(&listed.host));
            known.unwrap_or_else(|| address.ip().to_string().into())
        });
        let generation = self.tls.as_ref().map_or(0, |tls| tls.generation());
        Endpoint { address, host, generation }
    }

    /// The server with this address, as configured; if several have it, the first. A service has
    /// the port of the address.
    pub(crate) fn server(&self, address: SocketAddr) -> Option<HostPort> {
        let own = self.servers.iter().find(|named| named.has(address))?;
        Some(match &own.server.origin {
            Origin::Host(server) => server.clone(),
            service @ Origin::Service(_) => {
                HostPort { host: service.host().to_owned(), port: address.port() }
            }
        })
    }

    /// Idle connections over HTTP/1.1 to its servers.
    pub(super) fn idle(&self) -> &IdleConnections {
        &self.idle
    }

    /// A permit to open a connection while there are fewer than `most`. If there are not, closes an
    /// idle one, but for one over HTTP/1.1 to `kept` that can be used, or over HTTP/2 to
    /// `kept_http2`: over HTTP/1.1 at once, over HTTP/2 soon.
    pub(super) fn permit(
        &self,
        most: u32,
        kept: Option<&Endpoint>,
        kept_http2: Option<&Endpoint>,
    ) -> Option<Permit> {
        let permit = self.idle.permit(most, kept);
        if permit.is_none() {
            self.http2.close_idle(kept_http2);
        }
        permit
    }

    /// The number of open connections, and of requests that wait for one.
    pub fn connections(&self) -> (u32, u32) {
        self.idle.gate().counts()
    }

    /// Closes connections that have expired or that cannot be used again.
    pub fn sweep(&self, now: u64) {
        self.idle.sweep(now);
        self.http2.sweep(now);
    }

    /// Closes all connections that no request uses, unless one of `pools` shares them, and ends the
    /// first look-up of its names. No connection is kept from now on.
    pub fn close_unless_shared(&self, pools: &[Arc<Self>]) {
        if let Some(lookup) = self.first_lookup.lock().take() {
            lookup.abort();
        }
        if !pools.iter().any(|pool| Arc::ptr_eq(&pool.idle, &self.idle)) {
            self.idle.close();
            self.http2.close();
        }
    }

    /// Reads the files of its TLS configuration again if they have changed.
    pub async fn refresh_tls(&self) {
        if let Some(tls) = &self.tls {
            tls.refresh_in_time().await;
        }
    }

    /// Selects the endpoint of a request at `now` (microseconds). The request is in flight there
    /// until the result is dropped. `None`: no name has an address, or all endpoints are drained or
    /// disabled.
    pub(crate) fn select(&self, wanted: Wanted<'_>, now: u64) -> Option<InFlight> {
        let mut active = self.active.load();
        if active.until <= now {
            self.replace(now);
            active = self.active.load();
        }
        Some(active.select(wanted, &self.rounds, now)?.state.begin())
    }

    /// The other addresses that the server with this address has by the same name and port, of
    /// endpoints that get requests at `now` (microseconds) and have the same priority, those with
    /// the fewest requests in flight first.
    pub(super) fn others(&self, address: SocketAddr, now: u64) -> Vec<SocketAddr> {
        let active = self.active.load();
        let is_own = |listed: &&Listed| listed.state.address == address;
        let Some(own) = active.all.iter().find(is_own) else { return Vec::new() };
        let is_other = |listed: &&Listed| {
            let state = &listed.state;
            (&listed.target, listed.priority) == (&own.target, own.priority)
                && state.address != address
                && state.address.port() == address.port()
                && matches!(state.availability(now), Availability::Up { .. })
        };
        let mut others: Vec<_> = active.all.iter().filter(is_other).collect();
        others.sort_by_key(|listed| listed.state.in_flight());
        others.into_iter().map(|listed| listed.state.address).collect()
    }

    /// Counts a request at the endpoint with this address; `None`: there is none.
    pub(crate) fn begin_at(&self, address: SocketAddr) -> Option<InFlight> {
        let active = self.active.load();
        let own = active.all.iter().find(|listed| listed.state.address == address)?;
        Some(own.state.begin())
    }

    /// The value that the cookie of an endpoint has; `None`: the upstream has no cookie.
    pub(crate) fn cookie(&self, endpoint: SocketAddr) -> Option<Box<str>> {
        let active = self.active.load();
        active.all.iter().find(|listed| listed.state.address == endpoint)?.cookie.clone()
    }

    /// The value of one of its endpoints in the cookie of `other`, another upstream whose cookie
    /// has the same name.
    pub(crate) fn value_beside<'a>(&self, other: &Upstream, cookie: &'a str) -> Option<&'a str> {
        let name = |upstream: &Upstream| Some(upstream.sticky.as_ref()?.cookie.clone());
        if self.name == other.name || name(&self.upstream)? != name(other)? {
            return None;
        }
        let active = self.active.load();
        let is_own =
            |value: &&str| active.all.iter().any(|listed| listed.cookie.as_deref() == Some(*value));
        sticky::values(cookie).find(is_own)
    }

    /// Chooses the endpoints that requests are sent to again, at `now` (microseconds).
    fn replace(&self, now: u64) {
        self.put(&self.replacing.lock(), None, now);
    }

    /// As [`replace`](Self::replace), because the state of an endpoint has changed: also in the
    /// pool that has replaced this one, which shares the states.
    fn follow_state(&self, now: u64) {
        self.replace(now);
        let successor = self.successor.lock().upgrade();
        if let Some(successor) = successor {
            successor.follow_state(now);
        }
    }

    /// Chooses the endpoints that requests are sent to, of `all` or of the present ones.
    fn put(&self, _replacing: &MutexGuard<'_, ()>, all: Option<Vec<Listed>>, now: u64) {
        let all = match all {
            Some(all) => {
                self.rounds.forget_tables();
                all.into()
            }
            None => Arc::clone(&self.active.load().all),
        };
        for Listed { state, .. } in &*all {
            let unlogged = state.health().unlogged(now);
            if let Some(health) = unlogged {
                self.log(state.address, &health, now);
            }
        }
        let Upstream { balance, slow_start_us, .. } = &self.upstream;
        let active = Active::of(all, balance, *slow_start_us, &self.rounds, now);
        self.active.store(Arc::new(active));
    }

    /// The upstream as configured.
    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Returns every endpoint as of the last look-up, at `now` (microseconds).
    pub fn endpoints(&self, now: u64) -> Vec<EndpointView> {
        let view = |listed: &Listed| EndpointView {
            address: listed.state.address,
            weight: listed.weight,
            priority: listed.priority,
            in_flight: listed.state.in_flight(),
            health: listed.state.health().show(now),
        };
        self.active.load().all.iter().map(view).collect()
    }

    /// Returns every server's address and its state at `now`; `None`: it has no address, if no name
    /// has one.
    pub fn health(&self, now: u64) -> Vec<(String, Option<State>)> {
        let endpoints = self.endpoints(now);
        if endpoints.is_empty() {
            return self.servers.iter().map(|named| (named.server.to_string(), None)).collect();
        }
        let health = |view: EndpointView| (view.address.to_string(), Some(view.health.state));
        endpoints.into_iter().map(health).collect()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.name).finish()
    }
}
