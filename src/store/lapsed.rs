//! Lapsed debts: those to quotas whose periods ended before they were settled. They are kept until
//! Redis has taken what exceeds the quota from the top-ups of the client, if it has any.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::rule::StoredRule;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::random;
use crate::limit::Limit;
use crate::limit::charge::BucketId;

/// Time in microseconds in which a debt is sent to Redis again, if it was not confirmed. Redis
/// keeps its number for an hour.
const REPEAT_US: u64 = 55 * 60 * MICROS_PER_SECOND;

/// A debt to a quota whose period ended before it was settled. The bucket will never have it, but
/// it was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LapsedDebt {
    pub bucket: BucketId,
    /// Limit that the units are counted in.
    pub limit: Limit,
    /// Units that were granted.
    pub units: i64,
    /// End of the period, in microseconds of Unix time.
    pub ended_us: u64,
}

/// A lapsed debt that Redis has not confirmed.
#[derive(Debug, Clone)]
pub struct QueuedDebt {
    pub debt: LapsedDebt,
    /// Rule of its bucket, which is part of the bucket's key in Redis.
    pub rule: StoredRule,
    /// Random number, by which Redis ignores a debt that it has taken before.
    pub number: u64,
    /// When it was first sent, in microseconds.
    pub sent_at: Option<u64>,
}

/// Lapsed debts that Redis has not confirmed, bounded in number.
#[derive(Debug, Default)]
pub struct LapsedQueue {
    waiting: VecDeque<QueuedDebt>,
    buckets: HashMap<BucketId, OfBucket>,
}

/// The queued debts of a bucket, all of one period.
#[derive(Debug)]
struct OfBucket {
    /// End of the period, in microseconds of Unix time.
    ended_us: u64,
    debts: usize,
}

impl LapsedQueue {
    /// Adds a debt. A bucket that has queued debts of another period gets none: that period began
    /// while Redis did not respond, so no top-up was used in it. Returns `false` if the debt is
    /// dropped, since there are `bound` others.
    pub fn add(&mut self, debt: LapsedDebt, rule: StoredRule, bound: usize) -> bool {
        if self.waiting.len() >= bound {
            return false;
        }
        let LapsedDebt { bucket, ended_us, .. } = debt;
        let of_bucket = self.buckets.entry(bucket).or_insert(OfBucket { ended_us, debts: 0 });
        if of_bucket.ended_us == ended_us {
            of_bucket.debts += 1;
            let number = random::number();
            self.waiting.push_back(QueuedDebt { debt, rule, number, sent_at: None });
        }
        true
    }

    /// Removes the debts that were first sent more than [`REPEAT_US`] before `now` (microseconds):
    /// Redis could take them a second time. Returns how many.
    pub fn drop_expired(&mut self, now: u64) -> usize {
        let is_expired = |debt: &QueuedDebt| {
            debt.sent_at.is_some_and(|sent_at| now.saturating_sub(sent_at) > REPEAT_US)
        };
        if !self.waiting.iter().any(is_expired) {
            return 0;
        }
        let (expired, waiting): (Vec<_>, _) = self.waiting.drain(..).partition(is_expired);
        self.waiting = VecDeque::from(waiting);
        self.note_settled(&expired);
        expired.len()
    }

    /// Removes at most `most` debts, each to another bucket.
    pub fn take_some(&mut self, most: usize) -> Vec<QueuedDebt> {
        let mut taken: Vec<QueuedDebt> = Vec::new();
        for _ in 0..self.waiting.len() {
            if taken.len() == most {
                break;
            }
            let Some(debt) = self.waiting.pop_front() else { break };
            if taken.iter().any(|one| one.debt.bucket == debt.debt.bucket) {
                self.waiting.push_back(debt);
            } else {
                taken.push(debt);
            }
        }
        taken
    }

    /// Adds back debts that were taken, but possibly not settled.
    pub fn put_back(&mut self, debts: Vec<QueuedDebt>) {
        self.waiting.extend(debts);
    }

    /// Forgets debts that were taken: Redis has them.
    pub fn note_settled(&mut self, debts: &[QueuedDebt]) {
        for debt in debts {
            if let Entry::Occupied(mut of_bucket) = self.buckets.entry(debt.debt.bucket) {
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
    use crate::store::rule::rule;

    fn debt(bucket: u128, ended_us: u64, units: i64) -> LapsedDebt {
        let limit = Limit::token_bucket(10, 1_000_000, 50).unwrap();
        LapsedDebt { bucket: BucketId(bucket), limit, units, ended_us }
    }

    fn units(queued: &[QueuedDebt]) -> Vec<i64> {
        queued.iter().map(|one| one.debt.units).collect()
    }

    #[test]
    fn bucket_has_debts_of_the_first_period_until_they_are_settled() {
        let mut queue = LapsedQueue::default();
        for one in [debt(1, 60, 5), debt(1, 60, 6), debt(1, 120, 7), debt(2, 120, 8)] {
            assert!(queue.add(one, rule(), 10));
        }
        let first = queue.take_some(10);
        assert_eq!(units(&first), [5, 8], "each to another bucket");
        queue.put_back(first);
        let first = queue.take_some(1);
        assert_eq!(units(&first), [6]);
        queue.note_settled(&first);
        assert!(queue.add(debt(1, 180, 9), rule(), 10));
        let rest = queue.take_some(10);
        assert_eq!(units(&rest), [5, 8]);
        queue.note_settled(&rest);
        assert!(queue.add(debt(1, 180, 9), rule(), 10));
        assert_eq!(units(&queue.take_some(10)), [9]);
    }

    #[test]
    fn number_of_lapsed_debts_is_bounded() {
        let mut queue = LapsedQueue::default();
        for bucket in 0..20 {
            assert_eq!(queue.add(debt(bucket, 60, 5), rule(), 10), bucket < 10, "{bucket}");
        }
        assert_eq!(queue.take_some(100).len(), 10);
    }

    /// Redis forgets after an hour that it has taken a debt.
    #[test]
    fn debt_is_not_sent_for_longer_than_redis_keeps_its_number() {
        let mut queue = LapsedQueue::default();
        for bucket in [1, 2] {
            assert!(queue.add(debt(bucket, 60, 5), rule(), 10));
        }
        let mut sent = queue.take_some(1);
        sent[0].sent_at = Some(7);
        queue.put_back(sent);
        assert_eq!((queue.drop_expired(7 + REPEAT_US), queue.waiting.len()), (0, 2));
        assert_eq!((queue.drop_expired(8 + REPEAT_US), queue.waiting.len()), (1, 1));
        assert_eq!(queue.drop_expired(u64::MAX), 0, "the other one was never sent");
        assert!(queue.add(debt(1, 120, 6), rule(), 10));
        assert_eq!(units(&queue.take_some(9)), [5, 6], "of another period");
    }
}
