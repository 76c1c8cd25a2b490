//! Signals: SIGTERM and SIGINT end the process, SIGQUIT upgrades it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::handover::{UpgradeError, Upgrader};
use super::notify;
use crate::base::boxed::boxed;
use crate::runtime::drain::{DrainCause, Draining};

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

impl Caught {
    /// Catches signals from now on. Call this before requests are served: Pingora listens for
    /// signals only when all services run, and a signal before that would end the process with
    /// requests in flight.
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
    /// Handles signals. On SIGTERM, sets `draining`; the ports close after `delay`. On SIGQUIT,
    /// upgrades by `upgrader`; when another process has taken over, sets `draining`, too.
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

impl ShutdownSignalWatch for Signals {
    boxed! {
        fn recv<'a>(&'a self) -> ShutdownSignal {
            self.wait()
        }
    }
}

impl Signals {
    /// Waits until the process has to end. Returns how.
    fn wait(&self) -> BoxFuture<'_, ShutdownSignal> {
        Box::pin(async move {
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
        })
    }
}
