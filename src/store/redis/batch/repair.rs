//! Repair after a failover: a replica that takes over lacks what its master had not sent to it yet.
//! For some seconds, calls carry the level that this gateway saw last of each bucket, and the
//! script keeps the lower one. So what a live gateway saw granted is not granted again.
//!
//! A reset or a grant by an operator, also by another gateway, is newer than what was seen before
//! it: the script keeps its time for an hour, and ignores such levels. So older ones are not
//! claimed.
//!
//! A level that was seen is refilled to the time at which its call is given up, so that it never
//! takes tokens from a bucket that has lost nothing. What a bucket refills in that time is the
//! error of the repair.

use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;
use crate::base::unix_time;
use crate::limit::Limit;
use crate::limit::charge::{self, Answer, BucketId, Charge};
use crate::store::redis::script::Claim;

/// Number of buckets whose last level is known, a power of two. Entries may replace each other:
/// then that bucket is not repaired.
const SLOTS: usize = 65_536;

/// Time after which a level that was seen is not claimed, in microseconds. Redis keeps the time of
/// an adjustment a minute longer.
const MAX_AGE_US: u64 = 60 * 60 * MICROS_PER_SECOND;

/// The levels that Redis reported last.
#[derive(Debug)]
pub struct Seen(Box<[Mutex<Option<SeenLevel>>]>);

#[derive(Debug, Clone, Copy)]
struct SeenLevel {
    bucket: BucketId,
    limit: Limit,
    /// Level in the limit's units.
    level: i64,
    /// Time at which the call was sent, in microseconds.
    sent_at: u64,
    /// Unix time in microseconds at which Redis had this level, by its clock.
    seen_at: u64,
}

/// A call that repairs buckets. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Repair {
    /// Time of the connection to the server that may have taken over: what was seen before counts.
    pub since: u64,
    /// Time at which the call is sent.
    pub sent_at: u64,
    /// Time after that at which it has been executed at the latest.
    pub budget_us: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::new(None)).collect())
    }
}

impl Seen {
    /// Notes the levels in an answer to a call that was sent at `sent_at` (microseconds). Redis
    /// decided at `seen_at`, in microseconds of Unix time by its clock.
    pub fn note(&self, charges: &[Charge], answer: &Answer, sent_at: u64, seen_at: u64) {
        for (charge, outcome) in charge::not_held(charges, answer) {
            let Charge { bucket, limit, .. } = *charge;
            let mut level = outcome.level;
            let mut slot = self.slot(bucket).lock();
            if let Some(kept) = slot.filter(|kept| kept.bucket == bucket && kept.limit == limit) {
                if sent_at < kept.sent_at {
                    continue;
                }
                if sent_at == kept.sent_at {
                    level = level.min(kept.level);
                }
            }
            *slot = Some(SeenLevel { bucket, limit, level, sent_at, seen_at });
        }
    }

    /// The highest level that a bucket can have when this call is executed. `None` if it may be
    /// full, or if nothing was seen.
    pub fn claim(&self, bucket: BucketId, limit: &Limit, repair: &Repair) -> Option<Claim> {
        let Repair { since, sent_at: now, budget_us } = *repair;
        let seen = (*self.slot(bucket).lock())?;
        if seen.bucket != bucket || seen.limit != *limit || seen.sent_at >= since {
            return None;
        }
        if now.saturating_sub(seen.sent_at) > MAX_AGE_US {
            return None;
        }
        let seen_at = seen.seen_at;
        let latest = now.saturating_add(budget_us);
        let (level, period_end) =
            limit.highest_until(seen.level, unix_time::at(seen.sent_at), latest)?;
        Some(Claim { level, period_end, seen_at })
    }

    #[allow(clippy::cast_possible_truncation, reason = "only these bits are used")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<SeenLevel>> {
        &self.0[bucket.0 as usize & (self.0.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::{Charges, Mode, Outcome};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::reading::Times;
    use crate::limit::share::Share;
    use crate::limit::sliding_window::SlidingWindow;

    const BUCKET: BucketId = BucketId(7);
    const NOW: u64 = 100 * MICROS_PER_SECOND;
    const SEEN_AT: u64 = 1_800_000_000_000_000;

    /// A call that is executed when it is sent.
    fn at(sent_at: u64) -> Repair {
        Repair { since: u64::MAX, sent_at, budget_us: 0 }
    }

    fn seen(limit: Limit, level: i64) -> Seen {
        let seen = Seen::default();
        let charge =
            Charge { bucket: BUCKET, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce };
        let outcome = Outcome { level, enough: true, share: Share::WHOLE, times: Times::NONE };
        let charges: Charges = std::iter::once(charge).collect();
        let answer = Answer::of(&charges, std::iter::once(outcome).collect());
        seen.note(&charges, &answer, NOW, SEEN_AT);
        seen
    }

    #[test]
    fn level_of_a_token_bucket_is_refilled_to_the_end_of_the_call() {
        let limit = Limit::token_bucket(10, MICROS_PER_SECOND, 50).unwrap();
        let seen = seen(limit, limit.token_units(20));
        let claim = |since, now| {
            seen.claim(BUCKET, &limit, &Repair { since, sent_at: now, budget_us: 10_000 })
        };
        // 1 s and 10 ms later.
        let later = NOW + MICROS_PER_SECOND;
        let level = limit.token_units(30) + limit.token_units(1) / 10;
        assert_eq!(claim(later, later), Some(Claim { level, period_end: 0, seen_at: SEEN_AT }));
        // Full again after 3 s; and what was seen since the new connection needs no repair.
        assert_eq!(claim(u64::MAX, NOW + 3 * MICROS_PER_SECOND), None);
        assert_eq!(claim(NOW, later), None);
        assert_eq!(seen.claim(BucketId(8), &limit, &at(NOW)), None);
    }

    #[test]
    fn level_that_was_seen_more_than_an_hour_ago_is_not_claimed() {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
        let seen = seen(limit, 0);
        let claim = |now| seen.claim(BUCKET, &limit, &at(now));
        assert!(claim(NOW + MAX_AGE_US).is_some());
        assert_eq!(claim(NOW + MAX_AGE_US + 1), None);
    }

    #[test]
    fn sliding_window_is_claimed_for_an_eighth_of_its_length() {
        let limit = Limit::SlidingWindow(SlidingWindow::new(9, 8 * MICROS_PER_SECOND).unwrap());
        let seen = seen(limit, 4);
        let claim = |now| seen.claim(BUCKET, &limit, &at(now));
        assert_eq!(
            claim(NOW + MICROS_PER_SECOND),
            Some(Claim { level: 4, period_end: 0, seen_at: SEEN_AT })
        );
        assert_eq!(claim(NOW + MICROS_PER_SECOND + 1), None);
    }

    #[test]
    fn fixed_window_is_claimed_with_the_end_of_its_period() {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
        let seen = seen(limit, limit.token_units(4));
        let unix = unix_time::of(NOW);
        let period_end = unix + limit.left_us(unix);
        let claim = seen.claim(BUCKET, &limit, &at(NOW + 5));
        assert_eq!(
            claim,
            Some(Claim { level: limit.token_units(4), period_end, seen_at: SEEN_AT })
        );
    }

    /// An operator has granted more than the limit.
    #[test]
    fn level_above_the_limit_is_claimed() {
        let calendar = Calendar::new(Period::Month, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(9, calendar).unwrap());
        let seen = seen(limit, limit.token_units(20));
        let claim = seen.claim(BUCKET, &limit, &at(NOW + 5));
        assert_eq!(claim.map(|claim| claim.level), Some(limit.token_units(20)));
    }
}
