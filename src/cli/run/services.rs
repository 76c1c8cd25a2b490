//! Assembles the services that Pingora runs: the proxy, the admin port and background services.

use std::sync::Arc;
use std::time::Duration;

use pingora::apps::HttpServerOptions;
use pingora::prelude::{Server, background_service};
use pingora::proxy::http_proxy;
use pingora::server::configuration::ServerConf;
use pingora::services::listening;
use tracing::warn;

use crate::admin::{Admin, App, Readiness, Sampler};
use crate::clock;
use crate::downstream::pressure::Pressure;
use crate::downstream::rejections::Rejections;
use crate::downstream::service::{Downstream, Front};
use crate::downstream::unwritten::Unwritten;
use crate::gateway::{Gateway, MAX_TRIES};
use crate::limit::share::Share;
use crate::net::listen::{ClientListener, Listener, Prebound};
use crate::observe::metrics::Metrics;
use crate::policy::listener::Listener as Settings;
use crate::policy::redis::{Redis, StartWithout};
use crate::policy::{Policy, settings};
use crate::reload::Reloader;
use crate::reload::service::{HangupSignal, ReloadService};
use crate::runtime::Runtime;
use crate::runtime::acme::AcmeService;
use crate::runtime::drain::{Busy, Draining};
use crate::runtime::lookups::Lookups;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append::Appending;
use crate::store::redis::link::{Link, Supervisor};
use crate::store::redis::node::{Node, NodeSeries};
use crate::tls::handshakes::Handshakes;

/// Maximum time that the first client connections wait for the connection to Redis.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that the services are built from.
pub(super) struct Services {
    pub(super) listeners: Vec<(Settings, ClientListener)>,
    pub(super) admin: Listener,
    pub(super) runtime: Runtime,
    pub(super) handshakes: Arc<Handshakes>,
    pub(super) supervisor: Option<Supervisor>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) hangup_signal: HangupSignal,
}

impl Services {
    /// Builds all services by the settings of `[server]`. Threads start when the server runs. Also returns what
    /// the drain waits for.
    pub(super) fn assemble(
        self,
        settings: &settings::Server,
        draining: &Draining,
        pressure: Pressure,
    ) -> (Server, Busy) {
        let threads = threads(settings);
        let conf = ServerConf {
            threads,
            // A single thread is faster without work stealing.
            work_stealing: threads > 1,
            max_retries: MAX_TRIES,
            // The main thread ends the process earlier, when nothing is in flight.
            grace_period_seconds: Some(settings.drain_timeout.as_secs() + 1),
            graceful_shutdown_timeout_seconds: Some(1),
            ..ServerConf::default()
        };
        let mut pingora = Server::new_with_opt_and_conf(None, conf);
        let Runtime { current, limiter, store, metrics, access_log, audit, traces, acme, tls } =
            self.runtime.clone();
        let gateway = Gateway::new(
            Arc::clone(&current),
            Arc::clone(&limiter),
            Arc::clone(&metrics),
            access_log,
            audit,
            traces,
            Arc::clone(&acme.challenges),
        );
        let mut proxy = http_proxy(&pingora.configuration, gateway);
        // The gateway refuses CONNECT itself, so that the refusal is logged and counted.
        let mut options = HttpServerOptions::default();
        options.allow_connect_method_proxying = true;
        proxy.server_options = Some(options);
        let front = Front {
            current: Arc::clone(&current),
            tls,
            handshakes: self.handshakes,
            rejections: Rejections::new(metrics.connections.clone()),
            pressure: pressure.clone(),
            unwritten: Unwritten::default(),
        };
        let unwritten = front.unwritten.clone();
        let open = pressure.open().clone();
        let busy = Busy { in_flight: metrics.in_flight.clone(), unwritten, open };
        let proxy = Downstream::new(proxy, front, self.listeners);
        let mut proxy = Prebound::new(proxy, Vec::new());
        if let Some(supervisor) = self.supervisor {
            proxy = proxy
                .starting_after(first_connect(supervisor.link()))
                .with_companion(Arc::new(supervisor));
        }
        pingora.add_service(proxy);

        let shares_redis = current.load().policy.redis.is_some();
        let sampler = Arc::new(Sampler::new(metrics, store, shares_redis));
        let needs_redis = current.load().policy.redis.as_ref().is_some_and(Redis::is_needed);
        let needed = needs_redis.then_some(limiter);
        let readiness = Readiness { draining: draining.clone(), needed, pressure };
        let reloader = Arc::clone(&self.reloader);
        let answers = Admin::new(self.runtime, readiness, reloader, Arc::clone(&sampler));
        let app = App::new(answers, Arc::clone(&sampler), draining.clone());
        let mut admin = listening::Service::new("admin".to_string(), app);
        admin.threads = Some(1);
        admin.add_tcp(&self.admin.service_name());
        let admin = Prebound::new(admin, vec![self.admin]).serving_while_draining();
        pingora.add_service(admin.with_companion(sampler));

        let mut orders = background_service("acme", AcmeService::new(Arc::clone(&current), acme));
        orders.threads = Some(1);
        pingora.add_service(orders);
        let mut lookups = background_service("lookups", Lookups::new(current));
        lookups.threads = Some(1);
        pingora.add_service(lookups);
        let reloads = ReloadService::new(self.reloader, self.hangup_signal);
        let mut reloads = background_service("reloads", reloads);
        reloads.threads = Some(1);
        pingora.add_service(reloads);
        (pingora, busy)
    }
}

/// Number of threads that serve requests.
pub(super) fn threads(settings: &settings::Server) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    settings.threads.unwrap_or_else(cores)
}

/// Waits for the result of the first connection attempt to Redis. Earlier requests would be decided
/// locally.
async fn first_connect(link: Arc<Link>) {
    link.until_first_attempt(FIRST_CONNECT_TIMEOUT).await;
    if !link.is_reached() {
        warn!("Redis not reached at the start; buckets start as `redis.start_without` says");
    }
}

/// The limiter, and the supervisor of its connection if the file has `[redis]`.
pub(super) fn limiter(
    policy: &Policy,
    store: Arc<MemoryStore>,
    metrics: &Metrics,
    appending: Option<Appending>,
) -> (Limiter, Option<Supervisor>) {
    let Some(redis) = &policy.redis else {
        return (Limiter::local(store), None);
    };
    let series = NodeSeries { link: metrics.link(), calls: metrics.redis_calls() };
    let (node, mut supervisor) = Node::new(redis, policy.memory.max_buckets, series);
    if let Some(appending) = appending {
        supervisor = supervisor.appending(appending);
    }
    let instances = policy.server.instances;
    if redis.start_without == StartWithout::Empty {
        // The number of gateways is unknown until Redis is reached.
        store.start_empty(Share::one_of(instances.unwrap_or(1)), node.reached(), clock::now());
    }
    (Limiter::shared(store, node, instances), Some(supervisor))
}
