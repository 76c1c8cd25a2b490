//! Parser of server-sent events.

use crate::api::samples::Sample;

/// Maximum size of one event. Five minutes of very many names have 3 MB.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// An event of the stream `GET /api/events`.
#[derive(Debug)]
pub(super) enum Event {
    /// The samples of the last minutes, oldest first.
    History(Vec<Sample>),
    /// The sample of the last second.
    Sample(Box<Sample>),
}

/// Parses events from pieces of any length, and keeps the incomplete one.
#[derive(Debug, Default)]
pub(super) struct Parser {
    rest: Vec<u8>,
}

/// The bytes are not events of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Parser {
    /// Returns the events that these bytes complete. Events of an unknown type are ignored.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Malformed> {
        // The end of an event has two bytes; the first may have arrived before.
        let from = self.rest.len().saturating_sub(1);
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        let (mut start, mut from) = (0, from);
        while let Some(end) = position(&self.rest[from..], b"\n\n").map(|at| from + at) {
            events.extend(event(&self.rest[start..end])?);
            (start, from) = (end + 2, end + 2);
        }
        self.rest.drain(..start);
        if self.rest.len() > MAX_EVENT_BYTES { Err(Malformed) } else { Ok(events) }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn event(lines: &[u8]) -> Result<Option<Event>, Malformed> {
    let field = |name: &[u8]| {
        let mut lines = lines.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let (Some(name), Some(data)) = (field(b"event:"), field(b"data:")) else { return Ok(None) };
    match name {
        b"history" => {
            Ok(Some(Event::History(serde_json::from_slice(data).map_err(|_| Malformed)?)))
        }
        b"sample" => Ok(Some(Event::Sample(serde_json::from_slice(data).map_err(|_| Malformed)?))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "event: history\ndata: [{\"at_ms\":1,\"span_ms\":1000,\"plans\":{},\"rules\":{}}]\n\n\
        : a comment\n\nevent: other\ndata: {}\n\n\
        event: sample\ndata: {\"at_ms\":2,\"span_ms\":999,\"plans\":{\"free\":{\"allowed\":4,\"refused\":2}},\"rules\":{}}\n\n\
        event: sample\ndata: {\"at_ms\":3";

    fn shown(event: &Event) -> String {
        match event {
            Event::History(samples) => format!("history of {}", samples.len()),
            Event::Sample(sample) => format!("{}: {:?}", sample.at_ms, sample.plans.get("free")),
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn events_are_parsed_from_pieces_of_any_length(cuts in prop::collection::vec(0..TEXT.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let mut all = Vec::new();
            for cut in cuts.windows(2) {
                all.extend(parser.take(&TEXT.as_bytes()[cut[0]..cut[1]]).unwrap());
            }
            let all: Vec<String> = all.iter().map(shown).collect();
            let row = "Some(OutcomeCounts { allowed: 4, refused: 2, unavailable: 0, unauthorized: 0, rejected: 0 })";
            prop_assert_eq!(all, ["history of 1".to_owned(), format!("2: {row}")]);
        }
    }

    #[test]
    fn malformed_events_are_errors() {
        for text in ["event: sample\ndata: {}\n\n", "event: history\ndata: <html>\n\n"] {
            assert_eq!(
                Parser::default().take(text.as_bytes()).map(|_| ()),
                Err(Malformed),
                "{text}"
            );
        }
        assert!(Parser::default().take(&vec![b'x'; MAX_EVENT_BYTES + 1]).is_err());
    }
}
