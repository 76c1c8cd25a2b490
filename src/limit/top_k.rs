//! Top-k sketch: finds the most frequent items of a stream in bounded memory. Space-Saving
//! (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
//! streams, 2005).
//!
//! A fixed number of counters is kept. A new item replaces one with the lowest count and inherits
//! that count, because it may have occurred as often while it was not tracked. So a count is never
//! too low, and too high by at most the inherited part. With N items counted in k counters, the
//! lowest count is at most N/k; so are each counter's error and the occurrences of any untracked
//! item.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Counters of the most frequent items of a stream.
#[derive(Debug, Clone)]
pub struct Sketch<T, L, S> {
    /// Maximum number of counters, at least 1.
    capacity: usize,
    counters: Vec<Counter<T, L>>,
    index: HashMap<T, usize, S>,
    /// Number of items added.
    total: u64,
    /// Lower bound of the lowest count, from which the search for it starts.
    lowest: u64,
    /// Index of the counter at which that search starts.
    hand: usize,
    /// Upper bound of the occurrences of an untracked item while counters are free.
    floor: u64,
}

/// Estimated count of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter<T, L> {
    /// The counted item.
    pub item: T,
    /// What else is known of the item.
    pub label: L,
    /// Upper bound of its occurrences.
    pub count: u64,
    /// Maximum overestimate: the item occurred at least `count - error` times.
    pub error: u64,
}

impl<T: Copy + Eq + Hash, L: Clone, S: BuildHasher> Sketch<T, L, S> {
    /// Creates an empty sketch of up to `capacity` counters, at least 1. Memory grows with the
    /// counters in use.
    pub fn new(capacity: usize, hasher: S) -> Self {
        Self {
            capacity: capacity.max(1),
            counters: Vec::new(),
            index: HashMap::with_hasher(hasher),
            total: 0,
            lowest: 0,
            hand: 0,
            floor: 0,
        }
    }

    /// Counts one occurrence of `item`. `label` is called if it gets a counter.
    pub fn add(&mut self, item: T, label: impl FnOnce() -> L) {
        self.total = self.total.saturating_add(1);
        if let Some(counter) = self.index.get(&item).and_then(|index| self.counters.get_mut(*index))
        {
            counter.count += 1;
        } else if self.counters.len() < self.capacity {
            let (count, error) = (self.floor + 1, self.floor);
            self.put(Counter { item, label: label(), count, error });
        } else {
            self.replace(item, label);
        }
    }

    /// Number of items added.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Upper bound of the occurrences of any item without a counter.
    pub fn max_untracked(&self) -> u64 {
        if self.counters.len() < self.capacity { self.floor } else { self.find_lowest() }
    }

    /// All counters, in no particular order.
    pub fn counters(&self) -> &[Counter<T, L>] {
        &self.counters
    }

    /// Returns a copy in which each item is replaced by `map(item, label)`. Items that map to
    /// `None` lose their counter; of items that map to the same one, the first stays.
    pub fn map_items(&self, map: impl Fn(T, &L) -> Option<T>, hasher: S) -> Self {
        let mut mapped = Self::new(self.capacity, hasher);
        for counter in &self.counters {
            if let Some(item) = map(counter.item, &counter.label)
                && !mapped.index.contains_key(&item)
            {
                mapped.put(Counter { item, ..counter.clone() });
            }
        }
        (mapped.total, mapped.floor) = (self.total, self.max_untracked());
        mapped
    }

    fn put(&mut self, counter: Counter<T, L>) {
        self.index.insert(counter.item, self.counters.len());
        self.lowest =
            if self.counters.is_empty() { counter.count } else { self.lowest.min(counter.count) };
        self.counters.push(counter);
    }

    /// Gives `item` the counter of an item with the lowest count. Counts only rise, so counters
    /// with the lowest count are mostly at or after the index where the last one was found.
    fn replace(&mut self, item: T, label: impl FnOnce() -> L) {
        let Some(index) = self.next_lowest() else { return };
        let Some(counter) = self.counters.get_mut(index) else { return };
        self.index.remove(&counter.item);
        let (count, error) = (counter.count + 1, counter.count);
        *counter = Counter { item, label: label(), count, error };
        self.index.insert(item, index);
        self.hand = index + 1;
    }

    fn next_lowest(&mut self) -> Option<usize> {
        for _ in 0..2 {
            let lowest = self.lowest;
            let is_lowest = |(_, counter): &(usize, &Counter<T, L>)| counter.count == lowest;
            let (before, after) = self.counters.split_at(self.hand.min(self.counters.len()));
            let from = before.len();
            let found = after.iter().enumerate().find(is_lowest).map(|(index, _)| from + index);
            let found =
                found.or_else(|| before.iter().enumerate().find(is_lowest).map(|(index, _)| index));
            if found.is_some() {
                return found;
            }
            self.lowest = self.find_lowest();
        }
        None
    }

    fn find_lowest(&self) -> u64 {
        self.counters.iter().map(|counter| counter.count).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::RandomState;

    use proptest::prelude::*;

    use super::*;

    fn sketch(capacity: usize, stream: &[u16]) -> Sketch<u16, (), RandomState> {
        let mut sketch = Sketch::new(capacity, RandomState::new());
        for item in stream {
            sketch.add(*item, || ());
        }
        sketch
    }

    fn times(stream: &[u16], item: u16) -> u64 {
        stream.iter().filter(|other| **other == item).count() as u64
    }

    /// Checks the documented bounds against the whole stream.
    fn assert_bounds(sketch: &Sketch<u16, (), RandomState>, stream: &[u16], capacity: usize) {
        let bound = sketch.total() / capacity as u64;
        assert!(sketch.counters().len() <= capacity && sketch.index.len() <= capacity);
        assert!(sketch.max_untracked() <= bound);
        for Counter { item, count, error, .. } in sketch.counters() {
            let occurrences = times(stream, *item);
            assert!(
                occurrences <= *count && count - error <= occurrences,
                "{item}: {count}-{error}, {occurrences}"
            );
            assert!(*error <= bound);
        }
        for item in stream {
            if !sketch.index.contains_key(item) {
                assert!(times(stream, *item) <= sketch.max_untracked());
            }
        }
    }

    #[test]
    fn mapped_items_have_their_new_names() {
        let mapped =
            sketch(4, &[1, 1, 2]).map_items(|item, ()| Some(item + 100), RandomState::new());
        let mut counted: Vec<_> =
            mapped.counters().iter().map(|one| (one.item, one.count)).collect();
        counted.sort_unstable();
        assert_eq!(counted, [(101, 2), (102, 1)]);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn count_is_never_too_low_nor_too_high_by_more_than_its_error(
            capacity in 1_usize..20,
            stream in prop::collection::vec(prop_oneof![3 => 0_u16..5, 1 => 0_u16..100], 0..400),
        ) {
            let sketch = sketch(capacity, &stream);
            prop_assert_eq!(sketch.total(), stream.len() as u64);
            assert_bounds(&sketch, &stream, capacity);
        }

        #[test]
        fn dropped_item_restarts_and_others_keep_their_counts(
            capacity in 1_usize..10,
            first in prop::collection::vec(0_u16..30, 0..100),
            second in prop::collection::vec(0_u16..30, 0..100),
            dropped_below in 0_u16..30,
        ) {
            let map = |item, (): &()| (item >= dropped_below).then_some(item);
            let mut mapped = sketch(capacity, &first).map_items(map, RandomState::new());
            for item in &second {
                mapped.add(*item, || ());
            }
            prop_assert_eq!(mapped.total(), (first.len() + second.len()) as u64);
            let kept = first.into_iter().filter(|item| *item >= dropped_below);
            let stream: Vec<u16> = kept.chain(second).collect();
            assert_bounds(&mapped, &stream, capacity);
        }
    }

    #[test]
    fn frequent_items_are_found_among_100_000_others() {
        let mut sketch = Sketch::new(256, RandomState::new());
        for number in 0..100_000_u32 {
            sketch.add(number + 10, || ());
            sketch.add(number % 4, || ());
        }
        let mut counters = sketch.counters().to_vec();
        counters.sort_by_key(|counter| std::cmp::Reverse(counter.count));
        let mut first: Vec<u32> = counters.iter().take(4).map(|counter| counter.item).collect();
        first.sort_unstable();
        assert_eq!((first, counters.len()), (vec![0, 1, 2, 3], 256));
        assert!(sketch.max_untracked() <= 200_000 / 256);
    }
}
