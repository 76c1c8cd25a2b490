//! What this process granted alone, bucket by bucket, until the shared store has taken it off.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::limit::charge::{BucketId, Charge};
use crate::limit::debt::Debt;
use crate::limit::quota::Quota;
use crate::limit::share::Share;

/// Locks; more than there are threads.
const SHARDS: usize = 64;

/// Debts, bounded in number. What is beyond the bound is forgotten: it was granted within this
/// process' part of the limit all the same.
#[derive(Debug)]
pub struct Debts {
    shards: Box<[Mutex<HashMap<BucketId, Debt>>]>,
    /// Most of a shard.
    bound: usize,
    /// How many there are: mostly none, and then nobody takes a lock.
    count: AtomicUsize,
}

impl Debts {
    /// Room for about `bound` debts.
    pub fn new(bound: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, bound: bound.div_ceil(SHARDS).max(1), count: AtomicUsize::new(0) }
    }

    /// How many buckets something is owed to.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether anything is owed to the bucket.
    pub fn owes(&self, bucket: BucketId) -> bool {
        !self.is_empty() && self.shard(bucket).lock().contains_key(&bucket)
    }

    /// Units that are owed to the bucket at `now`, under the quota that it has now.
    pub fn owed(&self, bucket: BucketId, quota: &Quota, now: u64) -> i64 {
        if self.is_empty() {
            return 0;
        }
        let shard = self.shard(bucket).lock();
        shard.get(&bucket).map_or(0, |debt| debt.left_under(quota, now).max(0))
    }

    /// Notes that `units` were granted of the charge's bucket at `now`.
    pub fn add(&self, charge: &Charge, units: i64, share: Share, now: u64) {
        let join = |kept: &Debt| {
            if kept.quota() == charge.quota {
                return kept.more(units, now);
            }
            Debt::none(charge.quota, share, now).more(units, now).joined(kept, now)
        };
        self.put(charge.bucket, Debt::none(charge.quota, share, now).more(units, now), join);
    }

    /// Takes out what is owed to the bucket, to have it taken off: the debt, and its units at `now`
    /// under the quota that the bucket has now.
    pub fn take_out(&self, bucket: BucketId, quota: &Quota, now: u64) -> Option<(Debt, i64)> {
        if self.is_empty() {
            return None;
        }
        let debt = self.shard(bucket).lock().remove(&bucket)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        let units = debt.left_under(quota, now);
        (units > 0).then_some((debt, units))
    }

    /// Puts back what was taken out and may not have been taken off.
    pub fn put_back(&self, bucket: BucketId, debt: Debt, now: u64) {
        // A debt put back meets one that was made meanwhile: both are owed.
        self.put(bucket, debt, |kept| kept.joined(&debt, now));
    }

    /// Forgets debts that have shrunk to nothing.
    pub fn sweep(&self, now: u64) {
        if self.is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.len();
            shard.retain(|_, debt| debt.left(now) > 0);
            self.count.fetch_sub(before - shard.len(), Ordering::Relaxed);
        }
    }

    /// Keeps `debt`, or what `join` makes of the one that there is.
    fn put(&self, bucket: BucketId, debt: Debt, join: impl FnOnce(&Debt) -> Debt) {
        let mut shard = self.shard(bucket).lock();
        let is_full = shard.len() >= self.bound;
        match shard.entry(bucket) {
            Entry::Occupied(mut kept) => {
                let joined = join(kept.get());
                kept.insert(joined);
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(free) => {
                free.insert(debt);
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "the remainder is below SHARDS")]
    fn shard(&self, bucket: BucketId) -> &Mutex<HashMap<BucketId, Debt>> {
        &self.shards[(bucket.0 % SHARDS as u128) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::charge::Mode;

    fn charge(bucket: u128) -> Charge {
        let quota = Quota::new(10, 1_000_000, 50).unwrap();
        let bucket = BucketId(bucket);
        Charge { bucket, rule: 0, quota_index: 0, quota, cost: 1, mode: Mode::Enforce }
    }

    fn owed(debts: &Debts, bucket: u128, now: u64) -> i64 {
        let taken = debts.take_out(BucketId(bucket), &charge(bucket).quota, now);
        taken.map_or(0, |(_, units)| units)
    }

    #[test]
    fn what_is_taken_out_is_owed_no_more_until_it_is_put_back() {
        let debts = Debts::new(1_000);
        debts.add(&charge(7), 300, Share::WHOLE, 0);
        debts.add(&charge(7), 200, Share::WHOLE, 10);
        let (debt, units) = debts.take_out(BucketId(7), &charge(7).quota, 10).unwrap();
        assert_eq!((units, debts.len(), owed(&debts, 7, 10)), (500, 0, 0));
        debts.add(&charge(7), 100, Share::WHOLE, 20);
        debts.put_back(BucketId(7), debt, 20);
        assert!(debts.owes(BucketId(7)) && !debts.owes(BucketId(8)));
        assert_eq!((debts.len(), owed(&debts, 7, 20)), (1, 600));
    }

    #[test]
    fn what_has_shrunk_to_nothing_goes() {
        let debts = Debts::new(1_000);
        let full = charge(0).quota.ticks_to_fill();
        debts.add(&charge(1), 300, Share::WHOLE, 0);
        debts.add(&charge(2), 300, Share::WHOLE, 1_000);
        debts.sweep(full + 299);
        assert_eq!(debts.len(), 2);
        debts.sweep(full + 300);
        assert_eq!((debts.len(), owed(&debts, 2, full + 300)), (1, 300));
    }

    #[test]
    fn a_debt_goes_on_under_a_rule_that_has_changed() {
        let debts = Debts::new(1_000);
        debts.add(&charge(7), charge(7).quota.units(5), Share::WHOLE, 0);
        let quota = Quota::new(50, 86_400_000_000, 50).unwrap();
        let changed = Charge { quota, ..charge(7) };
        debts.add(&changed, quota.units(1), Share::WHOLE, 0);
        let (debt, units) = debts.take_out(BucketId(7), &quota, 0).unwrap();
        assert_eq!(units, quota.units(6), "tokens of both");
        debts.add(&changed, quota.units(2), Share::WHOLE, 0);
        debts.put_back(BucketId(7), debt, 0);
        assert_eq!(debts.take_out(BucketId(7), &quota, 0).unwrap().1, quota.units(8));
    }

    #[test]
    fn there_are_never_more_than_its_bound() {
        let debts = Debts::new(SHARDS * 2);
        (0..10_000).for_each(|bucket| debts.add(&charge(bucket), 1, Share::WHOLE, 0));
        assert_eq!(debts.len(), SHARDS * 2);
        debts.add(&charge(0), 5, Share::WHOLE, 0);
        assert_eq!(owed(&debts, 0, 0), 6, "what is owed already grows");
    }
}
