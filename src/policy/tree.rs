//! Finds all routes of one host whose paths have parameters, and all prefixes beside them, in the
//! order of their precedence: at the first segment in which two paths differ, text precedes a
//! parameter, and a parameter precedes the `*` of a prefix.
//!
//! Each segment of the routes' paths is a node. The search visits the children of a node in the
//! order of precedence, so that it finds the most specific route first.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::params::{param_name, segments};

/// A set of paths with parameters and of prefixes, each with its values.
#[derive(Debug)]
pub(super) struct Tree<T> {
    /// The root, which is the first, has the paths' first segments as children.
    nodes: Vec<Node<T>>,
}

/// All paths that begin with the same segments.
#[derive(Debug)]
struct Node<T> {
    /// Indexes of the nodes of the next segment, by its text.
    texts: HashMap<Box<str>, usize>,
    /// Index of the node of a next segment that is a parameter.
    param: Option<usize>,
    /// The values of the path that ends here.
    exact: Vec<T>,
    /// The values of the prefix that ends here: of all paths with at least one more segment.
    prefix: Vec<T>,
}

/// A step of the search that is still to do.
#[derive(Debug)]
enum Step<'a> {
    /// Visit the node with this index; the remaining segments of the path, `None` without any.
    Node(usize, Option<&'a str>),
    /// Return the values of the prefix of the node with this index.
    Prefix(usize),
}

/// The search for one path.
#[derive(Debug)]
struct Search<'a, T> {
    tree: &'a Tree<T>,
    /// The next step is the last.
    steps: SmallVec<[Step<'a>; 8]>,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self { texts: HashMap::new(), param: None, exact: Vec::new(), prefix: Vec::new() }
    }
}

impl<T> Tree<T> {
    /// Builds the index. A prefix ends in a slash, and has no `*`.
    pub(super) fn new(
        exact: impl Iterator<Item = (String, Vec<T>)>,
        prefixes: impl Iterator<Item = (String, Vec<T>)>,
    ) -> Self {
        let mut tree = Self { nodes: vec![Node::default()] };
        for (path, values) in exact {
            let node = tree.add(&path);
            tree.nodes[node].exact = values;
        }
        for (prefix, values) in prefixes {
            let node = tree.add(prefix.strip_suffix('/').unwrap_or(&prefix));
            tree.nodes[node].prefix = values;
        }
        tree
    }

    /// Index of the node of a path, which is added if there is none.
    fn add(&mut self, path: &str) -> usize {
        let mut node = 0;
        for segment in segments(path) {
            let free = self.nodes.len();
            let parent = &mut self.nodes[node];
            node = match param_name(segment) {
                Some(_) => *parent.param.get_or_insert(free),
                None => *parent.texts.entry(segment.into()).or_insert(free),
            };
            if node == free {
                self.nodes.push(Node::default());
            }
        }
        node
    }

    /// The values of all paths and prefixes that match a path, the most specific first.
    pub(super) fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Vec<T>> {
        let rest = path.strip_prefix('/');
        let steps = rest.map(|rest| Step::Node(0, Some(rest))).into_iter().collect();
        Search { tree: self, steps }
    }
}

impl<'a, T> Iterator for Search<'a, T> {
    type Item = &'a Vec<T>;

    fn next(&mut self) -> Option<&'a Vec<T>> {
        while let Some(step) = self.steps.pop() {
            let (index, rest) = match step {
                Step::Prefix(index) => return self.tree.nodes.get(index).map(|node| &node.prefix),
                Step::Node(index, rest) => (index, rest),
            };
            let node = self.tree.nodes.get(index)?;
            let Some(rest) = rest else { return Some(&node.exact) };
            let (segment, rest) = match rest.split_once('/') {
                Some((segment, rest)) => (segment, Some(rest)),
                None => (rest, None),
            };
            if !node.prefix.is_empty() {
                self.steps.push(Step::Prefix(index));
            }
            if let Some(param) = node.param.filter(|_| !segment.is_empty()) {
                self.steps.push(Step::Node(param, rest));
            }
            if let Some(text) = node.texts.get(segment) {
                self.steps.push(Step::Node(*text, rest));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[&str], path: &str) -> Vec<String> {
        let of = |is_prefix: bool| {
            let each = paths.iter().filter(move |text| text.ends_with('*') == is_prefix);
            each.map(|text| (text.trim_end_matches('*').to_owned(), vec![(*text).to_owned()]))
        };
        let tree = Tree::new(of(false), of(true));
        tree.of(path).flatten().cloned().collect()
    }

    #[test]
    fn more_specific_paths_are_found_first() {
        let paths = ["/*", "/{x}/b", "/a/{y}", "/a/*", "/{x}/*", "/{x}/{y}", "/{x}", "/a/{y}/*"];
        assert_eq!(found(&paths, "/a/b"), ["/a/{y}", "/a/*", "/{x}/b", "/{x}/{y}", "/{x}/*", "/*"]);
        assert_eq!(found(&paths, "/c/b"), ["/{x}/b", "/{x}/{y}", "/{x}/*", "/*"]);
        assert_eq!(found(&paths, "/a/b/"), ["/a/{y}/*", "/a/*", "/{x}/*", "/*"]);
        assert_eq!(found(&paths, "/a/"), ["/a/*", "/{x}/*", "/*"]);
        assert_eq!(found(&paths, "//b"), ["/*"]);
        assert_eq!(found(&paths, "/"), ["/*"]);
        assert_eq!(found(&paths, "*"), [""; 0]);
    }
}
