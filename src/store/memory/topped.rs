//! The top-ups of a shard's fixed windows, beside its table, which has the level of each.

use std::collections::HashMap;

use super::table::Name;
use crate::limit::top_up::{LeftTopUp, TopUps};

/// Top-ups of one bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Topped {
    pub(super) top_ups: TopUps,
    /// The text that was given with each, by its id.
    pub(super) texts: Vec<(u64, String)>,
}

/// Top-ups by the names of their buckets.
#[derive(Debug, Default)]
pub(super) struct AllTopped {
    by_name: HashMap<Name, Topped, foldhash::fast::RandomState>,
}

impl Topped {
    /// Those that can be used in a bucket at `level`.
    pub(super) fn usable(&self, level: i64, unix_us: u64) -> Vec<LeftTopUp> {
        let usable = self.top_ups.left(level).filter(|(one, _)| one.expires_us > unix_us);
        let shown = usable.map(|(one, left)| {
            let text = self.texts.iter().find(|(id, _)| *id == one.id);
            let text = text.map_or_else(String::new, |(_, text)| text.clone());
            LeftTopUp { id: one.id, left, expires_us: one.expires_us, text }
        });
        shown.collect()
    }
}

impl AllTopped {
    /// Those of a bucket; `None` without any.
    #[inline]
    pub(super) fn get(&self, name: Name) -> Option<&Topped> {
        if self.by_name.is_empty() { None } else { self.by_name.get(&name) }
    }

    /// Whether no bucket has any.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Number of buckets that have any.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether a bucket has one that has not expired at `unix_us` (Unix time).
    pub(super) fn is_usable(&self, name: Name, unix_us: u64) -> bool {
        let topped = self.get(name);
        topped.is_some_and(|one| one.top_ups.all().iter().any(|one| one.expires_us > unix_us))
    }

    /// Replaces those of a bucket.
    pub(super) fn put(&mut self, name: Name, mut topped: Topped) {
        if self.by_name.is_empty() && topped.top_ups.is_empty() {
            return;
        }
        topped.texts.retain(|(id, _)| topped.top_ups.all().iter().any(|one| one.id == *id));
        if topped.top_ups.is_empty() {
            self.by_name.remove(&name);
        } else {
            self.by_name.insert(name, topped);
        }
    }
}
