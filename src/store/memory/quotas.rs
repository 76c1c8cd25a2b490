//! The quotas that a store's buckets are counted by, each under a number of its own.
//!
//! Other rules come while buckets of the old ones are kept, so quotas are added and never changed.
//! One that no rule grants any more is retired: buckets that were counted by it keep what they held
//! then, as a fraction. A number is given anew once nobody can use it for the old quota: no bucket
//! names it, and every request that began under it is over. So there are never many more than
//! rules and buckets need, however often rules change.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::limit::MICROS_PER_SECOND;
use crate::limit::bucket::Bucket;
use crate::limit::quota::Quota;

/// How long after its retirement a quota may still be asked for, in ticks: far longer than a
/// request takes from its head to its decision.
const IN_USE_FOR: u64 = 10 * MICROS_PER_SECOND;

/// Quotas up to which nobody looks for numbers that are free again.
const FEW: usize = 64;

/// All quotas, by their numbers.
#[derive(Debug)]
pub(super) struct Quotas {
    list: ArcSwap<Vec<Known>>,
    numbers: Mutex<Numbers>,
}

/// A quota, and whether rules grant it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) quota: Quota,
    /// The tick since which no rule grants it; none: one does.
    retired_at: Option<u64>,
}

/// Numbers to give anew.
#[derive(Debug)]
struct Numbers {
    free: Vec<u32>,
    /// How many quotas there are when free numbers are looked for next: so many that, of those, at
    /// least half should be free.
    sweep_at: usize,
}

/// What other rules changed.
pub(super) struct Adopted {
    /// The number of each quota, in the order in which they came.
    pub(super) numbers: Vec<u32>,
    /// The list with all of them, to be put in force.
    list: Vec<Known>,
    /// Numbers that stand for another quota than before.
    pub(super) reused: Vec<u32>,
    /// Numbers of quotas that were granted until now.
    pub(super) retired: Vec<u32>,
}

// === impl Quotas ===

impl Quotas {
    /// `quotas`, numbered from 0 in their order.
    pub(super) fn new(quotas: &[Quota]) -> Self {
        let known = |quota: &Quota| Known { quota: *quota, retired_at: None };
        let list = ArcSwap::from_pointee(quotas.iter().map(known).collect());
        Self { list, numbers: Mutex::new(Numbers { free: Vec::new(), sweep_at: FEW }) }
    }

    /// The list as it is now. Load it behind the lock of the buckets that it is for: whoever wrote
    /// them knew no later one.
    pub(super) fn load(&self) -> Guard<Arc<Vec<Known>>> {
        self.list.load()
    }

    /// Numbers `quotas`, which rules grant from `now` on, and retires the others. `used` tells
    /// which numbers buckets name. One caller at a time: what it gives has to be put in force
    /// before the next is made.
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
                // It stands for its old quota no more.
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

    /// Puts an adopted list in force.
    pub(super) fn publish(&self, adopted: &mut Adopted) {
        self.list.store(Arc::new(std::mem::take(&mut adopted.list)));
    }
}

impl Numbers {
    /// Finds the numbers that stand for nothing any more.
    fn find_free(&mut self, list: &[Known], used: &[bool], now: u64) {
        let is_over =
            |known: &Known| known.retired_at.is_some_and(|at| at.saturating_add(IN_USE_FOR) <= now);
        let free = (0..).zip(list).zip(used).filter(|((_, known), used)| is_over(known) && !*used);
        self.free = free.map(|((number, _), _)| number).collect();
        self.sweep_at = FEW.max(2 * (list.len() - self.free.len()));
    }
}

/// The number of the last quota of a list that is not empty.
fn last(list: &[Known]) -> u32 {
    u32::try_from(list.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

// === impl Known ===

impl Known {
    /// Whether a rule grants it.
    pub(super) fn is_granted(&self) -> bool {
        self.retired_at.is_none()
    }

    /// A bucket that was counted by this quota, at `now` as full in proportion under another. Until
    /// this quota was retired the bucket filled by it.
    pub(super) fn same_fraction(&self, bucket: Bucket, quota: &Quota, now: u64) -> Bucket {
        let until = self.retired_at.map_or(now, |at| at.min(now)).max(bucket.at);
        bucket.refilled(&self.quota, until).rescaled(self.quota.full(), quota)
    }
}
