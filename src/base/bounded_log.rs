//! Bounds the rate of log lines that clients can cause, for each of several reasons.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::log_interval::LogInterval;

/// Time between two lines of one reason, in seconds.
const INTERVAL_S: u64 = 10;

/// Allows one line for each reason in 10 s. The reasons are a fixed set, so memory is bounded.
#[derive(Debug, Default)]
pub struct BoundedLog(Mutex<BTreeMap<&'static str, LogInterval>>);

impl BoundedLog {
    /// Notes an event at `now`, in microseconds. Returns the number of events since the last line
    /// of this reason, this one included, if a line may be written.
    pub fn note(&self, reason: &'static str, now: u64) -> Option<u64> {
        let mut reasons = self.0.lock();
        let interval = reasons.entry(reason).or_insert_with(|| LogInterval::new(INTERVAL_S));
        interval.count(now).map(|unlogged| unlogged + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = INTERVAL_S * 1_000_000;

    #[test]
    fn first_event_of_each_reason_is_logged_then_one_in_ten_seconds() {
        let log = BoundedLog::default();
        assert_eq!(log.note("a", 5), Some(1));
        assert_eq!(log.note("b", 6), Some(1));
        for now in 7..107 {
            assert_eq!(log.note("a", now), None);
        }
        assert_eq!(log.note("a", 5 + INTERVAL - 1), None);
        assert_eq!(log.note("a", 5 + INTERVAL), Some(102));
        assert_eq!(log.note("a", 6 + INTERVAL), None);
        assert_eq!(log.note("a", 5 + 2 * INTERVAL), Some(2));
    }
}
