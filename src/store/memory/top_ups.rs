//! The top-ups of a shard's fixed windows, beside its table, which has the level of each.

use std::collections::HashMap;

use super::table::Name;
use crate::limit::top_up::{LeftTopUp, MAX_TOP_UPS, TopUp, TopUps};

/// Top-ups by the names of their buckets, and what was added.
#[derive(Debug, Default)]
pub(super) struct AllTopUps {
    by_name: HashMap<Name, TopUps, foldhash::fast::RandomState>,
    /// Each that was added to a bucket and has not expired, by its id: also those that are used up
    /// or revoked.
    added: HashMap<(Name, u64), Added, foldhash::fast::RandomState>,
}

/// A top-up that was added.
#[derive(Clone, Debug)]
struct Added {
    /// Unix time in microseconds.
    expires_us: u64,
    /// The text that was given with it.
    text: String,
}

/// The top-ups of a bucket, as they are handed to another store.
pub(super) struct ExportedTopUps {
    pub(super) name: Name,
    /// Number of its limit.
    pub(super) number: u32,
    /// Level of the bucket, with what is left of its top-ups.
    pub(super) level: i64,
    pub(super) all: Vec<TopUp>,
}

/// A top-up that was added to a bucket, as it is handed to another store.
pub(super) struct ExportedAddition {
    pub(super) name: Name,
    pub(super) id: u64,
    /// Unix time in microseconds.
    pub(super) expires_us: u64,
    pub(super) text: String,
}

impl AllTopUps {
    /// The names of the buckets that have any.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.by_name.keys().copied()
    }

    /// All that were added and have not expired at `unix_us` (Unix time).
    pub(super) fn export_added(&self, unix_us: u64) -> Vec<ExportedAddition> {
        let kept = self.added.iter().filter(|(_, one)| one.expires_us > unix_us);
        let each = kept.map(|(&(name, id), one)| {
            let Added { expires_us, text } = one.clone();
            ExportedAddition { name, id, expires_us, text }
        });
        each.collect()
    }

    /// Adds one that was added in another store.
    pub(super) fn import_added(&mut self, one: ExportedAddition) {
        let ExportedAddition { name, id, expires_us, text } = one;
        self.added.insert((name, id), Added { expires_us, text });
    }

    /// Those of a bucket; `None` without any.
    #[inline]
    pub(super) fn get(&self, name: Name) -> Option<&TopUps> {
        if self.by_name.is_empty() { None } else { self.by_name.get(&name) }
    }

    /// Whether no bucket has any.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether there is room for one more of this bucket, in a shard of at most `bound` buckets.
    pub(super) fn has_room(&mut self, name: Name, bound: usize, unix_us: u64) -> bool {
        let most = bound.max(MAX_TOP_UPS);
        if self.added.len() >= most {
            self.added.retain(|_, one| one.expires_us > unix_us);
        }
        let is_known = self.by_name.contains_key(&name);
        self.added.len() < most && (is_known || self.by_name.len() < (bound / 4).max(1))
    }

    /// Whether a bucket has one that has not expired at `unix_us` (Unix time).
    pub(super) fn is_usable(&self, name: Name, unix_us: u64) -> bool {
        self.get(name).is_some_and(|all| all.all().iter().any(|one| one.expires_us > unix_us))
    }

    /// Replaces those of a bucket.
    pub(super) fn put(&mut self, name: Name, top_ups: TopUps) {
        if !top_ups.is_empty() {
            self.by_name.insert(name, top_ups);
        } else if !self.by_name.is_empty() {
            self.by_name.remove(&name);
        }
    }

    /// Remembers that one was added to a bucket, until it expires.
    pub(super) fn note_added(&mut self, name: Name, one: TopUp, text: String) {
        self.added.insert((name, one.id), Added { expires_us: one.expires_us, text });
    }

    /// Text of the one with this id that was added to a bucket and has not expired at `unix_us`
    /// (Unix time).
    pub(super) fn added(&self, name: Name, id: u64, unix_us: u64) -> Option<&str> {
        let added = self.added.get(&(name, id)).filter(|one| one.expires_us > unix_us);
        added.map(|one| &*one.text)
    }

    /// Those of `top_ups`, which are those of a bucket at `level`, that can be used.
    pub(super) fn usable(
        &self,
        name: Name,
        top_ups: &TopUps,
        level: i64,
        unix_us: u64,
    ) -> Vec<LeftTopUp> {
        let usable = top_ups.left(level).filter(|(one, _)| one.expires_us > unix_us);
        let shown = usable.map(|(one, left)| {
            let text = self.added(name, one.id, unix_us).unwrap_or_default().to_owned();
            LeftTopUp { id: one.id, left, expires_us: one.expires_us, text }
        });
        shown.collect()
    }
}
