//! Tokens that are given back: another slot of a cluster has refused the request that took them, or
//! it has failed before it reached a server (`refund_on`).
//!
//! The script gives back at most what keeps the limit exact: see [`Returned`]. Tokens that are not
//! given back are lost to the client, which is as if the request had been allowed.

use std::sync::{Arc, Weak};

use tokio::sync::mpsc::Sender;

use super::{Batcher, Queued};
use crate::base::clock;
use crate::limit::charge::{BucketId, Charge, Charges};
use crate::limit::returned::Returned;
use crate::store::redis::script::Given;
use crate::store::rule::StoredRule;

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
    /// Gets what is given back. Dropped once it is, or is lost.
    done: Option<GivenSender>,
}

/// Sends what each bucket is given back.
pub type GivenSender = Sender<(BucketId, Given)>;

/// Calls that may fail before tokens are lost.
const MAX_FAILURES: u8 = 3;

impl GiveBack {
    /// The part of it for these buckets; `None` without any.
    pub(super) fn with(self, charges: Charges) -> Option<Self> {
        (!charges.is_empty()).then(|| Self { charges, ..self })
    }

    /// The part of it for one of its buckets.
    pub(super) fn of(&self, charge: &Charge) -> Self {
        let charges = std::iter::once(*charge).collect();
        let (rules, done) = (Arc::clone(&self.rules), self.done.clone());
        Self { charges, rules, done, ..*self }
    }

    /// Reports what its only bucket was given back.
    pub(super) fn note_given(&self, given: Given) {
        if let (Some(done), Some(charge)) = (&self.done, self.charges.first()) {
            // There is room for each bucket, and the request may have ended.
            let _ = done.try_send((charge.bucket, given));
        }
    }

    /// What is given back to each bucket.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Charge, &StoredRule, Returned)> {
        self.charges.iter().filter_map(|charge| {
            let units = charge.limit.units(charge.cost);
            let rule = self.rules.get(charge.rule as usize)?;
            let returned = Returned::new(&charge.limit, units, self.taken_at);
            Some((charge, rule, returned.of_leaky(rule.is_leaky)))
        })
    }
}

impl Batcher {
    /// Gives back the tokens of these charges, which Redis took at `taken_at` (Unix time in
    /// microseconds), with the next call. In a cluster, all of them are in `slot`. If too many
    /// checks wait, they are lost. `done` gets what is given back of each bucket, and is dropped
    /// once they are given back or lost.
    pub fn give_back(
        self: &Arc<Self>,
        slot: u16,
        charges: Charges,
        rules: &Arc<[StoredRule]>,
        taken_at: u64,
        done: Option<GivenSender>,
    ) {
        let rules = Arc::clone(rules);
        let since = clock::now();
        let give_back = GiveBack { slot, charges, rules, taken_at, since, failures: 0, done };
        self.enqueue(Queued::GiveBack(give_back));
    }

    /// Gives back with another call what a call had that was not executed: it came too late, or its
    /// slot is being moved or has moved.
    pub(super) fn give_back_again(self: &Arc<Self>, returned: Vec<GiveBack>) {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        for one in returned.into_iter().filter(|one| one.failures < MAX_FAILURES) {
            let node = cluster.as_ref().and_then(|cluster| cluster.node_of_slot(one.slot));
            let batcher = match (&cluster, &node) {
                (None, _) => self,
                (Some(_), Some(node)) if node.is_connected() => node.batcher(),
                (Some(_), _) => continue,
            };
            let again = GiveBack { since: clock::now(), failures: one.failures + 1, ..one };
            batcher.enqueue(Queued::GiveBack(again));
        }
    }
}
