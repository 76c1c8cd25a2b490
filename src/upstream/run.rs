//! How long a connection over HTTP/1.1 has been used without a rest.
//!
//! A server that once sends a second response some milliseconds after the first shifts all later
//! ones: each request gets the response to the one before. That shows only while no request is on
//! the connection, which on a busy one is never the case. So a connection rests from time to time
//! for longer than a response takes, and is closed if bytes arrive meanwhile.

use crate::base::duration::MICROS_PER_SECOND;
use crate::base::hash::GOLDEN;

/// Longest use without a rest, in microseconds. Connections that were opened together rest at
/// different times.
const MAX_RUN_US: u64 = 5 * MICROS_PER_SECOND;

/// Shortest rest, in microseconds.
pub(super) const MIN_REST_US: u64 = MICROS_PER_SECOND;

/// The use of a connection since it was opened or has rested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// When it began, in microseconds.
    since: u64,
    /// Longest time that one request has taken, in microseconds.
    longest_us: u64,
}

impl Run {
    /// Begins at `now` (microseconds).
    pub(super) const fn new(now: u64) -> Self {
        Self { since: now, longest_us: 0 }
    }

    /// Adds a request that took this long, in microseconds.
    pub(super) fn add(self, took_us: u64) -> Self {
        Self { longest_us: self.longest_us.max(took_us), ..self }
    }

    /// How long the connection must be silent to count as rested, in microseconds. On a shifted
    /// connection, a request takes at least half as long as the server does.
    pub(super) fn rest_us(self) -> u64 {
        MIN_REST_US.max(self.longest_us.saturating_mul(2))
    }

    /// Whether the connection must rest before its next request at `now` (microseconds).
    pub(super) const fn is_over(self, now: u64) -> bool {
        // Multiplicative hashing: times that are close together become limits that are not.
        let spread = self.since.wrapping_mul(GOLDEN) >> 32;
        let limit = MAX_RUN_US / 2 + spread % (MAX_RUN_US / 2);
        now.saturating_sub(self.since) >= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ends_within_five_seconds_and_not_for_all_at_once() {
        let ends = (0..1_000_u64).map(|number| {
            let run = Run::new(number);
            assert!(!run.is_over(number + MAX_RUN_US / 2 - 1) && run.is_over(number + MAX_RUN_US));
            (0..50).filter(|tenth| !run.is_over(number + tenth * MICROS_PER_SECOND / 10)).count()
        });
        let mut counts = [0; 51];
        ends.for_each(|end| counts[end] += 1);
        assert!(counts.iter().all(|count| *count <= 80), "{counts:?}");
    }

    #[test]
    fn rest_is_longer_than_the_slowest_response() {
        let run = Run::new(7);
        assert_eq!(run.rest_us(), MIN_REST_US);
        let run = run.add(3_000_000).add(5_000);
        assert_eq!(run.rest_us(), 6_000_000);
        assert_eq!(run, Run { since: 7, longest_us: 3_000_000 });
    }
}
