//! One shard of the memory store: a bounded table, its eviction, and the record of dropped buckets.

use super::limits::{Known, Limits};
use super::table::{Entry, Name, Place, Table};
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{BucketId, Charge};

/// Number of buckets that one eviction examines. Enough to find one that is full or nearly full; few
/// enough that, adjacent in memory, they cost little more than the first.
const EVICTION_WINDOW: usize = 24;

/// Minimum number of slots of a table.
const MIN_SLOTS: usize = 8;

/// A bounded part of the buckets.
#[derive(Debug)]
pub(super) struct Shard {
    table: Table,
    /// Maximum number of buckets, at least 1.
    bound: usize,
    /// Slot at which the next eviction starts, as the hand of a clock.
    hand: usize,
    /// By limit number: the time at which every dropped bucket of that limit is full again. Empty until
    /// a bucket is dropped.
    all_full_at: Vec<u64>,
    /// Number of buckets that were dropped before they were full.
    evictions: u64,
}

impl Shard {
    pub(super) fn new(bound: usize, seed: u64) -> Self {
        let bound = if bound == 0 { 1 } else { bound };
        Self { table: Table::new(seed), bound, hand: 0, all_full_at: Vec::new(), evictions: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(super) const fn bound(&self) -> usize {
        self.bound
    }

    pub(super) const fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(super) fn find(&self, bucket: BucketId) -> Place {
        self.table.find(Name::of(bucket))
    }

    /// State of the charge's bucket at `now`. `place` is the result of the search for it.
    pub(super) fn bucket(
        &self,
        charge: &Charge,
        place: Place,
        limits: &Limits,
        now: u64,
    ) -> Bucket {
        let entry = match place {
            Place::At(slot) => self.table.slot(slot),
            Place::Absent => None,
        };
        let bucket = match entry {
            None => self.new_bucket(charge, now),
            Some(entry) if entry.limit_index == charge.limit_index => entry.bucket(),
            Some(entry) => same_fraction(entry, &limits.load(), &charge.limit, now),
        };
        bucket.refilled(&charge.limit, now)
    }

    /// Writes a bucket to the slot in which it was found.
    pub(super) fn replace(&mut self, slot: usize, charge: &Charge, bucket: Bucket) {
        self.table.replace(slot, entry(charge, bucket));
    }

    /// Adds a bucket that was not found. Drops another one if the shard is at its bound.
    pub(super) fn insert(&mut self, charge: &Charge, bucket: Bucket, limits: &Limits, now: u64) {
        if self.table.len() >= self.bound {
            self.evict(&limits.load(), now);
        }
        self.make_room(limits, now);
        self.table.insert(entry(charge, bucket));
    }

    /// Start value of a bucket that is not in the shard. Full, unless a dropped bucket of its limit would
    /// not be full yet: since it may be this one, it starts at the lowest level that any of them can
    /// have.
    fn new_bucket(&self, charge: &Charge, now: u64) -> Bucket {
        let limit = &charge.limit;
        let full_at = self.all_full_at.get(charge.limit_index as usize).copied().unwrap_or(0);
        let missing = limit.units_in(full_at.saturating_sub(now));
        Bucket { level: limit.full().saturating_sub(missing).max(0), at: now }
    }

    /// Drops the first full bucket of the next [`EVICTION_WINDOW`]; if none is full, the one that is
    /// nearest to full.
    ///
    /// Only one, even if more are full: dropping all of them would leave free slots behind the hand,
    /// and ever longer runs without free slots ahead of it.
    fn evict(&mut self, limits: &[Known], now: u64) {
        let mut nearest: Option<(u64, usize)> = None;
        let mut slot = self.hand;
        for _ in 0..EVICTION_WINDOW {
            slot = self.table.next_taken(slot);
            let Some(entry) = self.table.slot(slot) else { break };
            let full_at = full_at(entry, limits);
            if nearest.is_none_or(|(earliest, _)| full_at < earliest) {
                nearest = Some((full_at, slot));
            }
            if full_at <= now {
                break;
            }
            slot += 1;
        }
        self.hand = (self.hand + EVICTION_WINDOW) % self.table.slots().max(1);
        if let Some((_, slot)) = nearest {
            self.drop_bucket(slot, limits, now);
        }
    }

    /// The buckets that are not full at `now`, refilled to `now`: name, limit number and level.
    pub(super) fn export(&self, limits: &[Known], now: u64) -> Vec<(Name, u32, i64)> {
        let level = |entry: &Entry| {
            let limit = limits.get(entry.limit_index as usize)?.limit;
            let level = entry.bucket().refilled(&limit, now).level;
            (level < limit.full()).then_some((entry.name, entry.limit_index, level))
        };
        self.table.entries().filter_map(level).collect()
    }

    /// By limit number: microseconds from `now` until every dropped bucket of that limit is full again.
    pub(super) fn export_dropped(&self, now: u64) -> Vec<u64> {
        self.all_full_at.iter().map(|full_at| full_at.saturating_sub(now)).collect()
    }

    /// Adds a bucket of another store, unless the shard has one of this name.
    pub(super) fn import(
        &mut self,
        name: Name,
        number: u32,
        level: i64,
        limits: &Limits,
        now: u64,
    ) {
        if let Place::At(_) = self.table.find(name) {
            return;
        }
        if self.table.len() >= self.bound {
            self.evict(&limits.load(), now);
        }
        self.make_room(limits, now);
        self.table.insert(Entry::new(name, number, Bucket { level, at: now }));
    }

    /// Adds the record of dropped buckets of a limit, which are full at `full_at`.
    pub(super) fn import_dropped(&mut self, number: u32, full_at: u64, limits: &[Known], now: u64) {
        note(&mut self.all_full_at, number as usize, full_at);
        if limits.get(number as usize).is_some_and(|known| !known.is_in_force()) {
            self.carry_over(number, limits, now);
        }
    }

    /// Marks the numbers of all limits that buckets of this shard are counted in.
    pub(super) fn mark_used(&self, used: &mut [bool]) {
        for entry in self.table.entries() {
            if let Some(mark) = used.get_mut(entry.limit_index as usize) {
                *mark = true;
            }
        }
    }

    /// Clears the record of dropped buckets for a limit number that is about to be reused.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(full_at) = self.all_full_at.get_mut(number as usize) {
            *full_at = 0;
        }
    }

    /// Extends the record of dropped buckets of a limit, retired at `now`, to all limits in force: such
    /// a bucket may return under any of them, at the same fraction of full.
    pub(super) fn carry_over(&mut self, retired: u32, limits: &[Known], now: u64) {
        let full_at = self.all_full_at.get(retired as usize).copied().unwrap_or(0);
        let (Some(was), true) = (limits.get(retired as usize), full_at > now) else { return };
        let missing = was.limit.units_in(full_at - now);
        let emptiest = Bucket { level: was.limit.full().saturating_sub(missing).max(0), at: now };
        for (number, in_force) in limits.iter().enumerate().filter(|(_, known)| known.is_in_force())
        {
            let bucket = was.same_fraction(emptiest, &in_force.limit, now);
            note(&mut self.all_full_at, number, bucket.full_at(&in_force.limit));
        }
    }

    fn drop_bucket(&mut self, slot: usize, limits: &[Known], now: u64) {
        if let Some(entry) = self.table.remove(slot) {
            let full_at = full_at(&entry, limits);
            self.evictions += u64::from(full_at > now);
            remember(&mut self.all_full_at, limits, &entry, full_at);
        }
    }

    /// Grows the table, if needed, to 9/5 of the buckets that are not full. Full buckets are dropped, so
    /// the table may stay the same size or shrink.
    fn make_room(&mut self, limits: &Limits, now: u64) {
        let max_slots = (self.bound / 3).saturating_mul(4) + self.bound % 3 + 2;
        let slots = self.table.slots();
        if slots == max_slots || (self.table.len() + 1) * 4 <= slots * 3 {
            return;
        }
        let limits = &limits.load()[..];
        let needed = self.table.entries().filter(|entry| full_at(entry, limits) > now).count();
        let all_full_at = &mut self.all_full_at;
        let keep = |entry: &Entry| {
            let full_at = full_at(entry, limits);
            if full_at <= now {
                remember(all_full_at, limits, entry, full_at);
            }
            full_at > now
        };
        self.table.rebuild(((needed + 1) * 9 / 5).max(MIN_SLOTS).min(max_slots), keep);
        self.hand = 0;
    }
}

fn entry(charge: &Charge, bucket: Bucket) -> Entry {
    Entry::new(Name::of(charge.bucket), charge.limit_index, bucket)
}

/// Time at which the entry's bucket is full, in microseconds. With an unknown limit, the level cannot
/// be interpreted, and the bucket counts as full.
fn full_at(entry: &Entry, limits: &[Known]) -> u64 {
    let bucket = entry.bucket();
    limits.get(entry.limit_index as usize).map_or(bucket.at, |known| bucket.full_at(&known.limit))
}

/// Records that a bucket was dropped that is full at `full_at`. Full buckets are recorded too: for a
/// request that read the clock earlier, such a bucket is not full yet.
///
/// If the bucket's limit is no longer in force, the bucket is recorded under all limits in force, at
/// the same fraction of full.
fn remember(all_full_at: &mut Vec<u64>, limits: &[Known], entry: &Entry, full_at: u64) {
    let Some(known) = limits.get(entry.limit_index as usize) else { return };
    if known.is_in_force() {
        return note(all_full_at, entry.limit_index as usize, full_at);
    }
    for (number, in_force) in limits.iter().enumerate().filter(|(_, known)| known.is_in_force()) {
        let bucket = known.same_fraction(entry.bucket(), &in_force.limit, u64::MAX);
        note(all_full_at, number, bucket.full_at(&in_force.limit));
    }
}

/// Raises the time at which all dropped buckets of a limit are full.
fn note(all_full_at: &mut Vec<u64>, number: usize, full_at: u64) {
    if all_full_at.len() <= number {
        all_full_at.resize(number + 1, 0);
    }
    all_full_at[number] = full_at.max(all_full_at[number]);
}

/// Converts an entry of another limit to `limit`, at the same fraction of full.
fn same_fraction(entry: &Entry, limits: &[Known], limit: &Limit, now: u64) -> Bucket {
    let bucket = entry.bucket();
    limits
        .get(entry.limit_index as usize)
        .map_or(Bucket::full(limit, bucket.at), |was| was.same_fraction(bucket, limit, now))
}
