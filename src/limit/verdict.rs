//! The decision on a request, and what the response reports about it: the rule, the remaining
//! tokens, retry after and reset.
//!
//! Computed from bucket levels in one place, so that Redis, memory and fallback report the same.

use std::cmp::Reverse;

use super::charge::{Answer, Charge, Mode, Outcome};

/// State of one limit for one client, as reported to the client. Independent of the kind of limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Capacity in tokens: the burst of a bucket.
    pub limit: u64,
    /// Whole tokens that this gateway can grant now; 0 while the bucket is in debt.
    pub remaining: u64,
    /// Microseconds until a request of the same cost is allowed; 0 if it is allowed now.
    pub retry_after_us: u64,
    /// Microseconds until the limit is back at full capacity, or until its period ends.
    pub reset_us: u64,
}

/// The decision on a request, and the rule to report. Indexes refer to the charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No enforced rule applies.
    Unlimited,
    /// Every enforced bucket held the cost.
    Allowed {
        /// The charge whose bucket has the fewest tokens left.
        tightest: usize,
    },
    /// At least one enforced bucket was short.
    Refused {
        /// The charge with the longest retry after: once it allows the request, all do.
        binding: usize,
    },
}

impl Standing {
    /// Standing of a charge's rule after the decision.
    pub fn of(charge: &Charge, outcome: &Outcome) -> Self {
        charge.limit.standing(outcome.level, charge.cost, outcome.share, outcome.times)
    }
}

impl Verdict {
    /// Derives the verdict from a store's answer.
    pub fn of(charges: &[Charge], answer: &Answer) -> Self {
        let enforced = || {
            charges
                .iter()
                .zip(&answer.outcomes)
                .enumerate()
                .filter(|(_, (charge, _))| charge.mode == Mode::Enforce)
                .map(|(index, (charge, outcome))| {
                    (index, outcome.enough, Standing::of(charge, outcome))
                })
        };
        // min_by_key returns the first of equals: ties go to the rule that is first in the file.
        match answer.denied_by() {
            None => enforced()
                .min_by_key(|(_, _, standing)| (standing.remaining, Reverse(standing.reset_us)))
                .map_or(Self::Unlimited, |(tightest, ..)| Self::Allowed { tightest }),
            Some(first) => {
                let longest = enforced()
                    .filter(|(_, enough, _)| !enough)
                    .min_by_key(|(_, _, standing)| Reverse(standing.retry_after_us));
                Self::Refused { binding: longest.map_or(first, |(binding, ..)| binding) }
            }
        }
    }

    /// Index of the charge that the response headers report; `None` if no enforced rule applies.
    pub fn reported_charge(&self) -> Option<usize> {
        match *self {
            Self::Unlimited => None,
            Self::Allowed { tightest: index } | Self::Refused { binding: index } => Some(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::{BucketId, take};
    use crate::limit::reading::Times;
    use crate::limit::share::Share;

    const SECOND: u64 = crate::base::duration::MICROS_PER_SECOND;

    fn charge(tokens_per_second: u64, burst: u64, cost: u64, mode: Mode) -> Charge {
        let limit = Limit::token_bucket(tokens_per_second, SECOND, burst).unwrap();
        Charge { bucket: BucketId(0), rule: 0, limit_index: 0, limit, cost, mode }
    }

    fn verdict(charges: &[Charge], tokens: &[u64]) -> Verdict {
        let mut buckets: Vec<Bucket> = charges
            .iter()
            .zip(tokens)
            .map(|(charge, tokens)| Bucket { level: charge.limit.units(*tokens), at: 0 })
            .collect();
        let answer = take(charges, &mut buckets, Share::WHOLE);
        Verdict::of(charges, &answer)
    }

    #[test]
    fn response_headers_report_the_tightest_or_the_binding_charge() {
        let table = [
            (Verdict::Unlimited, None),
            (Verdict::Allowed { tightest: 2 }, Some(2)),
            (Verdict::Refused { binding: 3 }, Some(3)),
        ];
        for (verdict, charge) in table {
            assert_eq!(verdict.reported_charge(), charge, "{verdict:?}");
        }
    }

    #[test]
    fn standing_rounds_remaining_down_and_waits_up() {
        let limit = Limit::token_bucket(10, SECOND, 50).unwrap();
        // (level, cost) -> (remaining, retry after, reset)
        let table = [
            ((5_000_000, 1), (50, 0, 0)),
            ((4_900_001, 1), (49, 0, 99_999)),
            ((99_999, 1), (0, 1, 4_900_001)),
            ((0, 1), (0, 100_000, 5_000_000)),
            ((0, 5), (0, 500_000, 5_000_000)),
            ((450_000, 5), (4, 50_000, 4_550_000)),
        ];
        for ((level, cost), (remaining, retry_after_us, reset_us)) in table {
            assert_eq!(
                limit.standing(level, cost, Share::WHOLE, Times::NONE),
                Standing { limit: 50, remaining, retry_after_us, reset_us },
                "level {level}, cost {cost}"
            );
        }
    }

    #[test]
    fn binding_rule_has_the_longest_retry_after() {
        let fast = charge(10, 50, 1, Mode::Enforce);
        let slow = charge(1, 50, 1, Mode::Enforce);
        assert_eq!(verdict(&[fast, slow], &[0, 0]), Verdict::Refused { binding: 1 });
        assert_eq!(verdict(&[slow, fast], &[0, 0]), Verdict::Refused { binding: 0 });
        assert_eq!(verdict(&[fast, slow], &[0, 9]), Verdict::Refused { binding: 0 });
        assert_eq!(verdict(&[slow, slow], &[0, 0]), Verdict::Refused { binding: 0 });
    }

    #[test]
    fn tightest_rule_has_the_fewest_tokens_left() {
        let wide = charge(10, 5_000, 1, Mode::Enforce);
        let narrow = charge(10, 50, 1, Mode::Enforce);
        assert_eq!(verdict(&[wide, narrow], &[5_000, 50]), Verdict::Allowed { tightest: 1 });
        assert_eq!(verdict(&[wide, narrow], &[3, 50]), Verdict::Allowed { tightest: 0 });
        assert_eq!(verdict(&[narrow, narrow], &[5, 5]), Verdict::Allowed { tightest: 0 });
    }

    #[test]
    fn shadow_rule_is_never_reported() {
        let shadow = charge(1, 1, 1, Mode::Shadow);
        let enforced = charge(1, 9, 1, Mode::Enforce);
        assert_eq!(verdict(&[shadow], &[0]), Verdict::Unlimited);
        assert_eq!(verdict(&[shadow, enforced], &[0, 9]), Verdict::Allowed { tightest: 1 });
        assert_eq!(verdict(&[shadow, enforced], &[0, 0]), Verdict::Refused { binding: 1 });
        assert_eq!(verdict(&[], &[]), Verdict::Unlimited);
    }

    /// Over all combinations of three outcomes and modes.
    #[test]
    fn denied_answer_is_refused_by_an_enforced_rule_that_was_short() {
        let modes = [Mode::Enforce, Mode::Shadow];
        for case in 0..64_usize {
            let bit = |at: usize| (case >> at) & 1;
            let charges: Vec<Charge> =
                (0..3).map(|index| charge(1, 9, 1, modes[bit(index)])).collect();
            let outcome = |index: usize| Outcome {
                level: 0,
                enough: bit(index + 3) == 1,
                share: Share::WHOLE,
                times: Times::NONE,
            };
            let answer = Answer::of(&charges, (0..3).map(outcome).collect());
            let lacks = |index: usize| charges[index].mode == Mode::Enforce && bit(index + 3) == 0;
            assert_eq!(answer.allowed(), !(0..3).any(lacks), "{case:06b}");
            let verdict = Verdict::of(&charges, &answer);
            match verdict {
                Verdict::Refused { binding } => assert!(lacks(binding), "{case:06b}"),
                _ => assert!(answer.allowed(), "{case:06b}: {verdict:?}"),
            }
        }
    }
}
