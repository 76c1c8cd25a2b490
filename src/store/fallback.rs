//! What this process decides while it cannot ask the shared store, and what it owes for it.
//!
//! - Every answer of the shared store also sets the bucket's level here, and a decision made alone
//!   goes on from there: an outage is no second burst.
//! - Alone, this process grants its part only: the n-th of n gateways ([`Share`]).
//! - What it grants is a debt ([`Debts`]), which the next call for that bucket carries to the
//!   shared store: neither is the return.

use std::sync::Arc;

use parking_lot::Mutex;

use super::debts::Debts;
use super::memory::MemoryStore;
use crate::limit::census::Census;
use crate::limit::charge::{Answer, Charge};
use crate::limit::share::Share;

/// Decides alone, within its part.
#[derive(Debug)]
pub struct Fallback {
    /// Levels as the shared store last gave them, less what was granted since.
    memory: Arc<MemoryStore>,
    debts: Debts,
    census: Mutex<Census>,
    /// How many gateways there are, where the file says so.
    instances: Option<u32>,
}

impl Fallback {
    /// Goes by levels in `memory`, and owes at most `max_debts` buckets. `instances` gateways
    /// share the store; none: as many as are counted.
    pub fn new(memory: Arc<MemoryStore>, max_debts: usize, instances: Option<u32>) -> Self {
        let census = Mutex::new(Census::alone());
        Self { memory, debts: Debts::new(max_debts), census, instances }
    }

    /// The part of each bucket that this process may grant.
    pub fn share(&self) -> Share {
        Share::one_of(self.instances.unwrap_or_else(|| self.census.lock().believed()))
    }

    /// What is owed.
    pub fn debts(&self) -> &Debts {
        &self.debts
    }

    /// Notes that so many gateways were counted at `now`.
    pub fn counted(&self, gateways: u32, now: u64) {
        self.census.lock().counted(gateways, now);
    }

    /// Decides a request at `now` within this process' part, and owes what it takes.
    pub fn take(&self, charges: &[Charge], now: u64) -> Answer {
        let share = self.share();
        let answer = self.memory.take(charges, now, share);
        if answer.allowed {
            for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
                if outcome.enough {
                    self.debts.add(charge, charge.quota.units(charge.cost), share, now);
                }
            }
        }
        answer
    }

    /// Notes the levels that the shared store gave, at `now` or before. Of a bucket that something
    /// is owed to, it does not know all: that level is set by the call that settles the debt.
    pub fn learn(&self, charges: &[Charge], answer: &Answer, now: u64) {
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if !self.debts.owes(charge.bucket) {
                self.memory.put(charge, outcome.level, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
