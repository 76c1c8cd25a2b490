//! Server-sent events out of the bytes that a connection brings, in pieces of any length.

use super::api::Tick;

/// The most bytes of one event. Five minutes of very many names have 3 MB.
const MOST: usize = 16 << 20;

/// What the gateway tells by itself.
#[derive(Debug)]
pub(super) enum Event {
    /// The last minutes, the oldest first.
    History(Vec<Tick>),
    /// One more second.
    Tick(Box<Tick>),
}

/// Bytes of which no whole event has been made yet.
#[derive(Debug, Default)]
pub(super) struct Parser {
    rest: Vec<u8>,
}

/// The bytes are no events of a gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strange;

impl Parser {
    /// The events that are whole with these bytes. Those of a name that is not known are none.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Strange> {
        // What was there has no end, but its last byte may be the first of one.
        let from = self.rest.len().saturating_sub(1);
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        let (mut start, mut from) = (0, from);
        while let Some(end) = position(&self.rest[from..], b"\n\n").map(|at| from + at) {
            events.extend(event(&self.rest[start..end])?);
            (start, from) = (end + 2, end + 2);
        }
        self.rest.drain(..start);
        if self.rest.len() > MOST { Err(Strange) } else { Ok(events) }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn event(lines: &[u8]) -> Result<Option<Event>, Strange> {
    let field = |name: &[u8]| {
        let mut lines = lines.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let (Some(name), Some(data)) = (field(b"event:"), field(b"data:")) else { return Ok(None) };
    match name {
        b"history" => Ok(Some(Event::History(serde_json::from_slice(data).map_err(|_| Strange)?))),
        b"sample" => Ok(Some(Event::Tick(serde_json::from_slice(data).map_err(|_| Strange)?))),
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

    fn told(event: &Event) -> String {
        match event {
            Event::History(ticks) => format!("history of {}", ticks.len()),
            Event::Tick(tick) => format!("{}: {:?}", tick.at_ms, tick.plans.get("free")),
        }
    }

    proptest! {
        /// However the bytes come, the events are the same.
        #[test]
        fn events_come_in_pieces_of_any_length(cuts in prop::collection::vec(0..TEXT.len(), 0..20)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let mut all = Vec::new();
            for cut in cuts.windows(2) {
                all.extend(parser.take(&TEXT.as_bytes()[cut[0]..cut[1]]).unwrap());
            }
            let all: Vec<String> = all.iter().map(told).collect();
            let row = "Some(Row { allowed: 4, refused: 2, shadow_refused: 0 })";
            prop_assert_eq!(all, ["history of 1".to_owned(), format!("2: {row}")]);
        }
    }

    #[test]
    fn what_is_none_is_said_to_be() {
        for text in ["event: sample\ndata: {}\n\n", "event: history\ndata: <html>\n\n"] {
            assert_eq!(Parser::default().take(text.as_bytes()).map(|_| ()), Err(Strange), "{text}");
        }
        assert!(Parser::default().take(&vec![b'x'; MOST + 1]).is_err());
    }
}
