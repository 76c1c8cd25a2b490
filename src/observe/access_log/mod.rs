//! One line for every request, and never a request that waits for it: lines are written by one
//! thread, which alone knows how slow a disk or a reader is. What finds too much waiting for it is
//! dropped and counted.
//!
//! Reading order: this file (what requests do), `line` (what a line tells) in `json`, `waiting`
//! (lines on their way), `writer` (the thread), `sink` (a place that may fail).

mod json;
mod line;
mod sink;
mod waiting;
mod writer;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use http::Method;
use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;

use super::traces::context::TraceId;
use crate::policy::Policy;
use crate::policy::access_log::Output;
use crate::policy::client::Client;
use sink::Sink;
use waiting::{Taken, Waiting};
use writer::Writer;

/// How long the end of the process waits for the last lines.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes records from whoever serves requests.
pub struct AccessLog {
    writer: Thread,
    shared: Arc<Shared>,
}

/// What is written of one request. Indexes are those of its policy.
#[derive(Debug)]
pub struct Record {
    /// What it was judged by.
    pub policy: Arc<Policy>,
    /// When its head had been read, in ticks since 1970.
    pub time: u64,
    /// What it is called.
    pub request_id: String,
    /// Its trace, where that is recorded.
    pub trace_id: Option<TraceId>,
    /// Its client, where it has one.
    pub client: Option<Client>,
    /// Its method.
    pub method: Method,
    /// Its path without the query, where a key may stand; cut by [`Record::path`].
    pub path: Box<str>,
    /// Its route, where it has one.
    pub route: Option<u32>,
    /// What became of it.
    pub decided: Decided,
    /// The status that was sent; none where the client was gone before.
    pub status: Option<u16>,
    /// Bytes of its body that were read.
    pub bytes_in: u64,
    /// Bytes of the answer's body that were sent.
    pub bytes_out: u64,
    /// Who answered it, where it was sent on.
    pub server: Option<SocketAddr>,
    /// Where its time went.
    pub timings: Timings,
}

/// What became of a request, in the words of [`decision`](super::decision).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// What.
    pub decision: &'static str,
    /// The rule that binds, where one applied.
    pub rule: Option<u32>,
    /// What that rule has left for the client, in whole tokens.
    pub remaining: Option<u64>,
    /// Who decided, where a limit did.
    pub source: Option<&'static str>,
}

/// Where a request's time went, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From its head to the end of its answer.
    pub total: u64,
    /// What the decision took, where a bucket was asked.
    pub check: Option<u64>,
    /// From choosing a server to the head of its answer, where there was one.
    pub upstream: Option<u64>,
}

thread_local! {
    /// A line in the making. It is made where the request is, since to hand over what it is made of
    /// costs more than to copy it.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What requests and the writer share.
struct Shared {
    waiting: Mutex<Waiting>,
    /// Where lines go. Written by reloads.
    output: Mutex<Output>,
    /// Whether that is to be opened anew.
    reopen: AtomicBool,
    /// Whether the writer is to end as soon as nothing waits.
    closing: AtomicBool,
    /// Whether it has.
    closed: Mutex<bool>,
    has_closed: Condvar,
    dropped: IntCounter,
}

impl Shared {
    fn new(output: Output, dropped: IntCounter) -> Self {
        Self {
            waiting: Mutex::new(Waiting::default()),
            output: Mutex::new(output),
            reopen: AtomicBool::new(true),
            closing: AtomicBool::new(false),
            closed: Mutex::new(false),
            has_closed: Condvar::new(),
            dropped,
        }
    }
}

impl Record {
    /// The most bytes of a path that are kept.
    const MAX_PATH_BYTES: usize = 2_048;

    /// A path as an record keeps it: a long one is cut, and ends in `…`.
    pub fn path(path: &str) -> Box<str> {
        if path.len() <= Self::MAX_PATH_BYTES {
            return path.into();
        }
        let ends = (0..=Self::MAX_PATH_BYTES).rev();
        let kept = ends.into_iter().find_map(|end| path.get(..end)).unwrap_or_default();
        format!("{kept}…").into()
    }
}

impl AccessLog {
    /// Starts the writer. Lines that are lost are counted in `dropped`.
    ///
    /// # Errors
    /// The file cannot be written to, or the kernel has no thread.
    pub fn start(output: Output, dropped: IntCounter) -> io::Result<Self> {
        check(&output)?;
        let shared = Arc::new(Shared::new(output, dropped));
        let writer = Writer::new(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let thread = thread.spawn(move || writer.run())?;
        Ok(Self { writer: thread.thread().clone(), shared })
    }

    /// Has an record written, some time soon, or drops it. Never waits for a disk.
    pub fn write(&self, record: &Record) {
        let taken = LINE.with_borrow_mut(|line| {
            line.clear();
            line::append(line, record);
            self.shared.waiting.lock().add(line)
        });
        match taken {
            Taken::Waits => {}
            Taken::Wanted => self.writer.unpark(),
            Taken::Dropped => self.shared.dropped.inc(),
        }
    }

    /// Opens the file again: it may have been renamed.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.writer.unpark();
    }

    /// Writes to `output` from now on.
    pub fn redirect(&self, output: &Output) {
        let mut current = self.shared.output.lock();
        if *current != *output {
            current.clone_from(output);
            drop(current);
            self.reopen();
        }
    }

    /// Writes what waits, and ends. A place that takes no more is not waited for long.
    pub fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.writer.unpark();
        let mut closed = self.shared.closed.lock();
        let is_open = |closed: &mut bool| !*closed;
        if self.shared.has_closed.wait_while_for(&mut closed, is_open, CLOSE_TIMEOUT).timed_out() {
            tracing::warn!("the access log takes no more; its last lines are lost");
        }
    }
}

/// Whether `output` can be written to, as far as that can be told at once: a pipe waits for its
/// reader when it is opened.
///
/// # Errors
/// What the kernel says.
pub fn check(output: &Output) -> io::Result<()> {
    match output {
        Output::Off | Output::Stdout => Ok(()),
        Output::File(path) => match std::fs::metadata(path) {
            Ok(about) if !about.is_file() && !about.is_dir() => Ok(()),
            _ => Sink::open(output).map(|_| ()),
        },
    }
}
