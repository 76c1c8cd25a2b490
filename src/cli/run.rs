//! `tollgate run`: reads the file, opens the ports, serves until SIGTERM or SIGINT.
//!
//! Reading order: this file (start and shutdown), `huge_pages`, `log`, `telemetry`, `services`, `settle`.

mod huge_pages;
mod log;
mod services;
mod settle;
mod telemetry;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pingora::prelude::Server;
use pingora::server::{ExecutionPhase, RunArgs};
use tracing::{error, info, warn};

use super::EXIT_UNAVAILABLE;
use super::check::summary;
use crate::acme::AcmeHandles;
use crate::acme::running::present_stored;
use crate::downstream::descriptors;
use crate::downstream::pressure::Pressure;
use crate::net::listen::{BindError, ClientListener, Listener};
use crate::observe::metrics::Metrics;
use crate::policy::Policy;
use crate::policy::listener::{ListenAddress, Listener as Settings};
use crate::policy::settings::ServerLimits;
use crate::reload::service::HangupSignal;
use crate::reload::{self, Reloader};
use crate::runtime::drain::{Busy, Draining, Signals};
use crate::runtime::{CurrentSnapshot, Runtime, Snapshot};
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append;
use crate::tls::files::TlsFiles;
use crate::tls::handshakes::Handshakes;
use crate::tls::listeners::TlsListeners;
use crate::upstream::pool::Pool;
use services::{Services, limiter, threads};
use settle::Settling;
use telemetry::Telemetry;

/// Serves the configuration in `file` until SIGTERM or SIGINT.
pub(super) fn run(file: &Path) -> ExitCode {
    huge_pages::disable();
    let (source, policy) = match log::open(file) {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    info!("{}: {}", file.display(), summary(&policy));
    reload::log_warnings(file, &policy.warnings);
    let server = policy.server.clone();
    let most_connections = open_files(&server.limits);
    let (listeners, admin) = match open(&policy) {
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
    let telemetry = match Telemetry::start(&policy, &metrics, appender) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            error!("{error}");
            return ExitCode::from(EXIT_UNAVAILABLE);
        }
    };
    let store = Arc::new(MemoryStore::new(policy.memory.max_buckets, &policy.limits));
    let draining = Draining::default();
    let prepared = prepare(&policy, source.tls_files(), &metrics, &draining);
    let Prepared { signals, hangup_signal, pools, tls, handshakes } = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (settings, listener) in &listeners {
        info!("listening on {}", url(settings, listener));
    }
    info!("admin port on http://{}", admin.address());

    let (limiter, supervisor) = limiter(&policy, Arc::clone(&store), &metrics, appending);
    let current = Arc::new(CurrentSnapshot::from_pointee(Snapshot::new(policy, pools)));
    let limiter = Arc::new(limiter);
    let runtime = Runtime {
        current,
        limiter,
        store,
        metrics: Arc::clone(&metrics),
        access_log: Arc::clone(&telemetry.access_log),
        audit: Arc::clone(&telemetry.audit),
        traces: Arc::clone(&telemetry.traces),
        acme: AcmeHandles::new(Arc::clone(&tls), Arc::clone(&metrics)),
        tls,
    };
    let reloader = Arc::new(Reloader::new(file, &source, runtime.clone()));
    let limiter = Arc::clone(&runtime.limiter);
    let services =
        Services { listeners, admin, runtime, handshakes, supervisor, reloader, hangup_signal };
    let pressure = Pressure::new(most_connections, metrics.overload.clone());
    let (pingora, busy) = services.assemble(&server, &draining, pressure);
    let exit = serve(pingora, signals, &busy, (&limiter, server.drain_timeout));
    telemetry.close();
    exit
}

/// Raises the limit of open files. Returns how many client connections it allows; warns if the file allows more.
fn open_files(limits: &ServerLimits) -> usize {
    let Some(limit) = descriptors::raise_limit() else { return usize::MAX };
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
    most
}

/// The sockets of clients, with their settings, and that of the admin port.
fn open(policy: &Policy) -> Result<(Vec<(Settings, ClientListener)>, Listener), BindError> {
    let bind = |settings: &Settings| {
        let listener = match &settings.address {
            ListenAddress::Tcp(address) => ClientListener::Tcp(Listener::bind(*address)?),
            ListenAddress::Unix { path, mode } => ClientListener::unix(path, *mode)?,
        };
        Ok((settings.clone(), listener))
    };
    let listeners = policy.listeners.iter().map(bind).collect::<Result<_, _>>()?;
    Ok((listeners, Listener::bind(policy.server.admin)?))
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
    signals: Signals,
    hangup_signal: HangupSignal,
    pools: Vec<Arc<Pool>>,
    tls: Arc<TlsListeners>,
    handshakes: Arc<Handshakes>,
}

/// Prepares for the first request: sets up TLS, installs signal handlers and looks up every upstream. A name
/// without an address is logged and retried later; it does not prevent the start.
fn prepare(
    policy: &Policy,
    files: TlsFiles,
    metrics: &Metrics,
    draining: &Draining,
) -> std::io::Result<Prepared> {
    let tls = Arc::new(TlsListeners::default());
    tls.apply(&policy.listeners, files).map_err(std::io::Error::other)?;
    let threads = threads(&policy.server).div_ceil(2);
    let handshakes = Arc::new(Handshakes::start(threads, metrics.tls.handshakes.clone())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let delay = policy.server.drain_delay.unwrap_or_default();
        let signals = Signals::catch(draining.clone(), delay)?;
        let hangup_signal = HangupSignal::catch()?;
        let pools = Pool::for_all(&policy.upstreams, &[]).await;
        present_stored(policy, tls.store()).await;
        Ok(Prepared { signals, hangup_signal, pools, tls, handshakes })
    })
}

/// Serves on a separate thread, so that this thread can end the process as soon as no request is in
/// flight.
fn serve(
    pingora: Server,
    signals: Signals,
    busy: &Busy,
    (limiter, drain_timeout): (&Limiter, Duration),
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
    info!(in_flight = busy.in_flight.get(), "SIGTERM: no new connections; draining");
    let mut settling = Settling::within(drain_timeout, limiter);
    settling.settle();
    match busy.wait_until_idle(settling.time_left()) {
        0 => info!("drained"),
        left => warn!(in_flight = left, "drain_timeout is over; closing the remaining connections"),
    }
    // Debts of requests that were allowed during the drain.
    settling.settle();
    settling.report();
    ExitCode::SUCCESS
}
