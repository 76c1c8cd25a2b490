//! [`Batches`]: what is added to hashes in Redis, each batch once.
//!
//! The rows of a day are in [`SLICES`] hashes, by the first bits of the client's hash. A batch is
//! what one call adds to one of them. A call without a reply may have been executed, so the same
//! batch is sent again under the same number, and the script (`lua/usage_days.lua`) skips it if it
//! has it. Until then, no other batch is sent for that hash.

use std::collections::{BTreeMap, HashSet};

use super::row::{Counts, Day, Row, Rows, add_all};

/// Number of hashes of a day.
pub const SLICES: usize = 64;

/// Most rows in one batch: Redis takes well below a millisecond for them.
const ROWS_AT_ONCE: usize = 128;

/// Maximum number of rows that wait for Redis.
const MAX_WAITING: usize = 1_000_000;

/// A hash: a day, and the number of its slice.
pub type Place = (Day, usize);

/// Rows that one call adds to one hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The hash.
    pub place: Place,
    /// Its number, which is larger than those of all earlier ones.
    pub number: u64,
    /// What it adds.
    pub rows: Vec<(Row, Counts)>,
}

/// What waits for Redis.
#[derive(Debug, Default)]
pub struct Batches {
    waiting: BTreeMap<Place, Rows>,
    /// Number of rows in `waiting`.
    count: usize,
    /// Batches whose replies have not come.
    unanswered: Vec<Batch>,
    /// Number of the last batch.
    last: u64,
}

/// Number of the hash that has a client.
pub const fn slice(owner: u128) -> usize {
    (owner >> 122) as usize
}

impl Batches {
    /// Adds rows. Returns the number of those that there is no room for.
    pub fn add(&mut self, rows: Rows) -> u64 {
        let mut dropped = 0;
        for (row, counts) in rows {
            let place = (row.day, slice(row.position().owner));
            let there = self.waiting.entry(place).or_default();
            if self.count >= MAX_WAITING && !there.contains_key(&row) {
                dropped += 1;
                continue;
            }
            let before = there.len();
            add_all(there, [(row, counts)]);
            self.count += there.len() - before;
        }
        dropped
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.unanswered.is_empty() && self.waiting.is_empty()
    }

    /// Number of rows that wait.
    pub fn len(&self) -> usize {
        let unanswered: usize = self.unanswered.iter().map(|batch| batch.rows.len()).sum();
        self.count + unanswered
    }

    /// The next batches to send, at most `most`, each for another hash. The caller hands those
    /// without a reply to [`not_answered`](Self::not_answered).
    pub fn next(&mut self, most: usize) -> Vec<Batch> {
        let rest = self.unanswered.split_off(self.unanswered.len().min(most));
        let mut batches = std::mem::replace(&mut self.unanswered, rest);
        let unanswered = batches.iter().chain(&self.unanswered);
        let busy: HashSet<Place> = unanswered.map(|batch| batch.place).collect();
        let free = self.waiting.keys().filter(|place| !busy.contains(place));
        let free: Vec<Place> = free.take(most - batches.len()).copied().collect();
        for place in free {
            let Some(there) = self.waiting.get_mut(&place) else { continue };
            let chosen: Vec<Row> = there.keys().take(ROWS_AT_ONCE).cloned().collect();
            let rows: Vec<(Row, Counts)> =
                chosen.into_iter().filter_map(|row| there.remove_entry(&row)).collect();
            if there.is_empty() {
                self.waiting.remove(&place);
            }
            self.count -= rows.len();
            self.last += 1;
            batches.push(Batch { place, number: self.last, rows });
        }
        batches
    }

    /// Keeps batches without a reply, to be sent again.
    pub fn not_answered(&mut self, batches: impl IntoIterator<Item = Batch>) {
        self.unanswered.extend(batches);
    }

    /// Drops what is of days before `first`. Returns the number of rows.
    pub fn drop_before(&mut self, first: Day) -> u64 {
        let later = self.waiting.split_off(&(first, 0));
        let old: usize = std::mem::replace(&mut self.waiting, later).values().map(Rows::len).sum();
        self.count -= old;
        let before = self.len();
        self.unanswered.retain(|batch| batch.place.0 >= first);
        (old + before - self.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::days::row::tests::row;

    const ONE: Counts = Counts { requests: 1, units: 1_000, overage: 0 };

    fn rows(each: impl IntoIterator<Item = Row>) -> Rows {
        each.into_iter().map(|row| (row, ONE)).collect()
    }

    #[test]
    fn batch_without_a_reply_is_sent_again_before_others_of_its_hash() {
        let mut batches = Batches::default();
        assert_eq!(batches.add(rows([row(20_261_128, 1)])), 0);
        let first = batches.next(16);
        assert_eq!(first.len(), 1);
        batches.not_answered(first.clone());
        batches.add(rows([row(20_261_128, 1)]));
        assert_eq!(batches.len(), 2);
        assert_eq!(batches.next(16), first);
        // Its reply has come.
        let second = batches.next(16);
        assert_eq!(second.len(), 1);
        assert!(second[0].number > first[0].number);
        assert!(batches.is_empty());
    }

    #[test]
    fn every_row_is_sent_once_in_bounded_batches() {
        let mut batches = Batches::default();
        batches.add(rows((0..20_000).map(|client| row(20_261_127 + client % 2, client))));
        let mut sent = Rows::new();
        while !batches.is_empty() {
            let next = batches.next(16);
            let places: HashSet<Place> = next.iter().map(|batch| batch.place).collect();
            assert_eq!(places.len(), next.len());
            for batch in next {
                assert!(batch.rows.len() <= ROWS_AT_ONCE);
                add_all(&mut sent, batch.rows);
            }
        }
        assert_eq!((sent.len(), batches.len()), (20_000, 0));
        assert!(sent.values().all(|counts| *counts == ONE));
    }

    #[test]
    fn days_that_are_not_kept_are_dropped() {
        let mut batches = Batches::default();
        batches.add(rows([row(20_261_127, 1), row(20_261_128, 2)]));
        let sent = batches.next(1);
        batches.not_answered(sent);
        assert_eq!(batches.drop_before(Day::of_number(20_261_128).unwrap()), 1);
        assert_eq!(batches.len(), 1);
        assert_eq!(batches.drop_before(Day::of_number(20_261_129).unwrap()), 1);
        assert!(batches.is_empty());
    }
}
