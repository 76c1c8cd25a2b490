//! The levels of all buckets as bytes, for the process that replaces this one.
//!
//! The stored names of buckets lack bits that select their shard, so both stores need the same
//! shards and the same seed: [`Layout`]. Times are relative to the transfer, because each process
//! has its own clock.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::shard::{Exported, ExportedDropped};
use super::table::Name;
use super::top_ups::{ExportedAddition, ExportedTopUps};
use super::{MemoryStore, shard_count};
use crate::base::now::Now;
use crate::base::unix_time;
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::limit::top_up::TopUp;

/// Which bucket is in which shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    shards: usize,
    seed: u64,
}

/// Why levels cannot be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandoverError {
    /// The stores have different shards.
    #[error("`memory.max_buckets` has changed")]
    OtherLayout,
    /// The bytes are not those of [`MemoryStore::export`].
    #[error("the levels are incomplete or of another version")]
    Malformed,
}

/// A bucket that was kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBucket {
    pub bucket: BucketId,
    /// The limit that it was counted under.
    pub limit: Limit,
    /// Its level, of a kind without a log.
    pub level: i64,
    /// Of a sliding window: microseconds since each token was taken.
    pub ages: Vec<i64>,
}

/// Reads little-endian numbers.
struct Reader<'a>(&'a [u8]);

impl MemoryStore {
    /// Creates an empty store with the shards and the seed of another one, as far as `max_buckets`
    /// gives it as many.
    pub fn with_layout(max_buckets: usize, limits: &[Limit], layout: Layout) -> Self {
        Self::with_seed(max_buckets, limits, layout.seed)
    }

    /// Returns which bucket is in which shard.
    pub fn layout(&self) -> Layout {
        Layout { shards: self.shards.len(), seed: self.seed }
    }

    /// Returns the levels of all buckets that are not full at `now` (microseconds), for
    /// [`import`](Self::import). 24 bytes for each, and 8 for each stamp of a log. Then top-ups, if
    /// there are any: earlier versions do not read them, and have the levels without them.
    pub fn export(&self, now: u64) -> Vec<u8> {
        let at = unix_time::at(now);
        let mut bytes = Vec::with_capacity(24 * self.len() + 64);
        put_length(&mut bytes, self.shards.len());
        // Shards that are locked later can have buckets of newer limits, which are left out.
        let limits = self.limits.load();
        put_length(&mut bytes, limits.len());
        for known in limits.iter() {
            known.limit.export(&mut bytes);
        }
        let (mut top_ups, mut added) = (Vec::new(), Vec::new());
        for (number, shard) in self.shards.iter().enumerate() {
            let (buckets, dropped) = {
                let shard = shard.0.lock();
                let (of_shard, added_to_it) = shard.export_top_ups(&limits, at);
                top_ups.extend(of_shard.into_iter().map(|one| (number, one)));
                added.extend(added_to_it.into_iter().map(|one| (number, one)));
                (shard.export(&limits, at), shard.export_dropped(at))
            };
            put_length(&mut bytes, buckets.len());
            for Exported { name, number, level, ages } in buckets {
                for word in name.words() {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes.extend_from_slice(&level.to_le_bytes());
                if let Some(known) = limits.get(number as usize) {
                    known.limit.export_ages(&ages, &mut bytes);
                }
            }
            let dropped = &dropped[..dropped.len().min(limits.len())];
            put_length(&mut bytes, dropped.len());
            for ExportedDropped { full_in_us, missing } in dropped {
                bytes.extend_from_slice(&full_in_us.to_le_bytes());
                bytes.extend_from_slice(&missing.to_le_bytes());
            }
        }
        if !top_ups.is_empty() || !added.is_empty() {
            put_top_ups(&mut bytes, top_ups, added);
        }
        bytes
    }

    /// Adds the buckets of another store with the same [`layout`](Self::layout), at `now`
    /// (microseconds). Returns how many. Must not be called concurrently with
    /// [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// See [`HandoverError`]. Buckets before a malformed place have been added.
    pub fn import(&self, bytes: &[u8], now: u64) -> Result<usize, HandoverError> {
        let (at, mut reader) = (unix_time::at(now), Reader(bytes));
        if reader.length()? != self.shards.len() {
            return Err(HandoverError::OtherLayout);
        }
        let count = reader.length()?;
        let limits = (0..count).map(|_| reader.limit()).collect::<Result<Vec<_>, _>>()?;
        let numbers = self.limits.import(&limits, now);
        let number_of = |old: usize| numbers.get(old).copied().ok_or(HandoverError::Malformed);
        let mut imported = 0;
        for shard in &self.shards {
            let buckets = reader.length()?;
            let mut shard = shard.0.lock();
            for _ in 0..buckets {
                let name = reader.name()?;
                let old = reader.length()?;
                let number = number_of(old)?;
                let level = i64::from_le_bytes(reader.array()?);
                let limit = limits.get(old).ok_or(HandoverError::Malformed)?;
                let ages = limit.import_ages(&mut reader.0).ok_or(HandoverError::Malformed)?;
                shard.import(Exported { name, number, level, ages }, &self.limits, at);
                imported += 1;
            }
            let list = self.limits.load();
            for old in 0..reader.length()? {
                let full_at = now.saturating_add(u64::from_le_bytes(reader.array()?));
                let missing = i64::from_le_bytes(reader.array()?);
                shard.import_dropped(number_of(old)?, full_at, missing, &list, at);
            }
        }
        if !reader.0.is_empty() {
            self.import_top_ups(&mut reader, &numbers, at)?;
        }
        Ok(imported)
    }

    /// Adds top-ups. `numbers` are those of the limits here, by their numbers in the other store.
    fn import_top_ups(
        &self,
        reader: &mut Reader<'_>,
        numbers: &[u32],
        at: Now,
    ) -> Result<(), HandoverError> {
        let shard = |number: usize| self.shards.get(number).ok_or(HandoverError::Malformed);
        for _ in 0..reader.length()? {
            let shard = shard(reader.length()?)?;
            let (name, old) = (reader.name()?, reader.length()?);
            let number = numbers.get(old).copied().ok_or(HandoverError::Malformed)?;
            let level = i64::from_le_bytes(reader.array()?);
            let count = reader.length()?;
            let all = (0..count).map(|_| reader.top_up()).collect::<Result<Vec<_>, _>>()?;
            let one = ExportedTopUps { name, number, level, all };
            let imported = shard.0.lock().import_top_ups(one, &self.limits, at);
            imported.ok_or(HandoverError::Malformed)?;
        }
        for _ in 0..reader.length()? {
            let (number, name) = (reader.length()?, reader.name()?);
            let (id, expires_us) = (reader.u64()?, reader.u64()?);
            let text = reader.text()?;
            let one = ExportedAddition { name, id, expires_us, text };
            shard(number)?.0.lock().import_added(one);
        }
        Ok(())
    }

    /// Adds buckets that were kept elsewhere, at `now` (microseconds); those that the store has
    /// stay. Returns how many. Must not be called concurrently with [`adopt`](Self::adopt).
    #[allow(
        clippy::mutable_key_type,
        reason = "calendars are compared by identity; what changes in them is a cache"
    )]
    pub fn restore(&self, buckets: impl IntoIterator<Item = KeptBucket>, now: u64) -> usize {
        let at = unix_time::at(now);
        let (mut numbers, mut restored) = (HashMap::new(), 0);
        for KeptBucket { bucket, limit, level, ages } in buckets {
            let number = *numbers
                .entry(limit)
                .or_insert_with(|| self.limits.import(&[limit], now).first().copied().unwrap_or(0));
            let mut shard = self.shards[self.shard_number(bucket)].0.lock();
            let name = Name::of(bucket);
            shard.import(Exported { name, number, level, ages }, &self.limits, at);
            restored += 1;
        }
        restored
    }

    /// Whether a store for `max_buckets` has these shards.
    pub fn fits(max_buckets: usize, layout: Layout) -> bool {
        shard_count(max_buckets.max(1)) == layout.shards
    }
}

/// Appends the top-ups of buckets and what was added, each with the number of its shard.
fn put_top_ups(
    bytes: &mut Vec<u8>,
    top_ups: Vec<(usize, ExportedTopUps)>,
    added: Vec<(usize, ExportedAddition)>,
) {
    let put_name = |bytes: &mut Vec<u8>, shard: usize, name: Name| {
        put_length(bytes, shard);
        for word in name.words() {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    };
    put_length(bytes, top_ups.len());
    for (shard, ExportedTopUps { name, number, level, all }) in top_ups {
        put_name(bytes, shard, name);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&level.to_le_bytes());
        put_length(bytes, all.len());
        for TopUp { id, units, expires_us } in all {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&units.to_le_bytes());
            bytes.extend_from_slice(&expires_us.to_le_bytes());
        }
    }
    put_length(bytes, added.len());
    for (shard, ExportedAddition { name, id, expires_us, text }) in added {
        put_name(bytes, shard, name);
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&expires_us.to_le_bytes());
        put_length(bytes, text.len());
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// Appends a length. All of them are far below the maximum.
fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HandoverError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(HandoverError::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, HandoverError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, HandoverError> {
        self.array().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Name, HandoverError> {
        Ok(Name::from_words([self.u32()?, self.u32()?, self.u32()?]))
    }

    fn top_up(&mut self) -> Result<TopUp, HandoverError> {
        let (id, units) = (self.u64()?, i64::from_le_bytes(self.array()?));
        Ok(TopUp { id, units, expires_us: self.u64()? })
    }

    fn text(&mut self) -> Result<String, HandoverError> {
        let length = self.length()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(HandoverError::Malformed)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| HandoverError::Malformed)
    }

    fn length(&mut self) -> Result<usize, HandoverError> {
        self.u32().map(|length| length as usize)
    }

    fn limit(&mut self) -> Result<Limit, HandoverError> {
        Limit::import(&mut self.0).ok_or(HandoverError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::bucket::Bucket;
    use crate::limit::charge::{BucketId, Charge, Mode};
    use crate::limit::share::Share;
    use crate::limit::sliding_window::SlidingWindow;

    /// A token each second, burst 10.
    fn limit(burst: u64) -> Limit {
        Limit::token_bucket(1, 1_000_000, burst).unwrap()
    }

    fn charge(id: u128, limit: Limit) -> Charge {
        let bucket = BucketId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
    }

    fn level(store: &MemoryStore, id: u128, limit: Limit, now: u64) -> i64 {
        let Bucket { level, .. } = store.bucket(&charge(id, limit), now);
        limit.tokens(level)
    }

    #[test]
    fn levels_are_the_same_in_the_next_process_by_its_own_clock() {
        let old = MemoryStore::new(100_000, &[limit(10)]);
        for id in 0..1_000 {
            for _ in 0..id % 8 {
                old.take(&[charge(id, limit(10))], 5_000_000, Share::one_of(1));
            }
        }
        // A second later, each bucket has a token more. The clock of the next process has just
        // begun.
        let bytes = old.export(6_000_000);
        let new = MemoryStore::with_layout(100_000, &[limit(10)], old.layout());
        let imported = new.import(&bytes, 3).unwrap();
        // Those of which at most one token was taken are full again.
        assert_eq!(imported, 750);
        for id in 0..1_000 {
            let taken = i64::try_from(id % 8).unwrap();
            assert_eq!(level(&new, id, limit(10), 3), 10.min(11 - taken), "{id}");
        }
    }

    /// To the microsecond, although the clock of the next process has just begun.
    #[test]
    fn stamps_leave_sliding_windows_of_the_next_process_at_the_same_time() {
        let limit = Limit::SlidingWindow(SlidingWindow::new(100, 60_000_000).unwrap());
        let old = MemoryStore::new(1_000, &[limit]);
        for at in 0..50 {
            old.take(&[charge(7, limit)], 10_000_000 + 1_000 * at, Share::one_of(1));
        }
        let bytes = old.export(40_000_000);
        assert!(bytes.len() < 1_000, "{}", bytes.len());
        let new = MemoryStore::with_layout(1_000, &[limit], old.layout());
        assert_eq!(new.import(&bytes, 3), Ok(1));
        for at in 0..50 {
            let leaves_at = 10_000_000 + 1_000 * at + 60_000_000 - 40_000_000 + 3;
            let left = i64::try_from(at).unwrap();
            assert_eq!(level(&new, 7, limit, leaves_at - 1), 50 + left, "{at}");
            assert_eq!(level(&new, 7, limit, leaves_at), 51 + left, "{at}");
        }
        for cut in 0..bytes.len() {
            let same = MemoryStore::with_layout(1_000, &[limit], old.layout());
            assert_eq!(same.import(&bytes[..cut], 0), Err(HandoverError::Malformed), "{cut}");
        }
    }

    #[test]
    fn changed_limit_keeps_the_fraction_of_full() {
        let old = MemoryStore::new(1_000, &[limit(10)]);
        for _ in 0..5 {
            old.take(&[charge(7, limit(10))], 0, Share::one_of(1));
        }
        let new = MemoryStore::with_layout(1_000, &[limit(20)], old.layout());
        new.import(&old.export(0), 0).unwrap();
        assert_eq!(level(&new, 7, limit(20), 0), 10);
    }

    #[test]
    fn evicted_bucket_does_not_start_full_in_the_next_process() {
        let old = MemoryStore::new(64, &[limit(10)]);
        for id in 0..1_000 {
            for _ in 0..10 {
                old.take(&[charge(id, limit(10))], 0, Share::one_of(1));
            }
        }
        let new = MemoryStore::with_layout(64, &[limit(10)], old.layout());
        new.import(&old.export(0), 0).unwrap();
        for id in 0..1_000 {
            assert_eq!(level(&new, id, limit(10), 0), 0, "{id}");
        }
    }

    #[test]
    fn other_number_of_shards_and_cut_off_bytes_are_errors() {
        let old = MemoryStore::new(1_000, &[limit(10)]);
        old.take(&[charge(7, limit(10))], 0, Share::one_of(1));
        let bytes = old.export(0);
        let other = MemoryStore::with_layout(1_000_000, &[limit(10)], old.layout());
        assert_eq!(other.import(&bytes, 0), Err(HandoverError::OtherLayout));
        assert!(!MemoryStore::fits(1_000_000, old.layout()));
        assert!(MemoryStore::fits(1_000, old.layout()));
        let same = MemoryStore::with_layout(1_000, &[limit(10)], old.layout());
        for cut in 0..bytes.len() {
            assert_eq!(same.import(&bytes[..cut], 0), Err(HandoverError::Malformed), "{cut}");
        }
    }
}
