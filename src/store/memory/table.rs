//! The table under a shard: open addressing with linear probing, in one flat array.
//!
//! Written for this store rather than taken from a library, for three reasons. A bucket that goes
//! leaves no tombstone (what follows it moves back), so a full table can drop one bucket and keep
//! another for as long as it runs without being built anew. Its size is not a power of two, so
//! that a bucket never costs more than two slots. And a look-up touches one cache line, often:
//! there are no control bytes beside the slots.

use std::num::NonZeroU32;

use crate::limit::bucket::Bucket;
use crate::limit::charge::BucketId;

/// A bucket as it is kept: 32 bytes, and an `Option` of it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    name: Name,
    /// The quota's index plus one: 0 is what marks a free slot.
    quota_plus_one: NonZeroU32,
    /// As in [`Bucket`].
    level: u64,
    /// As in [`Bucket`].
    at: u64,
}

/// The 96 bits of a [`BucketId`] that are kept. The others choose the shard: two buckets are taken
/// for one only where more than 96 bits agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    slots: Box<[Option<Entry>]>,
    len: usize,
    /// Odd. Multiplies names into places: known to this process alone.
    seed: u64,
}

impl Name {
    #[allow(clippy::cast_possible_truncation, reason = "each takes its 32 bits")]
    pub(super) const fn of(id: BucketId) -> Self {
        Self { low: [id.0 as u32, (id.0 >> 32) as u32], high: (id.0 >> 64) as u32 }
    }

    /// The bits that choose a slot.
    const fn low(self) -> u64 {
        self.low[0] as u64 | (self.low[1] as u64) << 32
    }
}

impl Entry {
    pub(super) const fn new(name: Name, quota_index: u32, bucket: Bucket) -> Self {
        // An index at the very end of the range cannot be told from the one before it. Nobody has
        // four billion quotas.
        let quota_plus_one = NonZeroU32::MIN.saturating_add(quota_index);
        Self { name, quota_plus_one, level: bucket.level, at: bucket.at }
    }

    pub(super) const fn quota_index(&self) -> u32 {
        self.quota_plus_one.get() - 1
    }

    pub(super) const fn bucket(&self) -> Bucket {
        Bucket { level: self.level, at: self.at }
    }
}

impl Table {
    /// A table of no slots.
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: Box::new([]), len: 0, seed: seed | 1 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many slots there are, free ones included.
    pub(super) const fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&self, slot: usize) -> Option<&Entry> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten()
    }

    /// The first slot at or after this one, around the end, that holds an entry. 0 where none does.
    pub(super) fn next_taken(&self, from: usize) -> usize {
        let after = self.slots.iter().skip(from).position(Option::is_some);
        let slot = after.map(|steps| from + steps);
        slot.or_else(|| self.slots.iter().position(Option::is_some)).unwrap_or(0)
    }

    pub(super) fn find(&self, name: Name) -> Place {
        let mut slot = self.home(name);
        while let Some(entry) = self.slot(slot) {
            if entry.name == name {
                return Place::At(slot);
            }
            slot = self.next(slot);
        }
        Place::Absent
    }

    /// Keeps `entry` in place of what the slot held.
    pub(super) fn replace(&mut self, slot: usize, entry: Entry) {
        if let Some(kept @ Some(_)) = self.slots.get_mut(slot) {
            *kept = Some(entry);
        }
    }

    /// Keeps an entry whose name the table does not hold. The caller sees to it that two slots are
    /// free: without, the table stays as it was.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.len + 1 >= self.slots.len() {
            return;
        }
        let mut slot = self.home(entry.name);
        while self.slot(slot).is_some() {
            slot = self.next(slot);
        }
        if let Some(free) = self.slots.get_mut(slot) {
            *free = Some(entry);
            self.len += 1;
        }
    }

    /// Takes out what the slot holds and moves back what had to step past it. The slot may hold
    /// another entry afterwards.
    pub(super) fn remove(&mut self, slot: usize) -> Option<Entry> {
        let removed = self.slots.get_mut(slot)?.take()?;
        self.len -= 1;
        let mut hole = slot;
        let mut next = self.next(slot);
        while let Some(entry) = self.slot(next).copied() {
            // It may move back as far as its home, never before it.
            if self.distance(self.home(entry.name), next) >= self.distance(hole, next) {
                self.slots[hole] = Some(entry);
                self.slots[next] = None;
                hole = next;
            }
            next = self.next(next);
        }
        Some(removed)
    }

    /// The same entries in `slots` slots, without those that `keep` turns down.
    pub(super) fn rebuild(&mut self, slots: usize, mut keep: impl FnMut(&Entry) -> bool) {
        let old = std::mem::replace(&mut self.slots, vec![None; slots].into_boxed_slice());
        self.len = 0;
        for entry in old.iter().flatten() {
            if keep(entry) {
                self.insert(*entry);
            }
        }
    }

    /// The slot that a name is looked for first. A client can choose what it sends, and everybody
    /// can know how ids are made of it; the seed keeps anybody from choosing ids that pile up.
    fn home(&self, name: Name) -> usize {
        scaled(name.low().wrapping_mul(self.seed), self.slots.len())
    }

    const fn next(&self, slot: usize) -> usize {
        let next = slot + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    /// Steps forward from one slot to another, around the end.
    const fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

/// A hash as a number below `count`, evenly; by its high bits, without a division.
#[allow(clippy::cast_possible_truncation, reason = "it is below `count`")]
pub(super) const fn scaled(hash: u64, count: usize) -> usize {
    ((hash as u128 * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(id: u128, level: u64) -> Entry {
        Entry::new(Name::of(BucketId(id)), 3, Bucket { level, at: 9 })
    }

    fn level(table: &Table, id: u128) -> Option<u64> {
        match table.find(Name::of(BucketId(id))) {
            Place::At(slot) => table.slot(slot).map(|entry| entry.bucket().level),
            Place::Absent => None,
        }
    }

    #[test]
    fn a_slot_is_32_bytes() {
        assert_eq!(size_of::<Option<Entry>>(), 32);
    }

    #[test]
    fn an_entry_gives_back_what_it_was_made_of() {
        for quota_index in [0, 1, 77, u32::MAX - 1] {
            let bucket = Bucket { level: 1 << 53, at: u64::MAX };
            let entry = Entry::new(Name::of(BucketId(5)), quota_index, bucket);
            assert_eq!((entry.quota_index(), entry.bucket()), (quota_index, bucket));
        }
    }

    #[test]
    fn a_table_without_slots_holds_nothing() {
        let mut table = Table::new(1);
        table.insert(entry(1, 1));
        assert_eq!((level(&table, 1), table.remove(0), table.len()), (None, None, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u128, u64),
        RemoveSlot(usize),
        Rebuild(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few homes, and ids that differ in each third of the name: long runs, around the end too.
        let id = (0..4_u128, 0..3_u128, 0..3_u128)
            .prop_map(|(home, middle, high)| home << 62 | middle | high << 64);
        let step = prop_oneof![
            4 => (id, any::<u64>()).prop_map(|(id, level)| Step::Insert(id, level)),
            2 => (0..20_usize).prop_map(Step::RemoveSlot),
            1 => (0..20_usize).prop_map(Step::Rebuild),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_would(steps in steps(), seed: u64) {
            let mut table = Table::new(seed);
            table.rebuild(20, |_| true);
            let mut map = HashMap::new();
            for step in steps {
                match step {
                    Step::Insert(id, level) => match table.find(Name::of(BucketId(id))) {
                        Place::At(slot) => {
                            table.replace(slot, entry(id, level));
                            map.insert(id, level);
                        }
                        Place::Absent if table.len() + 1 < table.slots() => {
                            table.insert(entry(id, level));
                            map.insert(id, level);
                        }
                        Place::Absent => {}
                    },
                    Step::RemoveSlot(slot) => {
                        if let Some(removed) = table.remove(slot) {
                            map.retain(|id, _| Name::of(BucketId(*id)) != removed.name);
                        }
                    }
                    Step::Rebuild(more) => table.rebuild(table.len() + 2 + more, |_| true),
                }
                prop_assert_eq!(table.len(), map.len());
                prop_assert_eq!(table.entries().count(), map.len());
                for (id, kept) in &map {
                    prop_assert_eq!(level(&table, *id), Some(*kept));
                }
            }
        }
    }
}
