//! The table under a shard: open addressing with linear probing.
//!
//! Written for this store rather than taken from a library, for three reasons. A bucket that goes
//! leaves no tombstone (what follows it moves back), so a full table can drop one bucket and keep
//! another for as long as it runs without being built anew. Its size is no power of two, so that
//! growing never doubles what a bucket costs. And its slots lie in chunks of one size, so that what
//! one table gives back when it grows is what the next one needs: tables of all sizes would leave
//! the allocator with holes that fit nobody.

#[cfg(test)]
mod tests;

use crate::limit::bucket::Bucket;
use crate::limit::charge::BucketId;

/// Slots of a chunk: 4 KiB. A table that is smaller than that is one chunk of its own size.
const CHUNK: usize = 128;

/// A bucket as it is kept, in 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    name: Name,
    /// Index of the quota that the level is counted by.
    pub(super) quota_index: u32,
    /// As in [`Bucket`].
    level: i64,
    /// As in [`Bucket`].
    at: u64,
}

/// The 96 bits of a [`BucketId`] that are kept. The others choose the shard: two buckets are taken
/// for one only where more than 96 bits agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    low: [u32; 2],
    high: u32,
}

/// Where a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this slot, until the table changes.
    At(usize),
    /// The table does not hold it.
    Absent,
}

/// Slots by the place that a name hashes to; at least one of them is free, so that a search ends.
#[derive(Debug)]
pub(super) struct Table {
    /// A byte for each slot: [`FREE`], or the tag of the name in it. A search reads these, which
    /// fit the processor's cache where the entries do not, and then one entry.
    tags: Box<[u8]>,
    /// Slot `n` is entry `n % CHUNK` of chunk `n / CHUNK`.
    chunks: Box<[Box<[Entry]>]>,
    len: usize,
    /// Odd. Multiplies names into places: known to this process alone.
    seed: u64,
}

/// The tag of a slot that holds nothing.
const FREE: u8 = 0;

impl Name {
    #[allow(clippy::cast_possible_truncation, reason = "each takes its 32 bits")]
    pub(super) const fn of(id: BucketId) -> Self {
        Self { low: [id.0 as u32, (id.0 >> 32) as u32], high: (id.0 >> 64) as u32 }
    }

    /// The bits that choose a slot.
    const fn low(self) -> u64 {
        self.low[0] as u64 | (self.low[1] as u64) << 32
    }

    /// Tells most names apart that hash to the same slot. Never [`FREE`].
    const fn tag(self) -> u8 {
        self.high.to_le_bytes()[0] | 1
    }
}

impl Entry {
    pub(super) const fn new(name: Name, quota_index: u32, bucket: Bucket) -> Self {
        Self { name, quota_index, level: bucket.level, at: bucket.at }
    }

    pub(super) const fn bucket(&self) -> Bucket {
        Bucket { level: self.level, at: self.at }
    }
}

impl Table {
    /// A table of no slots.
    pub(super) fn new(seed: u64) -> Self {
        Self { tags: Box::default(), chunks: Box::default(), len: 0, seed: seed | 1 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many slots there are, free ones included.
    pub(super) const fn slots(&self) -> usize {
        self.tags.len()
    }

    /// What the slot holds.
    pub(super) fn slot(&self, slot: usize) -> Option<&Entry> {
        if self.tag(slot) == FREE { None } else { Some(&self.chunks[slot / CHUNK][slot % CHUNK]) }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        (0..self.slots()).filter_map(|slot| self.slot(slot))
    }

    /// The first slot at or after this one, around the end, that holds an entry. 0 where none does.
    pub(super) fn next_taken(&self, from: usize) -> usize {
        let mut slot = if from < self.slots() { from } else { 0 };
        if self.len == 0 {
            return 0;
        }
        while self.tag(slot) == FREE {
            slot = self.next(slot);
        }
        slot
    }

    pub(super) fn find(&self, name: Name) -> Place {
        let mut slot = self.home(name);
        let tag = name.tag();
        loop {
            let found = self.tag(slot);
            if found == tag && self.slot(slot).is_some_and(|entry| entry.name == name) {
                return Place::At(slot);
            }
            if found == FREE {
                return Place::Absent;
            }
            slot = self.next(slot);
        }
    }

    /// Keeps a bucket in place of the one that was found in this slot.
    pub(super) fn replace(&mut self, slot: usize, entry: Entry) {
        self.tags[slot] = entry.name.tag();
        self.chunks[slot / CHUNK][slot % CHUNK] = entry;
    }

    /// Keeps an entry whose name the table does not hold. The caller sees to it that two slots are
    /// free: without, the table stays as it was.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.len + 1 >= self.slots() {
            return;
        }
        let mut slot = self.home(entry.name);
        while self.tag(slot) != FREE {
            slot = self.next(slot);
        }
        self.replace(slot, entry);
        self.len += 1;
    }

    /// Takes out what the slot holds and moves back what had to step past it. The slot may hold
    /// another entry afterwards.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Entry> {
        let removed = *self.slot(slot)?;
        let mut hole = slot;
        let mut next = self.next(slot);
        while let Some(entry) = self.slot(next).copied() {
            // It may move back as far as its home, never before it.
            if self.distance(self.home(entry.name), next) >= self.distance(hole, next) {
                self.replace(hole, entry);
                hole = next;
            }
            next = self.next(next);
        }
        self.tags[hole] = FREE;
        self.len -= 1;
        Some(removed)
    }

    /// The same entries in `slots` slots, without those that `keep` turns down.
    pub(super) fn rebuild(&mut self, slots: usize, mut keep: impl FnMut(&Entry) -> bool) {
        let chunk = vec![Entry::default(); CHUNK.min(slots)].into_boxed_slice();
        let new = Self {
            tags: vec![FREE; slots].into_boxed_slice(),
            chunks: vec![chunk; slots.div_ceil(CHUNK)].into_boxed_slice(),
            len: 0,
            seed: self.seed,
        };
        let old = std::mem::replace(self, new);
        for entry in old.entries() {
            if keep(entry) {
                self.insert(*entry);
            }
        }
    }

    /// The slot's tag. Past the last slot there is nothing, so that a table without slots needs no
    /// words of its own.
    fn tag(&self, slot: usize) -> u8 {
        self.tags.get(slot).copied().unwrap_or(FREE)
    }

    /// The slot that a name is looked for first. A client can choose what it sends, and everybody
    /// can know how ids are made of it; the seed keeps anybody from choosing ids that pile up.
    fn home(&self, name: Name) -> usize {
        scaled(name.low().wrapping_mul(self.seed), self.slots())
    }

    const fn next(&self, slot: usize) -> usize {
        let next = slot + 1;
        if next == self.slots() { 0 } else { next }
    }

    /// Steps forward from one slot to another, around the end.
    const fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots() - from }
    }
}

/// A hash as a number below `count`, evenly; by its high bits, without a division.
#[allow(clippy::cast_possible_truncation, reason = "it is below `count`")]
pub(super) const fn scaled(hash: u64, count: usize) -> usize {
    ((hash as u128 * count as u128) >> 64) as usize
}
