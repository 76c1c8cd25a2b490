//! Local fallback: decisions of this process while the shared store is unavailable, and their
//! debts.
//!
//! - Every answer of the shared store also sets the level of the bucket in local memory. A local
//!   decision starts from that level, so that an outage does not grant a second burst.
//! - This process grants only its local share, 1/n for n gateways ([`Share`]).
//! - Tokens that it grants are a debt ([`Debts`]), which the next call for that bucket settles in
//!   the shared store. So the end of an outage does not grant a second burst either.
//! - Expensive requests are not starved by cheap ones (`reservations`).

mod replies;
mod reservations;

use std::sync::Arc;

use super::debts::Debts;
use super::held::Holds;
use super::memory::MemoryStore;
use super::rule::StoredRule;
use crate::base::unix_time;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{self, Answer, Charge, Outcome, Outcomes};
use crate::limit::returned::Returned;
use crate::limit::share::Share;
use replies::Replies;
use reservations::Reservations;

/// Decides requests locally, within the local share.
#[derive(Debug)]
pub struct Fallback {
    /// Last known levels of the shared store, less the tokens granted since.
    memory: Arc<MemoryStore>,
    debts: Arc<Debts>,
    reservations: Reservations,
    replies: Replies,
}

impl Fallback {
    /// Creates a fallback that keeps levels in `memory` and debts in `debts`.
    pub fn new(memory: Arc<MemoryStore>, debts: Arc<Debts>) -> Self {
        Self { memory, debts, reservations: Reservations::default(), replies: Replies::default() }
    }

    /// Decides a request at `now` (microseconds) within `share`, and records the tokens taken as
    /// debts. `rules` are the rule names of the charges' policy, by index. Also returns what the
    /// request holds until it ends.
    pub fn take(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
        share: Share,
    ) -> (Answer, Holds) {
        let (answer, holds) = self.reserve(charges, rules, now, share);
        self.record_debts(charges, rules, &answer, now);
        (answer, holds)
    }

    /// Like [`take`](Self::take), but records no debts: the caller calls
    /// [`record_debts`](Self::record_debts) or [`give_back`](Self::give_back) afterwards.
    pub fn reserve(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
        share: Share,
    ) -> (Answer, Holds) {
        // The reservation may end before `peek` reads it again: a request that is allowed then
        // takes tokens.
        let refused =
            self.reservations.refuse(charges, now).then(|| self.peek(charges, now, share));
        let refused = refused.filter(|answer| !answer.allowed());
        let taken = || self.memory.hold(charges, rules, now, share);
        let (answer, holds) = refused.map_or_else(taken, |answer| (answer, Holds::new()));
        self.reservations.note(charges, &answer, now);
        (answer, holds)
    }

    /// Records the tokens that an answer took as debts.
    pub fn record_debts(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        answer: &Answer,
        now: u64,
    ) {
        if !answer.allowed() {
            return;
        }
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            // Held units are no debt: Redis gets their number.
            let is_debt = outcome.spent(charge) > 0;
            if let (true, Some(rule)) = (is_debt, rules.get(charge.rule as usize)) {
                let units = charge.limit.units(charge.cost);
                self.replies.granted_locally(charge, now);
                self.debts.add(charge, rule, units, outcome.share, now);
            }
        }
    }

    /// Adds `units` that a request has cost beyond what it took to the debt of the charge's bucket,
    /// which the next call for it settles. The caller takes them from the level in this process.
    pub fn debit(&self, charge: &Charge, rule: &StoredRule, units: i64, share: Share, now: u64) {
        self.replies.granted_locally(charge, now);
        self.debts.add(charge, rule, units, share, now);
    }

    /// Gives back the tokens that an answer took, because the request is denied by another store.
    /// The caller drops what it holds. Returns the outcomes with the levels afterwards.
    pub fn give_back(&self, charges: &[Charge], answer: &Answer, now: u64) -> Outcomes {
        let each = charges.iter().zip(&answer.outcomes).map(|(charge, outcome)| {
            let units = outcome.spent(charge);
            if units == 0 {
                return *outcome;
            }
            let given = Adjustment::GiveBack(units);
            let moved = self.memory.adjust(std::slice::from_ref(charge), given, now);
            let level = moved.first().map_or(outcome.level, |(_, after)| *after);
            Outcome { level, ..*outcome }
        });
        each.collect()
    }

    /// Number of debts that were removed until now: see [`Debts::removals`].
    pub fn removals(&self) -> u64 {
        self.debts.removals()
    }

    /// Gives back what a request took from one bucket within `share`, and does not use, unless the
    /// shared store may have deducted it since. `taken_at` is a time before it was taken, and
    /// `removals` the [number](Self::removals) before it became a debt. Returns whether it was
    /// given back.
    pub fn refund(
        &self,
        charge: &Charge,
        share: Share,
        taken_at: u64,
        removals: u64,
        is_leaky: bool,
        now: u64,
    ) -> bool {
        let limit = &charge.limit;
        let taken_at = unix_time::at(taken_at);
        let of = |units| Returned::here(limit, units, taken_at).of_leaky(is_leaky);
        let (own, owed) = (of(share.taken(limit, charge.cost)), of(limit.units(charge.cost)));
        // Until the debt is settled, no reply of the shared store sets the level.
        let then = || {
            self.memory.give_back(charge, &own, now);
        };
        self.debts.give_back(charge, &owed, removals, now, then)
    }

    /// Returns what [`take`](Self::take) would answer, without taking tokens.
    pub fn peek(&self, charges: &[Charge], now: u64, share: Share) -> Answer {
        self.reservations.applied(charges, self.memory.peek(charges, now, share), now)
    }

    /// Stores the levels that the shared store reported at `now` or before, to a call that was sent
    /// at `sent_at`. Skips buckets with a debt, which the shared store does not know yet: the call
    /// that settles the debt reports their level. Replies may come in any order: the last call's
    /// count.
    pub fn learn(&self, charges: &[Charge], answer: &Answer, sent_at: u64, now: u64) {
        self.reservations.forget(charges, now);
        for (charge, outcome) in charge::not_held(charges, answer) {
            self.learn_level(charge, outcome.level, sent_at, now);
        }
    }

    /// Stores the level of one bucket, as [`learn`](Self::learn).
    pub fn learn_level(&self, charge: &Charge, level: i64, sent_at: u64, now: u64) {
        if self.debts.has(charge.bucket) {
            return;
        }
        let put = |level| self.memory.put(charge, level, now);
        self.replies.read(charge, level, sent_at, put);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
#[cfg(test)]
mod world;
