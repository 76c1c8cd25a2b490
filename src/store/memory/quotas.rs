//! Quotas of the memory store's buckets, by number.
//!
//! A reload changes rules while buckets of the old rules remain, so quotas are added and never
//! changed. A quota that no rule uses any more is retired: its buckets keep their fraction of full.
//! Its number is reused once no bucket refers to it and every request that started under it has
//! ended. So the number of quotas stays proportional to rules and buckets over any number of reloads.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::limit::MICROS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::quota::Quota;

/// Time after its retirement in which requests can still use a quota, in microseconds. Much longer
/// than a request takes from its head to its decision.
const RETIREMENT_US: u64 = 10 * MICROS_PER_SECOND;

/// Number of quotas below which free numbers are not searched for.
const MIN_SWEEP: usize = 64;

/// All quotas, by their numbers.
#[derive(Debug)]
pub(super) struct Quotas {
    list: ArcSwap<Vec<Known>>,
    numbers: Mutex<Numbers>,
}

/// A quota, and whether it is in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) quota: Quota,
    /// Time since which no rule uses it, in microseconds; `None` while it is in force.
    retired_at: Option<u64>,
}

/// Numbers that can be reused.
#[derive(Debug)]
struct Numbers {
    free: Vec<u32>,
    /// Number of quotas at which free numbers are searched for next. About half of the numbers should
    /// be free by then.
    sweep_at: usize,
}

/// Result of [`Quotas::adopt`].
pub(super) struct Adopted {
    /// Number of each adopted quota, in the order of the argument.
    pub(super) numbers: Vec<u32>,
    /// The new list, for [`Quotas::publish`].
    list: Vec<Known>,
    /// Numbers that now refer to another quota.
    pub(super) reused: Vec<u32>,
    /// Numbers of quotas that were in force until now.
    pub(super) retired: Vec<u32>,
}

// === impl Quotas ===

impl Quotas {
    /// Creates a list of `quotas`, numbered from 0 in order.
    pub(super) fn new(quotas: &[Quota]) -> Self {
        let known = |quota: &Quota| Known { quota: *quota, retired_at: None };
        let list = ArcSwap::from_pointee(quotas.iter().map(known).collect());
        Self { list, numbers: Mutex::new(Numbers { free: Vec::new(), sweep_at: MIN_SWEEP }) }
    }

    /// Current list. Load it while holding the lock of the shard it is used for: the list then has all
    /// quotas of the buckets there.
    pub(super) fn load(&self) -> Guard<Arc<Vec<Known>>> {
        self.list.load()
    }

    /// Numbers `quotas`, which are in force from `now` on, and retires the others. `used` returns, for
    /// each number, whether buckets refer to it. Must not be called concurrently: the result has to
    /// be passed to [`publish`](Self::publish) before the next call.
    pub(super) fn adopt(
        &self,
        quotas: &[Quota],
        now: u64,
        used: impl FnOnce(usize) -> Vec<bool>,
    ) -> Adopted {
        let mut list = Vec::clone(&self.list.load());
        let mut given = self.numbers.lock();
        if given.free.is_empty() && list.len() >= given.sweep_at {
            given.find_free(&list, &used(list.len()), now);
        }
        let mut by_quota: HashMap<Quota, u32> =
            list.iter().map(|known| known.quota).zip(0..).collect();
        let was = list.clone();
        for known in &mut list {
            known.retired_at = known.retired_at.or(Some(now));
        }
        let mut reused = Vec::new();
        let mut number_of = |quota: &Quota| {
            let known = Known { quota: *quota, retired_at: None };
            let number = by_quota.get(quota).copied().or_else(|| {
                let number = given.free.pop()?;
                reused.push(number);
                // It no longer refers to its old quota.
                let old = list.get(number as usize).map(|known| known.quota);
                old.and_then(|old| by_quota.remove(&old));
                Some(number)
            });
            match number.and_then(|number| list.get_mut(number as usize)) {
                Some(place) => *place = known,
                None => list.push(known),
            }
            let number = number.unwrap_or_else(|| last(&list));
            by_quota.insert(*quota, number);
            given.free.retain(|free| *free != number);
            number
        };
        let numbers = quotas.iter().map(&mut number_of).collect();
        let newly = (0..).zip(was.iter().zip(&list));
        let retired = newly
            .filter(|(_, (was, is))| was.retired_at.is_none() && is.retired_at.is_some())
            .map(|(number, _)| number)
            .collect();
        Adopted { numbers, list, reused, retired }
    }

    /// Makes an adopted list the current one.
    pub(super) fn publish(&self, adopted: &mut Adopted) {
        self.list.store(Arc::new(std::mem::take(&mut adopted.list)));
    }
}

impl Numbers {
    /// Finds the numbers that can be reused.
    fn find_free(&mut self, list: &[Known], used: &[bool], now: u64) {
        let is_over = |known: &Known| {
            known.retired_at.is_some_and(|at| at.saturating_add(RETIREMENT_US) <= now)
        };
        let free = (0..).zip(list).zip(used).filter(|((_, known), used)| is_over(known) && !*used);
        self.free = free.map(|((number, _), _)| number).collect();
        self.sweep_at = MIN_SWEEP.max(2 * (list.len() - self.free.len()));
    }
}

/// Number of the last quota of a non-empty list.
fn last(list: &[Known]) -> u32 {
    u32::try_from(list.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

// === impl Known ===

impl Known {
    /// Whether the quota is in force.
    pub(super) fn is_in_force(&self) -> bool {
        self.retired_at.is_none()
    }

    /// Converts a bucket of this quota to another one at `now`, at the same fraction of full. The bucket
    /// is refilled under this quota until its retirement.
    pub(super) fn same_fraction(&self, bucket: Bucket, quota: &Quota, now: u64) -> Bucket {
        let until = self.retired_at.map_or(now, |at| at.min(now)).max(bucket.at);
        bucket.refilled(&self.quota, until).rescaled(self.quota.full(), quota)
    }
}
