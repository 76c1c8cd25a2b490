//! One shard of the memory store: a bounded table, the logs of its sliding windows, their eviction,
//! and the record of dropped buckets.

use super::changed::{ChangedLog, ChangedLogs};
use super::limits::{Known, Limits};
use super::logs::Logs;
use super::table::{Entry, Name, Place, Table};
use super::top_ups::{AllTopUps, ExportedAddition, ExportedTopUps};
use crate::base::now::Now;
use crate::limit::Limit;
use crate::limit::bucket::{Bucket, CLOCK_SLACK_US};
use crate::limit::charge::{BucketId, Charge};
use crate::limit::reading::LeftOfTopUps;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::stamp_log::StampLog;
use crate::limit::top_up::{LeftTopUp, TopUp, TopUps};

/// Number of buckets that one eviction examines. Enough to find one that is full or nearly full;
/// few enough that, adjacent in memory, they cost little more than the first.
const EVICTION_WINDOW: usize = 24;

/// Minimum number of slots of a table.
const MIN_SLOTS: usize = 8;

/// A bounded part of the buckets.
#[derive(Debug)]
pub(super) struct Shard {
    table: Table,
    logs: Logs,
    top_ups: AllTopUps,
    /// Logs that have changed since they were last kept; `None` if none are.
    changed: Option<ChangedLogs>,
    /// Maximum number of buckets, at least 1. Logs count as the buckets whose memory they take.
    bound: usize,
    /// Slot at which the next eviction starts, as the hand of a clock.
    hand: usize,
    /// By limit number: what is known of the dropped buckets of that limit. Empty until a bucket is
    /// dropped.
    dropped: Vec<Dropped>,
    /// Number of buckets that were dropped before they were full.
    evictions: u64,
}

/// The dropped buckets of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    /// Time at which every one of them is full again.
    full_at: u64,
    /// Without a refill: the emptiest of them.
    emptiest: Missing,
    /// Without a refill: the emptiest of those that were dropped after that one. Applies once that
    /// one is full.
    next: Missing,
}

/// A bucket as it is handed to another store.
pub(super) struct Exported {
    pub(super) name: Name,
    /// Number of its limit.
    pub(super) number: u32,
    pub(super) level: i64,
    /// Age of each stamp of a log in microseconds.
    pub(super) ages: Vec<i64>,
}

/// Dropped buckets of a limit, as they are handed to another store.
pub(super) struct ExportedDropped {
    /// Microseconds until every one of them is full again.
    pub(super) full_in_us: u64,
    /// Units that the emptiest lacks until then.
    pub(super) missing: i64,
}

/// Units that a dropped bucket lacks until it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    units: i64,
    full_at: u64,
}

impl Shard {
    pub(super) fn new(bound: usize, seed: u64) -> Self {
        let bound = if bound == 0 { 1 } else { bound };
        Self {
            table: Table::new(seed),
            logs: Logs::default(),
            top_ups: AllTopUps::default(),
            changed: None,
            bound,
            hand: 0,
            dropped: Vec::new(),
            evictions: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

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
        now: Now,
    ) -> Bucket {
        let refilled = self.refilled(charge, place, limits, now);
        if self.top_ups.is_empty() {
            return refilled;
        }
        self.with_top_ups(charge, place, refilled, limits, now)
            .map_or(refilled, |(bucket, _)| bucket)
    }

    /// The same without top-ups.
    #[inline]
    fn refilled(&self, charge: &Charge, place: Place, limits: &Limits, now: Now) -> Bucket {
        let bucket = || {
            let entry = match place {
                Place::At(slot) => self.table.slot(slot),
                Place::Absent => None,
            };
            match entry {
                None => self.new_bucket(charge, now),
                Some(entry) if entry.limit_index == charge.limit_index => entry.bucket(),
                Some(entry) => same_fraction(entry, &limits.load(), &charge.limit, now),
            }
        };
        charge.limit.current(|| self.log(charge, place, limits), bucket, now)
    }

    /// The charge's bucket at `now` with its top-ups, and these; `None` without any. `refilled` is
    /// the bucket without them.
    fn with_top_ups(
        &self,
        charge: &Charge,
        place: Place,
        refilled: Bucket,
        limits: &Limits,
        now: Now,
    ) -> Option<(Bucket, TopUps)> {
        let mut top_ups = self.top_ups.get(Name::of(charge.bucket))?.clone();
        let Limit::FixedWindow(window) = charge.limit else { return None };
        let entry = match place {
            Place::At(slot) => self.table.slot(slot),
            Place::Absent => None,
        };
        let list = limits.load();
        let was = |entry: &Entry| list.get(entry.limit_index as usize).map(|known| known.limit);
        let is_window = |entry: &&Entry| matches!(was(entry), Some(Limit::FixedWindow(_)));
        // Of another bucket, nothing is known but that nothing was taken from the top-ups.
        let unused = Bucket { level: top_ups.sum(), at: 0 };
        let kept = entry.filter(is_window).map_or(unused, Entry::bucket);
        let bucket = window.topped_up(&mut top_ups, kept, refilled, now);
        Some((bucket, top_ups))
    }

    /// The top-ups of the charge's bucket at `now`.
    pub(super) fn top_ups(
        &self,
        charge: &Charge,
        place: Place,
        limits: &Limits,
        now: Now,
    ) -> TopUps {
        if self.top_ups.get(Name::of(charge.bucket)).is_none() {
            return TopUps::default();
        }
        // Its level does not matter: only its time says whether the period has ended.
        let refilled = self.refilled(charge, place, limits, now);
        let top_ups = self.with_top_ups(charge, place, refilled, limits, now);
        top_ups.map_or_else(TopUps::default, |(_, top_ups)| top_ups)
    }

    /// Whether a bucket has top-ups, or had them in its period.
    pub(super) fn has_top_ups(&self, bucket: BucketId) -> bool {
        self.top_ups.get(Name::of(bucket)).is_some()
    }

    /// Units above a full bucket that the charge's bucket can have with its top-ups.
    pub(super) fn above(&self, charge: &Charge, place: Place, limits: &Limits, now: Now) -> i64 {
        if self.top_ups.is_empty() {
            return 0;
        }
        self.top_ups(charge, place, limits, now).sum()
    }

    /// What is left of the top-ups of the charge's bucket, which is at `level`.
    pub(super) fn left_of_top_ups(
        &self,
        charge: &Charge,
        place: Place,
        level: i64,
        limits: &Limits,
        now: Now,
    ) -> LeftOfTopUps {
        if self.top_ups.is_empty() {
            return LeftOfTopUps::default();
        }
        self.top_ups(charge, place, limits, now).left_of_usable(level, now.unix_us)
    }

    /// Replaces the top-ups of a bucket that has been written.
    pub(super) fn put_top_ups(&mut self, bucket: BucketId, top_ups: TopUps) {
        self.top_ups.put(Name::of(bucket), top_ups);
    }

    /// Whether the shard has room for one more top-up of a bucket: they are not dropped.
    pub(super) fn has_room_for_top_up(&mut self, bucket: BucketId, now: Now) -> bool {
        self.top_ups.has_room(Name::of(bucket), self.bound, now.unix_us)
    }

    /// Remembers that a top-up was added to a bucket, until it expires.
    pub(super) fn note_added(&mut self, bucket: BucketId, one: TopUp, text: String) {
        self.top_ups.note_added(Name::of(bucket), one, text);
    }

    /// Text of the top-up with this id that was added to a bucket and has not expired.
    pub(super) fn added(&self, bucket: BucketId, id: u64, now: Now) -> Option<&str> {
        self.top_ups.added(Name::of(bucket), id, now.unix_us)
    }

    /// Those of a bucket's `top_ups` that can be used at its `level`.
    pub(super) fn usable(
        &self,
        bucket: BucketId,
        top_ups: &TopUps,
        level: i64,
        now: Now,
    ) -> Vec<LeftTopUp> {
        self.top_ups.usable(Name::of(bucket), top_ups, level, now.unix_us)
    }

    /// Brings the top-ups of the charge's bucket up to `now`, before it is written.
    pub(super) fn settle_top_ups(
        &mut self,
        charge: &Charge,
        place: Place,
        limits: &Limits,
        now: Now,
    ) {
        if self.top_ups.get(Name::of(charge.bucket)).is_some() {
            let top_ups = self.top_ups(charge, place, limits, now);
            self.top_ups.put(Name::of(charge.bucket), top_ups);
        }
    }

    /// Log of the charge's bucket; `None` if its stamps are not known.
    pub(super) fn log(&self, charge: &Charge, place: Place, limits: &Limits) -> Option<&StampLog> {
        let Place::At(slot) = place else { return None };
        let entry = self.table.slot(slot)?;
        let was = if entry.limit_index == charge.limit_index {
            Some(charge.limit)
        } else {
            // Before a reload, the bucket may have been one of another kind.
            limits.load().get(entry.limit_index as usize).map(|known| known.limit)
        };
        Limit::kept_log(was, || self.logs.get(entry.name))
    }

    /// Removes the log of the charge's bucket, to change it; `None` if its stamps are not known.
    pub(super) fn take_log(
        &mut self,
        charge: &Charge,
        place: Place,
        limits: &Limits,
    ) -> Option<StampLog> {
        let is_known = self.log(charge, place, limits).is_some();
        let log = self.logs.take(Name::of(charge.bucket));
        log.filter(|_| is_known)
    }

    /// Adds the log of a bucket that has been written. May exceed the bound until
    /// [`shed`](Self::shed).
    pub(super) fn put_log(&mut self, charge: &Charge, log: StampLog) {
        let name = Name::of(charge.bucket);
        let is_full = log.stamps().len() == 0;
        if let Place::At(_) = self.table.find(name) {
            self.logs.put(name, log);
        }
        if let Some(changed) = &mut self.changed
            && charge.limit.counts_for_hours()
        {
            changed.note(ChangedLog { bucket: charge.bucket, is_full }, self.bound, &self.logs);
        }
    }

    /// Notes from now on which logs change.
    pub(super) fn note_changed_logs(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// The logs that have changed; `None` if that is not noted.
    pub(super) const fn changed_logs(&mut self) -> Option<&mut ChangedLogs> {
        self.changed.as_mut()
    }

    /// The bucket's window, and the stamps in it at `now`, the oldest first; `None` if it has no
    /// log.
    pub(super) fn stamps(
        &self,
        bucket: BucketId,
        limits: &Limits,
        now: u64,
    ) -> Option<(SlidingWindow, Vec<i64>)> {
        let name = Name::of(bucket);
        let Place::At(slot) = self.table.find(name) else { return None };
        let number = self.table.slot(slot)?.limit_index as usize;
        let limit = limits.load().get(number)?.limit;
        limit.inside(self.logs.get(name)?, now)
    }

    /// Frees the logs whose stamps have left the window: their buckets are full. Then drops buckets
    /// until the rest is within the bound. One log is kept even if it is larger.
    pub(super) fn shed(&mut self, limits: &Limits, now: Now) {
        let list = limits.load();
        let (table, logs) = (&self.table, &mut self.logs);
        let mut freed = Vec::new();
        logs.sweep(|name, log| {
            let Place::At(slot) = table.find(name) else { return false };
            let number = table.slot(slot).map_or(0, |entry| entry.limit_index);
            let Some(Known { limit, .. }) = list.get(number as usize) else { return false };
            let is_needed = limit.needs_log(log, now.us);
            if let Some(bucket) = limit.without_log(now.us).filter(|_| !is_needed) {
                freed.push((slot, Entry::new(name, number, bucket)));
            }
            is_needed
        });
        for (slot, entry) in freed {
            self.table.replace(slot, entry);
        }
        while self.table.len() > 1 && self.size() > self.bound {
            self.evict(&list, now);
        }
    }

    /// Number of buckets, and of those whose memory the logs take.
    pub(super) const fn size(&self) -> usize {
        self.table.len() + self.logs.weight()
    }

    /// Writes a bucket to the slot in which it was found.
    pub(super) fn replace(&mut self, slot: usize, charge: &Charge, bucket: Bucket) {
        self.table.replace(slot, entry(charge, bucket));
    }

    /// Adds a bucket that was not found. Drops another one if the shard is at its bound.
    pub(super) fn insert(&mut self, charge: &Charge, bucket: Bucket, limits: &Limits, now: Now) {
        self.insert_entry(entry(charge, bucket), limits, now);
    }

    fn insert_entry(&mut self, entry: Entry, limits: &Limits, now: Now) {
        if self.size() >= self.bound {
            self.evict(&limits.load(), now);
        }
        self.make_room(limits, now);
        self.table.insert(entry);
    }

    /// Removes a bucket, which starts full if it is needed again.
    pub(super) fn forget_bucket(&mut self, bucket: BucketId) {
        let name = Name::of(bucket);
        if let Place::At(slot) = self.table.find(name) {
            self.table.remove(slot);
            self.logs.take(name);
        }
        self.top_ups.put(name, TopUps::default());
    }

    /// Start value of a bucket that is not in the shard. Full, unless a dropped bucket of its limit
    /// would not be full yet: since it may be this one, it starts at the lowest level that any of
    /// them can have.
    fn new_bucket(&self, charge: &Charge, now: Now) -> Bucket {
        let dropped = self.dropped.get(charge.limit_index as usize).copied().unwrap_or_default();
        dropped.emptiest(&charge.limit, now)
    }

    /// Drops the first full bucket of the next [`EVICTION_WINDOW`]; if none is full, the one that
    /// is nearest to full.
    ///
    /// Only one, even if more are full: dropping all of them would leave free slots behind the
    /// hand, and ever longer runs without free slots ahead of it.
    fn evict(&mut self, limits: &[Known], now: Now) {
        let mut nearest: Option<((u64, i64), usize)> = None;
        let mut slot = self.hand;
        for _ in 0..EVICTION_WINDOW {
            slot = self.table.next_taken(slot);
            let Some(entry) = self.table.slot(slot) else { break };
            if self.top_ups.is_usable(entry.name, now.unix_us) {
                slot += 1;
                continue;
            }
            let full_at = full_at(entry, limits, now);
            // Of buckets that are full at the same time, the one that lacks least.
            let order = (full_at, missing(entry, limits));
            if nearest.is_none_or(|(earliest, _)| order < earliest) {
                nearest = Some((order, slot));
            }
            if full_at <= now.us {
                break;
            }
            slot += 1;
        }
        self.hand = (self.hand + EVICTION_WINDOW) % self.table.slots().max(1);
        if let Some((_, slot)) = nearest {
            self.drop_bucket(slot, limits, now);
        }
    }

    /// The buckets that are not full at `now`, refilled to `now`.
    pub(super) fn export(&self, limits: &[Known], now: Now) -> Vec<Exported> {
        let level = |entry: &Entry| {
            let limit = limits.get(entry.limit_index as usize)?.limit;
            let (bucket, top_ups) = self.entry_with_top_ups(entry, limits, now).unzip();
            let has_top_ups = top_ups.is_some();
            let bucket = bucket.unwrap_or_else(|| entry.bucket());
            let left = top_ups.map_or(0, |top_ups| top_ups.left_of_all(bucket.level));
            let bucket = Bucket { level: bucket.level.saturating_sub(left), ..bucket };
            let (level, ages) = limit.level_and_ages(bucket, || self.logs.get(entry.name), now);
            let Entry { name, limit_index: number, .. } = *entry;
            let is_needed = has_top_ups || level != limit.full();
            is_needed.then_some(Exported { name, number, level, ages })
        };
        self.table.entries().filter_map(level).collect()
    }

    /// The bucket of an entry at `now` with its top-ups, and these; `None` without any.
    fn entry_with_top_ups(
        &self,
        entry: &Entry,
        limits: &[Known],
        now: Now,
    ) -> Option<(Bucket, TopUps)> {
        let mut top_ups = self.top_ups.get(entry.name)?.clone();
        let Limit::FixedWindow(window) = limits.get(entry.limit_index as usize)?.limit else {
            return None;
        };
        let kept = entry.bucket();
        let bucket = window.topped_up(&mut top_ups, kept, window.refilled(kept, now), now);
        Some((bucket, top_ups))
    }

    /// The top-ups of all buckets at `now`, which the levels of [`export`](Self::export) lack, and
    /// what was added.
    pub(super) fn export_top_ups(
        &self,
        limits: &[Known],
        now: Now,
    ) -> (Vec<ExportedTopUps>, Vec<ExportedAddition>) {
        let of = |name| {
            let Place::At(slot) = self.table.find(name) else { return None };
            let entry = self.table.slot(slot)?;
            let (Bucket { level, .. }, top_ups) = self.entry_with_top_ups(entry, limits, now)?;
            let number = entry.limit_index;
            Some(ExportedTopUps { name, number, level, all: top_ups.all().to_vec() })
        };
        (self.top_ups.names().filter_map(of).collect(), self.top_ups.export_added(now.unix_us))
    }

    /// Adds the top-ups of a bucket that was imported. If it was dropped since, as a full bucket
    /// can be, adds it again. `None` if they are not those of a bucket.
    pub(super) fn import_top_ups(
        &mut self,
        exported: ExportedTopUps,
        limits: &Limits,
        now: Now,
    ) -> Option<()> {
        let ExportedTopUps { name, number, level, all } = exported;
        let top_ups = TopUps::restored(all)?;
        let left = top_ups.left_of_all(level);
        if self.top_ups.get(name).is_some() {
            return Some(());
        }
        // Before the table can grow, which drops full buckets without top-ups.
        self.top_ups.put(name, top_ups);
        let (place, list) = (self.table.find(name), limits.load());
        if let Place::At(slot) = place
            && let Some(entry) = self.table.slot(slot)
        {
            let (bucket, number) = (entry.bucket(), entry.limit_index);
            let bucket = Bucket { level: bucket.level.saturating_add(left), ..bucket };
            self.table.replace(slot, Entry::new(name, number, bucket));
        } else if let Some(known) = list.get(number as usize) {
            let (bucket, _) = known.limit.of_level_and_ages(level, &[], now);
            self.insert_entry(Entry::new(name, number, bucket), limits, now);
        }
        Some(())
    }

    /// Adds what was added to a bucket of another store.
    pub(super) fn import_added(&mut self, one: ExportedAddition) {
        self.top_ups.import_added(one);
    }

    /// The dropped buckets of each limit at `now`, by its number.
    pub(super) fn export_dropped(&self, now: Now) -> Vec<ExportedDropped> {
        let left = |dropped: &Dropped| ExportedDropped {
            full_in_us: dropped.full_at.saturating_sub(now.us),
            missing: dropped.missing(now),
        };
        self.dropped.iter().map(left).collect()
    }

    /// Adds a bucket of another store, unless the shard has one of this name. If the ages of its
    /// stamps are not known, all are of `now`.
    pub(super) fn import(&mut self, bucket: Exported, limits: &Limits, now: Now) {
        let Exported { name, number, level, ages } = bucket;
        if let Place::At(_) = self.table.find(name) {
            return;
        }
        let limit = limits.load().get(number as usize).map(|known| known.limit);
        let (bucket, log) = limit.map_or((Bucket { level, at: now.us }, None), |limit| {
            limit.of_level_and_ages(level, &ages, now)
        });
        self.insert_entry(Entry::new(name, number, bucket), limits, now);
        if let Some(log) = log {
            self.logs.put(name, log);
            self.shed(limits, now);
        }
    }

    /// Adds the record of dropped buckets of a limit: when they are full, and what the emptiest
    /// lacks.
    pub(super) fn import_dropped(
        &mut self,
        number: u32,
        full_at: u64,
        units: i64,
        limits: &[Known],
        now: Now,
    ) {
        note(&mut self.dropped, number as usize, Missing { units, full_at }, now);
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
        if let Some(dropped) = self.dropped.get_mut(number as usize) {
            *dropped = Dropped::default();
        }
    }

    /// Extends the record of dropped buckets of a limit, retired at `now`, to all limits in force:
    /// such a bucket may return under any of them, converted.
    pub(super) fn carry_over(&mut self, retired: u32, limits: &[Known], now: Now) {
        let dropped = self.dropped.get(retired as usize).copied().unwrap_or_default();
        let (Some(was), true) = (limits.get(retired as usize), dropped.full_at > now.us) else {
            return;
        };
        let emptiest = dropped.emptiest(&was.limit, now);
        for (number, in_force) in limits.iter().enumerate().filter(|(_, known)| known.is_in_force())
        {
            let bucket = was.same_fraction(emptiest, &in_force.limit, now.us);
            note(&mut self.dropped, number, Missing::of(bucket, &in_force.limit, now), now);
        }
    }

    fn drop_bucket(&mut self, slot: usize, limits: &[Known], now: Now) {
        if let Some(entry) = self.table.remove(slot) {
            self.logs.take(entry.name);
            self.top_ups.put(entry.name, TopUps::default());
            let full_at = full_at(&entry, limits, now);
            self.evictions += u64::from(full_at > now.us);
            remember(&mut self.dropped, limits, &entry, now);
        }
    }

    /// Grows the table, if needed, to 9/5 of the buckets that are not full. Full buckets are
    /// dropped, so the table may stay the same size or shrink.
    fn make_room(&mut self, limits: &Limits, now: Now) {
        let max_slots = (self.bound / 3).saturating_mul(4) + self.bound % 3 + 2;
        let slots = self.table.slots();
        if slots == max_slots || (self.table.len() + 1) * 4 <= slots * 3 {
            return;
        }
        let limits = &limits.load()[..];
        let is_needed = |top_ups: &AllTopUps, entry: &Entry| {
            full_at(entry, limits, now) > now.us || top_ups.is_usable(entry.name, now.unix_us)
        };
        let needed = self.table.entries().filter(|one| is_needed(&self.top_ups, one)).count();
        let (dropped, logs, top_ups) = (&mut self.dropped, &mut self.logs, &mut self.top_ups);
        let keep = |entry: &Entry| {
            let is_kept = is_needed(top_ups, entry);
            if !is_kept {
                remember(dropped, limits, entry, now);
                logs.take(entry.name);
                top_ups.put(entry.name, TopUps::default());
            }
            is_kept
        };
        self.table.rebuild(((needed + 1) * 9 / 5).max(MIN_SLOTS).min(max_slots), keep);
        self.hand = 0;
    }
}

fn entry(charge: &Charge, bucket: Bucket) -> Entry {
    Entry::new(Name::of(charge.bucket), charge.limit_index, bucket)
}

/// Time at which the entry's bucket is full, in microseconds. With an unknown limit, the level
/// cannot be interpreted, and the bucket counts as full.
fn full_at(entry: &Entry, limits: &[Known], now: Now) -> u64 {
    let bucket = entry.bucket();
    limits
        .get(entry.limit_index as usize)
        .map_or(bucket.at, |known| bucket.full_at(&known.limit, now))
}

/// Units that the entry's bucket lacks, or has above full; 0 with an unknown limit.
fn missing(entry: &Entry, limits: &[Known]) -> i64 {
    let known = limits.get(entry.limit_index as usize);
    known
        .map_or(0, |known| known.limit.full().saturating_sub(entry.bucket().level).saturating_abs())
}

/// Records that a bucket was dropped at `now`. Full buckets are recorded too: for a request that
/// read the clock earlier, such a bucket is not full yet.
///
/// If the bucket's limit is no longer in force, the bucket is recorded under all limits in force,
/// converted.
fn remember(dropped: &mut Vec<Dropped>, limits: &[Known], entry: &Entry, now: Now) {
    let Some(known) = limits.get(entry.limit_index as usize) else { return };
    if known.is_in_force() {
        let record = Missing::of(entry.bucket(), &known.limit, now);
        return note(dropped, entry.limit_index as usize, record, now);
    }
    for (number, in_force) in limits.iter().enumerate().filter(|(_, known)| known.is_in_force()) {
        let bucket = known.same_fraction(entry.bucket(), &in_force.limit, u64::MAX);
        note(dropped, number, Missing::of(bucket, &in_force.limit, now), now);
    }
}

/// Adds a dropped bucket to the record of its limit.
fn note(dropped: &mut Vec<Dropped>, number: usize, record: Missing, now: Now) {
    if dropped.len() <= number {
        dropped.resize(number + 1, Dropped::default());
    }
    let kept = &mut dropped[number];
    kept.full_at = kept.full_at.max(record.full_at);
    if kept.emptiest.is_over(now) {
        kept.emptiest = kept.next;
        kept.next = Missing::default();
    }
    if record.is_over(now) {
        return;
    }
    if kept.emptiest.is_over(now) || record.units >= kept.emptiest.units {
        kept.emptiest = kept.emptiest.and(kept.next).and(record);
        kept.next = Missing::default();
    } else {
        kept.next = kept.next.and(record);
    }
}

impl Missing {
    fn of(bucket: Bucket, limit: &Limit, now: Now) -> Self {
        let units = limit.full().saturating_sub(bucket.level);
        Self { units, full_at: bucket.full_at(limit, now) }
    }

    /// The most that any bucket of both lacks, for as long as any of them does.
    fn and(self, other: Self) -> Self {
        Self { units: self.units.max(other.units), full_at: self.full_at.max(other.full_at) }
    }

    /// Whether it is full at `now`, and at any earlier time that a thread may have read.
    const fn is_over(&self, now: Now) -> bool {
        self.full_at.saturating_add(CLOCK_SLACK_US) <= now.us
    }
}

impl Dropped {
    /// Without a refill: units that the emptiest bucket lacks at `now`.
    fn missing(&self, now: Now) -> i64 {
        let of = |missing: Missing| if missing.full_at > now.us { missing.units } else { 0 };
        of(self.emptiest).max(of(self.next))
    }

    /// The emptiest bucket of `limit` that may have been dropped, at `now`.
    fn emptiest(&self, limit: &Limit, now: Now) -> Bucket {
        limit.start_if_dropped(self.full_at, || self.missing(now), now)
    }
}

/// Converts an entry of another limit to `limit`: see [`Limit::converted`].
fn same_fraction(entry: &Entry, limits: &[Known], limit: &Limit, now: Now) -> Bucket {
    let bucket = entry.bucket();
    limits.get(entry.limit_index as usize).map_or(Bucket::full(limit, now.at(bucket.at)), |was| {
        was.same_fraction(bucket, limit, now.us)
    })
}
