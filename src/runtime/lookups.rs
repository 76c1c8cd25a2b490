//! Periodic name look-ups of upstream servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::CurrentSnapshot;
use crate::base::clock;
use crate::upstream::pool::Pool;

/// Interval of look-ups. Addresses of pods and containers change; caching is up to the resolver.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// Every 10 s, looks up the names of all upstreams of the current snapshot, reads their TLS files
/// again if they have changed, and closes idle connections to them that have expired.
pub struct Lookups {
    current: Arc<CurrentSnapshot>,
}

impl Lookups {
    /// Creates the service. Each look-up uses the snapshot that `current` then has.
    pub fn new(current: Arc<CurrentSnapshot>) -> Self {
        Self { current }
    }
}

#[async_trait]
impl BackgroundService for Lookups {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut interval = tokio::time::interval(LOOKUP_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate, and most names of the snapshot have been looked up already.
        interval.tick().await;
        let rounds = async {
            self.look_up(|pool| !pool.is_looked_up()).await;
            loop {
                interval.tick().await;
                self.look_up(|_| true).await;
            }
        };
        tokio::select! {
            _ = shutdown.changed() => {}
            () = rounds => {}
        }
    }
}

impl Lookups {
    /// Looks up the names of these upstreams in parallel.
    async fn look_up(&self, is_due: impl Fn(&Pool) -> bool) {
        let snapshot = self.current.load_full();
        let mut lookups = JoinSet::new();
        for pool in snapshot.pools.iter().filter(|pool| is_due(pool)) {
            pool.sweep(clock::now());
            if pool.tls().is_some() {
                let pool = Arc::clone(pool);
                lookups.spawn(async move { pool.refresh_tls().await });
            }
            if pool.has_names {
                let pool = Arc::clone(pool);
                lookups.spawn(async move { pool.look_up().await });
            }
        }
        while lookups.join_next().await.is_some() {}
    }
}
