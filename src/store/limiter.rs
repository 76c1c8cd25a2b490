//! Where a request is decided: in Redis where there is one, by what Redis has said already where
//! that settles it, and in this process where Redis does not answer.
//!
//! It always answers: no caller has an error branch.

use std::sync::Arc;

use super::deny_cache::DenyCache;
use super::memory::MemoryStore;
use super::redis::batch::Batcher;
use super::redis::script::RuleName;
use crate::clock;
use crate::limit::charge::{Answer, Charges};

/// Decides requests over all their buckets at once.
pub struct Limiter {
    memory: Arc<MemoryStore>,
    shared: Option<Shared>,
}

/// Buckets that all gateways share.
struct Shared {
    batcher: Arc<Batcher>,
    denied: DenyCache,
}

/// An answer, and who gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The answer.
    pub answer: Answer,
    /// Who gave it.
    pub source: Source,
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
}

impl Source {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [Self::Redis, Self::Cache, Self::Local];
}

impl Limiter {
    /// A limiter over buckets in this process alone.
    pub fn local(memory: Arc<MemoryStore>) -> Self {
        Self { memory, shared: None }
    }

    /// A limiter over shared buckets, and over those in this process while Redis does not answer.
    pub fn shared(memory: Arc<MemoryStore>, batcher: Arc<Batcher>) -> Self {
        Self { memory, shared: Some(Shared { batcher, denied: DenyCache::default() }) }
    }

    /// Decides a request and takes its tokens: from all its buckets, or from none. `rules` are
    /// those of the policy that the charges come from, by index; `now` is this process' tick.
    pub async fn take(&self, charges: &Charges, rules: &Arc<[RuleName]>, now: u64) -> Taken {
        let Some(shared) = &self.shared else {
            return Taken { answer: self.memory.take(charges, now), source: Source::Local };
        };
        if let Some(answer) = shared.denied.refusal(charges, now) {
            return Taken { answer, source: Source::Cache };
        }
        match shared.batcher.take(charges.clone(), Arc::clone(rules)).await {
            Ok(answered) => {
                if !answered.answer.allowed {
                    shared.denied.remember(charges, &answered.answer, answered.sent_at);
                }
                Taken { answer: answered.answer, source: Source::Redis }
            }
            // The clock again: the check may have waited for the whole of its budget.
            Err(_) => {
                Taken { answer: self.memory.take(charges, clock::now()), source: Source::Local }
            }
        }
    }

    /// What [`take`](Self::take) would answer now, from the levels that there are. Nothing is taken
    /// and nothing kept, in Redis neither. For people who ask: it may take a second.
    pub async fn peek(&self, charges: &Charges, rules: &[RuleName], now: u64) -> Taken {
        if let Some(shared) = &self.shared
            && let Ok(answer) = shared.batcher.peek(charges, rules).await
        {
            return Taken { answer, source: Source::Redis };
        }
        Taken { answer: self.memory.peek(charges, now), source: Source::Local }
    }
}
