//! A hint for the operator of an API that has bearer tokens, which are taken for API keys by
//! default.

use std::sync::atomic::{AtomicU64, Ordering};

use tracing::info;

/// Minimum time between two hints, in microseconds.
const INTERVAL_US: u64 = 60_000_000;

const HELP: &str = "if they are tokens of the API itself, remove `bearer` from `clients.api_key`";

/// Counts requests that were refused because their bearer token is no API key, and logs the count
/// at most once a minute.
#[derive(Debug, Default)]
pub(in crate::gateway) struct BearerHint {
    /// Requests since the last hint.
    count: AtomicU64,
    /// Earliest time of the next hint, in microseconds of the monotonic clock.
    next: AtomicU64,
}

impl BearerHint {
    /// Counts a refused request.
    pub(in crate::gateway) fn add(&self, now: u64) {
        if let Some(count) = self.due(now) {
            info!(count, help = HELP, "bearer tokens were refused: they are not API keys");
        }
    }

    /// Counts a refused request. Returns the requests since the last hint if the next one is due.
    fn due(&self, now: u64) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        if now < next {
            return None;
        }
        let later = now.saturating_add(INTERVAL_US);
        // Of several threads, one logs the hint.
        self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(self.count.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_due_at_once_then_once_a_minute_with_the_count() {
        let hint = BearerHint::default();
        assert_eq!(hint.due(5), Some(1));
        for now in [6, 1_000_000, INTERVAL_US + 4] {
            assert_eq!(hint.due(now), None, "{now}");
        }
        assert_eq!(hint.due(INTERVAL_US + 5), Some(4));
        assert_eq!(hint.due(INTERVAL_US + 6), None);
        assert_eq!(hint.due(10 * INTERVAL_US), Some(2));
    }

    #[test]
    fn one_of_several_threads_logs_the_hint() {
        let hint = BearerHint::default();
        let logged: Vec<Option<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| hint.due(1))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(logged.iter().flatten().count(), 1, "{logged:?}");
    }
}
