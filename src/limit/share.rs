//! Local share: how much of a limit one gateway grants while it cannot reach the shared store.
//!
//! Each of n gateways has its own copy of the bucket, and takes n times the cost for each request. So
//! each grants 1/n of burst and rate, in whole units and without a remainder.

use super::quota::Quota;

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

    /// Units that a bucket must hold to allow a request of `cost` tokens. At most a full bucket for a
    /// cost within the burst, so that a small limit divided by many gateways still allows requests.
    pub const fn needed(self, quota: &Quota, cost: u64) -> i64 {
        let (all, one) = (self.taken(quota, cost), quota.units(cost));
        let most = if one > quota.full() { one } else { quota.full() };
        if all < most { all } else { most }
    }

    /// Units that an allowed request of `cost` tokens takes. If they exceed the level, the bucket goes
    /// into debt, so that a gateway never exceeds its share of the rate.
    pub const fn taken(self, quota: &Quota, cost: u64) -> i64 {
        quota.units(cost).saturating_mul(self.gateways as i64)
    }

    /// Number of requests of one token that are allowed at `level`.
    pub const fn tokens(self, quota: &Quota, level: i64) -> u64 {
        if level < self.needed(quota, 1) {
            return 0;
        }
        let tokens = (level / self.taken(quota, 1)).unsigned_abs();
        if tokens == 0 { 1 } else { tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::{BucketId, Charge, Mode, take};

    /// Rate 10 tokens per second; a token is 100,000 units.
    fn quota(burst: u64) -> Quota {
        Quota::new(10, 1_000_000, burst).unwrap()
    }

    /// Number of requests that one of `gateways` allows at once and in the following `seconds`.
    fn passed(gateways: u32, burst: u64, cost: u64, seconds: u64) -> u64 {
        let (quota, share) = (quota(burst), Share::one_of(gateways));
        let mode = Mode::Enforce;
        let charge = Charge { bucket: BucketId(0), rule: 0, quota_index: 0, quota, cost, mode };
        let mut bucket = [Bucket::full(&quota, 0)];
        let mut passed = 0;
        for now in (0..=seconds * 1_000_000).step_by(10_000) {
            bucket[0] = bucket[0].refilled(&quota, now);
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
    fn remaining_tokens_are_the_requests_allowed() {
        let quota = quota(50);
        let of = |gateways| Share::one_of(gateways);
        assert_eq!(of(3).tokens(&quota, quota.full()), 16);
        assert_eq!(of(3).tokens(&quota, 299_999), 0);
        assert_eq!(of(100).tokens(&quota, quota.full()), 1);
        assert_eq!(of(100).tokens(&quota, quota.full() - 1), 0);
        assert_eq!(of(1).tokens(&quota, -1), 0);
    }

    #[test]
    fn cost_above_the_burst_is_never_allowed() {
        let quota = quota(5);
        for gateways in [1, 3, 100] {
            assert!(Share::one_of(gateways).needed(&quota, 6) > quota.full());
        }
    }
}
