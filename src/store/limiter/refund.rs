//! Tokens of requests that failed before they reached a server, and whose rules give them back
//! (`refund_on`).
//!
//! Each store gives back what it took, at most what keeps its limit exact: see [`Returned`]. Redis
//! gets it with the next call, before the checks in that call, and answers what it has given back.
//! If there is none within the time of a check, or its reply is lost, it is not sent again: tokens
//! are never given back twice. What was granted locally is given back while it is a debt, and what
//! came from a lease while there is one.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, channel};

use super::{Limiter, Shared, Source, Taken};
use crate::base::{clock, unix_time};
use crate::limit::charge::{BucketId, Charge, Charges, Outcome};
use crate::limit::returned::Returned;
use crate::store::memory::MemoryStore;
use crate::store::redis::batch::Answered;
use crate::store::redis::batch::giveback::GivenSender;
use crate::store::redis::script::Given;
use crate::store::rule::StoredRule;

/// Longest time that Redis is waited for once the request has ended.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// When the tokens of a request were taken, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenAt {
    /// Time at which tokens were taken locally, by the clock of this process.
    pub(super) reserved: u64,
    /// Number of debts that were removed before they became a debt.
    pub(super) removals: u64,
    /// Unix time at which Redis took them, by its clock.
    pub(super) redis: u64,
    /// The same for each bucket, if several masters of a cluster took them.
    pub(super) parts: Vec<(BucketId, u64)>,
    /// The last time at which Redis took tokens, by the clock of this process; `None` if it took
    /// none.
    pub(super) here: Option<u64>,
}

/// A request that gets tokens back, as the limiter decided on it.
#[derive(Debug, Clone, Copy)]
pub struct Allowed<'a> {
    /// The decision, by which it was allowed.
    pub taken: &'a Taken,
    /// Rules of its policy, by index.
    pub rules: &'a Arc<[StoredRule]>,
    /// Time at which it was checked, in microseconds of the monotonic clock.
    pub checked_at: u64,
}

/// What is given back of a request, by the indexes of its charges.
#[derive(Debug, Default)]
pub struct Refund {
    /// Charges whose buckets have got tokens back, and the units that these have afterwards.
    pub levels: SmallVec<[(usize, i64); 4]>,
    /// Charges whose tokens are lost: it is not known, or no longer, which store has them.
    pub lost: SmallVec<[usize; 4]>,
    /// Charges, and their buckets, of which Redis has not said yet what it gives back.
    in_redis: SmallVec<[(usize, BucketId); 4]>,
    /// What Redis gives back. Ends once it has said so of all of them, or is not asked any more.
    given: Option<Receiver<(BucketId, Given)>>,
}

impl<'a> Allowed<'a> {
    /// The charges that have taken tokens, and their indexes.
    pub(super) fn charges(self) -> impl Iterator<Item = (usize, &'a Charge, &'a Outcome)> {
        let each = self.taken.charges.iter().zip(&self.taken.answer.outcomes).enumerate();
        let each = each.map(|(index, (charge, outcome))| (index, charge, outcome));
        each.filter(|(_, charge, outcome)| outcome.spent(charge) > 0)
    }

    /// The part of these charges that a request gets back: at most their costs, in parts of a token
    /// by the index of the charge.
    fn returned(
        self,
        parts: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = (usize, Charge, &'a Outcome)> {
        let each = self.charges().map(move |(index, charge, outcome)| {
            let cost = parts(index).min(charge.cost);
            (index, Charge { cost, ..*charge }, outcome)
        });
        each.filter(|(_, charge, _)| charge.cost > 0)
    }
}

impl Refund {
    /// Everything is lost.
    pub fn lost(allowed: Allowed<'_>, parts: impl Fn(usize) -> u64) -> Self {
        let lost = allowed.returned(parts).map(|(index, ..)| index);
        Self { lost: lost.collect(), ..Self::default() }
    }

    /// Whether Redis has not said yet what it gives back.
    pub fn is_pending(&self) -> bool {
        self.given.is_some()
    }

    /// Completes once Redis has said of each bucket what it gives back, or is not asked any more.
    async fn received(&mut self) {
        while let Some((bucket, given)) = match &mut self.given {
            Some(given) => given.recv().await,
            None => None,
        } {
            if let Some(place) = self.in_redis.iter().position(|(_, own)| *own == bucket) {
                let (index, _) = self.in_redis.swap_remove(place);
                if given.units > 0 {
                    self.levels.push((index, given.level));
                }
            }
        }
    }
}

impl TakenAt {
    /// Of an answer of Redis.
    pub(super) fn by_redis(answered: &Answered) -> Self {
        let here = Some(answered.decided_here_at);
        Self { redis: answered.decided_at, here, ..Self::default() }
    }

    /// Unix time at which Redis took from a bucket.
    fn in_redis(&self, bucket: BucketId) -> u64 {
        let part = self.parts.iter().find(|(one, _)| *one == bucket);
        part.map_or(self.redis, |(_, taken_at)| *taken_at)
    }
}

impl Limiter {
    /// Gives back what a request took, at `now` (microseconds): `parts` of a token by the index of
    /// the charge, at most its cost. The limits in force must be those of the charges. What Redis
    /// gives back is known after [`refunded`](Self::refunded).
    pub fn refund(&self, allowed: Allowed<'_>, parts: impl Fn(usize) -> u64, now: u64) -> Refund {
        let mut refund = Refund::default();
        let mut in_redis = Charges::new();
        let Allowed { taken, rules, checked_at } = allowed;
        for (index, charge, outcome) in allowed.returned(parts) {
            let charge = &charge;
            if self.adjusted.is_since(charge.bucket, checked_at) {
                continue;
            }
            let is_leaky = rules.get(charge.rule as usize).is_some_and(|rule| rule.is_leaky);
            let mut is_lost = false;
            let level = match (&self.shared, taken.source_of(index)) {
                (None, _) => {
                    let units = outcome.share.taken(&charge.limit, charge.cost);
                    let returned = Returned::here(&charge.limit, units, unix_time::at(checked_at));
                    self.memory.give_back(charge, &returned.of_leaky(is_leaky), now)
                }
                (Some(shared), Source::Local) => {
                    let TakenAt { reserved, removals, .. } = taken.taken_at;
                    let (fallback, share) = (&shared.fallback, outcome.share);
                    let is_back = fallback.refund(charge, share, reserved, removals, is_leaky, now);
                    is_lost = !is_back;
                    is_back.then(|| level_of(&self.memory, charge, outcome, now))
                }
                (Some(shared), Source::Lease) => {
                    let level = shared.leases.refund(charge, checked_at, now);
                    is_lost = level.is_none();
                    level
                }
                (Some(_), Source::Redis) => {
                    // Of a leaky bucket, other requests wait already because of what it took.
                    let before =
                        taken.charges.get(index).map(|all| outcome.level_before(all, true));
                    if !is_leaky || before.is_some_and(|before| before >= charge.limit.full()) {
                        in_redis.push(*charge);
                        refund.in_redis.push((index, charge.bucket));
                    }
                    None
                }
                // These take nothing.
                (Some(_), Source::Cache | Source::Policy | Source::Ban) => None,
            };
            refund.levels.extend(level.map(|level| (index, level)));
            refund.lost.extend(is_lost.then_some(index));
        }
        if let Some(shared) = self.shared.as_ref().filter(|_| !in_redis.is_empty()) {
            // For each bucket.
            let (sender, given) = channel(in_redis.len());
            shared.give_back(&in_redis, rules, &taken.taken_at, &sender);
            refund.given = Some(given);
        }
        self.forget_refusals_of(&refund, taken, now);
        refund
    }

    /// Waits until Redis has said what it gives back, at most as long as for a check: a request
    /// waits for it. What comes later is lost, as far as is known here.
    pub async fn refunded_in_time(&self, refund: &mut Refund, taken: &Taken) {
        let budget = self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.nodes.budget());
        self.refunded_within(refund, taken, budget).await;
    }

    /// The same for up to a second: after a request has ended.
    pub async fn refunded(&self, refund: &mut Refund, taken: &Taken) {
        self.refunded_within(refund, taken, LONGEST_WAIT).await;
    }

    async fn refunded_within(&self, refund: &mut Refund, taken: &Taken, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, refund.received()).await;
        let unknown = std::mem::take(&mut refund.in_redis);
        refund.lost.extend(unknown.into_iter().map(|(index, _)| index));
        self.forget_refusals_of(refund, taken, clock::now());
    }

    /// Refusals that are known no longer hold, since there are more tokens.
    fn forget_refusals_of(&self, refund: &Refund, taken: &Taken, now: u64) {
        if let Some(shared) = &self.shared {
            let back = refund.levels.iter().map(|(index, _)| *index);
            let all = back.chain(refund.lost.iter().copied());
            let charges = all.filter_map(|index| taken.charges.get(index));
            shared.denied.forget(charges.map(|charge| charge.bucket), now);
        }
    }
}

impl Shared {
    /// Gives back what Redis took for these charges. `done` gets what is given back of each, and is
    /// dropped then.
    fn give_back(
        &self,
        charges: &[Charge],
        rules: &Arc<[StoredRule]>,
        taken_at: &TakenAt,
        done: &GivenSender,
    ) {
        for part in self.nodes.parts(charges, rules) {
            let Some(node) = part.node else { continue };
            for charge in part.charges {
                let taken_at = taken_at.in_redis(charge.bucket);
                let (charges, done) = (vec![charge], Some(done.clone()));
                node.batcher().give_back(part.slot, charges, rules, taken_at, done);
            }
        }
    }
}

/// Level of a bucket in this process, for requests of the charge.
fn level_of(memory: &MemoryStore, charge: &Charge, outcome: &Outcome, now: u64) -> i64 {
    memory.reading(charge, outcome.share, now).level
}
