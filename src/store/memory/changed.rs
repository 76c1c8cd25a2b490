//! Which logs of sliding windows have changed, for a file that keeps them over a restart:
//! [`ChangedLog`].

use std::collections::HashMap;

use super::MemoryStore;
use super::logs::Logs;
use super::table::Name;
use crate::limit::charge::BucketId;
use crate::limit::sliding_window::SlidingWindow;

/// A log that has changed, of a window of an hour or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedLog {
    pub bucket: BucketId,
    /// Whether the bucket became full by the change, as an operator's reset does. The store may
    /// remove it then.
    pub is_full: bool,
}

/// The changed logs of one shard, and for each [`ChangedLog::is_full`].
#[derive(Debug, Default)]
pub(super) struct ChangedLogs(HashMap<BucketId, bool, foldhash::fast::RandomState>);

impl ChangedLogs {
    /// Notes a change. `bound` is the maximum number of buckets in the shard: of more, those that
    /// were removed from it are forgotten.
    pub(super) fn note(&mut self, changed: ChangedLog, bound: usize, logs: &Logs) {
        if self.0.len() > bound {
            self.0.retain(|bucket, is_full| *is_full || logs.get(Name::of(*bucket)).is_some());
        }
        self.0.insert(changed.bucket, changed.is_full);
    }
}

impl MemoryStore {
    /// Notes from now on which logs change, for [`take_changed_logs`](Self::take_changed_logs).
    pub fn note_changed_logs(&self) {
        self.shards.iter().for_each(|shard| shard.0.lock().note_changed_logs());
    }

    /// Returns the logs that have changed since the last call, of windows of an hour or longer.
    pub fn take_changed_logs(&self) -> Vec<ChangedLog> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let changed = shard.0.lock().changed_logs().map(std::mem::take);
            let changed = changed.into_iter().flat_map(|changed| changed.0);
            all.extend(changed.map(|(bucket, is_full)| ChangedLog { bucket, is_full }));
        }
        all
    }

    /// Adds logs to those that have changed, because they could not be kept. Later changes have
    /// precedence.
    pub fn put_back_changed_logs(&self, logs: &[ChangedLog]) {
        for ChangedLog { bucket, is_full } in logs {
            let mut shard = self.shards[self.shard_number(*bucket)].0.lock();
            if let Some(changed) = shard.changed_logs() {
                changed.0.entry(*bucket).or_insert(*is_full);
            }
        }
    }

    /// Returns the bucket's window, and the times at which the tokens in it at `now` were taken,
    /// the oldest first; `None` if the store has no log of it. All are in microseconds.
    pub fn stamps(&self, bucket: BucketId, now: u64) -> Option<(SlidingWindow, Vec<i64>)> {
        let shard = self.shards[self.shard_number(bucket)].0.lock();
        shard.stamps(bucket, &self.limits, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::adjust::Adjustment;
    use crate::limit::charge::{Charge, Mode};
    use crate::limit::share::Share;

    const HOUR_US: u64 = 3_600_000_000;

    fn limit(window_us: u64) -> Limit {
        Limit::SlidingWindow(SlidingWindow::new(4, window_us).unwrap())
    }

    /// Of limit 0 if even, otherwise of limit 1.
    fn charge(id: u32, limits: [Limit; 2]) -> Charge {
        let limit_index = id % 2;
        let bucket =
            BucketId(u128::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let limit = limits[limit_index as usize];
        Charge { bucket, rule: 0, limit_index, limit, cost: 1, mode: Mode::Enforce }
    }

    #[test]
    fn changed_logs_of_an_hour_or_longer_are_taken_once() {
        let limits = [limit(HOUR_US), limit(HOUR_US - 1)];
        let store = MemoryStore::new(1_000, &limits);
        let take = |id, at| {
            let charge = charge(id, limits);
            assert!(store.take(&[charge], at, Share::one_of(1)).allowed());
            charge.bucket
        };
        take(2, 1);
        assert!(store.take_changed_logs().is_empty(), "not noted before");
        store.note_changed_logs();
        let first = take(2, 2);
        take(2, 3);
        take(1, 3);
        let changed = |is_full| ChangedLog { bucket: first, is_full };
        assert_eq!(store.take_changed_logs(), [changed(false)]);
        assert!(store.take_changed_logs().is_empty());
        assert_eq!(store.stamps(first, 3).unwrap().1, [1, 2, 3]);
        assert_eq!(store.stamps(first, HOUR_US + 2).unwrap().1, [3]);
        assert!(store.stamps(BucketId(7), 3).is_none());
        // What an operator changes, and what could not be kept.
        store.adjust(&[charge(2, limits)], Adjustment::Reset, 4);
        store.put_back_changed_logs(&[changed(false)]);
        assert_eq!(store.take_changed_logs(), [changed(true)]);
        assert!(store.stamps(first, 4).is_none_or(|(_, stamps)| stamps.is_empty()));
    }

    #[test]
    fn number_of_changed_logs_is_bounded_with_the_store() {
        let limits = [limit(HOUR_US), limit(HOUR_US)];
        let store = MemoryStore::new(64, &limits);
        store.note_changed_logs();
        for id in 0..10_000 {
            store.put(&charge(id, limits), 3, u64::from(id));
        }
        let changed = store.take_changed_logs();
        assert!((1..=65).contains(&changed.len()), "{}", changed.len());
        assert!(changed.iter().any(|one| one.bucket == charge(9_999, limits).bucket));
    }
}
