//! Which of many prefixes a path begins with, at a cost that does not grow with the number of the
//! path's segments.
//!
//! The prefixes are sorted, and each knows the longest other one that it begins with. Every prefix of
//! a path sorts before the path, and before everything between the two, which begins with it as well.
//! So the last one that sorts before the path begins with all of them: they are among it and those
//! that it leads to.

use std::collections::HashMap;

/// Prefixes, and what belongs to each.
#[derive(Debug)]
pub(super) struct Prefixes<T> {
    sorted: Vec<Prefix<T>>,
}

#[derive(Debug)]
struct Prefix<T> {
    text: String,
    /// Index of the longest other prefix that this one begins with.
    parent: Option<usize>,
    value: T,
}

impl<T> Default for Prefixes<T> {
    fn default() -> Self {
        Self { sorted: Vec::new() }
    }
}

impl<T> Prefixes<T> {
    pub(super) fn new(values: HashMap<String, T>) -> Self {
        let mut sorted: Vec<Prefix<T>> =
            values.into_iter().map(|(text, value)| Prefix { text, parent: None, value }).collect();
        sorted.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        // What the prefix before begins with, itself first: the parent is the first of them that this
        // one begins with, too.
        for index in 1..sorted.len() {
            let mut parent = Some(index - 1);
            while let Some(one) = parent {
                if sorted[index].text.starts_with(&sorted[one].text) {
                    break;
                }
                parent = sorted[one].parent;
            }
            sorted[index].parent = parent;
        }
        Self { sorted }
    }

    /// The values of the prefixes that the path begins with, the longest first.
    pub(super) fn of(&self, path: &str) -> impl Iterator<Item = &T> {
        let prefixes = std::iter::successors(self.longest(path), |prefix| self.get(prefix.parent));
        prefixes.map(|prefix| &prefix.value)
    }

    fn longest(&self, path: &str) -> Option<&Prefix<T>> {
        let after = self.sorted.partition_point(|prefix| prefix.text.as_str() <= path);
        let mut prefix = self.get(after.checked_sub(1))?;
        let same = prefix.text.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        while prefix.text.len() > same {
            prefix = self.get(prefix.parent)?;
        }
        Some(prefix)
    }

    fn get(&self, index: Option<usize>) -> Option<&Prefix<T>> {
        self.sorted.get(index?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prefixes_of_a_path_are_those_it_begins_with_longest_first(
            texts in prop::collection::hash_set("/([ab]{0,2}/){0,4}", 0..12),
            path in "/([ab]{0,2}/?){0,5}",
        ) {
            let values = texts.iter().map(|text| (text.clone(), text.clone())).collect();
            let prefixes = Prefixes::new(values);
            let found: Vec<&String> = prefixes.of(&path).collect();
            let mut expected: Vec<&String> =
                texts.iter().filter(|text| path.starts_with(text.as_str())).collect();
            expected.sort_unstable_by_key(|text| std::cmp::Reverse(text.len()));
            prop_assert_eq!(found, expected);
        }
    }
}
