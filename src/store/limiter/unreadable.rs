//! Requests with a bucket that Redis cannot read, because its key holds another type.
//!
//! Only that bucket is decided locally, by its rule's `on_failure`, as in an outage; Redis decides
//! on the others. All or nothing: tokens are taken locally first, and given back if Redis denies
//! the request. Until then, a concurrent request may find them taken; in no order of events are
//! more tokens granted than the bucket holds. If the deny cache knows that Redis denies the
//! request, no tokens are taken, so that an exhausted client cannot keep them from others.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, Source, Taken, TakenAt};
use crate::base::clock;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, BucketId, Charge, Charges, Outcomes};
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::store::held::Holds;
use crate::store::redis::node::Node;
use crate::store::rule::StoredRule;

impl Shared {
    /// Decides a request with these unreadable buckets, within the remaining time of a check that
    /// began at `started` (microseconds). `None` if Redis did not decide on the other buckets.
    pub(super) async fn take_split(
        &self,
        node: &Node,
        charges: &[Charge],
        rules: &Arc<[StoredRule]>,
        unreadable: &[BucketId],
        started: u64,
    ) -> Option<(Taken, Holds)> {
        let (local_part, redis_part): (Charges, Charges) =
            charges.iter().partition(|charge| unreadable.contains(&charge.bucket));
        if let Some(refusal) = self.denied.refusal(&redis_part, clock::now()) {
            let local_part = self.peek_locally(&local_part, rules).before_taking();
            let refused = refused_by_cache(charges, local_part, &redis_part, &refusal.outcomes);
            return Some((refused, Holds::new()));
        }
        let reserved = clock::now();
        let reserve =
            |local: &[Charge], share| self.fallback.reserve(local, rules, reserved, share);
        let (mut local_part, mut holds) = self.decide_locally(&local_part, rules, reserve);
        if local_part.source == Source::Policy {
            return Some((local_part, holds));
        }
        if redis_part.is_empty() {
            let (now, removals) = (clock::now(), self.fallback.removals());
            self.fallback.record_debts(&local_part.charges, rules, &local_part.answer, now);
            let taken = merged(charges, local_part, &redis_part, &Outcomes::new());
            return Some((taken.locally_at(reserved, removals), holds));
        }
        let spent = Duration::from_micros(clock::now().saturating_sub(started));
        let left = node.batcher().budget().saturating_sub(spent);
        if !local_part.answer.allowed() {
            let refused =
                refused_locally(node, charges, rules, local_part, &redis_part, left).await;
            return Some((refused, holds));
        }
        let call = node.batcher().take(redis_part.clone(), Arc::clone(rules));
        let answered = tokio::time::timeout(left, call).await;
        let now = clock::now();
        let Ok(Ok(answered)) = answered else {
            self.fallback.give_back(&local_part.charges, &local_part.answer, now);
            return None;
        };
        let taken_at = TakenAt::by_redis(&answered);
        let (answer, removals) = (answered.answer, self.fallback.removals());
        self.denied.remember(&redis_part, &answer, answered.sent_at);
        self.fallback.learn(&redis_part, &answer, answered.sent_at, now);
        if answer.allowed() {
            self.fallback.record_debts(&local_part.charges, rules, &local_part.answer, now);
            holds.extend(answered.holds);
        } else {
            holds.clear();
            local_part.answer.outcomes =
                self.fallback.give_back(&local_part.charges, &local_part.answer, now);
        }
        let taken = merged(charges, local_part, &redis_part, &answer.outcomes);
        Some((Taken { taken_at, ..taken }.locally_at(reserved, removals), holds))
    }

    /// Decides without Redis, and takes nothing.
    pub(super) fn peek_locally(&self, charges: &[Charge], rules: &[StoredRule]) -> Taken {
        let peek = |local: &[Charge], share| {
            (self.fallback.peek(local, clock::now(), share), Holds::new())
        };
        self.decide_locally(charges, rules, peek).0
    }

    /// Returns what a request would be answered, without taking tokens. Redis has `timeout` to say
    /// its part.
    pub(super) async fn peek(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        timeout: Duration,
    ) -> Taken {
        let Ok(levels) = self.nodes.peek(charges, rules, timeout).await else {
            return self.peek_locally(charges, rules);
        };
        let (mut local_part, mut redis_part, mut readings) =
            (Charges::new(), Charges::new(), Vec::new());
        for (charge, level) in charges.iter().zip(levels) {
            match level {
                Some(reading) => {
                    redis_part.push(*charge);
                    readings.push(self.with_lease(charge, reading, clock::now()));
                }
                None => local_part.push(*charge),
            }
        }
        let mut buckets: Vec<Bucket> = readings.iter().map(bucket).collect();
        let before = charge::outcomes(&redis_part, &buckets, Share::WHOLE);
        let before = Answer::of(&redis_part, before).read_as(&readings).outcomes;
        let answer = charge::take(&redis_part, &mut buckets, Share::WHOLE);
        let answer = answer.of_readings(&redis_part, &readings);
        if local_part.is_empty() {
            return Taken::all(redis_part, answer, Source::Redis);
        }
        let local_part = self.peek_locally(&local_part, rules);
        if local_part.source == Source::Policy {
            local_part
        } else if local_part.answer.allowed() && answer.allowed() {
            merged(charges, local_part, &redis_part, &answer.outcomes)
        } else {
            merged(charges, local_part.before_taking(), &redis_part, &before)
        }
    }
}

impl Taken {
    /// Same decision, with the levels before it.
    pub(super) fn before_taking(mut self) -> Self {
        let allowed = self.answer.allowed();
        for (charge, outcome) in self.charges.iter().zip(&mut self.answer.outcomes) {
            outcome.level = outcome.level_before(charge, allowed);
        }
        self
    }
}

/// A request that the deny cache knows Redis to deny, with the levels of its local part before it.
fn refused_by_cache(
    charges: &[Charge],
    local_part: Taken,
    redis_part: &[Charge],
    known: &Outcomes,
) -> Taken {
    if local_part.source == Source::Policy {
        return local_part;
    }
    Taken { source: Source::Cache, ..merged(charges, local_part, redis_part, known) }
}

/// A request that its local part denies, with the levels that Redis has for the others. If Redis
/// does not answer in time, only the rule that denied is known.
async fn refused_locally(
    node: &Node,
    charges: &[Charge],
    rules: &[StoredRule],
    local_part: Taken,
    redis_part: &[Charge],
    timeout: Duration,
) -> Taken {
    let levels = node.batcher().peek(redis_part, rules, timeout).await.ok();
    let known: Option<Vec<Reading>> = levels.and_then(|levels| levels.into_iter().collect());
    let Some(known) = known else { return local_part };
    let buckets: Vec<Bucket> = known.iter().map(bucket).collect();
    let outcomes = charge::outcomes(redis_part, &buckets, Share::WHOLE);
    let answer = Answer::of(redis_part, outcomes).read_as(&known);
    merged(charges, local_part, redis_part, &answer.outcomes)
}

/// A bucket for a decision without effect, whose time does not matter.
const fn bucket(reading: &Reading) -> Bucket {
    Bucket { level: reading.level, at: 0 }
}

/// Merges the decision on a request whose charges in `local_part` were decided locally and those in
/// `redis_part` by Redis, in the order of its charges.
pub(super) fn merged(
    charges: &[Charge],
    local_part: Taken,
    redis_part: &[Charge],
    outcomes: &Outcomes,
) -> Taken {
    let (mut all, mut found, mut local) = (Charges::new(), Outcomes::new(), Vec::new());
    for charge in charges {
        let find = |part: &[Charge], outcomes: &Outcomes| {
            let at = part.iter().position(|other| other.bucket == charge.bucket)?;
            outcomes.get(at).copied()
        };
        let own = find(&local_part.charges, &local_part.answer.outcomes);
        if own.is_some() {
            local.push(all.len());
        }
        if let Some(outcome) = own.or_else(|| find(redis_part, outcomes)) {
            all.push(*charge);
            found.push(outcome);
        }
    }
    let answer = Answer::of(&all, found);
    Taken { waived: local_part.waived, local, ..Taken::all(all, answer, Source::Redis) }
}
