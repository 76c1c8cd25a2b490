//! The thread that writes lines, as many at once as there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{info, warn};

use super::Shared;
use super::sink::{Sink, count};

/// How long the writer rests behind a batch. To wake a thread costs more than a line: under load
/// they come in batches instead.
const REST: Duration = Duration::from_millis(20);

/// Writes what waits.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// None: lines go nowhere, or their place could not be opened.
    sink: Option<Sink>,
    /// A batch.
    lines: Vec<u8>,
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sink: None, lines: Vec::new(), is_failing: false }
    }

    /// Writes until it is told to end.
    pub(super) fn run(mut self) {
        loop {
            // Read first: what was there when it was told to end is written.
            let is_closing = self.shared.closing.load(Ordering::Acquire);
            self.shared.waiting.lock().swap(&mut self.lines);
            self.write();
            if is_closing {
                *self.shared.closed.lock() = true;
                self.shared.has_closed.notify_all();
                return;
            }
            std::thread::park_timeout(REST);
            // Whoever calls meanwhile finds it awake: a thread that was called does not park.
            if !self.is_called() && self.shared.waiting.lock().sleep() {
                std::thread::park();
            }
        }
    }

    /// Whether there is more to do than to write.
    fn is_called(&self) -> bool {
        self.shared.reopen.load(Ordering::Acquire) || self.shared.closing.load(Ordering::Acquire)
    }

    /// Writes the batch, or drops it.
    fn write(&mut self) {
        // A place that could not be opened is tried again with every batch.
        if self.shared.reopen.swap(false, Ordering::AcqRel)
            || self.is_failing && self.sink.is_none()
        {
            self.open();
        }
        let lines = std::mem::take(&mut self.lines);
        match &mut self.sink {
            Some(sink) => match sink.write(&lines) {
                Ok(()) if lines.is_empty() => {}
                Ok(()) => self.note(&Ok(())),
                Err((lost, error)) => {
                    self.shared.dropped.inc_by(lost);
                    self.note(&Err(error));
                }
            },
            None if self.is_failing => self.shared.dropped.inc_by(count(&lines)),
            // Nobody wants them any more.
            None => {}
        }
        self.lines = lines;
    }

    fn open(&mut self) {
        let before = self.sink.take();
        self.shared.dropped.inc_by(before.map_or(0, |sink| sink.unfinished()));
        let output = self.shared.output.lock().clone();
        match Sink::open(&output) {
            Ok(sink) => {
                self.is_failing &= sink.is_some();
                self.sink = sink;
            }
            Err(error) => self.note(&Err(error)),
        }
    }

    /// Says when lines begin to be lost, and when they are written again.
    fn note(&mut self, result: &std::io::Result<()>) {
        match result {
            Err(error) if !self.is_failing => {
                warn!("the access log cannot be written, lines are dropped: {error}");
            }
            Ok(()) if self.is_failing => info!("the access log is written again"),
            _ => {}
        }
        self.is_failing = result.is_err();
    }
}
