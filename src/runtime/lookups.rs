//! Name look-ups of upstream servers, when their addresses expire.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use tokio::task::JoinSet;

use super::CurrentSnapshot;
use crate::base::background::Background;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::upstream::pool::Pool;

/// Interval in which TLS files are read, and idle connections closed, in microseconds.
const TIDY_INTERVAL_US: u64 = 10 * MICROS_PER_SECOND;

/// Longest time until the names of a new snapshot are considered.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Shortest time between two rounds.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Looks up the names of all upstreams of the current snapshot when their addresses expire. Every
/// 10 s, reads the TLS files of upstreams again if they have changed, and closes idle connections
/// to them that have expired.
pub struct Lookups {
    current: Arc<CurrentSnapshot>,
}

impl Lookups {
    /// Creates the service. Each look-up uses the snapshot that `current` then has.
    pub fn new(current: Arc<CurrentSnapshot>) -> Self {
        Self { current }
    }
}

impl Background for Lookups {
    fn start(&self, mut shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                _ = shutdown.changed() => {}
                () = self.run() => {}
            }
        })
    }
}

impl Lookups {
    async fn run(&self) {
        let mut tasks = JoinSet::new();
        let mut tidy_at = clock::now().saturating_add(TIDY_INTERVAL_US);
        loop {
            let now = clock::now();
            let snapshot = self.current.load_full();
            if tidy_at <= now {
                tidy_at = now.saturating_add(TIDY_INTERVAL_US);
                for pool in &snapshot.pools {
                    tidy(pool, now, &mut tasks);
                }
            }
            let mut next = tidy_at;
            for pool in snapshot.pools.iter().filter(|pool| pool.has_names) {
                let due = pool.next_lookup();
                if due <= now {
                    let pool = Arc::clone(pool);
                    tasks.spawn(async move { pool.look_up_due(now).await });
                } else {
                    next = next.min(due);
                }
            }
            drop(snapshot);
            while tasks.try_join_next().is_some() {}
            let pause = Duration::from_micros(next.saturating_sub(now));
            tokio::time::sleep(pause.clamp(MIN_PAUSE, MAX_PAUSE)).await;
        }
    }
}

fn tidy(pool: &Arc<Pool>, now: u64, tasks: &mut JoinSet<()>) {
    pool.sweep(now);
    if pool.tls().is_some() {
        let pool = Arc::clone(pool);
        tasks.spawn(async move { pool.refresh_tls().await });
    }
}
