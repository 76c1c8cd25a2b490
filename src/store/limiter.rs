//! Where a request is decided: in Redis where there is one, by what Redis has said already where
//! that settles it, and in this process where Redis does not answer.
//!
//! It always answers: no caller has an error branch.
//!
//! Reading order: this file (taking), `unreadable` (requests of which Redis cannot read a bucket),
//! `look` (asking what there is).

mod look;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use super::deny_cache::DenyCache;
use super::fallback::Fallback;
use super::memory::MemoryStore;
use super::peek_cache::PeekCache;
use super::redis::batch::Undecided;
use super::redis::batch::adjust::{Moved, NotAdjusted};
use super::redis::batch::settle::{Settlement, Sum};
use super::redis::node::Node;
use super::redis::script::RuleName;
use crate::clock;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{Answer, Charge, Charges, Mode, Outcome};
use crate::limit::share::Share;
use crate::policy::OnFailure;
pub use look::Levels;

/// Decides requests over all their buckets at once.
pub struct Limiter {
    memory: Arc<MemoryStore>,
    shared: Option<Shared>,
}

/// Buckets that all gateways share.
struct Shared {
    node: Node,
    denied: DenyCache,
    fallback: Fallback,
    peek_cache: PeekCache,
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
    /// Who gave it, but for the charges in `local`.
    pub source: Source,
    /// Charges of rules that let pass what cannot be asked for.
    pub waived: Vec<Charge>,
    /// The charges that this process decided on, by index, since Redis cannot read their buckets.
    pub local: Vec<usize>,
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

    /// A limiter over the shared buckets of `node`. While the node is unavailable, it decides in
    /// `memory`: it grants the share of one of `instances` gateways, or of as many as were counted,
    /// and adds what it grants to the node's debts.
    pub fn shared(memory: Arc<MemoryStore>, node: Node, instances: Option<u32>) -> Self {
        let fallback = Fallback::new(Arc::clone(&memory), Arc::clone(node.debts()));
        let (denied, peek_cache) = (DenyCache::default(), PeekCache::default());
        let shared = Shared { node, denied, fallback, peek_cache, instances };
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
        match shared.node.batcher().take(charges.clone(), Arc::clone(rules)).await {
            Ok(answered) => {
                shared.denied.remember(&charges, &answered.answer, answered.sent_at);
                shared.fallback.learn(&charges, &answered.answer, clock::now());
                Taken::all(charges, answered.answer, Source::Redis)
            }
            Err(Undecided::Unreadable(buckets)) => {
                let taken = shared.take_in_parts(&charges, rules, &buckets, now).await;
                taken.unwrap_or_else(|| shared.take_alone(&charges, rules))
            }
            Err(Undecided::NotAsked | Undecided::Ambiguous) => shared.take_alone(&charges, rules),
        }
    }

    /// What [`take`](Self::take) would answer, from the levels that there are. Nothing is taken and
    /// nothing kept, in Redis neither. For people who ask: it may take a second.
    pub async fn peek(&self, charges: &[Charge], rules: &[RuleName], now: u64) -> Taken {
        let Some(shared) = &self.shared else {
            let answer = self.memory.peek(charges, now, Share::WHOLE);
            return Taken::all(charges.to_vec(), answer, Source::Local);
        };
        shared.peek(charges, rules).await
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
        let moved = shared.node.batcher().adjust(charges, rules, adjustment).await?;
        let now = clock::now();
        shared.denied.forget(charges.iter().map(|charge| charge.bucket), now);
        for (charge, (_, after)) in charges.iter().zip(&moved) {
            self.memory.put(charge, *after, now);
        }
        Ok((moved, Source::Redis))
    }

    /// Takes all debts off in Redis, within about `patience`; none without Redis.
    pub async fn settle(&self, patience: Duration) -> Settlement {
        match &self.shared {
            Some(shared) => shared.node.batcher().settle_all(patience).await,
            None => Settlement::default(),
        }
    }

    /// Debts that are still owed.
    pub fn unsettled(&self) -> Sum {
        self.shared.as_ref().map_or_else(Sum::default, |shared| shared.node.batcher().unsettled())
    }

    /// Whether there are buckets that gateways share.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The nodes of Redis; none without `[redis]`. Today there is at most one.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.shared.iter().map(|shared| &shared.node)
    }

    /// Number of buckets with a debt.
    pub fn debts(&self) -> usize {
        self.nodes().map(|node| node.debts().len()).sum()
    }

    /// Forgets what Redis has refused: other rules are in force, and may give tokens back.
    pub fn forget_refusals(&self) {
        if let Some(shared) = &self.shared {
            shared.denied.clear(clock::now());
        }
    }

    /// Microseconds until all nodes of Redis have been probed again; 0 while all breakers are closed,
    /// and without Redis.
    pub fn retry_after_us(&self) -> u64 {
        self.nodes().map(Node::retry_after_us).max().unwrap_or(0)
    }

    /// Whether all nodes of Redis can be called. True without Redis.
    pub fn is_connected(&self) -> bool {
        self.nodes().all(Node::is_connected)
    }

    /// Number of live gateways that share Redis, as far as it was counted; 1 without Redis.
    pub fn gateways(&self) -> u32 {
        self.nodes().map(Node::gateways).max().unwrap_or(1)
    }
}

impl Shared {
    /// What this process grants of each bucket while it decides alone.
    fn share(&self) -> Share {
        Share::one_of(self.instances.unwrap_or_else(|| self.node.gateways()))
    }

    /// Decides without Redis, and takes what it grants.
    fn take_alone(&self, charges: &[Charge], rules: &[RuleName]) -> Taken {
        self.alone(charges, rules, |local, share| {
            // The clock again: the check may have waited for the whole of its budget.
            self.fallback.take(local, rules, clock::now(), share)
        })
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
            let unknown = |charge: &Charge| Outcome { enough: false, ..Outcome::full(charge) };
            let answer = Answer::of(&denied, denied.iter().map(unknown).collect());
            return Taken::all(denied, answer, Source::Policy);
        }
        let mut local = of(OnFailure::Local);
        local.extend(shadows);
        let answer = decide(&local, self.share());
        let waived = of(OnFailure::Allow);
        Taken { waived, ..Taken::all(local, answer, Source::Local) }
    }
}

impl Taken {
    /// An answer of `source` to all charges.
    pub fn all(charges: Charges, answer: Answer, source: Source) -> Self {
        Self { charges, answer, source, waived: Vec::new(), local: Vec::new() }
    }

    /// Who decided on a charge, by its index.
    pub fn source_of(&self, index: usize) -> Source {
        if self.local.contains(&index) { Source::Local } else { self.source }
    }
}
