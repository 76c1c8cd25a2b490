//! What `lua/take.lua` does with a token bucket from which gateways borrow, and two ways that are
//! wrong.

use super::{EPOCH_US, Loan, Request};
use crate::limit::bucket::{Bucket, CLOCK_SLACK_US};
use crate::limit::token_bucket::TokenBucket;

/// How a bucket refills while units are lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refill {
    /// As the script does: at most to full less what is lent, each epoch apart.
    Exact,
    /// To full less what is still lent at the end of the whole time.
    AtOnce,
    /// To full.
    Uncapped,
}

/// A bucket, and the units lent in the epoch of its time and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LentBucket {
    pub(crate) bucket: Bucket,
    pub(crate) lent: [i64; 2],
}

impl LentBucket {
    pub(crate) fn full(limit: &TokenBucket, now: u64) -> Self {
        Self { bucket: Bucket { level: limit.full(), at: now }, lent: [0, 0] }
    }

    fn all_lent(&self) -> i64 {
        self.lent[0] + self.lent[1]
    }

    /// The bucket at `now`.
    pub(crate) fn refilled(mut self, limit: &TokenBucket, now: u64, how: Refill) -> Self {
        if self.bucket.at > now + CLOCK_SLACK_US {
            self.bucket.at = now;
        }
        let (full, began) = (limit.full(), self.bucket);
        let mut ends = (self.bucket.at / EPOCH_US + 1) * EPOCH_US;
        while ends <= now && self.all_lent() > 0 {
            let level = self.bucket.level + limit.units_in(ends - self.bucket.at);
            self.bucket = Bucket { level: level.min(full - self.all_lent()), at: ends };
            self.lent = [0, self.lent[0]];
            ends += EPOCH_US;
        }
        if how != Refill::Exact {
            self.bucket = began;
        }
        let room = if how == Refill::Uncapped { full } else { full - self.all_lent() };
        let added = limit.units_in(now.saturating_sub(self.bucket.at));
        let level = self.bucket.level.saturating_add(added).min(room);
        self.bucket = Bucket { level, at: self.bucket.at.max(now) };
        self
    }

    /// Takes units if the bucket has them.
    pub(crate) fn take(&mut self, units: i64) -> bool {
        let has = self.bucket.level >= units;
        self.bucket.level -= if has { units } else { 0 };
        has
    }

    /// Gives back units that were taken at `taken_at`, less what has refilled since, by the time of
    /// the bucket: the clock may have gone back.
    pub(crate) fn give_back(&mut self, limit: &TokenBucket, units: i64, taken_at: u64) {
        let Some(elapsed) = self.bucket.at.checked_sub(taken_at) else { return };
        let units = units - limit.units_in(elapsed);
        if units > 0 {
            let room = limit.full() - self.all_lent();
            self.bucket.level = (self.bucket.level + units).min(room);
        }
    }

    /// Lends units, at most the `divisor`-th part of the level.
    pub(crate) fn lend(&mut self, limit: &TokenBucket, request: &Request, divisor: i64) -> Loan {
        let epoch = self.bucket.at / EPOCH_US;
        for account in request.accounts {
            let Some(lent) = epoch.checked_sub(account.epoch).filter(|age| *age < 2) else {
                continue;
            };
            let lent = &mut self.lent[usize::from(lent == 1)];
            *lent = (*lent - account.spent).max(0);
            let back = account.returned.min(*lent);
            *lent -= back;
            self.bucket.level += back;
        }
        let room = limit.full() / 4 - self.all_lent();
        let units = request.wanted.min(self.bucket.level.div_euclid(divisor)).min(room);
        let units = if units < request.least.max(1) { 0 } else { units };
        self.lent[0] += units;
        self.bucket.level -= units;
        let valid_us = (epoch + 2) * EPOCH_US - self.bucket.at;
        Loan { level: self.bucket.level, units, epoch, valid_us }
    }
}
