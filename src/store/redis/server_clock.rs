//! When a server decided, by the clock of this process. Pure: times are numbers.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

/// Difference of the clocks that is not known yet.
const UNKNOWN: i64 = i64::MIN;

/// The clock of a server, compared with that of this process. Each reply shows bounds of the
/// difference, since the server decided between the call and the reply. The least reply time so far
/// shows it best; a reply that arrives late moves nothing.
#[derive(Debug)]
pub struct ServerClock(AtomicI64);

impl Default for ServerClock {
    fn default() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }
}

impl ServerClock {
    /// The time by the clock of this process at which the server decided, which was `decided_at` by
    /// its own clock. `call` is from when the call was sent to when it was answered; all in
    /// microseconds. The result lies in it.
    ///
    /// Times of decisions are as far apart as by the clock of the server while the difference of
    /// the clocks stays within its bounds. After a step of either clock, the next reply corrects
    /// it.
    pub fn here(&self, decided_at: u64, call: Range<u64>) -> u64 {
        let difference = |here: u64| here.cast_signed().saturating_sub(decided_at.cast_signed());
        let (least, most) = (difference(call.start), difference(call.end.max(call.start)));
        let known = self.0.load(Ordering::Relaxed);
        let corrected = if known == UNKNOWN { most } else { known.clamp(least, most) };
        if corrected != known {
            self.0.store(corrected, Ordering::Relaxed);
        }
        decided_at.saturating_add_signed(corrected)
    }

    /// The time by the clock of the server, in microseconds, when it is `here` by that of this
    /// process; `None` before the first reply. By the difference of the clocks that is known, the
    /// result is too early by at most the least reply time so far.
    pub fn there(&self, here: u64) -> Option<u64> {
        let difference = self.0.load(Ordering::Relaxed);
        let there = (difference != UNKNOWN).then(|| here.cast_signed().checked_sub(difference))?;
        there.and_then(|there| u64::try_from(there).ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By how much the clock of the server is ahead.
    const AHEAD: u64 = 1_795_278_840_000_000;

    #[test]
    fn clock_of_a_server_without_a_reply_is_unknown() {
        assert_eq!(ServerClock::default().there(5), None);
    }

    #[test]
    fn late_reply_moves_nothing() {
        let clock = ServerClock::default();
        // The first decision may be as late as its reply.
        assert_eq!(clock.here(AHEAD + 1_000, 900..1_400), 1_400);
        assert_eq!(clock.here(AHEAD + 2_000, 1_950..2_050), 2_050);
        assert_eq!(clock.here(AHEAD + 3_000, 2_900..90_000), 3_050);
        assert_eq!(clock.here(AHEAD + 4_000, 3_900..4_200), 4_050);
    }

    #[test]
    fn step_of_a_clock_is_corrected_by_the_next_reply() {
        for step in [-7_000_000_i64, -100, 100, 7_000_000] {
            let clock = ServerClock::default();
            clock.here(AHEAD, 50..60);
            let decided_at = AHEAD.saturating_add_signed(step) + 1_000_000;
            let here = clock.here(decided_at, 1_000_000..1_000_090);
            assert!((1_000_000..=1_000_090).contains(&here), "{step}: {here}");
            let later = clock.here(decided_at + 500, 1_000_500..1_000_590);
            assert!((1_000_500..=1_000_590).contains(&later), "{step}: {later}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn decision_is_neither_too_early_nor_after_its_reply(
            steps in prop::collection::vec((1..1_000_u64, 0..300_u64, 0..50_000_u64), 1..60),
        ) {
            let clock = ServerClock::default();
            let (mut now, mut least_reply) = (1_000, u64::MAX);
            // Replies of calls in order, each decided a while after the one before.
            for (later, on_the_way, reply) in steps {
                now += later;
                let (sent_at, answered_at) = (now.saturating_sub(on_the_way), now + reply);
                let here = clock.here(AHEAD + now, sent_at..answered_at);
                prop_assert!((now..=answered_at).contains(&here), "{here} for {now}");
                least_reply = least_reply.min(reply);
                let (there, exactly) = (clock.there(now).unwrap(), AHEAD + now);
                prop_assert!(there <= exactly && there + least_reply >= exactly, "{there}");
            }
        }
    }
}
