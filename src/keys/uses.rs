//! [`Uses`]: which clients have sent requests lately, for the store to note. Pure, and bounded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Shortest time between two notes of one key by one gateway, in microseconds.
const INTERVAL_US: u64 = 300_000_000;

/// Maximum number of clients that wait to be noted. Further ones are noted at a later request.
const MAX_WAITING: usize = 10_000;

/// When a key was last noted, in microseconds of the monotonic clock; 0: never.
#[derive(Debug, Default)]
pub struct LastNoted(AtomicU64);

/// Clients that wait to be noted.
#[derive(Debug, Default)]
pub struct Uses(Mutex<HashSet<Arc<str>>>);

impl Uses {
    /// Notes that a key of the client is used at `now`, unless that was noted lately.
    pub fn note(&self, client: &Arc<str>, last: &LastNoted, now: u64) {
        let before = last.0.load(Ordering::Relaxed);
        if before > 0 && now.saturating_sub(before) < INTERVAL_US {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.len() < MAX_WAITING || waiting.contains(client) {
            waiting.insert(Arc::clone(client));
            last.0.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Removes some of the clients that wait.
    pub fn take(&self, most: usize) -> Vec<Arc<str>> {
        let mut waiting = self.0.lock();
        let some: Vec<Arc<str>> = waiting.iter().take(most).cloned().collect();
        for client in &some {
            waiting.remove(client);
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_noted_once_in_five_minutes() {
        let (uses, last) = (Uses::default(), LastNoted::default());
        let client = Arc::from("acme");
        for (now, expected) in [(0, 1), (1, 0), (INTERVAL_US, 0), (INTERVAL_US + 1, 1)] {
            uses.note(&client, &last, now);
            uses.note(&client, &last, now);
            assert_eq!(uses.take(9).len(), expected, "{now}");
        }
    }

    #[test]
    fn number_of_waiting_clients_is_bounded_and_none_is_forgotten() {
        let uses = Uses::default();
        let clients: Vec<(Arc<str>, LastNoted)> = (0..MAX_WAITING + 5)
            .map(|at| (Arc::from(at.to_string()), LastNoted::default()))
            .collect();
        let note_all = |now| {
            for (client, last) in &clients {
                uses.note(client, last, now);
            }
        };
        note_all(7);
        let first = uses.take(usize::MAX);
        assert_eq!(first.len(), MAX_WAITING);
        note_all(8);
        assert_eq!(uses.take(3).len(), 3);
        assert_eq!(uses.take(9).len(), 2);
    }
}
