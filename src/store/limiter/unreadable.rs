//! Requests with a bucket that Redis cannot read, because its key holds another type.
//!
//! Only that bucket is decided locally, by its rule's `on_failure`, as in an outage; Redis decides on
//! the others. All or nothing: tokens are taken locally first, and given back if Redis denies the
//! request. Until then, a concurrent request may find them taken; in no order of events are more
//! tokens granted than the bucket holds. If the deny cache knows that Redis denies the request, no tokens are taken, so
//! that an exhausted client cannot keep them from others.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, Source, Taken};
use crate::clock;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, BucketId, Charge, Charges, Outcomes};
use crate::limit::share::Share;
use crate::store::redis::batch::peek::OPERATOR_TIMEOUT;
use crate::store::redis::script::StoredRule;

impl Shared {
    /// Decides a request with these unreadable buckets, within the remaining time of a check that began
    /// at `started` (microseconds). `None` if Redis did not decide on the other buckets.
    pub(super) async fn take_split(
        &self,
        charges: &[Charge],
        rules: &Arc<[StoredRule]>,
        unreadable: &[BucketId],
        started: u64,
    ) -> Option<Taken> {
        let (here, there): (Charges, Charges) =
            charges.iter().partition(|charge| unreadable.contains(&charge.bucket));
        if let Some(refusal) = self.denied.refusal(&there, clock::now()) {
            let peek = |local: &[Charge], share| self.fallback.peek(local, clock::now(), share);
            let here = self.decide_locally(&here, rules, peek).before_taking();
            if here.source == Source::Policy {
                return Some(here);
            }
            let refused = merged(charges, here, &there, &refusal.outcomes);
            return Some(Taken { source: Source::Cache, ..refused });
        }
        let reserve = |local: &[Charge], share| self.fallback.reserve(local, clock::now(), share);
        let mut here = self.decide_locally(&here, rules, reserve);
        if here.source == Source::Policy {
            return Some(here);
        }
        if there.is_empty() {
            self.fallback.record_debts(&here.charges, rules, &here.answer, clock::now());
            return Some(merged(charges, here, &there, &Outcomes::new()));
        }
        let spent = Duration::from_micros(clock::now().saturating_sub(started));
        let left = self.node.batcher().budget().saturating_sub(spent);
        if !here.answer.allowed() {
            let levels = self.node.batcher().peek(&there, rules, left).await.ok();
            // If Redis does not answer, only the rule that denied is known.
            let known: Option<Vec<Bucket>> = levels
                .and_then(|levels| levels.into_iter().map(|level| level.map(bucket)).collect());
            return Some(match known {
                Some(known) => {
                    let outcomes = charge::outcomes(&there, &known, Share::WHOLE);
                    merged(charges, here, &there, &outcomes)
                }
                None => here,
            });
        }
        let asked = self.node.batcher().take(there.clone(), Arc::clone(rules));
        let answered = tokio::time::timeout(left, asked).await;
        let now = clock::now();
        let Ok(Ok(answered)) = answered else {
            self.fallback.give_back(&here.charges, &here.answer, now);
            return None;
        };
        let answer = answered.answer;
        self.denied.remember(&there, &answer, answered.sent_at);
        self.fallback.learn(&there, &answer, now);
        if answer.allowed() {
            self.fallback.record_debts(&here.charges, rules, &here.answer, now);
        } else {
            here.answer.outcomes = self.fallback.give_back(&here.charges, &here.answer, now);
        }
        Some(merged(charges, here, &there, &answer.outcomes))
    }

    /// Returns what a request would be answered, without taking tokens.
    pub(super) async fn peek(&self, charges: &[Charge], rules: &[StoredRule]) -> Taken {
        let peek = |local: &[Charge], share| self.fallback.peek(local, clock::now(), share);
        let Ok(levels) = self.node.batcher().peek(charges, rules, OPERATOR_TIMEOUT).await else {
            return self.decide_locally(charges, rules, peek);
        };
        let (mut here, mut there, mut buckets) = (Charges::new(), Charges::new(), Vec::new());
        for (charge, level) in charges.iter().zip(levels) {
            match level {
                Some(level) => {
                    there.push(*charge);
                    buckets.push(bucket(level));
                }
                None => here.push(*charge),
            }
        }
        let before = charge::outcomes(&there, &buckets, Share::WHOLE);
        let answer = charge::take(&there, &mut buckets, Share::WHOLE);
        if here.is_empty() {
            return Taken::all(there, answer, Source::Redis);
        }
        let here = self.decide_locally(&here, rules, peek);
        if here.source == Source::Policy {
            here
        } else if here.answer.allowed() && answer.allowed() {
            merged(charges, here, &there, &answer.outcomes)
        } else {
            merged(charges, here.before_taking(), &there, &before)
        }
    }
}

impl Taken {
    /// Same decision, with the levels before it.
    fn before_taking(mut self) -> Self {
        let allowed = self.answer.allowed();
        for (charge, outcome) in self.charges.iter().zip(&mut self.answer.outcomes) {
            outcome.level = outcome.level_before(charge, allowed);
        }
        self
    }
}

/// A bucket for a decision without effect, whose time does not matter.
const fn bucket(level: i64) -> Bucket {
    Bucket { level, at: 0 }
}

/// Merges the decision on a request whose charges in `here` were decided locally and those in `there` by
/// Redis, in the order of its charges.
fn merged(charges: &[Charge], here: Taken, there: &[Charge], outcomes: &Outcomes) -> Taken {
    let (mut all, mut found, mut local) = (Charges::new(), Outcomes::new(), Vec::new());
    for charge in charges {
        let find = |part: &[Charge], outcomes: &Outcomes| {
            let at = part.iter().position(|other| other.bucket == charge.bucket)?;
            outcomes.get(at).copied()
        };
        let own = find(&here.charges, &here.answer.outcomes);
        if own.is_some() {
            local.push(all.len());
        }
        if let Some(outcome) = own.or_else(|| find(there, outcomes)) {
            all.push(*charge);
            found.push(outcome);
        }
    }
    let answer = Answer::of(&all, found);
    Taken { waived: here.waived, local, ..Taken::all(all, answer, Source::Redis) }
}
