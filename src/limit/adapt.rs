//! Adaptive rates: the rate of a limit falls while an upstream is unhealthy, and recovers slowly.
//! Pure: times are microseconds of one clock.
//!
//! The share of the configured rate is controlled by AIMD (additive increase, multiplicative
//! decrease). Each period in which too many answers were slow or failed multiplies it by [`CUT`];
//! each other one adds [`STEP`], up to the whole. Only requests that were sent after the last cut
//! count: others met the rate before it.

use std::fmt;
use std::time::Duration;

use crate::base::duration::MICROS_PER_SECOND;

/// The whole rate, in the unit of shares: thousandths.
pub const WHOLE: u16 = 1_000;

/// Time between two decisions, in microseconds.
pub const PERIOD_US: u64 = MICROS_PER_SECOND;

/// What a cut keeps, in tenths.
const CUT: u16 = 7;

/// What is added in a period without too many slow or failed answers, in thousandths.
const STEP: u16 = 20;

/// Number of answers that a decision needs, unless the last one is [`MAX_PERIOD_US`] ago.
const MIN_ANSWERS: u32 = 20;

/// Longest time between two decisions, in microseconds.
const MAX_PERIOD_US: u64 = 5 * MICROS_PER_SECOND;

/// Number of slow or failed answers below which an upstream is healthy: single ones say nothing.
const MIN_BAD: u32 = 3;

/// When the rate of a rule falls: the setting `adapt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdaptRule {
    /// Index of the upstream.
    pub upstream: u32,
    /// 99 of 100 answers must begin within this time, in microseconds; `None`: any time.
    pub p99_us: Option<u64>,
    /// Largest share of failed requests, in thousandths; `None`: any share.
    pub errors: Option<u16>,
    /// Lowest share of the rate, in thousandths, at least 10.
    pub floor: u16,
}

/// How a request to the upstream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The head of a response came after this time, in microseconds.
    After(u64),
    /// It failed after this time, in microseconds: no response in time, or one with a status of 500
    /// to 599.
    Failed(u64),
}

/// The controller of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controller {
    share: u16,
    /// Requests that were sent earlier do not count.
    changed: u64,
    /// Begin of the window.
    since: u64,
    answers: u32,
    slow: u32,
    failed: u32,
}

impl fmt::Display for AdaptRule {
    /// Without the name of the upstream.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |thousandths: u16| f64::from(thousandths) / 10.0;
        if let Some(us) = self.p99_us {
            write!(f, "p99 {:?}, ", Duration::from_micros(us))?;
        }
        if let Some(errors) = self.errors {
            write!(f, "errors {}%, ", share(errors))?;
        }
        write!(f, "floor {}%", share(self.floor))
    }
}

impl Controller {
    /// The whole rate, from `now` on.
    pub const fn new(now: u64) -> Self {
        Self { share: WHOLE, changed: 0, since: now, answers: 0, slow: 0, failed: 0 }
    }

    /// Share of the rate, in thousandths: from the floor of the rule to [`WHOLE`].
    pub const fn share(&self) -> u16 {
        self.share
    }

    /// Counts a request that was sent at `started`.
    pub const fn add(&mut self, rule: &AdaptRule, started: u64, answer: Answer) {
        if started < self.changed {
            return;
        }
        self.answers = self.answers.saturating_add(1);
        let (Answer::After(us) | Answer::Failed(us)) = answer;
        if matches!(answer, Answer::Failed(_)) {
            self.failed = self.failed.saturating_add(1);
        }
        if let Some(p99_us) = rule.p99_us
            && us > p99_us
        {
            self.slow = self.slow.saturating_add(1);
        }
    }

    /// Decides at `now`, about every [`PERIOD_US`]. `in_flight` is the number of requests at the
    /// upstream, those included whose responses have begun: open streams say nothing of its health.
    /// Returns the share from then on.
    pub fn decide(&mut self, rule: &AdaptRule, in_flight: u32, now: u64) -> u16 {
        if self.answers == 0 && in_flight >= MIN_BAD {
            self.since = now;
            return self.share;
        }
        let age = now.saturating_sub(self.since);
        if (1..MIN_ANSWERS).contains(&self.answers) && age < MAX_PERIOD_US {
            return self.share;
        }
        if self.is_unhealthy(rule) {
            let cut = (u32::from(self.share) * u32::from(CUT) / 10).max(rule.floor.into());
            self.share = u16::try_from(cut).unwrap_or(WHOLE);
            self.changed = now;
        } else {
            let periods = u16::try_from((age / PERIOD_US).max(1)).unwrap_or(u16::MAX);
            self.share = self.share.saturating_add(STEP.saturating_mul(periods)).min(WHOLE);
        }
        (self.since, self.answers, self.slow, self.failed) = (now, 0, 0, 0);
        self.share
    }

    fn is_unhealthy(&self, rule: &AdaptRule) -> bool {
        let is_above = |bad: u32, thousandths: u16| {
            bad >= MIN_BAD
                && u64::from(bad) * 1_000 > u64::from(self.answers) * u64::from(thousandths)
        };
        is_above(self.slow, 10) && rule.p99_us.is_some()
            || rule.errors.is_some_and(|errors| is_above(self.failed, errors))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = PERIOD_US;

    const RULE: AdaptRule =
        AdaptRule { upstream: 0, p99_us: Some(500_000), errors: Some(50), floor: 100 };

    /// The shares after each second in which there are these answers.
    fn shares(seconds: &[&[(u32, Answer)]]) -> Vec<u16> {
        let mut controller = Controller::new(0);
        let mut now = 0;
        let mut each = Vec::new();
        for answers in seconds {
            now += SECOND;
            for (count, answer) in *answers {
                (0..*count).for_each(|_| controller.add(&RULE, now - 1, *answer));
            }
            each.push(controller.decide(&RULE, 0, now));
        }
        each
    }

    #[test]
    fn rate_falls_while_answers_are_slow_or_fail_and_recovers_slowly() {
        let (fast, slow) = (Answer::After(500_000), Answer::After(500_001));
        let good: &[(u32, Answer)] = &[(297, fast), (3, slow)];
        let slow: &[(u32, Answer)] = &[(200, fast), (4, slow)];
        let failed: &[(u32, Answer)] = &[(94, fast), (6, Answer::Failed(0))];
        let tolerated: &[(u32, Answer)] = &[(95, fast), (5, Answer::Failed(0))];
        let few: &[(u32, Answer)] = &[(20, fast), (2, Answer::Failed(0))];
        let none: &[(u32, Answer)] = &[];
        assert_eq!(shares(&[good, tolerated, few, none]), [1_000; 4]);
        assert_eq!(shares(&[slow, failed, good, good, none]), [700, 490, 510, 530, 550]);
        let all = shares(&[failed; 9]);
        assert_eq!(all.last(), Some(&100));
        assert!(all.is_sorted_by(|a, b| a >= b), "{all:?}");
    }

    #[test]
    fn requests_that_were_sent_before_a_cut_do_not_count() {
        let mut controller = Controller::new(0);
        let fail = |controller: &mut Controller, started| {
            (0..30).for_each(|_| controller.add(&RULE, started, Answer::Failed(0)));
        };
        fail(&mut controller, 0);
        assert_eq!(controller.decide(&RULE, 0, SECOND), 700);
        fail(&mut controller, SECOND - 1);
        assert_eq!(controller.decide(&RULE, 0, 2 * SECOND), 720);
        fail(&mut controller, SECOND);
        assert_eq!(controller.decide(&RULE, 0, 3 * SECOND), 504);
    }

    #[test]
    fn requests_without_an_answer_keep_the_rate_as_it_is() {
        let mut controller = Controller::new(0);
        (0..30).for_each(|_| controller.add(&RULE, 0, Answer::Failed(0)));
        assert_eq!(controller.decide(&RULE, 30, SECOND), 700);
        for second in 2..60 {
            assert_eq!(controller.decide(&RULE, 3, second * SECOND), 700, "{second}");
        }
        assert_eq!(controller.decide(&RULE, 2, 60 * SECOND), 720);
        (0..30).for_each(|_| controller.add(&RULE, 60 * SECOND, Answer::After(0)));
        assert_eq!(controller.decide(&RULE, 3, 61 * SECOND), 740);
    }

    #[test]
    fn request_that_fails_late_is_slow() {
        let rule = AdaptRule { errors: None, ..RULE };
        for (us, expected) in [(500_000, 1_000), (500_001, 700)] {
            let mut controller = Controller::new(0);
            (0..30).for_each(|_| controller.add(&rule, 0, Answer::Failed(us)));
            assert_eq!(controller.decide(&rule, 0, SECOND), expected, "{us}");
        }
    }

    #[test]
    fn few_answers_are_decided_on_after_five_seconds() {
        let mut controller = Controller::new(0);
        for second in 1..5 {
            controller.add(&RULE, second * SECOND, Answer::Failed(0));
            assert_eq!(controller.decide(&RULE, 0, second * SECOND), 1_000);
        }
        assert_eq!(controller.decide(&RULE, 0, 5 * SECOND), 700);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn share_is_between_the_floor_and_the_whole_and_rises_by_at_most_a_step_a_second(
            steps in prop::collection::vec((0..40_u32, 0..40_u32, 0..9_u32, 0..9 * SECOND), 1..80),
            floor in 10..=WHOLE,
        ) {
            let rule = AdaptRule { floor, ..RULE };
            let (mut controller, mut now) = (Controller::new(0), 0);
            for (good, bad, in_flight, step) in steps {
                let (before, since) = (controller.share(), controller.since);
                now += step;
                (0..good).for_each(|_| controller.add(&rule, now, Answer::After(1)));
                (0..bad).for_each(|_| controller.add(&rule, now, Answer::Failed(0)));
                let share = controller.decide(&rule, in_flight, now);
                prop_assert!((floor..=WHOLE).contains(&share));
                let seconds = ((now - since) / SECOND).max(1);
                prop_assert!(u64::from(share) <= u64::from(before) + u64::from(STEP) * seconds);
            }
        }
    }
}
