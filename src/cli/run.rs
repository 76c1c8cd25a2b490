//! `tollgate run`: reads the file, opens the ports, serves until SIGTERM or SIGINT.
//!
//! Reading order: this file (start and shutdown), `huge_pages`, `log`, `telemetry`, `services`,
//! `settle`.

mod huge_pages;
mod log;
mod services;
mod settle;
mod telemetry;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use pingora::prelude::Server;
use pingora::server::{ExecutionPhase, RunArgs};
use thiserror::Error;
use tracing::{error, info, warn};

use super::check::summary;
use super::{EXIT_BUG, EXIT_UNAVAILABLE};
use crate::acme::AcmeHandles;
use crate::acme::running::present_stored;
use crate::admin::Sampler;
use crate::base::failure::{Event, Failures};
use crate::config::listener;
use crate::downstream::descriptors::{self, LimitTooLow};
use crate::downstream::intake::Intake;
use crate::downstream::pressure::Pressure;
use crate::keys::follow::KeyFollower;
use crate::keys::kept::Kept as KeptKeys;
use crate::keys::store::KeyStore;
use crate::load::Source;
use crate::net::inherit::{Inherited, Origin};
use crate::net::listen::{BindError, ClientListener, Families, Listener};
use crate::observe::metrics::Metrics;
use crate::policy::Policy;
use crate::policy::listener::{ListenAddress, Listener as Settings};
use crate::policy::settings::ServerLimits;
use crate::process::busy::Busy;
use crate::process::handover::{Handover, Predecessor, Sockets, Upgrader};
use crate::process::signals::{Caught, Signals};
use crate::process::wall_clock::WallClock;
use crate::reload::service::HangupSignal;
use crate::reload::{self, Reloader};
use crate::runtime::drain::{DrainCause, Draining};
use crate::runtime::orders::OrderBoard;
use crate::runtime::{CurrentSnapshot, Runtime, Snapshot};
use crate::store::held::Held;
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append;
use crate::tls::files::TlsFiles;
use crate::tls::handshakes::Handshakes;
use crate::tls::listeners::TlsListeners;
use crate::upstream::known::Known;
use crate::upstream::pool::Pool;
use crate::usage::keeper::Keeper;
use crate::usage::kept::Kept;
use crate::usage::shared::writer::Writer;
use crate::usage::webhooks::claims::Claims;
use crate::usage::webhooks::delivery;
use services::{Services, limiter, threads};
use settle::Settling;
use telemetry::Telemetry;

/// Serves the configuration in `file` until SIGTERM or SIGINT, or until another process replaces
/// this one.
pub(super) fn run(file: &Path) -> ExitCode {
    huge_pages::disable();
    WallClock::read();
    let started = match Started::find() {
        Ok(started) => started,
        Err(error) => {
            eprintln!("error: cannot take over the listening sockets: {error}");
            return ExitCode::from(EXIT_UNAVAILABLE);
        }
    };
    let (source, policy) = match log::open(file, started.predecessor.as_ref()) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    info!("{}: {}", file.display(), summary(&policy));
    reload::log_warnings(file, &policy.warnings);
    let Started { mut inherited, mut predecessor } = started;
    let parts = match Parts::of(&policy, source.tls_files(), &mut inherited, predecessor.as_ref()) {
        Ok(parts) => parts,
        Err((why, exit)) => {
            if let Some(predecessor) = &predecessor {
                predecessor.fail(&why);
            }
            return exit;
        }
    };
    if let Some(predecessor) = &mut predecessor {
        predecessor.keep_files_until_takeover(&inherited);
    }
    // Closes the sockets of listeners that the file does not have.
    drop(inherited);
    serve(file, &source, policy, parts, predecessor)
}

/// Serves with everything that could fail set up.
fn serve(
    file: &Path,
    source: &Source,
    policy: Policy,
    parts: Parts,
    predecessor: Option<Predecessor>,
) -> ExitCode {
    let Parts { most_connections, opened, metrics, telemetry, appending, store, usage, prepared } =
        parts;
    let Opened { listeners, admin, sockets } = opened;
    let server = policy.server.clone();
    log::count_panics(&metrics);
    let max_buckets = policy.memory.max_buckets;
    let draining = Draining::default();
    let Prepared { caught, hangup_signal, pools, tls, handshakes } = prepared;
    show(&listeners, &admin);
    let (limiter, supervisor) = limiter(&policy, Arc::clone(&store), &metrics, appending);
    let limiter = Arc::new(limiter);
    let kept = kept(&policy, usage.as_ref(), &limiter, &metrics);
    if let Some(kept) = &kept {
        start_webhooks(&policy, kept, &metrics);
    }
    let (keys, follower) = keys(&policy, &store, &metrics).unzip();
    let current = Arc::new(CurrentSnapshot::from_pointee(Snapshot::new(policy, pools)));
    let pressure = Pressure::new(most_connections, metrics.overload.clone());
    let intake = Intake::new(pressure.open().clone());
    let shares_redis = current.load().policy.redis.is_some();
    let sampler = Arc::new(Sampler::new(Arc::clone(&metrics), Arc::clone(&store), shares_redis));
    let orders = order_board(predecessor.as_ref());
    let handover = handover(&store, usage, keys.as_ref(), &orders, &sampler);
    let upgrader = Upgrader::new(Arc::clone(&current), handover.clone(), intake.clone(), sockets);
    let upgrader = Arc::new(upgrader.starting(predecessor.is_some()));
    let takeover = predecessor.map(|it| it.continue_with(handover, max_buckets));
    let runtime = Runtime {
        current,
        limiter,
        store,
        usage: kept.clone(),
        keys,
        metrics: Arc::clone(&metrics),
        access_log: Arc::clone(&telemetry.access_log),
        audit: Arc::clone(&telemetry.audit),
        traces: Arc::clone(&telemetry.traces),
        acme: AcmeHandles::new(Arc::clone(&tls), Arc::clone(&metrics)),
        tls,
        orders,
    };
    runtime.publish_limits(&runtime.current.load());
    let reloader = Arc::new(Reloader::new(file, source, runtime.clone()));
    let limiter = Arc::clone(&runtime.limiter);
    let delay = server.drain_delay.unwrap_or_default();
    let signals = Signals::new(caught, draining.clone(), delay, Arc::clone(&upgrader));
    let (events, received) = channel();
    let services = Services {
        listeners,
        admin,
        runtime,
        sampler,
        handshakes,
        supervisor,
        follower,
        reloader,
        hangup_signal,
        upgrader,
        intake,
        takeover,
        failures: Failures::new(events.clone()).for_process(),
    };
    let (pingora, busy) = services.assemble(&server, &draining, pressure);
    let serving = Serving { pingora, signals, events, received };
    let exit = serving.serve(&busy, &draining, Settling::new(&limiter, server.drain_timeout));
    telemetry.close();
    if let Some(kept) = kept {
        kept.close();
    }
    exit
}

/// Raises the limit of open files. Returns how many client connections it allows; warns if the file
/// allows more.
///
/// # Errors
/// If the limit is too low to start with.
fn open_files(limits: &ServerLimits) -> Result<usize, LimitTooLow> {
    let Some(limit) = descriptors::raise_limit()? else { return Ok(usize::MAX) };
    let most = descriptors::most_connections(limit);
    if let Some(max_connections) = limits.max_connections
        && most < max_connections
    {
        warn!(
            "server.limits.max_connections is {max_connections}, but the limit of {limit} open files allows {most} \
             connections; raise the hard limit (LimitNOFILE of systemd, ulimit -Hn) or lower the setting"
        );
    } else if most < limits.max_connections() {
        info!("the limit of {limit} open files allows {most} client connections");
    }
    Ok(most)
}

/// Logs where clients and operators connect.
fn show(listeners: &[(Settings, ClientListener)], admin: &Listener) {
    for (settings, listener) in listeners {
        info!("listening on {}", url(settings, listener));
    }
    info!("admin port on http://{}", admin.address());
}

/// What can fail at the start.
struct Parts {
    /// Client connections that the limit of open files allows.
    most_connections: usize,
    opened: Opened,
    metrics: Arc<Metrics>,
    telemetry: Telemetry,
    appending: Option<append::Appending>,
    /// The buckets of this process.
    store: Arc<MemoryStore>,
    usage: Option<Arc<Keeper>>,
    prepared: Prepared,
}

impl Parts {
    /// Sets up everything.
    ///
    /// # Errors
    /// Why it fails, which is logged, and the exit code.
    fn of(
        policy: &Policy,
        files: TlsFiles,
        inherited: &mut Inherited,
        predecessor: Option<&Predecessor>,
    ) -> Result<Self, (String, ExitCode)> {
        let most_connections = open_files(&policy.server.limits).map_err(|error| {
            error!("cannot start: {error}");
            (error.to_string(), ExitCode::FAILURE)
        })?;
        let opened = Opened::of(policy, inherited);
        let opened = opened.and_then(|it| it.whole(inherited)).map_err(|bind_error| {
            error!("{bind_error}");
            (bind_error.to_string(), ExitCode::from(EXIT_UNAVAILABLE))
        })?;
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION")).map_err(|error| {
            error!("metrics cannot be set up: {error}");
            (error.to_string(), ExitCode::FAILURE)
        })?;
        let metrics = Arc::new(metrics);
        let stream = policy.redis.as_ref().map(|_| append::channel(metrics.audit_dropped.clone()));
        let (appender, appending) = stream.unzip();
        let telemetry = Telemetry::start(policy, &metrics, appender).map_err(|error| {
            error!("{error}");
            (error, ExitCode::from(EXIT_UNAVAILABLE))
        })?;
        let known = predecessor.map(|it| it.known().clone()).unwrap_or_default();
        let prepared = prepare(policy, files, &metrics, &known).map_err(|error| {
            error!("cannot start: {error}");
            (error.to_string(), ExitCode::FAILURE)
        })?;
        let store = match predecessor {
            Some(predecessor) => predecessor.store(policy.memory.max_buckets, &policy.limits),
            None => MemoryStore::new(policy.memory.max_buckets, &policy.limits),
        };
        let held = Held::new(policy.redis.is_some()).shown_in(metrics.held_units.clone());
        let store = Arc::new(store.holding(Arc::new(held)));
        let usage = usage(policy, &metrics, &store, predecessor.is_some()).map_err(|error| {
            error!("{error}");
            (error, ExitCode::from(EXIT_UNAVAILABLE))
        })?;
        Ok(Self { most_connections, opened, metrics, telemetry, appending, store, usage, prepared })
    }
}

/// Opens the file of usage, if there is one, and puts its counts into `store`.
///
/// # Errors
/// A message for the operator.
fn usage(
    policy: &Policy,
    metrics: &Metrics,
    store: &Arc<MemoryStore>,
    has_predecessor: bool,
) -> Result<Option<Arc<Keeper>>, String> {
    let Some(keeper) = Keeper::prepare(&policy.usage, metrics.usage.clone(), store) else {
        return Ok(None);
    };
    let path = keeper.path().display().to_string();
    let started = if has_predecessor { keeper.start_released() } else { keeper.start() };
    started.map(Some).map_err(|error| format!("the file of usage `{path}` cannot be used: {error}"))
}

/// The orders that apply to all gateways, as far as the previous process knew them.
fn order_board(predecessor: Option<&Predecessor>) -> OrderBoard {
    OrderBoard::new(predecessor.map(|it| it.shared_orders().clone()).unwrap_or_default())
}

/// What this process hands over to its successor.
fn handover(
    store: &Arc<MemoryStore>,
    usage: Option<Arc<Keeper>>,
    keys: Option<&Arc<KeyStore>>,
    orders: &OrderBoard,
    sampler: &Arc<Sampler>,
) -> Handover {
    let history = Arc::clone(sampler) as _;
    let (store, keys) = (Arc::clone(store), keys.map(Arc::clone));
    Handover { store, usage, keys, orders: orders.clone(), history }
}

/// Where usage is kept: in the file that is open, or in Redis.
fn kept(
    policy: &Policy,
    file: Option<&Arc<Keeper>>,
    limiter: &Arc<Limiter>,
    metrics: &Metrics,
) -> Option<Kept> {
    if let Some(keeper) = file {
        return Some(Kept::File(Arc::clone(keeper)));
    }
    let redis = policy.redis.as_ref()?;
    match Writer::start(redis, &policy.usage, Arc::clone(limiter), metrics.usage.clone()) {
        Ok(writer) => Some(Kept::Redis(writer)),
        Err(error) => {
            error!("usage of quotas is not kept: its thread cannot be started: {error}");
            None
        }
    }
}

/// Starts to send events of usage to the webhooks of the file in force.
fn start_webhooks(policy: &Policy, kept: &Kept, metrics: &Metrics) {
    let notices = kept.ledger().notices();
    notices.configure(&policy.usage.webhooks);
    let claims = match (kept, &policy.redis) {
        (Kept::Redis(_), Some(redis)) => Claims::shared(redis),
        _ => Claims::Own,
    };
    if let Err(error) = delivery::start(Arc::clone(notices), claims, metrics.webhooks.clone()) {
        error!("webhooks are not sent: their thread cannot be started: {error}");
    }
}

/// The key store, if the file has one, and the task that reads it.
fn keys(
    policy: &Policy,
    buckets: &Arc<MemoryStore>,
    metrics: &Metrics,
) -> Option<(Arc<KeyStore>, KeyFollower)> {
    let (kept, buckets) = (KeptKeys::of(policy)?, Arc::clone(buckets));
    let series = metrics.keys.clone();
    let (store, look_ups) = KeyStore::new(policy.key_store.as_ref()?, kept, buckets, series);
    let follower = KeyFollower::new(Arc::clone(&store), look_ups);
    Some((store, follower))
}

/// How the process was started.
struct Started {
    /// The sockets that it was started with.
    inherited: Inherited,
    /// The process that it replaces.
    predecessor: Option<Predecessor>,
}

impl Started {
    fn find() -> std::io::Result<Self> {
        Ok(match Predecessor::find()? {
            Some((predecessor, inherited)) => Self { inherited, predecessor: Some(predecessor) },
            None => Self { inherited: Inherited::from_systemd()?, predecessor: None },
        })
    }
}

/// The listening sockets.
struct Opened {
    listeners: Vec<(Settings, ClientListener)>,
    admin: Listener,
    sockets: Sockets,
}

/// Why the listening sockets cannot be opened.
#[derive(Debug, Error)]
enum OpenError {
    #[error("{0}")]
    Bind(#[from] BindError),
    #[error("cannot duplicate a listening socket: {0}")]
    Duplicate(#[from] std::io::Error),
    #[error(
        "systemd passes {}, but no listener of the file has this address: change `ListenStream` of the \
         socket unit, or add the address to the file",
        .0.join(", ")
    )]
    Untaken(Vec<String>),
}

impl Opened {
    fn of(policy: &Policy, inherited: &mut Inherited) -> Result<Self, OpenError> {
        let mut sockets = Sockets::default();
        let mut listeners = Vec::new();
        let addresses = || policy.listeners.iter().filter_map(|it| it.address.tcp());
        for settings in &policy.listeners {
            let name = settings.address.to_string();
            let listener = match &settings.address {
                ListenAddress::Tcp(address) => {
                    let families = if listener::is_ipv6_only(*address, addresses()) {
                        Families::Ipv6Only
                    } else {
                        Families::OfSystem
                    };
                    ClientListener::Tcp(Listener::open(&name, *address, families, inherited)?)
                }
                ListenAddress::Unix { path, mode } => {
                    ClientListener::unix(&name, (path, *mode), inherited)?
                }
            };
            match (&listener, listener.kept_file()) {
                (ClientListener::Unix(_), None) => sockets.borrowed.push(name.clone()),
                (_, file) => sockets.files.extend(file),
            }
            sockets.open.push((name, listener.duplicate()?));
            listeners.push((settings.clone(), listener));
        }
        // Not mistaken for a listener of clients, if both have port 0.
        let name = format!("admin {}", policy.server.admin);
        let admin = Listener::open(&name, policy.server.admin, Families::OfSystem, inherited)?;
        sockets.open.push((name, admin.duplicate()?));
        Ok(Self { listeners, admin, sockets })
    }

    /// Checks that no inherited socket is left. After an upgrade, one is if the file has changed.
    fn whole(self, inherited: &Inherited) -> Result<Self, OpenError> {
        let untaken = inherited.untaken();
        match inherited.origin() {
            Origin::Systemd if !untaken.is_empty() => Err(OpenError::Untaken(untaken)),
            _ => Ok(self),
        }
    }
}

/// Where clients connect.
fn url(settings: &Settings, listener: &ClientListener) -> String {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    match listener.address() {
        Some(address) => format!("{scheme}://{address}"),
        None => settings.address.to_string(),
    }
}

/// What [`prepare`] sets up before the first request.
struct Prepared {
    caught: Caught,
    hangup_signal: HangupSignal,
    pools: Vec<Arc<Pool>>,
    tls: Arc<TlsListeners>,
    handshakes: Arc<Handshakes>,
}

/// Prepares for the first request: sets up TLS, installs signal handlers and looks up every
/// upstream. A name without an address is logged and retried later; it does not prevent the start.
fn prepare(
    policy: &Policy,
    files: TlsFiles,
    metrics: &Metrics,
    known: &Known,
) -> std::io::Result<Prepared> {
    let tls = Arc::new(TlsListeners::default());
    tls.apply(&policy.listeners, files).map_err(std::io::Error::other)?;
    let threads = threads(&policy.server).div_ceil(2);
    let handshakes = Arc::new(Handshakes::start(threads, metrics.tls.handshakes.clone())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let prepared = runtime.block_on(async {
        let caught = Caught::catch()?;
        let hangup_signal = HangupSignal::catch()?;
        let pools = Pool::for_all(&policy.upstreams, &[], known).await;
        present_stored(policy, tls.store()).await;
        Ok(Prepared { caught, hangup_signal, pools, tls, handshakes })
    });
    // Does not wait for look-ups that the system has not answered; the service of look-ups begins
    // with those names.
    runtime.shutdown_background();
    prepared
}

/// The server, and what ends it.
struct Serving {
    pingora: Server,
    signals: Signals,
    events: Sender<Event>,
    received: Receiver<Event>,
}

impl Serving {
    /// Serves on a separate thread, so that this thread can end the process as soon as no request
    /// is in flight.
    fn serve(self, busy: &Busy, draining: &Draining, mut settling: Settling<'_>) -> ExitCode {
        let Self { pingora, signals, events, received } = self;
        let mut phases = pingora.watch_execution_phase();
        let server = std::thread::spawn(move || {
            pingora.run(RunArgs { shutdown_signal: Box::new(signals) });
        });
        std::thread::spawn(move || {
            loop {
                let event = match phases.blocking_recv() {
                    Ok(ExecutionPhase::GracefulTerminate) => Event::Drain,
                    Ok(ExecutionPhase::Terminated) | Err(_) => Event::Ended,
                    Ok(_) => continue,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        });
        match received.recv() {
            Ok(Event::Drain) => {}
            Ok(Event::Ended) | Err(_) => {
                return if server.join().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            Ok(Event::Failed { service }) => {
                error!(service, "a service has failed: the process ends, to be started again");
                settling.settle();
                settling.report();
                return ExitCode::from(EXIT_BUG);
            }
        }
        let in_flight = busy.in_flight.get();
        match draining.cause() {
            Some(DrainCause::Replaced) => {
                info!(in_flight, "replaced: no new connections; draining");
            }
            Some(DrainCause::Stopped) | None => {
                info!(in_flight, "SIGTERM: no new connections; draining");
            }
        }
        settling.begin();
        settling.settle();
        match busy.wait_until_idle(settling.time_left(), draining.linger()) {
            0 => info!("drained"),
            left => {
                warn!(in_flight = left, "drain_timeout is over; closing the remaining connections");
            }
        }
        // Debts of requests that were allowed during the drain.
        settling.settle();
        settling.report();
        ExitCode::SUCCESS
    }
}
