//! Consistent hashing by a look-up table (Eisenbud et al., "Maglev", NSDI 2016, section 3.4), with
//! bounded loads (Mirrokni et al., 2016): a request whose endpoint has too many in flight goes to
//! the endpoint of the next slot.
//!
//! An endpoint that is not available keeps its slots, so that only its own clients move, each to
//! the endpoint of the next slot. They return with it.

use super::least_request::below;
use crate::base::hash::{hash, mix};

/// Number of slots, a prime. With 100 endpoints, a share differs by less than 1 % from the weights.
const SLOTS: usize = 65_537;

/// Maximum number of slots that are tried. Beyond it, almost all endpoints are unavailable.
const MAX_STEPS: usize = 4_096;

/// A table of slots.
#[derive(Debug)]
pub(crate) struct Maglev {
    /// The index of the endpoint of each slot.
    slots: Box<[u16]>,
}

/// An endpoint while the table is filled.
struct Filling {
    index: u16,
    /// Its next preferred slot, and the distance to the one after.
    slot: usize,
    skip: usize,
    weight: u64,
    /// Its weight times the rounds, less what its slots have cost.
    credit: u64,
}

impl Maglev {
    /// Fills a table with endpoints, each with its index, its name and its weight. The order does
    /// not matter.
    pub(crate) fn new<'a>(endpoints: impl Iterator<Item = (u16, &'a [u8], u16)>) -> Self {
        let filling = |(index, name, weight): (u16, &[u8], u16)| {
            let name = hash(name);
            let slot = below(name & u64::from(u32::MAX), SLOTS).unwrap_or_default();
            let skip = below(mix(name ^ 1) >> 32, SLOTS - 1).unwrap_or_default() + 1;
            (name, Filling { index, slot, skip, weight: u64::from(weight.max(1)), credit: 0 })
        };
        let mut endpoints: Vec<_> = endpoints.map(filling).collect();
        endpoints.sort_by_key(|(name, _)| *name);
        let most = endpoints.iter().map(|(_, endpoint)| endpoint.weight).max().unwrap_or(1);
        let mut slots = vec![u16::MAX; if endpoints.is_empty() { 0 } else { SLOTS }];
        let mut free = slots.len();
        while free > 0 {
            for (_, endpoint) in &mut endpoints {
                endpoint.credit += endpoint.weight;
                if endpoint.credit < most || free == 0 {
                    continue;
                }
                endpoint.credit -= most;
                endpoint.take(&mut slots);
                free -= 1;
            }
        }
        Self { slots: slots.into() }
    }

    /// The endpoint of the first slot from that of `hash` on whose endpoint is accepted.
    pub(crate) fn pick(&self, hash: u64, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let start = below(hash >> 32, self.slots.len())?;
        let mut rejected = u16::MAX;
        let slots = self.slots.iter().cycle().skip(start).take(MAX_STEPS);
        for slot in slots.filter(|slot| **slot != u16::MAX) {
            if *slot == rejected {
                continue;
            }
            if accepts(usize::from(*slot)) {
                return Some(usize::from(*slot));
            }
            rejected = *slot;
        }
        None
    }
}

impl Filling {
    /// Takes its first preferred slot that is free.
    fn take(&mut self, slots: &mut [u16]) {
        loop {
            let slot = self.slot;
            self.slot = (slot + self.skip) % SLOTS;
            if let Some(free) = slots.get_mut(slot).filter(|slot| **slot == u16::MAX) {
                *free = self.index;
                return;
            }
        }
    }
}

/// Whether an endpoint may have one more request in flight: with it, at most 1.25 times its share
/// of `total` requests, rounded up. `total` includes the new one; `weight` is a part of `weights`.
pub(crate) fn has_room(in_flight: u32, weight: u32, total: u64, weights: u64) -> bool {
    let share = u128::from(total) * u128::from(weight) * 5;
    u128::from(in_flight) < share.div_ceil(u128::from(weights.max(1)) * 4)
}
