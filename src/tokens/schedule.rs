//! When the keys of an issuer are fetched. Pure: the time is a parameter, in microseconds of the
//! monotonic clock.

use crate::base::duration::MICROS_PER_SECOND;

/// Shortest time between the beginnings of two fetches that unknown keys of tokens demand. A client
/// that makes up keys causes no more.
pub(super) const COOLDOWN_US: u64 = 10 * MICROS_PER_SECOND;

/// Time between a failed fetch and the next; doubles with each further failure.
const RETRY_US: u64 = MICROS_PER_SECOND;

/// Longest time between a failed fetch and the next.
const MAX_RETRY_US: u64 = 60 * MICROS_PER_SECOND;

/// The state of the fetches of one issuer's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Schedule {
    /// When the last fetch began; `None`: there was none.
    last_began: Option<u64>,
    /// When the next one is due, whether or not a token demands it.
    due: u64,
    /// Number of failures since the last success.
    failures: u32,
    /// Whether a fetch is under way.
    is_fetching: bool,
}

impl Schedule {
    /// Whether a fetch begins at `now`; then it has begun. `is_wanted`: a token demands it.
    pub(super) fn begin(&mut self, now: u64, is_wanted: bool) -> bool {
        let cool = self.last_began.map_or(0, |began| began.saturating_add(COOLDOWN_US));
        let begins = !self.is_fetching && (self.due <= now || (is_wanted && cool <= now));
        if begins {
            self.is_fetching = true;
            self.last_began = Some(now);
        }
        begins
    }

    /// A fetch has ended at `now`. `jitter` is from 0 to 255, so that gateways do not fetch at
    /// once.
    pub(super) fn end(&mut self, now: u64, is_success: bool, refresh_us: u64, jitter: u8) {
        self.is_fetching = false;
        let pause = if is_success {
            self.failures = 0;
            refresh_us
        } else {
            let doubled = RETRY_US.saturating_mul(1 << self.failures.min(16));
            self.failures = self.failures.saturating_add(1);
            doubled.min(MAX_RETRY_US).min(refresh_us)
        };
        // Up to a tenth less.
        let less = pause / 10 * u64::from(jitter) / 256;
        self.due = now.saturating_add(pause - less);
    }

    /// Ensures that the next fetch is due within `refresh_us` from `now`.
    pub(super) fn fetch_within(&mut self, now: u64, refresh_us: u64) {
        self.due = self.due.min(now.saturating_add(refresh_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = MICROS_PER_SECOND;

    #[test]
    fn keys_are_fetched_at_once_then_after_the_refresh_time() {
        let mut schedule = Schedule::default();
        assert!(schedule.begin(5, false));
        assert!(!schedule.begin(5, true), "one at a time");
        schedule.end(6, true, 600 * S, 0);
        assert!(!schedule.begin(6 + 600 * S - 1, false));
        assert!(schedule.begin(6 + 600 * S, false));
    }

    #[test]
    fn unknown_keys_demand_one_fetch_in_ten_seconds() {
        let mut schedule = Schedule::default();
        let mut count = 0;
        for ms in 0..100_000 {
            if schedule.begin(ms * 1000, true) {
                count += 1;
                schedule.end(ms * 1000, true, 600 * S, 0);
            }
        }
        assert_eq!(count, 10);
    }

    #[test]
    fn shorter_refresh_time_brings_the_next_fetch_forward_and_a_longer_one_does_not_delay_it() {
        let mut schedule = Schedule::default();
        assert!(schedule.begin(0, false));
        schedule.end(0, true, 600 * S, 0);
        schedule.fetch_within(5 * S, 3_600 * S);
        assert_eq!(schedule.due, 600 * S);
        schedule.fetch_within(5 * S, 10 * S);
        assert_eq!(schedule.due, 15 * S);
    }

    #[test]
    fn failures_are_retried_after_longer_and_longer_times() {
        let mut schedule = Schedule::default();
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..9 {
            assert!(schedule.begin(now, false));
            schedule.end(now, false, 600 * S, 0);
            let due = schedule.due;
            assert!(!schedule.begin(due - 1, false));
            pauses.push((due - now) / S);
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(schedule.begin(now, false));
        schedule.end(now, true, 600 * S, 255);
        assert_eq!((schedule.failures, (schedule.due - now) / S), (0, 540));
    }
}
