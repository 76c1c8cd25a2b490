//! Samples the metrics once a second for the dashboard. All subscribers share the samples, and the
//! last minutes are kept, so that a page shows the recent past as soon as it opens.

mod sample;

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
use sample::Sample;

const INTERVAL: Duration = Duration::from_secs(1);

/// Number of samples kept.
const HISTORY_LEN: usize = 300;

/// Number of samples buffered for a slow subscriber; beyond it, its stream is closed.
const SUBSCRIBER_BUFFER: usize = 8;

/// Background service that samples the metrics.
pub struct Sampler {
    metrics: Arc<Metrics>,
    store: Arc<MemoryStore>,
    shares_redis: bool,
    history: Mutex<VecDeque<Bytes>>,
    subscribers: broadcast::Sender<Bytes>,
}

impl Sampler {
    /// Creates a sampler of `metrics` and `store`. If `shares_redis` is false, samples contain no
    /// breaker and no number of gateways.
    pub fn new(metrics: Arc<Metrics>, store: Arc<MemoryStore>, shares_redis: bool) -> Self {
        let (subscribers, _) = broadcast::channel(SUBSCRIBER_BUFFER);
        Self { metrics, store, shares_redis, history: Mutex::default(), subscribers }
    }

    /// The samples kept, as a JSON array, and a receiver of all following samples, each a JSON object.
    pub(super) fn subscribe(&self) -> (Vec<u8>, broadcast::Receiver<Bytes>) {
        let kept = self.history.lock();
        // Under the lock, so that no sample is missed or received twice.
        let receiver = self.subscribers.subscribe();
        let mut history = vec![b'['];
        for (index, sample) in kept.iter().enumerate() {
            if index > 0 {
                history.push(b',');
            }
            history.extend_from_slice(sample);
        }
        history.push(b']');
        (history, receiver)
    }

    fn sample(&self, before: &Totals, span_ms: u64) -> Totals {
        let totals = self.metrics.totals(&self.store);
        let at_ms = clock::unix_us() / 1_000;
        let sample = Sample::between(before, &totals, self.shares_redis, at_ms, span_ms);
        let sample = Bytes::from(serde_json::to_vec(&sample).unwrap_or_default());
        let mut history = self.history.lock();
        if history.len() == HISTORY_LEN {
            history.pop_front();
        }
        history.push_back(sample.clone());
        // Fails if there are no subscribers.
        let _ = self.subscribers.send(sample);
        totals
    }
}

#[async_trait]
impl BackgroundService for Sampler {
    async fn start(&self, _: ShutdownWatch) {
        let mut interval = tokio::time::interval(INTERVAL);
        // After a pause, one sample covers the whole pause.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval.tick().await;
        let mut sampled_at = clock::now();
        // Counters start at 0 with the process, so the first sample includes everything before it.
        let mut totals = Totals::default();
        loop {
            interval.tick().await;
            let now = clock::now();
            totals = self.sample(&totals, (now.saturating_sub(sampled_at) / 1_000).max(1));
            sampled_at = now;
        }
    }
}
