//! Assembles the services that Pingora runs: the proxy, the admin port and background services.

use std::sync::Arc;
use std::time::Duration;

use pingora::apps::HttpServerOptions;
use pingora::prelude::{Server, background_service};
use pingora::proxy::http_proxy;
use pingora::server::configuration::ServerConf;
use pingora::services::listening;
use tokio::sync::watch;
use tracing::warn;

use crate::admin::{Admin, App, Readiness, Sampler};
use crate::base::background::Background;
use crate::base::clock;
use crate::base::failure::{Failures, Supervised};
use crate::downstream::intake::Intake;
use crate::downstream::pressure::Pressure;
use crate::downstream::rejections::Rejections;
use crate::downstream::service::{Downstream, Front};
use crate::downstream::unwritten::Unwritten;
use crate::gateway::{Gateway, MAX_TRIES};
use crate::keys::follow::KeyFollower;
use crate::limit::Limit;
use crate::limit::share::Share;
use crate::net::listen::{ClientListener, Listener, Prebound};
use crate::observe::metrics::Metrics;
use crate::policy::listener::Listener as Settings;
use crate::policy::redis::{Redis, StartWithout};
use crate::policy::{Policy, settings};
use crate::process::busy::Busy;
use crate::process::handover::{Takeover, Upgrader};
use crate::process::notify::{self, Watchdog};
use crate::process::wall_clock::WallClock;
use crate::reload::Reloader;
use crate::reload::service::{HangupSignal, ReloadService};
use crate::runtime::acme::AcmeService;
use crate::runtime::checks::Checks;
use crate::runtime::drain::Draining;
use crate::runtime::lookups::Lookups;
use crate::runtime::orders::OrderSharing;
use crate::runtime::rates::RateSync;
use crate::runtime::token_keys::TokenKeys;
use crate::runtime::{CurrentSnapshot, Runtime};
use crate::store::bans::sync::BanSync;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append::Appending;
use crate::store::redis::nodes::{Nodes, NodesSupervisor};
use crate::tls::handshakes::Handshakes;

/// Maximum time that the first client connections wait for the connection to Redis.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that the services are built from.
pub(super) struct Services {
    pub(super) listeners: Vec<(Settings, ClientListener)>,
    pub(super) admin: Listener,
    pub(super) runtime: Runtime,
    pub(super) sampler: Arc<Sampler>,
    pub(super) handshakes: Arc<Handshakes>,
    pub(super) supervisor: Option<NodesSupervisor>,
    /// Reads the key store.
    pub(super) follower: Option<KeyFollower>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) hangup_signal: HangupSignal,
    pub(super) upgrader: Arc<Upgrader>,
    pub(super) intake: Intake,
    /// The last steps of the upgrade that started this process.
    pub(super) takeover: Option<Takeover>,
    pub(super) failures: Failures,
}

impl Services {
    /// Builds all services by the settings of `[server]`. Threads start when the server runs. Also
    /// returns what the drain waits for.
    pub(super) fn assemble(
        self,
        settings: &settings::Server,
        draining: &Draining,
        pressure: Pressure,
    ) -> (Server, Busy) {
        let failures = self.failures;
        let mut pingora = Server::new_with_opt_and_conf(None, conf(settings));
        let Runtime { current, limiter, metrics, acme, tls, .. } = self.runtime.clone();
        let rejections = Rejections::new(metrics.connections.clone());
        let gateway = Gateway::new(&self.runtime, rejections.clone());
        let mut proxy = http_proxy(&pingora.configuration, gateway);
        // The gateway refuses CONNECT itself, so that the refusal is logged and counted.
        let mut options = HttpServerOptions::default();
        options.allow_connect_method_proxying = true;
        proxy.server_options = Some(options);
        let front = Front {
            current: Arc::clone(&current),
            tls,
            handshakes: self.handshakes,
            rejections,
            pressure: pressure.clone(),
            intake: self.intake,
            unwritten: Unwritten::default(),
            draining: draining.clone(),
        };
        let unwritten = front.unwritten.clone();
        let in_flight = metrics.in_flight.clone();
        let mirrored = metrics.mirrored_in_flight().clone();
        let busy = Busy { in_flight, mirrored, unwritten, open: pressure.open().clone() };
        let proxy = Downstream::new(proxy, front, self.listeners, failures.clone());
        // The admin port opens after the takeover: until then, the previous process answers.
        let (taken, is_taken) = watch::channel(false);
        let (nodes, bans) = (limiter.redis().cloned(), limiter.bans().clone());
        let tokens = Arc::clone(&current);
        let begin = begin(nodes, tokens, self.takeover, Arc::clone(&self.upgrader), taken);
        let proxy = Prebound::new(proxy, Vec::new(), failures.clone()).starting_after(begin);
        pingora.add_service(with_companions(proxy, self.supervisor, &failures));

        let (sampler, upgrader) = (self.sampler, self.upgrader);
        let needs_redis = current.load().policy.redis.as_ref().is_some_and(Redis::is_needed);
        let needed = needs_redis.then_some(limiter);
        let readiness = Readiness { draining: draining.clone(), needed, pressure };
        let reloader = Arc::clone(&self.reloader);
        let checks = Checks::new(self.runtime.clone());
        let redis = current.load().policy.redis.clone();
        let board = self.runtime.orders.clone();
        let shared_orders = OrderSharing::new(board, Arc::clone(&current), redis.as_ref());
        let answers = Admin::new(self.runtime, readiness, reloader, Arc::clone(&sampler))
            .upgrading_by(Arc::clone(&upgrader));
        let app = App::new(answers, Arc::clone(&sampler), draining.clone());
        let mut admin = listening::Service::new("admin".to_string(), app);
        admin.threads = Some(1);
        admin.add_tcp(&self.admin.service_name());
        let admin = Prebound::new(admin, vec![self.admin], failures.clone())
            .serving_until(upgrader.watch())
            .starting_after(until_true(is_taken.clone()));
        pingora.add_service(admin.with_companion(Arc::new(Supervised::<Sampler>::new(
            "sampler",
            sampler,
            failures.clone(),
        ))));

        let orders = AcmeService::new(Arc::clone(&current), acme, is_taken);
        let reloads = ReloadService::new(self.reloader, self.hangup_signal);
        add_background(&mut pingora, "acme", orders, &failures);
        let (rates, keys) = (Arc::clone(&current), TokenKeys::new(Arc::clone(&current)));
        add_background(&mut pingora, "token_keys", keys, &failures);
        add_background(&mut pingora, "rates", RateSync::new(rates, redis.as_ref()), &failures);
        add_background(&mut pingora, "lookups", Lookups::new(current), &failures);
        add_background(&mut pingora, "checks", checks, &failures);
        if let Some(redis) = &redis {
            add_background(&mut pingora, "orders", shared_orders, &failures);
            add_background(&mut pingora, "bans", BanSync::new(bans, redis), &failures);
        }
        add_background(&mut pingora, "reloads", reloads, &failures);
        if let Some(follower) = self.follower {
            add_background(&mut pingora, "keys", follower, &failures);
        }
        (pingora, busy)
    }
}

/// Runs the clock, the connection to Redis and the watchdog on the threads that serve requests.
fn with_companions<S>(
    proxy: Prebound<S>,
    supervisor: Option<NodesSupervisor>,
    failures: &Failures,
) -> Prebound<S> {
    let clock = Supervised::<WallClock>::new("clock", WallClock, failures.clone());
    let mut proxy = proxy.with_companion(Arc::new(clock));
    if let Some(supervisor) = supervisor {
        let supervised = Supervised::<NodesSupervisor>::new("redis", supervisor, failures.clone());
        proxy = proxy.with_companion(Arc::new(supervised));
    }
    match Watchdog::find() {
        Some(watchdog) => proxy.with_companion(Arc::new(watchdog)),
        None => proxy,
    }
}

/// Adds a service that has a thread for itself.
fn add_background<S>(pingora: &mut Server, name: &'static str, service: S, failures: &Failures)
where
    S: Background,
{
    let supervised = Supervised::<S>::new(name, service, failures.clone());
    let mut service = background_service(name, supervised);
    service.threads = Some(1);
    pingora.add_service(service);
}

/// The settings of Pingora's server.
fn conf(settings: &settings::Server) -> ServerConf {
    let threads = threads(settings);
    ServerConf {
        threads,
        // A single thread is faster without work stealing.
        work_stealing: threads > 1,
        max_retries: MAX_TRIES,
        // The main thread ends the process earlier, when nothing is in flight.
        grace_period_seconds: Some(settings.drain_timeout.as_secs() + 1),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    }
}

/// Number of threads that serve requests.
pub(super) fn threads(settings: &settings::Server) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    settings.threads.unwrap_or_else(cores)
}

/// Completes when clients may connect: after the first connection attempt to Redis, the first
/// fetches of keys of token issuers, and after the process that this one replaces has handed over
/// its buckets.
async fn begin(
    nodes: Option<Arc<Nodes>>,
    current: Arc<CurrentSnapshot>,
    takeover: Option<Takeover>,
    upgrader: Arc<Upgrader>,
    taken: watch::Sender<bool>,
) {
    if let Some(nodes) = nodes {
        first_connect(&nodes).await;
    }
    current.load_full().tokens.fetch_missing().await;
    if let Some(takeover) = takeover {
        if let Ok(received) = tokio::task::spawn_blocking(move || takeover.complete()).await {
            // Clients do not wait for it, the admin port does.
            tokio::spawn(async move {
                let _ = tokio::task::spawn_blocking(move || received.read()).await;
                taken.send_replace(true);
            });
        } else {
            warn!("the takeover of buckets has failed");
            taken.send_replace(true);
        }
    } else {
        taken.send_replace(true);
    }
    upgrader.open();
    notify::ready("serving");
}

/// Waits until the value is true.
async fn until_true(mut value: watch::Receiver<bool>) {
    // An error means that the service of the sender has ended.
    let _ = value.wait_for(|is_true| *is_true).await;
}

/// Waits for the result of the first connection attempt to Redis. Earlier requests would be decided
/// locally.
async fn first_connect(nodes: &Nodes) {
    if !nodes.until_first_attempt(FIRST_CONNECT_TIMEOUT).await {
        warn!("Redis not reached at the start; buckets start as `redis.start_without` says");
    }
}

/// The limiter, and the supervisor of its connection if the file has `[redis]`.
pub(super) fn limiter(
    policy: &Policy,
    store: Arc<MemoryStore>,
    metrics: &Metrics,
    appending: Option<Appending>,
) -> (Limiter, Option<NodesSupervisor>) {
    let Some(redis) = &policy.redis else {
        return (Limiter::local(store), None);
    };
    let held = Arc::clone(store.held());
    let (nodes, mut supervisor) =
        Nodes::new(redis, policy.memory.max_buckets, held, metrics.redis());
    if let Some(appending) = appending {
        supervisor = supervisor.appending(appending);
    }
    supervisor = supervisor.keeping_quotas(policy.limits.iter().any(Limit::counts_for_hours));
    let instances = policy.server.instances;
    if redis.start_without == StartWithout::Empty {
        // The number of gateways is unknown until Redis is reached.
        store.start_empty(Share::one_of(instances.unwrap_or(1)), nodes.reached(), clock::now());
    }
    (Limiter::shared(store, nodes, instances), Some(supervisor))
}
