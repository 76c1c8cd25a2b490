//! Periodic name look-ups of upstream servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use super::CurrentSnapshot;
use crate::clock;

/// Interval of look-ups. Addresses of pods and containers change; caching is up to the resolver.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);

/// Looks up the names of all upstreams of the current snapshot every 10 s, and closes idle
/// connections to them that have expired.
pub struct Lookups {
    current: Arc<CurrentSnapshot>,
}

impl Lookups {
    /// Creates the service for whatever snapshot is `current` at each look-up.
    pub fn new(current: Arc<CurrentSnapshot>) -> Self {
        Self { current }
    }
}

#[async_trait]
impl BackgroundService for Lookups {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                () = tokio::time::sleep(LOOKUP_INTERVAL) => {}
            }
            let snapshot = self.current.load_full();
            for pool in &snapshot.pools {
                pool.idle.sweep(clock::now());
                if pool.has_names {
                    pool.look_up().await;
                }
            }
        }
    }
}
