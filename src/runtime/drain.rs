//! Graceful shutdown: on SIGTERM the process accepts no new connections, completes the requests in
//! flight, and exits when none is left. By default, Pingora sleeps for its whole grace period.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use prometheus::IntGauge;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::downstream::open::OpenConnections;
use crate::downstream::unwritten::Unwritten;

/// Whether the process is draining: it has received SIGTERM. `/ready` reports it.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<AtomicBool>);

/// Converts SIGTERM and SIGINT into Pingora's shutdown.
pub struct Signals {
    draining: Draining,
    /// How long the ports stay open after SIGTERM.
    delay: Duration,
    caught: Mutex<Option<Caught>>,
}

/// Handlers of the signals. While they exist, a signal does not end the process by itself.
struct Caught {
    terminate: Signal,
    interrupt: Signal,
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

/// How long the connections without a request may then take to close, each with its `close_notify` or GOAWAY. A
/// client that does not react delays the end of the process no further.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl Draining {
    /// Returns whether SIGTERM has been received.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Signals {
    /// Handles signals from now on. On SIGTERM, sets `draining`; the ports close after `delay`. Call
    /// this before requests are served: Pingora listens for signals only when all services run, and a
    /// signal before that would end the process with requests in flight.
    ///
    /// # Errors
    /// If the kernel rejects a handler.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub fn catch(draining: Draining, delay: Duration) -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { draining, delay, caught: Mutex::new(Some(Caught { terminate, interrupt })) })
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let caught = self.caught.lock().take();
        let Some(Caught { mut terminate, mut interrupt }) = caught else {
            // A second call: the first one has the handlers.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {
                self.draining.0.store(true, Ordering::Relaxed);
                if !self.delay.is_zero() {
                    info!("SIGTERM: not ready; the ports close in {:?}", self.delay);
                    tokio::time::sleep(self.delay).await;
                }
                ShutdownSignal::GracefulTerminate
            }
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

    /// Blocks until no request has been in flight for 50 ms and all responses are written, or
    /// `drain_timeout` has passed; then until all connections are closed, for up to a second. Returns how many
    /// requests are left.
    #[allow(
        clippy::disallowed_methods,
        reason = "runs on the main thread, which serves no requests"
    )]
    pub fn wait_until_idle(&self, drain_timeout: Duration) -> i64 {
        let mut waited = Duration::ZERO;
        let mut quiet = Duration::ZERO;
        while waited < drain_timeout && quiet < QUIET {
            std::thread::sleep(POLL);
            waited += POLL;
            quiet = if self.count() == 0 { quiet + POLL } else { Duration::ZERO };
        }
        let mut closing = Duration::ZERO;
        while waited < drain_timeout && closing < CLOSE_TIMEOUT && self.open.count() > 0 {
            std::thread::sleep(POLL);
            waited += POLL;
            closing += POLL;
        }
        self.count()
    }
}
