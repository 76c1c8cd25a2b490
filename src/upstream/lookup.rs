//! When the name of a server is looked up, and how that went. Pure: times are microseconds of the
//! monotonic clock.

use std::time::Duration;

use crate::base::duration::{MICROS_PER_SECOND, micros};
use crate::net::lookup::LookupError;
pub use crate::policy::health::LookupState;

/// Shortest time from the end of a look-up to the next one, however short the time to live is.
const MIN_TTL_US: u64 = MICROS_PER_SECOND;

/// Longest such time, before it is spread.
const MAX_TTL_US: u64 = 300 * MICROS_PER_SECOND;

/// The time if the answer has no time to live.
const DEFAULT_TTL_US: u64 = 10 * MICROS_PER_SECOND;

/// Time after the first failure. It doubles with each further one.
const MIN_RETRY_US: u64 = MICROS_PER_SECOND;

/// Longest time after a failure, before it is spread.
const MAX_RETRY_US: u64 = 10 * MICROS_PER_SECOND;

/// The look-ups of the name of a server.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// When the next one begins; `u64::MAX` while one runs.
    due: u64,
    /// When the last one ended that found addresses, or that there are none; 0: none has.
    answered: u64,
    trouble: Option<Trouble>,
}

/// Look-ups fail.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    error: LookupError,
    /// When the first of them ended.
    since: u64,
    /// How many in a row.
    count: u32,
}

/// The look-ups of a name as operators see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupView {
    pub state: LookupState,
    /// Why the last one failed; empty if it did not.
    pub reason: String,
    /// When the first one ended that failed; 0: the last one did not.
    pub since: u64,
    /// When the last one ended that did not fail; 0: none has.
    pub answered: u64,
    /// When the next one begins; `u64::MAX` while one runs.
    pub next: u64,
}

impl Lookup {
    /// Whether none has ended.
    pub(super) fn is_pending(&self) -> bool {
        self.answered == 0 && self.trouble.is_none()
    }

    /// When the next one begins; `u64::MAX` while one runs.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// Begins one, unless one runs. [`ended`](Self::ended) or [`cancelled`](Self::cancelled)
    /// follows.
    pub(super) fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.due, u64::MAX) != u64::MAX
    }

    /// One was given up at `now` before it ended.
    pub(super) fn cancelled(&mut self, now: u64) {
        if self.due == u64::MAX {
            self.due = now;
        }
    }

    /// One ended at `now`. `error`: why all or a part of it failed. The next one begins up to 10 %
    /// later than it could, by `random`, so that gateways and names do not ask at the same time.
    /// Returns whether the state has changed.
    pub(super) fn ended(
        &mut self,
        ttl: Option<Duration>,
        error: Option<LookupError>,
        now: u64,
        random: u64,
    ) -> bool {
        let before = self.state();
        let pause_us = match error {
            None => {
                self.trouble = None;
                self.answered = now;
                ttl.map_or(DEFAULT_TTL_US, |ttl| micros(ttl).clamp(MIN_TTL_US, MAX_TTL_US))
            }
            Some(error) => {
                let (since, count) =
                    self.trouble.as_ref().map_or((now, 0), |before| (before.since, before.count));
                self.trouble = Some(Trouble { error, since, count: count.saturating_add(1) });
                MIN_RETRY_US.saturating_mul(1 << count.min(10)).min(MAX_RETRY_US)
            }
        };
        let spread_us = random.checked_rem(pause_us / 10).unwrap_or(0);
        self.due = now.saturating_add(pause_us + spread_us);
        before != self.state()
    }

    /// Since when the name does not exist, or has no addresses, and which of them; `None`: it has,
    /// or that is not known.
    pub(super) fn absent(&self) -> Option<(u64, &str)> {
        match &self.trouble {
            Some(Trouble { error: LookupError::Absent(why), since, .. }) => Some((*since, why)),
            _ => None,
        }
    }

    pub(super) fn state(&self) -> LookupState {
        match &self.trouble {
            None if self.is_pending() => LookupState::Pending,
            None => LookupState::Ok,
            Some(Trouble { error: LookupError::Absent(_), .. }) => LookupState::Absent,
            Some(Trouble { error: LookupError::Failed(_), .. }) => LookupState::Failed,
        }
    }

    pub(super) fn show(&self) -> LookupView {
        let (reason, since) = self.trouble.as_ref().map_or(("", 0), |trouble| {
            let (LookupError::Absent(why) | LookupError::Failed(why)) = &trouble.error;
            (why.as_str(), trouble.since)
        });
        LookupView {
            state: self.state(),
            reason: reason.to_owned(),
            since,
            answered: self.answered,
            next: self.due,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = MICROS_PER_SECOND;

    fn failed() -> LookupError {
        LookupError::Failed("none".to_owned())
    }

    #[test]
    fn next_look_up_follows_the_time_to_live_within_bounds() {
        for (ttl_s, pause_s) in
            [(None, 10), (Some(0), 1), (Some(1), 1), (Some(60), 60), (Some(86_400), 300)]
        {
            let mut lookup = Lookup::default();
            assert!(lookup.begin() && !lookup.begin());
            lookup.ended(ttl_s.map(Duration::from_secs), None, 7, 0);
            assert_eq!(lookup.due(), 7 + pause_s * SECOND, "{ttl_s:?}");
        }
    }

    #[test]
    fn failures_are_retried_after_a_time_that_doubles_and_reported_since_the_first() {
        let mut lookup = Lookup::default();
        for (now, pause_s) in [(10, 1), (20, 2), (30, 4), (40, 8), (50, 10), (60, 10)] {
            let changes = lookup.ended(None, Some(failed()), now, 0);
            assert_eq!((lookup.due() - now, changes), (pause_s * SECOND, now == 10));
            assert_eq!((lookup.show().since, lookup.show().state), (10, LookupState::Failed));
        }
        let absent = Some(LookupError::Absent("NXDOMAIN".to_owned()));
        assert!(lookup.ended(None, absent, 70, 0));
        assert_eq!(lookup.absent(), Some((10, "NXDOMAIN")));
        assert!(lookup.ended(Some(Duration::from_secs(5)), None, 80, 0));
        assert_eq!((lookup.absent(), lookup.show().answered), (None, 80));
        lookup.ended(None, Some(failed()), 90, 0);
        assert_eq!((lookup.due(), lookup.show().since), (90 + SECOND, 90));
    }

    #[test]
    fn look_up_that_was_given_up_is_due_at_once() {
        let mut lookup = Lookup::default();
        lookup.begin();
        lookup.cancelled(5);
        assert_eq!(lookup.due(), 5);
        lookup.ended(None, None, 6, 0);
        lookup.cancelled(7);
        assert_eq!(lookup.due(), 6 + DEFAULT_TTL_US);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn next_look_up_is_never_before_the_time_to_live_and_at_most_a_tenth_after_it(
            ttl_s in 0_u64..400, random: u64,
        ) {
            let mut lookup = Lookup::default();
            lookup.ended(Some(Duration::from_secs(ttl_s)), None, 0, random);
            let bounded = ttl_s.clamp(1, 300) * SECOND;
            prop_assert!((bounded..bounded + bounded / 10).contains(&lookup.due()));
        }
    }
}
