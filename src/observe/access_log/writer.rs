//! The thread that writes lines, in batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::{info, warn};

use super::Shared;
use super::sink::{Sink, count};

/// Pause of the writer after a batch. Waking a thread costs more than formatting a line, so under
/// load lines are written in batches.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes the queued lines.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// `None`: the output is `off`, or could not be opened.
    sink: Option<Sink>,
    /// Lines of the current batch. Kept between batches to reuse its memory.
    lines: Vec<u8>,
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sink: None, lines: Vec::new(), is_failing: false }
    }

    /// Writes until the log is closed.
    pub(super) fn run(mut self) {
        loop {
            // Read before the queue, so that every line queued before `close` is written.
            let is_closing = self.shared.closing.load(Ordering::Acquire);
            let mut queue = self.shared.queue.lock();
            let earlier_bytes =
                if is_closing { queue.close(&mut self.lines) } else { queue.swap(&mut self.lines) };
            drop(queue);
            self.write(earlier_bytes);
            if is_closing {
                *self.shared.closed.lock() = true;
                self.shared.has_closed.notify_all();
                return;
            }
            std::thread::park_timeout(PAUSE);
            // A wake-up after these checks is not lost: `unpark` before `park` makes `park` return.
            let is_closing = self.shared.closing.load(Ordering::Acquire);
            if !is_closing && self.shared.queue.lock().sleep() {
                std::thread::park();
            }
        }
    }

    /// Writes or drops the batch. Opens the output again after `earlier_bytes` of it; `None`: only
    /// if that failed before.
    fn write(&mut self, earlier_bytes: Option<usize>) {
        let lines = std::mem::take(&mut self.lines);
        let reopens = earlier_bytes.is_some();
        let had_sink = self.sink.is_some();
        // Without a previous output, all lines are for the next one.
        let earlier_bytes = if had_sink { earlier_bytes.unwrap_or(lines.len()) } else { 0 };
        let (earlier, later) = lines.split_at(earlier_bytes);
        if had_sink {
            self.put(earlier);
        }
        // Opening is retried with every batch.
        if reopens || self.is_failing && !had_sink {
            self.open();
        }
        if !had_sink || !later.is_empty() {
            self.put(later);
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
            // The output is `off`.
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
        // The end of a partly written line must follow its beginning.
        let lost = before.map_or(0, |before| before.replace_with(self.sink.as_mut()));
        self.shared.dropped.inc_by(lost);
    }

    /// Logs when lines begin to be lost, and when they are written again.
    fn note(&mut self, result: &std::io::Result<()>) {
        match result {
            Err(error) if !self.is_failing => {
                warn!(%error, "the access log cannot be written; its lines are dropped");
            }
            Ok(()) if self.is_failing => info!("the access log can be written again"),
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
            let earlier_bytes = self.shared.queue.lock().swap(&mut self.lines);
            self.lines = lines.as_bytes().to_vec();
            self.write(earlier_bytes.map(|_| lines.len()));
        }

        fn redirect(&mut self, output: Output) {
            *self.shared.output.lock() = output;
            self.shared.queue.lock().end_output();
        }
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn lines_before_a_redirect_go_to_the_previous_output() {
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
        // A line that is queued while the output is off goes to the next output.
        writer.batch("5\n");
        assert_eq!((text(&one).as_str(), text(&two).as_str()), ("1\n5\n", "2\n3\n"));
        assert_eq!(writer.shared.dropped.get(), 0);
    }

    #[test]
    fn lines_after_a_redirect_go_to_the_next_output_also_in_the_same_batch() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let mut writer = writer_to(Output::File(one.clone()));
        let shared = Arc::clone(&writer.shared);
        shared.queue.lock().push(b"1\n");
        *shared.output.lock() = Output::File(two.clone());
        shared.queue.lock().end_output();
        shared.queue.lock().push(b"2\n");
        let earlier_bytes = shared.queue.lock().swap(&mut writer.lines);
        writer.write(earlier_bytes);
        assert_eq!((text(&one).as_str(), text(&two).as_str()), ("1\n", "2\n"));
    }

    #[test]
    fn failing_output_is_replaced_by_a_redirect() {
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
