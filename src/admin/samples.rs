//! Samples the metrics once a second for the dashboard and `tollgate top`. All subscribers share
//! the samples, and those of the last 24 hours are kept, so that a page shows the recent past as
//! soon as it opens.
//!
//! Reading order: `sample` (the counts of a span), `store` (which samples are kept), `view` (a
//! sample as JSON), `show` (`GET /api/samples`), `message` (for the next process), this file (the
//! service).

mod message;
mod sample;
mod show;
mod store;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use crate::api::samples::Sample as SampleView;
use crate::base::background::Background;
use crate::base::clock;
use crate::observe::metrics::{Metrics, Totals};
use crate::process::handover::History;
use crate::store::memory::MemoryStore;
use sample::Sample;
pub(super) use show::show;
use store::{Found, SampleStore};

const INTERVAL: Duration = Duration::from_secs(1);

const MINUTE_MS: u64 = 60_000;

/// Number of samples buffered for a slow subscriber; beyond it, its stream is closed.
const SUBSCRIBER_BUFFER: usize = 8;

/// Background service that samples the metrics.
pub struct Sampler {
    metrics: Arc<Metrics>,
    store: Arc<MemoryStore>,
    shares_redis: bool,
    kept: Mutex<SampleStore>,
    subscribers: broadcast::Sender<Bytes>,
}

impl Sampler {
    /// Creates a sampler of `metrics` and `store`. There is one in a process. If `shares_redis` is
    /// false, samples contain no breaker and no number of gateways.
    pub fn new(metrics: Arc<Metrics>, store: Arc<MemoryStore>, shares_redis: bool) -> Self {
        let (subscribers, _) = broadcast::channel(SUBSCRIBER_BUFFER);
        Self { metrics, store, shares_redis, kept: Mutex::default(), subscribers }
    }

    /// The samples of the last five minutes, as a JSON array, and a receiver of all following
    /// samples, each a JSON object.
    pub(super) fn subscribe(&self) -> (Vec<u8>, broadcast::Receiver<Bytes>) {
        let kept = self.kept.lock();
        // Under the lock, so that no sample is missed or received twice.
        let receiver = self.subscribers.subscribe();
        let history: Vec<Arc<Sample>> = kept.finest().map(Arc::clone).collect();
        drop(kept);
        let history: Vec<SampleView<&str>> =
            history.iter().map(|sample| self.view(sample)).collect();
        (serde_json::to_vec(&history).unwrap_or_default(), receiver)
    }

    /// The samples of a range of time, in milliseconds since the Unix epoch.
    fn find(&self, from_ms: u64, to_ms: u64) -> Found {
        self.kept.lock().find(from_ms, to_ms)
    }

    /// The client connections that were closed without a response in the last minute, by reason.
    pub(super) fn rejected_last_minute(&self) -> BTreeMap<String, u64> {
        self.kept.lock().rejected_connections((clock::unix_us() / 1_000).saturating_sub(MINUTE_MS))
    }

    fn view<'a>(&self, sample: &'a Sample) -> SampleView<&'a str> {
        SampleView::of(sample, self.shares_redis)
    }

    fn sample(&self, before: &Totals, span_ms: u64) -> Totals {
        let (counted, totals) = (self.metrics.increases(), self.metrics.totals(&self.store));
        let at_ms = clock::unix_us() / 1_000;
        let mut sample = Sample::of(counted, before, &totals, at_ms, span_ms);
        let mut kept = self.kept.lock();
        kept.push(&mut sample);
        let json = serde_json::to_vec(&self.view(&sample)).unwrap_or_default();
        // Fails if there are no subscribers.
        let _ = self.subscribers.send(json.into());
        totals
    }
}

impl History for Sampler {
    fn message(&self) -> Vec<u8> {
        // Samples are shared, so that the lock is short.
        let kept = self.kept.lock().clone();
        kept.message()
    }

    fn continue_from(&self, message: &[u8]) -> usize {
        let Some(mut samples) = SampleStore::of_message(message) else { return 0 };
        let count = samples.len();
        let mut kept = self.kept.lock();
        samples.continue_with(&kept);
        *kept = samples;
        count
    }
}

impl Background for Sampler {
    fn start(&self, _: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut interval = tokio::time::interval(INTERVAL);
            // After a pause, one sample covers the whole pause.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval.tick().await;
            let mut sampled_at = clock::now();
            // Counters start at 0 with the process, so the first sample includes everything before
            // it.
            let mut totals = Totals::default();
            loop {
                interval.tick().await;
                let now = clock::now();
                totals = self.sample(&totals, (now.saturating_sub(sampled_at) / 1_000).max(1));
                sampled_at = now;
            }
        })
    }
}
