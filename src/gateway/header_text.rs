//! Text for headers, put together without the machinery of `fmt`: every request and every answer
//! has some.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use http::header::InvalidHeaderValue;

use crate::text::put_ip;

/// Room for what one limit has to say. More is possible.
const ROOM_BYTES: usize = 64;

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
        self.separate();
        let text = &mut self.0;
        text.put_u8(b'"');
        text.put_slice(name.as_bytes());
        text.put_u8(b'"');
        let mut digits = itoa::Buffer::new();
        for (key, number) in parameters {
            text.put_slice(key.as_bytes());
            text.put_slice(digits.format(number).as_bytes());
        }
    }

    /// Adds an element of a list whose elements are plain text (RFC 9110, section 5.6.1).
    pub(super) fn element(&mut self, text: &[u8]) {
        self.separate();
        self.0.put_slice(text);
    }

    /// Adds an address as an element of a list.
    pub(super) fn address(&mut self, address: IpAddr) {
        self.separate();
        put_ip(&mut self.0, address);
    }

    /// Whether there is nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn separate(&mut self) {
        if !self.is_empty() {
            self.0.put_slice(b", ");
        }
    }
}

impl TryFrom<HeaderText> for HeaderValue {
    type Error = InvalidHeaderValue;

    fn try_from(text: HeaderText) -> Result<Self, InvalidHeaderValue> {
        Self::from_maybe_shared(text.0.freeze())
    }
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
    fn addresses_are_what_fmt_prints() {
        let mut text = HeaderText::new();
        assert!(text.is_empty());
        text.element(b"unknown");
        for address in ["0.0.0.0", "255.10.0.1", "::1", "2001:db8::7"] {
            text.address(address.parse().unwrap());
        }
        assert_eq!(
            HeaderValue::try_from(text).unwrap(),
            "unknown, 0.0.0.0, 255.10.0.1, ::1, 2001:db8::7"
        );
    }
}
