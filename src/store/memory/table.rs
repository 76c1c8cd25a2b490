//! Hash table of a shard: open addressing with linear probing.
//!
//! Written for this store for three reasons. Removing an entry leaves no tombstone (later entries
//! move back), so a full table can replace entries forever without a rebuild. Its size is not a
//! power of two, so growing does not double the memory per bucket. And its slots are in chunks of
//! one size, so the memory that one table frees when it grows fits the next one; tables of many
//! sizes would fragment the heap.

#[cfg(test)]
mod tests;

use crate::limit::bucket::Bucket;
use crate::limit::charge::BucketId;

/// Number of slots in a chunk of 4 KiB. A smaller table is one chunk of its own size.
const CHUNK: usize = 128;

/// A stored bucket, in 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Name,
    /// Number of the limit that the level is counted in.
    pub(super) limit_index: u32,
    /// Units in the bucket, as in [`Bucket::level`].
    level: i64,
    /// Time of the level in microseconds, as in [`Bucket::at`].
    at: u64,
}

/// The stored 96 bits of a [`BucketId`]. Other bits select the shard, so two buckets are confused
/// only if more than 96 bits are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Name {
    low: [u32; 2],
    high: u32,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Found in this slot. Valid until the table changes.
    At(usize),
    /// Not in the table.
    Absent,
}

/// A hash table of buckets. At least one slot is free, so that every search ends.
#[derive(Debug)]
pub(super) struct Table {
    /// One byte per slot: [`FREE`], or the tag of its name. A search reads the tags, which fit the
    /// processor's cache, and then usually a single entry.
    tags: Box<[u8]>,
    /// Slot `n` is entry `n % CHUNK` of chunk `n / CHUNK`.
    chunks: Box<[Box<[Entry]>]>,
    len: usize,
    /// Random odd multiplier of the hash, secret to this process.
    seed: u64,
}

/// Tag of an empty slot.
const FREE: u8 = 0;

impl Name {
    #[allow(clippy::cast_possible_truncation, reason = "each takes its 32 bits")]
    pub(super) const fn of(id: BucketId) -> Self {
        Self { low: [id.0 as u32, (id.0 >> 32) as u32], high: (id.0 >> 64) as u32 }
    }

    /// The 96 bits, for [`from_words`](Self::from_words).
    pub(super) const fn words(self) -> [u32; 3] {
        [self.low[0], self.low[1], self.high]
    }

    pub(super) const fn from_words([first, second, high]: [u32; 3]) -> Self {
        Self { low: [first, second], high }
    }

    /// The bits that select a slot.
    const fn low(self) -> u64 {
        self.low[0] as u64 | (self.low[1] as u64) << 32
    }

    /// Distinguishes most names that hash to the same slot. Never [`FREE`].
    const fn tag(self) -> u8 {
        self.high.to_le_bytes()[0] | 1
    }
}

impl Entry {
    pub(super) const fn new(name: Name, limit_index: u32, bucket: Bucket) -> Self {
        Self { name, limit_index, level: bucket.level, at: bucket.at }
    }

    pub(super) const fn bucket(&self) -> Bucket {
        Bucket { level: self.level, at: self.at }
    }
}

impl Table {
    /// Creates a table without slots.
    pub(super) fn new(seed: u64) -> Self {
        Self { tags: Box::default(), chunks: Box::default(), len: 0, seed: seed | 1 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Number of slots, including free ones.
    pub(super) const fn slots(&self) -> usize {
        self.tags.len()
    }

    /// Entry in a slot; `None` if it is free.
    pub(super) fn slot(&self, slot: usize) -> Option<&Entry> {
        if self.tag(slot) == FREE { None } else { Some(&self.chunks[slot / CHUNK][slot % CHUNK]) }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        (0..self.slots()).filter_map(|slot| self.slot(slot))
    }

    /// First occupied slot at or after `from`, wrapping around; 0 if the table is empty.
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

    /// Overwrites the entry in a slot.
    pub(super) fn replace(&mut self, slot: usize, entry: Entry) {
        self.tags[slot] = entry.name.tag();
        self.chunks[slot / CHUNK][slot % CHUNK] = entry;
    }

    /// Adds an entry whose name is not in the table. Does nothing unless two slots are free; the
    /// caller ensures that.
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

    /// Removes the entry in a slot, and moves back the entries that had been displaced past it. The
    /// slot may hold another entry afterwards.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Entry> {
        let removed = *self.slot(slot)?;
        let mut hole = slot;
        let mut next = self.next(slot);
        while let Some(entry) = self.slot(next).copied() {
            // An entry can move back to its home slot, but not before it.
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

    /// Moves the entries for which `keep` is true to a table of `slots` slots, and drops the
    /// others.
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

    /// Tag of a slot; [`FREE`] past the last slot, so that a table without slots is not a special
    /// case.
    fn tag(&self, slot: usize) -> u8 {
        self.tags.get(slot).copied().unwrap_or(FREE)
    }

    /// Slot at which the search for a name starts. Clients can influence bucket IDs, whose hash is
    /// public; the secret seed prevents deliberate collisions.
    fn home(&self, name: Name) -> usize {
        scaled(name.low().wrapping_mul(self.seed), self.slots())
    }

    const fn next(&self, slot: usize) -> usize {
        let next = slot + 1;
        if next == self.slots() { 0 } else { next }
    }

    /// Number of steps forward from one slot to another, wrapping around.
    const fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots() - from }
    }
}

/// Maps a hash evenly to a number below `count`, by its high bits and without a division.
#[allow(clippy::cast_possible_truncation, reason = "it is below `count`")]
pub(super) const fn scaled(hash: u64, count: usize) -> usize {
    ((hash as u128 * count as u128) >> 64) as usize
}
