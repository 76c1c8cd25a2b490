//! Debt: tokens that a gateway granted locally and still has to take from the shared bucket.
//!
//! The shared bucket refills while it cannot be reached. Until it is full, the debt is all units
//! that were granted locally. A full bucket stops refilling, while a bucket that had been charged
//! would have continued; from then on the debt shrinks by this gateway's share of the rate. The
//! gateway does not know the shared level, so it assumes that the bucket was empty and waits for
//! the time in which an empty bucket fills.
//!
//! A fixed window does not refill: a debt to it is whole until the end of the period it was made
//! in.
//!
//! A token leaves a sliding window as a whole. A debt to one is counted in spans as long as the
//! window: what was granted in the span before the present one counts until the present one ends.
//! So it has all tokens of the last window, and none that are older than two.

use super::Limit;
use super::returned::Returned;
use super::share::Share;
use crate::base::now::Now;

/// Units that this gateway granted locally and that are not settled yet, of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    units: i64,
    /// Of a sliding window: the part of `units` that was granted before `span_ends` less the
    /// window.
    earlier: i64,
    /// Of a sliding window: time at which `earlier` has left the window, in microseconds.
    span_ends: u64,
    /// Time of `units`, in microseconds.
    at: u64,
    /// Time from which the shared bucket is certainly full, in microseconds: see
    /// [`Limit::empty_full_at`].
    full_at: u64,
    share: Share,
    limit: Limit,
}

impl Debt {
    /// Creates a debt of 0 to a bucket of `limit` that cannot be reached since `now`.
    pub fn none(limit: Limit, share: Share, now: Now) -> Self {
        let full_at = limit.empty_full_at(now);
        Self { units: 0, earlier: 0, span_ends: full_at, at: now.us, full_at, share, limit }
    }

    /// Limit whose units the debt is counted in.
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Whether it has no units at any time.
    pub const fn is_zero(&self) -> bool {
        self.units == 0
    }

    /// Units of the debt at `now`, at least 0. A debt to a bucket without refill is whole until the
    /// bucket's period ends, and 0 from then on.
    pub fn left(&self, now: Now) -> i64 {
        // The wall clock may be corrected, and continues in stand-by.
        let clock = if self.limit.calendar().is_some() { now.unix_us } else { now.us };
        if clock < self.full_at {
            let has_left = self.limit.log().is_some() && now.us >= self.span_ends;
            let units = if has_left { self.units - self.earlier } else { self.units };
            return units.max(0);
        }
        if !self.limit.refills() {
            return 0;
        }
        let since = self.at.max(self.full_at);
        let filled = self.limit.units_in(now.us.saturating_sub(since));
        (self.units - filled / i64::from(self.share.gateways())).max(0)
    }

    /// Units of a quota whose period has ended at `now` before they were settled, and the end of
    /// the period in microseconds of Unix time.
    pub fn lapsed(&self, now: Now) -> Option<(i64, u64)> {
        let is_over = now.unix_us >= self.full_at && self.units > 0;
        (is_over && self.limit.quota_calendar().is_some()).then_some((self.units, self.full_at))
    }

    /// Returns the debt plus `units` granted at `now`.
    #[must_use]
    pub fn more(self, units: i64, now: Now) -> Self {
        let at = now.at(now.us.max(self.at));
        let full_at =
            if self.limit.refills() { self.full_at } else { self.limit.empty_full_at(at) };
        let left = self.left(at);
        let (earlier, span_ends) = if at.us >= self.span_ends {
            // All that was granted before `span_ends` has left by the end of the next span.
            let next = self.limit.empty_full_at(at.at(self.span_ends));
            (left, if at.us < next { next } else { self.limit.empty_full_at(at) })
        } else {
            (self.earlier, self.span_ends)
        };
        Self { units: left.saturating_add(units), earlier, span_ends, at: at.us, full_at, ..self }
    }

    /// Returns the sum of this debt and `other`, a debt to the same bucket that may be counted
    /// under the limit of an earlier configuration.
    #[must_use]
    pub fn joined(self, other: &Self, now: Now) -> Self {
        self.more(other.left_under(&self.limit, now), now)
    }

    /// Returns the debt without tokens that a request was granted and does not use, at `now`. The
    /// debt must have them.
    #[must_use]
    pub fn without(self, returned: &Returned, now: Now) -> Self {
        if self.limit.calendar().is_some() {
            // Also after the end of its period, whose usage still has it.
            let units = returned.left(&self.limit, self.full_at);
            return Self { units: self.units.saturating_sub(units).max(0), ..self };
        }
        let debt = self.more(0, now);
        let units = debt.units.saturating_sub(returned.left(&self.limit, now.us)).max(0);
        Self { units, earlier: debt.earlier.min(units), ..debt }
    }

    /// Units of the debt at `now`, converted to `limit` in proportion to a full bucket; between
    /// fixed windows, the same tokens.
    pub fn left_under(&self, limit: &Limit, now: Now) -> i64 {
        limit.converted_units(self.left(now), &self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::sliding_window::SlidingWindow;

    const fn at(us: u64) -> Now {
        Now::unix(us)
    }

    /// A microsecond adds a unit, a token is 100 units, burst 10.
    fn limit() -> Limit {
        Limit::token_bucket(1, 100, 10).unwrap()
    }

    #[test]
    fn debt_shrinks_only_while_the_shared_bucket_is_full() {
        let debt = Debt::none(limit(), Share::one_of(2), at(0)).more(500, at(100));
        // (now, left)
        let table = [(100, 500), (1_000, 500), (1_002, 499), (2_000, 0), (9_000, 0)];
        for (now, left) in table {
            assert_eq!(debt.left(at(now)), left, "at {now}");
        }
        assert_eq!(debt.more(500, at(1_500)).left(at(1_500)), 750);
        assert_eq!(debt.more(500, at(50)).left(at(100)), 1_000, "a clock that goes back");
    }

    /// The debt has all tokens of the last window, and none that are older than two.
    #[test]
    fn debt_to_a_sliding_window_forgets_what_has_left_it() {
        let window = SlidingWindow::new(50, 100).unwrap();
        let limit = Limit::SlidingWindow(window);
        let mut debt = Debt::none(limit, Share::one_of(3), at(1_000));
        let mut granted: Vec<u64> = Vec::new();
        for step in 0..400 {
            let now = 1_000 + 7 * step;
            let since = |us: u64| granted.iter().filter(|at| *at + us > now).count();
            let left = usize::try_from(debt.left(at(now))).unwrap();
            assert!((since(100)..=since(200)).contains(&left), "{left} at {now}");
            // Nothing is granted for some windows.
            if step % 100 < 60 {
                debt = debt.more(1, at(now));
                granted.push(now);
            }
        }
        let last = granted.last().unwrap();
        assert!(debt.left(at(last + 99)) > 0);
        assert_eq!(debt.left(at(last + 100)), 0);
        let shorter = Limit::SlidingWindow(SlidingWindow::new(5, 10).unwrap());
        assert_eq!(
            debt.more(3, at(*last)).left_under(&shorter, at(*last)),
            debt.left(at(*last)) + 3
        );
    }

    #[test]
    fn debt_to_a_fixed_window_ends_with_its_period_by_the_wall_clock() {
        let calendar = Calendar::new(Period::Hour, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(50, calendar).unwrap());
        let (minute, hour) = (60_000_000, 3_600_000_000);
        let debt = Debt::none(limit, Share::one_of(3), at(minute)).more(5_000, at(minute));
        let left = |us, unix_us| debt.left(Now { us, unix_us });
        assert_eq!([left(hour - 1, hour - 1), left(hour, hour)], [5_000, 0]);
        assert_eq!(left(2 * minute, hour), 0, "set forward, or after stand-by");
        assert_eq!(left(hour, hour - 1), 5_000, "set back");
        assert_eq!(debt.more(1_000, at(hour)).left(at(hour)), 1_000, "the next period");
    }

    #[test]
    fn debts_of_two_limits_are_summed_under_one() {
        let debt = Debt::none(limit(), Share::WHOLE, at(0)).more(500, at(0));
        let coarse = Limit::token_bucket(1, 1_000_000, 10).unwrap();
        let joined =
            Debt::none(coarse, Share::WHOLE, at(0)).more(1_000_000, at(0)).joined(&debt, at(0));
        assert_eq!(joined.left_under(&coarse, at(0)), 6_000_000, "one token plus five");
        assert_eq!(joined.left_under(&limit(), at(0)), 600);
    }

    #[test]
    fn debt_is_converted_to_another_limit_in_proportion() {
        let debt = Debt::none(limit(), Share::WHOLE, at(0)).more(500, at(0));
        assert_eq!(
            debt.left_under(&Limit::token_bucket(1, 200, 5).unwrap(), at(0)),
            500,
            "same full level"
        );
        assert_eq!(
            debt.left_under(&Limit::token_bucket(1, 100, 20).unwrap(), at(0)),
            1_000,
            "twice the burst"
        );
    }
}
