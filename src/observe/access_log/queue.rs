//! Queue of lines between requests and the writer. Both hold its lock only to copy or swap bytes.

/// Capacity in bytes. At 100,000 requests a second, the lines of 100 ms.
const CAPACITY_BYTES: usize = 4 * 1024 * 1024;

/// Size at which a writer that pauses between two batches is woken, in bytes.
const WAKE_BYTES: usize = 1024 * 1024;

/// Whole lines, and whether the writer must be woken for the next one.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Allocated once at full capacity, so that no request copies megabytes while others wait for
    /// the lock. The kernel provides the pages as they are used.
    lines: Vec<u8>,
    /// Bytes of `lines` for the output before it is opened again; `None`: it is not to be.
    earlier_bytes: Option<usize>,
    writer: WriterState,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum WriterState {
    /// Will read the queue without being woken.
    #[default]
    Awake,
    /// Sleeps until it is woken.
    Asleep,
    /// Has exited: further lines are dropped.
    Stopped,
}

/// Result of adding a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The line will be written.
    Queued,
    /// The line will be written; the caller must wake the writer.
    WakeWriter,
    /// The queue is full, or the writer has exited.
    Dropped,
}

impl Queue {
    /// Adds one line, including its line feed.
    pub(super) fn push(&mut self, line: &[u8]) -> Pushed {
        let before = self.lines.len();
        if before + line.len() > CAPACITY_BYTES || self.writer == WriterState::Stopped {
            return Pushed::Dropped;
        }
        if self.lines.capacity() == 0 {
            self.lines.reserve_exact(CAPACITY_BYTES);
        }
        self.lines.extend_from_slice(line);
        let reaches_wake_size = (before..self.lines.len()).contains(&WAKE_BYTES);
        let was_asleep = std::mem::take(&mut self.writer) == WriterState::Asleep;
        if was_asleep || reaches_wake_size { Pushed::WakeWriter } else { Pushed::Queued }
    }

    /// Asks the writer to open the output again: lines that are queued from now on are for the new
    /// one.
    pub(super) fn end_output(&mut self) {
        self.earlier_bytes = Some(self.lines.len());
    }

    /// Moves all lines into `lines`, whose buffer the queue uses next. Avoids an allocation.
    /// Returns how many bytes of them are for the output before it is opened again; `None`: it is
    /// not to be.
    pub(super) fn swap(&mut self, lines: &mut Vec<u8>) -> Option<usize> {
        lines.clear();
        std::mem::swap(&mut self.lines, lines);
        self.earlier_bytes.take()
    }

    /// As [`swap`](Self::swap), for the last time: later lines are dropped.
    pub(super) fn close(&mut self, lines: &mut Vec<u8>) -> Option<usize> {
        self.writer = WriterState::Stopped;
        self.swap(lines)
    }

    /// Returns whether there is nothing to write or open, so that the writer may sleep. If so, the
    /// next line wakes it.
    pub(super) fn sleep(&mut self) -> bool {
        let has_nothing = self.lines.is_empty() && self.earlier_bytes.is_none();
        self.writer = if has_nothing { WriterState::Asleep } else { WriterState::Awake };
        has_nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_wakes_a_sleeping_writer() {
        let (mut queue, mut lines) = (Queue::default(), Vec::new());
        assert_eq!(queue.push(b"1\n"), Pushed::Queued);
        assert!(!queue.sleep(), "a line is queued");
        queue.swap(&mut lines);
        assert_eq!(lines, b"1\n");
        assert!(queue.sleep());
        assert_eq!(queue.push(b"2\n"), Pushed::WakeWriter);
        assert_eq!(queue.push(b"3\n"), Pushed::Queued);
        queue.swap(&mut lines);
        assert_eq!(lines, b"2\n3\n");
        assert_eq!(queue.push(b"4\n"), Pushed::Queued);
        queue.close(&mut lines);
        assert_eq!(lines, b"4\n");
        assert_eq!(queue.push(b"5\n"), Pushed::Dropped, "the writer has exited");
    }

    #[test]
    fn large_queue_wakes_the_writer_once_and_full_queue_drops_lines() {
        let (mut queue, mut lines) = (Queue::default(), Vec::new());
        let line = [b'x'; 1_000];
        for _ in 0..2 {
            let pushed: Vec<Pushed> = (0..5_000).map(|_| queue.push(&line)).collect();
            let count = |kind| pushed.iter().filter(|pushed| **pushed == kind).count();
            assert_eq!(count(Pushed::WakeWriter), 1);
            assert_eq!(count(Pushed::Queued) + 1, CAPACITY_BYTES / 1_000);
            assert_eq!(pushed.iter().position(|pushed| *pushed == Pushed::WakeWriter), Some(1_048));
            queue.swap(&mut lines);
            assert_eq!(lines.len(), CAPACITY_BYTES / 1_000 * 1_000);
            assert_eq!(lines.capacity(), CAPACITY_BYTES);
        }
    }
}
