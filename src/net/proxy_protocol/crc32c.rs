//! CRC-32C (Castagnoli), RFC 4960, appendix B.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// A checksum of the bytes so far.
#[derive(Clone, Copy)]
pub(super) struct Crc32c(u32);

impl Crc32c {
    /// The checksum of no bytes.
    pub(super) fn new() -> Self {
        Self(u32::MAX)
    }

    /// The checksum with `bytes` after those before. Eight steps a byte: a header has at most 4
    /// KiB, and a connection one header.
    pub(super) fn update(self, bytes: &[u8]) -> Self {
        let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
        Self(bytes.iter().fold(self.0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step)))
    }

    /// The final value.
    pub(super) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_the_specification() {
        let sum = |bytes: &[u8]| Crc32c::new().update(bytes).value();
        assert_eq!(sum(b"123456789"), 0xe306_9283);
        // RFC 3720, appendix B.4.
        assert_eq!(sum(&[0; 32]), 0x8a91_36aa);
        assert_eq!(sum(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(Crc32c::new().update(b"1234").update(b"56789").value(), 0xe306_9283);
    }
}
