//! The clients with the most requests and the most refusals of each rule, over the last five to ten
//! minutes. Metrics cannot have this, since clients are not labels. Memory is bounded, for any
//! number of clients and rules: a top-k sketch counts them.
//!
//! Each thread counts in its own shard, so that threads do not wait for each other. A query adds
//! the shards up ([`Consumption::merged`]). Counts are kept for the current window and the one
//! before.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;
use crate::base::shard::Sharded;
use crate::client::Client;
use crate::client::identifier::ClientId;
use crate::limit::top_k::{Counter, Sketch};
use crate::policy::Policy;
use crate::store::limiter::Taken;

/// Counters of one sketch. No count is too high by more than 1/1,024 of all requests.
const COUNTERS: usize = 1_024;

/// Length of a window in microseconds. Queries cover one to two windows.
pub const WINDOW_US: u64 = 300 * MICROS_PER_SECOND;

/// Counts by rule and client.
#[derive(Debug)]
pub struct Consumption {
    shards: Sharded<Shard>,
    /// Randomly seeded, so that clients cannot provoke collisions.
    hashing: RandomState,
}

/// The counts of one thread.
#[derive(Debug)]
struct Shard {
    current: Window,
    previous: Option<Window>,
}

/// Counts since `since`, in microseconds of the monotonic clock.
#[derive(Debug)]
struct Window {
    since: u64,
    requests: Counts,
    refused: Counts,
}

type Counts = Sketch<Item, KeyId, RandomState>;

/// Id of the known client or tenant; `None` of others.
type KeyId = Option<Arc<str>>;

/// A client under one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Item {
    /// Index of the rule.
    pub rule: u32,
    /// The client as the rule counts it.
    pub client: ClientId,
}

/// The counts of all shards over the last windows.
#[derive(Debug, Default)]
pub struct Merged {
    /// All counted clients, in no order.
    pub counted: Vec<Counted>,
    /// Number of checks against any rule, of all clients.
    pub total: u64,
    /// Upper bound of the error of each count, and of the requests of a client that is not listed.
    pub error_at_most: u64,
    /// Time that the counts cover, in microseconds.
    pub span: u64,
}

/// Counts of one client under one rule. They are never too low.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The rule and the client.
    pub item: Item,
    key_id: KeyId,
    /// Number of requests checked against the rule.
    pub requests: u64,
    /// Number of those for which the bucket was short of tokens.
    pub refused: u64,
    /// Upper bound of the error of `requests`.
    pub requests_error: u64,
    /// Upper bound of the error of `refused`.
    pub refused_error: u64,
}

/// A copy of one sketch.
#[derive(Debug)]
struct Copied {
    counters: Vec<Counter<Item, KeyId>>,
    max_untracked: u64,
    total: u64,
}

/// The sum of several sketches.
#[derive(Debug, Default)]
struct Sum {
    /// Count and error of each client, each less the `max_untracked` of the sketches that track it.
    beyond: HashMap<Item, (i64, i64)>,
    key_ids: HashMap<Item, KeyId>,
    max_untracked: u64,
    total: u64,
}

impl Default for Consumption {
    fn default() -> Self {
        let hashing = RandomState::default();
        let shard = || Shard { current: Window::new(0, &hashing), previous: None };
        Self { shards: Sharded::new(shard), hashing }
    }
}

impl Consumption {
    /// Counts one checked request of `client` under each of its rules. `now` is in microseconds of
    /// the monotonic clock.
    pub fn record(&self, policy: &Policy, client: &Client, taken: &Taken, now: u64) {
        let Some(shard) = self.shards.own() else { return };
        let mut shard = shard.lock();
        shard.rotate(now, &self.hashing);
        for (charge, outcome) in taken.charges.iter().zip(&taken.answer.outcomes) {
            let rule = policy.rules.get(charge.rule as usize);
            let Some(found) = rule.and_then(|rule| rule.client_of(&policy.clients, client)) else {
                continue;
            };
            let item = Item { rule: charge.rule, client: found.id() };
            let key_id = || found.name();
            shard.current.requests.add(item, key_id);
            if !outcome.enough {
                shard.current.refused.add(item, key_id);
            }
        }
    }

    /// These counts for another policy. Rules and keys are matched by name; counts of others are
    /// dropped.
    pub fn carried_over(&self, old: &Policy, new: &Policy) -> Self {
        let rules = renumbered(
            old.rules.iter().map(|rule| &*rule.name),
            new.rules.iter().map(|rule| &*rule.name),
        );
        let keys: HashSet<&str> = new.keys.all().iter().map(|key| &*key.id).collect();
        // Which of its clients are gone is not known.
        let has_store = new.key_store.is_some();
        let name = |item: Item, key_id: &KeyId| {
            let rule = *rules.get(item.rule as usize)?;
            let is_kept = match (item.client, key_id) {
                (ClientId::Known(_), Some(id)) => has_store || keys.contains(&**id),
                _ => true,
            };
            is_kept.then_some(Item { rule: rule?, ..item })
        };
        let hashing = &self.hashing;
        let window = |window: &Window| Window {
            since: window.since,
            requests: window.requests.map_items(name, hashing.clone()),
            refused: window.refused.map_items(name, hashing.clone()),
        };
        let shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let previous = shard.previous.as_ref().map(window);
            Shard { current: window(&shard.current), previous }
        };
        Self { shards: self.shards.map(shard), hashing: hashing.clone() }
    }

    /// The counts of all shards up to `now`, in microseconds of the monotonic clock.
    pub fn merged(&self, now: u64) -> Merged {
        let (mut requests, mut refused) = (Sum::default(), Sum::default());
        let mut since = now;
        for shard in self.shards.iter() {
            // Only copy under the lock: a thread that serves requests may wait for it.
            let copies: Vec<(u64, Copied, Copied)> = {
                let mut shard = shard.lock();
                shard.rotate(now, &self.hashing);
                let windows = std::iter::once(&shard.current).chain(&shard.previous);
                let windows = windows.filter(|window| window.requests.total() > 0);
                let copied = |window: &Window| {
                    (window.since, Copied::of(&window.requests), Copied::of(&window.refused))
                };
                windows.map(copied).collect()
            };
            for (window_since, window_requests, window_refused) in &copies {
                since = since.min(*window_since);
                requests.add(window_requests);
                refused.add(window_refused);
            }
        }
        let each = requests.beyond.keys().chain(refused.beyond.keys());
        let mut counted: HashMap<Item, Counted> = HashMap::new();
        for item in each.copied() {
            let (request_count, requests_error) = requests.of(&item);
            let (refused_count, refused_error) = refused.of(&item);
            let refused_count = refused_count.min(request_count);
            counted.entry(item).or_insert_with(|| Counted {
                item,
                key_id: requests.key_id(&item).or_else(|| refused.key_id(&item)),
                requests: request_count,
                refused: refused_count,
                requests_error,
                refused_error: refused_error.min(refused_count),
            });
        }
        Merged {
            counted: counted.into_values().collect(),
            total: requests.total,
            error_at_most: requests.max_untracked,
            span: now.saturating_sub(since),
        }
    }
}

impl Shard {
    /// Starts a new window if the current one is over.
    fn rotate(&mut self, now: u64, hashing: &RandomState) {
        let age = now.saturating_sub(self.current.since);
        if age < WINDOW_US {
            return;
        }
        let ended = std::mem::replace(&mut self.current, Window::new(now, hashing));
        self.previous = (age < 2 * WINDOW_US).then_some(ended);
    }
}

impl Window {
    fn new(since: u64, hashing: &RandomState) -> Self {
        let empty = || Sketch::new(COUNTERS, hashing.clone());
        Self { since, requests: empty(), refused: empty() }
    }
}

impl Copied {
    fn of(counts: &Counts) -> Self {
        Self {
            counters: counts.counters().to_vec(),
            max_untracked: counts.max_untracked(),
            total: counts.total(),
        }
    }
}

impl Sum {
    fn add(&mut self, counts: &Copied) {
        let less = i64::try_from(counts.max_untracked).unwrap_or(i64::MAX);
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for Counter { item, label, count, error } in &counts.counters {
            if label.is_some() {
                self.key_ids.insert(*item, label.clone());
            }
            let sum = self.beyond.entry(*item).or_default();
            sum.0 = sum.0.saturating_add(signed(*count) - less);
            sum.1 = sum.1.saturating_add(signed(*error) - less);
        }
        self.max_untracked = self.max_untracked.saturating_add(counts.max_untracked);
        self.total = self.total.saturating_add(counts.total);
    }

    fn key_id(&self, item: &Item) -> KeyId {
        self.key_ids.get(item).cloned().flatten()
    }

    /// Count of a client, and the upper bound of its error.
    fn of(&self, item: &Item) -> (u64, u64) {
        let (count, error) = self.beyond.get(item).copied().unwrap_or_default();
        (
            self.max_untracked.saturating_add_signed(count),
            self.max_untracked.saturating_add_signed(error),
        )
    }
}

impl Counted {
    /// The client as operators see it: what identifies it, and its name.
    pub fn shown(&self, policy: &Policy) -> (&'static str, String) {
        let key_id = self.key_id.as_deref().unwrap_or_default();
        self.item.client.shown(key_id, policy.clients.ipv6_prefix)
    }
}

/// Index in `new` of each name in `old`.
fn renumbered<'a>(
    old: impl Iterator<Item = &'a str>,
    new: impl Iterator<Item = &'a str>,
) -> Vec<Option<u32>> {
    let numbers: std::collections::HashMap<&str, u32> = new.zip(0..).collect();
    old.map(|name| numbers.get(name).copied()).collect()
}

#[cfg(test)]
mod tests;
