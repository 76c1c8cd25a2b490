//! The background service of automatic certificates, for the `[acme]` table in force.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::CurrentSnapshot;
use crate::acme::AcmeHandles;
use crate::acme::running::Running;
use crate::base::background::Background;

/// Interval at which the service looks for due orders, changed settings, and records of other
/// gateways.
const TICK: Duration = Duration::from_secs(1);

/// Orders and renews the certificates of `[acme]`, as long as the process serves.
pub struct AcmeService {
    current: Arc<CurrentSnapshot>,
    handles: AcmeHandles,
    is_taken: watch::Receiver<bool>,
}

impl AcmeService {
    /// Creates the service. It follows the `[acme]` of the snapshot that `current` has, and orders
    /// nothing before `is_taken` is true: until then, challenges reach the process that this one
    /// replaces.
    pub fn new(
        current: Arc<CurrentSnapshot>,
        handles: AcmeHandles,
        is_taken: watch::Receiver<bool>,
    ) -> Self {
        Self { current, handles, is_taken }
    }
}

impl Background for AcmeService {
    fn start(&self, mut shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut is_taken = self.is_taken.clone();
            tokio::select! {
                _ = shutdown.changed() => return,
                // An error means that the service of the sender has ended.
                _ = is_taken.wait_for(|is_taken| *is_taken) => {}
            }
            let mut ticks = tokio::time::interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut running: Option<Running> = None;
            loop {
                tokio::select! {
                    _ = shutdown.changed() => break,
                    _ = ticks.tick() => {}
                }
                // A tick waits for Redis and for files, each with a deadline; a shutdown does not
                // wait for it.
                tokio::select! {
                    _ = shutdown.changed() => break,
                    () = self.tick(&mut running) => {}
                }
            }
            if let Some(running) = running {
                running.stop().await;
            }
        })
    }
}

impl AcmeService {
    async fn tick(&self, running: &mut Option<Running>) {
        let policy = Arc::clone(&self.current.load());
        let policy = &policy.policy;
        let is_current = running.as_ref().is_some_and(|running| running.is_of(policy));
        if !is_current {
            let previous = match running.take() {
                Some(previous) => Some(previous.stop().await),
                None => None,
            };
            *running = Running::start(policy, &self.handles, previous);
        }
        if let Some(running) = running {
            running.tick().await;
        }
    }
}
