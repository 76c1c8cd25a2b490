//! Reads buckets that changed without an answer: an operator adjusted them, or requests were
//! decided locally while Redis was unavailable.
//!
//! Once Redis is available, the debts to such buckets are settled, and the buckets are read,
//! whether or not the client sends another request. If the period of a debt ended before, the
//! bucket will never have it: it is added to the record as a grant.

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::writer::Grant;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::unix_time;
use crate::limit::charge::{Charge, Outcome};
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::store::lapsed::LapsedDebt;
use crate::store::limiter::Limiter;
use crate::store::redis::batch::adjust::NotAdjusted;
use crate::store::redis::node::Node;
use crate::store::redis::nodes::Nodes;
use crate::store::rule::StoredRule;
use crate::usage::ledger::{Change, Changes, Ledger, Unread, UnreadRecord, answered_at};
use crate::usage::record::Place;

/// Most buckets in one call.
const AT_ONCE: usize = 64;

/// Most slots of a cluster that are read at a time.
const SLOTS_AT_ONCE: usize = 64;

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
    /// Records that may lack something for good.
    pub(super) dropped: u64,
}

/// Reads what the ledger has not read, as far as Redis is available: in a cluster, the buckets of
/// the masters that respond. `id` returns a new number for each grant.
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
    found.add_lapsed(limiter.take_lapsed(now), &mut unread, id);
    let unix_us = unix_time::of(now);
    found.dropped += remove_ended(&mut unread, unix_us);
    if let Some(nodes) = limiter.redis() {
        for (place, change) in read_buckets(limiter, nodes, &unread, unix_us).await {
            unread.remove(&place);
            found.changes.extend(change.map(|change| (change.record.place, change)));
        }
    }
    ledger.put_back_unread(unread);
    found
}

/// Removes the records whose periods ended so long ago that nothing can be read for them any more.
/// Returns how many of them may lack something: only debts to their buckets are known otherwise.
fn remove_ended(unread: &mut Unread, unix_us: u64) -> u64 {
    let mut lacking = 0;
    unread.retain(|place, one| {
        let is_kept = unix_us < place.end_us.saturating_add(LATE_US);
        lacking += u64::from(!is_kept && (one.is_changed || !one.has_lapsed));
        is_kept
    });
    lacking
}

impl Found {
    fn add_lapsed(
        &mut self,
        lapsed: Vec<LapsedDebt>,
        unread: &mut Unread,
        mut id: impl FnMut() -> u64,
    ) {
        for one in lapsed {
            let place = Place { end_us: one.ended_us, bucket: one.bucket };
            match unread.get_mut(&place) {
                Some(UnreadRecord { record, has_lapsed, .. }) => {
                    *has_lapsed = true;
                    let (record, units) = (record.clone(), one.units);
                    self.grants.push(Grant { record, units, id: id() });
                }
                None => self.dropped += 1,
            }
        }
    }
}

/// Places that were read, and what that changes.
type Read = Vec<(Place, Option<Change>)>;

/// Reads the buckets whose periods have not ended, each slot for itself: a bucket that cannot be
/// read must not keep others from being read. A node whose call fails is not called again.
async fn read_buckets(limiter: &Limiter, nodes: &Nodes, unread: &Unread, unix_us: u64) -> Read {
    let current = unread.iter().filter(|(place, _)| unix_us < place.end_us);
    let current: Vec<&UnreadRecord> = current.map(|(_, one)| one).collect();
    let slots = nodes.by_slot(current, |one| (one.charge.bucket, &one.rule));
    let slots: Vec<(Arc<Node>, Vec<&UnreadRecord>)> = slots
        .into_iter()
        .filter_map(|(slot, each)| Some((nodes.node_of_slot(slot)?, each)))
        .collect();
    let (mut found, failed) = (Read::new(), Mutex::default());
    for some in slots.chunks(SLOTS_AT_ONCE) {
        let reads =
            some.iter().map(|(node, each)| read_slot(limiter, node, each, unix_us, &failed));
        found.extend(join_all(reads).await.into_iter().flatten());
    }
    found
}

/// Reads buckets of one slot, as far as its node responds. `failed` has the nodes that do not.
async fn read_slot(
    limiter: &Limiter,
    node: &Arc<Node>,
    each: &[&UnreadRecord],
    unix_us: u64,
    failed: &Mutex<Vec<Arc<Node>>>,
) -> Read {
    let mut found = Read::new();
    for some in each.chunks(AT_ONCE) {
        let has_failed = || failed.lock().iter().any(|one| Arc::ptr_eq(one, node));
        if !node.is_connected() || has_failed() {
            break;
        }
        let result = match read_some(limiter, some, unix_us, &mut found).await {
            Err(NotAdjusted::Unreadable(index)) => {
                read_others(limiter, some, index, unix_us, &mut found).await
            }
            result => result,
        };
        if result.is_err() {
            failed.lock().push(Arc::clone(node));
            break;
        }
    }
    found
}

/// Reads buckets, each for itself, except one that Redis cannot read.
async fn read_others(
    limiter: &Limiter,
    each: &[&UnreadRecord],
    except: usize,
    unix_us: u64,
    found: &mut Read,
) -> Result<(), NotAdjusted> {
    let others = each.iter().enumerate().filter(|(index, _)| *index != except);
    for (_, one) in others {
        match read_some(limiter, std::slice::from_ref(one), unix_us, found).await {
            Ok(()) | Err(NotAdjusted::Unreadable(_)) => {}
            failed => return failed,
        }
    }
    Ok(())
}

/// Settles the debts to some buckets, and reads them.
async fn read_some(
    limiter: &Limiter,
    each: &[&UnreadRecord],
    unix_us: u64,
    found: &mut Read,
) -> Result<(), NotAdjusted> {
    let rules: Vec<StoredRule> = each.iter().map(|one| one.rule.clone()).collect();
    let charges = (0..).zip(each).map(|(rule, one)| Charge { rule, ..one.charge });
    let charges: Vec<Charge> = charges.collect();
    let readings = limiter.settle_and_read(&charges, &rules).await?;
    for (one, reading) in each.iter().zip(readings) {
        found.push((one.record.place, change(one, reading, unix_us)));
    }
    Ok(())
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

#[cfg(test)]
mod tests;
