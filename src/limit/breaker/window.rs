//! Sliding window of call and timeout counts, in slots of a tenth of its length.

/// Number of slots. A count expires with its slot.
const SLOTS: usize = 10;

/// Number of calls and timeouts within a span of time.
#[derive(Clone, Debug)]
pub(super) struct Window {
    slot_us: u64,
    /// (calls, timeouts) of slot n at index n modulo `SLOTS`.
    slots: [(u64, u64); SLOTS],
    /// Number of the newest slot.
    newest: u64,
}

impl Window {
    pub(super) fn new(span_us: u64) -> Self {
        let slot_us = (span_us / SLOTS as u64).max(1);
        Self { slot_us, slots: [(0, 0); SLOTS], newest: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.slots = [(0, 0); SLOTS];
    }

    /// Counts a call. If the clock went back, it counts into the newest slot.
    pub(super) fn count(&mut self, timed_out: bool, now: u64) {
        let number = (now / self.slot_us).max(self.newest);
        for passed in (self.newest + 1..=number).rev().take(SLOTS) {
            self.slots[slot(passed)] = (0, 0);
        }
        self.newest = number;
        let (calls, timeouts) = &mut self.slots[slot(number)];
        *calls += 1;
        *timeouts += u64::from(timed_out);
    }

    /// Number of calls and of timeouts within the span.
    pub(super) fn sums(&self) -> (u64, u64) {
        let add = |(calls, timeouts), slot: &(u64, u64)| (calls + slot.0, timeouts + slot.1);
        self.slots.iter().fold((0, 0), add)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the remainder is below SLOTS")]
fn slot(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_expire_with_their_slot() {
        let mut window = Window::new(1_000);
        window.count(true, 50);
        window.count(false, 950);
        assert_eq!(window.sums(), (2, 1));
        window.count(false, 1_040);
        assert_eq!(window.sums(), (2, 0), "the first slot has expired");
        window.count(true, 1_000);
        assert_eq!(window.sums(), (3, 1), "the clock goes back");
        window.count(false, 1_000_000);
        assert_eq!(window.sums(), (1, 0));
        window.clear();
        assert_eq!(window.sums(), (0, 0));
    }
}
