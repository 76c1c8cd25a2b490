//! What buckets hold, for whoever asks without taking from them.

use super::{Limiter, Shared, Source, Taken};
use crate::clock;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Charge, Charges};
use crate::limit::share::Share;
use crate::store::peek_cache::{PeekClient, Peeked};
use crate::store::redis::batch::peek::OPERATOR_TIMEOUT;
use crate::store::redis::script::RuleName;

/// What is in buckets, for whoever asks without taking from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// The level of each, in its limit's units.
    pub levels: Vec<i64>,
    /// Who says so: where Redis cannot be asked, this process.
    pub source: Source,
    /// What part of each bucket would be granted now by whoever decides.
    pub share: Share,
    /// Whether that is this process, for want of Redis.
    pub is_alone: bool,
}

impl Limiter {
    /// The levels of the charges' buckets. For people who ask: it may take a second.
    pub async fn look(&self, charges: &[Charge], rules: &[RuleName]) -> Levels {
        if let Some(shared) = &self.shared
            && let Ok(levels) = shared.node.batcher().peek(charges, rules, OPERATOR_TIMEOUT).await
        {
            return Levels::of_redis(self.levels(charges, &levels));
        }
        self.known(charges, true)
    }

    /// The same for clients, who ask for free: within the time of a check, from Redis only as often
    /// as [`peek_cache`](crate::store::peek_cache) allows, and only while the breaker lets every request ask it.
    pub async fn peek_cached(
        &self,
        asker: PeekClient,
        charges: &[Charge],
        rules: &[RuleName],
    ) -> Levels {
        let Some(shared) = self.shared.as_ref().filter(|_| !charges.is_empty()) else {
            return self.known(charges, true);
        };
        if !shared.node.admits_all() {
            return self.known(charges, true);
        }
        let ends = tokio::time::Instant::now() + shared.node.batcher().budget();
        let slot = shared.peek_cache.slot(asker);
        let Ok(mut seen) = tokio::time::timeout_at(ends, slot.lock()).await else {
            return self.known(charges, false);
        };
        let now = clock::now();
        if let Some(seen) = seen.as_ref().filter(|seen| seen.is_fresh(now)) {
            let unseen = || self.known(charges, !seen.was_answered());
            return seen.levels(charges, now).map_or_else(unseen, Levels::of_redis);
        }
        if !shared.peek_cache.admits(now) {
            return self.known(charges, false);
        }
        let patience = ends.saturating_duration_since(tokio::time::Instant::now());
        let looked = shared.node.batcher().peek(charges, rules, patience).await.ok();
        let levels = looked.map(|levels| self.levels(charges, &levels));
        *seen = Some(Peeked::new(charges, levels.clone(), clock::now()));
        levels.map_or_else(|| self.known(charges, true), Levels::of_redis)
    }

    /// The levels of buckets in Redis; of those that it cannot read, what this process knows.
    fn levels(&self, charges: &[Charge], levels: &[Option<i64>]) -> Vec<i64> {
        let now = clock::now();
        let level = |(charge, level): (&Charge, &Option<i64>)| {
            level.unwrap_or_else(|| self.memory.bucket(charge, now).level)
        };
        charges.iter().zip(levels).map(level).collect()
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
