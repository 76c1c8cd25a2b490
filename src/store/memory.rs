//! Token buckets in memory: a bounded map that all threads of this process share.
//!
//! # Eviction
//!
//! The store keeps at most `max_buckets`; its memory grows with the buckets in use. A full bucket
//! equals a missing one, so full buckets are dropped first, without any effect. If a flood of
//! clients leaves no full bucket, the store evicts the one nearest to full among a few candidates.
//!
//! A client whose bucket was evicted must not get a full one when it returns. So each shard keeps,
//! for each limit, the latest time at which a dropped bucket would have been full. A new bucket
//! before that time starts at the level of a bucket that is full at that time. A fixed window has
//! no refill: the store keeps how much the emptiest dropped bucket of the period had used. **During
//! such a flood a new client may start with fewer tokens than its burst; no client ever gets
//! more.** With room for all buckets in use, nothing is evicted and every answer is exact. See
//! [`MemoryStore::evictions`].
//!
//! # Concurrency
//!
//! Buckets are in shards, each with its own lock. A request locks the shards of all its buckets in
//! ascending order, which prevents deadlocks, then decides, then writes. So it takes from all its
//! buckets atomically.

mod changed;
mod handover;
mod limits;
mod logs;
mod shard;
mod start;
mod table;
mod top_ups;

#[cfg(test)]
mod pictures;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::base::now::Now;
use crate::base::unix_time;
use crate::limit::Limit;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, BucketId, Charge, Outcome, Outcomes};
use crate::limit::reading::{Reading, Times};
use crate::limit::returned::Returned;
use crate::limit::share::Share;
use crate::limit::stamp_log::StampLog;
use crate::limit::top_up::{ChangedTopUps, TopUpChange, TopUpError};
use crate::store::held::{Held, Holds};
use crate::store::rule::StoredRule;
pub use changed::ChangedLog;
pub use handover::{HandoverError, KeptBucket, Layout};
use limits::Limits;
use shard::Shard;
use start::Start;
use table::{Place, scaled};

/// Target size of a shard, in buckets. Growing a shard of this size holds its lock for some tens of
/// microseconds.
const SHARD_BUCKETS: usize = 8_192;

/// Minimum size of a shard, in buckets. Smaller shards would fill up unevenly.
const MIN_SHARD_BUCKETS: usize = 64;

/// Minimum number of shards of a store with enough buckets; more than there are threads.
const MIN_SHARDS: usize = 16;

/// Maximum number of shards. Beyond it, shards get larger.
const MAX_SHARDS: usize = 4_096;

/// Number of charges of a request that needs no allocation.
const INLINE_CHARGES: usize = 6;

/// Token buckets in memory, bounded in number.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Padded]>,
    limits: Limits,
    /// Held while `limits` change.
    changing: Mutex<()>,
    /// How often there were too many limits that are not in the file.
    limits_beyond: AtomicU64,
    start: Start,
    /// Units that requests hold, which are not in the shards.
    held: Arc<Held>,
    /// Random odd number: see [`table`].
    seed: u64,
}

/// A shard on its own cache lines, against false sharing. Two lines, because processors fetch lines
/// in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The shards of one request, locked.
struct Locked<'a> {
    /// Their numbers, each once, ascending.
    numbers: SmallVec<[usize; INLINE_CHARGES]>,
    /// The shards of these numbers.
    shards: SmallVec<[MutexGuard<'a, Shard>; INLINE_CHARGES]>,
}

/// Result of the search for each charge's bucket.
type Places = SmallVec<[Place; INLINE_CHARGES]>;
/// The bucket of each charge, in the order of the charges.
type Buckets = SmallVec<[Bucket; INLINE_CHARGES]>;

impl MemoryStore {
    /// Creates an empty store for at most `max_buckets` buckets, at least 1. Until
    /// [`adopt`](Self::adopt) is called, [`Charge::limit_index`] is an index into `limits`.
    pub fn new(max_buckets: usize, limits: &[Limit]) -> Self {
        Self::with_seed(max_buckets, limits, RandomState::new().hash_one(0))
    }

    fn with_seed(max_buckets: usize, limits: &[Limit], seed: u64) -> Self {
        let seed = seed | 1;
        let max_buckets = max_buckets.max(1);
        let count = shard_count(max_buckets);
        // If the bound does not divide evenly, the first shards hold one bucket more.
        let bound = |number| max_buckets / count + usize::from(number < max_buckets % count);
        let shards = (0..count).map(|number| Padded(Mutex::new(Shard::new(bound(number), seed))));
        Self {
            shards: shards.collect(),
            limits: Limits::new(limits),
            changing: Mutex::new(()),
            limits_beyond: AtomicU64::new(0),
            start: Start::default(),
            held: Arc::new(Held::new(false)),
            seed,
        }
    }

    /// The same store, with the units in `held` that requests hold.
    #[must_use]
    pub fn holding(self, held: Arc<Held>) -> Self {
        Self { held, ..self }
    }

    /// The units that requests hold.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Makes unknown buckets start empty at `now` instead of full, until `ends` is set. For a
    /// process that may have granted tokens before a restart. It grants `share` of each bucket.
    pub fn start_empty(&self, share: Share, ends: Arc<AtomicBool>, now: u64) {
        self.start.empty(share, ends, now);
    }

    /// Replaces the limits in force at `now` (microseconds), after a reload. Returns the
    /// [`Charge::limit_index`] of each. Buckets of replaced limits are
    /// [converted](Limit::converted).
    pub fn adopt(&self, limits: &[Limit], now: u64) -> Vec<u32> {
        let _changing = self.changing.lock();
        let now = unix_time::at(now);
        let mut adopted = self.limits.adopt(limits, now.us, |count| {
            let mut used = vec![false; count];
            self.shards.iter().for_each(|shard| shard.0.lock().mark_used(&mut used));
            used
        });
        for shard in &self.shards {
            adopted.reused.iter().for_each(|number| shard.0.lock().forget(*number));
        }
        self.limits.publish(&mut adopted);
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            let list = self.limits.load();
            adopted.retired.iter().for_each(|number| shard.carry_over(*number, &list, now));
        }
        adopted.numbers
    }

    /// The [`Charge::limit_index`] of a limit that is not in the file, until the next
    /// [`adopt`](Self::adopt) and some seconds beyond; `None` if there are too many.
    pub fn number_of(&self, limit: Limit) -> Option<u32> {
        let _changing = self.changing.lock();
        let number = self.limits.add(limit);
        if number.is_none() {
            self.limits_beyond.fetch_add(1, Ordering::Relaxed);
        }
        number
    }

    /// How often [`number_of`](Self::number_of) has had too many limits.
    pub fn limits_beyond(&self) -> u64 {
        self.limits_beyond.load(Ordering::Relaxed)
    }

    /// Decides one request at `now` (microseconds) and takes its tokens, from all its buckets or
    /// from none. A denied request changes nothing. No charge may be of a limit whose units are
    /// [held](Self::hold).
    pub fn take(&self, charges: &[Charge], now: u64, share: Share) -> Answer {
        let now = unix_time::at(now);
        match charges {
            [charge] => self.take_one(charge, now, share),
            _ => self.take_all(charges, now, share),
        }
    }

    /// Like [`take`](Self::take), for charges of any kind: also returns what the request holds
    /// until it ends. `rules` are those of the charges' policy, by index.
    pub fn hold(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
        share: Share,
    ) -> (Answer, Holds) {
        if charge::held(charges).next().is_none() {
            return (self.take(charges, now, share), Holds::new());
        }
        let now = unix_time::at(now);
        let mut locked = self.lock(charges);
        let (places, mut buckets) = self.read(&locked, charges, now);
        let held = self.held.lock(charges);
        held.read(charges, share, now.us, &mut buckets);
        let (answer, buckets) = self.decide(charges, &locked, &places, buckets, share, now);
        if !answer.allowed() {
            return (answer, Holds::new());
        }
        let took = |index: usize| answer.outcomes[index].spent(&charges[index]) > 0;
        self.write(&mut locked, charges, &places, &buckets, now, took);
        self.forget_replaced(&mut locked, charges, &answer);
        let holds = held.hold(charges, rules, &answer);
        (answer, holds)
    }

    /// Removes buckets of another kind that a request replaces by units that it holds: the rule had
    /// that kind before a reload. If it has it again, the bucket starts full, as in Redis.
    fn forget_replaced(&self, locked: &mut Locked<'_>, charges: &[Charge], answer: &Answer) {
        for (charge, _) in charge::held_units(charges, answer) {
            locked.shard_mut(self.shard_number(charge.bucket)).forget_bucket(charge.bucket);
        }
    }

    /// Returns what [`take`](Self::take) would answer, without taking tokens or adding buckets.
    pub fn peek(&self, charges: &[Charge], now: u64, share: Share) -> Answer {
        let now = unix_time::at(now);
        let locked = self.lock(charges);
        let (places, mut buckets) = self.read(&locked, charges, now);
        self.held.lock(charges).read(charges, share, now.us, &mut buckets);
        self.decide(charges, &locked, &places, buckets, share, now).0
    }

    /// State of the charge's bucket at `now`; if it is not in the store, its start value.
    pub fn bucket(&self, charge: &Charge, now: u64) -> Bucket {
        let shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        self.bucket_at(&shard, charge, shard.find(charge.bucket), unix_time::at(now))
    }

    /// State of the charge's bucket at `now`, for a gateway that grants `part` of it.
    pub fn reading(&self, charge: &Charge, part: Share, now: u64) -> Reading {
        let now = unix_time::at(now);
        if let Some(level) = self.held.level(charge, part) {
            return Reading::new(level, Times::period(charge.limit.left_us_at(now)));
        }
        let shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let bucket = self.bucket_at(&shard, charge, place, now);
        let log = || shard.log(charge, place, &self.limits);
        let times = charge.limit.times(log, || bucket, bucket.level, part, charge.cost, now);
        let top_ups = shard.left_of_top_ups(charge, place, bucket.level, &self.limits, now);
        Reading { level: bucket.level, times, top_ups }
    }

    /// Sets the level of the charge's bucket at `now`, as reported by the shared store. No requests
    /// may [hold](Self::hold) units of it: what they hold in other processes is not known here.
    pub fn put(&self, charge: &Charge, level: i64, now: u64) {
        let now = unix_time::at(now);
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let bucket = charge.limit.bucket(level, now);
        let place = shard.find(charge.bucket);
        self.store(&mut shard, charge, place, bucket, now);
    }

    /// Applies an adjustment to all buckets at `now`, atomically. Returns their levels before and
    /// after.
    pub fn adjust(&self, charges: &[Charge], adjustment: Adjustment, now: u64) -> Vec<(i64, i64)> {
        let now = unix_time::at(now);
        let mut locked = self.lock(charges);
        if adjustment.forgets_expired() {
            for charge in charges {
                let shard = locked.shard_mut(self.shard_number(charge.bucket));
                self.forget_expired(shard, charge, now);
            }
        }
        let (places, before) = self.read(&locked, charges, now);
        let after = charges.iter().zip(&before);
        let after: Buckets = after
            .map(|(charge, bucket)| {
                let shard = locked.shard(self.shard_number(charge.bucket));
                let above = shard.above(charge, shard.find(charge.bucket), &self.limits, now);
                let apply = |bucket| adjustment.apply(bucket, &charge.limit);
                with_room_for(above, *bucket, &charge.limit, apply)
            })
            .collect();
        if let Adjustment::GiveBack(_) = adjustment {
            self.undo(&mut locked, charges, &places, &after, now);
        }
        let held = charges.iter().map(|charge| self.held.adjust(charge, adjustment));
        let held: SmallVec<[Option<(i64, i64)>; INLINE_CHARGES]> = held.collect();
        let is_kept = |index: usize| held[index].is_none();
        self.write(&mut locked, charges, &places, &after, now, is_kept);
        let each = charges.iter().zip(&held).zip(before.iter().zip(&after));
        each.map(|((charge, held), (before, after))| {
            let shard = locked.shard_mut(self.shard_number(charge.bucket));
            held.unwrap_or_else(|| (before.level, self.risen(shard, charge, *after, now)))
        })
        .collect()
    }

    /// Gives back what a request took and does not use to the charge's bucket at `now`. Returns its
    /// level; `None` if it gets nothing back. The limits in force must be those of the charge.
    pub fn give_back(&self, charge: &Charge, returned: &Returned, now: u64) -> Option<i64> {
        let now = unix_time::at(now);
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let bucket = self.bucket_at(&shard, charge, place, now);
        let above = shard.above(charge, place, &self.limits, now);
        // A bucket with top-ups can have as many units more than a full one.
        let lower = Bucket { level: bucket.level.saturating_sub(above), ..bucket };
        let units = returned.back_to(lower, &charge.limit, now.us);
        if units == 0 {
            return None;
        }
        let level = bucket.level.saturating_add(units);
        let after = Bucket { level, ..bucket };
        self.store(&mut shard, charge, place, after, now);
        Some(self.risen(&mut shard, charge, after, now))
    }

    /// Forgets what was used of a bucket's top-ups that have expired.
    fn forget_expired(&self, shard: &mut Shard, charge: &Charge, now: Now) {
        if !shard.has_top_ups(charge.bucket) {
            return;
        }
        self.write_expiries(shard, charge, now);
        let mut top_ups = shard.top_ups(charge, shard.find(charge.bucket), &self.limits, now);
        top_ups.forget_expired(now.unix_us);
        shard.put_top_ups(charge.bucket, top_ups);
    }

    /// Takes what has expired of its top-ups from a bucket that has been written at a higher level.
    /// Returns its level then.
    fn risen(&self, shard: &mut Shard, charge: &Charge, written: Bucket, now: Now) -> i64 {
        if shard.has_top_ups(charge.bucket) {
            self.write_expiries(shard, charge, now)
        } else {
            written.level
        }
    }

    /// Writes a bucket without what has expired of its top-ups. Returns its level then.
    fn write_expiries(&self, shard: &mut Shard, charge: &Charge, now: Now) -> i64 {
        let place = shard.find(charge.bucket);
        let bucket = self.bucket_at(shard, charge, place, now);
        self.store(shard, charge, place, bucket, now);
        bucket.level
    }

    /// Takes `units` from the charge's bucket at `now`, which may then be in debt: what a request
    /// has cost beyond what it took. The limits in force must be those of the charge.
    pub fn debit(&self, charge: &Charge, units: i64, now: u64) {
        let now = unix_time::at(now);
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let before = self.bucket_at(&shard, charge, place, now);
        let log = || shard.take_log(charge, place, &self.limits);
        let settled = charge.limit.settled(before, log, units, now.us);
        self.put_with_log(&mut shard, charge, place, settled, now);
    }

    /// Changes the top-ups of the charge's bucket at `now` (microseconds), or reads them. Its limit
    /// is a fixed window.
    ///
    /// # Errors
    /// See [`TopUpError`].
    pub fn top_up(
        &self,
        charge: &Charge,
        wanted: &TopUpChange,
        now: u64,
    ) -> Result<ChangedTopUps, TopUpError> {
        let now = unix_time::at(now);
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let bucket = self.bucket_at(&shard, charge, place, now);
        let mut top_ups = shard.top_ups(charge, place, &self.limits, now);
        let (before, mut repeated) = (bucket.level, None);
        let after = match wanted {
            TopUpChange::List => before,
            TopUpChange::Add(one, text) => {
                repeated = shard.added(charge.bucket, one.id, now).map(str::to_owned);
                if repeated.is_some() {
                    before
                } else if shard.has_room_for_top_up(charge.bucket, now) {
                    let raised = top_ups.add(before, *one, charge.limit.full())?;
                    shard.note_added(charge.bucket, *one, text.clone());
                    raised
                } else {
                    return Err(TopUpError::NoRoom);
                }
            }
            TopUpChange::Revoke(id) => top_ups.revoke(before, *id, now.unix_us)?,
        };
        let all = shard.usable(charge.bucket, &top_ups, after, now);
        if *wanted != TopUpChange::List && repeated.is_none() {
            self.store(&mut shard, charge, place, Bucket { level: after, ..bucket }, now);
            shard.put_top_ups(charge.bucket, top_ups);
        }
        Ok(ChangedTopUps { before, after, all, repeated })
    }

    /// Maximum number of buckets.
    pub fn max_buckets(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bound()).sum()
    }

    /// Number of buckets in memory, including full ones that have not been dropped yet.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether there are no buckets in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of buckets that were dropped before they were full. While it rises, the bound is too
    /// low for the number of active clients, and new clients may start with less than their burst.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().evictions()).sum()
    }

    /// Same as [`take_all`](Self::take_all) for a request with one charge, the most common case.
    /// Without lists, the check costs half. Property tests compare the two.
    fn take_one(&self, charge: &Charge, now: Now, part: Share) -> Answer {
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let before = self.bucket_at(&shard, charge, place, now);
        let enough = charge.is_granted_at(before.level, part.needed(&charge.limit, charge.cost));
        let mut bucket = before;
        if enough {
            bucket = charge.taken_from(bucket, part.taken(&charge.limit, charge.cost));
        }
        let log = || shard.log(charge, place, &self.limits);
        let times = charge.limit.times(log, || before, bucket.level, part, charge.cost, now);
        if enough {
            self.store(&mut shard, charge, place, bucket, now);
        }
        let mut outcomes = Outcomes::new();
        outcomes.push(Outcome { level: bucket.level, enough, share: part, times });
        Answer::of(std::slice::from_ref(charge), outcomes)
    }

    fn take_all(&self, charges: &[Charge], now: Now, share: Share) -> Answer {
        let mut locked = self.lock(charges);
        let (places, buckets) = self.read(&locked, charges, now);
        let (answer, buckets) = self.decide(charges, &locked, &places, buckets, share, now);
        if !answer.allowed() {
            return answer;
        }
        let took = |index: usize| answer.outcomes[index].enough;
        self.write(&mut locked, charges, &places, &buckets, now, took);
        answer
    }

    /// Decides a request with these buckets. Returns them after it.
    fn decide(
        &self,
        charges: &[Charge],
        locked: &Locked<'_>,
        places: &Places,
        mut buckets: Buckets,
        part: Share,
        now: Now,
    ) -> (Answer, Buckets) {
        let answer = charge::take(charges, &mut buckets, part);
        let allowed = answer.allowed();
        let answer = answer.with_times(|index, outcome| {
            let charge = &charges[index];
            let log = || {
                let shard = locked.shard(self.shard_number(charge.bucket));
                shard.log(charge, places[index], &self.limits)
            };
            let before =
                || Bucket { level: outcome.level_before(charge, allowed), ..buckets[index] };
            charge.limit.times(log, before, outcome.level, part, charge.cost, now)
        });
        (answer, buckets)
    }

    /// Writes a bucket that was found in `place`.
    #[inline]
    fn store(&self, shard: &mut Shard, charge: &Charge, place: Place, bucket: Bucket, now: Now) {
        let before = || self.before(shard, charge, place, now);
        let recorded = charge.limit.recorded(bucket, before, now.us);
        self.put_with_log(shard, charge, place, recorded, now);
    }

    /// Writes a bucket that was found in `place`, and its log.
    #[inline]
    fn put_with_log(
        &self,
        shard: &mut Shard,
        charge: &Charge,
        place: Place,
        (bucket, log): (Bucket, Option<StampLog>),
        now: Now,
    ) {
        shard.settle_top_ups(charge, place, &self.limits, now);
        match place {
            Place::At(slot) => shard.replace(slot, charge, bucket),
            Place::Absent => shard.insert(charge, bucket, &self.limits, now),
        }
        if let Some(log) = log {
            self.put_log(shard, charge, log, now);
        }
    }

    /// Writes the log of a bucket that has been written.
    fn put_log(&self, shard: &mut Shard, charge: &Charge, log: StampLog, now: Now) {
        shard.put_log(charge, log);
        shard.shed(&self.limits, now);
    }

    /// Removes the log of a bucket that was found in `place`. Returns it, and the bucket.
    fn before(
        &self,
        shard: &mut Shard,
        charge: &Charge,
        place: Place,
        now: Now,
    ) -> (Option<StampLog>, Bucket) {
        let bucket = self.bucket_at(shard, charge, place, now);
        (shard.take_log(charge, place, &self.limits), bucket)
    }

    /// Removes the newest stamps from the logs of these buckets, so that their levels are as given.
    fn undo(
        &self,
        locked: &mut Locked<'_>,
        charges: &[Charge],
        places: &Places,
        buckets: &Buckets,
        now: Now,
    ) {
        for (index, charge) in charges.iter().enumerate() {
            let shard = locked.shard_mut(self.shard_number(charge.bucket));
            let log = || shard.take_log(charge, places[index], &self.limits);
            if let Some(log) = charge.limit.undone(log, buckets[index].level, now.us) {
                shard.put_log(charge, log);
            }
        }
    }

    /// Writes the buckets of the charges for whose index `is_moved` is true.
    fn write(
        &self,
        locked: &mut Locked<'_>,
        charges: &[Charge],
        places: &Places,
        buckets: &Buckets,
        now: Now,
        is_moved: impl Fn(usize) -> bool,
    ) {
        let mut logs: SmallVec<[(usize, Bucket, StampLog); 1]> = SmallVec::new();
        for (index, charge) in charges.iter().enumerate() {
            let before = || {
                let shard = locked.shard_mut(self.shard_number(charge.bucket));
                self.before(shard, charge, places[index], now)
            };
            if is_moved(index)
                && let (bucket, Some(log)) = charge.limit.recorded(buckets[index], before, now.us)
            {
                logs.push((index, bucket, log));
            }
        }
        let bucket = |index: usize| {
            let of_log = logs.iter().find(|(of, ..)| *of == index);
            of_log.map_or(buckets[index], |(_, bucket, _)| *bucket)
        };
        // Existing entries first: an insertion may move them to other slots.
        for (index, charge) in charges.iter().enumerate() {
            if let (true, Place::At(slot)) = (is_moved(index), places[index]) {
                let shard = locked.shard_mut(self.shard_number(charge.bucket));
                shard.settle_top_ups(charge, places[index], &self.limits, now);
                shard.replace(slot, charge, bucket(index));
            }
        }
        for (index, charge) in charges.iter().enumerate() {
            if let (true, Place::Absent) = (is_moved(index), places[index]) {
                let shard = locked.shard_mut(self.shard_number(charge.bucket));
                shard.insert(charge, bucket(index), &self.limits, now);
            }
        }
        for (index, _, log) in logs {
            let charge = &charges[index];
            let shard = locked.shard_mut(self.shard_number(charge.bucket));
            self.put_log(shard, charge, log, now);
        }
    }

    /// Locks the shards of the charges' buckets, in ascending order.
    fn lock(&self, charges: &[Charge]) -> Locked<'_> {
        let mut locked = Locked { numbers: SmallVec::new(), shards: SmallVec::new() };
        for charge in charges {
            locked.numbers.push(self.shard_number(charge.bucket));
        }
        locked.numbers.sort_unstable();
        locked.numbers.dedup();
        for number in &locked.numbers {
            locked.shards.push(self.shards[*number].0.lock());
        }
        locked
    }

    /// Finds the bucket of each charge and refills it to `now`.
    fn read(&self, locked: &Locked<'_>, charges: &[Charge], now: Now) -> (Places, Buckets) {
        let (mut places, mut buckets) = (Places::new(), Buckets::new());
        for charge in charges {
            let shard = locked.shard(self.shard_number(charge.bucket));
            let place = shard.find(charge.bucket);
            places.push(place);
            buckets.push(self.bucket_at(shard, charge, place, now));
        }
        (places, buckets)
    }

    /// State of the charge's bucket at `now`. `place` is the result of the search for it.
    fn bucket_at(&self, shard: &Shard, charge: &Charge, place: Place, now: Now) -> Bucket {
        let bucket = shard.bucket(charge, place, &self.limits, now);
        match place {
            Place::At(_) => bucket,
            Place::Absent => self.start.at_most(bucket, charge, now.us),
        }
    }

    /// Number of the shard of a bucket, from bits that do not affect its slot there.
    fn shard_number(&self, bucket: BucketId) -> usize {
        let high = (bucket.0 >> 64) as u64;
        scaled(high.wrapping_mul(self.seed), self.shards.len())
    }
}

impl Locked<'_> {
    /// The shard of this number, which is among them.
    fn shard(&self, number: usize) -> &Shard {
        &self.shards[self.numbers.partition_point(|other| *other < number)]
    }

    /// Same as [`shard`](Self::shard), to change it.
    fn shard_mut(&mut self, number: usize) -> &mut Shard {
        &mut self.shards[self.numbers.partition_point(|other| *other < number)]
    }
}

/// A change of a bucket that raises its level at most to full, with `above` units more.
fn with_room_for(
    above: i64,
    bucket: Bucket,
    limit: &Limit,
    change: impl FnOnce(Bucket) -> Bucket,
) -> Bucket {
    let lower = Bucket { level: bucket.level.saturating_sub(above), ..bucket };
    let changed = change(lower);
    let level = changed.level.saturating_add(above).min(limit.highest()).max(bucket.level);
    Bucket { level, ..changed }
}

/// Number of shards for a store of `max_buckets`: close to the target size, and enough for all
/// threads.
fn shard_count(max_buckets: usize) -> usize {
    let of_target_size = max_buckets.div_ceil(SHARD_BUCKETS).min(MAX_SHARDS);
    of_target_size.max(MIN_SHARDS.min(max_buckets / MIN_SHARD_BUCKETS)).max(1)
}
