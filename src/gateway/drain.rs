//! The end of the process: on SIGTERM no new connection, what is in flight is finished, and the
//! process ends as soon as nothing is. Pingora alone sleeps through its whole grace period.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::proxy::Session;
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
    /// How long the ports stay open after SIGTERM.
    delay: Duration,
    caught: Mutex<Option<Caught>>,
}

/// Signals that do not end the process by themselves any more.
struct Caught {
    terminate: Signal,
    interrupt: Signal,
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
    /// Catches signals from now on; once SIGTERM has come, `draining` says so, and the ports are
    /// closed after `delay`. Call it before anything is served: Pingora only listens for signals once all services run, and until then
    /// a signal would end the process with requests in flight.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
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
            // Asked a second time, while the first still waits or has been told.
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

/// Says in an answer that is about to be written that its connection ends with it, where the
/// process does. Pingora closes the connection either way; a client that is not told sends its next
/// request into it and cannot know whether it was served.
pub(super) fn announce(session: &mut Session) {
    if session.is_process_shutting_down() && !session.is_upgrade_req() {
        session.set_keepalive(None);
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
