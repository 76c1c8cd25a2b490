//! Leases by bucket: tokens that this gateway has borrowed from the shared store, and spends
//! without a call.
//!
//! Requests take from a lease and never wait. One task for each lease keeps it: it borrows more,
//! and returns what is not needed. The task of a bucket starts once a lease would save calls, and
//! ends with it.
//!
//! `tests/model` checks this file under all interleavings of threads.

use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::base::unix_time;
use crate::limit::charge::{BucketId, Charge};
use crate::limit::lease::{Lease, Loan, Means, Step};
use crate::limit::returned::Returned;

/// Default number of slots: buckets that can have a lease. Of two buckets that hash to the same
/// slot, one has none while the other is in use.
const SLOTS: usize = 1_024;

/// Leases of the buckets in use. Fixed size; each slot has its own lock.
#[derive(Debug)]
pub struct Leases {
    slots: Box<[Mutex<Option<Slot>>]>,
    /// Number of leases whose tasks run.
    kept: AtomicU64,
    /// 1 once no lease begins any more.
    is_shut: AtomicU64,
}

/// A lease, and the charges that it serves.
#[derive(Debug)]
struct Slot {
    /// A charge of the bucket. The lease serves only charges of the same limit: around a reload,
    /// there are others.
    charge: Charge,
    lease: Lease,
    /// Whether its task runs.
    is_kept: bool,
}

impl Default for Leases {
    fn default() -> Self {
        Self::with_slots(SLOTS)
    }
}

impl Leases {
    /// Creates an empty collection with `slots` slots, rounded up to a power of two.
    pub fn with_slots(slots: usize) -> Self {
        let slots = (0..slots.next_power_of_two()).map(|_| Mutex::new(None)).collect();
        Self { slots, kept: AtomicU64::new(0), is_shut: AtomicU64::new(0) }
    }

    /// Takes the units of a charge at `now` (microseconds), if the lease of its bucket has them.
    /// Returns the units that are available afterwards: see [`Lease::available`].
    pub fn take(&self, charge: &Charge, now: u64) -> Option<i64> {
        let mut slot = self.slot(charge.bucket).lock();
        let kept = slot.as_mut().filter(|slot| slot.serves(charge))?;
        let units = charge.limit.units(charge.cost);
        let took = kept.lease.take(units, now);
        took.then(|| kept.lease.available().min(charge.limit.full()))
    }

    /// Puts back the units of a charge that [`take`](Self::take) took. Returns the units that are
    /// available afterwards; `None` if they are lost, since the lease has ended.
    pub fn put_back(&self, charge: &Charge, now: u64) -> Option<i64> {
        self.put_back_units(charge, charge.limit.units(charge.cost), now)
    }

    /// The same for a request that took them at `taken_at`, has failed since, and reached no
    /// server. Less what the bucket has refilled meanwhile: without the request, it may have been
    /// full.
    pub fn refund(&self, charge: &Charge, taken_at: u64, now: u64) -> Option<i64> {
        let units = charge.limit.units(charge.cost);
        let taken = Returned::here(&charge.limit, units, unix_time::at(taken_at));
        self.put_back_units(charge, taken.left(&charge.limit, now), now)
    }

    fn put_back_units(&self, charge: &Charge, units: i64, now: u64) -> Option<i64> {
        let mut slot = self.slot(charge.bucket).lock();
        let kept = slot.as_mut().filter(|slot| slot.serves(charge))?;
        kept.lease.put_back(units, now);
        Some(kept.lease.available().min(charge.limit.full()))
    }

    /// Counts a charge whose units the store took at `now`, and left the bucket with `level`.
    /// Returns whether the caller must start a task for the bucket's lease, which it then keeps.
    pub fn note(&self, charge: &Charge, level: i64, now: u64) -> bool {
        let mut place = self.slot(charge.bucket).lock();
        // With the lock: `shut` ends all leases that begin before it has the lock.
        let is_shut = self.is_shut.load(Ordering::Acquire) != 0;
        if place.as_ref().is_some_and(|slot| !slot.is_kept && slot.gives_way_to(charge, now)) {
            *place = None;
        }
        if place.is_none() && !is_shut {
            *place = Some(Slot { charge: *charge, lease: Lease::default(), is_kept: false });
        }
        let Some(slot) = place.as_mut().filter(|slot| slot.charge.bucket == charge.bucket) else {
            return false;
        };
        if slot.charge.limit != charge.limit {
            slot.lease.close();
            return false;
        }
        slot.lease.note(charge.limit.units(charge.cost), level, now);
        let starts = !slot.is_kept && !is_shut && slot.lease.is_wanted();
        if starts {
            slot.is_kept = true;
            self.kept.fetch_add(1, Ordering::AcqRel);
        }
        starts
    }

    /// What the task of a bucket's lease does next, with these means, and the units that have
    /// expired since its last step. After [`Step::End`], the task ends.
    pub fn step(&self, bucket: BucketId, means: Means, now: u64) -> (Step, i64) {
        let mut place = self.slot(bucket).lock();
        let Some(slot) = place.as_mut().filter(|slot| slot.charge.bucket == bucket) else {
            return (Step::End, 0);
        };
        let step = slot.lease.step(means, now);
        let expired = slot.lease.take_expired();
        if step == Step::End {
            *place = None;
            self.kept.fetch_sub(1, Ordering::AcqRel);
        }
        (step, expired)
    }

    /// Adds what a call lent that was sent at `sent_at`; `None` if its reply is unknown.
    pub fn lent(&self, bucket: BucketId, loan: Option<Loan>, sent_at: u64, now: u64) {
        let mut slot = self.slot(bucket).lock();
        if let Some(slot) = slot.as_mut().filter(|slot| slot.charge.bucket == bucket) {
            match loan {
                Some(loan) => slot.lease.lent(loan, sent_at, now),
                None => slot.lease.failed(now),
            }
        }
    }

    /// Units of a bucket's lease that requests can take at `now`; 0 without a lease.
    pub fn unspent(&self, charge: &Charge, now: u64) -> i64 {
        let mut slot = self.slot(charge.bucket).lock();
        let kept = slot.as_mut().filter(|slot| slot.serves(charge));
        kept.map_or(0, |slot| slot.lease.unspent_at(now))
    }

    /// Ends the lease of a bucket: no request takes from it, and its task returns what is left.
    pub fn close(&self, bucket: BucketId) {
        let mut slot = self.slot(bucket).lock();
        if let Some(slot) = slot.as_mut().filter(|slot| slot.charge.bucket == bucket) {
            slot.lease.close();
        }
    }

    /// Whether a task keeps a lease of the bucket.
    pub fn has(&self, bucket: BucketId) -> bool {
        let slot = self.slot(bucket).lock();
        slot.as_ref().is_some_and(|slot| slot.charge.bucket == bucket && slot.is_kept)
    }

    /// Ends all leases. Others can begin.
    pub fn close_all(&self) {
        for slot in &self.slots {
            if let Some(slot) = slot.lock().as_mut() {
                slot.lease.close();
            }
        }
    }

    /// Ends all leases, at the end of the process. None begins afterwards.
    pub fn shut(&self) {
        self.is_shut.store(1, Ordering::Release);
        self.close_all();
    }

    pub fn len(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    /// Whether there is no lease.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slot of a bucket. The number of slots is a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
    fn slot(&self, bucket: BucketId) -> &Mutex<Option<Slot>> {
        &self.slots[bucket.0 as usize & (self.slots.len() - 1)]
    }
}

impl Slot {
    fn serves(&self, charge: &Charge) -> bool {
        self.charge.bucket == charge.bucket && self.charge.limit == charge.limit
    }

    /// Whether the charge's bucket can have this place, in which no lease is kept.
    fn gives_way_to(&self, charge: &Charge, now: u64) -> bool {
        let is_other_limit =
            self.charge.bucket == charge.bucket && self.charge.limit != charge.limit;
        is_other_limit || self.lease.is_closed() || self.lease.is_unused(now)
    }
}

#[cfg(test)]
mod tests;
