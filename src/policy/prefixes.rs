//! Finds all prefixes of a path in a set of prefixes, at a cost that does not depend on the number
//! of the path's segments.
//!
//! The prefixes are sorted, and each has as its parent the longest other one that it begins with.
//! Take the last entry that sorts before or equal to the path. Every prefix of the path also is a
//! prefix of everything that sorts between it and the path, so it is that entry or one of its
//! ancestors.

use std::collections::HashMap;

/// A map from prefixes to values.
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
        // The parent is the previous prefix or the first of its ancestors that this one begins
        // with.
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

    /// Values of all prefixes of the path, the longest prefix first.
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
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn finds_all_prefixes_longest_first(
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
