//! The thread that exports spans in batches.

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

/// Maximum number of records in a batch.
const MAX_BATCH: usize = 512;

/// How long a batch waits for further records after the first: a message for each request would
/// cost more than its spans.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Maximum number of attempts to send a batch.
const MAX_ATTEMPTS: usize = 3;

/// Wait before the second attempt. It doubles before each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// Maximum wait that a collector can demand by `Retry-After`.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The usual port for OTLP over gRPC, which is not supported.
const GRPC_PORT: u16 = 4317;

/// Maximum number of logged characters of an error.
const MAX_LOGGED_CHARACTERS: usize = 300;

/// Exports the records of the queue.
pub(super) struct Exporter {
    queue: mpsc::Receiver<Box<TraceRecord>>,
    closing: watch::Receiver<bool>,
    /// The endpoint of the configuration in force.
    endpoint: watch::Receiver<Option<Endpoint>>,
    series: TraceSeries,
    sender: Sender,
    /// `service.instance.id`: random, differs for each process.
    instance: String,
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(
        queue: mpsc::Receiver<Box<TraceRecord>>,
        closing: watch::Receiver<bool>,
        endpoint: watch::Receiver<Option<Endpoint>>,
        series: TraceSeries,
    ) -> Self {
        let [high, low] = random().unwrap_or([0, u64::from(std::process::id())]);
        let instance = format!("{high:016x}{low:016x}");
        let sender = Sender::default();
        Self { queue, closing, endpoint, series, sender, instance, is_failing: false }
    }

    /// Exports until the queue is empty and `closing` is true.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            tokio::select! {
                biased;
                received = self.queue.recv_many(&mut batch, MAX_BATCH) => if received == 0 { return },
                () = until_closing(&mut self.closing) => {}
            }
            if batch.len() < MAX_BATCH {
                tokio::select! {
                    () = tokio::time::sleep(BATCH_DELAY) => {}
                    () = until_closing(&mut self.closing) => {}
                }
            }
            while batch.len() < MAX_BATCH
                && let Ok(record) = self.queue.try_recv()
            {
                batch.push(record);
            }
            if batch.is_empty() {
                return;
            }
            // Records before and after a reload may have different collectors.
            batch.sort_by_key(|record| Arc::as_ptr(&record.request.policy));
            for records in batch.chunk_by(|a, b| Arc::ptr_eq(&a.request.policy, &b.request.policy))
            {
                self.export(records).await;
            }
            batch.clear();
        }
    }

    /// Exports the spans of records with the same policy, or drops them.
    async fn export(&mut self, records: &[Box<TraceRecord>]) {
        let Some(policy) = records.first().map(|record| Arc::clone(&record.request.policy)) else {
            return;
        };
        let Some(tracing) = &policy.tracing else { return };
        // A failing collector that is no longer configured would delay the new one.
        if self.is_failing && self.is_replaced(&tracing.endpoint) {
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
                let refusal = (rejected > 0).then(|| format!("it rejected spans: {reason}"));
                self.log(tracing, refusal.as_deref());
            }
            Err(failure) => {
                self.series.failed.inc_by(spans);
                self.log(tracing, Some(&failure.to_string()));
            }
        }
    }

    /// Sends a message, and again after an error that is retryable.
    async fn deliver(&mut self, tracing: &Tracing, body: &[u8]) -> Result<Accepted, ExportError> {
        let (mut backoff, mut attempts) = (FIRST_BACKOFF, 0);
        loop {
            attempts += 1;
            let result = self.sender.send(tracing, body).await;
            self.series.count(result.as_ref().map_or_else(ExportError::label, |_| "ok"));
            let failure = match result {
                Ok(accepted) => return Ok(accepted),
                Err(failure) => failure,
            };
            let is_last = attempts == MAX_ATTEMPTS || self.is_replaced(&tracing.endpoint);
            if is_last || !failure.is_retryable() || *self.closing.borrow() {
                return Err(failure);
            }
            let wait = failure.retry_after().unwrap_or(backoff).min(MAX_BACKOFF);
            backoff *= 2;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = until_closing(&mut self.closing) => {}
                () = until_replaced(&mut self.endpoint, &tracing.endpoint) => {}
            }
        }
    }

    /// Whether the configuration in force has another endpoint or none.
    fn is_replaced(&self, endpoint: &Endpoint) -> bool {
        self.endpoint.borrow().as_ref() != Some(endpoint)
    }

    /// Logs when spans begin to be lost, and when they arrive again.
    fn log(&mut self, tracing: &Tracing, failure: Option<&str>) {
        let endpoint = &tracing.endpoint;
        match failure {
            Some(failure) if !self.is_failing => {
                // It may contain text of the other side.
                let failure = failure.chars().filter(|c| !c.is_control());
                let failure: String = failure.take(MAX_LOGGED_CHARACTERS).collect();
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

/// Waits until the configuration in force has another endpoint.
async fn until_replaced(current: &mut watch::Receiver<Option<Endpoint>>, endpoint: &Endpoint) {
    if current.wait_for(|current| current.as_ref() != Some(endpoint)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the process shuts down.
async fn until_closing(closing: &mut watch::Receiver<bool>) {
    // An error means that `Traces` is gone, and with it the sender of the queue.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

fn count(request: &ExportTraceServiceRequest) -> u64 {
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    scopes.map(|scope| scope.spans.len() as u64).sum()
}
