//! How many of the requests of the last time failed. Pure: times are microseconds of the monotonic
//! clock.

/// Number of parts of a window. The oldest part is forgotten as a whole.
const PARTS: usize = 10;

/// Requests within a window that slides in steps of a tenth.
#[derive(Debug, Default)]
pub(super) struct FailureWindow {
    parts: [Part; PARTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Which tenth of a window since time 0 it counts.
    number: u64,
    requests: u32,
    failed: u32,
}

impl FailureWindow {
    /// Counts a request at `now` in a window of this length.
    pub(super) fn add(&mut self, has_failed: bool, window_us: u64, now: u64) {
        let number = number(window_us, now);
        let index = usize::try_from(number % PARTS as u64).unwrap_or_default();
        let Some(part) = self.parts.get_mut(index) else { return };
        if part.number != number {
            *part = Part { number, ..Part::default() };
        }
        part.requests = part.requests.saturating_add(1);
        part.failed = part.failed.saturating_add(u32::from(has_failed));
    }

    /// The requests of the window that ends at `now`, and those of them that failed.
    pub(super) fn sums(&self, window_us: u64, now: u64) -> (u32, u32) {
        let number = number(window_us, now);
        let recent = |part: &&Part| part.number <= number && number - part.number < PARTS as u64;
        self.parts.iter().filter(recent).fold((0, 0), |(requests, failed), part| {
            (requests.saturating_add(part.requests), failed.saturating_add(part.failed))
        })
    }
}

fn number(window_us: u64, now: u64) -> u64 {
    now / (window_us / PARTS as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_forgotten_after_the_window() {
        let mut window = FailureWindow::default();
        for second in 0..30_u64 {
            window.add(second % 3 == 0, 10_000_000, second * 1_000_000);
        }
        assert_eq!(window.sums(10_000_000, 29_900_000), (10, 3));
        assert_eq!(window.sums(10_000_000, 35_000_000), (4, 1));
        assert_eq!(window.sums(10_000_000, 39_000_000), (0, 0));
        assert_eq!(window.sums(10_000_000, u64::MAX), (0, 0));
    }

    #[test]
    fn part_of_an_earlier_window_is_counted_anew() {
        let mut window = FailureWindow::default();
        window.add(true, 1_000_000, 0);
        window.add(false, 1_000_000, 10_000_000);
        assert_eq!(window.sums(1_000_000, 10_000_000), (1, 0));
    }
}
