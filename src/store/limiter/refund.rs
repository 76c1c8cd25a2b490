//! Tokens of requests that failed before they reached a server, and whose rules give them back
//! (`refund_on`).
//!
//! Each store gives back what it took, at most what keeps its limit exact: see [`Returned`]. Redis
//! gets it with the next call, before the checks in that call. If there is none within the time of
//! a check, or its reply is lost, it is not sent again: tokens are never given back twice. What was
//! granted locally is given back while it is a debt, and what came from a lease while there is one.

use std::convert::Infallible;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Limiter, Shared, Source, Taken};
use crate::limit::charge::{BucketId, Charge, Charges, Outcome};
use crate::limit::returned::Returned;
use crate::store::memory::MemoryStore;
use crate::store::redis::nodes::Nodes;
use crate::store::rule::StoredRule;

/// When the tokens of a request were taken, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenAt {
    /// Time at which tokens were taken locally, by the clock of this process.
    pub(super) reserved: u64,
    /// Number of debts that were removed before they became a debt.
    pub(super) removals: u64,
    /// Unix time, by the clock of Redis.
    pub(super) redis: u64,
    /// The same for each bucket, if several masters of a cluster took them.
    pub(super) parts: Vec<(BucketId, u64)>,
}

/// A request that failed, as the limiter decided on it.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a> {
    /// The decision, by which it was allowed.
    pub taken: &'a Taken,
    /// Rules of its policy, by index.
    pub rules: &'a Arc<[StoredRule]>,
    /// Time at which it was checked, in microseconds of the monotonic clock.
    pub checked_at: u64,
}

/// What is given back of a request.
#[derive(Debug, Default)]
pub struct Refund {
    /// Indexes of the charges, and the units that their buckets have afterwards.
    pub levels: SmallVec<[(usize, i64); 4]>,
    /// Its buckets in Redis.
    in_redis: Charges,
    /// Ends once Redis has given back its part, or has lost it.
    done: Option<Receiver<Infallible>>,
}

impl Refund {
    /// Completes once Redis has given back its part, or has lost it.
    async fn done(&mut self) {
        if let Some(done) = &mut self.done {
            // Nothing is sent: it ends when the last sender is dropped.
            let _ = done.recv().await;
        }
    }
}

impl TakenAt {
    /// Unix time at which Redis took from a bucket.
    fn in_redis(&self, bucket: BucketId) -> u64 {
        let part = self.parts.iter().find(|(one, _)| *one == bucket);
        part.map_or(self.redis, |(_, taken_at)| *taken_at)
    }
}

impl Limiter {
    /// Gives back what a request took from the buckets of the charges for whose index `is_refunded`
    /// is true, at `now` (microseconds). The limits in force must be those of the charges.
    pub fn refund(
        &self,
        failed: &Failed<'_>,
        is_refunded: impl Fn(usize) -> bool,
        now: u64,
    ) -> Refund {
        let mut refund = Refund::default();
        let Failed { taken, rules, checked_at } = *failed;
        let each = taken.charges.iter().zip(&taken.answer.outcomes).enumerate();
        for (index, (charge, outcome)) in each {
            if !outcome.enough || charge.limit.is_held() || !is_refunded(index) {
                continue;
            }
            let is_leaky = rules.get(charge.rule as usize).is_some_and(|rule| rule.is_leaky);
            let level = match (&self.shared, taken.source_of(index)) {
                (None, _) => {
                    let units = outcome.share.taken(&charge.limit, charge.cost);
                    let returned = Returned::here(&charge.limit, units, checked_at);
                    self.memory.give_back(charge, &returned.of_leaky(is_leaky), now)
                }
                (Some(shared), Source::Local) => {
                    let times = (taken.taken_at.reserved, taken.taken_at.removals);
                    let is_back =
                        shared.fallback.refund(charge, outcome.share, times, is_leaky, now);
                    is_back.then(|| level_of(&self.memory, charge, outcome, now))
                }
                (Some(shared), Source::Lease) => shared.leases.refund(charge, checked_at, now),
                (Some(_), Source::Redis) => {
                    let level = outcome.level_before(charge, true);
                    let is_back = !is_leaky || level >= charge.limit.full();
                    is_back.then(|| {
                        refund.in_redis.push(*charge);
                        level
                    })
                }
                // These take nothing.
                (Some(_), Source::Cache | Source::Policy) => None,
            };
            refund.levels.extend(level.map(|level| (index, level)));
        }
        if let Some(shared) = self.shared.as_ref().filter(|_| !refund.in_redis.is_empty()) {
            let (sender, done) = channel(1);
            shared.give_back(&refund.in_redis, rules, &taken.taken_at, &sender);
            refund.done = Some(done);
        }
        self.forget_refusals_of(&refund, taken, now);
        refund
    }

    /// Completes once `refund` has been made or is lost, which takes about as long as a check.
    pub async fn refunded(&self, refund: &mut Refund, now: impl FnOnce() -> u64) {
        refund.done().await;
        if let Some(shared) = &self.shared {
            shared.denied.forget(refund.in_redis.iter().map(|charge| charge.bucket), now());
        }
    }

    /// Refusals that are known no longer hold, since there are more tokens.
    fn forget_refusals_of(&self, refund: &Refund, taken: &Taken, now: u64) {
        if let Some(shared) = &self.shared {
            let charges = refund.levels.iter().filter_map(|(index, _)| taken.charges.get(*index));
            shared.denied.forget(charges.map(|charge| charge.bucket), now);
        }
    }
}

impl Shared {
    /// Gives back what Redis took for these charges. `done` is dropped once it is given back or
    /// lost.
    fn give_back(
        &self,
        charges: &[Charge],
        rules: &Arc<[StoredRule]>,
        taken_at: &TakenAt,
        done: &Sender<Infallible>,
    ) {
        let cluster = match &self.nodes {
            Nodes::One(node) => {
                let (charges, taken_at, done) = (charges.to_vec(), taken_at.redis, done.clone());
                return node.batcher().give_back(0, charges, rules, taken_at, Some(done));
            }
            Nodes::Cluster(cluster) => cluster,
        };
        for part in cluster.parts(charges, rules) {
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
