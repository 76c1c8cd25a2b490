//! One shard: a table with a bound, what goes when the bound is reached, and what is remembered of
//! what went.

use super::quotas::{Known, Quotas};
use super::table::{Entry, Name, Place, Table};
use crate::limit::bucket::Bucket;
use crate::limit::charge::{BucketId, Charge};
use crate::limit::quota::Quota;

/// Buckets that the hand looks at in one go: enough to meet one that is full again or nearly so,
/// few enough, side by side in memory, to cost little more than finding the first of them.
const WINDOW: usize = 24;

/// Slots of the smallest table.
const FEWEST_SLOTS: usize = 8;

/// Some of the buckets, at most as many as its bound.
#[derive(Debug)]
pub(super) struct Shard {
    table: Table,
    /// The most buckets that are kept, at least 1.
    bound: usize,
    /// The slot at which the next look for a bucket to drop begins.
    hand: usize,
    /// By the quota's number: the tick by which every dropped bucket of that quota is full again.
    /// Empty until a bucket is dropped.
    all_full_at: Vec<u64>,
    /// Buckets that were dropped before they were full again.
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

    /// The charge's bucket at `now`, which a search has found or not found at `place`.
    pub(super) fn bucket(
        &self,
        charge: &Charge,
        place: Place,
        quotas: &Quotas,
        now: u64,
    ) -> Bucket {
        let entry = match place {
            Place::At(slot) => self.table.slot(slot),
            Place::Absent => None,
        };
        let bucket = match entry {
            None => self.newcomer(charge, now),
            Some(entry) if entry.quota_index == charge.quota_index => entry.bucket(),
            Some(entry) => same_fraction(entry, &quotas.load(), &charge.quota, now),
        };
        bucket.refilled(&charge.quota, now)
    }

    /// Keeps a bucket that was found in this slot.
    pub(super) fn replace(&mut self, slot: usize, charge: &Charge, bucket: Bucket) {
        self.table.replace(slot, entry(charge, bucket));
    }

    /// Keeps a bucket that was not found, and makes room for it first.
    pub(super) fn insert(&mut self, charge: &Charge, bucket: Bucket, quotas: &Quotas, now: u64) {
        if self.table.len() >= self.bound {
            self.evict(&quotas.load(), now);
        }
        self.make_room(quotas, now);
        self.table.insert(entry(charge, bucket));
    }

    /// A bucket that is not kept. Full, unless one was dropped that would not be full yet: this may
    /// be that one, so it is taken to be as empty as the emptiest of them can be.
    fn newcomer(&self, charge: &Charge, now: u64) -> Bucket {
        let quota = &charge.quota;
        let full_at = self.all_full_at.get(charge.quota_index as usize).copied().unwrap_or(0);
        let missing = quota.units_in(full_at.saturating_sub(now));
        Bucket { level: quota.full().saturating_sub(missing).max(0), at: now }
    }

    /// Drops the first bucket of the next few that is full again; where none is, the one of them
    /// that is nearest to full.
    ///
    /// One at a time, although more may be full: a hand that cleared all it passed would leave free
    /// slots behind it and, ahead of it, ever longer runs without any.
    fn evict(&mut self, quotas: &[Known], now: u64) {
        let mut nearest: Option<(u64, usize)> = None;
        let mut slot = self.hand;
        for _ in 0..WINDOW {
            slot = self.table.next_taken(slot);
            let Some(entry) = self.table.slot(slot) else { break };
            let full_at = full_at(entry, quotas);
            if nearest.is_none_or(|(tick, _)| full_at < tick) {
                nearest = Some((full_at, slot));
            }
            if full_at <= now {
                break;
            }
            slot += 1;
        }
        self.hand = (self.hand + WINDOW) % self.table.slots().max(1);
        if let Some((_, slot)) = nearest {
            self.drop_bucket(slot, quotas, now);
        }
    }

    /// Marks the numbers of quotas that buckets name.
    pub(super) fn mark_used(&self, used: &mut [bool]) {
        for entry in self.table.entries() {
            if let Some(mark) = used.get_mut(entry.quota_index as usize) {
                *mark = true;
            }
        }
    }

    /// Forgets what was dropped under a number that is to stand for another quota.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(tick) = self.all_full_at.get_mut(number as usize) {
            *tick = 0;
        }
    }

    /// What was dropped under a quota that was retired at `now` may come back under any that is
    /// granted, as full in proportion.
    pub(super) fn carry_over(&mut self, retired: u32, quotas: &[Known], now: u64) {
        let full_at = self.all_full_at.get(retired as usize).copied().unwrap_or(0);
        let (Some(was), true) = (quotas.get(retired as usize), full_at > now) else { return };
        let missing = was.quota.units_in(full_at - now);
        let emptiest = Bucket { level: was.quota.full().saturating_sub(missing).max(0), at: now };
        for (number, granted) in quotas.iter().enumerate().filter(|(_, known)| known.is_granted()) {
            let bucket = was.same_fraction(emptiest, &granted.quota, now);
            note(&mut self.all_full_at, number, bucket.full_at(&granted.quota));
        }
    }

    fn drop_bucket(&mut self, slot: usize, quotas: &[Known], now: u64) {
        if let Some(entry) = self.table.remove(slot) {
            let full_at = full_at(&entry, quotas);
            self.evictions += u64::from(full_at > now);
            remember(&mut self.all_full_at, quotas, &entry, full_at);
        }
    }

    /// Lets the table grow to 9/5 of what it must keep. Buckets that are full again need not be
    /// kept: where many are, the table stays as it is, or even shrinks.
    fn make_room(&mut self, quotas: &Quotas, now: u64) {
        let most_slots = (self.bound / 3).saturating_mul(4) + self.bound % 3 + 2;
        let slots = self.table.slots();
        if slots == most_slots || (self.table.len() + 1) * 4 <= slots * 3 {
            return;
        }
        let quotas = &quotas.load()[..];
        let needed = self.table.entries().filter(|entry| full_at(entry, quotas) > now).count();
        let all_full_at = &mut self.all_full_at;
        let keep = |entry: &Entry| {
            let full_at = full_at(entry, quotas);
            if full_at <= now {
                remember(all_full_at, quotas, entry, full_at);
            }
            full_at > now
        };
        self.table.rebuild(((needed + 1) * 9 / 5).max(FEWEST_SLOTS).min(most_slots), keep);
        self.hand = 0;
    }
}

fn entry(charge: &Charge, bucket: Bucket) -> Entry {
    Entry::new(Name::of(charge.bucket), charge.quota_index, bucket)
}

/// The tick at which the entry's bucket is full again. A quota that the store was not told of makes
/// it full at once: what it holds cannot be read.
fn full_at(entry: &Entry, quotas: &[Known]) -> u64 {
    let bucket = entry.bucket();
    quotas.get(entry.quota_index as usize).map_or(bucket.at, |known| bucket.full_at(&known.quota))
}

/// Remembers that a bucket was dropped which is full at `full_at`. One that is full already counts
/// as well: to a request that read the clock earlier, it is not full yet.
///
/// Where rules have changed since the bucket was written, it may be of any of them: whoever comes
/// back would have found it as full in proportion.
fn remember(all_full_at: &mut Vec<u64>, quotas: &[Known], entry: &Entry, full_at: u64) {
    let Some(known) = quotas.get(entry.quota_index as usize) else { return };
    if known.is_granted() {
        return note(all_full_at, entry.quota_index as usize, full_at);
    }
    for (number, granted) in quotas.iter().enumerate().filter(|(_, known)| known.is_granted()) {
        let bucket = known.same_fraction(entry.bucket(), &granted.quota, u64::MAX);
        note(all_full_at, number, bucket.full_at(&granted.quota));
    }
}

/// Raises the tick by which all dropped buckets of a quota are full.
fn note(all_full_at: &mut Vec<u64>, number: usize, full_at: u64) {
    if all_full_at.len() <= number {
        all_full_at.resize(number + 1, 0);
    }
    all_full_at[number] = full_at.max(all_full_at[number]);
}

/// An entry that was kept under another quota, as full in proportion under this one.
fn same_fraction(entry: &Entry, quotas: &[Known], quota: &Quota, now: u64) -> Bucket {
    let bucket = entry.bucket();
    quotas
        .get(entry.quota_index as usize)
        .map_or(Bucket::full(quota, bucket.at), |was| was.same_fraction(bucket, quota, now))
}
