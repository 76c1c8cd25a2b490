//! Health checks of the endpoints of upstreams.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::task::JoinSet;

use super::Runtime;
use crate::base::background::Background;
use crate::base::clock;
use crate::base::duration::micros;
use crate::upstream::health::CheckFailure;

/// Longest pause between two looks for checks that are due: so long, a new endpoint waits for its
/// first one.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Checks the endpoints of all upstreams of the current snapshot with `health`, each when it is
/// due.
pub struct Checks {
    runtime: Runtime,
}

impl Checks {
    /// Creates the service.
    pub fn new(runtime: Runtime) -> Self {
        Self { runtime }
    }

    /// Begins the checks that are due. Returns how long to wait for the next ones.
    fn begin(&self, running: &mut JoinSet<()>) -> Duration {
        let Runtime { current, limiter, metrics, .. } = &self.runtime;
        let snapshot = current.load_full();
        let now = clock::now();
        let gateways = limiter.gateways();
        let mut until = now.saturating_add(micros(MAX_PAUSE));
        for pool in &snapshot.pools {
            let (turns, next) = pool.due_checks(gateways, now);
            until = until.min(next);
            for turn in turns {
                let (pool, metrics) = (Arc::clone(pool), Arc::clone(metrics));
                running.spawn(async move {
                    let result = pool.check(turn).await;
                    let word = result.as_ref().err().map_or("ok", CheckFailure::name);
                    metrics.count_check(pool.name(), word);
                });
            }
        }
        Duration::from_micros(until.saturating_sub(now))
    }
}

impl Background for Checks {
    fn start(&self, mut shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut running = JoinSet::new();
            loop {
                let pause = self.begin(&mut running);
                while running.try_join_next().is_some() {}
                tokio::select! {
                    _ = shutdown.changed() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        })
    }
}
