//! The results of verifications, by the SHA-256 of the token: bounded, and without the tokens.
//!
//! Two maps: entries are added to the younger one. When that is full, it replaces the older one,
//! whose entries are dropped, except those that were looked up meanwhile. So each operation takes
//! constant time, and entries in use stay.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::base::hash::Digest;

/// Number of parts with a lock of their own.
const SHARDS: usize = 16;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<T> {
    /// Index of the token's issuer; `None`: the result does not depend on one.
    pub(super) issuer: Option<usize>,
    /// Version of the issuer's keys that it was verified with.
    pub(super) version: u64,
    pub(super) value: T,
}

pub(super) struct Cache<T> {
    shards: Vec<Mutex<Shard<T>>>,
    /// Maximum number of entries of one map of a shard.
    capacity: usize,
}

struct Shard<T> {
    young: HashMap<Digest, Entry<T>>,
    old: HashMap<Digest, Entry<T>>,
}

impl<T: Clone> Cache<T> {
    /// A cache of at most `max_entries`.
    pub(super) fn new(max_entries: usize) -> Self {
        let shard = || Mutex::new(Shard { young: HashMap::new(), old: HashMap::new() });
        let capacity = (max_entries / SHARDS / 2).max(1);
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), capacity }
    }

    pub(super) fn get(&self, digest: &Digest) -> Option<Entry<T>> {
        let mut shard = self.shard(digest)?.lock();
        if let Some(entry) = shard.young.get(digest) {
            return Some(entry.clone());
        }
        let entry = shard.old.remove(digest)?;
        shard.add(*digest, entry.clone(), self.capacity);
        Some(entry)
    }

    pub(super) fn insert(&self, digest: Digest, entry: Entry<T>) {
        if let Some(shard) = self.shard(&digest) {
            shard.lock().add(digest, entry, self.capacity);
        }
    }

    fn shard(&self, digest: &Digest) -> Option<&Mutex<Shard<T>>> {
        self.shards.get(usize::from(digest[0]) % SHARDS)
    }
}

impl<T> Shard<T> {
    fn add(&mut self, digest: Digest, entry: Entry<T>, capacity: usize) {
        if self.young.len() >= capacity && !self.young.contains_key(&digest) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, entry);
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn digest(number: u64) -> Digest {
        Sha256::digest(number.to_be_bytes()).into()
    }

    fn entry(value: u64) -> Entry<u64> {
        Entry { issuer: None, version: 0, value }
    }

    #[test]
    fn entries_in_use_outlast_a_flood_and_the_number_is_bounded() {
        let cache = Cache::new(320);
        cache.insert(digest(0), entry(0));
        for number in 1..100_000 {
            cache.insert(digest(number), entry(number));
            assert_eq!(cache.get(&digest(0)), Some(entry(0)), "{number}");
        }
        let count = |shard: &Mutex<Shard<u64>>| {
            let shard = shard.lock();
            shard.young.len() + shard.old.len()
        };
        let count: usize = cache.shards.iter().map(count).sum();
        assert!(count <= 320, "{count}");
        assert_eq!(cache.get(&digest(1)), None);
    }
}
