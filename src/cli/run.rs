//! `tollgate run`: reads the file, opens the ports, serves until told to stop.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pingora::prelude::{Server, background_service};
use pingora::proxy::http_proxy_service_with_name;
use pingora::server::configuration::ServerConf;
use pingora::server::{ExecutionPhase, RunArgs};
use pingora::services::listening;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use super::check::{reject, summary};
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE};
use crate::admin::{Admin, App, Ticker};
use crate::gateway::drain::{self, Draining, Signals};
use crate::gateway::listen::{self, BindError, Bound, Prebound};
use crate::gateway::pool::{Lookups, Pool};
use crate::gateway::{Current, Gateway, MAX_TRIES, Snapshot};
use crate::load::Source;
use crate::observe::access_log::AccessLog;
use crate::observe::audit::keeper::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::policy::redis::Redis;
use crate::policy::{Policy, settings};
use crate::reload::service::{Hangups, Reloads};
use crate::reload::{Force, Reloader};
use crate::store::debts::Debts;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append::{self, Appender, Appending};
use crate::store::redis::batch::Batcher;
use crate::store::redis::link::{Link, Supervisor};

/// Which log lines are wanted: `error`, `warn`, `info`, `debug`, or targets as tracing's
/// `EnvFilter` takes them.
const LOG_VARIABLE: &str = "TOLLGATE_LOG";

/// Pingora logs what any client can provoke as errors, on the admin port with the head that it could
/// not read, where a token may stand. What matters of it is logged here, with the request's id.
const LOG_ALWAYS: &str = "pingora_proxy=off,pingora_core::apps=off";

/// Idle connections to upstreams that each thread keeps.
const UPSTREAM_POOL_PER_THREAD: usize = 128;

/// Serves by the file until SIGTERM or SIGINT.
pub(super) fn run(file: &Path) -> ExitCode {
    if let Err(exit) = log_to_stderr() {
        return exit;
    }
    let source = Source::read(file);
    let read = source.and_then(|source| source.policy().map(|policy| (source, policy)));
    let (source, policy) = match read {
        Ok(read) => read,
        Err(error) => return reject(&error),
    };
    info!("{}: {}", file.display(), summary(&policy));
    let server = policy.server.clone();
    let (listeners, admin) = match open(&server) {
        Ok(opened) => opened,
        Err(bind_error) => {
            error!("{bind_error}");
            return ExitCode::from(EXIT_UNAVAILABLE);
        }
    };
    let metrics = match Metrics::new(env!("CARGO_PKG_VERSION")) {
        Ok(metrics) => Arc::new(metrics),
        Err(error) => {
            error!("metrics cannot be set up: {error}");
            return ExitCode::FAILURE;
        }
    };
    let stream = policy.redis.as_ref().map(|_| append::channel(metrics.audit_dropped.clone()));
    let (appender, appending) = stream.unzip();
    let tellers = match Tellers::start(&policy, &metrics, appender) {
        Ok(tellers) => tellers,
        Err(error) => {
            error!("{error}");
            return ExitCode::from(EXIT_UNAVAILABLE);
        }
    };
    let store = Arc::new(MemoryStore::new(policy.memory.max_buckets, &policy.quotas));
    let draining = Draining::default();
    let Prepared { signals, hangups, pools } = match prepare(&policy, &draining) {
        Ok(prepared) => prepared,
        Err(error) => {
            error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    for listener in &listeners {
        info!("listening on http://{}", listener.address);
    }
    info!("admin port on http://{}", admin.address);

    let (limiter, supervisor) = limiter(&policy, Arc::clone(&store), &metrics, appending);
    let current = Arc::new(Current::from_pointee(Snapshot::new(policy, pools)));
    let limiter = Arc::new(limiter);
    let force = Force {
        current,
        limiter,
        store,
        metrics: Arc::clone(&metrics),
        access_log: Arc::clone(&tellers.access_log),
        audit: Arc::clone(&tellers.audit),
        traces: Arc::clone(&tellers.traces),
    };
    let reloader = Arc::new(Reloader::new(file, &source, force.clone()));
    let services = Services { listeners, admin, force, supervisor, reloader, hangups };
    let pingora = services.assemble(&server, &draining);
    let exit = serve(pingora, signals, &metrics, server.drain_timeout);
    tellers.close();
    exit
}

/// Has the process say what happens to it.
fn log_to_stderr() -> Result<(), ExitCode> {
    let wanted = std::env::var(LOG_VARIABLE).unwrap_or_default();
    // A word that is no level is read as a target: it must not silence all others.
    let filter = match EnvFilter::try_new(format!("info,{wanted},{LOG_ALWAYS}")) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("error: {LOG_VARIABLE}={wanted:?} cannot be read: {error}");
            return Err(ExitCode::from(EXIT_BAD_FILE));
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // On a full disk there is nobody to tell, and an attempt to would panic.
        .log_internal_errors(false)
        .init();
    // Below this, Pingora logs whole request heads, API keys among them. What is written here does
    // not go through the log crate, and is not held back.
    log::set_max_level(log::LevelFilter::Warn);
    Ok(())
}

/// Who tells of requests.
struct Tellers {
    /// A line for each.
    access_log: Arc<AccessLog>,
    /// Who was refused.
    audit: Arc<Audit>,
    /// Spans.
    traces: Arc<Traces>,
}

impl Tellers {
    fn start(policy: &Policy, metrics: &Metrics, stream: Option<Appender>) -> Result<Self, String> {
        let (output, dropped) =
            (policy.access_log.output.clone(), metrics.access_log_dropped.clone());
        let access_log = AccessLog::start(output, dropped)
            .map_err(|error| format!("the access log cannot be written: {error}"))?;
        let cannot_start = |error| format!("cannot start: {error}");
        let audit = Audit::start(stream).map_err(cannot_start)?;
        audit.stream_by(&policy.audit);
        let traces = Traces::start(metrics.traces.clone()).map_err(cannot_start)?;
        traces.aim_at(policy.tracing.as_ref());
        if let Some(tracing) = &policy.tracing {
            info!("traces of requests go to {}", tracing.endpoint);
        }
        Ok(Self { access_log: Arc::new(access_log), audit, traces: Arc::new(traces) })
    }

    /// Has them tell what waits.
    fn close(&self) {
        self.audit.close();
        self.access_log.close();
        self.traces.close();
    }
}

/// What the process serves with.
struct Services {
    listeners: Vec<Bound>,
    admin: Bound,
    force: Force,
    supervisor: Option<Supervisor>,
    reloader: Arc<Reloader>,
    hangups: Hangups,
}

impl Services {
    fn assemble(self, settings: &settings::Server, draining: &Draining) -> Server {
        let threads = settings.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        let conf = ServerConf {
            threads,
            // One thread has nobody to steal from, and is faster without the machinery for it.
            work_stealing: threads > 1,
            max_retries: MAX_TRIES,
            upstream_keepalive_pool_size: UPSTREAM_POOL_PER_THREAD * threads,
            // The main thread ends the process earlier, when nothing is in flight.
            grace_period_seconds: Some(settings.drain_timeout.as_secs() + 1),
            graceful_shutdown_timeout_seconds: Some(1),
            ..ServerConf::default()
        };
        let mut pingora = Server::new_with_opt_and_conf(None, conf);
        let Force { current, limiter, store, metrics, access_log, audit, traces } =
            self.force.clone();
        let gateway = Gateway::new(
            Arc::clone(&current),
            Arc::clone(&limiter),
            Arc::clone(&metrics),
            access_log,
            audit,
            traces,
        );
        let mut proxy = http_proxy_service_with_name(&pingora.configuration, gateway, "proxy");
        for listener in &self.listeners {
            proxy.add_tcp(&listener.address.to_string());
        }
        let mut proxy = Prebound::new(proxy, self.listeners);
        if let Some(supervisor) = self.supervisor {
            proxy = proxy.with_companion(Arc::new(supervisor));
        }
        pingora.add_service(proxy);

        let shares_redis = current.load().policy.redis.is_some();
        let ticker = Arc::new(Ticker::new(metrics, store, shares_redis));
        let needs_redis = current.load().policy.redis.as_ref().is_some_and(Redis::is_needed);
        let needed = needs_redis.then_some(limiter);
        let reloader = Arc::clone(&self.reloader);
        let answers = Admin::new(self.force, draining.clone(), needed, reloader);
        let app = App::new(answers, Arc::clone(&ticker), draining.clone());
        let mut admin = listening::Service::new("admin".to_string(), app);
        admin.threads = Some(1);
        admin.add_tcp(&self.admin.address.to_string());
        let admin = Prebound::new(admin, vec![self.admin]).serving_while_draining();
        pingora.add_service(admin.with_companion(ticker));

        let mut lookups = background_service("lookups", Lookups::new(current));
        lookups.threads = Some(1);
        pingora.add_service(lookups);
        let reloads = Reloads::new(self.reloader, self.hangups);
        let mut reloads = background_service("reloads", reloads);
        reloads.threads = Some(1);
        pingora.add_service(reloads);
        pingora
    }
}

/// The limiter, and who keeps its connection to Redis where the file has one.
fn limiter(
    policy: &Policy,
    store: Arc<MemoryStore>,
    metrics: &Metrics,
    appending: Option<Appending>,
) -> (Limiter, Option<Supervisor>) {
    let Some(redis) = &policy.redis else {
        return (Limiter::local(store), None);
    };
    let (link, mut supervisor) = Link::new(redis, Some(metrics.link()));
    if let Some(appending) = appending {
        supervisor = supervisor.appending(appending);
    }
    let debts = Arc::new(Debts::new(policy.memory.max_buckets));
    let (prefix, series) = (redis.prefix.clone(), metrics.redis_calls());
    let batcher = Batcher::new(link, prefix, redis.timeout, Arc::clone(&debts), series);
    (Limiter::shared(store, batcher, debts, policy.server.instances), Some(supervisor))
}

fn open(server: &settings::Server) -> Result<(Vec<Bound>, Bound), BindError> {
    let bind = |address: &SocketAddr| listen::bind(*address);
    let listeners = server.listen.iter().map(bind).collect::<Result<_, _>>()?;
    Ok((listeners, bind(&server.admin)?))
}

/// What stands before the first request comes.
struct Prepared {
    signals: Signals,
    hangups: Hangups,
    pools: Vec<Arc<Pool>>,
}

/// What must be done before the first request comes: signals are caught, and every upstream is
/// looked up. A name without an address is logged and looked up again later; the gateway starts
/// all the same.
fn prepare(policy: &Policy, draining: &Draining) -> std::io::Result<Prepared> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let delay = policy.server.drain_delay.unwrap_or_default();
        let signals = Signals::catch(draining.clone(), delay)?;
        let hangups = Hangups::catch()?;
        let pools = Pool::for_all(&policy.upstreams, &[]).await;
        Ok(Prepared { signals, hangups, pools })
    })
}

/// Serves on a thread of its own, so that this one can end the process as soon as nothing is in
/// flight.
fn serve(
    pingora: Server,
    signals: Signals,
    metrics: &Metrics,
    drain_timeout: Duration,
) -> ExitCode {
    let mut phases = pingora.watch_execution_phase();
    let server = std::thread::spawn(move || {
        pingora.run(RunArgs { shutdown_signal: Box::new(signals) });
    });
    loop {
        match phases.blocking_recv() {
            Ok(ExecutionPhase::GracefulTerminate) => break,
            Ok(ExecutionPhase::Terminated) | Err(_) => {
                return if server.join().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            Ok(_) => {}
        }
    }
    info!(in_flight = metrics.in_flight.get(), "SIGTERM: no new connections; draining");
    match drain::wait_until_idle(&metrics.in_flight, drain_timeout) {
        0 => info!("drained"),
        left => warn!(in_flight = left, "drain_timeout is over; the rest is cut"),
    }
    ExitCode::SUCCESS
}
