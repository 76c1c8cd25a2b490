//! A hash of a client, which is the same in the bucket IDs of all of its colocated rules. Pure.
//!
//! It only chooses a slot, so it need not resist attacks: 96 bits of SHA-256 are left in each ID to
//! keep the buckets apart, and a billion buckets share an ID with a probability of 2^-37. It must
//! not change between versions: gateways of different versions share buckets.

use crate::base::hash::{FNV_1A, fnv_1a};

/// Number of bits of an ID that are not the client's.
const OTHER_BITS: u32 = 96;

/// FNV-1a with 64 bits, mixed at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientHash(u64);

impl Default for ClientHash {
    fn default() -> Self {
        Self(FNV_1A)
    }
}

impl ClientHash {
    /// Adds a value and what it is.
    pub(super) fn add(&mut self, tag: u8, value: &[u8]) {
        self.0 = fnv_1a(self.0, std::iter::once(tag).chain(value.iter().copied()));
    }

    /// `part` with this hash as its highest 32 bits. Maps and shards use the others.
    pub(super) fn at_the_top_of(self, part: u128) -> u128 {
        let low = part & ((1 << OTHER_BITS) - 1);
        u128::from(self.mixed()) << OTHER_BITS | low
    }

    /// The last steps of `MurmurHash3`, without which short values would differ in few bits.
    #[allow(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
    fn mixed(self) -> u32 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        (hash ^ hash >> 33) as u32
    }
}
