//! Bans: a client that goes on after refusals is refused for longer. Pure: the time is a parameter.
//!
//! Refusals are counted in tenths of [`BanRule::within_us`]. A ban begins with the refusal that
//! makes the last ten tenths, the current one included, have as many as [`BanRule::after`]. So
//! `after` refusals within nine tenths of `within` always begin one, and fewer than `after` within
//! `within` never do. `lua/bans.lua` has the same arithmetic.

use std::fmt;
use std::time::Duration;

use crate::base::duration::MICROS_PER_SECOND;

/// Number of parts of the time in which refusals are counted.
pub const TENTHS: usize = 10;

/// Largest number of refusals before a ban.
pub const MAX_AFTER: u32 = 100_000;

/// Largest factor by which a further ban is longer.
pub const MAX_GROW: u32 = 100;

/// When clients are banned, and for how long: the setting `ban` of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BanRule {
    /// Number of refusals after which a ban begins, at least 1.
    pub after: u32,
    /// Time in which they are counted, in microseconds; at least [`TENTHS`].
    pub within_us: u64,
    /// Length of a first ban, in microseconds.
    pub for_us: u64,
    /// Factor by which each further ban is longer than the one before, at least 1.
    pub grow: u32,
    /// Length of the longest ban, in microseconds, and the time without a ban after which the next
    /// one is a first one again.
    pub max_us: u64,
}

/// What is known of a client under a rule: its last refusals, and its last ban. Times are in
/// microseconds by any one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BanState {
    /// Number of the tenth that the last of `counts` is about.
    tenth: u64,
    /// Refusals by tenth, the oldest first.
    counts: [u32; TENTHS],
    /// Number of bans in a row, with the last one; 0: there was none.
    pub bans: u32,
    /// End of the last ban.
    pub ends_at: u64,
}

impl BanRule {
    /// Length of a tenth of [`within_us`](Self::within_us), in microseconds.
    pub const fn tenth_us(&self) -> u64 {
        let tenth = self.within_us / TENTHS as u64;
        if tenth == 0 { 1 } else { tenth }
    }

    /// Length of the ban with this number in a row, from 1, in microseconds.
    pub fn length_us(&self, number: u32) -> u64 {
        let mut length = self.for_us.min(self.max_us);
        for _ in 1..number {
            if length >= self.max_us || self.grow <= 1 {
                break;
            }
            length = length.saturating_mul(self.grow.into()).min(self.max_us);
        }
        length
    }
}

impl fmt::Display for BanRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, within_us, for_us, grow, max_us } = *self;
        write!(f, "after {after} refusals within {}, for {}", span(within_us), span(for_us))?;
        if grow > 1 {
            write!(f, ", each further one {grow} times longer, at most {}", span(max_us))?;
        }
        Ok(())
    }
}

/// A duration as files have it: `10m`.
fn span(us: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let whole = units.into_iter().map(|(seconds, unit)| (seconds * MICROS_PER_SECOND, unit));
    let found = whole.into_iter().find(|(unit_us, _)| us > 0 && us.is_multiple_of(*unit_us));
    match found {
        Some((unit_us, unit)) => format!("{}{unit}", us / unit_us),
        None => format!("{:?}", Duration::from_micros(us)),
    }
}

impl BanState {
    /// Microseconds that are left of a ban at `now`; `None` without one.
    pub fn left_us(&self, now: u64) -> Option<u64> {
        self.ends_at.checked_sub(now).filter(|left| *left > 0)
    }

    /// Counts refusals at `now`. Refusals during a ban do not count. Returns whether there are now
    /// as many as a ban needs.
    pub fn count(&mut self, rule: &BanRule, refusals: u32, now: u64) -> bool {
        if self.left_us(now).is_some() {
            return false;
        }
        let tenth = now / rule.tenth_us();
        // A clock that went back by more than a tenth says nothing about the age of the counts.
        let passed = tenth.saturating_sub(self.tenth);
        let passed = usize::try_from(passed).unwrap_or(TENTHS).min(TENTHS);
        self.counts.rotate_left(passed % TENTHS);
        let kept = TENTHS - passed;
        self.counts[kept..].fill(0);
        self.tenth = tenth;
        let last = &mut self.counts[TENTHS - 1];
        *last = last.saturating_add(refusals).min(rule.after);
        self.counts.iter().map(|count| u64::from(*count)).sum::<u64>() >= u64::from(rule.after)
    }

    /// Begins the next ban at `now`. Returns its length in microseconds.
    pub fn begin(&mut self, rule: &BanRule, now: u64) -> u64 {
        let is_further = self.bans > 0 && now.saturating_sub(self.ends_at) <= rule.max_us;
        self.bans = if is_further { self.bans.saturating_add(1) } else { 1 };
        let length = rule.length_us(self.bans);
        self.ends_at = now.saturating_add(length);
        self.counts = [0; TENTHS];
        length
    }

    /// Ends the ban, and forgets all refusals and bans.
    pub fn lift(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing of it counts any more at `now`.
    pub fn is_over(&self, rule: &BanRule, now: u64) -> bool {
        let tenth = now / rule.tenth_us();
        let has_counts = tenth.saturating_sub(self.tenth) < TENTHS as u64
            && self.counts.iter().any(|count| *count > 0);
        let has_ban = self.bans > 0 && now.saturating_sub(self.ends_at) <= rule.max_us;
        !has_counts && !has_ban
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = MICROS_PER_SECOND;

    const RULE: BanRule = BanRule {
        after: 5,
        within_us: 10 * SECOND,
        for_us: 60 * SECOND,
        grow: 3,
        max_us: 1_000 * SECOND,
    };

    #[test]
    fn ban_begins_with_the_last_of_its_refusals_within_the_time() {
        // (times of refusals in tenths of a second, the number of the one that begins a ban)
        let table: [(&[u64], Option<usize>); 5] = [
            (&[0, 0, 0, 0, 0], Some(4)),
            (&[0, 20, 40, 60, 80], Some(4)),
            (&[0, 20, 40, 60, 99], Some(4)),
            (&[0, 20, 40, 60, 100], None),
            (&[9, 30, 50, 70, 90, 105], Some(4)),
        ];
        for (times, expected) in table {
            let mut state = BanState::default();
            let found = times
                .iter()
                .position(|time| state.count(&RULE, 1, 1_000 * SECOND + time * 100_000));
            assert_eq!(found, expected, "{times:?}");
        }
    }

    #[test]
    fn further_bans_are_longer_up_to_the_longest_and_begin_anew_after_a_pause() {
        let mut state = BanState::default();
        let mut now = 0;
        let mut lengths = Vec::new();
        for _ in 0..5 {
            lengths.push(state.begin(&RULE, now) / SECOND);
            now = state.ends_at + RULE.max_us;
        }
        assert_eq!(lengths, [60, 180, 540, 1_000, 1_000]);
        assert_eq!(state.begin(&RULE, now + 1), 60 * SECOND);
        let steady = BanRule { grow: 1, ..RULE };
        assert_eq!(steady.length_us(1_000_000_000), 60 * SECOND);
    }

    #[test]
    fn settings_are_shown_as_files_have_them() {
        assert_eq!(
            RULE.to_string(),
            "after 5 refusals within 10s, for 1m, each further one 3 times longer, at most 1000s"
        );
        let day = BanRule { grow: 1, for_us: 86_400 * SECOND, within_us: 1_500_000, ..RULE };
        assert_eq!(day.to_string(), "after 5 refusals within 1.5s, for 1d");
    }

    #[test]
    fn refusals_during_a_ban_do_not_count() {
        let mut state = BanState::default();
        state.begin(&RULE, 0);
        assert!(!state.count(&RULE, 100, 60 * SECOND - 1));
        assert_eq!(state.left_us(60 * SECOND - 1), Some(1));
        assert_eq!(state.left_us(60 * SECOND), None);
        assert!(!state.count(&RULE, 4, 60 * SECOND));
        assert!(state.count(&RULE, 1, 60 * SECOND));
        state.lift();
        assert!(state.is_over(&RULE, 60 * SECOND));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// By the exact times of all refusals.
        #[test]
        fn ban_needs_its_refusals_within_the_time_and_begins_within_nine_tenths_of_it(
            steps in prop::collection::vec((0..4 * SECOND, 1..3_u32), 1..60),
        ) {
            let (mut state, mut now, mut all) = (BanState::default(), 0, Vec::new());
            for (step, refusals) in steps {
                now += step;
                all.extend((0..refusals).map(|_| now));
                let within = |us: u64| all.iter().filter(|at| now - **at < us).count() as u64;
                let begins = state.count(&RULE, refusals, now);
                if begins {
                    prop_assert!(within(RULE.within_us) >= RULE.after.into());
                    state.begin(&RULE, now);
                    all.clear();
                    now = state.ends_at;
                } else {
                    prop_assert!(within(RULE.within_us - RULE.tenth_us()) < RULE.after.into());
                }
            }
        }

        #[test]
        fn no_ban_is_longer_than_the_longest_or_shorter_than_the_first(
            number in 1..100_u32, grow in 1..=MAX_GROW, first in 1..1_000_u64, longest in 1..10_000_u64,
        ) {
            let longest = longest.max(first);
            let rule = BanRule { grow, for_us: first, max_us: longest, ..RULE };
            let length = rule.length_us(number);
            prop_assert!((first..=longest).contains(&length));
            prop_assert!(rule.length_us(number + 1) >= length);
        }
    }
}
