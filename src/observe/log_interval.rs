//! Bounds the rate of a log line that clients or servers can cause at will.

use parking_lot::Mutex;

use crate::limit::MICROS_PER_SECOND;

/// Lets one event in each interval be logged, and counts the others.
#[derive(Debug)]
pub(crate) struct LogInterval {
    interval_us: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last line was written, in microseconds.
    last: Option<u64>,
    unlogged: u64,
}

impl LogInterval {
    /// At most one line in this number of seconds.
    pub(crate) const fn new(interval_s: u64) -> Self {
        let state = Mutex::new(State { last: None, unlogged: 0 });
        Self { interval_us: interval_s * MICROS_PER_SECOND, state }
    }

    /// Counts an event at `now` (microseconds). If a log line is due, returns the number of events since the
    /// last line that were not logged.
    pub(crate) fn count(&self, now: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_sub(last) < self.interval_us) {
            state.unlogged += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_interval_has_the_number_not_logged() {
        let interval = LogInterval::new(60);
        let end = 60 * MICROS_PER_SECOND;
        let times = [0, 1, end - 1, end, end + 1, 2 * end];
        let lines = times.map(|now| interval.count(now));
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
