//! [`Bans`]: which clients are banned under which rules, in this process. A banned client is
//! refused from here, without a call to Redis.
//!
//! With Redis, refusals are counted there, for all gateways together: [`sync`] sends what this
//! gateway has refused, some times a second and for all clients in one call, and reads which bans
//! have begun or ended ([`script`], `lua/bans.lua`). While Redis cannot be called, and without
//! Redis, this gateway counts its own refusals. A ban that begins then is sent later.
//!
//! Rules without `ban` are never looked up; while no rule has one, nothing is.

pub mod about;
pub mod script;
pub mod sync;

use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limit::ban::{BanRule, BanState};
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::store::rule::StoredRule;
use about::About;
use script::{Changed, Update};

/// Number of shards, each with its own lock; more than there are threads.
const SHARDS: usize = 64;

/// Maximum number of clients that are known, in this process and in Redis: those with a ban, and
/// those with refusals.
pub const MAX_CLIENTS: usize = 100_000;

/// Shortest time between two searches of a full shard for clients whose time is over, in
/// microseconds.
const SEARCH_INTERVAL_US: u64 = 1_000_000;

/// Bans and refusals by bucket, bounded in number.
#[derive(Debug)]
pub struct Bans {
    shards: Box<[Mutex<Shard>]>,
    /// Whether a rule has `ban`.
    is_used: AtomicBool,
    /// Whether this gateway counts alone: without Redis, or while it cannot be called.
    is_alone: AtomicBool,
    /// Whether other gateways have the bans, too.
    is_shared: bool,
    /// Notified when an operator has changed a ban.
    has_new: Notify,
    /// Number of calls of [`take_updates`](Self::take_updates), which begin at different shards.
    calls: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    clients: HashMap<BucketId, Entry>,
    /// Buckets with something to send, each once.
    unsent: Vec<BucketId>,
    /// Earliest time of the next search, if it is full.
    search_at: u64,
}

/// What is known of one client under one rule. Times are those of this process' clock.
#[derive(Debug)]
struct Entry {
    about: Arc<About>,
    /// The setting of its rule; `None`: another gateway has sent it.
    rule: Option<BanRule>,
    state: BanState,
    /// When nothing of it counts any more, in microseconds.
    forgotten_at: u64,
    /// Refusals that are not sent.
    unsent_refusals: u32,
    unsent: Option<Unsent>,
}

/// A change of a ban that is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsent {
    /// It began here, while Redis could not be called.
    Began,
    /// An operator has begun it, or set its end.
    Set,
    /// An operator has ended it.
    Lifted,
}

/// A ban in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ban {
    pub bucket: BucketId,
    pub about: Arc<About>,
    /// Microseconds that are left.
    pub left_us: u64,
    /// Its number in a row of bans, from 1.
    pub number: u32,
}

impl Bans {
    /// No bans. `is_shared`: [`sync`] exchanges them with other gateways.
    pub fn new(is_shared: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            is_used: AtomicBool::new(false),
            is_alone: AtomicBool::new(true),
            is_shared,
            has_new: Notify::new(),
            calls: AtomicUsize::new(0),
        }
    }

    /// Whether a rule has `ban`.
    pub fn are_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Sets which rules are in force.
    pub fn use_rules(&self, rules: &[StoredRule]) {
        let is_used = rules.iter().any(|rule| rule.ban.is_some());
        self.is_used.store(is_used, Ordering::Relaxed);
        self.has_new.notify_one();
    }

    /// The index of the charge whose client is banned for longest at `now` (microseconds), and the
    /// microseconds that are left; `None` if none is. `rules` are those of the charges, by index.
    pub fn refusal(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
    ) -> Option<(usize, u64)> {
        let banned = charges.iter().enumerate().filter_map(|(index, charge)| {
            let rule = rules.get(charge.rule as usize)?;
            let can_be = rule.ban.is_some() && charge.mode == Mode::Enforce;
            if !can_be {
                return None;
            }
            Some((index, self.left_us(charge.bucket, now)?))
        });
        banned.max_by_key(|(_, left)| *left)
    }

    /// Microseconds that are left of the ban of a bucket's client; `None` without one.
    pub fn left_us(&self, bucket: BucketId, now: u64) -> Option<u64> {
        self.shard(bucket).lock().clients.get(&bucket)?.state.left_us(now)
    }

    /// Counts a refusal by a rule with `ban` at `now` (microseconds). `about` is the client.
    pub fn note(
        &self,
        charge: &Charge,
        rule: &StoredRule,
        about: impl FnOnce() -> About,
        now: u64,
    ) {
        let Some(ban) = rule.ban else { return };
        let mut shard = self.shard(charge.bucket).lock();
        if !shard.has_room(charge.bucket, now) {
            return;
        }
        let entry = shard.clients.entry(charge.bucket).or_insert_with(|| Entry::new(about()));
        entry.rule = Some(ban);
        if entry.state.left_us(now).is_some() {
            return;
        }
        let is_enough = entry.state.count(&ban, 1, now);
        let counted_until = now.saturating_add(ban.within_us);
        entry.forgotten_at = entry.forgotten_at.max(counted_until);
        let was_sent = entry.is_sent();
        if is_enough && self.is_alone.load(Ordering::Relaxed) {
            entry.begin(&ban, now);
            entry.unsent = self.is_shared.then_some(Unsent::Began);
        } else if self.is_shared {
            entry.unsent_refusals = entry.unsent_refusals.saturating_add(1);
        }
        if was_sent && !entry.is_sent() {
            shard.unsent.push(charge.bucket);
        }
    }

    /// Bans the client of a bucket for `for_us` microseconds from `now` on, for an operator. If it
    /// is banned already, sets the end of its ban.
    pub fn set(&self, bucket: BucketId, ban: &BanRule, about: About, for_us: u64, now: u64) {
        self.change(bucket, |entry| {
            let about = Arc::new(about);
            let entry = entry.or_insert_with(|| Entry::of(Arc::clone(&about)));
            entry.about = about;
            entry.rule = Some(*ban);
            entry.state.bans = entry.state.bans.max(1);
            entry.state.ends_at = now.saturating_add(for_us);
            entry.forgotten_at = entry.state.ends_at.saturating_add(ban.max_us);
            entry.unsent = Some(Unsent::Set);
            Some(())
        });
    }

    /// Ends the ban of a bucket's client at `now`, for an operator, and forgets its refusals.
    /// Returns the ban; `None` if there is none.
    pub fn lift(&self, bucket: BucketId, now: u64) -> Option<Ban> {
        self.change(bucket, |entry| {
            let Place::Occupied(mut entry) = entry else { return None };
            let entry = entry.get_mut();
            let lifted = entry.ban(bucket, now)?;
            entry.state.lift();
            entry.unsent = Some(Unsent::Lifted);
            Some(lifted)
        })
    }

    /// Changes an entry, which then has something to send if `change` returns a value.
    fn change<T>(
        &self,
        bucket: BucketId,
        change: impl FnOnce(Place<'_, BucketId, Entry>) -> Option<T>,
    ) -> Option<T> {
        let mut shard = self.shard(bucket).lock();
        let was_sent = shard.clients.get(&bucket).is_none_or(Entry::is_sent);
        let changed = change(shard.clients.entry(bucket))?;
        if let Some(entry) = shard.clients.get_mut(&bucket) {
            entry.unsent_refusals = 0;
            if !self.is_shared {
                entry.unsent = None;
            } else if was_sent {
                shard.unsent.push(bucket);
            }
        }
        drop(shard);
        self.has_new.notify_one();
        Some(changed)
    }

    /// The bans in force at `now` for which `is_wanted`, in the order of their buckets, after the
    /// bucket `after`: at most `limit`.
    pub fn list(
        &self,
        after: Option<BucketId>,
        limit: usize,
        now: u64,
        is_wanted: impl Fn(&Ban) -> bool,
    ) -> Vec<Ban> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let each =
                shard.clients.iter().filter(|(bucket, _)| after.is_none_or(|it| it < **bucket));
            all.extend(
                each.filter_map(|(bucket, entry)| entry.ban(*bucket, now)).filter(&is_wanted),
            );
        }
        all.sort_unstable_by_key(|ban| ban.bucket);
        all.truncate(limit);
        all
    }

    /// The ban of a bucket's client at `now`; `None` without one.
    pub fn get(&self, bucket: BucketId, now: u64) -> Option<Ban> {
        self.shard(bucket).lock().clients.get(&bucket)?.ban(bucket, now)
    }

    /// Number of bans in force at `now` by the name of their rule.
    pub fn counts(&self, now: u64) -> HashMap<String, u64> {
        let mut counts = HashMap::new();
        for shard in &self.shards {
            for entry in shard.lock().clients.values().filter(|it| it.state.left_us(now).is_some())
            {
                *counts.entry(entry.about.rule.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// Removes at most `most` changes, to be sent at `now`. Each call begins at another shard, so
    /// that none waits for as long as there are more than `most`.
    fn take_updates(&self, most: usize, now: u64) -> Vec<Update> {
        let first = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut updates = Vec::new();
        for at in 0..SHARDS {
            let mut shard = self.shards[(first + at) % SHARDS].lock();
            while updates.len() < most
                && let Some(bucket) = shard.unsent.pop()
            {
                let Some(entry) = shard.clients.get_mut(&bucket) else { continue };
                updates.extend(entry.update(bucket, now));
                (entry.unsent, entry.unsent_refusals) = (None, 0);
            }
        }
        updates
    }

    /// Notes again what may not have been sent. Not refusals: they may have been counted, and a
    /// client that goes on has more of them.
    fn put_back(&self, updates: Vec<Update>) {
        for update in updates {
            let Some(unsent) = update.unsent() else { continue };
            let mut shard = self.shard(update.bucket).lock();
            let Some(entry) = shard.clients.get_mut(&update.bucket) else { continue };
            let was_sent = entry.is_sent();
            entry.unsent = entry.unsent.or(Some(unsent));
            if was_sent {
                shard.unsent.push(update.bucket);
            }
        }
    }

    /// Notes that the bans in force at `now` whose buckets are not in `known` are to be sent: Redis
    /// has lost them.
    fn send_missing(&self, known: &HashSet<BucketId>, now: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let Shard { clients, unsent, .. } = &mut *shard;
            for (bucket, entry) in clients {
                let is_missing = entry.state.left_us(now).is_some() && !known.contains(bucket);
                if is_missing && entry.unsent.is_none() {
                    if entry.is_sent() {
                        unsent.push(*bucket);
                    }
                    entry.unsent = Some(Unsent::Began);
                }
            }
        }
    }

    /// Applies what Redis said in the reply to a call that was sent at `now` (microseconds).
    fn apply(&self, changes: Vec<Changed>, now: u64) {
        for Changed { bucket, left_us, number, forgotten_in_us, about } in changes {
            let mut shard = self.shard(bucket).lock();
            let is_kept = shard.has_room(bucket, now) || left_us > 0 && shard.make_room();
            if !is_kept {
                continue;
            }
            let about = Arc::new(about);
            let entry =
                shard.clients.entry(bucket).or_insert_with(|| Entry::of(Arc::clone(&about)));
            if entry.unsent.is_some() {
                // What happened here is newer, and will be sent.
                continue;
            }
            if left_us > 0 || number == 0 {
                // The count begins anew.
                entry.state = BanState::default();
                entry.unsent_refusals = 0;
            }
            entry.about = about;
            entry.state.bans = number;
            entry.state.ends_at = now.saturating_add_signed(left_us);
            entry.forgotten_at = now.saturating_add(forgotten_in_us);
        }
    }

    /// Notes whether Redis can be called.
    fn note_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
    }

    #[allow(clippy::cast_possible_truncation, reason = "the remainder is below SHARDS")]
    fn shard(&self, bucket: BucketId) -> &Mutex<Shard> {
        &self.shards[(bucket.0 % SHARDS as u128) as usize]
    }
}

impl Shard {
    /// Whether the client of a bucket is known, or can be.
    fn has_room(&mut self, bucket: BucketId, now: u64) -> bool {
        const BOUND: usize = MAX_CLIENTS / SHARDS;
        if self.clients.len() >= BOUND && now >= self.search_at {
            self.search_at = now.saturating_add(SEARCH_INTERVAL_US);
            self.clients.retain(|_, entry| !entry.is_sent() || now < entry.forgotten_at);
        }
        self.clients.len() < BOUND || self.clients.contains_key(&bucket)
    }

    /// Forgets a client that has refusals only, for one that is banned. Returns whether there was
    /// one.
    fn make_room(&mut self) -> bool {
        let mut clients = self.clients.iter();
        let found = clients.find(|(_, entry)| entry.state.bans == 0 && entry.is_sent());
        let bucket = found.map(|(bucket, _)| *bucket);
        bucket.is_some_and(|bucket| self.clients.remove(&bucket).is_some())
    }
}

impl Entry {
    fn new(about: About) -> Self {
        Self::of(Arc::new(about))
    }

    fn of(about: Arc<About>) -> Self {
        let state = BanState::default();
        Self { about, rule: None, state, forgotten_at: 0, unsent_refusals: 0, unsent: None }
    }

    fn begin(&mut self, rule: &BanRule, now: u64) {
        self.state.begin(rule, now);
        self.unsent_refusals = 0;
        self.forgotten_at = self.state.ends_at.saturating_add(rule.max_us);
    }

    fn is_sent(&self) -> bool {
        self.unsent.is_none() && self.unsent_refusals == 0
    }

    fn ban(&self, bucket: BucketId, now: u64) -> Option<Ban> {
        let left_us = self.state.left_us(now)?;
        Some(Ban { bucket, about: Arc::clone(&self.about), left_us, number: self.state.bans })
    }

    /// What is to be sent of it; `None` if it is over.
    fn update(&self, bucket: BucketId, now: u64) -> Option<Update> {
        let about = Arc::clone(&self.about);
        let max_us = self.rule.map_or_else(
            || self.forgotten_at.saturating_sub(self.state.ends_at),
            |rule| rule.max_us,
        );
        let left_us = self.state.left_us(now);
        let what = match self.unsent {
            None if self.unsent_refusals == 0 => return None,
            None => script::What::Refusals { number: self.unsent_refusals, rule: self.rule? },
            Some(Unsent::Began) => {
                script::What::Restore { left_us: left_us?, number: self.state.bans, max_us }
            }
            Some(Unsent::Set) => script::What::Set { left_us: left_us?, max_us },
            Some(Unsent::Lifted) => script::What::Lift,
        };
        Some(Update { bucket, about, what })
    }
}

#[cfg(test)]
mod parity;
#[cfg(test)]
mod tests;
