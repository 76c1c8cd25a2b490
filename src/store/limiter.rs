//! Where a request is decided: in Redis where there is one, by what Redis has said already where
//! that settles it, and in this process where Redis does not answer.
//!
//! It always answers: no caller has an error branch.

use std::sync::Arc;

use super::debts::Debts;
use super::deny_cache::DenyCache;
use super::fallback::Fallback;
use super::glances::{Asker, Glances, Seen};
use super::memory::MemoryStore;
use super::redis::batch::Batcher;
use super::redis::batch::adjust::{Moved, NotAdjusted};
use super::redis::batch::peek::PATIENCE;
use super::redis::link::Link;
use super::redis::script::RuleName;
use crate::clock;
use crate::limit::adjust::Adjustment;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Answer, Charge, Charges, Mode, Outcome};
use crate::limit::share::Share;
use crate::policy::OnFailure;

/// Decides requests over all their buckets at once.
pub struct Limiter {
    memory: Arc<MemoryStore>,
    shared: Option<Shared>,
}

/// Buckets that all gateways share.
struct Shared {
    batcher: Arc<Batcher>,
    denied: DenyCache,
    fallback: Fallback,
    glances: Glances,
    /// How many gateways there are, where the file says so.
    instances: Option<u32>,
}

/// An answer, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What was decided on: the request's charges, without those that were waived.
    pub charges: Charges,
    /// The answer to those.
    pub answer: Answer,
    /// Who gave it.
    pub source: Source,
    /// Charges of rules that let pass what cannot be asked for.
    pub waived: Vec<Charge>,
}

/// What is in buckets, for whoever asks without taking from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The level of each, in its quota's units.
    pub levels: Vec<i64>,
    /// Who says so: where Redis cannot be asked, this process.
    pub source: Source,
    /// What part of each bucket would be granted now by whoever decides.
    pub share: Share,
    /// Whether that is this process, for want of Redis.
    pub is_alone: bool,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Redis.
    Redis,
    /// What Redis said before.
    Cache,
    /// Buckets in this process.
    Local,
    /// The file, by `on_failure = "deny"`: Redis cannot be asked, and nobody else may decide.
    Policy,
}

impl Source {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::Redis, Self::Cache, Self::Local, Self::Policy];
}

impl Limiter {
    /// A limiter over buckets in this process alone.
    pub fn local(memory: Arc<MemoryStore>) -> Self {
        Self { memory, shared: None }
    }

    /// A limiter over shared buckets, and over those in this process while Redis does not answer:
    /// then it grants the part of one of `instances` gateways, or of as many as were counted, and
    /// owes it in `debts`.
    pub fn shared(
        memory: Arc<MemoryStore>,
        batcher: Arc<Batcher>,
        debts: Arc<Debts>,
        instances: Option<u32>,
    ) -> Self {
        let fallback = Fallback::new(Arc::clone(&memory), debts);
        let (denied, glances) = (DenyCache::default(), Glances::default());
        let shared = Shared { batcher, denied, fallback, glances, instances };
        Self { memory, shared: Some(shared) }
    }

    /// Decides a request and takes its tokens: from all its buckets, or from none. `rules` are
    /// those of the policy that the charges come from, by index; `now` is this process' tick.
    pub async fn take(&self, charges: Charges, rules: &Arc<[RuleName]>, now: u64) -> Taken {
        let Some(shared) = &self.shared else {
            let answer = self.memory.take(&charges, now, Share::WHOLE);
            return Taken::all(charges, answer, Source::Local);
        };
        if let Some(answer) = shared.denied.refusal(&charges, now) {
            return Taken::all(charges, answer, Source::Cache);
        }
        match shared.batcher.take(charges.clone(), Arc::clone(rules)).await {
            Ok(answered) => {
                if !answered.answer.allowed {
                    shared.denied.remember(&charges, &answered.answer, answered.sent_at);
                }
                shared.fallback.learn(&charges, &answered.answer, clock::now());
                Taken::all(charges, answered.answer, Source::Redis)
            }
            Err(_) => shared.alone(&charges, rules, |local, share| {
                // The clock again: the check may have waited for the whole of its budget.
                shared.fallback.take(local, clock::now(), share)
            }),
        }
    }

    /// What [`take`](Self::take) would answer, from the levels that there are. Nothing is taken and
    /// nothing kept, in Redis neither. For people who ask: it may take a second.
    pub async fn peek(&self, charges: &[Charge], rules: &[RuleName], now: u64) -> Taken {
        let Some(shared) = &self.shared else {
            let answer = self.memory.peek(charges, now, Share::WHOLE);
            return Taken::all(charges.to_vec(), answer, Source::Local);
        };
        match shared.batcher.peek(charges, rules).await {
            Ok(answer) => Taken::all(charges.to_vec(), answer, Source::Redis),
            Err(_) => shared
                .alone(charges, rules, |local, share| self.memory.peek(local, clock::now(), share)),
        }
    }

    /// The levels of the charges' buckets. For people who ask: it may take a second.
    pub async fn look(&self, charges: &[Charge], rules: &[RuleName]) -> Levels {
        if let Some(shared) = &self.shared
            && let Ok(buckets) = shared.batcher.look(charges, rules, PATIENCE).await
        {
            return Levels::of_redis(buckets.iter().map(|bucket| bucket.level).collect());
        }
        self.known(charges, true)
    }

    /// The same for clients, who ask for free: within the time of a check, from Redis only as often
    /// as [`glances`](super::glances) allows, and only while the breaker lets every request ask it.
    pub async fn glance(&self, asker: Asker, charges: &[Charge], rules: &[RuleName]) -> Levels {
        let Some(shared) = self.shared.as_ref().filter(|_| !charges.is_empty()) else {
            return self.known(charges, true);
        };
        if !shared.batcher.link().admits_all() {
            return self.known(charges, true);
        }
        let ends = tokio::time::Instant::now() + shared.batcher.budget();
        let slot = shared.glances.slot(asker);
        let Ok(mut seen) = tokio::time::timeout_at(ends, slot.lock()).await else {
            return self.known(charges, false);
        };
        let now = clock::now();
        if let Some(seen) = seen.as_ref().filter(|seen| seen.is_fresh(now)) {
            let unseen = || self.known(charges, !seen.was_answered());
            return seen.levels(charges, now).map_or_else(unseen, Levels::of_redis);
        }
        if !shared.glances.admits(now) {
            return self.known(charges, false);
        }
        let patience = ends.saturating_duration_since(tokio::time::Instant::now());
        let looked = shared.batcher.look(charges, rules, patience).await.ok();
        let levels = looked.map(|buckets| buckets.iter().map(|bucket| bucket.level).collect());
        *seen = Some(Seen::new(charges, levels.clone(), clock::now()));
        levels.map_or_else(|| self.known(charges, true), Levels::of_redis)
    }

    /// What this process knows of the charges' buckets, and whether it decides alone now.
    fn known(&self, charges: &[Charge], is_alone: bool) -> Levels {
        let now = clock::now();
        let level = |charge| self.memory.bucket(charge, now).level;
        let shared = self.shared.as_ref().filter(|_| is_alone);
        Levels {
            levels: charges.iter().map(level).collect(),
            source: Source::Local,
            share: shared.map_or(Share::WHOLE, Shared::share),
            is_alone: shared.is_some(),
        }
    }

    /// Changes buckets by hand, all of them or none, where they live: never here while they live in
    /// Redis. Requests go by it at once in this process, within a second in others.
    ///
    /// # Errors
    /// Why they were not changed.
    pub async fn adjust(
        &self,
        charges: &[Charge],
        rules: &[RuleName],
        adjustment: Adjustment,
    ) -> Result<(Vec<Moved>, Source), NotAdjusted> {
        let Some(shared) = &self.shared else {
            let moved = self.memory.adjust(charges, adjustment, clock::now());
            return Ok((moved, Source::Local));
        };
        let moved = shared.batcher.adjust(charges, rules, adjustment).await?;
        let now = clock::now();
        shared.denied.forget(charges.iter().map(|charge| charge.bucket), now);
        for (charge, (_, after)) in charges.iter().zip(&moved) {
            self.memory.put(charge, *after, now);
        }
        Ok((moved, Source::Redis))
    }

    /// Whether there are buckets that gateways share.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The link to Redis, where there is one.
    pub fn link(&self) -> Option<&Link> {
        self.shared.as_ref().map(|shared| shared.batcher.link())
    }

    /// Buckets that tokens are owed to.
    pub fn debts(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.fallback.debts())
    }

    /// Forgets what Redis has refused: other rules are in force, and may give tokens back.
    pub fn forget_refusals(&self) {
        if let Some(shared) = &self.shared {
            shared.denied.clear();
        }
    }

    /// Ticks until Redis is tried again; 0 where it is asked, or where there is none.
    pub fn tried_again_in(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.batcher.link().tried_again_in())
    }

    /// Whether shared buckets can be asked now. Without Redis there are none to ask.
    pub fn is_connected(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.batcher.link().is_up())
    }
}

impl Shared {
    /// What this process grants of each bucket while it decides alone.
    fn share(&self) -> Share {
        Share::one_of(self.instances.unwrap_or_else(|| self.batcher.link().gateways()))
    }

    /// Decides without Redis, as each rule wants it; by `decide` what is left to this process.
    fn alone(
        &self,
        charges: &[Charge],
        rules: &[RuleName],
        decide: impl FnOnce(&[Charge], Share) -> Answer,
    ) -> Taken {
        let on_failure = |charge: &Charge| {
            let rule = rules.get(charge.rule as usize);
            rule.map_or(OnFailure::Local, |rule| rule.on_failure)
        };
        let of = |wanted| -> Charges {
            charges.iter().filter(|charge| on_failure(charge) == wanted).copied().collect()
        };
        // A shadow rule refuses nobody; it goes on counting here.
        let (denied, shadows): (Charges, Charges) =
            of(OnFailure::Deny).into_iter().partition(|charge| charge.mode == Mode::Enforce);
        if !denied.is_empty() {
            let unknown = |charge: &Charge| Outcome { level: charge.quota.full(), enough: false };
            let outcomes = denied.iter().map(unknown).collect();
            let answer = Answer { allowed: false, outcomes, share: Share::WHOLE };
            return Taken::all(denied, answer, Source::Policy);
        }
        let mut local = of(OnFailure::Local);
        local.extend(shadows);
        let answer = decide(&local, self.share());
        let waived = of(OnFailure::Allow);
        Taken { charges: local, answer, source: Source::Local, waived }
    }
}

impl Levels {
    fn of_redis(levels: Vec<i64>) -> Self {
        Self { levels, source: Source::Redis, share: Share::WHOLE, is_alone: false }
    }

    /// What would be decided by them on charges that they are the levels of.
    pub fn decide(&self, charges: Charges) -> Taken {
        let bucket = |level: &i64| Bucket { level: *level, at: 0 };
        let mut buckets: Vec<Bucket> = self.levels.iter().map(bucket).collect();
        let answer = charge::take(&charges, &mut buckets, self.share);
        Taken::all(charges, answer, self.source)
    }
}

impl Taken {
    /// An answer to all charges.
    fn all(charges: Charges, answer: Answer, source: Source) -> Self {
        Self { charges, answer, source, waived: Vec::new() }
    }
}
