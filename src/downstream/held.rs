//! Bytes of a head that its reader does not get yet.
//!
//! Pingora 0.9.1 parses all of a head again after each read. A client that sends a line of 160 KB
//! in single bytes would cost as much as that many requests. So bytes wait here until a line has
//! ended.

use memchr::memchr;
use tokio::io::ReadBuf;

/// Bytes that wait at most. A long line is then parsed once for as many.
const MAX_HELD_BYTES: usize = 4096;

/// Bytes of a head that have been read, and wait for the end of their line.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Vec<u8>,
    /// Whether the bytes wait no longer.
    is_due: bool,
    /// Whether the head has more than empty lines, which may precede a request.
    has_text: bool,
}

impl Held {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), is_due: false, has_text: true }
    }

    /// Begins a head with the bytes that its reader has got; `None`: bytes that are not known here.
    pub(super) fn begin(&mut self, first: Option<&[u8]>) {
        self.has_text = first.is_none_or(has_text);
    }

    /// Adds bytes of the head.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.has_text |= has_text(bytes);
        self.bytes.extend_from_slice(bytes);
        let has_ended = self.has_text && memchr(b'\n', bytes).is_some();
        self.is_due |= has_ended || self.bytes.len() >= MAX_HELD_BYTES;
    }

    /// Lets the bytes wait no longer, as nothing follows.
    pub(super) fn end(&mut self) {
        self.is_due = !self.bytes.is_empty();
    }

    /// Whether there are bytes that wait no longer.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Moves bytes that wait no longer to their reader.
    pub(super) fn deliver(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        if self.bytes.is_empty() {
            *self = Self { has_text: self.has_text, ..Self::new() };
        }
    }
}

fn has_text(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(held: &mut Held) -> String {
        let mut space = [0; 8];
        let mut text = String::new();
        while held.is_due() {
            let mut buffer = ReadBuf::new(&mut space);
            held.deliver(&mut buffer);
            text.push_str(str::from_utf8(buffer.filled()).unwrap());
        }
        text
    }

    #[test]
    fn bytes_wait_for_the_end_of_their_line() {
        let mut held = Held::new();
        held.begin(Some(b"GET / HT"));
        for (byte, expected) in [
            ("T", ""),
            ("P/1.1\r", ""),
            ("\n", "TP/1.1\r\n"),
            ("A: b\r\nC", "A: b\r\nC"),
            ("\r\n\r\n", "\r\n\r\n"),
        ] {
            held.push(byte.as_bytes());
            assert_eq!(delivered(&mut held), expected);
        }
        held.push(b"rest");
        held.end();
        assert_eq!(delivered(&mut held), "rest");
    }

    #[test]
    fn empty_lines_before_a_request_end_no_line_of_it() {
        let mut held = Held::new();
        held.begin(Some(b"\r\n"));
        held.push(b"\n");
        held.push(b"\r\n");
        assert_eq!(delivered(&mut held), "");
        held.push(b"G\n");
        assert_eq!(delivered(&mut held), "\n\r\nG\n");
        held.begin(None);
        held.push(b"\n");
        assert_eq!(delivered(&mut held), "\n");
    }

    #[test]
    fn long_line_is_delivered_in_large_parts() {
        let mut held = Held::new();
        held.begin(Some(b"GET /"));
        let parts = (0..20_000).filter(|_| {
            held.push(b"a");
            !delivered(&mut held).is_empty()
        });
        assert_eq!(parts.count(), 4);
    }
}
