//! What a gateway grants of a bucket that it cannot ask the others about.
//!
//! A gateway that decides alone takes for all who may be doing the same: a request costs it as many
//! times its tokens as there are gateways. So of the whole bucket, of which each has its own view,
//! each grants the n-th part of burst and rate, in whole units and without a remainder.

use super::quota::Quota;

/// One of so many gateways, each of which takes as if the others did what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    gateways: u32,
}

impl Share {
    /// There is one bucket, and whoever decides sees all that is taken from it.
    pub const WHOLE: Self = Self { gateways: 1 };

    /// One of `gateways`, at least 1.
    pub const fn one_of(gateways: u32) -> Self {
        Self { gateways: if gateways == 0 { 1 } else { gateways } }
    }

    /// How many gateways there are, at least 1.
    pub const fn gateways(self) -> u32 {
        self.gateways
    }

    /// Units that must be in a bucket for a request of `cost` tokens to pass. Never more than a
    /// full bucket: divided by many gateways, a small limit must not become one of nothing.
    pub const fn needed(self, quota: &Quota, cost: u64) -> i64 {
        let (all, one) = (self.taken(quota, cost), quota.units(cost));
        let most = if one > quota.full() { one } else { quota.full() };
        if all < most { all } else { most }
    }

    /// Units that such a request takes. Where that is more than a full bucket, what is missing is
    /// a debt, so that a gateway never exceeds its part of the rate.
    pub const fn taken(self, quota: &Quota, cost: u64) -> i64 {
        quota.units(cost).saturating_mul(self.gateways as i64)
    }

    /// Requests of one token that pass at this level.
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

    /// 10 tokens a second; a token is worth 100,000 units.
    fn quota(burst: u64) -> Quota {
        Quota::new(10, 1_000_000, burst).unwrap()
    }

    /// How many requests one of `gateways` lets pass at once, and in the `seconds` after it.
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
    fn each_gateway_grants_its_part_of_burst_and_rate() {
        // (gateways, burst, cost, seconds) -> passed
        let table = [
            ((1, 50, 1, 0), 50),
            ((3, 50, 1, 0), 16),
            ((3, 50, 5, 0), 3),
            ((3, 50, 1, 3), 26),
            ((5, 50, 1, 10), 30),
            // At least one request, whatever it costs; then no more than its part of the rate.
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
    fn what_remains_is_what_passes() {
        let quota = quota(50);
        let of = |gateways| Share::one_of(gateways);
        assert_eq!(of(3).tokens(&quota, quota.full()), 16);
        assert_eq!(of(3).tokens(&quota, 299_999), 0);
        assert_eq!(of(100).tokens(&quota, quota.full()), 1);
        assert_eq!(of(100).tokens(&quota, quota.full() - 1), 0);
        assert_eq!(of(1).tokens(&quota, -1), 0);
    }

    #[test]
    fn a_cost_beyond_the_burst_never_passes() {
        let quota = quota(5);
        for gateways in [1, 3, 100] {
            assert!(Share::one_of(gateways).needed(&quota, 6) > quota.full());
        }
    }
}
