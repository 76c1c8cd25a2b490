//! Debts to quotas whose periods have ended before they were settled, until what exceeds the quota
//! is taken from the top-ups of the client, if it has any.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::debts::Lapsed;
use super::rule::StoredRule;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::random;
use crate::limit::charge::BucketId;

/// Time in microseconds in which a debt is sent to Redis again, if it was not confirmed. Redis
/// keeps its number for an hour.
const REPEAT_US: u64 = 55 * 60 * MICROS_PER_SECOND;

/// A debt, and the rule of its bucket, which is part of the bucket's key in Redis.
#[derive(Debug, Clone)]
pub struct UnpaidDebt {
    pub lapsed: Lapsed,
    pub rule: StoredRule,
    /// Random number, by which Redis ignores a debt that it has taken before.
    pub number: u64,
    /// When it was first sent, in microseconds.
    pub sent_at: Option<u64>,
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
    /// Adds a debt. A bucket that has unpaid debts of another period gets none: that period began
    /// while Redis did not respond, so no top-up was used in it. Returns `false` if the debt is
    /// dropped, since there are `bound` others.
    pub fn add(&mut self, lapsed: Lapsed, rule: StoredRule, bound: usize) -> bool {
        if self.waiting.len() >= bound {
            return false;
        }
        let Lapsed { bucket, ended_us, .. } = lapsed;
        let of_bucket = self.buckets.entry(bucket).or_insert(Unpaid { ended_us, debts: 0 });
        if of_bucket.ended_us == ended_us {
            of_bucket.debts += 1;
            let number = random::number();
            self.waiting.push_back(UnpaidDebt { lapsed, rule, number, sent_at: None });
        }
        true
    }

    /// Removes the debts that were first sent more than [`REPEAT_US`] before `now` (microseconds):
    /// Redis could take them a second time. Returns how many.
    pub fn drop_expired(&mut self, now: u64) -> usize {
        let is_expired = |debt: &UnpaidDebt| {
            debt.sent_at.is_some_and(|sent_at| now.saturating_sub(sent_at) > REPEAT_US)
        };
        if !self.waiting.iter().any(is_expired) {
            return 0;
        }
        let (expired, waiting): (Vec<_>, _) = self.waiting.drain(..).partition(is_expired);
        self.waiting = VecDeque::from(waiting);
        self.paid(&expired);
        expired.len()
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
            assert!(unpaid.add(one, rule(), 10));
        }
        let first = unpaid.take_some(10);
        assert_eq!(units(&first), [5, 8], "each to another bucket");
        unpaid.put_back(first);
        let first = unpaid.take_some(1);
        assert_eq!(units(&first), [6]);
        unpaid.paid(&first);
        assert!(unpaid.add(lapsed(1, 180, 9), rule(), 10));
        let rest = unpaid.take_some(10);
        assert_eq!(units(&rest), [5, 8]);
        unpaid.paid(&rest);
        assert!(unpaid.add(lapsed(1, 180, 9), rule(), 10));
        assert_eq!(units(&unpaid.take_some(10)), [9]);
    }

    #[test]
    fn number_of_unpaid_debts_is_bounded() {
        let mut unpaid = UnpaidDebts::default();
        for bucket in 0..20 {
            assert_eq!(unpaid.add(lapsed(bucket, 60, 5), rule(), 10), bucket < 10, "{bucket}");
        }
        assert_eq!(unpaid.take_some(100).len(), 10);
    }

    /// Redis forgets after an hour that it has taken a debt.
    #[test]
    fn debt_is_not_sent_for_longer_than_redis_keeps_its_number() {
        let mut unpaid = UnpaidDebts::default();
        for bucket in [1, 2] {
            assert!(unpaid.add(lapsed(bucket, 60, 5), rule(), 10));
        }
        let mut sent = unpaid.take_some(1);
        sent[0].sent_at = Some(7);
        unpaid.put_back(sent);
        assert_eq!((unpaid.drop_expired(7 + REPEAT_US), unpaid.waiting.len()), (0, 2));
        assert_eq!((unpaid.drop_expired(8 + REPEAT_US), unpaid.waiting.len()), (1, 1));
        assert_eq!(unpaid.drop_expired(u64::MAX), 0, "the other one was never sent");
        assert!(unpaid.add(lapsed(1, 120, 6), rule(), 10));
        assert_eq!(units(&unpaid.take_some(9)), [5, 6], "of another period");
    }
}
