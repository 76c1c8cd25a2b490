//! Statements to Redis of what this process holds.

use std::sync::atomic::Ordering;

use super::{Entry, Held, SHARDS, Shard};
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::limit::concurrency::{LEASE_US, Statement};
use crate::store::rule::StoredRule;

/// Age of a statement after which it is made again, in microseconds: a third of a lease.
pub(super) const RENEWAL_US: u64 = LEASE_US / 3;

/// A statement to make.
#[derive(Clone, Debug)]
pub struct Due {
    pub bucket: BucketId,
    /// Limit of the bucket.
    pub limit: Limit,
    /// Rule of the bucket.
    pub rule: StoredRule,
    /// What this process holds.
    pub statement: Statement,
}

impl Held {
    /// Whether a call with checks of the bucket is unanswered, so that another one has to wait.
    pub fn is_asked(&self, bucket: BucketId) -> bool {
        let shard = self.shard(bucket).lock();
        shard.entries.get(&bucket).is_some_and(|entry| entry.is_asked)
    }

    /// Begins a call with checks of the bucket, until [`answered`](Self::answered).
    pub fn begin(&self, bucket: BucketId, limit: Limit, rule: &StoredRule) {
        let mut shard = self.shard(bucket).lock();
        let entry = shard.entries.entry(bucket).or_insert_with(|| Entry::new(limit, rule.clone()));
        entry.is_asked = true;
    }

    /// The statement of a call that is sent at `now` (microseconds).
    pub fn statement(&self, bucket: BucketId, now: u64) -> Statement {
        let mut shard = self.shard(bucket).lock();
        shard.entries.get_mut(&bucket).map_or(Statement::NONE, |entry| self.state(entry, now))
    }

    /// The statement of an operator's call that is sent at `now` (microseconds). None of units
    /// while a call with checks of the bucket is unanswered, since the number would lack those that
    /// it takes.
    pub fn statement_to_adjust(&self, bucket: BucketId, now: u64) -> Statement {
        let mut shard = self.shard(bucket).lock();
        match shard.entries.get_mut(&bucket) {
            Some(entry) if !entry.is_asked => self.state(entry, now),
            Some(_) => Statement { gateway: self.gateway, number: 0, units: None },
            None => Statement::NONE,
        }
    }

    /// Ends a call with checks of the bucket. `units` are those of this process that Redis now has;
    /// `None` without a reply.
    pub fn answered(&self, bucket: BucketId, units: Option<i64>) {
        let mut shard = self.shard(bucket).lock();
        if let Some(entry) = shard.entries.get_mut(&bucket) {
            entry.is_asked = false;
            entry.stated = units;
        }
        self.settle(&mut shard, bucket);
    }

    /// At most `most` statements that are due at `now` (microseconds), each time of other buckets
    /// first. Those for which `can_be_made` is false are due again with the next
    /// [`renew`](Self::renew).
    pub fn take_due(
        &self,
        most: usize,
        now: u64,
        can_be_made: impl Fn(BucketId, &StoredRule) -> bool,
    ) -> Vec<Due> {
        let mut taken = Vec::new();
        let first = self.next_shard.load(Ordering::Relaxed);
        for number in (first..first + SHARDS).map(|number| number % SHARDS) {
            if taken.len() >= most {
                break;
            }
            self.next_shard.store((number + 1) % SHARDS, Ordering::Relaxed);
            let mut shard = self.shards[number].lock();
            let Shard { entries, due } = &mut *shard;
            let mut buckets = due.extract_if(|_| true);
            while taken.len() < most
                && let Some(bucket) = buckets.next()
            {
                let entry = entries.get_mut(&bucket);
                let entry = entry.filter(|entry| can_be_made(bucket, &entry.rule));
                taken.extend(entry.and_then(|entry| self.due_of(bucket, entry, now)));
            }
        }
        taken
    }

    fn due_of(&self, bucket: BucketId, entry: &mut Entry, now: u64) -> Option<Due> {
        if !entry.needs_statement() {
            return None;
        }
        let statement = self.state(entry, now);
        Some(Due { bucket, limit: entry.limit, rule: entry.rule.clone(), statement })
    }

    /// Records whether Redis has accepted a statement. If not, it is due again.
    pub fn stated(&self, bucket: BucketId, statement: Statement, is_accepted: bool) {
        let mut shard = self.shard(bucket).lock();
        if let Some(entry) = shard.entries.get_mut(&bucket)
            && entry.number == statement.number
        {
            entry.stated = statement.units.filter(|_| is_accepted);
        }
        self.settle(&mut shard, bucket);
    }

    /// Makes all statements due that are older than a third of a lease at `now` (microseconds), or
    /// could not be made; with `all`, every one, since Redis may have lost them. Forgets buckets of
    /// which nothing is held and whose leases have ended.
    pub fn renew(&self, all: bool, now: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let buckets: Vec<BucketId> = shard.entries.keys().copied().collect();
            for bucket in buckets {
                let Some(entry) = shard.entries.get_mut(&bucket) else { continue };
                let age_us = now.saturating_sub(entry.stated_at);
                if all || age_us >= RENEWAL_US {
                    entry.stated = None;
                }
                if entry.units.is_empty() && age_us >= LEASE_US {
                    entry.stated = Some(0);
                }
                self.settle(&mut shard, bucket);
            }
        }
    }

    /// Waits until a statement is due.
    pub async fn until_due(&self) {
        self.due.notified().await;
    }

    fn state(&self, entry: &mut Entry, now: u64) -> Statement {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        (entry.number, entry.stated, entry.stated_at) = (number, None, now);
        let units = Some(entry.units.units());
        Statement { gateway: self.gateway, number, units }
    }
}
