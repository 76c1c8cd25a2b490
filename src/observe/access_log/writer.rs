//! The thread that writes lines, as many at once as there are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tracing::{info, warn};

use super::sink::{Sink, count};
use super::{Message, Shared, line};

/// How many bytes are collected at most before they are written.
const BATCH_BYTES: usize = 64 * 1024;

/// How long it is not listened behind a batch. Who sends to a thread that listens has to wake it,
/// which costs more than the line: under load they come in batches instead.
const LINGER: Duration = Duration::from_millis(20);

/// Writes what comes through the queue.
pub(super) struct Writer {
    queue: Receiver<Message>,
    shared: Arc<Shared>,
    /// None: lines go nowhere, or their place could not be opened.
    sink: Option<Sink>,
    /// Lines that are not written yet.
    lines: Vec<u8>,
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(queue: Receiver<Message>, shared: Arc<Shared>) -> Self {
        let lines = Vec::with_capacity(BATCH_BYTES);
        Self { queue, shared, sink: None, lines, is_failing: false }
    }

    /// Writes until it is told to end.
    pub(super) fn run(mut self) {
        while let Ok(message) = self.queue.recv() {
            self.collect(message);
            loop {
                while let Ok(message) = self.queue.try_recv() {
                    self.collect(message);
                }
                let is_closing = self.shared.closing.load(Ordering::Acquire);
                self.write();
                if is_closing {
                    *self.shared.closed.lock() = true;
                    self.shared.has_closed.notify_all();
                    return;
                }
                std::thread::park_timeout(LINGER);
                match self.queue.try_recv() {
                    Ok(message) => self.collect(message),
                    Err(_) => break,
                }
            }
        }
    }

    fn collect(&mut self, message: Message) {
        if let Message::Entry(entry) = message
            && line::append(&mut self.lines, &entry).is_err()
        {
            self.shared.dropped.inc();
        }
        if self.lines.len() >= BATCH_BYTES {
            self.write();
        }
    }

    /// Writes the lines so far, or drops them.
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
        self.lines.clear();
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
