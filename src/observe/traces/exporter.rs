//! The thread that sends spans, as many at once as there are.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use super::sender::{Accepted, ExportError, Sender};
use super::{TraceRecord, otlp, random};
use crate::observe::metrics::TraceSeries;
use crate::policy::tracing::{Endpoint, Tracing};

/// The most requests that are told of at once.
const BATCH: usize = 512;

/// How long more is waited for behind the first: a message for each request would cost more than
/// its spans.
const LINGER: Duration = Duration::from_millis(200);

/// How often a batch is sent at most, where the collector may take it later.
const TRIES: usize = 3;

/// How long is waited before the second try; before each further one, twice as long.
const BACKOFF: Duration = Duration::from_secs(1);

/// The longest that a collector can ask for.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Where collectors take gRPC, which is not spoken here.
const GRPC_PORT: u16 = 4317;

/// How much of a failure is told.
const SHOWN_CHARACTERS: usize = 300;

/// Sends what comes through the queue.
pub(super) struct Exporter {
    queue: mpsc::Receiver<Box<TraceRecord>>,
    closing: watch::Receiver<bool>,
    /// Where spans go by the file in force.
    aim: watch::Receiver<Option<Endpoint>>,
    series: TraceSeries,
    sender: Sender,
    /// Sets this process apart from others of the same name.
    instance: String,
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(
        queue: mpsc::Receiver<Box<TraceRecord>>,
        closing: watch::Receiver<bool>,
        aim: watch::Receiver<Option<Endpoint>>,
        series: TraceSeries,
    ) -> Self {
        let [high, low] = random().unwrap_or([0, u64::from(std::process::id())]);
        let instance = format!("{high:016x}{low:016x}");
        let sender = Sender::default();
        Self { queue, closing, aim, series, sender, instance, is_failing: false }
    }

    /// Sends until it is told to end and nothing waits any more.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                received = self.queue.recv_many(&mut batch, BATCH) => if received == 0 { return },
                () = told(&mut self.closing) => {}
            }
            if batch.len() < BATCH {
                tokio::select! {
                    () = tokio::time::sleep(LINGER) => {}
                    () = told(&mut self.closing) => {}
                }
            }
            while batch.len() < BATCH
                && let Ok(record) = self.queue.try_recv()
            {
                batch.push(record);
            }
            if batch.is_empty() {
                return;
            }
            // Around a reload, some are for one collector and some for another.
            batch.sort_by_key(|record| Arc::as_ptr(&record.request.policy));
            for records in batch.chunk_by(|a, b| Arc::ptr_eq(&a.request.policy, &b.request.policy))
            {
                self.export(records).await;
            }
            batch.clear();
        }
    }

    /// Sends the spans of requests that were judged by one policy, or drops them.
    async fn export(&mut self, records: &[Box<TraceRecord>]) {
        let Some(policy) = records.first().map(|record| Arc::clone(&record.request.policy)) else {
            return;
        };
        let Some(tracing) = &policy.tracing else { return };
        // Whoever has the file name another collector does not want to wait for the one that fails.
        if self.is_failing && self.is_left(&tracing.endpoint) {
            self.series.failed.inc_by(records.iter().map(|record| record.spans()).sum());
            return;
        }
        let request = otlp::request(records, &self.instance);
        let spans = count(&request);
        let body = request.encode_to_vec();
        match self.deliver(tracing, &body).await {
            Ok(Accepted { rejected, reason }) => {
                let rejected = rejected.min(spans);
                self.series.sent.inc_by(spans - rejected);
                self.series.rejected.inc_by(rejected);
                let refusal = (rejected > 0).then(|| format!("it refused spans: {reason}"));
                self.note(tracing, refusal.as_deref());
            }
            Err(failure) => {
                self.series.failed.inc_by(spans);
                self.note(tracing, Some(&failure.to_string()));
            }
        }
    }

    /// Sends a message, again where the collector may take it later.
    async fn deliver(&mut self, tracing: &Tracing, body: &[u8]) -> Result<Accepted, ExportError> {
        let (mut backoff, mut tries) = (BACKOFF, 0);
        loop {
            tries += 1;
            let result = self.sender.send(tracing, body).await;
            self.series.count(result.as_ref().map_or_else(ExportError::label, |_| "ok"));
            let failure = match result {
                Ok(accepted) => return Ok(accepted),
                Err(failure) => failure,
            };
            let is_last = tries == TRIES || self.is_left(&tracing.endpoint);
            if is_last || !failure.is_retryable() || *self.closing.borrow() {
                return Err(failure);
            }
            let wait = failure.retry_after().unwrap_or(backoff).min(MAX_BACKOFF);
            backoff *= 2;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = told(&mut self.closing) => {}
                () = left(&mut self.aim, &tracing.endpoint) => {}
            }
        }
    }

    /// Whether spans go elsewhere, or nowhere, by the file in force.
    fn is_left(&self, endpoint: &Endpoint) -> bool {
        self.aim.borrow().as_ref() != Some(endpoint)
    }

    /// Says when spans begin to be lost, and when they arrive again.
    fn note(&mut self, tracing: &Tracing, failure: Option<&str>) {
        let endpoint = &tracing.endpoint;
        match failure {
            Some(failure) if !self.is_failing => {
                // Part of it may be what the other side said.
                let failure = failure.chars().filter(|c| !c.is_control());
                let failure: String = failure.take(SHOWN_CHARACTERS).collect();
                let hint = match endpoint.origin.port {
                    GRPC_PORT => "; 4317 is most often the port for gRPC, and 4318 that for HTTP",
                    _ => "",
                };
                warn!("traces cannot be sent to {endpoint}, spans are dropped: {failure}{hint}");
            }
            None if self.is_failing => info!("traces are sent to {endpoint} again"),
            _ => {}
        }
        self.is_failing = failure.is_some();
    }
}

/// Waits until spans go elsewhere.
async fn left(aim: &mut watch::Receiver<Option<Endpoint>>, endpoint: &Endpoint) {
    if aim.wait_for(|aim| aim.as_ref() != Some(endpoint)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits for the end.
async fn told(closing: &mut watch::Receiver<bool>) {
    // Where nobody is left who could say so, nobody is left who sends anything.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

fn count(request: &ExportTraceServiceRequest) -> u64 {
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len() as u64).sum()
}
