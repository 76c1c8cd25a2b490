//! New API keys: `tg_`, 256 bits of randomness, and a checksum by which scanners of source code and
//! logs recognise a leaked key.

use sha2::{Digest as _, Sha256};

use super::record::HexDigest;

/// How each new key begins.
pub const PREFIX: &str = "tg_";

/// Bytes of randomness.
const RANDOM_BYTES: usize = 32;

/// Digits of the random part: 62^43 is above 2^256.
const RANDOM_DIGITS: usize = 43;

/// Digits of the checksum: 62^6 is above 2^32.
const CHECKSUM_DIGITS: usize = 6;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new API key, which is not stored.
#[derive(Debug)]
pub struct NewKey {
    /// The key, as clients send it.
    pub text: String,
    pub digest: HexDigest,
}

impl NewKey {
    /// Makes a key of random bytes.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8; RANDOM_BYTES]) -> Self {
        let mut text = PREFIX.to_owned();
        push_digits(&mut text, bytes, RANDOM_DIGITS);
        let checksum = crc32(text.as_bytes());
        push_digits(&mut text, &checksum.to_be_bytes(), CHECKSUM_DIGITS);
        let digest = HexDigest(Sha256::digest(&text).into());
        Self { text, digest }
    }
}

/// Whether a text has the form of a key of [`NewKey`], with the right checksum.
pub fn is_key(text: &str) -> bool {
    let Some(random) = text.strip_prefix(PREFIX) else { return false };
    if random.len() != RANDOM_DIGITS + CHECKSUM_DIGITS || !random.is_ascii() {
        return false;
    }
    let (key, checksum) = text.split_at(PREFIX.len() + RANDOM_DIGITS);
    let mut expected = String::new();
    push_digits(&mut expected, &crc32(key.as_bytes()).to_be_bytes(), CHECKSUM_DIGITS);
    checksum == expected
}

/// Appends a number (big endian) in base 62, with leading zeros.
fn push_digits(text: &mut String, number: &[u8], digits: usize) {
    let mut rest = number.to_vec();
    let mut reversed = Vec::with_capacity(digits);
    for _ in 0..digits {
        let mut carry = 0_u32;
        for byte in &mut rest {
            let value = (carry << 8) | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or_default();
            carry = value % 62;
        }
        reversed.push(DIGITS.get(carry as usize).copied().unwrap_or_default());
    }
    text.extend(reversed.iter().rev().map(|digit| char::from(*digit)));
}

/// CRC-32 of IEEE 802.3, as zlib has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_zlib() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn key_has_its_form_and_no_other_text_does() {
        for bytes in [[0; 32], [255; 32], std::array::from_fn(|at| u8::try_from(at).unwrap())] {
            let key = NewKey::of(&bytes);
            assert!(is_key(&key.text), "{}", key.text);
            assert_eq!(key.text.len(), 52);
            assert_eq!(key.digest.0, <[u8; 32]>::from(Sha256::digest(&key.text)));
            let mut changed = key.text.clone().into_bytes();
            changed[10] = if changed[10] == b'a' { b'b' } else { b'a' };
            assert!(!is_key(std::str::from_utf8(&changed).unwrap()));
        }
        for text in ["", "tg_", "tg_0123456789abcdef", &"ä".repeat(26)] {
            assert!(!is_key(text), "{text}");
        }
        assert_ne!(NewKey::random().unwrap().text, NewKey::random().unwrap().text);
    }

    #[test]
    fn random_bytes_are_written_without_loss() {
        let text = |bytes: &[u8; 32]| NewKey::of(bytes).text;
        let mut one = [0; 32];
        one[31] = 61;
        assert!(text(&one)[..46].ends_with("0z"));
        one[31] = 62;
        assert!(text(&one)[..46].ends_with("010"));
    }
}
