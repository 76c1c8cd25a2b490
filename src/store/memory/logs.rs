//! The logs of a shard's sliding windows, beside its table, which has the level and newest stamp of
//! each.

use std::collections::HashMap;

use super::table::Name;
use crate::limit::stamp_log::StampLog;

/// Stamps that take as much memory as one bucket of the table.
const STAMPS_PER_BUCKET: usize = 4;

/// Smallest weight at which logs without stamps in the window are searched for.
const MIN_SWEEP: usize = 64;

/// Logs by the names of their buckets.
#[derive(Debug, Default)]
pub(super) struct Logs {
    by_name: HashMap<Name, StampLog, foldhash::fast::RandomState>,
    /// Memory of all logs, as a number of buckets.
    weight: usize,
    /// Weight at which the next search begins.
    sweep_at: usize,
}

impl Logs {
    /// Memory of all logs, as a number of buckets.
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn get(&self, name: Name) -> Option<&StampLog> {
        self.by_name.get(&name)
    }

    /// Removes a log.
    pub(super) fn take(&mut self, name: Name) -> Option<StampLog> {
        if self.by_name.is_empty() {
            return None;
        }
        let log = self.by_name.remove(&name)?;
        self.weight -= weight(&log);
        Some(log)
    }

    /// Adds a log that is not there.
    pub(super) fn put(&mut self, name: Name, log: StampLog) {
        self.weight += weight(&log);
        self.by_name.insert(name, log);
    }

    /// Removes the logs for which `is_needed` is false, unless there are few more than after the
    /// last search.
    pub(super) fn sweep(&mut self, mut is_needed: impl FnMut(Name, &StampLog) -> bool) {
        if self.weight < self.sweep_at.max(MIN_SWEEP) {
            return;
        }
        self.by_name.retain(|name, log| is_needed(*name, log));
        if 2 * self.by_name.len() < self.by_name.capacity() {
            self.by_name.shrink_to_fit();
        }
        self.weight = self.by_name.values().map(weight).sum();
        self.sweep_at = 2 * self.weight;
    }
}

/// Memory of a log as a number of buckets, with the entry that refers to it.
fn weight(log: &StampLog) -> usize {
    2 + log.room().div_ceil(STAMPS_PER_BUCKET)
}
