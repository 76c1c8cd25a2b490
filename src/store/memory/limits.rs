//! Limits of the memory store's buckets, by number.
//!
//! A reload changes rules while buckets of the old rules remain, so limits are added and never
//! changed. A limit that no rule uses any more is retired: its buckets keep their fraction of full.
//! Its number is reused once no bucket refers to it and every request that started under it has
//! ended. So the number of limits stays proportional to rules and buckets over any number of
//! reloads.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;

/// Time after its retirement in which requests can still use a limit, in microseconds. Much longer
/// than a request takes from its head to its decision.
const RETIREMENT_US: u64 = 10 * MICROS_PER_SECOND;

/// Maximum number of limits up to which [`Limits::add`] adds one.
const MAX_LIMITS: usize = 10_000;

/// Number of limits below which free numbers are not searched for.
const MIN_SWEEP: usize = 64;

/// All limits, by their numbers.
#[derive(Debug)]
pub(super) struct Limits {
    list: ArcSwap<Vec<Known>>,
    numbers: Mutex<Numbers>,
}

/// A limit, and whether it is in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) limit: Limit,
    /// Time since which no rule uses it, in microseconds; `None` while it is in force.
    retired_at: Option<u64>,
}

/// Numbers that can be reused.
#[derive(Debug)]
struct Numbers {
    free: Vec<u32>,
    /// Number of limits at which free numbers are searched for next. About half of the numbers
    /// should be free by then.
    sweep_at: usize,
}

/// The numbers that [`Limits::adopt`] assigns, and what [`Limits::publish`] needs.
pub(super) struct Adopted {
    /// Number of each adopted limit, in the order of the argument.
    pub(super) numbers: Vec<u32>,
    /// The new list, for [`Limits::publish`].
    list: Vec<Known>,
    /// Numbers that now refer to another limit.
    pub(super) reused: Vec<u32>,
    /// Numbers of limits that were in force until now.
    pub(super) retired: Vec<u32>,
}

// === impl Limits ===

impl Limits {
    /// Creates a list of `limits`, numbered from 0 in order.
    pub(super) fn new(limits: &[Limit]) -> Self {
        let known = |limit: &Limit| Known { limit: *limit, retired_at: None };
        let list = ArcSwap::from_pointee(limits.iter().map(known).collect());
        Self { list, numbers: Mutex::new(Numbers { free: Vec::new(), sweep_at: MIN_SWEEP }) }
    }

    /// Current list. Load it while holding the lock of the shard it is used for: the list then has
    /// all limits of the buckets there.
    pub(super) fn load(&self) -> Guard<Arc<Vec<Known>>> {
        self.list.load()
    }

    /// Numbers `limits`, which are in force from `now` on, and retires the others. `used` returns,
    /// for each number, whether buckets refer to it. Must not be called concurrently: the result
    /// has to be passed to [`publish`](Self::publish) before the next call.
    #[allow(
        clippy::mutable_key_type,
        reason = "calendars are compared by identity; what changes in them is a cache"
    )]
    pub(super) fn adopt(
        &self,
        limits: &[Limit],
        now: u64,
        used: impl FnOnce(usize) -> Vec<bool>,
    ) -> Adopted {
        let mut list = Vec::clone(&self.list.load());
        let mut given = self.numbers.lock();
        if given.free.is_empty() && list.len() >= given.sweep_at {
            given.find_free(&list, &used(list.len()), now);
        }
        let mut by_limit: HashMap<Limit, u32> =
            list.iter().map(|known| known.limit).zip(0..).collect();
        let was = list.clone();
        for known in &mut list {
            known.retired_at = known.retired_at.or(Some(now));
        }
        let mut reused = Vec::new();
        let mut number_of = |limit: &Limit| {
            let known = Known { limit: *limit, retired_at: None };
            let number = by_limit.get(limit).copied().or_else(|| {
                let number = given.free.pop()?;
                reused.push(number);
                // It no longer refers to its old limit.
                let old = list.get(number as usize).map(|known| known.limit);
                old.and_then(|old| by_limit.remove(&old));
                Some(number)
            });
            match number.and_then(|number| list.get_mut(number as usize)) {
                Some(place) => *place = known,
                None => list.push(known),
            }
            let number = number.unwrap_or_else(|| last(&list));
            by_limit.insert(*limit, number);
            given.free.retain(|free| *free != number);
            number
        };
        let numbers = limits.iter().map(&mut number_of).collect();
        let newly = (0..).zip(was.iter().zip(&list));
        let retired = newly
            .filter(|(_, (was, is))| was.retired_at.is_none() && is.retired_at.is_some())
            .map(|(number, _)| number)
            .collect();
        Adopted { numbers, list, reused, retired }
    }

    /// Returns the number of a limit, which is in force from now on, until the next
    /// [`adopt`](Self::adopt); `None` if the store has too many. Must not be called concurrently
    /// with other changes.
    pub(super) fn add(&self, limit: Limit) -> Option<u32> {
        let known = Known { limit, retired_at: None };
        let list = self.list.load();
        let at = list.iter().position(|known| known.limit == limit);
        if let Some(at) = at.filter(|at| list.get(*at).is_some_and(Known::is_in_force)) {
            return u32::try_from(at).ok();
        }
        if at.is_none() && list.len() >= MAX_LIMITS {
            return None;
        }
        let mut list = Vec::clone(&list);
        let number = at.unwrap_or(list.len());
        match list.get_mut(number) {
            Some(place) => *place = known,
            None => list.push(known),
        }
        let number = u32::try_from(number).ok()?;
        self.numbers.lock().free.retain(|free| *free != number);
        self.list.store(Arc::new(list));
        Some(number)
    }

    /// Returns the number of each of `limits`. Adds those that are unknown, as retired at `now`.
    /// Must not be called concurrently with [`adopt`](Self::adopt).
    pub(super) fn import(&self, limits: &[Limit], now: u64) -> Vec<u32> {
        let mut list = Vec::clone(&self.list.load());
        let number_of = |limit: &Limit| {
            let found = list.iter().position(|known| known.limit == *limit);
            let number = found.unwrap_or_else(|| {
                list.push(Known { limit: *limit, retired_at: Some(now) });
                list.len() - 1
            });
            u32::try_from(number).unwrap_or(u32::MAX)
        };
        let numbers = limits.iter().map(number_of).collect();
        self.list.store(Arc::new(list));
        numbers
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

/// Number of the last limit of a non-empty list.
fn last(list: &[Known]) -> u32 {
    u32::try_from(list.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

// === impl Known ===

impl Known {
    pub(super) fn is_in_force(&self) -> bool {
        self.retired_at.is_none()
    }

    /// Converts a bucket of this limit to another one at `now`: see [`Limit::converted`]. The
    /// bucket is refilled under this limit until its retirement.
    pub(super) fn same_fraction(&self, bucket: Bucket, limit: &Limit, now: u64) -> Bucket {
        let until = self.retired_at.map_or(now, |at| at.min(now));
        limit.converted_at(bucket, &self.limit, until)
    }
}
