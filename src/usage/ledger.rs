//! [`Ledger`]: what was used since the last write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

use super::record::{Owner, Place, Record, period};
use crate::limit::charge::Charge;
use crate::limit::unix_time;
use crate::observe::shard::{SHARDS, Sharded};
use crate::policy::Policy;
use crate::policy::client::Client;
use crate::store::limiter::Taken;

/// Maximum number of records of one thread. Reached only while the file cannot be written.
const MAX_RECORDS: usize = 1_000_000 / SHARDS;

/// Records since the last write. Each thread writes in its own shard.
#[derive(Debug)]
pub struct Ledger {
    shards: Sharded<Changes>,
    dropped: AtomicU64,
}

/// Changes by bucket and period.
pub type Changes = HashMap<Place, Change, RandomState>;

/// What has changed of a record since the last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The record; `used` is the largest number that a request was answered with.
    pub record: Record,
    /// What an operator set `used` to, before these requests.
    pub set: Option<i64>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { shards: Sharded::new(Changes::default), dropped: AtomicU64::new(0) }
    }
}

impl Ledger {
    /// Notes what an allowed request used. `now` is in microseconds of the process' clock.
    #[inline]
    pub fn note(&self, policy: &Policy, client: &Client, taken: &Taken, now: u64) {
        if policy.has_quotas && taken.answer.allowed() {
            self.note_quotas(policy, client, taken, now);
        }
    }

    fn note_quotas(&self, policy: &Policy, client: &Client, taken: &Taken, now: u64) {
        let Some(shard) = self.shards.own() else { return };
        let mut changes = shard.lock();
        let unix_us = unix_time::of(now);
        for (charge, outcome) in taken.charges.iter().zip(&taken.answer.outcomes) {
            if !outcome.enough {
                continue;
            }
            let Some(bounds) = period(charge, outcome, unix_us) else { continue };
            let used = charge.limit.full().saturating_sub(outcome.level);
            let place = Place { end_us: bounds.end_us, bucket: charge.bucket };
            if let Some(change) = changes.get_mut(&place) {
                change.count(charge, used, unix_us);
                continue;
            }
            if changes.len() >= MAX_RECORDS {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let Some(record) = new(policy, client, charge, (bounds.start_us, place), used, unix_us)
            else {
                continue;
            };
            changes.insert(place, Change { record, set: None });
        }
    }

    /// Notes that an operator has adjusted buckets, whose levels are now `levels`. What requests used before no longer
    /// counts.
    pub fn note_adjusted(
        &self,
        policy: &Policy,
        client: &Client,
        (charges, levels): (&[Charge], &[i64]),
        now: u64,
    ) {
        let unix_us = unix_time::of(now);
        for (charge, level) in charges.iter().zip(levels) {
            let Some(calendar) = charge.limit.quota_calendar() else { continue };
            let bounds = calendar.bounds(unix_us);
            let place = Place { end_us: bounds.end_us, bucket: charge.bucket };
            for shard in self.shards.iter() {
                shard.lock().remove(&place);
            }
            let used = charge.limit.full().saturating_sub(*level);
            let at = (bounds.start_us, place);
            if let (Some(shard), Some(record)) =
                (self.shards.own(), new(policy, client, charge, at, used, unix_us))
            {
                shard.lock().insert(place, Change { record, set: Some(used) });
            }
        }
    }

    /// Removes and returns all changes.
    pub fn take(&self) -> Changes {
        let mut all = Changes::default();
        for shard in self.shards.iter() {
            let changes = std::mem::take(&mut *shard.lock());
            add_all(&mut all, changes);
        }
        all
    }

    /// Puts back changes that could not be written. Later changes of the same records have precedence.
    pub fn put_back(&self, changes: Changes) {
        let Some(shard) = self.shards.iter().next() else { return };
        let mut kept = shard.lock();
        let later = std::mem::replace(&mut *kept, changes);
        add_all(&mut kept, later);
    }

    /// Number of records that were dropped since the last call, because too many could not be written.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

impl Change {
    fn count(&mut self, charge: &Charge, used: i64, unix_us: u64) {
        let record = &mut self.record;
        // A reload may have changed the limit. What was used stays used.
        record.limit = charge.limit;
        record.used = record.used.max(used);
        record.counted_at_us = record.counted_at_us.max(unix_us);
    }

    /// What was used, after `before` of earlier changes.
    pub fn used_after(&self, before: Option<i64>) -> i64 {
        self.set.or(before).map_or(self.record.used, |before| before.max(self.record.used))
    }

    /// Adds a change of the same record. An operator's change removes those before it, so a change beside one that has
    /// `set` is later.
    fn add(&mut self, mut other: Self) {
        if other.set.is_some() {
            std::mem::swap(self, &mut other);
        }
        self.record.used = self.record.used.max(other.record.used);
        if other.record.counted_at_us > self.record.counted_at_us {
            self.record.limit = other.record.limit;
            self.record.counted_at_us = other.record.counted_at_us;
        }
    }
}

/// Adds changes to `all`.
fn add_all(all: &mut Changes, changes: Changes) {
    for (place, change) in changes {
        match all.get_mut(&place) {
            Some(known) => known.add(change),
            None => drop(all.insert(place, change)),
        }
    }
}

/// A record of the charge; `None` if the policy does not have its rule.
fn new(
    policy: &Policy,
    client: &Client,
    charge: &Charge,
    (start_us, place): (u64, Place),
    used: i64,
    counted_at_us: u64,
) -> Option<Record> {
    let rule = policy.rules.get(charge.rule as usize)?;
    Some(Record {
        place,
        start_us,
        rule: Arc::clone(&rule.name),
        owner: Owner::of(policy, rule, client),
        plan: policy.plan_name(client.plan).into(),
        limit: charge.limit,
        used,
        counted_at_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::BucketId;
    use crate::limit::fixed_window::FixedWindow;

    fn change(used: i64, set: Option<i64>, counted_at_us: u64) -> Change {
        let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
        let record = Record {
            place: Place { end_us: 9, bucket: BucketId(1) },
            start_us: 0,
            rule: "quota".into(),
            owner: Owner { kind: "key", id: String::new() },
            plan: "free".into(),
            limit: Limit::FixedWindow(FixedWindow::new(5, calendar).unwrap()),
            used,
            counted_at_us,
        };
        Change { record, set }
    }

    #[test]
    fn changes_of_threads_are_added_in_any_order() {
        let each = [change(3, None, 5), change(7, None, 2), change(5, Some(1), 3)];
        for first in 0..3 {
            let mut all = Changes::default();
            for index in 0..3 {
                let one = each[(first + index) % 3].clone();
                add_all(&mut all, [(one.record.place, one)].into_iter().collect());
            }
            let sum = all.values().next().unwrap();
            assert_eq!((sum.record.used, sum.set, sum.record.counted_at_us), (7, Some(1), 5));
        }
    }

    #[test]
    fn change_that_could_not_be_written_is_taken_again_with_later_ones() {
        let ledger = Ledger::default();
        let first = change(3, None, 5);
        let place = first.record.place;
        ledger.put_back([(place, first)].into_iter().collect());
        ledger.put_back([(place, change(2, None, 6))].into_iter().collect());
        let taken = ledger.take();
        assert_eq!((taken.len(), taken[&place].record.used), (1, 3));
        assert!(ledger.take().is_empty());
        assert_eq!(ledger.take_dropped(), 0);
    }
}
