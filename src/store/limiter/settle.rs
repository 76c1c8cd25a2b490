//! What requests cost by their responses (`count`), beyond what they took before (`reserve`).
//!
//! What a request cost more becomes a debt of its bucket, as what is granted while Redis is away
//! (see [`Debts`](crate::store::debts::Debts)), and is sent at once, in the next call with checks.
//! If Redis does not answer, it stays a debt. What it cost less is given back as the tokens of a
//! request that failed (see `refund`).

use std::sync::Arc;

use super::refund::Allowed;
use super::{Limiter, Shared};
use crate::limit::charge::Charge;
use crate::store::rule::StoredRule;

/// What a request has cost beyond what it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    /// Index of the charge.
    pub index: usize,
    /// [`Parts`](crate::limit::Limit::parts) of a token.
    pub parts: u64,
}

impl Limiter {
    /// Takes what a request has cost beyond what it took, at `now` (microseconds): from the same
    /// buckets, below zero if they do not hold it. Charges that took nothing owe nothing.
    /// `is_in_force`: the limits of the charges are. If not, buckets in this process keep what they
    /// have, whose limits are others.
    pub fn debit(&self, allowed: Allowed<'_>, owed: &[Owed], is_in_force: bool, now: u64) {
        for (index, charge, outcome) in allowed.charges() {
            let Some(owed) = owed.iter().find(|owed| owed.index == index) else { continue };
            if is_in_force {
                self.memory.debit(charge, outcome.share.taken(&charge.limit, owed.parts), now);
            }
            if let Some(shared) = &self.shared {
                shared.debit(charge, allowed.rules, charge.limit.units(owed.parts), now);
            }
        }
    }
}

impl Shared {
    fn debit(&self, charge: &Charge, rules: &Arc<[StoredRule]>, units: i64, now: u64) {
        let Some(rule) = rules.get(charge.rule as usize) else { return };
        self.fallback.debit(charge, rule, units, now);
        for part in self.nodes.parts(std::slice::from_ref(charge), rules) {
            if let Some(node) = part.node.filter(|node| node.is_connected()) {
                node.batcher().settle_soon(part.slot, *charge, rules);
            }
        }
    }
}
