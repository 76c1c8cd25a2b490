//! What happened in each second, for those who watch: gathered once for all of them, and kept for
//! some minutes, so that a page that is opened now shows what was.

mod tick;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::observe::metrics::{Metrics, Totals};
use crate::store::memory::MemoryStore;
use tick::Tick;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);

/// How many looks are kept.
const KEPT: usize = 300;

/// How many ticks one who watches may be behind.
const BEHIND: usize = 8;

/// Looks at the counters once a second.
pub struct Ticker {
    metrics: Arc<Metrics>,
    store: Arc<MemoryStore>,
    shares_redis: bool,
    kept: Mutex<VecDeque<Bytes>>,
    told: broadcast::Sender<Bytes>,
}

impl Ticker {
    /// Looks at `metrics` and `store`; a breaker and other gateways are told of where buckets live
    /// in Redis.
    pub fn new(metrics: Arc<Metrics>, store: Arc<MemoryStore>, shares_redis: bool) -> Self {
        let (told, _) = broadcast::channel(BEHIND);
        Self { metrics, store, shares_redis, kept: Mutex::default(), told }
    }

    /// The last minutes as a JSON array, and all that follows, each as a JSON object.
    pub(super) fn watch(&self) -> (Vec<u8>, broadcast::Receiver<Bytes>) {
        let kept = self.kept.lock();
        // Under the lock, so that none is missed and none comes twice.
        let told = self.told.subscribe();
        let mut history = vec![b'['];
        for (index, tick) in kept.iter().enumerate() {
            if index > 0 {
                history.push(b',');
            }
            history.extend_from_slice(tick);
        }
        history.push(b']');
        (history, told)
    }

    fn look(&self, before: &Totals, span_ms: u64) -> Totals {
        let totals = self.metrics.totals(&self.store);
        let at_ms = clock::unix_us() / 1_000;
        let tick = Tick::between(before, &totals, self.shares_redis, at_ms, span_ms);
        let tick = Bytes::from(serde_json::to_vec(&tick).unwrap_or_default());
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(tick.clone());
        // Nobody may be watching.
        let _ = self.told.send(tick);
        totals
    }
}

#[async_trait]
impl BackgroundService for Ticker {
    async fn start(&self, _: ShutdownWatch) {
        let mut ticks = tokio::time::interval(EVERY);
        // After a pause one long span is true; a burst of short ones would not be.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut looked_at = clock::now();
        // All counters began at 0 with the process: what came before this service ran is in its first
        // tick.
        let mut totals = Totals::default();
        loop {
            ticks.tick().await;
            let now = clock::now();
            totals = self.look(&totals, (now.saturating_sub(looked_at) / 1_000).max(1));
            looked_at = now;
        }
    }
}
