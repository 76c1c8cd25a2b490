//! Debts to quotas whose periods have ended before they were settled, until what exceeds the quota
//! is taken from the top-ups of the client, if it has any.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::debts::Lapsed;
use super::rule::StoredRule;
use crate::base::clock;
use crate::limit::charge::BucketId;

/// Number of bits of a debt's number, so that a double holds it exactly.
const NUMBER_BITS: u32 = 53;

/// A debt, and the rule of its bucket, which is part of the bucket's key in Redis.
#[derive(Debug, Clone)]
pub struct UnpaidDebt {
    pub lapsed: Lapsed,
    pub rule: StoredRule,
    /// Random number, by which Redis ignores a debt that it has taken before.
    pub number: u64,
}

/// Unpaid debts, bounded in number.
#[derive(Debug, Default)]
pub struct UnpaidDebts {
    waiting: VecDeque<UnpaidDebt>,
    buckets: HashMap<BucketId, Unpaid>,
}

/// The unpaid debts of a bucket, all of one period.
#[derive(Debug)]
struct Unpaid {
    /// End of the period, in microseconds of Unix time.
    ended_us: u64,
    debts: usize,
}

impl UnpaidDebts {
    /// Adds a debt, if there are fewer than `bound`. A bucket that has unpaid debts of another
    /// period gets none: that period began while Redis did not respond, so no top-up was used in
    /// it.
    pub fn add(&mut self, lapsed: Lapsed, rule: StoredRule, bound: usize) {
        if self.waiting.len() >= bound {
            return;
        }
        let Lapsed { bucket, ended_us, .. } = lapsed;
        let of_bucket = self.buckets.entry(bucket).or_insert(Unpaid { ended_us, debts: 0 });
        if of_bucket.ended_us == ended_us {
            of_bucket.debts += 1;
            let random = getrandom::u64().unwrap_or_else(|_| clock::now());
            let number = random >> (u64::BITS - NUMBER_BITS);
            self.waiting.push_back(UnpaidDebt { lapsed, rule, number });
        }
    }

    /// Removes at most `most` debts, each to another bucket.
    pub fn take_some(&mut self, most: usize) -> Vec<UnpaidDebt> {
        let mut taken: Vec<UnpaidDebt> = Vec::new();
        for _ in 0..self.waiting.len() {
            if taken.len() == most {
                break;
            }
            let Some(debt) = self.waiting.pop_front() else { break };
            if taken.iter().any(|one| one.lapsed.bucket == debt.lapsed.bucket) {
                self.waiting.push_back(debt);
            } else {
                taken.push(debt);
            }
        }
        taken
    }

    /// Adds back debts that were taken, but possibly not paid.
    pub fn put_back(&mut self, debts: Vec<UnpaidDebt>) {
        self.waiting.extend(debts);
    }

    /// Notes that debts which were taken are paid.
    pub fn paid(&mut self, debts: &[UnpaidDebt]) {
        for debt in debts {
            if let Entry::Occupied(mut of_bucket) = self.buckets.entry(debt.lapsed.bucket) {
                of_bucket.get_mut().debts -= 1;
                if of_bucket.get().debts == 0 {
                    of_bucket.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::store::redis::fixture::rule;

    fn lapsed(bucket: u128, ended_us: u64, units: i64) -> Lapsed {
        let limit = Limit::token_bucket(10, 1_000_000, 50).unwrap();
        Lapsed { bucket: BucketId(bucket), limit, units, ended_us }
    }

    fn units(debts: &[UnpaidDebt]) -> Vec<i64> {
        debts.iter().map(|debt| debt.lapsed.units).collect()
    }

    #[test]
    fn bucket_has_unpaid_debts_of_the_first_period_until_they_are_paid() {
        let mut unpaid = UnpaidDebts::default();
        for one in [lapsed(1, 60, 5), lapsed(1, 60, 6), lapsed(1, 120, 7), lapsed(2, 120, 8)] {
            unpaid.add(one, rule(), 10);
        }
        let first = unpaid.take_some(10);
        assert_eq!(units(&first), [5, 8], "each to another bucket");
        unpaid.put_back(first);
        let first = unpaid.take_some(1);
        assert_eq!(units(&first), [6]);
        unpaid.paid(&first);
        unpaid.add(lapsed(1, 180, 9), rule(), 10);
        let rest = unpaid.take_some(10);
        assert_eq!(units(&rest), [5, 8]);
        unpaid.paid(&rest);
        unpaid.add(lapsed(1, 180, 9), rule(), 10);
        assert_eq!(units(&unpaid.take_some(10)), [9]);
    }

    #[test]
    fn number_of_unpaid_debts_is_bounded() {
        let mut unpaid = UnpaidDebts::default();
        (0..20).for_each(|bucket| unpaid.add(lapsed(bucket, 60, 5), rule(), 10));
        assert_eq!(unpaid.take_some(100).len(), 10);
    }
}
