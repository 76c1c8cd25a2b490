//! Units that requests of this process hold, by bucket, until they end; and what Redis has been
//! sent about them.
//!
//! Every request that holds units has a [`Hold`] for each bucket, whose drop releases them,
//! whatever ends the request. So this process always knows its number of units exactly. Redis has a
//! copy of it: each call with a check of the bucket *states* the number, so that a lost reply
//! leaves no wrong number for longer than until the next statement. Further statements are made
//! when requests end, and each third of a lease.
//!
//! The number in a statement must include the units of all earlier calls. So a bucket is in one
//! unanswered call with checks at a time ([`begin`](Held::begin)). After a call without a reply the
//! number in Redis is unknown, and is stated again.

pub(super) mod statements;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, MutexGuard};
use prometheus::GaugeVec;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::rule::StoredRule;
use crate::base::unix_time;
use crate::limit::Limit;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, BucketId, Charge};
use crate::limit::concurrency::HeldUnits;
use crate::limit::share::Share;
pub use statements::Due;

/// Number of shards, each with its own lock; more than there are threads.
const SHARDS: usize = 64;

/// Entries for which a shard always keeps room.
const MIN_CAPACITY: usize = 64;

/// Units that requests of this process hold.
#[derive(Debug)]
pub struct Held {
    shards: Box<[Mutex<Shard>]>,
    /// Identifies this process in Redis.
    gateway: u64,
    /// Whether Redis has a copy.
    is_shared: bool,
    /// Number of the last statement.
    number: AtomicU64,
    /// Notified when a bucket is due for a statement.
    due: Notify,
    /// Shard from which statements that are due are taken next.
    next_shard: AtomicUsize,
    /// Units that are held, by rule.
    gauge: Option<GaugeVec>,
}

/// Some of the buckets.
#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<BucketId, Entry>,
    /// Buckets that are due for a statement, unless it could not be made; all have an entry.
    due: HashSet<BucketId>,
}

/// One bucket. Present while requests hold units of it, and until Redis knows that none does.
#[derive(Debug)]
struct Entry {
    units: HeldUnits,
    limit: Limit,
    rule: StoredRule,
    /// Units of this process that Redis has; `None`: unknown.
    stated: Option<i64>,
    /// Number of the last statement; 0 before the first.
    number: u64,
    /// Time of the last statement, in microseconds.
    stated_at: u64,
    /// Units of requests that Redis is asked for, of which this process may grant only a share.
    reserved: i64,
    /// Whether a call with checks of the bucket is unanswered.
    is_asked: bool,
}

/// Units that a request holds, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the units"]
pub struct Hold {
    held: Arc<Held>,
    bucket: BucketId,
    units: i64,
    epoch: u32,
}

/// Units within the local share that a request reserves until the answer of Redis, after which it
/// is dropped.
#[derive(Debug)]
pub struct Reservation {
    held: Arc<Held>,
    units: SmallVec<[(BucketId, i64); 2]>,
}

/// Everything that a request holds.
pub type Holds = Vec<Hold>;

/// Locks of all shards that a request has buckets in.
pub(super) struct Locked<'a> {
    held: &'a Arc<Held>,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 2]>,
}

impl Held {
    /// Nothing held. `is_shared`: Redis gets a copy.
    pub fn new(is_shared: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            gateway: RandomState::new().hash_one(0),
            is_shared,
            number: AtomicU64::new(0),
            due: Notify::new(),
            next_shard: AtomicUsize::new(0),
            gauge: None,
        }
    }

    /// Shows in `gauge` how many units are held, by rule.
    #[must_use]
    pub fn shown_in(self, gauge: GaugeVec) -> Self {
        Self { gauge: Some(gauge), ..self }
    }

    /// Free units of the charge's bucket, as far as this process knows, if it may grant `share` of
    /// them; `None` if requests do not hold units of it.
    pub fn level(&self, charge: &Charge, share: Share) -> Option<i64> {
        charge.limit.free(|| self.shard(charge.bucket).lock().units(charge.bucket), share)
    }

    /// Number of buckets of which units are held, or whose statement is due.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Number of buckets that are due for a statement.
    #[cfg(test)]
    fn due_len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().due.len()).sum()
    }

    /// Whether no units are held, and none are stated.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the buckets of the charges whose units are held.
    pub(super) fn lock<'a>(self: &'a Arc<Self>, charges: &[Charge]) -> Locked<'a> {
        let mut numbers: SmallVec<[usize; 2]> =
            charge::held(charges).map(|charge| shard_number(charge.bucket)).collect();
        // Ascending, against deadlocks.
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter().map(|number| (number, self.shards[number].lock()));
        Locked { held: self, shards: shards.collect() }
    }

    /// Holds the units that `answer` has taken, a decision that another store made.
    pub fn hold(
        self: &Arc<Self>,
        charges: &[Charge],
        rules: &[StoredRule],
        answer: &Answer,
    ) -> Holds {
        self.lock(charges).hold(charges, rules, answer)
    }

    /// Reserves the units of these charges, which are of limits whose units are held, in a process
    /// that may grant `share` of them.
    ///
    /// # Errors
    /// The refusal, if the share has too few free units.
    pub fn reserve(
        self: &Arc<Self>,
        charges: &[Charge],
        rules: &[StoredRule],
        share: Share,
        now: u64,
    ) -> Result<Reservation, Box<Answer>> {
        let mut locked = self.lock(charges);
        let mut buckets: Vec<Bucket> = vec![Bucket { level: 0, at: now }; charges.len()];
        locked.read(charges, share, now, &mut buckets);
        let answer =
            charge::take(charges, &mut buckets, share).decided_at(charges, unix_time::at(now));
        if !answer.allowed() {
            return Err(Box::new(answer));
        }
        let mut reserved = Reservation { held: Arc::clone(self), units: SmallVec::new() };
        for (charge, units) in charge::held_units(charges, &answer) {
            if let Some(entry) = locked.entry(charge, rules) {
                entry.reserved += units;
                reserved.units.push((charge.bucket, units));
            }
        }
        Ok(reserved)
    }

    /// Frees units of the charge's bucket for an operator. Returns the level before and after;
    /// `None` if requests do not hold units of it.
    pub fn adjust(&self, charge: &Charge, adjustment: Adjustment) -> Option<(i64, i64)> {
        let mut shard = self.shard(charge.bucket).lock();
        let before = shard.level(charge, Share::WHOLE)?;
        if let Some(entry) = shard.entries.get_mut(&charge.bucket) {
            entry.units.free(adjustment.units(&charge.limit));
            entry.stated = None;
        }
        let after = shard.level(charge, Share::WHOLE)?;
        self.settle(&mut shard, charge.bucket);
        Some((before, after))
    }

    fn release(&self, bucket: BucketId, units: i64, epoch: u32) {
        let mut shard = self.shard(bucket).lock();
        if let Some(entry) = shard.entries.get_mut(&bucket) {
            entry.units.release(units, epoch);
            self.show(&entry.rule, -units);
        }
        self.settle(&mut shard, bucket);
    }

    /// Removes the entry of a bucket if it is not needed any more, or notes that its statement is
    /// due.
    fn settle(&self, shard: &mut Shard, bucket: BucketId) {
        let Some(entry) = shard.entries.get_mut(&bucket) else { return };
        let is_known = !self.is_shared || entry.number == 0 || entry.stated == Some(0);
        if entry.units.is_empty() && entry.reserved == 0 && is_known && !entry.is_asked {
            shard.entries.remove(&bucket);
            shard.due.remove(&bucket);
            shard.shrink();
        } else if self.is_shared && entry.needs_statement() && shard.due.insert(bucket) {
            self.due.notify_one();
        }
    }

    fn show(&self, rule: &StoredRule, units: i64) {
        #[allow(clippy::cast_precision_loss, reason = "at most a billion")]
        if let Some(gauge) = &self.gauge {
            gauge.with_label_values(&[&rule.name]).add(units as f64 / 1_000.0);
        }
    }

    fn shard(&self, bucket: BucketId) -> &Mutex<Shard> {
        &self.shards[shard_number(bucket)]
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the remainder is below SHARDS")]
fn shard_number(bucket: BucketId) -> usize {
    (bucket.0 % SHARDS as u128) as usize
}

/// Whether a table has far more room than it needs. Seldom true after it was shrunk to twice its
/// length.
const fn is_sparse(len: usize, capacity: usize) -> bool {
    capacity > MIN_CAPACITY && capacity / 8 > len
}

impl Shard {
    /// Gives memory back that a peak has left.
    fn shrink(&mut self) {
        if is_sparse(self.entries.len(), self.entries.capacity()) {
            self.entries.shrink_to((2 * self.entries.len()).max(MIN_CAPACITY / 2));
        }
        if is_sparse(self.due.len(), self.due.capacity()) {
            self.due.shrink_to((2 * self.due.len()).max(MIN_CAPACITY / 2));
        }
    }

    /// Units of the bucket that requests hold or have reserved.
    fn units(&self, bucket: BucketId) -> i64 {
        let entry = self.entries.get(&bucket);
        entry.map_or(0, |entry| entry.units.units() + entry.reserved)
    }

    /// Free units of the charge's bucket; `None` if requests do not hold units of it.
    fn level(&self, charge: &Charge, share: Share) -> Option<i64> {
        charge.limit.free(|| self.units(charge.bucket), share)
    }
}

impl Entry {
    fn new(limit: Limit, rule: StoredRule) -> Self {
        Self {
            units: HeldUnits::default(),
            limit,
            rule,
            stated: None,
            number: 0,
            stated_at: 0,
            reserved: 0,
            is_asked: false,
        }
    }

    /// Whether Redis may have another number of units. The reply to an unanswered call decides that
    /// later.
    fn needs_statement(&self) -> bool {
        !self.is_asked && self.stated != Some(self.units.units())
    }
}

impl Locked<'_> {
    /// Sets the buckets of the charges whose units are held to their levels at `now`.
    pub(super) fn read(&self, charges: &[Charge], share: Share, now: u64, buckets: &mut [Bucket]) {
        for (charge, bucket) in charges.iter().zip(buckets) {
            let level = self.shard(charge).and_then(|held| held.level(charge, share));
            if let Some(level) = level {
                *bucket = Bucket { level, at: now };
            }
        }
    }

    /// Holds the units that `answer` has taken.
    pub(super) fn hold(
        mut self,
        charges: &[Charge],
        rules: &[StoredRule],
        answer: &Answer,
    ) -> Holds {
        let mut holds = Holds::new();
        for (charge, units) in charge::held_units(charges, answer) {
            let held = Arc::clone(self.held);
            let Some(entry) = self.entry(charge, rules) else { continue };
            entry.limit = charge.limit;
            let epoch = entry.units.take(units);
            held.show(&entry.rule, units);
            if let Some(shard) = self.shard_mut(charge) {
                held.settle(shard, charge.bucket);
            }
            holds.push(Hold { held, bucket: charge.bucket, units, epoch });
        }
        holds
    }

    /// The entry of the charge's bucket; `None` if its rule is not among `rules`.
    fn entry(&mut self, charge: &Charge, rules: &[StoredRule]) -> Option<&mut Entry> {
        let rule = rules.get(charge.rule as usize)?;
        let entry = self.shard_mut(charge)?.entries.entry(charge.bucket);
        Some(entry.or_insert_with(|| Entry::new(charge.limit, rule.clone())))
    }

    fn shard_mut(&mut self, charge: &Charge) -> Option<&mut Shard> {
        let number = shard_number(charge.bucket);
        let shard = self.shards.iter_mut().find(|(other, _)| *other == number);
        shard.map(|(_, shard)| &mut **shard)
    }

    fn shard(&self, charge: &Charge) -> Option<&Shard> {
        let number = shard_number(charge.bucket);
        let shard = self.shards.iter().find(|(other, _)| *other == number);
        shard.map(|(_, shard)| &**shard)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.release(self.bucket, self.units, self.epoch);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for (bucket, units) in &self.units {
            let mut shard = self.held.shard(*bucket).lock();
            if let Some(entry) = shard.entries.get_mut(bucket) {
                entry.reserved -= units;
            }
            self.held.settle(&mut shard, *bucket);
        }
    }
}

#[cfg(test)]
mod tests;
