//! Standard error as the output of the log. A line that cannot be written at once is dropped and
//! counted: no request waits while the reader of a pipe, or a terminal, is stopped.

use std::io::{self, Stderr, StderrLock, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::fmt::MakeWriter;

/// Standard error.
#[derive(Debug)]
pub struct ErrorOutput(Stderr);

/// Writes lines without waiting.
#[derive(Debug)]
pub struct LineWriter<W> {
    output: W,
    dropped: &'static AtomicU64,
}

/// Lines that were dropped since the start. There is one standard error in a process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes that an output takes at once if it is ready: `PIPE_BUF` of Linux.
const PIECE: usize = 4096;

/// How long each further piece of a long line may wait. A line that has begun should not be cut off
/// because its reader is a little slower.
const PIECE_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Returns the number of lines that were dropped since the start.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

impl Default for ErrorOutput {
    fn default() -> Self {
        Self(io::stderr())
    }
}

impl<'a> MakeWriter<'a> for ErrorOutput {
    type Writer = LineWriter<StderrLock<'a>>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { output: self.0.lock(), dropped: &DROPPED }
    }
}

impl<W: AsFd + Write> Write for LineWriter<W> {
    /// Writes all of `line`, or counts it as dropped.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut timeout = AT_ONCE;
        for piece in line.chunks(PIECE) {
            if !is_ready(&self.output, timeout) || self.output.write_all(piece).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                break;
            }
            timeout = PIECE_TIMEOUT;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Whether a write of a piece does not wait, or fails at once.
fn is_ready(output: &impl AsFd, timeout: Timespec) -> bool {
    poll(&mut [PollFd::new(output, PollFlags::OUT)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Read as _};

    use super::*;

    fn writer(pipe: PipeWriter) -> (LineWriter<PipeWriter>, &'static AtomicU64) {
        let dropped = Box::leak(Box::default());
        (LineWriter { output: pipe, dropped }, dropped)
    }

    #[test]
    fn lines_beyond_a_full_pipe_are_dropped_and_the_next_reader_gets_whole_lines() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let (mut writer, dropped) = writer(pipe);
        let line = format!("{}\n", "x".repeat(199));
        for _ in 0..2_000 {
            writer.write_all(line.as_bytes()).unwrap();
        }
        let lost = dropped.load(Ordering::Relaxed);
        assert!((1..2_000).contains(&lost), "{lost}");
        let mut kept = vec![0; (2_000 - usize::try_from(lost).unwrap()) * line.len()];
        reader.read_exact(&mut kept).unwrap();
        writer.write_all(b"after\n").unwrap();
        drop(writer);
        let text = String::from_utf8(kept).unwrap();
        assert!(text.lines().all(|found| found == line.trim_end()));
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), dropped.load(Ordering::Relaxed)), ("after\n", lost));
    }

    #[test]
    fn long_line_is_whole_while_it_is_read() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let read = std::thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).map(|_| text.len())
        });
        let (mut writer, _) = writer(pipe);
        writer.write_all(&vec![b'x'; 300_000]).unwrap();
        drop(writer);
        assert_eq!(read.join().unwrap().unwrap(), 300_000);
    }

    #[test]
    fn closed_pipe_is_no_error() {
        let (reader, pipe) = io::pipe().unwrap();
        drop(reader);
        let (mut writer, dropped) = writer(pipe);
        writer.write_all(b"lost\n").unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
