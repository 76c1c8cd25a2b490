//! Which events are logged: changes of state, and repeated failures once a minute.

use std::collections::{HashMap, HashSet};

/// Minimum time between two log lines of one kind, in microseconds.
const LOG_INTERVAL_US: u64 = 60_000_000;

/// Limits how often lines of one kind are logged.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct LogThrottle {
    /// Time of the last line of each kind, in microseconds.
    last: HashMap<&'static str, u64>,
    /// Kinds of failures that were logged, and whose end was not.
    failing: HashSet<&'static str>,
    /// Whether the last line about the connection was that it is connected.
    logged_connected: bool,
}

impl LogThrottle {
    /// Whether a failure of this kind is logged now.
    pub(in crate::store::redis) fn wants(&mut self, kind: &'static str, now: u64) -> bool {
        let last = self.last.get(kind).copied();
        let wanted = last.is_none_or(|last| now.saturating_sub(last) >= LOG_INTERVAL_US);
        if wanted {
            self.last.insert(kind, now);
            self.failing.insert(kind);
        }
        wanted
    }

    /// Whether the end of failures of this kind is logged now: only if a failure was.
    pub(in crate::store::redis) fn wants_end(&mut self, kind: &'static str) -> bool {
        self.failing.remove(kind)
    }

    /// Same, for a failure that means that there is no connection.
    pub(super) fn wants_down(&mut self, kind: &'static str, now: u64) -> bool {
        let wanted = self.wants(kind, now);
        self.logged_connected &= !wanted;
        wanted
    }

    /// Whether a new connection is logged: only if its loss was.
    pub(super) fn wants_connected(&mut self) -> bool {
        !std::mem::replace(&mut self.logged_connected, true)
    }

    /// Resets the intervals: the next failures are logged.
    pub(super) fn reset(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failure_is_logged_once_a_minute() {
        let mut journal = LogThrottle::default();
        assert!(journal.wants("auth", 5));
        assert!(!journal.wants("auth", 5 + LOG_INTERVAL_US - 1));
        assert!(journal.wants("loading", 6));
        assert!(journal.wants("auth", 5 + LOG_INTERVAL_US));
        assert!(journal.wants_connected() && !journal.wants_connected());
        assert!(!journal.wants_down("auth", 6 + LOG_INTERVAL_US) && !journal.wants_connected());
        assert!(journal.wants_end("auth") && !journal.wants_end("auth"));
        assert!(!journal.wants_end("other"));
        journal.reset();
        assert!(journal.wants_down("auth", 6 + LOG_INTERVAL_US) && journal.wants_connected());
        journal.reset();
        assert!(journal.wants("auth", 6 + LOG_INTERVAL_US));
    }
}
