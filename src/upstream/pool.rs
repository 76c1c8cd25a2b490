//! The endpoints of one upstream: selection, health, and name look-ups.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, info, warn};

pub(crate) use super::active::Wanted;
use super::active::{Active, Listed, Rounds};
use super::check;
use super::dial::Endpoint;
use super::endpoint::{CheckTurn, EndpointState, InFlight};
use super::health::{CheckFailure, EjectReason, Endpoints, HealthView, Order, State, Suspicion};
use super::http2::Http2Connections;
use super::idle::IdleConnections;
use super::known::{Known, KnownAddresses};
use super::orders::{KnownOrders, Orders};
use super::sticky;
use super::tls::TlsClient;
use crate::base::clock;
use crate::net::address::HostPort;
use crate::net::io_text;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::failures::ServerFailure;
use crate::policy::health::{Eject, HealthChecks};
use crate::policy::servers::Server;
use crate::policy::settings::{Target, Upstream};

/// Deadline of one name look-up, and the longest wait of a new configuration for all its names.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of concurrent name look-ups, of all upstreams together. Each occupies a thread.
const MAX_LOOKUPS: usize = 16;

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
    /// The servers as configured, and the addresses of each as of its last successful look-up.
    servers: Vec<(Server, Mutex<Vec<SocketAddr>>)>,
    resolver: Resolver,
    /// Indexes of the servers whose last look-up failed.
    failing: Mutex<HashSet<usize>>,
    /// Held while its names are looked up.
    looking_up: tokio::sync::Mutex<()>,
    /// Whether all its names have been looked up once, with or without success.
    is_looked_up: AtomicBool,
    /// Its first look-up.
    first_lookup: Mutex<Option<AbortHandle>>,
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
        Self::with_resolver(upstream, system_resolver())
    }

    fn with_resolver(upstream: &Upstream, resolver: Resolver) -> Self {
        let servers = match &upstream.target {
            Target::Demo => &[],
            Target::Servers(servers) => servers.as_slice(),
        };
        let servers: Vec<_> = servers.iter().map(|s| (s.clone(), Mutex::default())).collect();
        let has_names = servers.iter().any(|(server, _)| address(&server.origin).is_none());
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
            resolver,
            failing: Mutex::default(),
            looking_up: tokio::sync::Mutex::default(),
            is_looked_up: AtomicBool::new(false),
            first_lookup: Mutex::default(),
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
        Self::for_all_with(upstreams, previous, known, &system_resolver()).await
    }

    async fn for_all_with(
        upstreams: &[Upstream],
        previous: &[Arc<Self>],
        known: &Known,
        resolver: &Resolver,
    ) -> Vec<Arc<Self>> {
        let (mut files, mut lookups) = (JoinSet::new(), JoinSet::new());
        let pool = |upstream: &Upstream| {
            let is_same = |pool: &&Arc<Self>| pool.is_of(upstream);
            if let Some(pool) = previous.iter().find(is_same) {
                return Arc::clone(pool);
            }
            let mut pool = Self::with_resolver(upstream, Arc::clone(resolver));
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
            for (server, found) in &pool.servers {
                if address(&server.origin).is_none() {
                    addresses.add(&server.origin, &found.lock());
                }
            }
        }
        Known { addresses, orders }
    }

    /// Begins with the addresses of servers that need no look-up, and with those in `known`.
    fn begin_with(&self, known: &Known) {
        for (Server { origin, .. }, addresses) in &self.servers {
            *addresses.lock() =
                address(origin).map_or_else(|| known.addresses.of(origin), |address| vec![address]);
        }
        self.update();
    }

    /// The servers whose names have no known address.
    pub fn names_without_address(&self) -> impl Iterator<Item = &HostPort> {
        let without = self.servers.iter().filter(|(_, addresses)| addresses.lock().is_empty());
        without.map(|(server, _)| &server.origin)
    }

    /// Whether no request can be forwarded, because no server has a known address.
    pub fn has_no_address(&self) -> bool {
        !self.servers.is_empty() && self.active.load().all.is_empty()
    }

    /// Whether all its names have been looked up once, with or without success.
    pub fn is_looked_up(&self) -> bool {
        self.is_looked_up.load(Ordering::Relaxed)
    }

    /// Whether it is as `upstream` configures it.
    fn is_of(&self, upstream: &Upstream) -> bool {
        let own = &self.upstream;
        self.connects_as(upstream)
            && own.target == upstream.target
            && (&own.balance, &own.sticky) == (&upstream.balance, &upstream.sticky)
            && own.slow_start_us == upstream.slow_start_us
            && (&own.health, own.eject) == (&upstream.health, upstream.eject)
    }

    /// Whether its connections are to the servers of `upstream`, and as that configures them.
    fn connects_as(&self, upstream: &Upstream) -> bool {
        fn origins(upstream: &Upstream) -> HashSet<&HostPort> {
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

    /// The server with this address, as configured; if several have it, the first.
    pub(crate) fn server(&self, address: SocketAddr) -> Option<HostPort> {
        let own = self.servers.iter().find(|(_, found)| found.lock().contains(&address));
        own.map(|(server, _)| server.origin.clone())
    }

    /// Idle connections over HTTP/1.1 to its servers.
    pub(super) fn idle(&self) -> &IdleConnections {
        &self.idle
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
        if let Some(tls) = self.tls.clone() {
            // Fails only if the process ends.
            let _ = tokio::task::spawn_blocking(move || tls.refresh()).await;
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

    /// Logs that the state of an endpoint has changed.
    fn log(&self, endpoint: SocketAddr, health: &HealthView, now: u64) {
        let HealthView { state, reason, until, .. } = health;
        let (upstream, state) = (&*self.name, state.name());
        match health.state {
            State::Up => info!(upstream, %endpoint, state, "endpoint gets requests"),
            State::Unchecked => debug!(upstream, %endpoint, state, "endpoint is not checked yet"),
            State::Drained | State::Disabled => {
                info!(upstream, %endpoint, state, reason, "endpoint gets no requests");
            }
            State::Unreachable | State::Ejected => {
                let for_ms = until.saturating_sub(now) / 1_000;
                warn!(upstream, %endpoint, state, reason, for_ms, "endpoint gets no requests");
            }
            State::Unhealthy => {
                warn!(upstream, %endpoint, state, reason, "endpoint gets no requests");
            }
        }
    }

    /// Notes that a connection to an endpoint failed at `now` (microseconds): it gets no requests
    /// for 5 s. Returns why it was ejected for longer, if it was.
    pub(crate) fn unreachable(&self, endpoint: &InFlight, now: u64) -> Option<EjectReason> {
        endpoint.state().health().unreachable(now);
        self.follow_state(now);
        self.observe(endpoint, Some(ServerFailure::Connect), now)
    }

    /// Notes that a new connection to an endpoint succeeded at `now` (microseconds).
    pub(crate) fn reachable(&self, endpoint: &InFlight, now: u64) {
        let has_changed = endpoint.state().health().reachable(now);
        if has_changed {
            self.follow_state(now);
        }
    }

    /// Notes that a request to an endpoint failed at `now` (microseconds), or succeeded. Returns
    /// why the endpoint was ejected, if it was.
    pub(crate) fn observe(
        &self,
        endpoint: &InFlight,
        failure: Option<ServerFailure>,
        now: u64,
    ) -> Option<EjectReason> {
        let eject = self.upstream.eject.as_ref()?;
        let has_failed = failure.is_some_and(|failure| eject.on.has(failure));
        let suspicion = endpoint.state().health().observe(has_failed, eject, now)?;
        let reason = self.eject(endpoint, suspicion, eject, now)?;
        self.follow_state(now);
        Some(reason)
    }

    /// Ejects an endpoint at `now` (microseconds), unless too many are, or others fail as well.
    #[cold]
    fn eject(
        &self,
        endpoint: &InFlight,
        suspicion: Suspicion,
        eject: &Eject,
        now: u64,
    ) -> Option<EjectReason> {
        // Two endpoints are not judged at a time.
        let _replacing = self.replacing.lock();
        let suspect = endpoint.state();
        let mut endpoints = Endpoints::default();
        for Listed { state, .. } in &*self.active.load().all {
            let is_suspect = state.address == suspect.address;
            endpoints.add(&state.health(), is_suspect, eject, now);
        }
        let reason = endpoints.verdict(suspicion, eject)?;
        let mut health = suspect.health();
        if health.is_ejected(now) {
            return None;
        }
        health.eject(reason, eject, now);
        Some(reason)
    }

    /// Gives an order for an endpoint, by its address, or for a server as the file writes it, with
    /// or without its scheme; `None` takes it back. Returns whether there is such a server.
    pub fn order(&self, server: &str, order: Option<Order>) -> bool {
        let text = server.rsplit_once("://").map_or(server, |(_, rest)| rest);
        let endpoint: Option<SocketAddr> = text.parse().ok();
        let mut is_known = false;
        for (own, addresses) in &self.servers {
            let addresses = addresses.lock();
            if own.origin.to_string().eq_ignore_ascii_case(text) {
                self.orders.set_server(&own.origin, &addresses, order);
                is_known = true;
            } else if let Some(endpoint) = endpoint.filter(|it| addresses.contains(it)) {
                self.orders.set_endpoint(&own.origin, endpoint, order);
                is_known = true;
            }
        }
        self.update();
        is_known
    }

    /// Begins the health checks that are due at `now`, with this many gateways. Also returns when
    /// the next one is due. Times are microseconds.
    pub(crate) fn due_checks(&self, gateways: u32, now: u64) -> (Vec<CheckTurn>, u64) {
        let Some(checks) = &self.upstream.health else { return (Vec::new(), u64::MAX) };
        let mut next = u64::MAX;
        let mut turns = Vec::new();
        for Listed { state, .. } in &*self.active.load().all {
            let due = state.next_check();
            if due > now {
                next = next.min(due);
                continue;
            }
            turns.extend(self.begin_check(state, checks, gateways, now));
        }
        (turns, next)
    }

    fn begin_check(
        &self,
        state: &Arc<EndpointState>,
        checks: &Arc<HealthChecks>,
        gateways: u32,
        now: u64,
    ) -> Option<CheckTurn> {
        let pause_us = check::pause_us(checks.interval, gateways, self.rounds.random());
        state.begin_check(checks, now, now.saturating_add(pause_us))
    }

    /// Checks the health of an endpoint.
    ///
    /// # Errors
    /// The check failed.
    pub(crate) async fn check(self: &Arc<Self>, turn: CheckTurn) -> Result<(), CheckFailure> {
        let result = check::check(self, turn.endpoint.address, &turn.checks).await;
        let now = clock::now();
        let has_changed = turn.endpoint.health().checked(result.clone(), &turn.checks, now);
        if has_changed {
            self.follow_state(now);
        }
        result
    }

    /// Checks the endpoints that have not been checked yet.
    async fn check_new(self: &Arc<Self>) {
        let Some(health) = &self.upstream.health else { return };
        let now = clock::now();
        let mut checks = JoinSet::new();
        for Listed { state, .. } in &*self.active.load_full().all {
            let is_new = state.health().is_unchecked();
            if let Some(turn) = is_new.then(|| self.begin_check(state, health, 1, now)).flatten() {
                let pool = Arc::clone(self);
                checks.spawn(async move { pool.check(turn).await });
            }
        }
        while checks.join_next().await.is_some() {}
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
            return self.servers.iter().map(|(server, _)| (server.to_string(), None)).collect();
        }
        let health = |view: EndpointView| (view.address.to_string(), Some(view.health.state));
        endpoints.into_iter().map(health).collect()
    }

    /// Looks up the addresses of all servers in parallel, each within 5 s. Each server is available
    /// as soon as its own look-up has succeeded. A server whose look-up fails keeps its addresses
    /// until one succeeds. Does nothing while another look-up of the pool is in progress.
    pub async fn look_up(&self) {
        let Ok(_looking_up) = self.looking_up.try_lock() else { return };
        let mut lookups = JoinSet::new();
        for (index, (server, addresses)) in self.servers.iter().enumerate() {
            if let Some(address) = address(&server.origin) {
                *addresses.lock() = vec![address];
            } else {
                let lookup = look_up(server.origin.clone(), Arc::clone(&self.resolver));
                lookups.spawn(async move { (index, lookup.await) });
            }
        }
        self.update();
        while let Some(lookup) = lookups.join_next().await {
            let Ok((index, result)) = lookup else { continue };
            let Some((server, addresses)) = self.servers.get(index) else { continue };
            match result {
                Ok(found) => {
                    *addresses.lock() = found;
                    self.update();
                    if self.failing.lock().remove(&index) {
                        info!(upstream = &*self.name, %server, "name look-up works again");
                    }
                }
                Err(error) => {
                    let cause = io_text::plain(&error);
                    warn!(upstream = &*self.name, %server, cause, "name look-up failed");
                    self.failing.lock().insert(index);
                }
            }
        }
        self.is_looked_up.store(true, Ordering::Relaxed);
        if self.has_no_address() {
            warn!(upstream = &*self.name, "no server of the upstream has a known address");
        }
    }

    /// Makes the addresses of all servers its endpoints, and applies the orders of operators. If
    /// several servers have an address, it is that of the first.
    fn update(&self) {
        let now = clock::now();
        let replacing = self.replacing.lock();
        let mut has_ordered = false;
        let active = self.active.load_full();
        let mut states: HashMap<SocketAddr, &Arc<EndpointState>> =
            self.inherited.iter().map(|state| (state.address, state)).collect();
        states.extend(active.all.iter().map(|listed| (listed.state.address, &listed.state)));
        let mut all: Vec<Listed> = Vec::new();
        let mut seen = HashSet::new();
        for (server, addresses) in &self.servers {
            for address in addresses.lock().iter().copied().filter(|address| seen.insert(*address))
            {
                let state = states.get(&address).map_or_else(
                    || Arc::new(EndpointState::new(address)),
                    |state| Arc::clone(state),
                );
                let order = self.orders.of(&server.origin, address);
                {
                    let mut health = state.health();
                    health.set_checked(self.upstream.health.is_some());
                    has_ordered |= health.order(order, now);
                }
                let sticky = self.upstream.sticky.as_ref();
                all.push(Listed {
                    state,
                    host: server.origin.host.as_str().into(),
                    weight: server.weight,
                    priority: server.priority,
                    cookie: sticky.map(|sticky| sticky::value(sticky, &self.name, address)),
                });
            }
        }
        let is_same = all.len() == active.all.len()
            && all.iter().zip(&*active.all).all(|(new, old)| new.is_same(old));
        if !is_same {
            self.put(&replacing, Some(all), now);
        }
        drop(replacing);
        if has_ordered {
            self.follow_state(now);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.name).finish()
    }
}

/// Returns the address of a server that is configured by address instead of by name.
fn address(server: &HostPort) -> Option<SocketAddr> {
    Some(SocketAddr::new(server.host.parse().ok()?, server.port))
}

/// Looks up one name. The deadline begins when the look-up starts, not while it waits for others.
async fn look_up(server: HostPort, resolver: Resolver) -> io::Result<Vec<SocketAddr>> {
    let _permit = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    tokio::time::timeout(LOOKUP_TIMEOUT, resolver(&server)).await?
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::base::request_id::RequestId;
    use crate::upstream::idle::{Body, Idle};
    use crate::upstream::run::Run;
    use crate::upstream::transport::Transport;

    fn pool(names: &[String], resolver: Resolver) -> Pool {
        let file = format!("[upstreams.api]\nservers = {names:?}\n[routes.all]\n");
        let policy = crate::load::from_text("gateway.toml", &file).unwrap();
        Pool::with_resolver(&policy.upstreams[0], resolver)
    }

    async fn until(condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
    }

    /// The address of `a<n>:<port>` is 127.0.0.n.
    fn found(server: &HostPort) -> io::Result<Vec<SocketAddr>> {
        let last = server.host.trim_start_matches('a').parse().map_err(io::Error::other)?;
        Ok(vec![SocketAddr::from(([127, 0, 0, last], server.port))])
    }

    #[tokio::test]
    async fn slow_name_delays_no_other_name() {
        let resolver: Resolver = Arc::new(|server| match server.host.as_str() {
            "slow" => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(found(server))),
        });
        let names = ["slow:1", "a1:80", "wrong:1", "127.0.0.3:80", "a2:80"].map(str::to_owned);
        let pool = Arc::new(pool(&names, resolver));
        let lookup = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.look_up().await }
        });
        until(|| pool.endpoints(0).len() == 3).await;
        assert!(!lookup.is_finished());
        let addresses: BTreeSet<_> =
            pool.endpoints(0).into_iter().map(|view| view.address).collect();
        let expected = ["127.0.0.1:80", "127.0.0.2:80", "127.0.0.3:80"];
        assert_eq!(addresses, expected.map(|address| address.parse().unwrap()).into());
        lookup.abort();
    }

    #[tokio::test]
    async fn names_are_looked_up_in_parallel_up_to_the_maximum() {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let resolver: Resolver = Arc::new({
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            move |server| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                let server = server.clone();
                Box::pin(async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    found(&server)
                })
            }
        });
        let names: Vec<_> = (1..=40).map(|number| format!("a{number}:80")).collect();
        let pool = pool(&names, resolver);
        pool.look_up().await;
        assert_eq!(pool.endpoints(0).len(), 40);
        assert_eq!(most.load(Ordering::SeqCst), MAX_LOOKUPS);
    }

    /// `text` continues the table of the upstream, whose servers a and b have the port 443. The
    /// address of a is 127.0.0.`a`, that of b is 127.0.0.1.
    fn pool_with_tls(a: Arc<AtomicUsize>, text: &str) -> Pool {
        let file = format!(
            "[upstreams.api]\nservers = [\"https://a\", \"https://b\"]\n{text}\n[routes.all]\n"
        );
        let policy = crate::load::from_text("gateway.toml", &file).unwrap();
        let resolver: Resolver = Arc::new(move |server| {
            let last = if server.host == "a" { a.load(Ordering::SeqCst) } else { 1 };
            let last = u8::try_from(last).unwrap();
            Box::pin(std::future::ready(Ok(vec![([127, 0, 0, last], 443).into()])))
        });
        Pool::with_resolver(&policy.upstreams[0], resolver)
    }

    #[tokio::test]
    async fn connection_verified_for_one_name_is_not_used_for_another() {
        let a = Arc::new(AtomicUsize::new(1));
        let pool = pool_with_tls(Arc::clone(&a), "");
        pool.look_up().await;
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let before = pool.endpoint(address);
        assert_eq!(before.host.as_deref(), Some("a"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let _accepted = listener.accept().await.unwrap();
        let stream = Transport::clear(stream, pool.idle().gate().open());
        let (request_id, run) = (RequestId::new(), Run::new(0));
        let idle = Idle { stream, request_id, body: Body::Some, run };
        pool.idle.put(&before, idle, Duration::from_secs(60), 0);
        a.store(2, Ordering::SeqCst);
        pool.look_up().await;
        let after = pool.endpoint(address);
        assert_eq!(after.host.as_deref(), Some("b"));
        assert!(pool.idle.take(&after, 0).is_none());
        assert!(pool.idle.take(&before, 0).is_some());
    }

    #[tokio::test]
    async fn connection_is_not_used_after_its_authorities_were_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let write = |name: &str| {
            let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
            std::fs::write(file.path(), params.self_signed(&key).unwrap().pem()).unwrap();
        };
        write("first.test");
        let table = format!("tls = {{ ca = {:?} }}", file.path());
        let pool = pool_with_tls(Arc::new(AtomicUsize::new(1)), &table);
        let endpoint = || pool.endpoint(([127, 0, 0, 1], 443).into());
        pool.refresh_tls().await;
        let before = endpoint();
        pool.refresh_tls().await;
        assert_eq!(endpoint(), before);
        // What cannot be used changes nothing.
        std::fs::write(file.path(), "garbage").unwrap();
        pool.refresh_tls().await;
        assert_eq!(endpoint(), before);
        write("the-second.test");
        pool.refresh_tls().await;
        assert_ne!(endpoint(), before);
    }

    #[tokio::test]
    async fn host_is_irrelevant_if_the_server_name_is_set() {
        let pool =
            pool_with_tls(Arc::new(AtomicUsize::new(1)), "tls = { server_name = \"api.test\" }");
        pool.look_up().await;
        assert_eq!(pool.endpoint(([127, 0, 0, 1], 443).into()).host, None);
    }

    #[tokio::test]
    async fn first_name_found_after_an_outage_does_not_replace_the_others() {
        let round = Arc::new(AtomicUsize::new(0));
        let resolver: Resolver = Arc::new({
            let round = Arc::clone(&round);
            move |server| match (round.load(Ordering::SeqCst), server.host.as_str()) {
                (1, _) => Box::pin(std::future::ready(Err(io::Error::other("none")))),
                (2, "a2") => Box::pin(std::future::pending()),
                (2, _) => Box::pin(std::future::ready(Ok(vec![([127, 0, 0, 3], 80).into()]))),
                _ => Box::pin(std::future::ready(found(server))),
            }
        });
        let pool = Arc::new(pool(&["a1:80".to_owned(), "a2:80".to_owned()], resolver));
        pool.look_up().await;
        round.store(1, Ordering::SeqCst);
        pool.look_up().await;
        round.store(2, Ordering::SeqCst);
        let lookup = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.look_up().await }
        });
        let addresses =
            || pool.endpoints(0).into_iter().map(|view| view.address).collect::<BTreeSet<_>>();
        let third = ([127, 0, 0, 3], 80).into();
        until(|| addresses().contains(&third)).await;
        assert_eq!(addresses(), [([127, 0, 0, 2], 80).into(), third].into());
        lookup.abort();
    }

    #[tokio::test]
    async fn addresses_stay_while_look_ups_fail() {
        let fails = Arc::new(AtomicUsize::new(0));
        let resolver: Resolver = Arc::new({
            let fails = Arc::clone(&fails);
            move |server| {
                let number = server.host.trim_start_matches('a').parse().unwrap_or(0);
                let fails = fails.load(Ordering::SeqCst) >= number;
                let result = if fails { Err(io::Error::other("none")) } else { found(server) };
                Box::pin(std::future::ready(result))
            }
        });
        let pool = pool(&["a1:80".to_owned(), "a2:80".to_owned()], resolver);
        let numbers = || pool.endpoints(0).len();
        pool.look_up().await;
        assert_eq!(numbers(), 2);
        fails.store(1, Ordering::SeqCst);
        pool.look_up().await;
        assert_eq!(numbers(), 2);
        fails.store(2, Ordering::SeqCst);
        pool.look_up().await;
        assert_eq!(numbers(), 2);
    }

    /// The upstreams of a file with these servers; `text` continues the table.
    fn upstreams(name: &str, servers: &str, text: &str) -> Vec<Upstream> {
        let file = format!("[upstreams.{name}]\nservers = [{servers}]\n{text}\n[routes.all]\n");
        crate::load::from_text("gateway.toml", &file).unwrap().upstreams
    }

    /// A resolver that finds no name, after a time without an answer.
    fn failing(after: Duration) -> Resolver {
        Arc::new(move |_| {
            Box::pin(async move {
                tokio::time::sleep(after).await;
                Err(io::Error::other("none"))
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn changed_upstream_keeps_addresses_while_names_cannot_be_looked_up() {
        let none = Known::default();
        let resolver: Resolver = Arc::new(|server| Box::pin(std::future::ready(found(server))));
        let first = upstreams("api", "'a1:80', 'a2:80'", "");
        let before = Pool::for_all_with(&first, &[], &none, &resolver).await;
        let known = Pool::known(&before);
        let json = serde_json::to_string(&known.addresses).unwrap();
        assert_eq!(serde_json::from_str::<KnownAddresses>(&json).unwrap(), known.addresses);
        for (name, servers, text, expected) in [
            ("api", "'a1:80', 'a2:80'", "balance = 'random_two'", 2),
            ("api", "'a1:80', 'a2:80'", "sticky = { cookie = 'srv' }", 2),
            ("api", "'a1:80', { address = 'a2:80', weight = 3 }", "", 2),
            ("renamed", "'a2:80'", "", 1),
            ("api", "'a1:81'", "", 0),
        ] {
            let next = upstreams(name, servers, text);
            let silent = failing(Duration::from_secs(60));
            let begin = tokio::time::Instant::now();
            let pools = Pool::for_all_with(&next, &before, &known, &silent).await;
            let waited = begin.elapsed() >= LOOKUP_TIMEOUT;
            assert_eq!((pools[0].endpoints(0).len(), waited), (expected, expected == 0), "{text}");
            assert_eq!(pools[0].has_no_address(), expected == 0);
            pools[0].close_unless_shared(&[]);
            let pools = Pool::for_all_with(&next, &before, &known, &failing(Duration::ZERO)).await;
            assert_eq!(pools[0].endpoints(0).len(), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn state_that_changes_after_a_reload_is_followed_by_the_new_pool() {
        let of = |text: &str| {
            let text = format!("eject = {{ consecutive_failures = 1 }}\n{text}");
            upstreams("api", "'10.0.0.1:80', '10.0.0.2:80'", &text)
        };
        let none = Known::default();
        let before = Pool::for_all(&of(""), &[], &none).await;
        let now = clock::now();
        let request = before[0].select(Wanted::default(), now).unwrap();
        let after = Pool::for_all(&of("sticky = { cookie = 'srv' }"), &before, &none).await;
        let reason = before[0].observe(&request, Some(ServerFailure::Timeout), now);
        assert_eq!(reason, Some(EjectReason::ConsecutiveFailures));
        for _ in 0..20 {
            let next = after[0].select(Wanted::default(), now).unwrap();
            assert_ne!(next.address(), request.address());
        }
    }

    #[tokio::test]
    async fn reload_skips_no_check_of_an_endpoint_that_has_been_checked() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("'{}'", server.local_addr().unwrap());
        let of = |text: &str| {
            let text = format!("health = {{ kind = 'tcp', interval = '1s' }}\n{text}");
            upstreams("api", &server, &text)
        };
        let none = Known::default();
        let before = Pool::for_all(&of(""), &[], &none).await;
        assert_eq!(before[0].endpoints(clock::now())[0].health.state, State::Up);
        // The check is due.
        tokio::time::sleep(Duration::from_millis(1_150)).await;
        let after = Pool::for_all(&of("balance = 'random_two'"), &before, &none).await;
        assert_eq!(after[0].due_checks(1, clock::now()).0.len(), 1);
    }

    #[tokio::test]
    async fn order_that_comes_with_a_look_up_is_followed() {
        let pool = three(THREE, "").await;
        let address = "10.0.0.2:80";
        pool.orders.set_endpoint(
            &HostPort { host: "10.0.0.2".to_owned(), port: 80 },
            address.parse().unwrap(),
            Some(Order::Disable),
        );
        pool.look_up().await;
        for _ in 0..6 {
            assert_eq!(last(&pool.select(Wanted::default(), clock::now()).unwrap()), 1);
        }
    }

    #[tokio::test]
    async fn changed_upstream_keeps_its_connections_if_its_servers_stay() {
        let none = Known::default();
        let first = upstreams("api", "'10.0.0.1:80', '10.0.0.2:80'", "");
        let before = Pool::for_all(&first, &[], &none).await;
        for (name, servers, text, is_shared) in [
            ("api", "'10.0.0.1:80', '10.0.0.2:80'", "balance = 'random_two'", true),
            ("api", "'10.0.0.1:80', '10.0.0.2:80'", "sticky = { cookie = 'srv' }", true),
            ("api", "'10.0.0.1:80', '10.0.0.2:80'", "slow_start = '10s'", true),
            ("api", "'10.0.0.2:80', { address = '10.0.0.1:80', weight = 3 }", "", true),
            ("api", "'10.0.0.1:80', '10.0.0.2:80'", "proxy_protocol = 'v1'", false),
            ("api", "'10.0.0.1:80', '10.0.0.2:80'", "protocol = 'h2c'", false),
            ("api", "'10.0.0.1:80'", "", false),
            ("other", "'10.0.0.1:80', '10.0.0.2:80'", "", false),
        ] {
            let after = Pool::for_all(&upstreams(name, servers, text), &before, &none).await;
            assert!(!Arc::ptr_eq(&before[0], &after[0]), "{text}");
            assert_eq!(Arc::ptr_eq(&before[0].idle, &after[0].idle), is_shared, "{text}");
            assert_eq!(Arc::ptr_eq(&before[0].http2, &after[0].http2), is_shared, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_configuration_waits_five_seconds_for_all_silent_names_together() {
        let names: Vec<String> = (0..48).map(|number| format!("'silent{number}:80'")).collect();
        let upstreams = upstreams("api", &names.join(","), "");
        let silent: Resolver = Arc::new(|_| Box::pin(std::future::pending()));
        let begin = tokio::time::Instant::now();
        let none = Known::default();
        let pools = Pool::for_all_with(&upstreams, &[], &none, &silent).await;
        assert!(begin.elapsed() < Duration::from_millis(5_100), "{:?}", begin.elapsed());
        assert!(!pools[0].is_looked_up());
        until(|| pools[0].is_looked_up()).await;
    }

    /// A pool of three servers; `text` continues its table.
    async fn three(servers: &str, text: &str) -> Pool {
        let file = format!("[upstreams.api]\nservers = [{servers}]\n{text}\n[routes.all]\n");
        let policy = crate::load::from_text("gateway.toml", &file).unwrap();
        let pool = Pool::new(&policy.upstreams[0]);
        pool.look_up().await;
        pool
    }

    const THREE: &str = "'10.0.0.1:80', { address = '10.0.0.2:80', weight = 2 }, \
                         { address = '10.0.0.3:80', backup = true }";

    /// The last part of the address that is selected.
    fn last(endpoint: &InFlight) -> u8 {
        let std::net::IpAddr::V4(ip) = endpoint.address().ip() else { panic!("not IPv4") };
        ip.octets()[3]
    }

    #[tokio::test]
    async fn backup_takes_over_when_no_other_endpoint_is_left() {
        let pool = three(THREE, "").await;
        let now = clock::now();
        let select = || pool.select(Wanted::default(), now).unwrap();
        let picked: Vec<u8> = (0..6).map(|_| last(&select())).collect();
        assert_eq!(picked, [2, 1, 2, 2, 1, 2]);
        let [first, second] = [select(), select()];
        pool.unreachable(&first, now);
        pool.unreachable(&second, now);
        assert_eq!((last(&select()), last(&select())), (3, 3));
        let backup = select();
        pool.unreachable(&backup, now);
        let picked: BTreeSet<u8> = (0..4).map(|_| last(&select())).collect();
        assert_eq!(picked, [1, 2, 3].into());
        let later = pool.select(Wanted::default(), now + 5_000_000).unwrap();
        assert!(last(&later) < 3);
    }

    #[tokio::test]
    async fn retry_goes_to_another_endpoint() {
        for balance in ["round_robin", "least_request", "random_two", "hash:ip"] {
            let pool = three(THREE, &format!("balance = '{balance}'")).await;
            let now = clock::now();
            for number in 0..50 {
                let first =
                    pool.select(Wanted { hash: number << 40, ..Wanted::default() }, now).unwrap();
                let again = |not: &[SocketAddr]| {
                    let wanted = Wanted { not, hash: number << 40, ..Wanted::default() };
                    pool.select(wanted, now).unwrap()
                };
                let second = again(&[first.address()]);
                assert_ne!(second.address(), first.address(), "{balance}");
                assert!(last(&second) < 3);
                // The backup is the only one where it has not failed.
                let both = [first.address(), second.address()];
                let third = again(&both);
                assert_eq!(last(&third), 3, "{balance}");
                again(&[both[0], both[1], third.address()]);
            }
        }
    }

    #[tokio::test]
    async fn retry_goes_to_a_healthy_endpoint_again_rather_than_to_an_ejected_one() {
        for balance in ["round_robin", "least_request", "random_two", "hash:ip"] {
            let text = format!("balance = '{balance}'\nsticky = {{ cookie = 'srv' }}");
            let pool = three("'10.0.0.1:80', '10.0.0.2:80'", &text).await;
            let now = clock::now();
            let (first, second) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
            let cookie = pool.cookie(second);
            let again = |not: &[SocketAddr], cookie: Option<&str>| {
                last(&pool.select(Wanted { not, cookie, ..Wanted::default() }, now).unwrap())
            };
            let failed = pool.select(Wanted { not: &[second], ..Wanted::default() }, now).unwrap();
            assert_eq!(last(&failed), 1);
            pool.unreachable(&failed, now);
            for cookie in [None, cookie.as_deref()] {
                // Not connected to: the other one. Connected to, without success: that one again.
                let nots = [&[first][..], &[second], &[first, second]];
                let found = nots.map(|not| again(not, cookie));
                assert_eq!(found, [2, 2, 2], "{balance} {cookie:?}");
            }
        }
    }

    #[tokio::test]
    async fn request_is_in_flight_until_its_endpoint_is_dropped() {
        let pool = three(THREE, "balance = 'least_request'").await;
        let held: Vec<_> = (0..6).map(|_| pool.select(Wanted::default(), 0).unwrap()).collect();
        let in_flight = || pool.endpoints(0).iter().map(|view| view.in_flight).collect::<Vec<_>>();
        assert_eq!(in_flight(), [2, 4, 0]);
        drop(held);
        assert_eq!(in_flight(), [0, 0, 0]);
    }

    #[tokio::test]
    async fn cookie_selects_its_endpoint_until_that_is_ejected() {
        let pool = three(THREE, "sticky = { cookie = 'srv' }").await;
        let now = clock::now();
        let cookie = pool.cookie("10.0.0.1:80".parse().unwrap());
        let wanted = Wanted { cookie: cookie.as_deref(), ..Wanted::default() };
        for _ in 0..5 {
            assert_eq!(last(&pool.select(wanted, now).unwrap()), 1);
        }
        pool.unreachable(&pool.select(wanted, now).unwrap(), now);
        assert_eq!(last(&pool.select(wanted, now).unwrap()), 2);
        let wanted = Wanted { cookie: Some("unknown"), ..Wanted::default() };
        assert_eq!(last(&pool.select(wanted, now).unwrap()), 2);
    }

    #[tokio::test]
    async fn slow_start_moves_no_client_of_a_hash() {
        let servers = "'10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80', '10.0.0.4:80'";
        let pool = three(servers, "balance = 'hash:ip'\nslow_start = '20s'").await;
        let now = clock::now();
        let picks = |now: u64| {
            let wanted = |client: u64| Wanted { hash: client << 58, ..Wanted::default() };
            let held: Vec<_> =
                (0..64).map(|client| pool.select(wanted(client), now).unwrap()).collect();
            held.iter().map(InFlight::address).collect::<Vec<_>>()
        };
        let before = picks(now);
        let returning = pool.select(Wanted::default(), now).unwrap();
        pool.unreachable(&returning, now);
        pool.reachable(&returning, now + 1);
        drop(returning);
        assert_eq!(picks(now + 100_000), before);
    }

    #[tokio::test]
    async fn state_of_endpoints_outlives_a_change_of_weights() {
        let pool = Arc::new(three(THREE, "").await);
        let now = clock::now();
        let first = pool.select(Wanted::default(), now).unwrap();
        pool.unreachable(&first, now);
        let file = "[upstreams.api]\nservers = ['10.0.0.9:80', '10.0.0.2:80']\n[routes.all]\n";
        let policy = crate::load::from_text("gateway.toml", file).unwrap();
        let pools = Pool::for_all(&policy.upstreams, &[pool], &Known::default()).await;
        let views = pools[0].endpoints(now);
        assert_eq!((views[1].address, views[1].in_flight), (first.address(), 1));
        assert!(views[1].health.until > now + 4_000_000, "{views:?}");
    }
}
