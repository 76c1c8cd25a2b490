//! [`Events`]: reads the JSON of server-sent events, one text for each event.
//!
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>

use super::json::Scanner;

const DATA: &[u8] = b"data:";

/// The events of one stream, which comes in parts.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) scanner: Scanner,
    line: Line,
    /// The last byte was a carriage return: a line feed after it is part of the same end of a line.
    is_after_return: bool,
}

/// What is known of the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// It has so many bytes of `data:` and no others.
    Begun(usize),
    /// Data of the event.
    Data,
    /// Another field, or a comment.
    Other,
}

impl Events {
    pub(super) const fn new(scanner: Scanner) -> Self {
        Self { scanner, line: Line::Begun(0), is_after_return: false }
    }

    /// Reads the next part of the stream.
    pub(super) fn read(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first() {
            let is_second_half = self.is_after_return && *byte == b'\n';
            self.is_after_return = *byte == b'\r';
            if is_second_half {
                rest = after;
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                self.end_line();
                rest = after;
                continue;
            }
            if self.line == Line::Begun(0) && matches!(byte, 0xef | 0xbb | 0xbf) {
                // A byte order mark. No field begins with one of its bytes.
                rest = after;
                continue;
            }
            if let Line::Begun(length) = self.line {
                self.line = match DATA.get(length) {
                    Some(expected) if expected == byte && length + 1 == DATA.len() => Line::Data,
                    Some(expected) if expected == byte => Line::Begun(length + 1),
                    _ => Line::Other,
                };
                rest = after;
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line == Line::Data {
                self.scanner.read(line);
            }
            rest = after;
        }
    }

    fn end_line(&mut self) {
        match self.line {
            // An empty line ends the event.
            Line::Begun(0) => self.scanner.end(),
            Line::Data => self.scanner.read(b"\n"),
            Line::Begun(_) | Line::Other => {}
        }
        self.line = Line::Begun(0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;
    use crate::limit::cost::Amount;

    fn read(stream: &str, length: usize) -> Option<u64> {
        let Source::Json(sum) = Source::parse("json:usage.n").unwrap() else { unreachable!() };
        let mut events = Events::new(Scanner::new(sum.paths()));
        stream.as_bytes().chunks(length).for_each(|part| events.read(part));
        events.scanner.end();
        events.scanner.number(0).map(Amount::tokens_up)
    }

    #[test]
    fn last_event_with_the_number_counts() {
        let stream = ": comment with {\"usage\": {\"n\": 7}}\n\
            event: a\ndata: {\"usage\": null}\n\n\
            data:{\"usage\": {\"n\": 12}}\n\n\
            id: 9\ndata: {\"usage\":\ndata: {\"n\":\ndata: 34}}\n\n\
            datum: {\"usage\": {\"n\": 99}}\n\ndata: [DONE]\n\n";
        for length in 1..20 {
            assert_eq!(read(stream, length), Some(34));
            assert_eq!(read(&stream.replace('\n', "\r\n"), length), Some(34));
            assert_eq!(read(&stream.replace('\n', "\r"), length), Some(34));
        }
    }

    #[test]
    fn event_that_breaks_off_does_not_spoil_the_next_one() {
        let stream = "data: {\"usage\": {\"x\": \"\n\ndata: {\"usage\": {\"n\": 5}}\n\n";
        assert_eq!(read(stream, 4), Some(5));
        assert_eq!(read("data: {\"usage\": {\"n\": 5", 3), None);
        assert_eq!(read("\u{feff}data: {\"usage\": {\"n\": 5}}\n\n", 2), Some(5));
    }
}
