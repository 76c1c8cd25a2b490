//! The access log: one line of JSON per request. Requests never wait for the disk: they append
//! lines to a bounded queue in memory, and one thread writes them. Lines beyond the queue's
//! capacity are dropped and counted.
//!
//! Reading order: this file (the record of a request, and the log's API), `json` (a record as a
//! line), `queue`, `writer` (the thread), `sink` (the output file).

mod json;
mod queue;
mod sink;
mod writer;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Version};
use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;

use super::traces::context::TraceId;
use crate::base::failure;
use crate::client::Client;
use crate::decide::decision::Summary;
use crate::decide::reason::Reason;
use crate::limit::cost::Amount;
use crate::net::tls_info::TlsInfo;
use crate::policy::Policy;
use crate::policy::access_log::Output;
use queue::{Pushed, Queue};
use sink::Sink;
use writer::Writer;

/// Maximum time that [`AccessLog::close`] waits for the last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The access log. Writing to it never blocks.
pub struct AccessLog {
    writer: Thread,
    shared: Arc<Shared>,
}

/// Everything the access log and traces show of one request. Indexes refer to `policy`.
#[derive(Debug)]
pub struct Record {
    /// The policy in force when the request began.
    pub policy: Arc<Policy>,
    /// Time at which its head had been read, in microseconds since 1970.
    pub time: u64,
    /// The id that the client and the upstream receive, too.
    pub request_id: String,
    /// Id of its trace, if that is recorded.
    pub trace_id: Option<TraceId>,
    /// Its client; `None` if it was refused before it was identified.
    pub client: Option<Client>,
    /// Method as the client sent it.
    pub method: Method,
    /// Path without the query, which may contain a key; from [`Record::path`].
    pub path: Box<str>,
    /// Index of its route, if one matched.
    pub route: Option<u32>,
    /// Index of its upstream, once its route is known.
    pub upstream: Option<u32>,
    /// The decision on the request.
    pub decision: Summary,
    /// Indexes of the shadow rules that would have denied it, if it was allowed.
    pub shadow_rules: Vec<u32>,
    /// Why the gateway itself responded, or why the request failed; `None` if neither is the case.
    pub reason: Option<Reason>,
    /// Status sent; `None` if the client disconnected first.
    pub status: Option<u16>,
    /// Bytes of the request body that were read.
    pub bytes_in: u64,
    /// Bytes of the response body that were sent.
    pub bytes_out: u64,
    /// Endpoint that it was forwarded to, if any.
    pub server: Option<SocketAddr>,
    /// Generation of the configuration in force when the request began.
    pub generation: u64,
    /// Where its API key was, as an index into `clients.api_key`; `None` without a key.
    pub key_from: Option<usize>,
    /// Name of its API key, if the key is known and has one.
    pub key_name: Option<Arc<str>>,
    /// Whether the connection to the endpoint had been used by an earlier request; `None` if it was
    /// not connected to.
    pub is_reused: Option<bool>,
    /// How long its phases took.
    pub timings: Timings,
}

/// What only lines with listed fields show of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    pub headers: &'a HeaderMap,
    /// Version of HTTP of the client.
    pub version: Version,
    /// The TLS session of the client; `None` for a connection in clear.
    pub tls: Option<&'a TlsInfo>,
    /// Value of `grpc-status` in the head or the trailers of the response; `None` without one.
    pub grpc_status: Option<&'a HeaderValue>,
    /// Number of attempts to send it to a server.
    pub attempts: usize,
    /// Rules whose costs were read from the response, by index, and these costs.
    pub costs: &'a [(u32, Amount)],
}

/// Durations of a request's phases, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From the end of its head to the end of the response.
    pub total: u64,
    /// The check against the limits, if a bucket was read.
    pub check: Option<u64>,
    /// The wait because of leaky buckets, if there was one.
    pub wait: Option<u64>,
    /// From choosing an endpoint to the head of its response, if there was one.
    pub upstream: Option<u64>,
    /// The parts of the time with the upstream.
    pub parts: UpstreamTimes,
}

/// When the parts of a request's time with its upstream ended, in microseconds of the monotonic
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamMarks {
    /// When an endpoint was first selected.
    pub selected: Option<u64>,
    /// When the last endpoint was connected to.
    pub connected: Option<u64>,
    /// When the client had sent the whole body of the request, if it has one.
    pub request: Option<u64>,
    /// When the head of the final response had been received.
    pub head: Option<u64>,
    /// When the body of the response had been received.
    pub body: Option<u64>,
}

/// Durations of the parts of a request's time with its upstream, in microseconds. Each is `None` if
/// the request did not reach its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTimes {
    /// From choosing an endpoint to the connection.
    pub connect: Option<u64>,
    /// From then until the client had sent the body of the request, or the head of the response was
    /// received.
    pub request_body: Option<u64>,
    /// From then to the head of the response.
    pub first_byte: Option<u64>,
    /// From then to the last byte of the response from the upstream.
    pub body: Option<u64>,
    /// From then until the client had been sent the last byte.
    pub send: Option<u64>,
}

impl UpstreamMarks {
    /// The durations between these marks; the request ended at `end`.
    pub fn times(&self, end: u64) -> UpstreamTimes {
        let since = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        // An upstream may respond before it has the whole request.
        let request = match (self.request, self.head) {
            (Some(request), Some(head)) => Some(request.min(head)),
            (request, _) => request,
        };
        UpstreamTimes {
            connect: since(self.selected, self.connected),
            request_body: since(self.connected, request),
            first_byte: since(request.or(self.connected), self.head),
            body: since(self.head, self.body),
            send: since(self.body, Some(end)),
        }
    }
}

thread_local! {
    /// Buffer for one line. Lines are formatted on the request's thread, because sending the record
    /// to the writer would cost more than copying the line.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// State that requests and the writer share.
struct Shared {
    queue: Mutex<Queue>,
    /// The current output; reloads may change it.
    output: Mutex<Output>,
    /// Asks the writer to write what is queued, then to exit.
    closing: AtomicBool,
    /// Set when the writer has exited.
    closed: Mutex<bool>,
    has_closed: Condvar,
    dropped: IntCounter,
}

impl Shared {
    fn new(output: Output, dropped: IntCounter) -> Self {
        let mut queue = Queue::default();
        queue.end_output();
        Self {
            queue: Mutex::new(queue),
            output: Mutex::new(output),
            closing: AtomicBool::new(false),
            closed: Mutex::new(false),
            has_closed: Condvar::new(),
            dropped,
        }
    }
}

impl Record {
    /// Maximum length of a logged path, in bytes.
    const MAX_PATH_BYTES: usize = 2_048;

    /// A path as a record keeps it: beyond 2,048 bytes it is truncated and ends in `…`.
    pub fn path(path: &str) -> Box<str> {
        if path.len() <= Self::MAX_PATH_BYTES {
            return path.into();
        }
        format!("{}…", beginning(path, Self::MAX_PATH_BYTES)).into()
    }
}

/// The longest beginning of a text that has at most `most` bytes.
fn beginning(text: &str, most: usize) -> &str {
    let most = most.min(text.len());
    (0..=most).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

impl AccessLog {
    /// Starts the writer. `dropped` counts the lines that are lost.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or the kernel cannot start a thread.
    pub fn start(output: Output, dropped: IntCounter) -> io::Result<Self> {
        check(&output)?;
        let shared = Arc::new(Shared::new(output, dropped));
        let writer = Writer::new(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let thread = thread.spawn(move || failure::watch_thread("access-log", || writer.run()))?;
        Ok(Self { writer: thread.thread().clone(), shared })
    }

    /// Queues a record of a request; the writer writes it within 20 ms. Drops and counts it if the
    /// queue is full.
    pub fn write(&self, record: &Record, request: &RequestParts<'_>) {
        let pushed = LINE.with_borrow_mut(|line| {
            line.clear();
            json::append(line, record, request);
            self.shared.queue.lock().push(line)
        });
        match pushed {
            Pushed::Queued => {}
            Pushed::WakeWriter => self.writer.unpark(),
            Pushed::Dropped => self.shared.dropped.inc(),
        }
    }

    /// Opens the file again, after it may have been renamed for rotation.
    pub fn reopen(&self) {
        self.shared.queue.lock().end_output();
        self.writer.unpark();
    }

    /// Changes the output. Lines queued before go to the previous one.
    pub fn redirect(&self, output: &Output) {
        let mut current = self.shared.output.lock();
        if *current != *output {
            current.clone_from(output);
            drop(current);
            self.reopen();
        }
    }

    /// Writes the queued lines and stops the writer. Waits at most a second, for example if the
    /// reader of a pipe has stopped.
    pub fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.writer.unpark();
        let mut closed = self.shared.closed.lock();
        let is_open = |closed: &mut bool| !*closed;
        if self.shared.has_closed.wait_while_for(&mut closed, is_open, CLOSE_TIMEOUT).timed_out() {
            tracing::warn!(
                "the access log did not accept its last lines within a second; they are lost"
            );
        }
    }
}

/// Checks that `output` can be opened for writing. A named pipe is not opened, since that would
/// wait for its reader.
///
/// # Errors
/// The file cannot be opened.
pub fn check(output: &Output) -> io::Result<()> {
    match output {
        Output::Off | Output::Stdout => Ok(()),
        Output::File(path) => match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Ok(()),
            _ => Sink::open(output).map(|_| ()),
        },
    }
}
