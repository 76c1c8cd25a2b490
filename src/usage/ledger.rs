//! [`Ledger`]: what was used since the last write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tracing::warn;

use super::days::row::{Counts, Rows};
use super::days::tally::{Counted as Request, Tallies};
use super::record::{Owner, Place, Record};
use super::webhooks::notices::Notices;
use crate::base::shard::{SHARDS, Sharded};
use crate::base::unix_time;
use crate::client::Client;
use crate::limit::Limit;
use crate::limit::calendar::Bounds;
use crate::limit::charge::{Charge, Mode, Outcome};
use crate::policy::settings::Detail;
use crate::policy::{Policy, Rule};
use crate::store::limiter::{Source, Taken};
use crate::store::rule::StoredRule;

/// Maximum number of records that could not be written or read.
const MAX_KEPT: usize = 1_000_000;

/// Maximum number of records of one thread since the last write.
const MAX_RECORDS: usize = MAX_KEPT / SHARDS;

/// Records since the last write. Each thread writes in its own shard.
#[derive(Debug)]
pub struct Ledger {
    shards: Sharded<Shard>,
    /// What could not be written or read.
    kept: Mutex<Shard>,
    /// Maximum number of records in `kept`.
    max_kept: usize,
    /// Whether the buckets are in Redis.
    is_shared: bool,
    /// Finds events in what is written.
    notices: Arc<Notices>,
    dropped: AtomicU64,
}

/// What one thread noted.
#[derive(Debug, Default)]
struct Shard {
    changes: Changes,
    unread: Unread,
    tallies: Tallies,
}

/// Changes by bucket and period.
pub type Changes = HashMap<Place, Change, RandomState>;

/// What has changed of a record since the last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The record; `used` is the largest number that a request was answered with.
    pub record: Record,
    /// What an operator set `used` to, before these requests. Only of buckets in this process.
    pub set: Option<i64>,
    /// Time of the answer that `used` is from, by the clock of Redis; 0 of buckets in this process.
    /// Of two changes, the later one counts.
    pub answered_at_us: u64,
}

/// Records whose numbers have to be read from their buckets, by bucket and period.
pub type Unread = HashMap<Place, UnreadRecord, RandomState>;

/// A record whose bucket has changed, or will change, without an answer that says how.
#[derive(Debug, Clone)]
pub struct UnreadRecord {
    /// The record; `used` is 0.
    pub record: Record,
    /// A charge of the bucket.
    pub charge: Charge,
    /// The rule of the charge.
    pub rule: StoredRule,
    /// Whether it is read once more: of buckets in this process, another thread may note an older
    /// answer after the first reading.
    pub is_read_again: bool,
    /// Whether the bucket has changed by more than debts of this process, which are added to the
    /// record if the period ends before they are settled.
    pub is_changed: bool,
    /// Whether such a debt was added to the record.
    pub has_lapsed: bool,
}

/// Why the number of a record has to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// This process has a debt to the bucket.
    Debt,
    /// An operator has adjusted the bucket, or it has got tokens back.
    Change,
}

/// A charge of a client, and the period of usage that it counts in.
struct Counted<'a> {
    policy: &'a Policy,
    client: &'a Client,
    charge: &'a Charge,
    /// Unix time at which the period begins, in microseconds.
    start_us: u64,
    place: Place,
}

impl Ledger {
    /// A ledger of buckets in this process.
    pub fn local() -> Self {
        Self::new(false)
    }

    /// A ledger of buckets in Redis.
    pub fn shared() -> Self {
        Self::new(true)
    }

    fn new(is_shared: bool) -> Self {
        let (shards, kept) = (Sharded::new(Shard::default), Mutex::default());
        let (notices, dropped) = (Arc::default(), AtomicU64::new(0));
        Self { shards, kept, max_kept: MAX_KEPT, is_shared, notices, dropped }
    }

    /// Notes what an allowed request used. `now` is in microseconds of the process' clock.
    #[inline]
    pub fn note(&self, request: Request<'_>, taken: &Taken, now: u64) {
        if request.policy.has_quotas() && taken.answer.allowed() {
            self.note_quotas(request, taken, now);
        }
    }

    fn note_quotas(&self, request: Request<'_>, taken: &Taken, now: u64) {
        let Request { policy, client, .. } = request;
        let Some(shard) = self.shards.own() else { return };
        let mut shard = shard.lock();
        let unix_us = unix_time::of(now);
        for (index, (charge, outcome)) in
            taken.charges.iter().zip(&taken.answer.outcomes).enumerate()
        {
            // Without a time, the bucket of a shadow rule was not read.
            if !outcome.enough || outcome.times.left_us == 0 {
                continue;
            }
            let left_us = outcome.times.left_us;
            let Some(bounds) = charge.limit.usage_period_with(left_us, unix_us) else { continue };
            let counted = Counted::of(policy, client, charge, bounds);
            let is_answered = self.is_shared && taken.source_of(index) == Source::Redis;
            let is_kept = if self.is_shared && !is_answered {
                shard.note_unread(&counted, unix_us, Cause::Debt)
            } else {
                let answered_at_us =
                    if self.is_shared { answered_at(outcome, counted.place) } else { 0 };
                shard.note(&counted, outcome.level, answered_at_us, unix_us)
            };
            let is_tallied = policy.usage.detail == Detail::Off || {
                let at = if is_answered { answered_at(outcome, counted.place) } else { unix_us };
                let counts = Counts::of_request(charge, outcome);
                shard.tallies.note(request, charge, counts, at, MAX_RECORDS)
            };
            if !is_kept || !is_tallied {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Notes that an operator has adjusted buckets, whose levels are now `levels`. What requests
    /// used before no longer counts.
    pub fn note_adjusted(
        &self,
        policy: &Policy,
        client: &Client,
        (charges, levels): (&[Charge], &[i64]),
        now: u64,
    ) {
        let unix_us = unix_time::of(now);
        for (charge, level) in charges.iter().zip(levels) {
            let Some(bounds) = charge.limit.usage_period(unix_us) else { continue };
            let counted = Counted::of(policy, client, charge, bounds);
            let Some(own) = self.shards.own() else { continue };
            if self.is_shared {
                // The level says nothing about its time: it is read again.
                own.lock().note_unread(&counted, 0, Cause::Change);
                continue;
            }
            for shard in self.all() {
                shard.lock().changes.remove(&counted.place);
            }
            let used = charge.limit.full().saturating_sub(*level);
            let mut own = own.lock();
            if let Some(record) = counted.record(used, unix_us) {
                let change = Change { record, set: Some(used), answered_at_us: 0 };
                own.changes.insert(counted.place, change);
            }
            // A thread may note later what a request used before, and what one has used since is
            // removed: it is read again.
            own.note_unread(&counted, unix_us, Cause::Change);
        }
    }

    /// Notes that the tokens of some charges of a request were given back, which was checked at
    /// `checked_at` (microseconds). Their buckets are read.
    pub fn note_refunded(
        &self,
        policy: &Policy,
        client: &Client,
        taken: &Taken,
        indexes: impl Iterator<Item = usize>,
        checked_at: u64,
    ) {
        let unix_us = unix_time::of(checked_at);
        let Some(shard) = self.shards.own() else { return };
        let mut shard = shard.lock();
        for index in indexes {
            let charge = taken.charges.get(index);
            let Some((charge, outcome)) = charge.zip(taken.answer.outcomes.get(index)) else {
                continue;
            };
            let left_us = outcome.times.left_us;
            let Some(bounds) = charge.limit.usage_period_with(left_us, unix_us) else { continue };
            let counted = Counted::of(policy, client, charge, bounds);
            if !shard.note_unread(&counted, unix_us, Cause::Change) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Notes that requests have cost more than they took from the buckets of these charges, at
    /// `now` (microseconds). The buckets are read.
    pub fn note_debited<'a>(
        &self,
        policy: &Policy,
        client: &Client,
        charges: impl Iterator<Item = &'a Charge>,
        now: u64,
    ) {
        let unix_us = unix_time::of(now);
        let Some(shard) = self.shards.own() else { return };
        let mut shard = shard.lock();
        for charge in charges {
            let Some(bounds) = charge.limit.usage_period(unix_us) else { continue };
            let counted = Counted::of(policy, client, charge, bounds);
            if !shard.note_unread(&counted, unix_us, Cause::Debt) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Notes, with `usage.detail`, that charges of a request, which was checked at `checked_at`
    /// (microseconds), were changed by these counts. They count on the day of the request.
    pub fn note_changed(
        &self,
        request: Request<'_>,
        taken: &Taken,
        changes: impl Iterator<Item = (usize, Counts)>,
        checked_at: u64,
    ) {
        if request.policy.usage.detail == Detail::Off || !request.policy.has_quotas() {
            return;
        }
        let unix_us = unix_time::of(checked_at);
        let Some(shard) = self.shards.own() else { return };
        let mut shard = shard.lock();
        for (index, counts) in changes {
            let charge = taken.charges.get(index);
            let Some((charge, outcome)) = charge.zip(taken.answer.outcomes.get(index)) else {
                continue;
            };
            let left_us = outcome.times.left_us;
            let Some(bounds) = charge.limit.usage_period_with(left_us, unix_us) else { continue };
            if !outcome.enough || left_us == 0 {
                continue;
            }
            let place = Place { end_us: bounds.end_us, bucket: charge.bucket };
            let is_answered = self.is_shared && taken.source_of(index) == Source::Redis;
            let at = if is_answered { answered_at(outcome, place) } else { unix_us };
            if !shard.tallies.note(request, charge, counts, at, MAX_RECORDS) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes and returns what was used by day.
    pub fn take_days(&self) -> Rows {
        let mut rows = Rows::new();
        for shard in self.shards.iter() {
            let tallies = std::mem::take(&mut shard.lock().tallies);
            tallies.add_to(&mut rows);
        }
        rows
    }

    /// Finds events in what is written.
    pub const fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Hands over the events in changes that are written at `unix_us` (Unix time).
    pub fn look_at(&self, changes: &Changes, unix_us: u64) {
        let without_room: u64 =
            changes.values().map(|change| self.notices.look_at(&change.record, unix_us)).sum();
        if without_room > 0 {
            warn!(
                events = without_room,
                "webhooks have no room; they are sent after the next request"
            );
        }
    }

    /// Removes and returns all changes.
    pub fn take(&self) -> Changes {
        let mut all = Changes::default();
        for shard in self.all() {
            let changes = std::mem::take(&mut shard.lock().changes);
            add_all(&mut all, changes);
        }
        all
    }

    /// Removes and returns the records whose numbers have to be read.
    pub fn take_unread(&self) -> Unread {
        let mut all = Unread::default();
        for shard in self.all() {
            let unread = std::mem::take(&mut shard.lock().unread);
            add_unread(&mut all, unread);
        }
        all
    }

    /// Number of records whose numbers could not be read.
    pub fn unread(&self) -> usize {
        self.kept.lock().unread.len()
    }

    /// What could not be written, before what the threads have noted since.
    fn all(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        std::iter::once(&self.kept).chain(self.shards.iter())
    }

    /// Puts back changes that could not be written. Later changes of the same records have
    /// precedence.
    pub fn put_back(&self, changes: Changes) {
        let kept = &mut self.kept.lock().changes;
        let later = std::mem::replace(kept, changes);
        add_all(kept, later);
        self.drop_surplus(kept);
    }

    /// Puts back records whose numbers could not be read.
    pub fn put_back_unread(&self, unread: Unread) {
        let kept = &mut self.kept.lock().unread;
        let later = std::mem::replace(kept, unread);
        add_unread(kept, later);
        self.drop_surplus(kept);
    }

    /// Drops any records beyond the maximum.
    fn drop_surplus<T>(&self, kept: &mut HashMap<Place, T, RandomState>) {
        let surplus: Vec<Place> = kept.keys().skip(self.max_kept).copied().collect();
        for place in &surplus {
            kept.remove(place);
        }
        self.dropped.fetch_add(surplus.len() as u64, Ordering::Relaxed);
    }

    /// Number of records that were dropped since the last call, because too many could not be
    /// written.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

impl Shard {
    /// Notes an answer by which the bucket has this level. Returns whether there was room.
    fn note(&mut self, counted: &Counted, level: i64, answered_at_us: u64, unix_us: u64) -> bool {
        let used = counted.charge.limit.full().saturating_sub(level);
        if let Some(change) = self.changes.get_mut(&counted.place) {
            change.count(counted.charge, used, answered_at_us, unix_us);
            let plan = counted.policy.plan_name(counted.client.plan);
            if *change.record.plan != *plan {
                change.record.plan = plan.into();
            }
            return true;
        }
        let has_room = self.changes.len() < MAX_RECORDS;
        if has_room && let Some(record) = counted.record(used, unix_us) {
            self.changes.insert(counted.place, Change { record, set: None, answered_at_us });
        }
        has_room
    }

    /// Notes that the number in Redis has to be read. Returns whether there was room.
    fn note_unread(&mut self, counted: &Counted, unix_us: u64, cause: Cause) -> bool {
        let is_changed = cause == Cause::Change;
        if let Some(unread) = self.unread.get_mut(&counted.place) {
            unread.record.counted_at_us = unread.record.counted_at_us.max(unix_us);
            unread.is_read_again = true;
            unread.is_changed |= is_changed;
            return true;
        }
        let has_room = self.unread.len() < MAX_RECORDS;
        if has_room && let Some((rule, record)) = counted.rule().zip(counted.record(0, unix_us)) {
            let (charge, rule) = (*counted.charge, StoredRule::of(rule));
            let (is_read_again, has_lapsed) = (true, false);
            let unread =
                UnreadRecord { record, charge, rule, is_read_again, is_changed, has_lapsed };
            self.unread.insert(counted.place, unread);
        }
        has_room
    }
}

/// Time of an answer by the clock of Redis: by the end of its period, and what was left of it.
pub fn answered_at(outcome: &Outcome, place: Place) -> u64 {
    place.end_us.saturating_sub(outcome.times.left_us)
}

impl Change {
    fn count(&mut self, charge: &Charge, used: i64, answered_at_us: u64, unix_us: u64) {
        let record = &mut self.record;
        // A reload may have changed the limit. What was used stays used.
        record.limit = limit_of(charge);
        record.counted_at_us = record.counted_at_us.max(unix_us);
        self.set_used(used, answered_at_us);
    }

    fn set_used(&mut self, used: i64, answered_at_us: u64) {
        if answered_at_us > self.answered_at_us {
            (self.record.used, self.answered_at_us) = (used, answered_at_us);
        } else if answered_at_us == self.answered_at_us {
            self.record.used = self.record.used.max(used);
        }
    }

    /// What was used, after `before` of earlier changes.
    pub fn used_after(&self, before: Option<i64>) -> i64 {
        self.set.or(before).map_or(self.record.used, |before| before.max(self.record.used))
    }

    /// Adds a change of the same record. An operator's change removes those before it, so a change
    /// beside one that has `set` is later.
    fn add(&mut self, mut other: Self) {
        if other.set.is_some() {
            std::mem::swap(self, &mut other);
        }
        self.set_used(other.record.used, other.answered_at_us);
        if other.record.counted_at_us > self.record.counted_at_us {
            self.record.limit = other.record.limit;
            self.record.plan = other.record.plan;
            self.record.counted_at_us = other.record.counted_at_us;
        }
    }
}

/// The limit of a record. One that is not enforced warns no client, and has no event.
fn limit_of(charge: &Charge) -> Limit {
    match charge.mode {
        Mode::Enforce => charge.limit,
        Mode::Shadow => charge.limit.without_events(),
    }
}

fn add_all(all: &mut Changes, changes: Changes) {
    for (place, change) in changes {
        match all.get_mut(&place) {
            Some(known) => known.add(change),
            None => drop(all.insert(place, change)),
        }
    }
}

/// Adds records that were noted later than those in `all`.
fn add_unread(all: &mut Unread, later: Unread) {
    for (place, mut unread) in later {
        if let Some(known) = all.get(&place) {
            let record = &mut unread.record;
            record.counted_at_us = record.counted_at_us.max(known.record.counted_at_us);
            unread.is_read_again |= known.is_read_again;
            unread.is_changed |= known.is_changed;
            unread.has_lapsed |= known.has_lapsed;
        }
        all.insert(place, unread);
    }
}

impl<'a> Counted<'a> {
    fn of(policy: &'a Policy, client: &'a Client, charge: &'a Charge, period: Bounds) -> Self {
        let place = Place { end_us: period.end_us, bucket: charge.bucket };
        Self { policy, client, charge, start_us: period.start_us, place }
    }

    /// Its rule; `None` if the policy does not have it.
    fn rule(&self) -> Option<&'a Rule> {
        self.policy.rules.get(self.charge.rule as usize)
    }

    /// A record of it; `None` if the policy does not have its rule.
    fn record(&self, used: i64, counted_at_us: u64) -> Option<Record> {
        let rule = self.rule()?;
        Some(Record {
            place: self.place,
            start_us: self.start_us,
            rule: Arc::clone(&rule.name),
            owner: Owner::of(self.policy, rule, self.client),
            plan: self.policy.plan_name(self.client.plan).into(),
            limit: limit_of(self.charge),
            used,
            counted_at_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::BucketId;
    use crate::limit::fixed_window::{FixedWindow, Overage};
    use crate::usage::webhooks::event::Event;

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
        Change { record, set, answered_at_us: 0 }
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

    /// A rule in shadow mode refuses no request, and sends no event.
    #[test]
    fn record_of_a_shadow_rule_has_no_events() {
        let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
        let window = FixedWindow::new(5, calendar).unwrap().with(Overage::Count, 800);
        let events = |mode| {
            let limit = Limit::FixedWindow(window);
            let bucket = BucketId(1);
            let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
            let mut counted = change(0, None, 1);
            counted.count(&charge, 6_000, 2, 3);
            Event::of(&counted.record).count()
        };
        assert_eq!((events(Mode::Enforce), events(Mode::Shadow)), (2, 0));
    }

    #[test]
    fn latest_answer_of_redis_counts_in_any_order() {
        let answer = |used, answered_at_us| Change { answered_at_us, ..change(used, None, 5) };
        // A reset between the first two.
        let each = [answer(9, 100), answer(1, 200), answer(2, 300), answer(3, 300)];
        for first in 0..4 {
            let mut all = Changes::default();
            for index in 0..4 {
                let one = each[(first + index) % 4].clone();
                add_all(&mut all, [(one.record.place, one)].into_iter().collect());
            }
            let sum = all.values().next().unwrap();
            assert_eq!((sum.record.used, sum.answered_at_us), (3, 300));
        }
    }

    /// As of a client whose plan was changed between two writes.
    #[test]
    fn plan_and_limit_are_those_of_the_latest_request() {
        let before = change(3, None, 5);
        let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
        let record = Record { plan: "pro".into(), limit, ..change(4, None, 6).record };
        let after = Change { record, ..before.clone() };
        for each in [[before.clone(), after.clone()], [after.clone(), before]] {
            let mut all = Changes::default();
            for one in each {
                add_all(&mut all, [(one.record.place, one)].into_iter().collect());
            }
            assert_eq!(all.into_values().next().unwrap(), after);
        }
    }

    /// As of a client whose bucket an operator adjusts, which says nothing about the last request.
    #[test]
    fn unread_record_that_is_noted_again_keeps_what_was_known() {
        let Change { record, .. } = change(0, None, 5);
        let (limit, bucket) = (record.limit, record.place.bucket);
        let (place, mode) = (record.place, Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let rule = crate::store::rule::rule();
        let (is_read_again, is_changed, has_lapsed) = (false, false, true);
        let first = UnreadRecord { record, charge, rule, is_read_again, is_changed, has_lapsed };
        let (is_read_again, is_changed, has_lapsed) = (true, true, false);
        let record = Record { counted_at_us: 0, plan: "pro".into(), ..first.record.clone() };
        let again = UnreadRecord { record, is_read_again, is_changed, has_lapsed, ..first.clone() };
        let mut all = Unread::default();
        for one in [first, again] {
            add_unread(&mut all, [(place, one)].into_iter().collect());
        }
        let one = &all[&place];
        assert_eq!((one.record.counted_at_us, &*one.record.plan), (5, "pro"));
        assert_eq!((one.is_read_again, one.is_changed, one.has_lapsed), (true, true, true));
    }

    #[test]
    fn change_that_could_not_be_written_is_taken_again_with_later_ones() {
        let ledger = Ledger::local();
        let first = change(3, None, 5);
        let place = first.record.place;
        ledger.put_back([(place, first)].into_iter().collect());
        ledger.put_back([(place, change(2, None, 6))].into_iter().collect());
        let taken = ledger.take();
        assert_eq!((taken.len(), taken[&place].record.used), (1, 3));
        assert!(ledger.take().is_empty());
        assert_eq!(ledger.take_dropped(), 0);
    }

    #[test]
    fn number_of_changes_that_could_not_be_written_is_bounded() {
        let ledger = Ledger { max_kept: 100, ..Ledger::local() };
        let one = change(3, None, 5);
        let many = |first: u128, count: usize| -> Changes {
            let place = |bucket| Place { end_us: 9, bucket: BucketId(bucket) };
            (first..).take(count).map(|bucket| (place(bucket), one.clone())).collect()
        };
        ledger.put_back(many(0, 100));
        assert_eq!(ledger.take_dropped(), 0);
        ledger.put_back(many(95, 10));
        assert_eq!((ledger.take_dropped(), ledger.take().len()), (5, 100));
    }
}
