//! Debts: tokens that this process granted locally, by bucket, until the shared store has deducted
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::Notify;
use tracing::warn;

use super::lapsed::{LapsedDebt, LapsedQueue};
use super::rule::StoredRule;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::now::Now;
use crate::base::unix_time;
use crate::limit::Limit;
use crate::limit::charge::{BucketId, Charge};
use crate::limit::debt::Debt;
use crate::limit::returned::Returned;
use crate::limit::share::Share;

/// Number of shards, each with its own lock; more than there are threads.
const SHARDS: usize = 64;

/// Shortest time between two searches of a full shard for expired debts, in microseconds. A search
/// holds the shard's lock.
const SWEEP_INTERVAL_US: u64 = MICROS_PER_SECOND;

/// Shortest time between two log lines about dropped debts, in microseconds.
const LOG_INTERVAL_US: u64 = 60 * MICROS_PER_SECOND;

/// A debt, and the rule of its bucket, which is part of the bucket's key in Redis.
#[derive(Debug, Clone)]
pub struct BucketDebt {
    pub debt: Debt,
    /// Name of the bucket's rule.
    pub rule: StoredRule,
    /// [`Debts::removals`] when it began.
    since: u64,
}

/// A debt that was removed, to be settled. Until it is dropped, it is
/// [in flight](Debts::in_flight).
#[derive(Debug)]
pub struct RemovedDebt {
    pub bucket: BucketId,
    pub owed: BucketDebt,
    /// Units that are left of it, in those of the limit that it is settled under.
    pub units: i64,
    /// Counts it as being in flight.
    _counted: Counted,
}

/// Debts that were removed, and are neither settled nor put back.
#[derive(Debug, Default)]
struct InFlight {
    sum: Mutex<InFlightSum>,
    /// Notified when one of them ends.
    ended: Notify,
}

/// Number and tokens of debts that are in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct InFlightSum {
    pub debts: usize,
    pub tokens: f64,
}

/// A debt that is in flight until this is dropped.
#[derive(Debug)]
struct Counted {
    all: Arc<InFlight>,
    tokens: f64,
}

impl Counted {
    fn new(all: &Arc<InFlight>, tokens: f64) -> Self {
        let mut sum = all.sum.lock();
        sum.debts += 1;
        sum.tokens += tokens;
        drop(sum);
        Self { all: Arc::clone(all), tokens }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut sum = self.all.sum.lock();
        sum.debts -= 1;
        // Exactly 0 without any, however the sums were rounded.
        sum.tokens = if sum.debts == 0 { 0.0 } else { sum.tokens - self.tokens };
        drop(sum);
        self.all.ended.notify_one();
    }
}

/// Debts by bucket, bounded in number. A debt above the bound is dropped: Redis then grants its
/// tokens a second time.
#[derive(Debug)]
pub struct Debts {
    shards: Box<[Mutex<Shard>]>,
    /// Maximum number of debts in a shard.
    bound: usize,
    /// Number of debts. While it is 0, no lock is taken.
    count: AtomicUsize,
    /// Number of removed debts. Changes only with the lock of the shard.
    removals: AtomicU64,
    in_flight: Arc<InFlight>,
    /// Debts that have lapsed, until Redis has taken them from top-ups.
    lapsed: Mutex<LapsedQueue>,
    /// The same debts, until they are added to the records of usage.
    unrecorded: Mutex<Vec<LapsedDebt>>,
    dropped: Option<IntCounter>,
    /// Earliest time of the next log line about dropped debts.
    log_at: AtomicU64,
}

/// Debts of some of the buckets.
#[derive(Debug, Default)]
struct Shard {
    owed: HashMap<BucketId, BucketDebt>,
    /// Earliest time of the next search of this shard, if it is full.
    search_at: u64,
}

impl Debts {
    /// Creates an empty collection of at most `bound` debts, rounded up to whole shards.
    pub fn new(bound: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bound: bound.div_ceil(SHARDS).max(1),
            count: AtomicUsize::new(0),
            removals: AtomicU64::new(0),
            in_flight: Arc::default(),
            lapsed: Mutex::default(),
            unrecorded: Mutex::default(),
            dropped: None,
            log_at: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn counting(self, dropped: IntCounter) -> Self {
        Self { dropped: Some(dropped), ..self }
    }

    /// Number of buckets with a debt.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Number of debts that were removed until now. A debt that is added after this call has what
    /// was added, until it is removed: then another one to the same bucket begins with a higher
    /// number.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// Whether there are no debts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Debts that were removed, until the caller has settled them or put them back.
    pub fn in_flight(&self) -> InFlightSum {
        *self.in_flight.sum.lock()
    }

    /// Waits until a debt is in flight no longer. Only one caller at a time may wait.
    pub async fn until_one_ends(&self) {
        self.in_flight.ended.notified().await;
    }

    pub fn has(&self, bucket: BucketId) -> bool {
        !self.is_empty() && self.shard(bucket).lock().owed.contains_key(&bucket)
    }

    /// Debt to the bucket at `now`, in the units of its current `limit`; 0 if there is none.
    pub fn owed(&self, bucket: BucketId, limit: &Limit, now: u64) -> i64 {
        if self.is_empty() {
            return 0;
        }
        let shard = self.shard(bucket).lock();
        let owed = shard.owed.get(&bucket);
        owed.map_or(0, |owed| owed.debt.left_under(limit, unix_time::at(now)).max(0))
    }

    /// Adds `units`, granted locally at `now`, to the debt of the charge's bucket. `rule` is the
    /// rule of the charge.
    pub fn add(&self, charge: &Charge, rule: &StoredRule, units: i64, share: Share, now: u64) {
        let at = unix_time::at(now);
        let debt = || Debt::none(charge.limit, share, at).more(units, at);
        let join = |kept: &mut BucketDebt| {
            kept.debt = if kept.debt.limit() == charge.limit {
                kept.debt.more(units, at)
            } else {
                debt().joined(&kept.debt, at)
            };
        };
        let owed = || BucketDebt { debt: debt(), rule: rule.clone(), since: self.removals() };
        self.put(charge.bucket, owed, join, at);
    }

    /// Removes what a request was granted and does not use from the debt to the charge's bucket,
    /// unless it may have been settled since. `removals` was the [number](Self::removals) before it
    /// was added. Calls `then` before any other change of the debt. Returns whether the debt had
    /// it.
    pub fn give_back(
        &self,
        charge: &Charge,
        returned: &Returned,
        removals: u64,
        now: u64,
        then: impl FnOnce(),
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut shard = self.shard(charge.bucket).lock();
        let owed = shard.owed.get_mut(&charge.bucket);
        let has_it =
            |owed: &&mut BucketDebt| owed.debt.limit() == charge.limit && owed.since <= removals;
        let Some(owed) = owed.filter(has_it) else { return false };
        then();
        owed.debt = owed.debt.without(returned, unix_time::at(now));
        if owed.debt.is_zero() {
            shard.owed.remove(&charge.bucket);
            self.note_removed(1);
        }
        true
    }

    /// Removes the debt of the bucket at `now`, for settlement under the bucket's current `limit`.
    pub fn remove(&self, bucket: BucketId, limit: &Limit, now: u64) -> Option<RemovedDebt> {
        if self.is_empty() {
            return None;
        }
        let owed = {
            let mut shard = self.shard(bucket).lock();
            let owed = shard.owed.remove(&bucket)?;
            self.note_removed(1);
            owed
        };
        let at = unix_time::at(now);
        let units = owed.debt.left_under(limit, at);
        self.note_lapsed(bucket, &owed, at);
        (units > 0).then(|| self.removed(bucket, owed, units, limit))
    }

    /// Removes at most `most` debts, for settlement: of buckets for which `is_wanted` is true.
    /// Units are those of the limits under which the debts were made.
    pub fn take_some(
        &self,
        most: usize,
        now: u64,
        is_wanted: impl Fn(BucketId, &StoredRule) -> bool,
    ) -> Vec<RemovedDebt> {
        let (at, mut taken) = (unix_time::at(now), Vec::new());
        for shard in &self.shards {
            let mut shard = shard.lock();
            let mut wanted = shard.owed.extract_if(|bucket, owed| is_wanted(*bucket, &owed.rule));
            while taken.len() < most
                && let Some((bucket, owed)) = wanted.next()
            {
                self.note_removed(1);
                let units = owed.debt.left(at);
                self.note_lapsed(bucket, &owed, at);
                if units > 0 {
                    let limit = owed.debt.limit();
                    taken.push(self.removed(bucket, owed, units, &limit));
                }
            }
        }
        taken
    }

    #[allow(clippy::cast_precision_loss, reason = "both are below 2^53")]
    fn removed(
        &self,
        bucket: BucketId,
        owed: BucketDebt,
        units: i64,
        limit: &Limit,
    ) -> RemovedDebt {
        let tokens = units as f64 / limit.token_units(1) as f64;
        let counted = Counted::new(&self.in_flight, tokens);
        RemovedDebt { bucket, owed, units, _counted: counted }
    }

    /// Adds back a debt that was removed, but possibly not settled.
    pub fn put_back(&self, removed: RemovedDebt, now: u64) {
        let RemovedDebt { bucket, owed, .. } = removed;
        let (debt, since, at) = (owed.debt, owed.since, unix_time::at(now));
        if debt.lapsed(at).is_some() {
            return self.note_lapsed(bucket, &owed, at);
        }
        // The bucket may have a new debt since: both are added.
        let join = |kept: &mut BucketDebt| {
            kept.debt = kept.debt.joined(&debt, at);
            kept.since = kept.since.min(since);
        };
        self.put(bucket, || owed, join, at);
    }

    /// Removes the debts that have shrunk to 0 at `now`.
    pub fn sweep(&self, now: u64) {
        if self.is_empty() {
            return;
        }
        let at = unix_time::at(now);
        for shard in &self.shards {
            self.search(&mut shard.lock(), at);
        }
    }

    /// Returns the debts that have lapsed at `now`, each once.
    pub fn take_lapsed(&self, now: u64) -> Vec<LapsedDebt> {
        self.sweep(now);
        std::mem::take(&mut *self.unrecorded.lock())
    }

    /// Debts that have lapsed, and which may have to be taken from top-ups.
    pub fn lapsed(&self) -> &Mutex<LapsedQueue> {
        &self.lapsed
    }

    /// Drops lapsed debts that Redis has not confirmed for so long that it could take them twice.
    pub fn drop_unconfirmed(&self, now: u64) {
        let dropped = self.lapsed.lock().drop_expired(now);
        if dropped == 0 {
            return;
        }
        self.count_dropped(dropped);
        warn!(
            debts = dropped,
            "debts of ended periods dropped: Redis did not confirm them for 55 minutes, and may \
             grant their tokens a second time"
        );
    }

    fn note_lapsed(&self, bucket: BucketId, owed: &BucketDebt, now: Now) {
        let Some((units, ended_us)) = owed.debt.lapsed(now) else { return };
        let one = LapsedDebt { bucket, limit: owed.debt.limit(), units, ended_us };
        let bound = self.bound.saturating_mul(SHARDS);
        if !self.lapsed.lock().add(one, owed.rule.clone(), bound) {
            self.note_dropped(now.us);
        }
        let mut unrecorded = self.unrecorded.lock();
        if unrecorded.len() < bound {
            unrecorded.push(one);
        }
    }

    /// Removes expired debts of one shard.
    fn search(&self, shard: &mut Shard, now: Now) {
        let before = shard.owed.len();
        shard.owed.retain(|bucket, owed| {
            self.note_lapsed(*bucket, owed, now);
            owed.debt.left(now) > 0
        });
        self.note_removed(before - shard.owed.len());
        shard.search_at = now.us.saturating_add(SWEEP_INTERVAL_US);
    }

    /// Counts debts that were removed, while the caller has the lock of their shard.
    fn note_removed(&self, debts: usize) {
        self.count.fetch_sub(debts, Ordering::Relaxed);
        self.removals.fetch_add(debts as u64, Ordering::Relaxed);
    }

    /// Inserts `owed`, or adds to an existing debt with `join`.
    fn put(
        &self,
        bucket: BucketId,
        owed: impl FnOnce() -> BucketDebt,
        join: impl FnOnce(&mut BucketDebt),
        now: Now,
    ) {
        let mut shard = self.shard(bucket).lock();
        if let Some(kept) = shard.owed.get_mut(&bucket) {
            self.note_lapsed(bucket, kept, now);
            join(kept);
            return;
        }
        // `sweep` is not called while Redis is unavailable.
        if shard.owed.len() >= self.bound && now.us >= shard.search_at {
            self.search(&mut shard, now);
        }
        if shard.owed.len() < self.bound {
            shard.owed.insert(bucket, owed());
            self.count.fetch_add(1, Ordering::Relaxed);
        } else {
            drop(shard);
            self.note_dropped(now.us);
        }
    }

    /// Counts a debt that was dropped, and logs it at most once per [`LOG_INTERVAL_US`].
    fn note_dropped(&self, now: u64) {
        self.count_dropped(1);
        let log_at = self.log_at.load(Ordering::Relaxed);
        let next = now.saturating_add(LOG_INTERVAL_US);
        let order = Ordering::Relaxed;
        if now >= log_at && self.log_at.compare_exchange(log_at, next, order, order).is_ok() {
            warn!(
                debts = self.len(),
                "debts dropped: `memory.max_buckets` is reached, and Redis will grant their \
                 tokens a second time"
            );
        }
    }

    fn count_dropped(&self, debts: usize) {
        if let Some(dropped) = &self.dropped {
            dropped.inc_by(debts as u64);
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
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::Mode;
    use crate::limit::fixed_window::FixedWindow;
    use crate::store::rule::rule;

    fn charge(bucket: u128) -> Charge {
        let limit = Limit::token_bucket(10, 1_000_000, 50).unwrap();
        let bucket = BucketId(bucket);
        Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
    }

    fn owed(debts: &Debts, bucket: u128, now: u64) -> i64 {
        let taken = debts.remove(BucketId(bucket), &charge(bucket).limit, now);
        taken.map_or(0, |taken| taken.units)
    }

    #[test]
    fn dropped_debts_are_logged_once_a_minute() {
        let debts = Debts::new(SHARDS);
        let add = |bucket, now| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, now);
        add(0, 0);
        let times = [(0, 60_000_000), (59_999_999, 60_000_000), (60_000_000, 120_000_000)];
        for (now, next_line) in times {
            add(SHARDS as u128, now);
            // There is room for one of the two.
            add(0, now);
            assert_eq!(debts.log_at.load(Ordering::Relaxed), next_line, "at {now}");
        }
    }

    #[test]
    fn expired_debts_are_searched_for_only_where_a_shard_is_full() {
        let debts = Debts::new(SHARDS * 3);
        let add = |bucket, now| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, now);
        add(0, 0);
        add(SHARDS as u128, charge(0).limit.window_us() + SWEEP_INTERVAL_US + 300);
        assert_eq!(debts.len(), 2, "there is room for one more");
    }

    /// However the debt is removed, its units are taken as lapsed once.
    #[test]
    fn debt_to_a_quota_lapses_with_its_period() {
        let calendar = Calendar::new(Period::Hour, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(50, calendar).unwrap());
        let hour = 3_600 * MICROS_PER_SECOND;
        let quota = |bucket| Charge { limit, ..charge(bucket) };
        let removals: [&dyn Fn(&Debts); 6] = [
            &|debts| debts.sweep(hour),
            &|debts| debts.add(&quota(7), &rule(), 1, Share::WHOLE, hour),
            &|debts| assert!(debts.remove(BucketId(7), &limit, hour).is_none()),
            &|debts| assert!(debts.take_some(9, hour, |_, _| true).is_empty()),
            &|debts| {
                debts.put_back(debts.remove(BucketId(7), &limit, hour - 1).unwrap(), hour);
            },
            &|_| {},
        ];
        for remove in removals {
            let debts = Debts::new(1_000);
            debts.add(&quota(7), &rule(), 300, Share::WHOLE, 5);
            debts.add(&charge(8), &rule(), 300, Share::WHOLE, 5);
            assert_eq!(debts.take_lapsed(hour - 1), []);
            debts.add(&quota(7), &rule(), 200, Share::WHOLE, hour - 1);
            remove(&debts);
            let lapsed = LapsedDebt { bucket: BucketId(7), limit, units: 500, ended_us: hour };
            assert_eq!(debts.take_lapsed(hour), [lapsed]);
            let queued = debts.lapsed().lock().take_some(9);
            assert_eq!(queued.iter().map(|one| one.debt).collect::<Vec<_>>(), [lapsed]);
            assert_eq!(debts.take_lapsed(hour), []);
        }
        let settled = Debts::new(1_000);
        settled.add(&quota(7), &rule(), 300, Share::WHOLE, 5);
        assert!(settled.remove(BucketId(7), &limit, hour - 1).is_some());
        assert_eq!(settled.take_lapsed(hour), []);
    }

    #[test]
    fn units_owed_are_those_of_the_bucket_alone() {
        let debts = Debts::new(1_000);
        let limit = charge(7).limit;
        assert!(debts.is_empty());
        assert_eq!(debts.owed(BucketId(7), &limit, 0), 0);
        debts.add(&charge(7), &rule(), 300, Share::WHOLE, 0);
        assert!(!debts.is_empty());
        assert_eq!(debts.owed(BucketId(7), &limit, 0), 300);
        assert_eq!(debts.owed(BucketId(8), &limit, 0), 0);
        let over = limit.window_us() + 300;
        assert_eq!(debts.owed(BucketId(7), &limit, over), 0);
        assert!(debts.remove(BucketId(7), &limit, over).is_none(), "it is paid off");
    }

    #[test]
    fn removed_debt_is_not_owed_until_it_is_put_back() {
        let debts = Debts::new(1_000);
        debts.add(&charge(7), &rule(), 300, Share::WHOLE, 0);
        debts.add(&charge(7), &rule(), 200, Share::WHOLE, 10);
        let removed = debts.remove(BucketId(7), &charge(7).limit, 10).unwrap();
        assert_eq!((removed.units, debts.len(), owed(&debts, 7, 10)), (500, 0, 0));
        debts.add(&charge(7), &rule(), 100, Share::WHOLE, 20);
        debts.put_back(removed, 20);
        assert!(debts.has(BucketId(7)) && !debts.has(BucketId(8)));
        assert_eq!((debts.len(), owed(&debts, 7, 20)), (1, 600));
    }

    #[test]
    fn removed_debt_is_in_flight_until_it_is_dropped_or_put_back() {
        let debts = Debts::new(1_000);
        let limit = charge(0).limit;
        let sum = |debts: &Debts| (debts.in_flight().debts, debts.in_flight().tokens);
        for bucket in [7, 8] {
            debts.add(&charge(bucket), &rule(), limit.units(3), Share::WHOLE, 0);
        }
        let removed = debts.remove(BucketId(7), &limit, 0).unwrap();
        assert_eq!((sum(&debts), debts.len()), ((1, 3.0), 1));
        let taken = debts.take_some(9, 0, |_, _| true);
        assert_eq!((sum(&debts), debts.len()), ((2, 6.0), 0));
        debts.put_back(removed, 0);
        assert_eq!((sum(&debts), debts.len()), ((1, 3.0), 1));
        drop(taken);
        assert_eq!((sum(&debts), debts.len()), ((0, 0.0), 1));
    }

    #[test]
    fn sweep_removes_expired_debts() {
        let debts = Debts::new(1_000);
        let full = charge(0).limit.window_us();
        debts.add(&charge(1), &rule(), 300, Share::WHOLE, 0);
        debts.add(&charge(2), &rule(), 300, Share::WHOLE, 1_000);
        debts.sweep(full + 299);
        assert_eq!(debts.len(), 2);
        debts.sweep(full + 300);
        assert_eq!((debts.len(), owed(&debts, 2, full + 300)), (1, 300));
    }

    #[test]
    fn debt_is_converted_to_the_limit_of_a_changed_rule() {
        let debts = Debts::new(1_000);
        debts.add(&charge(7), &rule(), charge(7).limit.units(5), Share::WHOLE, 0);
        let limit = Limit::token_bucket(50, 86_400_000_000, 50).unwrap();
        let changed = Charge { limit, ..charge(7) };
        debts.add(&changed, &rule(), limit.units(1), Share::WHOLE, 0);
        let removed = debts.remove(BucketId(7), &limit, 0).unwrap();
        assert_eq!(removed.units, limit.units(6), "tokens under both limits");
        debts.add(&changed, &rule(), limit.units(2), Share::WHOLE, 0);
        debts.put_back(removed, 0);
        assert_eq!(debts.remove(BucketId(7), &limit, 0).unwrap().units, limit.units(8));
    }

    #[test]
    fn every_debt_is_removed_once_and_expired_debts_never() {
        let debts = Debts::new(1_000);
        let full = charge(0).limit.window_us();
        (0..100).for_each(|bucket| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, full));
        debts.add(&charge(100), &rule(), 300, Share::WHOLE, 0);
        let mut buckets = Vec::new();
        for most in [64, 30, 100] {
            let taken = debts.take_some(most, full + 300, |_, _| true);
            assert!(taken.len() <= most && taken.iter().all(|one| one.units == 300));
            buckets.extend(taken.iter().map(|one| one.bucket.0));
        }
        buckets.sort_unstable();
        assert_eq!((buckets, debts.len()), ((0..100).collect(), 0));
    }

    #[test]
    fn only_debts_of_wanted_buckets_are_removed() {
        let debts = Debts::new(1_000);
        (0..300).for_each(|bucket| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, 0));
        let taken = debts.take_some(usize::MAX, 0, |bucket, _| bucket.0.is_multiple_of(3));
        assert!(taken.iter().all(|one| one.bucket.0.is_multiple_of(3)));
        assert_eq!((taken.len(), debts.len()), (100, 200));
    }

    #[test]
    fn dropped_debts_are_counted() {
        let dropped = IntCounter::new("dropped", "Dropped debts.").unwrap();
        let debts = Debts::new(SHARDS * 2).counting(dropped.clone());
        let add = |bucket, now| debts.add(&charge(bucket), &rule(), 300, Share::WHOLE, now);
        (0..SHARDS as u128 * 3).for_each(|bucket| add(bucket, 0));
        assert_eq!((debts.len(), dropped.get()), (SHARDS * 2, SHARDS as u64));
        add(0, 1);
        assert_eq!(dropped.get(), SHARDS as u64, "another grant from a bucket with a debt");
        let over = charge(0).limit.window_us() + 600;
        add(SHARDS as u128 * 4, over + SWEEP_INTERVAL_US);
        assert_eq!(dropped.get(), SHARDS as u64, "expired debts make room");
    }

    #[test]
    fn dropped_lapsed_debts_are_counted() {
        let calendar = Calendar::new(Period::Hour, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(50, calendar).unwrap());
        let dropped = IntCounter::new("dropped", "Dropped debts.").unwrap();
        let debts = Debts::new(SHARDS).counting(dropped.clone());
        let hour = 3_600 * MICROS_PER_SECOND;
        for round in 0..2_u64 {
            for bucket in 0..SHARDS as u128 {
                let quota = Charge { limit, ..charge(1_000 * u128::from(round) + bucket) };
                debts.add(&quota, &rule(), 300, Share::WHOLE, 5);
            }
            debts.sweep(hour);
            assert_eq!(dropped.get(), SHARDS as u64 * round, "the first fit into the queue");
        }
        assert_eq!(debts.take_lapsed(hour).len(), SHARDS);
        let mut sent = debts.lapsed().lock().take_some(1);
        sent[0].sent_at = Some(hour);
        debts.lapsed().lock().put_back(sent);
        debts.drop_unconfirmed(2 * hour);
        assert_eq!(dropped.get(), SHARDS as u64 + 1);
    }

    #[test]
    fn number_of_debts_is_bounded() {
        let debts = Debts::new(SHARDS * 2);
        (0..10_000).for_each(|bucket| debts.add(&charge(bucket), &rule(), 1, Share::WHOLE, 0));
        assert_eq!(debts.len(), SHARDS * 2);
        debts.add(&charge(0), &rule(), 5, Share::WHOLE, 0);
        assert_eq!(owed(&debts, 0, 0), 6, "an existing debt grows at the bound");
    }
}
