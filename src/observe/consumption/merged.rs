//! What all threads have counted, added up.

use std::collections::HashMap;

use super::{Consumption, Counter, Counts, Item, Window};

/// The counts of all threads over the last windows.
#[derive(Debug, Default)]
pub struct Merged {
    /// Those that some thread has seen, in no order.
    pub counted: Vec<Counted>,
    /// How often rules were asked, all clients together.
    pub total: u64,
    /// The most that a count is too high by, and that somebody has come who is not here.
    pub error_at_most: u64,
    /// Ticks that all this spans.
    pub span: u64,
}

/// One client under one rule. No count is too low.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Who.
    pub item: Item,
    /// How often the rule was asked about it.
    pub requests: u64,
    /// How often it lacked the tokens.
    pub refused: u64,
    /// By how much `requests` may be too high.
    pub requests_error: u64,
    /// By how much `refused` may be too high.
    pub refused_error: u64,
}

/// What one summary says.
#[derive(Debug)]
struct Copied {
    places: Vec<Counter<Item>>,
    unseen: u64,
    total: u64,
}

/// Counts that are added up.
#[derive(Debug, Default)]
struct Sum {
    /// Of each client: its count and its error beyond `unseen`, which all have anyway.
    beyond: HashMap<Item, (i64, i64)>,
    unseen: u64,
    total: u64,
}

impl Consumption {
    /// What was counted up to `now`.
    pub fn merged(&self, now: u64) -> Merged {
        let (mut asked, mut refused) = (Sum::default(), Sum::default());
        let mut since = now;
        for shard in &self.shards {
            // A thread that serves requests may wait for the lock: only copies are made under it.
            let copies: Vec<(u64, Copied, Copied)> = {
                let mut shard = shard.0.lock();
                shard.turn(now, &self.hashing);
                let windows = std::iter::once(&shard.current).chain(&shard.previous);
                let windows = windows.filter(|window| window.asked.total() > 0);
                let copied = |window: &Window| {
                    (window.since, Copied::of(&window.asked), Copied::of(&window.refused))
                };
                windows.map(copied).collect()
            };
            for (window_since, window_asked, window_refused) in &copies {
                since = since.min(*window_since);
                asked.add(window_asked);
                refused.add(window_refused);
            }
        }
        let each = asked.beyond.keys().chain(refused.beyond.keys());
        let mut counted: HashMap<Item, Counted> = HashMap::new();
        for item in each.copied() {
            let (requests, requests_error) = asked.of(&item);
            let (lacked, refused_error) = refused.of(&item);
            let lacked = lacked.min(requests);
            counted.entry(item).or_insert(Counted {
                item,
                requests,
                refused: lacked,
                requests_error,
                refused_error: refused_error.min(lacked),
            });
        }
        Merged {
            counted: counted.into_values().collect(),
            total: asked.total,
            error_at_most: asked.unseen,
            span: now.saturating_sub(since),
        }
    }
}

impl Copied {
    fn of(counts: &Counts) -> Self {
        let (unseen, total) = (counts.max_untracked(), counts.total());
        Self { places: counts.counters().to_vec(), unseen, total }
    }
}

impl Sum {
    fn add(&mut self, counts: &Copied) {
        let unseen = counts.unseen;
        let less = i64::try_from(unseen).unwrap_or(i64::MAX);
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for Counter { item, count, error } in &counts.places {
            let sum = self.beyond.entry(*item).or_default();
            sum.0 = sum.0.saturating_add(signed(*count) - less);
            sum.1 = sum.1.saturating_add(signed(*error) - less);
        }
        self.unseen = self.unseen.saturating_add(unseen);
        self.total = self.total.saturating_add(counts.total);
    }

    /// How often a client came, and by how much that may be too high.
    fn of(&self, item: &Item) -> (u64, u64) {
        let (count, error) = self.beyond.get(item).copied().unwrap_or_default();
        (self.unseen.saturating_add_signed(count), self.unseen.saturating_add_signed(error))
    }
}
