//! Bounds the rate of a log line that clients or servers can cause at will.

use parking_lot::Mutex;

use super::duration::MICROS_PER_SECOND;

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
    /// Whether a line was written since the last [`LogInterval::end`].
    is_logged: bool,
}

impl LogInterval {
    /// At most one line in this number of seconds.
    pub(crate) const fn new(interval_s: u64) -> Self {
        let state = Mutex::new(State { last: None, unlogged: 0, is_logged: false });
        Self { interval_us: interval_s * MICROS_PER_SECOND, state }
    }

    /// Counts an event at `now` (microseconds). If a log line is due, returns the number of events
    /// since the last line that were not logged.
    pub(crate) fn count(&self, now: u64) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_sub(last) < self.interval_us) {
            state.unlogged += 1;
            return None;
        }
        (state.last, state.is_logged) = (Some(now), true);
        Some(std::mem::take(&mut state.unlogged))
    }

    /// Whether a log line says that the events continue.
    pub(crate) fn is_logged(&self) -> bool {
        self.state.lock().is_logged
    }

    /// Whether a log line says that the events continue, now that they have ended: that is to be
    /// logged, too.
    pub(crate) fn end(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_logged)
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

    #[test]
    fn end_is_logged_once_after_a_line() {
        let interval = LogInterval::new(60);
        assert!(!interval.end());
        assert_eq!(interval.count(0), Some(0));
        assert!(interval.is_logged() && interval.end());
        assert!(!interval.is_logged() && !interval.end());
        // Events that come and go within the interval have no line, and no end.
        assert_eq!(interval.count(1), None);
        assert!(!interval.end());
    }
}
