//! [`Waiting`]: what is added to the file, in batches, each once.
//!
//! A write that has failed may be in the file when that is opened again. So the same batch is
//! written again under the same number, and the file skips it if it has it. Until then, no other
//! batch is written.

use super::row::{Rows, add_all};

/// Maximum number of rows that wait for the file.
const MAX_WAITING: usize = 1_000_000;

/// Identifies a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchId {
    /// A random number of this process.
    pub process: u64,
    /// Numbers of a process are consecutive, from 1 on.
    pub number: u64,
}

/// What waits for the file.
#[derive(Debug)]
pub struct Waiting {
    /// That of `batch`, or of the last one.
    id: BatchId,
    /// Rows that are being written, or may have been written. Empty: none.
    batch: Rows,
    /// Rows of the next batch.
    later: Rows,
    /// Maximum number of rows in both.
    max: usize,
}

impl Waiting {
    /// Nothing waits yet. `process` is a random number.
    pub fn new(process: u64) -> Self {
        let id = BatchId { process, number: 0 };
        Self { id, batch: Rows::new(), later: Rows::new(), max: MAX_WAITING }
    }

    /// Adds rows. Returns the number of those that there is no room for.
    pub fn add(&mut self, rows: Rows) -> u64 {
        let mut dropped = 0;
        for (row, counts) in rows {
            let is_full = self.batch.len() + self.later.len() >= self.max;
            if is_full && !self.later.contains_key(&row) {
                dropped += 1;
                continue;
            }
            add_all(&mut self.later, [(row, counts)]);
        }
        dropped
    }

    /// The batch to write: the last one, until it is [`written`](Self::written). `None`: nothing
    /// waits.
    pub fn batch(&mut self) -> Option<(BatchId, &Rows)> {
        if self.batch.is_empty() && !self.later.is_empty() {
            self.batch = std::mem::take(&mut self.later);
            self.id.number += 1;
        }
        (!self.batch.is_empty()).then_some((self.id, &self.batch))
    }

    /// Notes that the file has the batch.
    pub fn written(&mut self) {
        self.batch = Rows::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::days::row::Counts;
    use crate::usage::days::row::tests::row;

    const ONE: Counts = Counts { requests: 1, units: 1_000, overage: 0 };

    fn rows(clients: std::ops::Range<u32>) -> Rows {
        clients.map(|client| (row(20_261_128, client), ONE)).collect()
    }

    #[test]
    fn batch_that_may_be_written_stays_as_it_is() {
        let mut waiting = Waiting::new(7);
        assert!(waiting.batch().is_none());
        waiting.add(rows(0..2));
        let id = |number| BatchId { process: 7, number };
        for _ in 0..2 {
            assert_eq!(waiting.batch(), Some((id(1), &rows(0..2))));
            waiting.add(rows(1..3));
        }
        waiting.written();
        let (second, rows) = waiting.batch().unwrap();
        assert_eq!((second, rows.len()), (id(2), 2));
        assert!(rows.values().all(|counts| counts.requests == 2));
        waiting.written();
        assert!(waiting.batch().is_none());
    }

    #[test]
    fn number_of_rows_that_wait_is_bounded() {
        let mut waiting = Waiting { max: 10, ..Waiting::new(7) };
        assert_eq!(waiting.add(rows(0..5)), 0);
        waiting.batch();
        assert_eq!(waiting.add(rows(0..8)), 3);
        // Rows that wait are counted on.
        let present: Rows = waiting.later.clone();
        assert_eq!((present.len(), waiting.add(present)), (5, 0));
    }
}
