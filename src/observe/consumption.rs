//! Who asks most of each rule, and who is refused most, lately: names of clients, which metrics
//! must not have. In a room with a bound, whatever the number of clients and rules.
//!
//! Each thread counts in a shard of its own, so that threads do not wait for each other; whoever asks
//! adds the shards up. What is older than two windows is forgotten.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::limit::MICROS_PER_SECOND;
use crate::limit::top_k::{Counter, Sketch};
use crate::policy::client::{Client, ClientKey, counted_address};
use crate::policy::settings::OnUnknownKey;
use crate::policy::{Dimension, Policy, Rule};
use crate::store::limiter::Taken;

mod merged;

pub use merged::{Counted, Merged};

/// Shards; threads beyond share them.
const SHARDS: usize = 16;

/// Places of one summary: no count is off by more than a thousandth of all.
const PLACES: usize = 1_024;

/// How long one window is, in ticks. What is told spans one to two of them.
pub const WINDOW: u64 = 300 * MICROS_PER_SECOND;

/// Counts by rule and client.
#[derive(Debug)]
pub struct Consumption {
    shards: Box<[Padded]>,
    /// Nobody outside can foresee its hashes.
    hashing: RandomState,
}

/// A shard on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// What one thread has counted.
#[derive(Debug)]
struct Shard {
    current: Window,
    previous: Option<Window>,
}

/// What was counted since some tick.
#[derive(Debug)]
struct Window {
    since: u64,
    asked: Counts,
    refused: Counts,
}

type Counts = Sketch<Item, RandomState>;

/// A client under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The rule, as an index.
    pub rule: u32,
    /// The client as the rule counts it.
    pub who: Who,
}

/// A client as rules count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A known key, by its index.
    Key(u32),
    /// An unknown key, by the beginning of its digest.
    UnknownKey(u64),
    /// An address, or the first one of a network.
    Ip(IpAddr),
}

impl Default for Consumption {
    fn default() -> Self {
        let hashing = RandomState::default();
        let shard = || Shard { current: Window::new(0, &hashing), previous: None };
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(shard()))).collect();
        Self { shards, hashing }
    }
}

impl Consumption {
    /// Notes what became of a request of `client` at `now`.
    pub fn note(&self, policy: &Policy, client: &Client, taken: &Taken, now: u64) {
        let Some(shard) = self.shards.get(own_shard()) else { return };
        let mut shard = shard.0.lock();
        shard.turn(now, &self.hashing);
        for (charge, outcome) in taken.charges.iter().zip(&taken.answer.outcomes) {
            let rule = policy.rules.get(charge.rule as usize);
            let Some(who) = rule.and_then(|rule| Who::of(policy, rule, client)) else { continue };
            let item = Item { rule: charge.rule, who };
            shard.current.asked.add(item);
            if !outcome.enough {
                shard.current.refused.add(item);
            }
        }
    }

    /// The same counts for another policy: of rules and keys that it has by the same names.
    pub fn carried_over(&self, old: &Policy, new: &Policy) -> Self {
        let rules = renumbered(
            old.rules.iter().map(|rule| &*rule.name),
            new.rules.iter().map(|rule| &*rule.name),
        );
        let keys =
            renumbered(old.keys.iter().map(|key| &*key.id), new.keys.iter().map(|key| &*key.id));
        let name = |item: Item| {
            let rule = *rules.get(item.rule as usize)?;
            let who = match item.who {
                Who::Key(key) => Who::Key((*keys.get(key as usize)?)?),
                other => other,
            };
            Some(Item { rule: rule?, who })
        };
        let hashing = &self.hashing;
        let window = |window: &Window| Window {
            since: window.since,
            asked: window.asked.map_items(name, hashing.clone()),
            refused: window.refused.map_items(name, hashing.clone()),
        };
        let shard = |shard: &Padded| {
            let shard = shard.0.lock();
            let previous = shard.previous.as_ref().map(window);
            Padded(Mutex::new(Shard { current: window(&shard.current), previous }))
        };
        Self { shards: self.shards.iter().map(shard).collect(), hashing: hashing.clone() }
    }
}

impl Shard {
    /// Begins another window where the time for that has come.
    fn turn(&mut self, now: u64, hashing: &RandomState) {
        let age = now.saturating_sub(self.current.since);
        if age < WINDOW {
            return;
        }
        let ended = std::mem::replace(&mut self.current, Window::new(now, hashing));
        self.previous = (age < 2 * WINDOW).then_some(ended);
    }
}

impl Window {
    fn new(since: u64, hashing: &RandomState) -> Self {
        let nobody = || Sketch::new(PLACES, hashing.clone());
        Self { since, asked: nobody(), refused: nobody() }
    }
}

impl Who {
    /// The client as that rule counts it: by its key or its address, whichever the rule goes by; by
    /// its key first where it goes by neither.
    fn of(policy: &Policy, rule: &Rule, client: &Client) -> Option<Self> {
        let by_ip = rule.per.contains(&Dimension::Ip) && !rule.per.contains(&Dimension::Key);
        match client.key {
            ClientKey::Known(key) if !by_ip => return Some(Self::Key(key)),
            // Others are refused for it, or count as if they had none.
            ClientKey::Unknown(digest)
                if !by_ip && policy.clients.on_unknown_key == OnUnknownKey::Accept =>
            {
                let beginning = digest.first_chunk::<8>()?;
                return Some(Self::UnknownKey(u64::from_be_bytes(*beginning)));
            }
            _ => {}
        }
        client.ip.map(|ip| Self::Ip(counted_address(ip, policy.clients.ipv6_prefix)))
    }
}

impl Hash for Item {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (kind, id): (u32, u128) = match self.who {
            Who::Key(key) => (0, key.into()),
            Who::UnknownKey(digest) => (1, digest.into()),
            Who::Ip(IpAddr::V4(ip)) => (2, ip.to_bits().into()),
            Who::Ip(IpAddr::V6(ip)) => (3, ip.to_bits()),
        };
        state.write_u128(id);
        state.write_u64((u64::from(self.rule) << 32) | u64::from(kind));
    }
}

/// The shard that this thread counts in.
fn own_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    OWN.with(Cell::get)
}

/// The new number of each old name.
fn renumbered<'a>(
    old: impl Iterator<Item = &'a str>,
    new: impl Iterator<Item = &'a str>,
) -> Vec<Option<u32>> {
    let numbers: std::collections::HashMap<&str, u32> = new.zip(0..).collect();
    old.map(|name| numbers.get(name).copied()).collect()
}

#[cfg(test)]
mod tests;
