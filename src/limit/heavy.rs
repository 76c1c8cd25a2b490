//! Who comes most often, found in a room that does not grow with those who come: Space-Saving
//! (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
//! streams, 2005).
//!
//! So many are counted at once. Who is new takes the place of one who came least often, and with it
//! that count: he may have come as often before, unseen. So a count is never too low, and too high
//! by no more than was taken over. Of N arrivals counted in k places, the least of the counts is at
//! most N/k, and so is what anybody's count is too high by, or what anybody unseen has come.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// The most frequent of a stream.
#[derive(Debug, Clone)]
pub struct Summary<T, S> {
    /// The most places, at least 1.
    capacity: usize,
    places: Vec<Place<T>>,
    index: HashMap<T, usize, S>,
    /// Arrivals.
    total: u64,
    /// At most the least count, and so where a search for it begins.
    least: u64,
    /// The place at which that search begins.
    hand: usize,
    /// The most that somebody has come who was left out while there was room.
    floor: u64,
}

/// One who is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<T> {
    /// Who.
    pub item: T,
    /// How often at most.
    pub count: u64,
    /// How much of that he may not have come: at least `count - error` times he has.
    pub error: u64,
}

impl<T: Copy + Eq + Hash, S: BuildHasher> Summary<T, S> {
    /// A summary of nothing, with so many places, at least 1. Empty places take no room.
    pub fn new(capacity: usize, hasher: S) -> Self {
        Self {
            capacity: capacity.max(1),
            places: Vec::new(),
            index: HashMap::with_hasher(hasher),
            total: 0,
            least: 0,
            hand: 0,
            floor: 0,
        }
    }

    /// Somebody came.
    pub fn add(&mut self, item: T) {
        self.total = self.total.saturating_add(1);
        if let Some(place) = self.index.get(&item).and_then(|index| self.places.get_mut(*index)) {
            place.count += 1;
        } else if self.places.len() < self.capacity {
            let (count, error) = (self.floor + 1, self.floor);
            self.put(Place { item, count, error });
        } else {
            self.replace(item);
        }
    }

    /// How often anybody came.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How often somebody may have come who has no place.
    pub fn unseen(&self) -> u64 {
        if self.places.len() < self.capacity { self.floor } else { self.find_least() }
    }

    /// Those who have a place, in no order.
    pub fn places(&self) -> &[Place<T>] {
        &self.places
    }

    /// The same under other names; those who have none any more lose their place.
    pub fn renamed(&self, name: impl Fn(T) -> Option<T>, hasher: S) -> Self {
        let mut renamed = Self::new(self.capacity, hasher);
        for place in &self.places {
            if let Some(item) = name(place.item)
                && !renamed.index.contains_key(&item)
            {
                renamed.put(Place { item, ..*place });
            }
        }
        (renamed.total, renamed.floor) = (self.total, self.unseen());
        renamed
    }

    fn put(&mut self, place: Place<T>) {
        self.index.insert(place.item, self.places.len());
        self.least = if self.places.is_empty() { place.count } else { self.least.min(place.count) };
        self.places.push(place);
    }

    /// Gives `item` the place of one who came least often. Counts only rise, so those of the least
    /// are mostly where the last one was found, or behind it.
    fn replace(&mut self, item: T) {
        let Some(index) = self.next_least() else { return };
        let Some(place) = self.places.get_mut(index) else { return };
        self.index.remove(&place.item);
        *place = Place { item, count: place.count + 1, error: place.count };
        self.index.insert(item, index);
        self.hand = index + 1;
    }

    fn next_least(&mut self) -> Option<usize> {
        for _ in 0..2 {
            let least = self.least;
            let is_least = |(_, place): &(usize, &Place<T>)| place.count == least;
            let (before, behind) = self.places.split_at(self.hand.min(self.places.len()));
            let from = before.len();
            let found = behind.iter().enumerate().find(is_least).map(|(index, _)| from + index);
            let found =
                found.or_else(|| before.iter().enumerate().find(is_least).map(|(index, _)| index));
            if found.is_some() {
                return found;
            }
            self.least = self.find_least();
        }
        None
    }

    fn find_least(&self) -> u64 {
        self.places.iter().map(|place| place.count).min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::hash_map::RandomState;

    use proptest::prelude::*;

    use super::*;

    fn summary(capacity: usize, stream: &[u16]) -> Summary<u16, RandomState> {
        let mut summary = Summary::new(capacity, RandomState::new());
        for item in stream {
            summary.add(*item);
        }
        summary
    }

    fn times(stream: &[u16], item: u16) -> u64 {
        stream.iter().filter(|other| **other == item).count() as u64
    }

    /// What is promised of a summary, whatever the stream.
    fn keeps_its_promise(summary: &Summary<u16, RandomState>, stream: &[u16], capacity: usize) {
        let bound = summary.total() / capacity as u64;
        assert!(summary.places().len() <= capacity && summary.index.len() <= capacity);
        assert!(summary.unseen() <= bound);
        for Place { item, count, error } in summary.places() {
            let truth = times(stream, *item);
            assert!(truth <= *count && count - error <= truth, "{item}: {count}-{error}, {truth}");
            assert!(*error <= bound);
        }
        for item in stream {
            if !summary.index.contains_key(item) {
                assert!(times(stream, *item) <= summary.unseen());
            }
        }
    }

    proptest! {
        #[test]
        fn counts_are_never_too_low_nor_too_high_by_more_than_the_bound(
            capacity in 1_usize..20,
            stream in prop::collection::vec(prop_oneof![3 => 0_u16..5, 1 => 0_u16..100], 0..400),
        ) {
            let summary = summary(capacity, &stream);
            prop_assert_eq!(summary.total(), stream.len() as u64);
            keeps_its_promise(&summary, &stream, capacity);
        }

        #[test]
        fn who_is_dropped_begins_anew_and_nobody_else_loses_anything(
            capacity in 1_usize..10,
            first in prop::collection::vec(0_u16..30, 0..100),
            second in prop::collection::vec(0_u16..30, 0..100),
            gone in 0_u16..30,
        ) {
            let name = |item| (item >= gone).then_some(item);
            let mut renamed = summary(capacity, &first).renamed(name, RandomState::new());
            for item in &second {
                renamed.add(*item);
            }
            prop_assert_eq!(renamed.total(), (first.len() + second.len()) as u64);
            let kept = first.into_iter().filter(|item| *item >= gone);
            let stream: Vec<u16> = kept.chain(second).collect();
            keeps_its_promise(&renamed, &stream, capacity);
        }
    }

    #[test]
    fn the_frequent_are_found_among_a_hundred_thousand() {
        let mut summary = Summary::new(256, RandomState::new());
        for number in 0..100_000_u32 {
            summary.add(number + 10);
            summary.add(number % 4);
        }
        let mut places = summary.places().to_vec();
        places.sort_by_key(|place| std::cmp::Reverse(place.count));
        let mut first: Vec<u32> = places.iter().take(4).map(|place| place.item).collect();
        first.sort_unstable();
        assert_eq!((first, places.len()), (vec![0, 1, 2, 3], 256));
        assert!(summary.unseen() <= 200_000 / 256);
    }
}
