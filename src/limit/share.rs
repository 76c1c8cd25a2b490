//! Local share: how much of a limit one gateway grants while it cannot reach the shared store.
//!
//! Each of n gateways has its own copy of the bucket, and takes n times the cost for each request.
//! So each grants 1/n of burst and rate, in whole units and without a remainder.

use super::Limit;

/// Fraction of a limit that one gateway may grant: 1/n for n gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    gateways: u32,
}

impl Share {
    /// The whole limit, for a store that sees every charge of the bucket.
    pub const WHOLE: Self = Self { gateways: 1 };

    /// The share of one of `gateways`; 0 counts as 1.
    pub const fn one_of(gateways: u32) -> Self {
        Self { gateways: if gateways == 0 { 1 } else { gateways } }
    }

    /// Number of gateways that the limit is divided by, at least 1.
    pub const fn gateways(self) -> u32 {
        self.gateways
    }

    /// Units that a bucket must hold to allow a request of `cost` parts of a token. At most a full
    /// bucket for a cost within the burst, so that a small limit divided by many gateways still
    /// allows requests.
    pub const fn needed(self, limit: &Limit, cost: u64) -> i64 {
        let (all, one) = (self.taken(limit, cost), limit.units(cost));
        let most = if one > limit.full() { one } else { limit.full() };
        if all < most { all } else { most }
    }

    /// Units that an allowed request of `cost` parts of a token takes. If they exceed the level,
    /// the bucket goes into debt, so that a gateway never exceeds its share of the rate.
    pub const fn taken(self, limit: &Limit, cost: u64) -> i64 {
        limit.units(cost).saturating_mul(self.gateways as i64)
    }

    /// Number of requests with a cost of one token that are allowed at `level`.
    pub const fn tokens(self, limit: &Limit, level: i64) -> u64 {
        // At most a full bucket: a burst is at least one token.
        let (all, full) = (limit.token_units(1).saturating_mul(self.gateways as i64), limit.full());
        if level < if all < full { all } else { full } {
            return 0;
        }
        let tokens = (level / all).unsigned_abs();
        if tokens == 0 { 1 } else { tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::now::Now;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::{BucketId, Charge, Mode, take};

    /// Rate 10 tokens per second; a token is 100,000 units.
    fn limit(burst: u64) -> Limit {
        Limit::token_bucket(10, 1_000_000, burst).unwrap()
    }

    /// Number of requests that one of `gateways` allows at once and in the following `seconds`.
    fn passed(gateways: u32, burst: u64, cost: u64, seconds: u64) -> u64 {
        let (limit, share) = (limit(burst), Share::one_of(gateways));
        let mode = Mode::Enforce;
        let charge = Charge { bucket: BucketId(0), rule: 0, limit_index: 0, limit, cost, mode };
        let mut bucket = [Bucket::full(&limit, Now::unix(0))];
        let mut passed = 0;
        for now in (0..=seconds * 1_000_000).step_by(10_000) {
            bucket[0] = bucket[0].refilled(&limit, Now::unix(now));
            while take(&[charge], &mut bucket, share).allowed() {
                passed += 1;
            }
        }
        passed
    }

    #[test]
    fn each_gateway_grants_its_share_of_burst_and_rate() {
        // (gateways, burst, cost, seconds) -> passed
        let table = [
            ((1, 50, 1, 0), 50),
            ((3, 50, 1, 0), 16),
            ((3, 50, 5, 0), 3),
            ((3, 50, 1, 3), 26),
            ((5, 50, 1, 10), 30),
            // At least one request of any cost; then no more than its share of the rate.
            ((20, 5, 1, 0), 1),
            ((20, 5, 5, 0), 1),
            ((20, 5, 1, 1), 1),
            ((20, 5, 1, 2), 2),
            ((20, 5, 1, 10), 6),
            ((10_000, 1, 1, 0), 1),
        ];
        for ((gateways, burst, cost, seconds), expected) in table {
            let passed = passed(gateways, burst, cost, seconds);
            assert_eq!(passed, expected, "{gateways}, {burst}, {cost}, {seconds} s");
        }
    }

    #[test]
    fn share_is_the_same_in_parts_of_a_token() {
        for (gateways, burst, level) in [(1, 50, 7), (3, 50, 7), (20, 5, 5), (20, 5, 4), (9, 1, 1)]
        {
            let share = Share::one_of(gateways);
            let whole = limit(burst);
            let parts = whole.with_parts(8).unwrap();
            let levels = [whole.token_units(level), parts.token_units(level)];
            assert_eq!(share.tokens(&whole, levels[0]), share.tokens(&parts, levels[1]));
            for cost in 1..=burst {
                let enough = levels[0] >= share.needed(&whole, cost);
                assert_eq!(
                    levels[1] >= share.needed(&parts, 8 * cost),
                    enough,
                    "{gateways} {cost}"
                );
            }
            // An eighth of a token takes an eighth from each gateway's copy.
            let taken =
                [share.taken(&whole, 1), share.taken(&parts, 8), 8 * share.taken(&parts, 1)];
            assert_eq!((taken[1], taken[2]), (taken[2], taken[0] * parts.full() / whole.full()));
        }
    }

    #[test]
    fn remaining_tokens_are_the_requests_allowed() {
        let limit = limit(50);
        let of = |gateways| Share::one_of(gateways);
        assert_eq!(of(3).tokens(&limit, limit.full()), 16);
        assert_eq!(of(3).tokens(&limit, 299_999), 0);
        assert_eq!(of(100).tokens(&limit, limit.full()), 1);
        assert_eq!(of(100).tokens(&limit, limit.full() - 1), 0);
        assert_eq!(of(1).tokens(&limit, -1), 0);
    }

    #[test]
    fn cost_above_the_burst_is_never_allowed() {
        let limit = limit(5);
        for gateways in [1, 3, 100] {
            assert!(Share::one_of(gateways).needed(&limit, 6) > limit.full());
        }
    }
}
