//! Peek cache: bounds how often clients can read their limits from Redis. Such requests take
//! no tokens, so no rate limit bounds their load on Redis.
//!
//! - One client causes at most one read of Redis per [`MAX_RESULT_AGE_US`]. In between, it gets the
//!   levels of that read, refilled to the current time; for other buckets, the levels that this
//!   process knows.
//! - Concurrent requests of one client wait for the same read, at most as long as a check may take.
//! - All clients together cause at most [`PEEKS_PER_SECOND`] reads per second. Further requests
//!   get the levels that this process knows.

use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use crate::base::duration::MICROS_PER_SECOND;
use crate::base::unix_time;
use crate::client::identifier::ClientId;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::Charge;
use crate::limit::reading::Reading;

/// Lifetime of a result, in microseconds.
pub(super) const MAX_RESULT_AGE_US: u64 = MICROS_PER_SECOND / 5;

/// Maximum rate of reads of Redis, per second, and their burst.
pub(super) const PEEKS_PER_SECOND: u64 = 500;

/// Number of slots. Clients whose keys hash to the same slot replace the result of each other, and
/// read Redis more often.
const SLOTS: usize = 1024;

/// Recent reads of clients' buckets.
pub(super) struct PeekCache {
    /// Allocated at the first use: most gateways never need it.
    slots: OnceLock<Box<[Turn<Option<Peeked>>]>>,
    hasher: foldhash::fast::RandomState,
    allowed: Mutex<Option<Bucket>>,
}

/// Result of one read of a client's buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peeked {
    charges: Vec<Charge>,
    /// `None` if Redis was unavailable.
    readings: Option<Vec<Reading>>,
    /// Time of the read, in microseconds.
    at: u64,
}

impl Default for PeekCache {
    fn default() -> Self {
        let hasher = foldhash::fast::RandomState::default();
        Self { slots: OnceLock::new(), hasher, allowed: Mutex::new(None) }
    }
}

impl PeekCache {
    /// Slot of a client's last result. Clients can share a slot; a result applies only to the
    /// charges that it was read for. What a client can choose freely (unknown API keys, hosts,
    /// headers) must not be part of `client`.
    pub(super) fn slot(&self, client: ClientId) -> &Turn<Option<Peeked>> {
        use std::hash::BuildHasher as _;

        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Turn::default()).collect());
        let hash = self.hasher.hash_one(client);
        &slots[usize::try_from(hash % SLOTS as u64).unwrap_or_default()]
    }

    /// Whether another read of Redis is within the rate at `now`; if so, it is counted.
    pub(super) fn admits(&self, now: u64) -> bool {
        let Ok(limit) = Limit::token_bucket(PEEKS_PER_SECOND, MICROS_PER_SECOND, PEEKS_PER_SECOND)
        else {
            return false;
        };
        let now = unix_time::at(now);
        let mut allowed = self.allowed.lock();
        let bucket = allowed.unwrap_or(Bucket::full(&limit, now)).refilled(&limit, now);
        let admits = bucket.holds(&limit, 1);
        *allowed = Some(if admits { bucket.less(limit.units(1)) } else { bucket });
        admits
    }
}

impl Peeked {
    pub(super) fn new(charges: &[Charge], readings: Option<Vec<Reading>>, at: u64) -> Self {
        Self { charges: charges.to_vec(), readings, at }
    }

    /// Whether the result is younger than [`MAX_RESULT_AGE_US`].
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.at) < MAX_RESULT_AGE_US
    }

    /// Whether Redis was available.
    pub(super) fn was_answered(&self) -> bool {
        self.readings.is_some()
    }

    /// State of the charges' buckets at `now`, without charges since the read; `None` if they were
    /// not read.
    pub(super) fn readings(&self, charges: &[Charge], now: u64) -> Option<Vec<Reading>> {
        let readings = self.readings.as_ref().filter(|_| *self.charges == *charges)?;
        let (age_us, now) = (now.saturating_sub(self.at), unix_time::at(now));
        let later = |(charge, reading): (&Charge, &Reading)| reading.later(charge, age_us, now);
        Some(charges.iter().zip(readings).map(later).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::charge::{BucketId, Mode};
    use crate::limit::reading::Times;

    fn charge(bucket: u128, burst: u64) -> Charge {
        let limit = Limit::token_bucket(10, MICROS_PER_SECOND, burst).unwrap();
        let bucket = BucketId(bucket);
        Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
    }

    fn readings(levels: &[i64]) -> Vec<Reading> {
        levels.iter().map(|level| Reading::new(*level, Times::NONE)).collect()
    }

    #[test]
    fn result_is_fresh_for_its_lifetime_and_refills() {
        let charges = [charge(1, 50), charge(2, 50)];
        let seen = Peeked::new(&charges, Some(readings(&[0, 4_999_999])), 1_000);
        // now -> (whether it is fresh, levels)
        let table = [
            (1_000, (true, [0, 4_999_999])),
            (1_007, (true, [7, 5_000_000])),
            (1_000 + MAX_RESULT_AGE_US - 1, (true, [199_999, 5_000_000])),
            (1_000 + MAX_RESULT_AGE_US, (false, [200_000, 5_000_000])),
            (999, (true, [0, 4_999_999])),
        ];
        for (now, (is_fresh, levels)) in table {
            assert_eq!(seen.is_fresh(now), is_fresh, "at {now}");
            assert_eq!(seen.readings(&charges, now), Some(readings(&levels)), "at {now}");
        }
        let unavailable = Peeked::new(&charges, None, 0);
        assert_eq!((unavailable.was_answered(), unavailable.readings(&charges, 1)), (false, None));
    }

    #[test]
    fn result_does_not_apply_to_other_buckets_or_limits() {
        let seen = Peeked::new(&[charge(1, 50)], Some(readings(&[7])), 0);
        assert!(seen.readings(&[charge(1, 50)], 1).is_some());
        for others in [&[charge(2, 50)][..], &[charge(1, 49)], &[], &[charge(1, 50); 2]] {
            assert_eq!(seen.readings(others, 1), None, "{others:?}");
        }
    }

    #[test]
    fn reads_of_redis_are_limited_per_second() {
        let peek_cache = PeekCache::default();
        let second = MICROS_PER_SECOND;
        let admitted =
            |now| (0..2 * PEEKS_PER_SECOND).filter(|_| peek_cache.admits(now)).count() as u64;
        assert_eq!(admitted(5), PEEKS_PER_SECOND);
        assert_eq!(admitted(5), 0);
        assert_eq!(admitted(5 + second / 10), PEEKS_PER_SECOND / 10);
        assert_eq!(admitted(5 + 9 * second), PEEKS_PER_SECOND);
    }

    #[test]
    fn one_client_has_one_slot() {
        let peek_cache = PeekCache::default();
        for client in [ClientId::Known(7), ClientId::Local] {
            assert!(std::ptr::eq(peek_cache.slot(client), peek_cache.slot(client)));
        }
    }
}
