//! What only the bytes of an HTTP/1 head show: the parser accepts it, and its result has lost it.

/// Whether the bytes of a head can be read in more than one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RawHead {
    /// They cannot. The heads of HTTP/2 are always plain.
    #[default]
    Plain,
    /// It has `Content-Length` beside `Transfer-Encoding`. Pingora removes the length.
    ConflictingLengths,
    /// A line ends with LF without CR. Servers that read only CR LF as the end of a line see other
    /// lines, or another end of the head.
    BareLineFeed,
}

impl RawHead {
    /// Inspects a head up to its blank line. `is_chunked`: the parsed head has a
    /// `Transfer-Encoding`.
    pub fn of(bytes: &[u8], is_chunked: bool) -> Self {
        let ends_with_cr = |line_feed: usize| bytes[..line_feed].ends_with(b"\r");
        if !memchr::memchr_iter(b'\n', bytes).all(ends_with_cr) {
            Self::BareLineFeed
        } else if is_chunked && has_content_length(bytes) {
            Self::ConflictingLengths
        } else {
            Self::Plain
        }
    }
}

fn has_content_length(head: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    head.split(|byte| *byte == b'\n')
        .any(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_feed_without_a_carriage_return_is_detected_in_every_line() {
        let head = b"\r\nPOST / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
        assert_eq!(RawHead::of(head, false), RawHead::Plain);
        let returns = (0..head.len()).filter(|index| head[*index] == b'\r');
        for index in returns {
            let mut without = head.to_vec();
            without.remove(index);
            assert_eq!(RawHead::of(&without, false), RawHead::BareLineFeed, "{index}");
        }
        assert_eq!(RawHead::of(b"\n", false), RawHead::BareLineFeed);
        assert_eq!(RawHead::of(b"", false), RawHead::Plain);
    }

    #[test]
    fn content_length_conflicts_only_with_a_transfer_encoding() {
        let head = b"POST / HTTP/1.1\r\ncOntent-length: 5\r\n\r\n";
        assert_eq!(RawHead::of(head, false), RawHead::Plain);
        assert_eq!(RawHead::of(head, true), RawHead::ConflictingLengths);
        let other = b"POST / HTTP/1.1\r\nX-Content-Length: 5\r\n\r\n";
        assert_eq!(RawHead::of(other, true), RawHead::Plain);
    }
}
