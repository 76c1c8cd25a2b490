//! Requests in a Redis Cluster, whose buckets may be in several slots.
//!
//! All slots are asked at once. If one refuses, what the others have taken is given back with their
//! next calls. Until then, a concurrent request may find these tokens taken; in no order of events
//! are more tokens granted than the limits allow. Buckets of a master that does not decide are
//! decided locally, as in an outage; the other masters decide on theirs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::unreadable::merged;
use super::{Shared, Source, Taken, TakenAt};
use crate::base::clock;
use crate::limit::charge::{Answer, Charge, Charges, Outcome, Outcomes};
use crate::store::held::{Holds, Reservation};
use crate::store::redis::batch::{Answered, Undecided};
use crate::store::redis::nodes::{Nodes, Part, Parts};
use crate::store::rule::StoredRule;

/// What has become of the parts of a request.
#[derive(Default)]
struct Decided {
    /// Parts that a master has decided on.
    answered: Vec<(Part, Answered)>,
    /// Charges that are decided locally.
    local: Charges,
    /// Parts to ask for again: without buckets that Redis cannot read, or each for one bucket,
    /// since its slot is being moved.
    again: Parts,
}

impl Shared {
    /// Decides a request and takes its tokens, within the time of a check that began at `started`
    /// (microseconds).
    pub(super) async fn take_parts(
        &self,
        charges: Charges,
        rules: &Arc<[StoredRule]>,
        started: u64,
        reserved: Option<Reservation>,
    ) -> (Taken, Holds) {
        let mut decided = Decided::default();
        decided.ask(&self.nodes, self.nodes.parts(&charges, rules), rules).await;
        if decided.is_allowed() && !decided.again.is_empty() {
            let spent = Duration::from_micros(clock::now().saturating_sub(started));
            let again = std::mem::take(&mut decided.again);
            if spent < self.nodes.budget() {
                decided.ask(&self.nodes, again, rules).await;
            } else {
                decided.local.extend(again.into_iter().flat_map(|part| part.charges));
            }
            // Not asked for a third time.
            let left = std::mem::take(&mut decided.again);
            decided.local.extend(left.into_iter().flat_map(|part| part.charges));
        }
        // Before a local decision, which would count it beside what the request holds then.
        drop(reserved);
        if !decided.is_allowed() {
            return (self.refuse(&charges, rules, &decided, None), Holds::new());
        }
        if decided.local.is_empty() {
            return self.allow(&charges, rules, decided, None);
        }
        let now = clock::now();
        let reserve = |local: &[Charge], share| self.fallback.reserve(local, rules, now, share);
        let (local, holds) = self.decide_locally(&decided.local, rules, reserve);
        let local = local.locally_at(now, 0);
        if local.source == Source::Policy {
            decided.give_back(rules);
            return (local, holds);
        }
        if local.answer.allowed() {
            return self.allow(&charges, rules, decided, Some((local, holds)));
        }
        (self.refuse(&charges, rules, &decided, Some(local)), Holds::new())
    }

    /// The answer to a request that all parts allow.
    fn allow(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        decided: Decided,
        local: Option<(Taken, Holds)>,
    ) -> (Taken, Holds) {
        let (mut in_redis, mut outcomes) = (Charges::new(), Outcomes::new());
        let (local, mut holds) = local.unwrap_or_else(nothing_local);
        let (reserved, removals) = (local.taken_at.reserved, self.fallback.removals());
        self.fallback.record_debts(&local.charges, rules, &local.answer, clock::now());
        let mut taken_at = TakenAt { reserved, removals, ..TakenAt::default() };
        let has_parts = decided.answered.len() > 1;
        for (part, answered) in decided.answered {
            self.denied.remember(&part.charges, &answered.answer, answered.sent_at);
            let (charges, answer) = (&part.charges, &answered.answer);
            self.fallback.learn(charges, answer, answered.sent_at, clock::now());
            taken_at.redis = answered.decided_at;
            taken_at.here = taken_at.here.max(Some(answered.decided_here_at));
            if has_parts {
                let each = charges.iter().map(|charge| (charge.bucket, answered.decided_at));
                taken_at.parts.extend(each);
            }
            in_redis.extend(part.charges);
            outcomes.extend(answered.answer.outcomes);
            holds.extend(answered.holds);
        }
        let taken =
            if in_redis.is_empty() { local } else { merged(charges, local, &in_redis, &outcomes) };
        (Taken { taken_at, ..taken }, holds)
    }

    /// The answer to a request that a part refuses; what the others have taken is given back.
    /// `local` is what was decided locally, if anything was.
    fn refuse(
        &self,
        charges: &[Charge],
        rules: &Arc<[StoredRule]>,
        decided: &Decided,
        local: Option<Taken>,
    ) -> Taken {
        decided.give_back(rules);
        let (mut in_redis, mut outcomes) = (Charges::new(), Outcomes::new());
        let mut sent_at = u64::MAX;
        for (part, answered) in &decided.answered {
            let allowed = answered.answer.allowed();
            for (charge, outcome) in part.charges.iter().zip(&answered.answer.outcomes) {
                in_redis.push(*charge);
                outcomes.push(Outcome { level: outcome.level_before(charge, allowed), ..*outcome });
            }
            sent_at = sent_at.min(answered.sent_at);
        }
        let local = local.unwrap_or_else(|| self.peek_locally(&decided.local, rules));
        if in_redis.is_empty() || local.source == Source::Policy {
            return local;
        }
        let taken = merged(charges, local.before_taking(), &in_redis, &outcomes);
        let answer = Answer::of(&in_redis, outcomes);
        self.denied.remember(&in_redis, &answer, sent_at);
        self.fallback.learn(&in_redis, &answer, sent_at, clock::now());
        taken
    }
}

impl Decided {
    /// Asks the masters of all parts at once.
    async fn ask(&mut self, nodes: &Nodes, parts: Parts, rules: &Arc<[StoredRule]>) {
        let asked = parts.iter().map(|part| async move {
            let node = part.node.as_ref().ok_or(Undecided::NotTaken)?;
            node.batcher().take_in(part.slot, part.charges.clone(), Arc::clone(rules)).await
        });
        let answers = join_all(asked).await;
        for (part, answer) in parts.into_iter().zip(answers) {
            match answer {
                Ok(answered) => self.answered.push((part, answered)),
                Err(Undecided::Unreadable(buckets)) => {
                    let (unreadable, readable): (Charges, Charges) =
                        part.charges.iter().partition(|charge| buckets.contains(&charge.bucket));
                    self.local.extend(unreadable);
                    if !readable.is_empty() {
                        self.again.push(Part { charges: readable, ..part });
                    }
                }
                Err(Undecided::NotTaken) if nodes.is_migrating(part.slot) => {
                    self.again.extend(nodes.by_bucket(&part));
                }
                Err(Undecided::NotTaken | Undecided::Ambiguous) => {
                    self.local.extend(part.charges);
                }
            }
        }
    }

    /// Gives back what the parts of a refused request have taken.
    fn give_back(&self, rules: &Arc<[StoredRule]>) {
        for (part, answered) in &self.answered {
            let Some(node) = part.node.as_ref().filter(|_| answered.answer.allowed()) else {
                continue;
            };
            // What requests hold is free again once it is dropped.
            let has_taken = |(charge, outcome): &(&Charge, &Outcome)| outcome.spent(charge) > 0;
            let each = part.charges.iter().zip(&answered.answer.outcomes);
            let taken: Charges = each.filter(has_taken).map(|(charge, _)| *charge).collect();
            if !taken.is_empty() {
                node.batcher().give_back(part.slot, taken, rules, answered.decided_at, None);
            }
        }
    }

    /// Whether no master has refused the request.
    fn is_allowed(&self) -> bool {
        self.answered.iter().all(|(_, answered)| answered.answer.allowed())
    }
}

/// A local decision on no charges.
fn nothing_local() -> (Taken, Holds) {
    let answer = Answer::of(&[], Outcomes::new());
    (Taken::all(Charges::new(), answer, Source::Local), Holds::new())
}
