//! Builds header values without `fmt`: every request and every response has some.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use http::header::InvalidHeaderValue;

use crate::base::text::put_ip;

/// Initial capacity, enough for one limit.
const CAPACITY_BYTES: usize = 64;

/// Builder of a header value.
#[derive(Debug)]
pub(super) struct HeaderText(BytesMut);

impl HeaderText {
    /// Creates an empty value.
    pub(super) fn new() -> Self {
        Self(BytesMut::with_capacity(CAPACITY_BYTES))
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

    /// Adds a parameter to the last item, as it is written.
    pub(super) fn parameter(&mut self, text: &str) {
        self.0.put_slice(text.as_bytes());
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

    /// Returns whether the value is empty.
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
    fn items_are_separated_by_commas() {
        let mut text = HeaderText::new();
        text.item("per-key", [(";q=", 10), (";w=", 86_400)]);
        text.item(&"x".repeat(64), [(";q=", u64::MAX)]);
        let expected =
            format!("\"per-key\";q=10;w=86400, \"{}\";q=18446744073709551615", "x".repeat(64));
        assert_eq!(HeaderValue::try_from(text).unwrap(), expected);
    }

    #[test]
    fn addresses_equal_those_of_fmt() {
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
