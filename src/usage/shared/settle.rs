//! Reads buckets that changed without an answer: an operator adjusted them, or requests were
//! decided locally while Redis was unavailable.
//!
//! Once Redis is available, the debts to such buckets are settled, and the buckets are read,
//! whether or not the client sends another request. If the period of a debt ended before, the
//! bucket will never have it: it is added to the record as a grant.

use super::writer::Grant;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::unix_time;
use crate::limit::charge::{Charge, Outcome};
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::store::lapsed::LapsedDebt;
use crate::store::limiter::Limiter;
use crate::store::redis::batch::adjust::NotAdjusted;
use crate::store::rule::StoredRule;
use crate::usage::ledger::{Change, Changes, Ledger, Unread, UnreadRecord, answered_at};
use crate::usage::record::Place;

/// Most buckets in one call.
const AT_ONCE: usize = 64;

/// Time from the end of a period until its debts have been settled or have lapsed, in microseconds.
/// Longer than a late reply is waited for.
const LATE_US: u64 = 30 * MICROS_PER_SECOND;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Numbers of buckets.
    pub(super) changes: Changes,
    /// What was granted locally in periods that have ended.
    pub(super) grants: Vec<Grant>,
    /// Grants of records that are not known any more.
    pub(super) dropped: u64,
}

/// Reads what the ledger has not read, as far as Redis is available. `id` returns a new number for
/// each grant.
pub(super) async fn read(
    ledger: &Ledger,
    limiter: &Limiter,
    now: u64,
    id: impl FnMut() -> u64,
) -> Found {
    let mut found = Found::default();
    let mut unread = ledger.take_unread();
    if unread.is_empty() {
        return found;
    }
    found.add_lapsed(limiter.take_lapsed(now), &unread, id);
    let unix_us = unix_time::of(now);
    unread.retain(|place, _| unix_us < place.end_us.saturating_add(LATE_US));
    let mut current: Vec<Place> = Vec::new();
    if limiter.is_connected() {
        current.extend(unread.keys().filter(|place| unix_us < place.end_us));
    }
    for places in current.chunks(AT_ONCE) {
        match found.read(limiter, &unread, places, unix_us).await {
            Ok(()) => places.iter().for_each(|place| drop(unread.remove(place))),
            // One that Redis cannot read must not keep the others from being read.
            Err(NotAdjusted::Unreadable(index)) => {
                for (other, place) in places.iter().enumerate() {
                    let one = std::slice::from_ref(place);
                    if other != index && found.read(limiter, &unread, one, unix_us).await.is_ok() {
                        unread.remove(place);
                    }
                }
            }
            Err(NotAdjusted::Unchanged | NotAdjusted::Unknown) => break,
        }
    }
    ledger.put_back_unread(unread);
    found
}

impl Found {
    fn add_lapsed(
        &mut self,
        lapsed: Vec<LapsedDebt>,
        unread: &Unread,
        mut id: impl FnMut() -> u64,
    ) {
        for one in lapsed {
            let place = Place { end_us: one.ended_us, bucket: one.bucket };
            match unread.get(&place) {
                Some(UnreadRecord { record, .. }) => {
                    let (record, units) = (record.clone(), one.units);
                    self.grants.push(Grant { record, units, id: id() });
                }
                None => self.dropped += 1,
            }
        }
    }

    async fn read(
        &mut self,
        limiter: &Limiter,
        unread: &Unread,
        places: &[Place],
        unix_us: u64,
    ) -> Result<(), NotAdjusted> {
        let each: Vec<&UnreadRecord> = places.iter().filter_map(|it| unread.get(it)).collect();
        let rules: Vec<StoredRule> = each.iter().map(|one| one.rule.clone()).collect();
        let charges = (0..).zip(&each).map(|(rule, one)| Charge { rule, ..one.charge });
        let charges: Vec<Charge> = charges.collect();
        let readings = limiter.settle_and_read(&charges, &rules).await?;
        for (one, reading) in each.iter().zip(readings) {
            if let Some(change) = change(one, reading, unix_us) {
                self.changes.insert(change.record.place, change);
            }
        }
        Ok(())
    }
}

/// What a reading says about the record, or about that of a period which has begun since.
fn change(unread: &UnreadRecord, reading: Reading, unix_us: u64) -> Option<Change> {
    let UnreadRecord { record, charge, .. } = unread;
    let Reading { level, times, .. } = reading;
    let outcome = Outcome { level, enough: true, share: Share::WHOLE, times };
    let bounds = charge.limit.usage_period_with(outcome.times.left_us, unix_us)?;
    let mut record = record.clone();
    record.place.end_us = bounds.end_us;
    record.start_us = bounds.start_us;
    record.used = charge.limit.full().saturating_sub(level);
    let answered_at_us = answered_at(&outcome, record.place);
    Some(Change { record, set: None, answered_at_us })
}
