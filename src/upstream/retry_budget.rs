//! The budget of retries of one upstream: how many may add to its load, in proportion to its
//! requests. Without one, an upstream that is overloaded gets a multiple of the load that it fails
//! under.
//!
//! In any span of [`WINDOW_S`] that ends with a retry, there are at most the given percentage of
//! the requests in that span, or [`MIN_RETRIES`] if that is more. The time is a parameter.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;

/// Length of the window, in seconds.
const WINDOW_S: u32 = 10;

/// Number of retries in a window that are always possible: with few requests, a percentage of them
/// would be none.
const MIN_RETRIES: u32 = 10;

/// One count for each second of the window, and one for the part of a second at its beginning.
const CELLS: usize = WINDOW_S as usize + 1;

/// The requests and retries of one upstream in the last seconds.
#[derive(Debug)]
pub struct RetryBudget {
    /// Requests by second: its number in the upper half, the count in the lower. Written by every
    /// request, so without a lock.
    requests: [AtomicU64; CELLS],
    /// Retries by second: its number, and the count.
    retries: Mutex<[(u32, u32); CELLS]>,
}

impl RetryBudget {
    /// Counts a request that is sent for the first time, at `now` (microseconds).
    pub fn note_request(&self, now: u64) {
        let second = second(now);
        let Some(cell) = self.requests.get(index(second)) else { return };
        let one_more = |value: u64| {
            let (of, count) = unpack(value);
            // Another thread may have read a later time.
            let count = if of == second { count.saturating_add(1) } else { 1 };
            (of <= second).then_some(pack(second, count))
        };
        // Fails only for a time that is out of the window.
        let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
    }

    /// Takes a retry at `now` (microseconds) from the budget, which is `percent` of the requests.
    /// Returns whether there was one.
    pub fn take(&self, percent: u16, now: u64) -> bool {
        let mut retries = self.retries.lock();
        let second = second(now);
        // The requests of less than the window, the retries of more.
        let is_within = |of: u32, length: u32| second.saturating_sub(of) < length && of <= second;
        let requests = self.requests.iter().map(|cell| unpack(cell.load(Ordering::Relaxed)));
        let requests: u64 = requests
            .filter(|(of, _)| is_within(*of, WINDOW_S))
            .map(|(_, count)| u64::from(count))
            .sum();
        let taken = retries.iter().filter(|(of, _)| is_within(*of, WINDOW_S + 1) || *of > second);
        let taken: u64 = taken.map(|(_, count)| u64::from(*count)).sum();
        let most = (requests * u64::from(percent) / 100).max(u64::from(MIN_RETRIES));
        if taken >= most {
            return false;
        }
        if let Some((of, count)) = retries.get_mut(index(second)) {
            if *of < second {
                (*of, *count) = (second, 0);
            }
            *count = count.saturating_add(1);
        }
        true
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { requests: from_fn(|_| AtomicU64::new(0)), retries: Mutex::default() }
    }
}

fn second(now: u64) -> u32 {
    u32::try_from(now / MICROS_PER_SECOND).unwrap_or(u32::MAX)
}

fn index(second: u32) -> usize {
    second as usize % CELLS
}

fn pack(second: u32, count: u32) -> u64 {
    u64::from(second) << 32 | u64::from(count)
}

#[allow(clippy::cast_possible_truncation, reason = "the two halves")]
fn unpack(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = MICROS_PER_SECOND;

    fn with_requests(count: u32, now: u64) -> RetryBudget {
        let budget = RetryBudget::default();
        (0..count).for_each(|_| budget.note_request(now));
        budget
    }

    fn taken(budget: &RetryBudget, percent: u16, now: u64) -> usize {
        (0..10_000).take_while(|_| budget.take(percent, now)).count()
    }

    #[test]
    fn retries_are_a_percentage_of_the_requests() {
        assert_eq!(taken(&with_requests(1_000, 0), 20, 0), 200);
        assert_eq!(taken(&with_requests(1_000, 0), 150, 0), 1_500);
    }

    #[test]
    fn few_requests_have_a_few_retries() {
        for requests in [0, 1, 50] {
            assert_eq!(taken(&with_requests(requests, 0), 20, 0), 10, "{requests}");
        }
    }

    #[test]
    fn requests_and_retries_leave_the_window() {
        let budget = with_requests(1_000, 0);
        assert_eq!(taken(&budget, 20, 9 * SECOND), 200);
        (0..500).for_each(|_| budget.note_request(19 * SECOND));
        // The retries are of 9 s.
        assert_eq!(taken(&budget, 20, 19 * SECOND), 0);
        assert_eq!(taken(&budget, 20, 20 * SECOND), 100);
    }

    #[test]
    fn concurrent_retries_never_exceed_the_budget() {
        let budget = with_requests(1_000, 0);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| taken(&budget, 20, SECOND))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 200);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn no_window_that_ends_with_a_retry_has_more_than_the_budget(
            steps in prop::collection::vec((0_u64..1_500_000, 0_u32..40, 0_u32..40), 1..200),
            percent in 1_u16..200,
            begin in 0_u64..100_000_000,
        ) {
            let budget = RetryBudget::default();
            let (mut now, mut requests, mut retries) = (begin, VecDeque::new(), VecDeque::new());
            // Of the window that ends now.
            let within = |times: &mut VecDeque<u64>, now| {
                while times.front().is_some_and(|at| at + u64::from(WINDOW_S) * SECOND <= now) {
                    times.pop_front();
                }
                times.len() as u64
            };
            for (pause, sent, failed) in steps {
                now += pause;
                for _ in 0..sent {
                    budget.note_request(now);
                    requests.push_back(now);
                }
                for _ in 0..failed {
                    if !budget.take(percent, now) {
                        break;
                    }
                    retries.push_back(now);
                    let most = within(&mut requests, now) * u64::from(percent) / 100;
                    prop_assert!(within(&mut retries, now) <= most.max(u64::from(MIN_RETRIES)));
                }
            }
        }
    }
}
