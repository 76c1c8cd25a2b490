//! Which lines are worth logging: each change of state, and what goes on failing once a minute.

use std::collections::HashMap;

/// How long one kind of line stays away after it was logged, in ticks.
const QUIET: u64 = 60_000_000;

/// When each kind of line was logged last, in ticks.
#[derive(Debug, Default)]
pub(super) struct Journal {
    last: HashMap<&'static str, u64>,
}

impl Journal {
    /// Whether a line of this kind is to be logged now.
    pub(super) fn wants(&mut self, kind: &'static str, now: u64) -> bool {
        let last = self.last.get(kind).copied();
        let wanted = last.is_none_or(|last| now.saturating_sub(last) >= QUIET);
        if wanted {
            self.last.insert(kind, now);
        }
        wanted
    }

    /// Forgets everything: what happens next is news.
    pub(super) fn turn_the_page(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute() {
        let mut journal = Journal::default();
        assert!(journal.wants("auth", 5));
        assert!(!journal.wants("auth", 5 + QUIET - 1));
        assert!(journal.wants("loading", 6));
        assert!(journal.wants("auth", 5 + QUIET));
        journal.turn_the_page();
        assert!(journal.wants("auth", 6 + QUIET));
    }
}
