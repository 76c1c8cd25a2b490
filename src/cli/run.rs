//! `tollgate run`: reads the file, opens the ports, serves until told to stop.
//!
//! Reading order: this file (the way through it), `tellers`, `services`, `settle`.

mod services;
mod settle;
mod tellers;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pingora::prelude::Server;
use pingora::server::{ExecutionPhase, RunArgs};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use super::check::{reject, summary};
use super::{EXIT_BAD_FILE, EXIT_UNAVAILABLE};
use crate::load;
use crate::net::listen::{BindError, Listener};
use crate::observe::metrics::Metrics;
use crate::policy::{Policy, settings};
use crate::reload::Reloader;
use crate::reload::service::Hangups;
use crate::runtime::drain::{self, Draining, Signals};
use crate::runtime::{CurrentSnapshot, Runtime, Snapshot};
use crate::store::limiter::Limiter;
use crate::store::memory::MemoryStore;
use crate::store::redis::append;
use crate::upstream::pool::Pool;
use services::{Services, limiter};
use settle::Settling;
use tellers::Tellers;

/// Which log lines are wanted: `error`, `warn`, `info`, `debug`, or targets as tracing's
/// `EnvFilter` takes them.
const LOG_VARIABLE: &str = "TOLLGATE_LOG";

/// Pingora logs what any client can provoke as errors, on the admin port with the head that it could
/// not read, where a token may stand; and as an error, that a kept connection to an API was not free
/// yet. What matters of it is logged here, with the request's id.
const LOG_ALWAYS: &str = "pingora_proxy=off,pingora_core::apps=off,pingora_core::connectors=off";

/// Serves by the file until SIGTERM or SIGINT.
pub(super) fn run(file: &Path) -> ExitCode {
    if let Err(exit) = log_to_stderr() {
        return exit;
    }
    let (source, policy) = match load::open(file) {
        Ok(opened) => opened,
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
        info!("listening on http://{}", listener.address());
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
        access_log: Arc::clone(&tellers.access_log),
        audit: Arc::clone(&tellers.audit),
        traces: Arc::clone(&tellers.traces),
    };
    let reloader = Arc::new(Reloader::new(file, &source, runtime.clone()));
    let limiter = Arc::clone(&runtime.limiter);
    let services = Services { listeners, admin, runtime, supervisor, reloader, hangups };
    let pingora = services.assemble(&server, &draining);
    let exit = serve(pingora, signals, &metrics, (&limiter, server.drain_timeout));
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

fn open(server: &settings::Server) -> Result<(Vec<Listener>, Listener), BindError> {
    let bind = |address: &SocketAddr| Listener::bind(*address);
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
    info!(in_flight = metrics.in_flight.get(), "SIGTERM: no new connections; draining");
    let mut settling = Settling::within(drain_timeout, limiter);
    settling.settle();
    match drain::wait_until_idle(&metrics.in_flight, settling.time_left()) {
        0 => info!("drained"),
        left => warn!(in_flight = left, "drain_timeout is over; the rest is cut"),
    }
    // What was granted meanwhile.
    settling.settle();
    settling.report();
    ExitCode::SUCCESS
}
