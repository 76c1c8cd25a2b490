//! Percent-encoding (RFC 3986, section 2.1), over the crate `percent-encoding`.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986, section 2.3.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes everything but letters, digits, `-`, `_`, `.` and `~`, so that the text is one component
/// of a URL.
pub fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, COMPONENT).to_string()
}

/// Returns the byte that `%XX` at the beginning of `text` encodes; `None` if there is none.
pub fn escape(text: &[u8]) -> Option<u8> {
    match text.get(..3)? {
        code @ [b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            percent_decode(code).next()
        }
        _ => None,
    }
}

/// Decodes every `%XX`. Returns `None` if a `%` lacks its two digits.
pub fn decode_strict(text: &str) -> Option<Vec<u8>> {
    let mut escapes = text.as_bytes().split(|byte| *byte == b'%').skip(1);
    let is_valid = |rest: &[u8]| rest.get(..2).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit));
    escapes.all(is_valid).then(|| percent_decode(text.as_bytes()).collect())
}

/// Decodes a name or value of a query as servers do: `%XX` is a byte, `+` a space, and a malformed
/// escape stays as it is. Allocates only if the text has an escape or a `+`.
pub fn decode_query(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut decoded = Vec::with_capacity(text.len());
    for (index, part) in text.as_bytes().split(|byte| *byte == b'+').enumerate() {
        if index > 0 {
            decoded.push(b' ');
        }
        decoded.extend(percent_decode(part));
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn component_is_decoded_to_the_encoded_text() {
        assert_eq!(encode_component("a-_.~Z9"), "a-_.~Z9");
        assert_eq!(encode_component(" +&=%/?#\u{e9}"), "%20%2B%26%3D%25%2F%3F%23%C3%A9");
        for text in ["", "a", "a:/@%?#é{} ", "100%", "\0\n"] {
            assert_eq!(decode_strict(&encode_component(text)).unwrap(), text.as_bytes());
            assert_eq!(&*decode_query(&encode_component(text)), text.as_bytes());
        }
    }

    #[test]
    fn escape_is_read_only_at_the_beginning() {
        assert_eq!(escape(b"%2Fx"), Some(b'/'));
        assert_eq!(escape(b"%2f"), Some(b'/'));
        assert_eq!(escape(b"%25"), Some(b'%'));
        assert_eq!(escape(b"%ff"), Some(0xff));
        for text in [&b""[..], b"%", b"%2", b"x%2f", b"%zz", b"%2z", b"%+2", b"%%32"] {
            assert_eq!(escape(text), None, "{text:?}");
        }
    }

    #[test]
    fn strict_decoding_rejects_malformed_escapes() {
        assert_eq!(decode_strict("a%20b+%ff").unwrap(), b"a b+\xff");
        assert_eq!(decode_strict("%2525").unwrap(), b"%25");
        for text in ["%", "%2", "%zz", "a%2", "%%32%66"] {
            assert_eq!(decode_strict(text), None, "{text}");
        }
    }

    #[test]
    fn query_decoding_keeps_malformed_escapes() {
        let table = [
            ("a+b%20c", "a b c"),
            ("%2B+%2b", "+ +"),
            ("%", "%"),
            ("%2", "%2"),
            ("%zz%41", "%zzA"),
            ("%+41", "% 41"),
            ("%%41", "%A"),
            ("++", "  "),
        ];
        for (text, expected) in table {
            assert_eq!(&*decode_query(text), expected.as_bytes(), "{text}");
        }
        assert!(matches!(decode_query("plain"), Cow::Borrowed(b"plain")));
    }
}
