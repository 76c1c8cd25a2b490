//! Leaky bucket: a kind of limit that delays requests instead of refusing them, so that they follow
//! one another at a constant rate.
//!
//! It counts in a [`TokenBucket`](super::token_bucket::TokenBucket): what is missing from a full
//! bucket is the work of the requests that are waiting. A request that finds none passes at once;
//! any other waits until that of the requests before it is done. The capacity bounds the delay.

use super::charge::{Charge, Mode, Outcome};

/// Capacity in tokens of a bucket of `tokens` per `period_us` microseconds that delays requests of
/// one token by at most `max_delay_us`: one token that passes at once, and what the rate yields in
/// that time. Saturates.
pub fn capacity(tokens: u64, period_us: u64, max_delay_us: u64) -> u64 {
    let product = u128::from(tokens) * u128::from(max_delay_us);
    let waiting = product.checked_div(u128::from(period_us)).unwrap_or_default();
    u64::try_from(waiting).unwrap_or(u64::MAX).saturating_add(1)
}

/// Microseconds that an allowed request waits because of a charge of this kind, rounded up. None
/// for a rule in shadow mode.
pub fn delay_us(charge: &Charge, outcome: &Outcome) -> u64 {
    match charge.mode {
        Mode::Enforce => {
            let before = outcome.level_before(charge, true);
            charge.limit.time_to_add_us(charge.limit.full().saturating_sub(before))
        }
        Mode::Shadow => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::duration::MICROS_PER_SECOND as SECOND;
    use crate::base::now::Now;
    use crate::limit::Limit;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::{BucketId, take};
    use crate::limit::share::Share;

    fn charge(limit: Limit, cost: u64) -> Charge {
        Charge { bucket: BucketId(0), rule: 0, limit_index: 0, limit, cost, mode: Mode::Enforce }
    }

    /// The times at which requests pass; `None`: refused.
    fn passes(limit: Limit, requests: &[(u64, u64)], share: Share) -> Vec<Option<u64>> {
        let mut bucket = [Bucket::full(&limit, Now::unix(0))];
        let each = requests.iter().map(|(now, cost)| {
            let charges = [charge(limit, *cost)];
            bucket[0] = bucket[0].refilled(&limit, Now::unix(*now));
            let answer = take(&charges, &mut bucket, share);
            answer.allowed().then(|| now + delay_us(&charges[0], &answer.outcomes[0]))
        });
        each.collect()
    }

    #[test]
    fn capacity_is_one_token_and_what_the_rate_yields_in_the_delay() {
        // (tokens, period, delay) -> capacity
        let table = [
            ((100, SECOND, SECOND / 2), 51),
            ((100, SECOND, 0), 1),
            ((1, 60 * SECOND, SECOND), 1),
            ((3, SECOND, SECOND / 2), 2),
            ((u64::MAX, 1, u64::MAX), u64::MAX),
        ];
        for ((tokens, period_us, max_delay_us), expected) in table {
            assert_eq!(capacity(tokens, period_us, max_delay_us), expected);
        }
    }

    #[test]
    fn requests_at_once_pass_one_after_the_other_and_the_rest_is_refused() {
        let limit = Limit::token_bucket(100, SECOND, capacity(100, SECOND, 30_000)).unwrap();
        let at_once = [(5, 1); 6];
        let expected = [Some(5), Some(10_005), Some(20_005), Some(30_005), None, None];
        assert_eq!(passes(limit, &at_once, Share::WHOLE), expected);
        // One of two gateways without Redis has half of the rate.
        let expected = [Some(5), Some(20_005), None, None, None, None];
        assert_eq!(passes(limit, &at_once, Share::one_of(2)), expected);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        /// A request passes no earlier than what the requests before it need, and not later than
        /// the maximum delay; it is refused only if it would wait for longer.
        #[test]
        fn requests_are_spaced_and_wait_for_at_most_the_maximum(
            tokens in 1..1_000_u64,
            max_delay_us in 0..2_000_000_u64,
            steps in prop::collection::vec((0..50_000_u64, 1..4_u64), 1..200),
        ) {
            let capacity = capacity(tokens, SECOND, max_delay_us);
            let limit = Limit::token_bucket(tokens, SECOND, capacity).unwrap();
            let mut now = 0;
            let requests: Vec<(u64, u64)> = steps
                .into_iter()
                .map(|(later, cost)| {
                    now += later;
                    (now, cost.min(capacity))
                })
                .collect();
            // When all requests so far are done, in units of 1 / tokens microseconds.
            let mut done = 0_u64;
            for ((now, cost), passed) in requests.iter().zip(passes(limit, &requests, Share::WHOLE)) {
                let begins = done.max(now * tokens);
                let work = cost * SECOND;
                match passed {
                    Some(at) => {
                        prop_assert_eq!(at, begins.div_ceil(tokens));
                        prop_assert!(at - now <= max_delay_us);
                        done = begins + work;
                    }
                    None => prop_assert!(begins + work > now * tokens + capacity * SECOND),
                }
            }
        }
    }
}
