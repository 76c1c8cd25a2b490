//! Reads levels of buckets without taking tokens: for operators, for clients that read their own
//! limits, and before a credential is checked.

use std::time::Duration;

use super::{Limiter, Shared, Source, Taken};
use crate::base::clock;
use crate::client::identifier::ClientId;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{self, Charge, Charges};
use crate::limit::reading::Reading;
use crate::limit::share::Share;
use crate::store::peek_cache::Peeked;
use crate::store::redis::batch::peek::OPERATOR_TIMEOUT;
use crate::store::rule::StoredRule;

/// Levels of the buckets of some charges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels {
    /// State of each.
    pub readings: Vec<Reading>,
    /// Store that they were read from: this process if Redis is unavailable.
    pub source: Source,
    /// Share of each bucket that would be granted now.
    pub share: Share,
    /// Whether this gateway decides locally now, since Redis is unavailable.
    pub is_local_fallback: bool,
}

impl Limiter {
    /// Returns what [`take`](Self::take) would return. Takes no tokens and writes nothing. May take
    /// up to a second: for operators.
    pub async fn peek(&self, charges: &[Charge], rules: &[StoredRule], now: u64) -> Taken {
        self.peek_within(charges, rules, now, |_| Some(OPERATOR_TIMEOUT)).await
    }

    /// As [`peek`](Self::peek), but takes at most as long as a check: for the request path. Reads
    /// Redis only while the breakers of the buckets' nodes are closed.
    pub async fn peek_in_time(&self, charges: &[Charge], rules: &[StoredRule], now: u64) -> Taken {
        let timeout = |shared: &Shared| {
            let parts = shared.nodes.parts(charges, rules);
            let mut nodes = parts.iter().map(|part| part.node.as_ref());
            let are_closed = nodes.all(|node| node.is_some_and(|node| node.admits_all()));
            are_closed.then(|| shared.nodes.budget())
        };
        self.peek_within(charges, rules, now, timeout).await
    }

    /// Reads Redis within a timeout, or not at all.
    async fn peek_within(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        now: u64,
        timeout: impl Fn(&Shared) -> Option<Duration>,
    ) -> Taken {
        if let Some(taken) = self.refusal_by_ban(charges, rules, now) {
            return taken;
        }
        let Some(shared) = &self.shared else {
            let answer = self.memory.peek(charges, now, Share::WHOLE);
            return Taken::all(charges.to_vec(), answer, Source::Local);
        };
        match timeout(shared) {
            Some(timeout) => shared.peek(charges, rules, timeout).await,
            None => shared.peek_locally(charges, rules),
        }
    }

    /// Levels of the charges' buckets. May take a second: for operators.
    pub async fn peek_levels(&self, charges: &[Charge], rules: &[StoredRule]) -> Levels {
        if let Some(shared) = &self.shared
            && let Ok(levels) = shared.nodes.peek(charges, rules, OPERATOR_TIMEOUT).await
        {
            return Levels::of_redis(self.readings(charges, &levels));
        }
        self.known(charges, true)
    }

    /// Levels of the charges' buckets for a client, without taking tokens. Takes at most as long as
    /// a check. Reads Redis only as often as [`peek_cache`](crate::store::peek_cache) allows, and
    /// only while the breaker is closed. `client` has no unknown key.
    pub async fn peek_cached(
        &self,
        client: ClientId,
        charges: &[Charge],
        rules: &[StoredRule],
    ) -> Levels {
        let Some(shared) = self.shared.as_ref().filter(|_| !charges.is_empty()) else {
            return self.known(charges, true);
        };
        if !shared.nodes.admits_all() {
            return self.known(charges, true);
        }
        let ends = tokio::time::Instant::now() + shared.nodes.budget();
        let slot = shared.peek_cache.slot(client);
        let Ok(mut last) = tokio::time::timeout_at(ends, slot.lock()).await else {
            return self.known(charges, false);
        };
        let now = clock::now();
        if let Some(last) = last.as_ref().filter(|last| last.is_fresh(now)) {
            let unread = || self.known(charges, !last.was_answered());
            return last.readings(charges, now).map_or_else(unread, Levels::of_redis);
        }
        if !shared.peek_cache.admits(now) {
            return self.known(charges, false);
        }
        let timeout = ends.saturating_duration_since(tokio::time::Instant::now());
        let read = shared.nodes.peek(charges, rules, timeout).await.ok();
        let readings = read.map(|levels| self.readings(charges, &levels));
        *last = Some(Peeked::new(charges, readings.clone(), clock::now()));
        readings.map_or_else(|| self.known(charges, true), Levels::of_redis)
    }

    /// What Redis reported; for unreadable buckets, what is in local memory.
    fn readings(&self, charges: &[Charge], found: &[Option<Reading>]) -> Vec<Reading> {
        let now = clock::now();
        let reading = |(charge, found): (&Charge, &Option<Reading>)| {
            let reading = found.unwrap_or_else(|| self.memory.reading(charge, Share::WHOLE, now));
            self.shared.as_ref().map_or(reading, |shared| shared.with_lease(charge, reading, now))
        };
        charges.iter().zip(found).map(reading).collect()
    }

    /// Levels in local memory. `is_local_fallback`: Redis is unavailable.
    fn known(&self, charges: &[Charge], is_local_fallback: bool) -> Levels {
        let now = clock::now();
        let shared = self.shared.as_ref().filter(|_| is_local_fallback);
        let share = shared.map_or(Share::WHOLE, Shared::share);
        let reading = |charge| self.memory.reading(charge, share, now);
        Levels {
            readings: charges.iter().map(reading).collect(),
            source: Source::Local,
            share,
            is_local_fallback: shared.is_some(),
        }
    }
}

impl Levels {
    fn of_redis(readings: Vec<Reading>) -> Self {
        let (source, share) = (Source::Redis, Share::WHOLE);
        Self { readings, source, share, is_local_fallback: false }
    }

    /// Decides requests with these charges at these levels, without effect.
    pub fn decide(&self, charges: Charges) -> Taken {
        let bucket = |reading: &Reading| Bucket { level: reading.level, at: 0 };
        let mut buckets: Vec<Bucket> = self.readings.iter().map(bucket).collect();
        let answer = charge::take(&charges, &mut buckets, self.share);
        let answer = answer.of_readings(&charges, &self.readings);
        Taken::all(charges, answer, self.source)
    }
}
