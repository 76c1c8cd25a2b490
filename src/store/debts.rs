//! What this process granted alone, bucket by bucket, until the shared store has taken it off.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::IntCounter;
use tracing::warn;

use super::redis::script::RuleName;
use crate::limit::MICROS_PER_SECOND;
use crate::limit::charge::{BucketId, Charge};
use crate::limit::debt::Debt;
use crate::limit::quota::Quota;
use crate::limit::share::Share;

/// Locks; more than there are threads.
const SHARDS: usize = 64;

/// How often a full shard is searched for debts that have shrunk to nothing, in ticks: the search
/// holds its lock.
const SEARCH: u64 = MICROS_PER_SECOND;

/// How often the log says that debts are dropped, in ticks.
const LOG: u64 = 60 * MICROS_PER_SECOND;

/// A debt, and the rule of its bucket, which the bucket's key in Redis is made of.
#[derive(Debug, Clone)]
pub struct Owed {
    /// The debt.
    pub debt: Debt,
    /// The bucket's rule.
    pub rule: RuleName,
}

/// Debts, bounded in number. A debt beyond the bound is dropped: Redis will grant those tokens a
/// second time.
#[derive(Debug)]
pub struct Debts {
    shards: Box<[Mutex<Shard>]>,
    /// Most of a shard.
    bound: usize,
    /// How many there are: mostly none, and then nobody takes a lock.
    count: AtomicUsize,
    /// How many were dropped.
    dropped: Option<IntCounter>,
    /// The tick at which the log may name dropped debts again.
    log_at: AtomicU64,
}

/// Some of the debts.
#[derive(Debug, Default)]
struct Shard {
    owed: HashMap<BucketId, Owed>,
    /// The tick at which a full shard is searched again.
    search_at: u64,
}

impl Debts {
    /// Room for about `bound` debts.
    pub fn new(bound: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bound: bound.div_ceil(SHARDS).max(1),
            count: AtomicUsize::new(0),
            dropped: None,
            log_at: AtomicU64::new(0),
        }
    }

    /// The same, which counts the debts that are dropped.
    #[must_use]
    pub fn counting(self, dropped: IntCounter) -> Self {
        Self { dropped: Some(dropped), ..self }
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
        !self.is_empty() && self.shard(bucket).lock().owed.contains_key(&bucket)
    }

    /// Units that are owed to the bucket at `now`, under the quota that it has now.
    pub fn owed(&self, bucket: BucketId, quota: &Quota, now: u64) -> i64 {
        if self.is_empty() {
            return 0;
        }
        let shard = self.shard(bucket).lock();
        shard.owed.get(&bucket).map_or(0, |owed| owed.debt.left_under(quota, now).max(0))
    }

    /// Notes that `units` were granted of the charge's bucket, which is one of `rule`'s, at `now`.
    pub fn add(&self, charge: &Charge, rule: &RuleName, units: i64, share: Share, now: u64) {
        let debt = || Debt::none(charge.quota, share, now).more(units, now);
        let join = |kept: &Debt| {
            if kept.quota() == charge.quota {
                kept.more(units, now)
            } else {
                debt().joined(kept, now)
            }
        };
        let owed = || Owed { debt: debt(), rule: rule.clone() };
        self.put(charge.bucket, owed, join, now);
    }

    /// Takes out what is owed to the bucket, to have it taken off: the debt, and its units at `now`
    /// under the quota that the bucket has now.
    pub fn take_out(&self, bucket: BucketId, quota: &Quota, now: u64) -> Option<(Owed, i64)> {
        if self.is_empty() {
            return None;
        }
        let owed = self.shard(bucket).lock().owed.remove(&bucket)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        let units = owed.debt.left_under(quota, now);
        (units > 0).then_some((owed, units))
    }

    /// Takes out at most `most` debts to any buckets, under the quotas that they were made under.
    pub fn take_some(&self, most: usize, now: u64) -> Vec<(BucketId, Owed, i64)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            while taken.len() < most
                && let Some(bucket) = shard.owed.keys().next().copied()
                && let Some(owed) = shard.owed.remove(&bucket)
            {
                self.count.fetch_sub(1, Ordering::Relaxed);
                let units = owed.debt.left(now);
                if units > 0 {
                    taken.push((bucket, owed, units));
                }
            }
        }
        taken
    }

    /// Puts back what was taken out and may not have been taken off.
    pub fn put_back(&self, bucket: BucketId, owed: Owed, now: u64) {
        let debt = owed.debt;
        // A debt put back meets one that was made meanwhile: both are owed.
        self.put(bucket, || owed, |kept| kept.joined(&debt, now), now);
    }

    /// Forgets debts that have shrunk to nothing.
    pub fn sweep(&self, now: u64) {
        if self.is_empty() {
            return;
        }
        for shard in &self.shards {
            self.search(&mut shard.lock(), now);
        }
    }

    /// The same in one shard.
    fn search(&self, shard: &mut Shard, now: u64) {
        let before = shard.owed.len();
        shard.owed.retain(|_, owed| owed.debt.left(now) > 0);
        self.count.fetch_sub(before - shard.owed.len(), Ordering::Relaxed);
        shard.search_at = now.saturating_add(SEARCH);
    }

    /// Keeps `owed`, or what `join` makes of the debt that there is.
    fn put(
        &self,
        bucket: BucketId,
        owed: impl FnOnce() -> Owed,
        join: impl FnOnce(&Debt) -> Debt,
        now: u64,
    ) {
        let mut shard = self.shard(bucket).lock();
        if let Some(kept) = shard.owed.get_mut(&bucket) {
            kept.debt = join(&kept.debt);
            return;
        }
        // While Redis is away no call sweeps.
        if shard.owed.len() >= self.bound && now >= shard.search_at {
            self.search(&mut shard, now);
        }
        if shard.owed.len() < self.bound {
            shard.owed.insert(bucket, owed());
            self.count.fetch_add(1, Ordering::Relaxed);
        } else {
            drop(shard);
            self.note_dropped(now);
        }
    }

    /// Counts a debt that there was no room for, and says so from time to time.
    fn note_dropped(&self, now: u64) {
        if let Some(dropped) = &self.dropped {
            dropped.inc();
        }
        let log_at = self.log_at.load(Ordering::Relaxed);
        let next = now.saturating_add(LOG);
        let order = Ordering::Relaxed;
        if now >= log_at && self.log_at.compare_exchange(log_at, next, order, order).is_ok() {
            warn!(
                debts = self.len(),
                "debts dropped: `memory.max_buckets` is reached, and Redis will grant again what \
                 was granted without it"
            );
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "the remainder is below SHARDS")]
    fn shard(&self, bucket: BucketId) -> &Mutex<Shard> {
        &self.shards[(bucket.0 % SHARDS as u128) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::charge::Mode;
    use crate::store::redis::fixture::rule;

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
        debts.add(&charge(7), &rule(), 300, Share::WHOLE, 0);
        debts.add(&charge(7), &rule(), 200, Share::WHOLE, 10);
        let (owed_before, units) = debts.take_out(BucketId(7), &charge(7).quota, 10).unwrap();
        assert_eq!((units, debts.len(), owed(&debts, 7, 10)), (500, 0, 0));
        debts.add(&charge(7), &rule(), 100, Share::WHOLE, 20);
        debts.put_back(BucketId(7), owed_before, 20);
        assert!(debts.owes(BucketId(7)) && !debts.owes(BucketId(8)));
        assert_eq!((debts.len(), owed(&debts, 7, 20)), (1, 600));
    }

    #[test]
    fn what_has_shrunk_to_nothing_goes() {
        let debts = Debts::new(1_000);
        let full = charge(0).quota.time_to_fill_us();
        debts.add(&charge(1), &rule(), 300, Share::WHOLE, 0);
        debts.add(&charge(2), &rule(), 300, Share::WHOLE, 1_000);
        debts.sweep(full + 299);
        assert_eq!(debts.len(), 2);
        debts.sweep(full + 300);
        assert_eq!((debts.len(), owed(&debts, 2, full + 300)), (1, 300));
    }

    #[test]
    fn a_debt_goes_on_under_a_rule_that_has_changed() {
        let debts = Debts::new(1_000);
        debts.add(&charge(7), &rule(), charge(7).quota.units(5), Share::WHOLE, 0);
        let quota = Quota::new(50, 86_400_000_000, 50).unwrap();
        let changed = Charge { quota, ..charge(7) };
        debts.add(&changed, &rule(), quota.units(1), Share::WHOLE, 0);
        let (owed_before, units) = debts.take_out(BucketId(7), &quota, 0).unwrap();
        assert_eq!(units, quota.units(6), "tokens of both");
        debts.add(&changed, &rule(), quota.units(2), Share::WHOLE, 0);
        debts.put_back(BucketId(7), owed_before, 0);
        assert_eq!(debts.take_out(BucketId(7), &quota, 0).unwrap().1, quota.units(8));
    }

    #[test]
    fn every_debt_is_taken_out_once_and_those_of_nothing_never() {
        let debts = Debts::new(1_000);
        let full = charge(0).quota.time_to_fill_us();
        (0..100).for_each(|bucket| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, full));
        debts.add(&charge(100), &rule(), 300, Share::WHOLE, 0);
        let mut buckets = Vec::new();
        for most in [64, 30, 100] {
            let taken = debts.take_some(most, full + 300);
            assert!(taken.len() <= most && taken.iter().all(|(.., units)| *units == 300));
            buckets.extend(taken.iter().map(|(bucket, ..)| bucket.0));
        }
        buckets.sort_unstable();
        assert_eq!((buckets, debts.len()), ((0..100).collect(), 0));
    }

    #[test]
    fn debts_beyond_the_bound_are_counted() {
        let dropped = IntCounter::new("dropped", "Dropped debts.").unwrap();
        let debts = Debts::new(SHARDS * 2).counting(dropped.clone());
        let add = |bucket, now| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, now);
        (0..SHARDS as u128 * 3).for_each(|bucket| add(bucket, 0));
        assert_eq!((debts.len(), dropped.get()), (SHARDS * 2, SHARDS as u64));
        add(0, 1);
        assert_eq!(dropped.get(), SHARDS as u64, "one more grant of a bucket that is known");
        let over = charge(0).quota.time_to_fill_us() + 600;
        add(SHARDS as u128 * 4, over + SEARCH);
        assert_eq!(dropped.get(), SHARDS as u64, "debts that are over make room");
    }

    #[test]
    fn there_are_never_more_than_its_bound() {
        let debts = Debts::new(SHARDS * 2);
        (0..10_000).for_each(|bucket| debts.add(&charge(bucket), &rule(), 1, Share::WHOLE, 0));
        assert_eq!(debts.len(), SHARDS * 2);
        debts.add(&charge(0), &rule(), 5, Share::WHOLE, 0);
        assert_eq!(owed(&debts, 0, 0), 6, "what is owed already grows");
    }
}
