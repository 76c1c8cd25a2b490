//! Graceful shutdown: on SIGTERM the process accepts no new connections, completes the requests in
//! flight, and exits when none is left. By default, Pingora sleeps for its whole grace period.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use prometheus::IntGauge;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::handover::{UpgradeError, Upgrader};
use super::notify;
use crate::downstream::open::OpenConnections;
use crate::downstream::unwritten::Unwritten;

/// Whether the process is draining, and why. `/ready` reports it.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<AtomicU8>);

/// Why the process drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCause {
    /// SIGTERM: it ends.
    Stopped,
    /// Another process has its sockets.
    Replaced,
}

/// Converts SIGTERM and SIGINT into Pingora's shutdown.
pub struct Signals {
    draining: Draining,
    /// How long the ports stay open after SIGTERM.
    delay: Duration,
    caught: Mutex<Option<Caught>>,
    upgrader: Arc<Upgrader>,
}

/// Handlers of the signals. While they exist, a signal does not end the process by itself.
pub struct Caught {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

/// What the process waits for while it drains.
pub struct Busy {
    /// Requests that are being served.
    pub in_flight: IntGauge,
    /// Connections with the end of a response that is not written yet.
    pub unwritten: Unwritten,
    /// Client connections.
    pub open: OpenConnections,
}

/// Interval at which the requests in flight are counted while draining.
const POLL: Duration = Duration::from_millis(10);

/// How long no request must have been in flight before draining is complete: a request whose head is
/// being read is not counted yet.
const QUIET: Duration = Duration::from_millis(50);

/// The same while connections are open: their clients may be about to send a request, or have not received
/// GOAWAY yet.
const QUIET_CONNECTIONS: Duration = Duration::from_secs(2);

/// How long an HTTP/1 connection waits for another request after its last response, while the process drains.
/// A client that sends requests without a pause then gets `Connection: close` with the next response. If the
/// connection closed at once, its request could be lost.
const LINGER: Duration = Duration::from_millis(500);

/// The same if another process serves new connections: nothing waits for this one to end.
const LINGER_REPLACED: Duration = Duration::from_secs(5);

impl Draining {
    /// Returns whether the process drains.
    pub fn is_draining(&self) -> bool {
        self.cause().is_some()
    }

    /// Returns why the process drains; `None` if it does not.
    pub fn cause(&self) -> Option<DrainCause> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(DrainCause::Stopped),
            _ => Some(DrainCause::Replaced),
        }
    }

    /// Marks the process as draining. The first cause stays.
    pub fn begin(&self, cause: DrainCause) {
        let number = match cause {
            DrainCause::Stopped => 1,
            DrainCause::Replaced => 2,
        };
        let _ = self.0.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns how long an HTTP/1 connection waits for another request while the process drains.
    pub fn linger(&self) -> Duration {
        match self.cause() {
            Some(DrainCause::Replaced) => LINGER_REPLACED,
            Some(DrainCause::Stopped) | None => LINGER,
        }
    }
}

impl Caught {
    /// Catches signals from now on. Call this before requests are served: Pingora listens for signals only
    /// when all services run, and a signal before that would end the process with requests in flight.
    ///
    /// # Errors
    /// If the kernel rejects a handler.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let quit = signal(SignalKind::quit())?;
        Ok(Self { terminate, interrupt, quit })
    }
}

impl Signals {
    /// Handles signals. On SIGTERM, sets `draining`; the ports close after `delay`. On SIGQUIT, upgrades by
    /// `upgrader`; when another process has taken over, sets `draining`, too.
    pub fn new(
        caught: Caught,
        draining: Draining,
        delay: Duration,
        upgrader: Arc<Upgrader>,
    ) -> Self {
        Self { draining, delay, caught: Mutex::new(Some(caught)), upgrader }
    }

    async fn upgrade_on(&self, quit: &mut Signal) {
        while quit.recv().await.is_some() {
            info!("SIGQUIT: upgrading");
            let upgrader = Arc::clone(&self.upgrader);
            tokio::spawn(async move {
                // The upgrader logs the result of an upgrade that it begins.
                let result = upgrader.upgrade().await;
                if let Err(
                    refused @ (UpgradeError::InProgress
                    | UpgradeError::Starting
                    | UpgradeError::Stopping),
                ) = result
                {
                    warn!("SIGQUIT ignored: {refused}");
                }
            });
        }
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let caught = self.caught.lock().take();
        let Some(Caught { mut terminate, mut interrupt, mut quit }) = caught else {
            // A second call: the first one has the handlers.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {
                self.draining.begin(DrainCause::Stopped);
                self.upgrader.close();
                notify::stopping();
                if !self.delay.is_zero() {
                    info!("SIGTERM: not ready; the ports close in {:?}", self.delay);
                    tokio::time::sleep(self.delay).await;
                }
                ShutdownSignal::GracefulTerminate
            }
            () = self.upgrader.replaced() => {
                self.draining.begin(DrainCause::Replaced);
                ShutdownSignal::GracefulTerminate
            }
            () = self.upgrade_on(&mut quit) => ShutdownSignal::FastShutdown,
            _ = interrupt.recv() => {
                info!("SIGINT: stopping now");
                ShutdownSignal::FastShutdown
            }
        }
    }
}

impl Busy {
    /// Number of requests in flight, or of connections whose response is not written if there are more.
    fn count(&self) -> i64 {
        let unwritten = i64::try_from(self.unwritten.count()).unwrap_or(i64::MAX);
        self.in_flight.get().max(unwritten)
    }

    /// Blocks until no request has been in flight for 50 ms, all responses are written and all connections
    /// are closed, or `drain_timeout` has passed. Connections without a request are waited for `linger` and
    /// 2 s. Returns how many requests are left.
    #[allow(
        clippy::disallowed_methods,
        reason = "runs on the main thread, which serves no requests"
    )]
    pub fn wait_until_idle(&self, drain_timeout: Duration, linger: Duration) -> i64 {
        let mut waited = Duration::ZERO;
        let mut quiet = Duration::ZERO;
        while waited < drain_timeout {
            let needed = if self.open.count() == 0 { QUIET } else { linger + QUIET_CONNECTIONS };
            if quiet >= needed {
                break;
            }
            std::thread::sleep(POLL);
            waited += POLL;
            quiet = if self.count() == 0 { quiet + POLL } else { Duration::ZERO };
        }
        self.count()
    }
}
