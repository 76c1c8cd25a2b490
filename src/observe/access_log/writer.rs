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
            let mut waiting = self.shared.waiting.lock();
            if is_closing {
                waiting.close(&mut self.lines);
            } else {
                waiting.swap(&mut self.lines);
            }
            drop(waiting);
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
        let lines = std::mem::take(&mut self.lines);
        let reopens = self.shared.reopen.swap(false, Ordering::AcqRel);
        // What came before another place was named belongs to the one before.
        let had_place = self.sink.is_some();
        if had_place {
            self.put(&lines);
        }
        // A place that could not be opened is tried again with every batch.
        if reopens || self.is_failing && !had_place {
            self.open();
        }
        if !had_place {
            self.put(&lines);
        }
        self.lines = lines;
    }

    fn put(&mut self, lines: &[u8]) {
        match &mut self.sink {
            Some(sink) => match sink.write(lines) {
                Ok(()) if lines.is_empty() => {}
                Ok(()) => self.note(&Ok(())),
                Err((lost, error)) => {
                    self.shared.dropped.inc_by(lost);
                    self.note(&Err(error));
                }
            },
            None if self.is_failing => self.shared.dropped.inc_by(count(lines)),
            // Nobody wants them any more.
            None => {}
        }
    }

    fn open(&mut self) {
        let before = self.sink.take();
        let output = self.shared.output.lock().clone();
        match Sink::open(&output) {
            Ok(sink) => {
                self.is_failing &= sink.is_some();
                self.sink = sink;
            }
            Err(error) => self.note(&Err(error)),
        }
        // The end of a line that the disk had no room for belongs behind its beginning.
        let lost = before.map_or(0, |before| before.leave(self.sink.as_mut()));
        self.shared.dropped.inc_by(lost);
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use prometheus::IntCounter;

    use super::*;
    use crate::policy::access_log::Output;

    fn writer_to(output: Output) -> Writer {
        let dropped = IntCounter::new("dropped", "lines").unwrap();
        let mut writer = Writer::new(Arc::new(Shared::new(output, dropped)));
        writer.batch("");
        writer
    }

    impl Writer {
        fn batch(&mut self, lines: &str) {
            self.lines = lines.as_bytes().to_vec();
            self.write();
        }

        fn redirect(&mut self, output: Output) {
            *self.shared.output.lock() = output;
            self.shared.reopen.store(true, Ordering::Release);
        }
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_came_before_another_place_was_named_is_where_it_belongs() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let to = |path: &PathBuf| Output::File(path.clone());
        let mut writer = writer_to(to(&one));
        writer.redirect(to(&two));
        writer.batch("1\n");
        writer.batch("2\n");
        writer.redirect(Output::Off);
        writer.batch("3\n");
        writer.batch("4\n");
        writer.redirect(to(&one));
        // Nobody has a line written to nowhere.
        writer.batch("5\n");
        assert_eq!((text(&one).as_str(), text(&two).as_str()), ("1\n5\n", "2\n3\n"));
        assert_eq!(writer.shared.dropped.get(), 0);
    }

    #[test]
    fn a_place_that_takes_nothing_is_left_for_one_that_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut writer = writer_to(Output::File("/dev/full".into()));
        writer.batch("1\n2\n");
        assert_eq!(writer.shared.dropped.get(), 2);
        writer.redirect(Output::File(path.clone()));
        writer.batch("");
        writer.batch("3\n");
        assert_eq!((text(&path).as_str(), writer.shared.dropped.get()), ("3\n", 2));
        assert!(!writer.is_failing);
    }
}
