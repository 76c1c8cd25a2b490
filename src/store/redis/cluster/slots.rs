//! Hash slots of Redis Cluster: which slot a key is in, and where tags with a slot in a given range
//! are found. Pure.
//!
//! A key's slot is the CRC-16 (XMODEM) of its hash tag, modulo the number of slots, as the
//! specification of Redis Cluster has it.

pub const SLOTS: u16 = 16_384;

/// Polynomial of CRC-16/XMODEM.
const POLYNOMIAL: u16 = 0x1021;

/// CRC-16 of each byte.
const TABLE: [u16; 256] = table();

#[allow(clippy::cast_possible_truncation, reason = "a byte has 256 values")]
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// Slot of a hash tag, or of a key without one.
pub fn slot_of_tag(tag: &[u8]) -> u16 {
    let crc = tag
        .iter()
        .fold(0_u16, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) ^ u16::from(*byte))]);
    crc % SLOTS
}

/// Slot of a key: that of the text between its first `{` and the next `}`, if there is any, else of
/// the whole key.
pub fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    slot_of_tag(tag.unwrap_or(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of `CLUSTER KEYSLOT` of Redis 8.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot_of_tag(b"123456789"), 0x31C3 % SLOTS);
        let table = [
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("", 0),
        ];
        for (key, slot) in table {
            assert_eq!(slot_of_key(key.as_bytes()), slot, "{key}");
        }
    }
}
