//! Tokens that are given back: another slot of a cluster has refused the request that took them.
//!
//! The script gives back at most what keeps the limit exact: of a bucket that refills, less what it refilled since the
//! tokens were taken, since it may have been full otherwise; of a fixed window, only in the period in which they were
//! taken; of a sliding window, only while the tokens are in it, and by dropping its oldest ones. Tokens that are not
//! given back are lost to the client, which is as if the request had been allowed.

use std::sync::{Arc, Weak};

use super::{Batcher, Queued};
use crate::clock;
use crate::limit::Limit;
use crate::limit::charge::{Charge, Charges};
use crate::store::redis::script::StoredRule;

/// Tokens of one request in one slot.
pub struct GiveBack {
    pub(super) slot: u16,
    charges: Charges,
    rules: Arc<[StoredRule]>,
    /// Unix time in microseconds at which Redis took them, by its clock.
    taken_at: u64,
    /// Time at which they were queued, in microseconds.
    pub(super) since: u64,
    /// Number of calls that had them and were not executed.
    failures: u8,
}

/// Calls that may fail before tokens are lost.
const MAX_FAILURES: u8 = 3;

/// What a call gives back to a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returned {
    /// Units that were taken.
    pub units: i64,
    /// Unix time in microseconds at which they were taken, by the clock of Redis.
    pub taken_at: u64,
    /// End of the period in which they were taken, in microseconds of Unix time; 0 unless the limit is a fixed window.
    pub period_end: u64,
}

impl Returned {
    /// `units` of `limit` that were taken at `taken_at`.
    pub fn new(limit: &Limit, units: i64, taken_at: u64) -> Self {
        let left_us = if limit.calendar().is_some() { limit.left_us(taken_at) } else { 0 };
        let period_end = if left_us == 0 { 0 } else { taken_at.saturating_add(left_us) };
        Self { units, taken_at, period_end }
    }
}

impl GiveBack {
    /// The part of it for one of its buckets.
    pub(super) fn of(&self, charge: &Charge) -> Self {
        let charges = std::iter::once(*charge).collect();
        Self { slot: self.slot, charges, rules: Arc::clone(&self.rules), ..*self }
    }

    /// What is given back to each bucket.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Charge, &StoredRule, Returned)> {
        self.charges.iter().filter_map(|charge| {
            let units = charge.limit.units(charge.cost);
            let rule = self.rules.get(charge.rule as usize)?;
            Some((charge, rule, Returned::new(&charge.limit, units, self.taken_at)))
        })
    }
}

impl Batcher {
    /// Gives back the tokens of these charges, which Redis took at `taken_at` (Unix time in microseconds), with the next
    /// call. In a cluster, all of them are in `slot`. If too many checks wait, they are lost.
    pub fn give_back(
        self: &Arc<Self>,
        slot: u16,
        charges: Charges,
        rules: &Arc<[StoredRule]>,
        taken_at: u64,
    ) {
        let rules = Arc::clone(rules);
        let since = clock::now();
        let give_back = GiveBack { slot, charges, rules, taken_at, since, failures: 0 };
        self.enqueue(Queued::GiveBack(give_back));
    }

    /// Gives back with another call what a call had that was not executed, since its slot is being moved or has moved.
    pub(super) fn give_back_again(&self, returned: Vec<GiveBack>) {
        let Some(cluster) = self.cluster.as_ref().and_then(Weak::upgrade) else { return };
        for one in returned.into_iter().filter(|one| one.failures < MAX_FAILURES) {
            if let Some(node) = cluster.node_of_slot(one.slot).filter(|node| node.is_connected()) {
                let again = GiveBack { since: clock::now(), failures: one.failures + 1, ..one };
                node.batcher().enqueue(Queued::GiveBack(again));
            }
        }
    }
}
