//! Lines between requests and the writer. Whoever holds them does no more than copy.

/// How many bytes may wait. At 100,000 requests a second, those of 100 ms.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes a writer is woken for that rests behind a batch.
const WANTED_BYTES: usize = 1024 * 1024;

/// Whole lines, and whether anybody is there to write them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Its memory is asked for once, so that nobody copies megabytes while others wait; the kernel
    /// gives as much of it as is used.
    lines: Vec<u8>,
    writer: State,
}

/// What the writer does.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// It will look again by itself.
    #[default]
    Awake,
    /// It sleeps until it is woken.
    Asleep,
    /// It has ended.
    Gone,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It will be written.
    Waits,
    /// It will be, if the writer is woken.
    Wanted,
    /// Too much waits already, or nobody is there to write it.
    Dropped,
}

impl Waiting {
    /// Takes a line with its end, or drops it.
    pub(super) fn add(&mut self, line: &[u8]) -> Taken {
        let before = self.lines.len();
        if before + line.len() > MOST_BYTES || self.writer == State::Gone {
            return Taken::Dropped;
        }
        if self.lines.capacity() == 0 {
            self.lines.reserve_exact(MOST_BYTES);
        }
        self.lines.extend_from_slice(line);
        let is_much = (before..self.lines.len()).contains(&WANTED_BYTES);
        let was_asleep = std::mem::take(&mut self.writer) == State::Asleep;
        if was_asleep || is_much { Taken::Wanted } else { Taken::Waits }
    }

    /// Hands over all lines in exchange for an empty buffer, which saves making one.
    pub(super) fn swap(&mut self, lines: &mut Vec<u8>) {
        lines.clear();
        std::mem::swap(&mut self.lines, lines);
    }

    /// The same for the last time: who comes later finds nobody.
    pub(super) fn close(&mut self, lines: &mut Vec<u8>) {
        self.swap(lines);
        self.writer = State::Gone;
    }

    /// Whether the writer may sleep until it is woken. It will be by the next line.
    pub(super) fn sleep(&mut self) -> bool {
        let is_empty = self.lines.is_empty();
        self.writer = if is_empty { State::Asleep } else { State::Awake };
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_woken_once() {
        let (mut waiting, mut lines) = (Waiting::default(), Vec::new());
        assert_eq!(waiting.add(b"1\n"), Taken::Waits);
        assert!(!waiting.sleep(), "a line waits");
        waiting.swap(&mut lines);
        assert_eq!(lines, b"1\n");
        assert!(waiting.sleep());
        assert_eq!(waiting.add(b"2\n"), Taken::Wanted);
        assert_eq!(waiting.add(b"3\n"), Taken::Waits);
        waiting.swap(&mut lines);
        assert_eq!(lines, b"2\n3\n");
        assert_eq!(waiting.add(b"4\n"), Taken::Waits);
        waiting.close(&mut lines);
        assert_eq!(lines, b"4\n");
        assert_eq!(waiting.add(b"5\n"), Taken::Dropped, "nobody is there any more");
    }

    #[test]
    fn much_wakes_once_and_too_much_is_dropped() {
        let (mut waiting, mut lines) = (Waiting::default(), Vec::new());
        let line = [b'x'; 1_000];
        for _ in 0..2 {
            let taken: Vec<Taken> = (0..5_000).map(|_| waiting.add(&line)).collect();
            let count = |kind| taken.iter().filter(|taken| **taken == kind).count();
            assert_eq!(count(Taken::Wanted), 1);
            assert_eq!(count(Taken::Waits) + 1, MOST_BYTES / 1_000);
            assert_eq!(taken.iter().position(|taken| *taken == Taken::Wanted), Some(1_048));
            waiting.swap(&mut lines);
            assert_eq!(lines.len(), MOST_BYTES / 1_000 * 1_000);
            assert_eq!(lines.capacity(), MOST_BYTES);
        }
    }
}
