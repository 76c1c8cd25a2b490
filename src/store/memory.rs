//! Buckets in this process: the limiter's core over a bounded map that all threads share.
//!
//! # The bound, and what it costs
//!
//! At most `max_buckets` are kept; memory grows with the buckets there are, not with the bound. A
//! bucket that is full again says no more than one that was never there, so such buckets go first
//! and their going changes nothing. Where a flood of clients leaves none of them, buckets that are
//! nearest to full go, a few looked at each time.
//!
//! A client whose bucket went early must not find a full one when it returns. So each shard keeps,
//! for each quota, the latest tick at which a dropped bucket would have been full, and whoever is
//! new before that tick starts no fuller than a bucket that is full at that tick. **Under such a
//! flood a newcomer may start with fewer tokens than its burst; no client ever gets more.** With
//! room for all buckets that are in use, none of this happens and every answer is exact. See
//! [`MemoryStore::evictions`].
//!
//! # Threads
//!
//! Buckets lie in shards with a lock each. A request locks the shards of all its buckets, in
//! ascending order so that no two requests wait for each other, then decides, then writes: what it
//! takes from one bucket and from another happens at once.

mod quotas;
mod shard;
mod start;
mod table;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, BucketId, Charge, Outcome, Outcomes};
use crate::limit::quota::Quota;
use crate::limit::share::Share;
use quotas::Quotas;
use shard::Shard;
use start::Start;
use table::{Place, scaled};

/// Buckets of a shard that is as large as it should get: growing holds its lock for some tens of
/// microseconds.
const SHARD_BUCKETS: usize = 8_192;

/// Below this many buckets a shard would be at its bound long before its neighbours.
const FEWEST_SHARD_BUCKETS: usize = 64;

/// Shards of a store that has buckets enough: more than there are threads.
const FEWEST_SHARDS: usize = 16;

/// Shards beyond which they get larger rather than more.
const MOST_SHARDS: usize = 4_096;

/// Charges of a request up to which nothing is allocated.
const INLINE_CHARGES: usize = 6;

/// Buckets in memory, bounded in number, exact.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Padded]>,
    quotas: Quotas,
    start: Start,
    /// Odd, random: see [`table`].
    seed: u64,
}

/// A shard on cache lines of its own: the lock of one is no business of its neighbour's. Two lines,
/// because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// The shards of one request, each once, by ascending number.
type Numbers = SmallVec<[usize; INLINE_CHARGES]>;
/// The same shards, locked.
type Locked<'a> = SmallVec<[MutexGuard<'a, Shard>; INLINE_CHARGES]>;
/// Where the search for each charge's bucket ended.
type Places = SmallVec<[Place; INLINE_CHARGES]>;
/// Each charge's bucket.
type Buckets = SmallVec<[Bucket; INLINE_CHARGES]>;

impl MemoryStore {
    /// An empty store for at most `max_buckets`, at least 1. [`Charge::quota_index`] points into
    /// `quotas`, until others are adopted.
    pub fn new(max_buckets: usize, quotas: &[Quota]) -> Self {
        Self::with_seed(max_buckets, quotas, RandomState::new().hash_one(0))
    }

    fn with_seed(max_buckets: usize, quotas: &[Quota], seed: u64) -> Self {
        let seed = seed | 1;
        let max_buckets = max_buckets.max(1);
        let count = shard_count(max_buckets);
        // The first shards take one bucket more where the bound does not divide evenly.
        let bound = |number| max_buckets / count + usize::from(number < max_buckets % count);
        let shards = (0..count).map(|number| Padded(Mutex::new(Shard::new(bound(number), seed))));
        Self {
            shards: shards.collect(),
            quotas: Quotas::new(quotas),
            start: Start::default(),
            seed,
        }
    }

    /// Buckets that are not known begin empty at `now`, instead of full, until `ends` is set: for a
    /// process that may have granted tokens before, and forgot. It grants `share` of each.
    pub fn start_empty(&self, share: Share, ends: Arc<AtomicBool>, now: u64) {
        self.start.empty(share, ends, now);
    }

    /// Other quotas are granted from `now` (ticks) on. Returns what [`Charge::quota_index`] is to be
    /// for each of them. Buckets under quotas that are granted no more keep their fraction. One
    /// caller at a time.
    pub fn adopt(&self, quotas: &[Quota], now: u64) -> Vec<u32> {
        let mut adopted = self.quotas.adopt(quotas, now, |count| {
            let mut used = vec![false; count];
            self.shards.iter().for_each(|shard| shard.0.lock().mark_used(&mut used));
            used
        });
        for shard in &self.shards {
            adopted.reused.iter().for_each(|number| shard.0.lock().forget(*number));
        }
        self.quotas.publish(&mut adopted);
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            let list = self.quotas.load();
            adopted.retired.iter().for_each(|number| shard.carry_over(*number, &list, now));
        }
        adopted.numbers
    }

    /// Decides one request at `now` (ticks) and takes its tokens: from all its buckets, or from
    /// none. A request that is refused changes nothing.
    pub fn take(&self, charges: &[Charge], now: u64, share: Share) -> Answer {
        match charges {
            [charge] => self.take_one(charge, now, share),
            _ => self.take_all(charges, now, share),
        }
    }

    /// What [`take`](Self::take) would answer. Nothing is taken, and nothing kept.
    pub fn peek(&self, charges: &[Charge], now: u64, share: Share) -> Answer {
        let numbers = self.shard_numbers(charges);
        let locked = self.lock(&numbers);
        let (_, mut buckets) = self.read(&numbers, &locked, charges, now);
        charge::take(charges, &mut buckets, share)
    }

    /// The charge's bucket at `now`, as this store knows it.
    pub fn bucket(&self, charge: &Charge, now: u64) -> Bucket {
        let shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        self.bucket_at(&shard, charge, shard.find(charge.bucket), now)
    }

    /// Puts the charge's bucket where somebody who knows better says that it is at `now`.
    pub fn put(&self, charge: &Charge, level: i64, now: u64) {
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let bucket = Bucket { level, at: now };
        match shard.find(charge.bucket) {
            Place::At(slot) => shard.replace(slot, charge, bucket),
            Place::Absent => shard.insert(charge, bucket, &self.quotas, now),
        }
    }

    /// Changes buckets by hand at `now`, at once. Returns their levels before and after.
    pub fn adjust(&self, charges: &[Charge], adjustment: Adjustment, now: u64) -> Vec<(i64, i64)> {
        let numbers = self.shard_numbers(charges);
        let mut locked = self.lock(&numbers);
        let (places, before) = self.read(&numbers, &locked, charges, now);
        let after = charges.iter().zip(&before);
        let after: Buckets =
            after.map(|(charge, bucket)| adjustment.apply(*bucket, &charge.quota)).collect();
        self.write(&numbers, &mut locked, charges, (&places, &after), now, |_| true);
        before.iter().zip(&after).map(|(before, after)| (before.level, after.level)).collect()
    }

    /// Buckets that are kept, the full ones among them that nobody has missed yet included.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether no bucket is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buckets that were dropped before they were full again. While it rises, the bound is too low
    /// for the clients there are, and newcomers may start with less than their burst.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().evictions()).sum()
    }

    /// What [`take_all`](Self::take_all) does, for the most common request: one bucket needs no
    /// lists, and without them a check costs half. Tests hold the two equal.
    fn take_one(&self, charge: &Charge, now: u64, part: Share) -> Answer {
        let mut shard = self.shards[self.shard_number(charge.bucket)].0.lock();
        let place = shard.find(charge.bucket);
        let mut bucket = self.bucket_at(&shard, charge, place, now);
        let enough = bucket.level >= part.needed(&charge.quota, charge.cost);
        if enough {
            bucket = bucket.less(part.taken(&charge.quota, charge.cost));
            match place {
                Place::At(slot) => shard.replace(slot, charge, bucket),
                Place::Absent => shard.insert(charge, bucket, &self.quotas, now),
            }
        }
        let mut outcomes = Outcomes::new();
        outcomes.push(Outcome { level: bucket.level, enough, share: part });
        Answer::of(std::slice::from_ref(charge), outcomes)
    }

    fn take_all(&self, charges: &[Charge], now: u64, part: Share) -> Answer {
        let numbers = self.shard_numbers(charges);
        let mut locked = self.lock(&numbers);
        let (places, mut buckets) = self.read(&numbers, &locked, charges, now);
        let answer = charge::take(charges, &mut buckets, part);
        if !answer.allowed() {
            return answer;
        }
        let took = |index: usize| answer.outcomes[index].enough;
        self.write(&numbers, &mut locked, charges, (&places, &buckets), now, took);
        answer
    }

    /// Keeps the buckets of those charges, by their indexes, that `is_moved` names.
    fn write(
        &self,
        numbers: &Numbers,
        locked: &mut Locked<'_>,
        charges: &[Charge],
        (places, buckets): (&Places, &Buckets),
        now: u64,
        is_moved: impl Fn(usize) -> bool,
    ) {
        // What was found is written first: it lies where it was until something is inserted.
        for (index, charge) in charges.iter().enumerate() {
            if let (true, Place::At(slot)) = (is_moved(index), places[index]) {
                let shard = &mut locked[self.position(numbers, charge)];
                shard.replace(slot, charge, buckets[index]);
            }
        }
        for (index, charge) in charges.iter().enumerate() {
            if let (true, Place::Absent) = (is_moved(index), places[index]) {
                let shard = &mut locked[self.position(numbers, charge)];
                shard.insert(charge, buckets[index], &self.quotas, now);
            }
        }
    }

    fn shard_numbers(&self, charges: &[Charge]) -> Numbers {
        let mut numbers = Numbers::new();
        for charge in charges {
            numbers.push(self.shard_number(charge.bucket));
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn lock(&self, numbers: &Numbers) -> Locked<'_> {
        let mut locked = Locked::new();
        for number in numbers {
            locked.push(self.shards[*number].0.lock());
        }
        locked
    }

    /// Finds the bucket of each charge and refills it to `now`.
    fn read(
        &self,
        numbers: &Numbers,
        locked: &Locked<'_>,
        charges: &[Charge],
        now: u64,
    ) -> (Places, Buckets) {
        let (mut places, mut buckets) = (Places::new(), Buckets::new());
        for charge in charges {
            let shard = &locked[self.position(numbers, charge)];
            let place = shard.find(charge.bucket);
            places.push(place);
            buckets.push(self.bucket_at(shard, charge, place, now));
        }
        (places, buckets)
    }

    /// The charge's bucket at `now`, which a search has found or not found at `place`.
    fn bucket_at(&self, shard: &Shard, charge: &Charge, place: Place, now: u64) -> Bucket {
        let bucket = shard.bucket(charge, place, &self.quotas, now);
        match place {
            Place::At(_) => bucket,
            Place::Absent => self.start.at_most(bucket, charge, now),
        }
    }

    /// Where among the request's shards the charge's is.
    fn position(&self, numbers: &Numbers, charge: &Charge) -> usize {
        let number = self.shard_number(charge.bucket);
        numbers.partition_point(|other| *other < number)
    }

    /// The shard of a bucket, by bits that take no part in choosing its slot there.
    fn shard_number(&self, bucket: BucketId) -> usize {
        let high = (bucket.0 >> 64) as u64;
        scaled(high.wrapping_mul(self.seed), self.shards.len())
    }
}

/// Shards for that many buckets: of a good size, and enough of them for all threads.
fn shard_count(max_buckets: usize) -> usize {
    let of_good_size = max_buckets.div_ceil(SHARD_BUCKETS).min(MOST_SHARDS);
    of_good_size.max(FEWEST_SHARDS.min(max_buckets / FEWEST_SHARD_BUCKETS)).max(1)
}
