//! Text for headers, put together without the machinery of `fmt`: every answer has some.

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use http::header::InvalidHeaderValue;

/// Room for what one limit has to say. More is possible.
const ROOM_BYTES: usize = 64;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// A header's value in the making.
#[derive(Debug)]
pub(super) struct HeaderText(BytesMut);

impl HeaderText {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self(BytesMut::with_capacity(ROOM_BYTES))
    }

    /// Adds an item of a structured list (RFC 9651, sections 3.1 and 3.3.3): the name in quotes,
    /// and each parameter as `;key=` with its number. `name` has neither quotes nor backslashes.
    pub(super) fn item<const N: usize>(&mut self, name: &str, parameters: [(&str, u64); N]) {
        let text = &mut self.0;
        text.put_slice(if text.is_empty() { b"\"" } else { b", \"" });
        text.put_slice(name.as_bytes());
        text.put_u8(b'"');
        let mut digits = itoa::Buffer::new();
        for (key, number) in parameters {
            text.put_slice(key.as_bytes());
            text.put_slice(digits.format(number).as_bytes());
        }
    }
}

impl TryFrom<HeaderText> for HeaderValue {
    type Error = InvalidHeaderValue;

    fn try_from(text: HeaderText) -> Result<Self, InvalidHeaderValue> {
        Self::from_maybe_shared(text.0.freeze())
    }
}

/// Sixteen hexadecimal digits.
pub(super) fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = HEX.get((rest & 15) as usize).copied().unwrap_or_default();
        rest >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stand_behind_one_another() {
        let mut text = HeaderText::new();
        text.item("per-key", [(";q=", 10), (";w=", 86_400)]);
        text.item(&"x".repeat(64), [(";q=", u64::MAX)]);
        let expected =
            format!("\"per-key\";q=10;w=86400, \"{}\";q=18446744073709551615", "x".repeat(64));
        assert_eq!(HeaderValue::try_from(text).unwrap(), expected);
    }

    #[test]
    fn hex_is_what_fmt_prints() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
