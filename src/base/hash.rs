//! Hashes that are the same on all gateways and after a restart. Those of this file do not resist
//! attacks.

/// A SHA-256.
pub(crate) type Digest = [u8; 32];

/// 2^64 divided by the golden ratio: multiples of it are spread over all numbers.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The FNV-1a hash of no bytes.
pub(crate) const FNV_1A: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds bytes to a hash that began as [`FNV_1A`].
pub(crate) fn fnv_1a(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(hash, fold)
}

/// The hash of bytes: FNV-1a, mixed.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mix(fnv_1a(FNV_1A, bytes.iter().copied()))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014): every bit of the result depends on every bit of the number.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
