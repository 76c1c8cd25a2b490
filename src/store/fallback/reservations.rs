//! Turns for costly requests while this process decides alone.
//!
//! One of n gateways takes n times a request's cost from its view of a bucket. Where that is a full
//! bucket or more, the request needs a full one, and cheaper requests that come steadily would keep
//! it from ever being full. So a costly request that is refused reserves the bucket: until it can
//! pass, and a moment beyond, cheaper requests are refused. Then the bucket is theirs, before it can
//! be reserved again: for twice as long as they waited, and at least for twice as long as the share
//! takes to earn such a request. At least a third of the share is left to them.
//!
//! A reservation only ever refuses, so no bound on what is granted depends on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::limit::MICROS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charge, Mode};
use crate::limit::share::Share;
use crate::limit::verdict::Standing;

/// How long a reservation outlives the instant at which its request can pass, in ticks:
/// `Retry-After` is in whole seconds, and the request has to travel.
const GRACE: u64 = 2 * MICROS_PER_SECOND;

/// The most reservations at once. Beyond that, costly requests take their chances.
const MOST: usize = 4_096;

/// How often reservations that are over are searched for, in ticks: the search holds the lock.
const SEARCH: u64 = MICROS_PER_SECOND;

/// Buckets that are reserved.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_bucket: Mutex<HashMap<BucketId, Reservation>>,
    /// How many there are: mostly none, and then nobody takes the lock.
    count: AtomicUsize,
    /// The tick from which those that are over may be searched for.
    search_at: AtomicU64,
}

/// A bucket's reservation, and when there may be another.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    /// The request's cost. Requests that cost as much are not refused by it.
    cost: u64,
    /// The tick at which it began.
    since: u64,
    /// The tick at which it is over.
    ends: u64,
    /// The tick from which the bucket may be reserved again.
    next: u64,
}

impl Reservations {
    /// Whether any charge is refused by a reservation at `now`.
    pub(super) fn refuse(&self, charges: &[Charge], now: u64) -> bool {
        if self.is_empty() {
            return false;
        }
        let reserved = self.by_bucket.lock();
        charges.iter().any(|charge| {
            reserved.get(&charge.bucket).is_some_and(|reservation| reservation.refuses(charge, now))
        })
    }

    /// The answer, where reservations count at `now`. A charge that is refused by one has the level
    /// that tells when it will pass at the latest: after the costly request has passed at the last
    /// moment.
    pub(super) fn applied(&self, charges: &[Charge], mut answer: Answer, now: u64) -> Answer {
        if self.is_empty() {
            return answer;
        }
        let reserved = self.by_bucket.lock();
        for (charge, outcome) in charges.iter().zip(&mut answer.outcomes) {
            let reservation = reserved.get(&charge.bucket);
            if let Some(reservation) = reservation.filter(|one| one.refuses(charge, now)) {
                let quota = &charge.quota;
                let left =
                    quota.full().saturating_sub(outcome.share.taken(quota, reservation.cost));
                let ahead = quota.units_in(reservation.ends.saturating_sub(now));
                outcome.level = left.saturating_sub(ahead);
                outcome.enough = false;
            }
        }
        Answer::of(charges, answer.outcomes)
    }

    /// Notes what became of a request at `now`: a costly one that was refused reserves its bucket,
    /// one that passed ends the reservation. A request that another rule refuses until after the
    /// reservation could not use it, and makes none.
    pub(super) fn note(&self, charges: &[Charge], answer: &Answer, now: u64) {
        let longest = || {
            let each = charges.iter().zip(&answer.outcomes);
            let enforced = each.filter(|(charge, _)| charge.mode == Mode::Enforce);
            enforced.map(|(charge, outcome)| Standing::of(charge, outcome).retry_after_us).max()
        };
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if charge.mode == Mode::Shadow {
                continue;
            }
            if answer.allowed() {
                self.end(charge, outcome.share, now);
            } else if !outcome.enough && needs_all(charge, outcome.share) {
                let wait = Standing::of(charge, outcome).retry_after_us;
                if longest() <= Some(wait.saturating_add(GRACE)) {
                    self.reserve(charge, wait, outcome.share, now);
                }
            }
        }
    }

    /// Reserves the bucket for a request that can pass in `wait` ticks.
    fn reserve(&self, charge: &Charge, wait: u64, share: Share, now: u64) {
        let mut reserved = self.by_bucket.lock();
        if reserved.get(&charge.bucket).is_some_and(|kept| now < kept.next) {
            return;
        }
        if reserved.len() >= MOST {
            self.search(&mut reserved, now);
        }
        if reserved.len() < MOST {
            let ends = now.saturating_add(wait).saturating_add(GRACE);
            let (cost, since) = (charge.cost, now);
            let next = ends.saturating_add(turn(charge, cost, share, ends - since));
            reserved.insert(charge.bucket, Reservation { cost, since, ends, next });
        }
        self.count.store(reserved.len(), Ordering::Relaxed);
    }

    /// Forgets the reservations of these charges' buckets: Redis decides on them again, at `now`.
    pub(super) fn forget(&self, charges: &[Charge], now: u64) {
        if self.is_empty() {
            return;
        }
        let mut reserved = self.by_bucket.lock();
        for charge in charges {
            reserved.remove(&charge.bucket);
        }
        self.search(&mut reserved, now);
        self.count.store(reserved.len(), Ordering::Relaxed);
    }

    /// Forgets all that are over, at most once in [`SEARCH`].
    fn search(&self, reserved: &mut HashMap<BucketId, Reservation>, now: u64) {
        if now >= self.search_at.load(Ordering::Relaxed) {
            reserved.retain(|_, kept| now < kept.next);
            self.search_at.store(now.saturating_add(SEARCH), Ordering::Relaxed);
        }
    }

    /// Ends the reservation that the charge's request has used.
    fn end(&self, charge: &Charge, share: Share, now: u64) {
        if self.is_empty() {
            return;
        }
        if let Some(kept) = self.by_bucket.lock().get_mut(&charge.bucket)
            && now < kept.ends
            && charge.cost >= kept.cost
        {
            kept.ends = now;
            let waited = now.saturating_sub(kept.since);
            kept.next = now.saturating_add(turn(charge, kept.cost, share, waited));
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl Reservation {
    fn refuses(&self, charge: &Charge, now: u64) -> bool {
        now < self.ends && charge.cost < self.cost && charge.mode == Mode::Enforce
    }
}

/// Whether the charge passes on a full bucket only, and others could keep it from that.
fn needs_all(charge: &Charge, share: Share) -> bool {
    let quota = &charge.quota;
    share.gateways() > 1 && charge.cost > 1 && share.taken(quota, charge.cost) >= quota.full()
}

/// How long a bucket is left to cheaper requests, which have `waited` for one of this cost.
fn turn(charge: &Charge, cost: u64, share: Share, waited: u64) -> u64 {
    let earned = charge.quota.time_to_add_us(share.taken(&charge.quota, cost));
    earned.max(waited).saturating_mul(2)
}
