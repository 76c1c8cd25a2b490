//! Traces of requests, for an OpenTelemetry collector: a span for the request, one for its check and
//! one for its way to an upstream. No request waits for it: what is told goes through a bounded
//! queue to one thread, which alone knows how slow a collector is. What finds the queue full is
//! dropped and counted.
//!
//! Reading order: `context` (which trace a request belongs to, as W3C has it), this file (whether it
//! is recorded, and what is told of it), `otlp` (the same as OpenTelemetry puts it), `exporter` (the
//! thread), `sender` (one request to the collector).

pub mod context;

mod exporter;
mod otlp;
mod sender;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{mpsc, watch};

use super::access_log::Record;
use super::metrics::TraceSeries;
use crate::policy::tracing::{Endpoint, Follow, Tracing};
use context::{Parent, SpanId, TraceId};
use exporter::Exporter;

/// How many requests may wait to be told of. At 100,000 of them a second, those of 80 ms.
const QUEUED: usize = 8_192;

/// How long the end of the process waits for the last spans.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A request's place in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub id: TraceId,
    /// The request's own span.
    pub span: SpanId,
    /// The span of its way to an upstream.
    pub upstream: SpanId,
    /// The span of whoever asked, where that is believed.
    pub parent: Option<SpanId>,
    /// Whether it is recorded.
    pub is_sampled: bool,
}

/// What is told of a request.
pub struct TraceRecord {
    /// What the access log tells, too.
    pub request: Record,
    /// Its place in its trace.
    pub trace: Trace,
    /// The span of its check.
    pub check_span: Option<SpanId>,
    /// What others keep of the trace, where it is short; empty: nothing.
    pub state: Box<str>,
    /// The host that it was for, with its port as it came.
    pub host: Option<Box<str>>,
    /// Whether the client speaks TLS, to a trusted proxy.
    pub is_https: bool,
    /// Its version of HTTP.
    pub version: Version,
    /// When its check began, in ticks behind its head.
    pub check_after: Option<u64>,
    /// Its way to an upstream, where it went there.
    pub call: Option<Call>,
}

/// A request's way to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When a server was first chosen, in ticks behind the request's head.
    pub after: u64,
    /// From then to the head of the answer, or to the end of the request where none came, in ticks.
    pub ticks: u64,
    /// The status that was answered.
    pub status: Option<u16>,
    /// What became of it instead, in the words of the metrics.
    pub failure: Option<&'static str>,
    /// How often it was sent, at least once.
    pub tries: usize,
}

/// Takes records from whoever serves requests.
pub struct Traces {
    queue: mpsc::Sender<Box<TraceRecord>>,
    series: TraceSeries,
    closing: watch::Sender<bool>,
    aim: watch::Sender<Option<Endpoint>>,
    closed: Arc<Closed>,
}

/// Whether the thread has ended.
#[derive(Default)]
struct Closed {
    is_closed: Mutex<bool>,
    has_closed: Condvar,
}

impl Trace {
    /// How many random numbers a trace needs.
    pub const NUMBERS: usize = 5;

    /// The place of a request that came with `parent`, by whether a trusted proxy passed it on. None
    /// where `random`, which must differ for every request, has an impossible 0.
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
        let Some(Parent { trace: id, span: asking, is_sampled }) = parent else {
            let id = TraceId::of(u128::from(high) << 64 | u128::from(low))?;
            let is_sampled = tracing.sample.samples(id.random());
            return Some(Self { id, span, upstream, parent: None, is_sampled });
        };
        // Whoever is not trusted chooses its id, and with it would choose what is recorded.
        let is_sampled = if is_trusted { is_sampled } else { tracing.sample.samples(draw) };
        Some(Self { id, span, upstream, parent: Some(asking), is_sampled })
    }

    /// What an upstream is told: it is asked by the span of the request's way there.
    pub fn for_upstream(&self) -> Parent {
        Parent { trace: self.id, span: self.upstream, is_sampled: self.is_sampled }
    }
}

impl TraceRecord {
    /// How many spans it has.
    fn spans(&self) -> u64 {
        let has_check = self.check_after.is_some() && self.check_span.is_some();
        1 + u64::from(has_check) + u64::from(self.call.is_some())
    }
}

impl Traces {
    /// Starts the thread, which does nothing until something is told.
    ///
    /// # Errors
    /// The kernel has no thread, or nothing to wait with.
    pub fn start(series: TraceSeries) -> io::Result<Self> {
        let (queue, receiver) = mpsc::channel(QUEUED);
        let (closing, is_closing) = watch::channel(false);
        let (aim, aimed_at) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let closed = Arc::new(Closed::default());
        let exporter = Exporter::new(receiver, is_closing, aimed_at, series.clone());
        let told = Arc::clone(&closed);
        let thread = std::thread::Builder::new().name("traces".to_owned());
        thread.spawn(move || {
            runtime.block_on(exporter.run());
            *told.is_closed.lock() = true;
            told.has_closed.notify_all();
        })?;
        Ok(Self { queue, series, closing, aim, closed })
    }

    /// Says where spans go by the file in force. What still waits for a collector that fails and is
    /// not named any more is dropped.
    pub fn aim_at(&self, tracing: Option<&Tracing>) {
        self.aim.send_replace(tracing.map(|tracing| tracing.endpoint.clone()));
    }

    /// Has a request told of, some time soon, or drops it. Never waits.
    pub fn emit(&self, record: TraceRecord) {
        if let Err(error) = self.queue.try_send(Box::new(record)) {
            self.series.queue_full.inc_by(error.into_inner().spans());
        }
    }

    /// Sends what waits, and ends. A collector that takes no more is not waited for long.
    pub fn close(&self) {
        let _ = self.closing.send(true);
        let mut is_closed = self.closed.is_closed.lock();
        let is_open = |is_closed: &mut bool| !*is_closed;
        let wait = self.closed.has_closed.wait_while_for(&mut is_closed, is_open, CLOSE_TIMEOUT);
        if wait.timed_out() {
            tracing::warn!("the collector of traces takes no more; the last spans are lost");
        }
    }
}

/// Numbers for ids. None where the system has no randomness.
pub fn random<const N: usize>() -> Option<[u64; N]> {
    /// Numbers that are fetched at once: a call of the system for each request would cost more than
    /// all else that a request without a record takes.
    const FETCHED: usize = 128;

    struct Pool {
        bytes: [u8; 8 * FETCHED],
        /// How many bytes are used up.
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
