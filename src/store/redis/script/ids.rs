//! Hasher of bucket IDs, which are hashes already.

use std::hash::{BuildHasher, Hasher};

/// Builds [`IdHasher`]s for maps by bucket ID.
#[derive(Debug, Clone, Default)]
pub(super) struct IdState;

/// Uses the low bits of an ID as its hash.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl BuildHasher for IdState {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(0)
    }
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }
}
