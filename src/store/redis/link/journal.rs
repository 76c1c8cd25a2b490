//! Which lines are worth logging: changes of state, and what goes on failing once a minute.

use std::collections::HashMap;

/// How long one kind of line stays away after it was logged, in ticks.
const QUIET: u64 = 60_000_000;

/// What was logged last.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// When each kind of trouble was, in ticks.
    last: HashMap<&'static str, u64>,
    /// Whether the last word on the connection was that it stands.
    said_connected: bool,
}

impl Journal {
    /// Whether trouble of this kind is to be logged now.
    pub(super) fn wants(&mut self, kind: &'static str, now: u64) -> bool {
        let last = self.last.get(kind).copied();
        let wanted = last.is_none_or(|last| now.saturating_sub(last) >= QUIET);
        if wanted {
            self.last.insert(kind, now);
        }
        wanted
    }

    /// The same for trouble that means that there is no connection.
    pub(super) fn wants_down(&mut self, kind: &'static str, now: u64) -> bool {
        let wanted = self.wants(kind, now);
        self.said_connected &= !wanted;
        wanted
    }

    /// Whether a new connection is to be logged: whoever was told that it is gone is told that it
    /// is back.
    pub(super) fn wants_connected(&mut self) -> bool {
        !std::mem::replace(&mut self.said_connected, true)
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
        assert!(journal.wants_connected() && !journal.wants_connected());
        assert!(!journal.wants_down("auth", 6 + QUIET) && !journal.wants_connected());
        journal.turn_the_page();
        assert!(journal.wants_down("auth", 6 + QUIET) && journal.wants_connected());
        journal.turn_the_page();
        assert!(journal.wants("auth", 6 + QUIET));
    }
}
