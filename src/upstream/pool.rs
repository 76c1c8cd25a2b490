//! The servers of one upstream: round robin, passive health, and name look-ups.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use pingora::lb::discovery::ServiceDiscovery;
use pingora::lb::selection::RoundRobin;
use pingora::lb::{Backend, Backends, LoadBalancer};
use pingora::prelude::{Error, ErrorType, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::warn;

use super::dial::Endpoint;
use super::http2::Http2Connections;
use super::idle::IdleConnections;
use super::tls::TlsClient;
use crate::limit::MICROS_PER_SECOND;
use crate::net::address::HostPort;
use crate::net::io_text;
use crate::net::lookup::{Resolver, system_resolver};
use crate::policy::settings::{Target, Upstream};

/// Deadline of one name look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of concurrent name look-ups, of all upstreams together. Each occupies a thread.
const MAX_LOOKUPS: usize = 16;

/// The look-ups that may still start.
static LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

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
    /// Idle connections over HTTP/1.1 to its servers.
    idle: IdleConnections,
    /// Connections over HTTP/2 to its servers.
    pub(crate) http2: Http2Connections,
    /// TLS to its servers; `None`: connections are in clear.
    tls: Option<Arc<TlsClient>>,
    /// The upstream as configured.
    upstream: Upstream,
    servers: Arc<Servers>,
    /// The host of each address as of the last look-up, if it is what the server's certificate must be for.
    hosts: ArcSwap<HashMap<SocketAddr, Arc<str>>>,
    resolver: Resolver,
}

/// The servers of an upstream as configured, and the addresses of each as of its last look-up.
struct Servers(Vec<(HostPort, Mutex<Vec<SocketAddr>>)>);

/// The source of the balancer's addresses.
struct Discovery(Arc<Servers>);

impl Pool {
    /// Creates a pool of the upstream's servers. It has no addresses until [`look_up`](Self::look_up) has run.
    pub fn new(upstream: &Upstream) -> Self {
        Self::with_resolver(upstream, system_resolver())
    }

    fn with_resolver(upstream: &Upstream, resolver: Resolver) -> Self {
        let servers = match &upstream.target {
            Target::Demo => &[],
            Target::Servers(servers) => servers.as_slice(),
        };
        let servers = Servers(servers.iter().map(|s| (s.clone(), Mutex::default())).collect());
        let has_names = servers.0.iter().any(|(server, _)| address(server).is_none());
        let servers = Arc::new(servers);
        let backends = Backends::new(Box::new(Discovery(Arc::clone(&servers))));
        let tls = upstream.tls.clone().map(|tls| TlsClient::new(Arc::clone(&upstream.name), tls));
        Self {
            balancer: LoadBalancer::from_backends(backends),
            ejected: RwLock::default(),
            has_names,
            name: Arc::clone(&upstream.name),
            http2: Http2Connections::new(),
            idle: IdleConnections::new(Arc::clone(&upstream.name)),
            tls: tls.map(Arc::new),
            upstream: upstream.clone(),
            servers,
            hosts: ArcSwap::default(),
            resolver,
        }
    }

    /// Returns a pool for each of `upstreams`, in their order. A pool of `previous` with the same
    /// name and servers is reused, with its health state and idle connections. The names of all
    /// other pools are looked up in parallel. A name without an address is logged; a later look-up
    /// may find one.
    pub async fn for_all(upstreams: &[Upstream], previous: &[Arc<Self>]) -> Vec<Arc<Self>> {
        let mut lookups = JoinSet::new();
        let pool = |upstream: &Upstream| {
            let is_same = |pool: &&Arc<Self>| pool.has_connections_of(upstream);
            if let Some(pool) = previous.iter().find(is_same) {
                return Arc::clone(pool);
            }
            let pool = Arc::new(Self::new(upstream));
            let new = Arc::clone(&pool);
            lookups.spawn(async move {
                tokio::join!(new.refresh_tls(), new.look_up());
            });
            pool
        };
        let pools = upstreams.iter().map(pool).collect();
        while lookups.join_next().await.is_some() {}
        pools
    }

    /// Whether its connections are as `upstream` configures them.
    fn has_connections_of(&self, upstream: &Upstream) -> bool {
        let own = &self.upstream;
        (&own.name, &own.target, &own.tls) == (&upstream.name, &upstream.target, &upstream.tls)
            && (own.protocol, own.proxy_protocol) == (upstream.protocol, upstream.proxy_protocol)
    }

    /// Name of the upstream.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// TLS to its servers; `None`: connections are in clear.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsClient>> {
        self.tls.as_ref()
    }

    /// The server with this address. Its host is the name or IP address of the configuration; if several have
    /// the address, the first.
    pub(crate) fn endpoint(&self, address: SocketAddr) -> Endpoint {
        let is_verified = self.tls.as_ref().is_some_and(|tls| tls.verifies_hosts());
        let host = is_verified.then(|| {
            let known = self.hosts.load().get(&address).map(Arc::clone);
            known.unwrap_or_else(|| address.ip().to_string().into())
        });
        let generation = self.tls.as_ref().map_or(0, |tls| tls.generation());
        Endpoint { address, host, generation }
    }

    /// The server with this address, as configured; if several have it, the first.
    pub(crate) fn server(&self, address: SocketAddr) -> Option<HostPort> {
        let has =
            |(_, found): &&(HostPort, Mutex<Vec<SocketAddr>>)| found.lock().contains(&address);
        self.servers.0.iter().find(has).map(|(server, _)| server.clone())
    }

    /// Idle connections over HTTP/1.1 to its servers.
    pub(super) fn idle(&self) -> &IdleConnections {
        &self.idle
    }

    /// Closes connections that have expired or that cannot be used again.
    pub fn sweep(&self, now: u64) {
        self.idle.sweep(now);
        self.http2.sweep(now);
    }

    /// Closes all connections that no request uses. None is kept from now on.
    pub fn close(&self) {
        self.idle.close();
        self.http2.close();
    }

    /// Reads the files of its TLS configuration again if they have changed.
    pub async fn refresh_tls(&self) {
        if let Some(tls) = self.tls.clone() {
            // Fails only if the process ends.
            let _ = tokio::task::spawn_blocking(move || tls.refresh()).await;
        }
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
        if let (Target::Servers(origins), true) = (&self.upstream.target, addresses.is_empty()) {
            return origins.iter().map(|origin| (origin.to_string(), false)).collect();
        }
        addresses.into_iter().map(|(address, left)| (address.to_string(), left == 0)).collect()
    }

    /// Looks up the addresses of all servers in parallel, each within 5 s. Each server is available as
    /// soon as its own look-up has succeeded. A server whose look-up fails loses its addresses, unless
    /// no server of the pool has one: then the previous addresses stay.
    pub async fn look_up(&self) {
        let mut lookups = JoinSet::new();
        for (index, (server, addresses)) in self.servers.0.iter().enumerate() {
            if let Some(address) = address(server) {
                *addresses.lock() = vec![address];
            } else {
                let lookup = look_up(server.clone(), Arc::clone(&self.resolver));
                lookups.spawn(async move { (index, lookup.await) });
            }
        }
        let mut failed = Vec::new();
        while let Some(lookup) = lookups.join_next().await {
            let Ok((index, result)) = lookup else { continue };
            let Some((server, addresses)) = self.servers.0.get(index) else { continue };
            match result {
                Ok(found) => {
                    *addresses.lock() = found;
                    self.update().await;
                }
                Err(error) => {
                    failed.push((addresses, std::mem::take(&mut *addresses.lock())));
                    let cause = io_text::plain(&error);
                    warn!(upstream = &*self.name, %server, cause, "name look-up failed");
                }
            }
        }
        self.update().await;
        if failed.len() == self.servers.0.len() {
            // The balancer keeps them, so the first name that is found next must not replace them all.
            for (addresses, previous) in failed {
                *addresses.lock() = previous;
            }
        }
    }

    /// Passes the addresses of all servers to the balancer.
    async fn update(&self) {
        let mut hosts = HashMap::new();
        for (server, addresses) in &self.servers.0 {
            for address in &*addresses.lock() {
                hosts.entry(*address).or_insert_with(|| server.host.as_str().into());
            }
        }
        if !hosts.is_empty() {
            self.hosts.store(Arc::new(hosts));
        }
        if self.balancer.update().await.is_err() {
            warn!(upstream = &*self.name, "no server of the upstream has a known address");
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.name).finish()
    }
}

#[async_trait]
impl ServiceDiscovery for Discovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut backends = BTreeSet::new();
        for (_, addresses) in &self.0.0 {
            for address in &*addresses.lock() {
                backends.insert(Backend::new(&address.to_string())?);
            }
        }
        if backends.is_empty() && !self.0.0.is_empty() {
            return Error::e_explain(ErrorType::ConnectNoRoute, "no server has an address");
        }
        Ok((backends, HashMap::new()))
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::request_id::RequestId;
    use crate::upstream::idle::{Body, Idle};
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
        tokio::time::timeout(Duration::from_secs(5), wait).await.unwrap();
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
        until(|| pool.addresses(0).len() == 3).await;
        assert!(!lookup.is_finished());
        let addresses: BTreeSet<_> = pool.addresses(0).into_iter().map(|(a, _)| a).collect();
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
        assert_eq!(pool.addresses(0).len(), 40);
        assert_eq!(most.load(Ordering::SeqCst), MAX_LOOKUPS);
    }

    /// `text` continues the table of the upstream, whose servers a and b have the port 443. The address of a is
    /// 127.0.0.`a`, that of b is 127.0.0.1.
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
        let stream = Transport::Clear(stream);
        let idle = Idle { stream, request_id: RequestId::new(), body: Body::Some };
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
        let addresses = || pool.addresses(0).into_iter().map(|(a, _)| a).collect::<BTreeSet<_>>();
        let third = ([127, 0, 0, 3], 80).into();
        until(|| addresses().contains(&third)).await;
        assert_eq!(addresses(), [([127, 0, 0, 2], 80).into(), third].into());
        lookup.abort();
    }

    #[tokio::test]
    async fn addresses_stay_if_every_look_up_fails() {
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
        let numbers = || pool.addresses(0).len();
        pool.look_up().await;
        assert_eq!(numbers(), 2);
        fails.store(1, Ordering::SeqCst);
        pool.look_up().await;
        assert_eq!(numbers(), 1);
        fails.store(2, Ordering::SeqCst);
        pool.look_up().await;
        assert_eq!(numbers(), 1);
    }
}
