//! The end of the process: on SIGTERM no new connection, what is in flight is finished, and the
//! process ends as soon as nothing is. Pingora alone sleeps through its whole grace period.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use prometheus::IntGauge;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Whether the process is on its way out; `/ready` says so.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<AtomicBool>);

/// Turns signals into the end of the server.
pub struct Signals {
    draining: Draining,
}

/// How often the requests in flight are counted while draining.
const POLL: Duration = Duration::from_millis(10);

/// How long nothing must have been in flight: a request whose head is being read is not counted
/// yet.
const QUIET: Duration = Duration::from_millis(50);

impl Draining {
    /// Whether SIGTERM has come.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Signals {
    /// Waits for signals; once SIGTERM has come, `draining` says so.
    pub fn new(draining: Draining) -> Self {
        Self { draining }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let terminate = signal(SignalKind::terminate()).ok();
        let interrupt = signal(SignalKind::interrupt()).ok();
        tokio::select! {
            () = received(terminate) => {
                self.draining.0.store(true, Ordering::Relaxed);
                ShutdownSignal::GracefulTerminate
            }
            () = received(interrupt) => {
                info!("SIGINT: stopping now");
                ShutdownSignal::FastShutdown
            }
        }
    }
}

/// Blocks until nothing has been in flight for a moment, or `drain_timeout` is over. Returns how
/// many requests were still in flight then.
#[allow(clippy::disallowed_methods, reason = "runs on the main thread, which serves nobody")]
pub fn wait_until_idle(in_flight: &IntGauge, drain_timeout: Duration) -> i64 {
    let mut waited = Duration::ZERO;
    let mut quiet = Duration::ZERO;
    while waited < drain_timeout && quiet < QUIET {
        std::thread::sleep(POLL);
        waited += POLL;
        quiet = if in_flight.get() == 0 { quiet + POLL } else { Duration::ZERO };
    }
    in_flight.get()
}

/// Waits for a signal; for ever, where the process cannot be told of it.
async fn received(signal: Option<Signal>) {
    match signal {
        Some(mut signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
