//! What requests cost by their responses (`count`), beyond what they took before (`reserve`).
//!
//! What a request cost more becomes a debt of its bucket, as what is granted while Redis is away
//! (see [`Debts`](crate::store::debts::Debts)), and is sent at once, in the next call. If Redis
//! does not answer, it stays a debt. What it cost less is given back as the tokens of a request
//! that failed (see `refund`).

use std::sync::Arc;

use super::{Limiter, Shared};
use crate::limit::charge::Charge;
use crate::limit::share::Share;
use crate::store::rule::StoredRule;

/// What a request has cost beyond what it took from one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    /// The charge, whose cost that is. Its limit is in force.
    pub charge: Charge,
    /// The share of the bucket that the store could grant which took from it.
    pub share: Share,
}

impl Limiter {
    /// Takes what a request has cost beyond what it took, at `now` (microseconds): from the same
    /// buckets, below zero if they do not hold it. `rules` are those of the policy that the charges
    /// come from, by index.
    pub fn debit(&self, owed: &[Owed], rules: &Arc<[StoredRule]>, now: u64) {
        for Owed { charge, share } in owed {
            self.memory.debit(charge, share.taken(&charge.limit, charge.cost), now);
            if let Some(shared) = &self.shared {
                shared.debit(charge, rules, now);
            }
        }
    }
}

impl Shared {
    fn debit(&self, charge: &Charge, rules: &Arc<[StoredRule]>, now: u64) {
        let Some(rule) = rules.get(charge.rule as usize) else { return };
        let units = charge.limit.units(charge.cost);
        self.fallback.debit(charge, rule, units, self.share(), now);
        for part in self.nodes.parts(std::slice::from_ref(charge), rules) {
            if let Some(node) = part.node.filter(|node| node.is_connected()) {
                node.batcher().settle_soon(part.slot, *charge, rules);
            }
        }
    }
}
