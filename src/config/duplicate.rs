//! Finds where a name was written first, for the error of a name that is written twice. `toml`
//! reports only the second place.

use std::collections::HashMap;
use std::ops::Range;

use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};
use toml_parser::{ErrorSink, Source, Span};

use super::syntax::MAX_DEPTH;

/// The names of a file as a tree: a name below another has its node as parent.
#[derive(Debug)]
pub(super) struct NameTree<'a> {
    text: &'a str,
    nodes: Vec<Node>,
    children: HashMap<(usize, &'a str), usize>,
    /// Every name in the order of the file, with its node.
    names: Vec<(Range<usize>, usize)>,
    /// Node of the table that the current settings are in.
    base: usize,
    /// Node of the last name.
    cursor: usize,
    /// Whether the next name continues a dotted name.
    is_dotted: bool,
    is_in_head: bool,
    open: Vec<Open>,
}

/// A list or a table in braces that has not ended.
#[derive(Debug, Clone, Copy)]
enum Open {
    List,
    /// The node to return to.
    Braces(usize),
}

/// A path of names.
#[derive(Debug, Clone, Default)]
struct Node {
    parent: usize,
    /// Where the name was written first, also as a part of a longer one.
    seen: Option<Range<usize>>,
    /// Where it was first the last part: the head of a table, or a setting.
    defined: Option<Range<usize>>,
    /// The last item, if it is a list of tables.
    item: Option<usize>,
}

/// A name that is written twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Duplicate {
    /// The second place.
    pub(super) span: Range<usize>,
    /// The first place.
    pub(super) first: Range<usize>,
    /// Identifies the whole path within the tree.
    pub(super) node: usize,
    /// The same of what it is in.
    pub(super) parent: usize,
}

impl<'a> NameTree<'a> {
    /// Reads all names of a file.
    pub(super) fn of(text: &'a str) -> Self {
        let mut tree = Self {
            text,
            nodes: vec![Node::default()],
            children: HashMap::new(),
            names: Vec::new(),
            base: 0,
            cursor: 0,
            is_dotted: false,
            is_in_head: false,
            open: Vec::new(),
        };
        let tokens = Source::new(text).lex().into_vec();
        let mut guard = RecursionGuard::new(&mut tree, MAX_DEPTH);
        parse_document(&tokens, &mut guard, &mut ());
        tree
    }

    /// The duplicate at the error on the name at `span`. If that name is new, it is the name around
    /// it that was a table already: `b` of `a.b` after `[a]`.
    pub(super) fn at(&self, span: &Range<usize>) -> Option<Duplicate> {
        let mut index =
            self.names.binary_search_by_key(&span.start, |(name, _)| name.start).ok()?;
        loop {
            let (name, id) = self.names.get(index)?;
            let node = self.nodes.get(*id)?;
            let before = |first: &&Range<usize>| first.start < name.start;
            let first = node.defined.as_ref().filter(before);
            let first = first.or_else(|| node.seen.as_ref().filter(before));
            if let Some(first) = first {
                let (span, first) = (name.clone(), first.clone());
                return Some(Duplicate { span, first, node: *id, parent: node.parent });
            }
            index = index
                .checked_sub(1)
                .filter(|above| self.names.get(*above).is_some_and(|(_, id)| *id == node.parent))?;
        }
    }

    fn child(&mut self, parent: usize, name: &'a str) -> usize {
        let parent = self.nodes.get(parent).and_then(|node| node.item).unwrap_or(parent);
        let next = self.nodes.len();
        let id = *self.children.entry((parent, name)).or_insert(next);
        if id == next {
            self.nodes.push(Node { parent, ..Node::default() });
        }
        id
    }

    /// A node without a name, such as an item of a list.
    fn unnamed(&mut self, parent: usize) -> usize {
        self.nodes.push(Node { parent, ..Node::default() });
        self.nodes.len() - 1
    }

    /// Ends a name: its last part is defined here.
    fn define(&mut self) {
        let place = self.names.last().map(|(span, _)| span.clone());
        if let Some(node) = self.nodes.get_mut(self.cursor) {
            node.defined = node.defined.take().or(place);
        }
    }

    fn begin_head(&mut self) {
        (self.cursor, self.is_dotted, self.is_in_head) = (0, true, true);
        self.open.clear();
    }

    fn end_head(&mut self, base: usize) {
        (self.base, self.is_in_head, self.is_dotted) = (base, false, false);
    }
}

impl EventReceiver for NameTree<'_> {
    fn std_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.begin_head();
    }

    fn std_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.define();
        self.end_head(self.cursor);
    }

    fn array_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.begin_head();
    }

    fn array_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.define();
        let item = self.unnamed(self.cursor);
        if let Some(node) = self.nodes.get_mut(self.cursor) {
            node.item = Some(item);
        }
        self.end_head(item);
    }

    fn inline_table_open(&mut self, _: Span, _: &mut dyn ErrorSink) -> bool {
        let is_item = matches!(self.open.last(), Some(Open::List));
        let base = if is_item { self.unnamed(self.cursor) } else { self.cursor };
        self.open.push(Open::Braces(self.base));
        self.base = base;
        true
    }

    fn inline_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        if let Some(Open::Braces(base)) = self.open.pop() {
            self.base = base;
        }
    }

    fn array_open(&mut self, _: Span, _: &mut dyn ErrorSink) -> bool {
        self.open.push(Open::List);
        true
    }

    fn array_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.open.pop();
    }

    fn simple_key(&mut self, span: Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        let span = span.start()..span.end();
        let Some(written) = self.text.get(span.clone()) else { return };
        let parent = if std::mem::take(&mut self.is_dotted) { self.cursor } else { self.base };
        self.cursor = self.child(parent, written.trim_matches(['"', '\'']));
        if let Some(node) = self.nodes.get_mut(self.cursor) {
            node.seen.get_or_insert_with(|| span.clone());
        }
        self.names.push((span, self.cursor));
    }

    fn key_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.is_dotted = true;
    }

    fn key_val_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.is_dotted = false;
        if !self.is_in_head {
            self.define();
        }
    }

    fn newline(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.is_dotted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The duplicate of the last `!`, which is removed: its text, and the column of the first
    /// place.
    fn duplicate(marked: &str) -> Option<(String, usize)> {
        let at = marked.rfind('!').unwrap();
        let text = marked.replacen('!', "", 1);
        let end = text[at..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len() - at);
        let found = NameTree::of(&text).at(&(at..at + end))?;
        Some((text[found.span].to_owned(), found.first.start))
    }

    #[test]
    fn first_place_is_found_in_every_form_of_table() {
        let table = [
            ("a = 1\n!a = 2", Some(("a", 0))),
            ("[t]\na = 1\n!a = 2", Some(("a", 4))),
            ("[t]\n[u]\n[!t]", Some(("t", 1))),
            ("[t.u]\n[t]\n[t.!u]", Some(("u", 3))),
            ("[t.u]\n[!t]", Some(("t", 1))),
            ("a.b = 1\na.!b = 2", Some(("b", 2))),
            ("a = 1\n!a.b = 2", Some(("a", 0))),
            ("a = { b = 1, !b = 2 }", Some(("b", 6))),
            ("a = { b = 1 }\n[!a]", Some(("a", 0))),
            ("[[t]]\na = 1\n[[t]]\na = 2\n!a = 3", Some(("a", 18))),
            ("[[t]]\n[!t]", Some(("t", 2))),
            ("[[t]]\n[t.u]\n[[t]]\n[t.u]\n[t.!u]", Some(("u", 21))),
            ("a = [{ b = 1 }, { b = 1, !b = 2 }]", Some(("b", 18))),
            ("'a' = 1\n!a = 2", Some(("a", 0))),
            ("[t.x]\n[t]\nx.!y = 1", Some(("x", 3))),
            ("[t]\na = 1\n[u]\n!a = 2", None),
        ];
        for (text, expected) in table {
            let found = duplicate(text);
            assert_eq!(found.as_ref().map(|(name, at)| (&**name, *at)), expected, "{text}");
        }
    }
}
