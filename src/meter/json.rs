//! [`Scanner`]: reads numbers at given paths of a JSON text that comes in parts.
//!
//! It keeps no part of the text but the name or number that it is in, so its memory does not depend
//! on the text. It does not check that the text is valid: an invalid one yields some of the numbers
//! in it, or none. Several texts may follow each other; of several numbers at a path, the last one
//! counts.

use smallvec::SmallVec;

use super::source::{MAX_NAME_BYTES, Path};
use crate::limit::cost::Amount;

/// Deepest nesting whose names are read: one bit for each level.
const MAX_DEPTH: u32 = 128;

/// Longest number that is read, in bytes.
const MAX_NUMBER_BYTES: usize = 64;

/// What is read of one text, or of several ones.
#[derive(Debug)]
pub(super) struct Scanner {
    watched: Box<[Watched]>,
    place: Place,
    /// Number of open objects and arrays.
    depth: u32,
    /// A bit for each of them, the outermost one first: 1 for an array.
    arrays: u128,
    /// In an object: whether the next text is a name.
    is_name_next: bool,
    /// Number of the current item of each array.
    items: SmallVec<[u32; 8]>,
    /// The current name or number, as far as it is not too long.
    token: SmallVec<[u8; MAX_NAME_BYTES]>,
    is_token_cut: bool,
}

/// A path, and the last number at it.
#[derive(Debug)]
struct Watched {
    path: Path,
    number: Option<Amount>,
    /// Number of names of the path that the open objects and arrays have, but for the innermost
    /// one's current member.
    matched: u32,
    /// Whether the current member of the innermost one has the next name.
    is_current: bool,
}

/// Where in the text the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Between,
    Name,
    NameEscape,
    Text,
    TextEscape,
    Number,
}

impl Scanner {
    /// A scanner of no text yet.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let watched = paths.map(|path| Watched {
            path: path.clone(),
            number: None,
            matched: 0,
            is_current: false,
        });
        Self {
            watched: watched.collect(),
            place: Place::Between,
            depth: 0,
            arrays: 0,
            is_name_next: false,
            items: SmallVec::new(),
            token: SmallVec::new(),
            is_token_cut: false,
        }
    }

    /// The last number at the path with this index.
    pub(super) fn number(&self, index: usize) -> Option<Amount> {
        self.watched.get(index)?.number
    }

    /// Reads the next part of the text.
    pub(super) fn read(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first() {
            if self.place == Place::Text {
                // Most bytes are those of texts.
                let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                let Some(end) = end else { return };
                self.place = if rest[end] == b'"' { Place::Between } else { Place::TextEscape };
                rest = &rest[end + 1..];
                continue;
            }
            self.step(*byte);
            rest = after;
        }
    }

    /// Ends a text. Another one may follow. A number that it breaks off in is not read: digits may
    /// be missing.
    pub(super) fn end(&mut self) {
        (self.place, self.depth, self.is_name_next) = (Place::Between, 0, false);
        self.items.clear();
        for watched in &mut self.watched {
            (watched.matched, watched.is_current) = (0, false);
        }
    }

    fn step(&mut self, byte: u8) {
        match self.place {
            Place::Between => self.between(byte),
            Place::Text => {}
            Place::TextEscape => self.place = Place::Text,
            Place::Name if byte == b'"' => self.end_name(),
            Place::Name if byte == b'\\' => self.place = Place::NameEscape,
            Place::Name => self.push(byte, MAX_NAME_BYTES),
            Place::NameEscape => {
                // No name of a path has one.
                (self.place, self.is_token_cut) = (Place::Name, true);
            }
            Place::Number if matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => {
                self.push(byte, MAX_NUMBER_BYTES);
            }
            Place::Number => {
                self.end_number();
                self.between(byte);
            }
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' if self.is_name_next => self.begin(Place::Name),
            b'"' => self.place = Place::Text,
            b'{' => self.open(false),
            b'[' => self.open(true),
            b'}' | b']' => self.close(),
            b',' if self.depth > MAX_DEPTH => {}
            b',' if self.is_in_array() => {
                if let Some(item) = self.items.last_mut() {
                    *item = item.saturating_add(1);
                }
                self.begin_item();
            }
            b',' => self.is_name_next = self.depth > 0,
            b':' => self.is_name_next = false,
            b'-' | b'0'..=b'9' if !self.is_name_next => {
                self.begin(Place::Number);
                self.push(byte, MAX_NUMBER_BYTES);
            }
            // White space, and the letters of `true`, `false` and `null`.
            _ => {}
        }
    }

    fn begin(&mut self, place: Place) {
        self.place = place;
        self.token.clear();
        self.is_token_cut = false;
    }

    fn push(&mut self, byte: u8, most: usize) {
        if self.token.len() < most {
            self.token.push(byte);
        } else {
            self.is_token_cut = true;
        }
    }

    fn is_in_array(&self) -> bool {
        self.depth > 0 && self.arrays >> (self.depth - 1) & 1 == 1
    }

    fn open(&mut self, is_array: bool) {
        if self.depth >= MAX_DEPTH {
            // No path is as long: only the end of what is nested there is of interest.
            self.depth = self.depth.saturating_add(1);
            self.is_name_next = false;
            self.watched.iter_mut().for_each(|watched| watched.is_current = false);
            return;
        }
        for watched in &mut self.watched {
            if watched.is_current {
                watched.matched = self.depth;
            }
            watched.is_current = false;
        }
        let bit = 1 << self.depth;
        self.arrays = if is_array { self.arrays | bit } else { self.arrays & !bit };
        self.depth += 1;
        self.is_name_next = !is_array;
        if is_array {
            self.items.push(0);
            self.begin_item();
        }
    }

    fn close(&mut self) {
        if self.depth > MAX_DEPTH {
            self.depth -= 1;
            return;
        }
        if self.is_in_array() {
            self.items.pop();
        }
        self.depth = self.depth.saturating_sub(1);
        self.is_name_next = false;
        let above = self.depth.saturating_sub(1);
        for watched in &mut self.watched {
            watched.matched = watched.matched.min(above);
            watched.is_current = false;
        }
    }

    /// Begins an item of the innermost array.
    fn begin_item(&mut self) {
        let item = self.items.last().copied().unwrap_or_default();
        self.note_current(|name| name.parse() == Ok(item));
    }

    fn end_name(&mut self) {
        self.place = Place::Between;
        let token = if self.is_token_cut { None } else { Some(std::mem::take(&mut self.token)) };
        self.note_current(|name| token.as_deref() == Some(name.as_bytes()));
    }

    /// Notes which paths have the current member, by its name.
    fn note_current(&mut self, is_name: impl Fn(&str) -> bool) {
        let above = self.depth.saturating_sub(1);
        for watched in &mut self.watched {
            let name = watched.path.names.get(above as usize);
            watched.is_current = watched.matched == above && name.is_some_and(|name| is_name(name));
        }
    }

    fn end_number(&mut self) {
        self.place = Place::Between;
        let text = str::from_utf8(&self.token).ok().filter(|_| !self.is_token_cut);
        let number = text.and_then(Amount::of_json);
        for watched in &mut self.watched {
            if watched.is_current && watched.path.names.len() == self.depth as usize {
                watched.number = number.or(watched.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::source::Source;
    use super::*;

    /// The numbers that a scanner reads at `paths` of a text, in parts of these lengths, in
    /// thousandths.
    fn read(paths: &[&str], text: &str, lengths: &[usize]) -> Vec<Option<u64>> {
        let paths: Vec<Path> = paths.iter().map(|path| of(path)).collect();
        let mut scanner = Scanner::new(paths.iter());
        let (mut rest, mut lengths) = (text.as_bytes(), lengths.iter().cycle());
        while !rest.is_empty() {
            let length = lengths.next().copied().unwrap_or(usize::MAX).clamp(1, rest.len());
            scanner.read(&rest[..length]);
            rest = &rest[length..];
        }
        scanner.end();
        (0..paths.len()).map(|index| scanner.number(index).map(Amount::thousandths)).collect()
    }

    fn of(path: &str) -> Path {
        match Source::parse(&format!("json:{path}")).unwrap() {
            Source::Json(sum) => sum.paths().next().unwrap().clone(),
            _ => unreachable!(),
        }
    }

    #[test]
    fn numbers_are_read_at_their_paths_only() {
        let text = r#"{"usage": {"total_tokens": 57, "x": {"total_tokens": 1}},
            "total_tokens": 2, "a": [{"n": 3}, {"n": 4, "m": [5, 6]}], "usag": {"total_tokens": 8},
            "text": "\"usage\": {\"total_tokens\": 9}", "last": 1.0005}"#;
        let paths = ["usage.total_tokens", "a.1.n", "a.1.m.1", "a.2", "total_tokens", "last"];
        let last = Some(1_001);
        let expected = [Some(57_000), Some(4_000), Some(6_000), None, Some(2_000), last];
        for lengths in [&[usize::MAX][..], &[1], &[7, 2]] {
            assert_eq!(read(&paths, text, lengths), expected);
        }
    }

    #[test]
    fn last_number_of_several_texts_counts_and_null_does_not() {
        let text = "{\"usage\":{\"n\":1}}\n{\"usage\":{\"n\":22}}\n{\"usage\":null}{\"usage\":{}}";
        assert_eq!(read(&["usage.n"], text, &[3]), [Some(22_000)]);
        assert_eq!(read(&["n"], "{\"n\": 1, \"n\": -2, \"n\": \"3\"}", &[1]), [Some(1_000)]);
    }

    #[test]
    fn text_that_is_cut_or_invalid_yields_what_was_read() {
        assert_eq!(read(&["n", "m"], "{\"n\": 12, \"m\": 34", &[5]), [Some(12_000), None]);
        assert_eq!(read(&["n"], "]]}},{\"n\": 12}", &[5]), [Some(12_000)]);
        let (open, close) = ("[{\"a\":".repeat(200), "}]".repeat(200));
        let deep = format!("{{\"a\": {open}{{\"n\": 1, \"a\": [2]}}{close}, \"n\": 3}}");
        assert_eq!(read(&["n", "a.0.a"], &deep, &[9]), [Some(3_000), None]);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..1_000_000_u64).prop_map(Value::from),
            "[a-c\"\\\\{}\\[\\],:é\n0-9]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 60, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ab]|\"|\\\\|é", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn scanner_agrees_with_a_parser(
            value in json(),
            path in prop::collection::vec("[ab]|é|[0-3]", 1..5),
            lengths in prop::collection::vec(1..9_usize, 1..5),
            is_pretty: bool,
        ) {
            let text = if is_pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let found = path.iter().try_fold(&value, |value, name| match value {
                Value::Object(members) => members.get(name),
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                _ => None,
            });
            let expected = found.and_then(Value::as_u64).map(|tokens| tokens * 1_000);
            prop_assert_eq!(read(&[&path.join(".")], &text, &lengths), [expected]);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            text in "[\\[\\]{}:,\"\\\\0-9a-b\n ]{0,200}",
        ) {
            let path = of("a.0.b");
            let mut scanner = Scanner::new(std::iter::once(&path));
            for part in parts.iter().map(Vec::as_slice).chain([text.as_bytes()]) {
                scanner.read(part);
            }
            scanner.end();
        }
    }
}
