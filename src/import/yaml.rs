//! YAML as a tree whose nodes have lines. Aliases and merge keys (`<<`) are resolved. JSON is YAML.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::SyntaxError;
use super::note::Place;
use crate::base::text::cut;

/// Maximum depth of a tree.
const MAX_DEPTH: usize = 100;

/// Maximum number of nodes, with those of aliases.
const MAX_NODES: usize = 500_000;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    value: Value,
    /// Whether it was found by its key.
    is_read: Cell<bool>,
    /// Whether a key was looked for in it.
    is_opened: Cell<bool>,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Pair>),
}

/// A key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) key: String,
    /// Of the key.
    pub(super) place: Place,
    pub(super) value: Node,
}

/// The documents of a text.
///
/// # Errors
/// The text is not YAML, or too deep or too large.
pub(super) fn parse(text: &str, file: usize) -> Result<Vec<Node>, SyntaxError> {
    let mut builder = Builder { file, ..Builder::default() };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let place = place(file, *error.marker());
            SyntaxError::new(place, error.info().to_owned())
        })?;
        builder.add(event, span)?;
    }
    Ok(builder.documents)
}

fn place(file: usize, marker: Marker) -> Place {
    Place { file, line: marker.line(), column: marker.col() + 1 }
}

// === impl Node ===

impl Node {
    /// A node that has nothing.
    pub(super) fn nothing() -> Self {
        Self::new(Place::default(), Value::Null)
    }

    /// A map without keys.
    pub(super) fn empty_map(place: Place) -> Self {
        Self::new(place, Value::Map(Vec::new()))
    }

    fn new(place: Place, value: Value) -> Self {
        Self { place, value, is_read: Cell::default(), is_opened: Cell::default() }
    }

    /// The value of a key. A null is no value.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.is_opened.set(true);
        let found = &self.pairs().iter().find(|pair| pair.key == key)?.value;
        found.is_read.set(true);
        Some(found).filter(|value| value.value != Value::Null)
    }

    /// Whether [`get`](Self::get) has found it.
    pub(super) fn is_read(&self) -> bool {
        self.is_read.get()
    }

    /// Whether [`get`](Self::get) has looked for a key in it.
    pub(super) fn is_opened(&self) -> bool {
        self.is_opened.get()
    }

    /// Counts all that it has as read: a note says why it is left out.
    pub(super) fn leave_out(&self) {
        for node in self.pairs().iter().map(|pair| &pair.value).chain(self.items()) {
            node.is_read.set(true);
            node.leave_out();
        }
    }

    /// Whether it has a key, also with a null: `tls:`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.pairs().iter().any(|pair| pair.key == key)
    }

    /// The value at the end of a path of keys.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text at the end of a path of keys.
    pub(super) fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.text()
    }

    /// The text of a scalar, also of a number.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        let text = self.text()?.replace('_', "");
        text.parse().ok().or_else(|| {
            let (whole, fraction) = text.split_once('.')?;
            fraction.bytes().all(|digit| digit == b'0').then(|| whole.parse().ok())?
        })
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// The items of a list; none of anything else.
    pub(super) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The texts of a list, or of one scalar.
    pub(super) fn texts(&self) -> Vec<&str> {
        match &self.value {
            Value::Scalar(text) => vec![text],
            _ => self.items().iter().filter_map(Node::text).collect(),
        }
    }

    /// Whether it is a list without items.
    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.value, Value::List(items) if items.is_empty())
    }

    /// Whether it is nothing, a list without items, or a map without keys.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Scalar(_) => false,
            Value::List(items) => items.is_empty(),
            Value::Map(pairs) => pairs.is_empty(),
        }
    }

    /// The pairs of a map; none of anything else.
    pub(super) fn pairs(&self) -> &[Pair] {
        match &self.value {
            Value::Map(pairs) => pairs,
            _ => &[],
        }
    }

    fn insert_merged(&mut self) {
        let Value::Map(pairs) = &mut self.value else { return };
        let Some(at) = pairs.iter().position(|pair| pair.key == "<<") else { return };
        let merged = pairs.remove(at).value;
        let sources =
            if merged.items().is_empty() { vec![merged] } else { merged.items().to_vec() };
        for source in &sources {
            self.add_missing(source);
        }
    }

    /// Adds the pairs of another map whose keys are not there.
    pub(super) fn add_missing(&mut self, other: &Node) {
        let Value::Map(pairs) = &mut self.value else { return };
        for pair in other.pairs() {
            if pairs.iter().all(|own| own.key != pair.key) {
                pairs.push(pair.clone());
            }
        }
    }

    /// Sets the value of a key of a map.
    pub(super) fn set(&mut self, key: &str, value: Node) {
        let Value::Map(pairs) = &mut self.value else { return };
        match pairs.iter_mut().find(|pair| pair.key == key) {
            Some(pair) => pair.value = value,
            None => pairs.push(Pair { key: key.to_owned(), place: value.place, value }),
        }
    }

    /// Changes each map of the tree.
    pub(super) fn change_maps(&mut self, change: &mut dyn FnMut(&mut Node)) {
        if matches!(self.value, Value::Map(_)) {
            change(self);
        }
        match &mut self.value {
            Value::Null | Value::Scalar(_) => {}
            Value::List(items) => {
                for item in items {
                    item.change_maps(change);
                }
            }
            Value::Map(pairs) => {
                for pair in pairs {
                    pair.value.change_maps(change);
                }
            }
        }
    }

    fn count(&self) -> usize {
        match &self.value {
            Value::Null | Value::Scalar(_) => 1,
            Value::List(items) => items.iter().map(Node::count).sum::<usize>() + 1,
            Value::Map(pairs) => pairs.iter().map(|pair| pair.value.count()).sum::<usize>() + 1,
        }
    }

    fn depth(&self) -> usize {
        let of = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(Node::depth).max().unwrap_or(0);
        match &self.value {
            Value::Null | Value::Scalar(_) => 0,
            Value::List(items) => of(&mut items.iter()) + 1,
            Value::Map(pairs) => of(&mut pairs.iter().map(|pair| &pair.value)) + 1,
        }
    }
}

/// A list or a map that is not complete.
#[derive(Debug)]
struct Open {
    node: Node,
    anchor: usize,
    /// Of a map: a key that waits for its value.
    key: Option<(String, Place)>,
    /// Of a map: all keys so far.
    keys: HashSet<String>,
}

#[derive(Debug, Default)]
struct Builder {
    file: usize,
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

// === impl Builder ===

impl Builder {
    fn add(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let place = place(self.file, span.start);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if is_null { Value::Null } else { Value::Scalar(text.into_owned()) };
                self.complete(Node::new(place, value), anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(SyntaxError::new(place, "an alias within its own anchor"));
                };
                if self.open.len() + node.depth() > MAX_DEPTH {
                    return Err(SyntaxError::new(place, "more than 100 levels"));
                }
                self.nodes += node.count();
                self.complete(node, 0)
            }
            Event::SequenceStart(anchor, _) => self.begin(place, Value::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => self.begin(place, Value::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { mut node, anchor, .. }) = self.open.pop() else { return Ok(()) };
                node.insert_merged();
                self.complete(node, anchor)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, place: Place, value: Value, anchor: usize) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::new(place, "more than 100 levels"));
        }
        let node = Node::new(place, value);
        self.open.push(Open { node, anchor, key: None, keys: HashSet::new() });
        Ok(())
    }

    /// Adds a complete node to what contains it.
    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(SyntaxError::new(node.place, "more than 500000 values"));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match (&mut open.node.value, open.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Map(pairs), Some((key, place))) => pairs.push(Pair { key, place, value: node }),
            (Value::Map(_), None) => {
                let key = node.text().unwrap_or_default().to_owned();
                // One of the values would be lost.
                if !open.keys.insert(key.clone()) {
                    let what = format!("the key `{}` is repeated", cut(&key, 64));
                    return Err(SyntaxError::new(node.place, what));
                }
                open.key = Some((key, node.place));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn one(text: &str) -> Node {
        parse(text, 0).unwrap().remove(0)
    }

    #[test]
    fn values_have_lines() {
        let node = one("# a comment\na: 1\nb:\n  - x\n  - \"y\"\nc: {d: true, e: ~}\n");
        assert_eq!(node.get("a").and_then(Node::number), Some(1));
        assert_eq!(node.get("b").unwrap().items()[1].place.line, 5);
        assert_eq!(node.get("b").unwrap().texts(), ["x", "y"]);
        assert_eq!(node.at(&["c", "d"]).and_then(Node::flag), Some(true));
        assert_eq!(node.at(&["c", "e"]).and_then(Node::text), None);
        assert_eq!(node.pairs()[2].place.line, 6);
    }

    #[test]
    fn aliases_and_merge_keys_are_resolved() {
        let node = one("base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  y: 3\nsame: *b\n");
        assert_eq!(node.text_at(&["own", "x"]), Some("1"));
        assert_eq!(node.text_at(&["own", "y"]), Some("3"));
        assert_eq!(node.text_at(&["same", "y"]), Some("2"));
    }

    #[test]
    fn repeated_keys_are_errors_with_their_line() {
        for text in [
            "a: 1\nb: 2\na: 3\n",
            "{\"a\": 1, \"b\": 2,\n\n\"a\": 3}",
            "x: &x {}\n<<: *x\n<<: *x\n",
        ] {
            assert_eq!(parse(text, 0).unwrap_err().place.line, 3, "{text}");
        }
        assert!(parse("a: {b: 1}\nc: {b: 1, c: 2}\n---\na: 1\n", 0).is_ok());
        assert_eq!(one("base: &b {x: 1}\nown: {<<: *b, x: 2}\n").text_at(&["own", "x"]), Some("2"));
    }

    #[test]
    fn deep_and_growing_texts_are_errors() {
        assert!(parse(&"[".repeat(5_000), 0).is_err());
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            let _ = writeln!(laughs, "a{level}: &a{level} [{}]", alias.trim_end_matches(", "));
        }
        assert!(parse(&laughs, 0).is_err());
        assert!(parse("a: *unknown\n", 0).is_err());
        assert_eq!(parse("a: [1\n", 0).unwrap_err().place.line, 2);
    }

    #[test]
    fn json_and_several_documents_are_read() {
        assert_eq!(one("{\"a\": [1, {\"b\": \"c\"}]}").get("a").unwrap().items().len(), 2);
        assert_eq!(parse("a: 1\n---\nb: 2\n", 0).unwrap().len(), 2);
        assert!(parse("", 0).unwrap().is_empty());
    }
}
