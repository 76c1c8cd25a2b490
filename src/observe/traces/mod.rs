//! Traces of requests, exported to an OpenTelemetry collector: a span for the request, one for the
//! check of its limits and one for the request to the upstream. No request waits for a collector:
//! records go through a bounded queue to one thread. If the queue is full they are dropped and
//! counted.
//!
//! Reading order: `context` (W3C Trace Context), this file (which requests are recorded), `otlp`
//! (spans in the form of OpenTelemetry), `exporter` (the thread), `sender` (one export).

pub mod context;

mod exporter;
mod otlp;
mod sender;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{mpsc, watch};

use super::access_log::Record;
use super::metrics::{RetryReason, TraceSeries};
use crate::base::failure;
use crate::policy::tracing::{Endpoint, Follow, Tracing};
use context::{Parent, SpanId, TraceId};
use exporter::Exporter;

/// Maximum number of records in the queue: those of 80 ms at 100,000 requests per second.
const MAX_QUEUED_RECORDS: usize = 8_192;

/// Maximum time that a shutdown waits for the last spans.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The trace context of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Id of the trace: that of the caller if its `traceparent` is followed.
    pub id: TraceId,
    /// The server span of the request.
    pub span: SpanId,
    /// The client span, of the request to the upstream.
    pub upstream: SpanId,
    /// The span of the caller; `None` if its `traceparent` is absent or not followed.
    pub parent: Option<SpanId>,
    /// Whether the spans are recorded.
    pub is_sampled: bool,
}

/// A finished request that is recorded.
pub struct TraceRecord {
    /// Its record in the access log.
    pub request: Record,
    /// Ids of its trace and spans.
    pub trace: Trace,
    /// The span of the check of its limits.
    pub check_span: Option<SpanId>,
    /// Value of `tracestate`; empty if absent, invalid or too long.
    pub state: Box<str>,
    /// Value of `Host`; `None` if absent, invalid or too long.
    pub host: Option<Box<str>>,
    /// Whether the client used TLS, by the header of a trusted proxy.
    pub is_https: bool,
    /// HTTP version of the request.
    pub version: Version,
    /// Microseconds from the head of the request to the start of the check.
    pub check_offset_us: Option<u64>,
    /// The request to the upstream; `None` if it was not forwarded.
    pub call: Option<Call>,
    /// The attempts after which it was sent again.
    pub retried: Vec<FailedAttempt>,
}

/// An attempt after which a request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    pub server: SocketAddr,
    /// Microseconds from the head of the request to its end.
    pub offset_us: u64,
    /// Why it failed.
    pub reason: RetryReason,
    /// The status of its response, if that is why.
    pub status: Option<u16>,
}

/// A request to an upstream, with its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Microseconds from the head of the request to the first selection of a server.
    pub offset_us: u64,
    /// Microseconds from then to the head of the response; without a response, to the end of the
    /// request.
    pub duration_us: u64,
    /// The status of the response.
    pub status: Option<u16>,
    /// The failure, with the values of `tollgate_upstream_results_total`.
    pub failure: Option<&'static str>,
    /// Number of attempts, at least 1.
    pub tries: usize,
}

/// Exports records. Shared by all threads that serve requests.
pub struct Traces {
    queue: mpsc::Sender<Box<TraceRecord>>,
    series: TraceSeries,
    closing: watch::Sender<bool>,
    endpoint: watch::Sender<Option<Endpoint>>,
    closed: Arc<Closed>,
}

/// Whether the thread has ended.
#[derive(Default)]
struct Closed {
    is_closed: Mutex<bool>,
    has_closed: Condvar,
}

impl Trace {
    /// Number of random numbers for a trace context.
    pub const NUMBERS: usize = 5;

    /// Creates the trace context of a request with the `traceparent` of its caller, if it has a
    /// valid one. `is_trusted`: the caller is a trusted proxy. `random` must differ for each
    /// request. Returns `None` if an id would be 0, which W3C does not allow.
    pub fn of(
        tracing: &Tracing,
        parent: Option<Parent>,
        is_trusted: bool,
        random: [u64; Self::NUMBERS],
    ) -> Option<Self> {
        let [high, low, span, upstream, draw] = random;
        let (span, upstream) = (SpanId::of(span)?, SpanId::of(upstream)?);
        let is_followed = match tracing.follow {
            Follow::Trusted => is_trusted,
            Follow::All => true,
            Follow::None => false,
        };
        let parent = parent.filter(|_| is_followed);
        let Some(Parent { trace: id, span: caller, is_sampled }) = parent else {
            let id = TraceId::of(u128::from(high) << 64 | u128::from(low))?;
            let is_sampled = tracing.sample.samples(id.random());
            return Some(Self { id, span, upstream, parent: None, is_sampled });
        };
        // The id is the caller's choice: deciding by it would let callers choose what is recorded.
        let is_sampled = if is_trusted { is_sampled } else { tracing.sample.samples(draw) };
        Some(Self { id, span, upstream, parent: Some(caller), is_sampled })
    }

    /// Returns the `traceparent` for the upstream. It names the client span.
    pub fn for_upstream(&self) -> Parent {
        Parent { trace: self.id, span: self.upstream, is_sampled: self.is_sampled }
    }
}

impl TraceRecord {
    /// Number of spans that the request is exported as, 1 to 3.
    fn spans(&self) -> u64 {
        let has_check = self.check_offset_us.is_some() && self.check_span.is_some();
        1 + u64::from(has_check) + u64::from(self.call.is_some())
    }
}

impl Traces {
    /// Starts the thread of the exporter.
    ///
    /// # Errors
    /// The thread or its event loop cannot be created.
    pub fn start(series: TraceSeries) -> io::Result<Self> {
        let (queue, receiver) = mpsc::channel(MAX_QUEUED_RECORDS);
        let (closing, is_closing) = watch::channel(false);
        let (endpoint, current_endpoint) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let closed = Arc::new(Closed::default());
        let exporter = Exporter::new(receiver, is_closing, current_endpoint, series.clone());
        let thread_closed = Arc::clone(&closed);
        let thread = std::thread::Builder::new().name("traces".to_owned());
        thread.spawn(move || {
            failure::watch_thread("traces", || runtime.block_on(exporter.run()));
            *thread_closed.is_closed.lock() = true;
            thread_closed.has_closed.notify_all();
        })?;
        Ok(Self { queue, series, closing, endpoint, closed })
    }

    /// Sets the endpoint of the configuration in force. Records that wait for another, failing
    /// endpoint are dropped.
    pub fn set_endpoint(&self, tracing: Option<&Tracing>) {
        self.endpoint.send_replace(tracing.map(|tracing| tracing.endpoint.clone()));
    }

    /// Queues a record, or drops it if the queue is full. Never waits.
    pub fn emit(&self, record: TraceRecord) {
        if let Err(error) = self.queue.try_send(Box::new(record)) {
            self.series.queue_full.inc_by(error.into_inner().spans());
        }
    }

    /// Exports the queue and ends the thread. Waits up to 2 s.
    pub fn close(&self) {
        let _ = self.closing.send(true);
        let mut is_closed = self.closed.is_closed.lock();
        let is_open = |is_closed: &mut bool| !*is_closed;
        let wait = self.closed.has_closed.wait_while_for(&mut is_closed, is_open, CLOSE_TIMEOUT);
        if wait.timed_out() {
            tracing::warn!("the collector did not respond in time; the last spans are lost");
        }
    }
}

/// Returns random numbers for ids; `None` if the system has no source of randomness.
pub fn random<const N: usize>() -> Option<[u64; N]> {
    /// Numbers per system call. A call for each request would cost more than all other work for a
    /// request that is not recorded.
    const FETCHED: usize = 128;

    struct Pool {
        bytes: [u8; 8 * FETCHED],
        /// Number of used bytes.
        used: usize,
    }
    thread_local! {
        static POOL: RefCell<Pool> =
            const { RefCell::new(Pool { bytes: [0; 8 * FETCHED], used: 8 * FETCHED }) };
    }
    POOL.with_borrow_mut(|pool| {
        if pool.bytes.len() - pool.used < 8 * N {
            getrandom::fill(&mut pool.bytes).ok()?;
            pool.used = 0;
        }
        let unused = pool.bytes.get(pool.used..)?;
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(unused.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        pool.used += 8 * N;
        Some(numbers)
    })
}

#[cfg(test)]
mod tests;
