//! Reservations: keep cheap requests from starving expensive ones in the local fallback.
//!
//! One of n gateways takes n times the cost of a request from its copy of a bucket. If that is a
//! full bucket or more, the request is allowed only when the bucket is full, and a steady flow of
//! cheaper requests would keep it from filling. So a denied expensive request reserves the bucket:
//! cheaper requests are denied until it can be allowed, plus a grace period. After that, the bucket
//! cannot be reserved for twice the time that cheaper requests waited, and at least for twice the
//! time in which the local share refills by the cost. So cheaper requests get at least a third of
//! the share.
//!
//! The same holds for the log of a sliding window: it has room for such a request only when no
//! stamp is in the window. The window is the time in which the share refills by the cost. All
//! stamps of an expensive request leave it at once, and the first request afterwards passes,
//! whatever its cost; the log is reserved for at most a third of the time. A fixed window is full
//! again when its period begins, whatever cheaper requests do.
//!
//! A reservation only denies requests, so the bounds on granted tokens do not depend on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charge, Mode, Outcome};
use crate::limit::cost::Cost;
use crate::limit::share::Share;
use crate::limit::verdict::Standing;

/// Time in microseconds that a reservation lasts after its request can be allowed. `Retry-After` is
/// in whole seconds, and the retry takes time to arrive.
const GRACE_US: u64 = 2 * MICROS_PER_SECOND;

/// Maximum number of reservations. Above it, expensive requests get none.
const MAX_RESERVATIONS: usize = 4_096;

/// Shortest time between two searches for expired reservations, in microseconds. A search holds the
/// lock.
const SWEEP_INTERVAL_US: u64 = MICROS_PER_SECOND;

/// Reservations by bucket, bounded in number.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    by_bucket: Mutex<HashMap<BucketId, Reservation>>,
    /// Number of reservations. While it is 0, the lock is not taken.
    count: AtomicUsize,
    /// Earliest time of the next search for expired reservations.
    search_at: AtomicU64,
}

/// Reservation of one bucket. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    /// Cost of the request. Only requests with a lower cost are denied. In tokens, because a reload
    /// can change the parts of a token.
    cost: Cost,
    /// Start of the reservation.
    since: u64,
    ends: u64,
    /// Time from which the bucket can be reserved again.
    next: u64,
}

impl Reservations {
    /// Whether a reservation denies any of the charges at `now`.
    pub(super) fn refuse(&self, charges: &[Charge], now: u64) -> bool {
        if self.is_empty() {
            return false;
        }
        let reserved = self.by_bucket.lock();
        charges.iter().any(|charge| {
            reserved.get(&charge.bucket).is_some_and(|reservation| reservation.refuses(charge, now))
        })
    }

    /// Applies reservations to an answer at `now`.
    pub(super) fn applied(&self, charges: &[Charge], mut answer: Answer, now: u64) -> Answer {
        if self.is_empty() {
            return answer;
        }
        let reserved = self.by_bucket.lock();
        for (charge, outcome) in charges.iter().zip(&mut answer.outcomes) {
            let reservation = reserved.get(&charge.bucket);
            if let Some(reservation) = reservation.filter(|one| one.refuses(charge, now)) {
                reservation.deny(charge, outcome, now);
            }
        }
        Answer::of(charges, answer.outcomes)
    }

    /// Records the decision on a request at `now`: a denied expensive request reserves its bucket,
    /// an allowed one ends its reservation. A request that another rule denies until after the
    /// reservation could not use it, so it reserves nothing.
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
                if longest() <= Some(wait.saturating_add(GRACE_US)) {
                    self.reserve(charge, wait, outcome.share, now);
                }
            }
        }
    }

    /// Reserves the bucket for a request that can be allowed in `wait` microseconds.
    fn reserve(&self, charge: &Charge, wait: u64, share: Share, now: u64) {
        let mut reserved = self.by_bucket.lock();
        if reserved.get(&charge.bucket).is_some_and(|kept| now < kept.next) {
            return;
        }
        if reserved.len() >= MAX_RESERVATIONS {
            self.search(&mut reserved, now);
        }
        if reserved.len() < MAX_RESERVATIONS {
            let ends = now.saturating_add(wait).saturating_add(GRACE_US);
            let (cost, since) = (charge.cost_in_tokens(), now);
            let next = ends.saturating_add(turn(charge, cost, share, ends - since));
            reserved.insert(charge.bucket, Reservation { cost, since, ends, next });
        }
        self.count.store(reserved.len(), Ordering::Relaxed);
    }

    /// Removes the reservations of the charges' buckets, which Redis decides on again since `now`.
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

    /// Removes expired reservations, at most once per [`SWEEP_INTERVAL_US`].
    fn search(&self, reserved: &mut HashMap<BucketId, Reservation>, now: u64) {
        if now >= self.search_at.load(Ordering::Relaxed) {
            reserved.retain(|_, kept| now < kept.next);
            self.search_at.store(now.saturating_add(SWEEP_INTERVAL_US), Ordering::Relaxed);
        }
    }

    /// Ends the reservation of the charge's bucket, if the cost of the allowed request is at least
    /// that of the request that reserved it.
    fn end(&self, charge: &Charge, share: Share, now: u64) {
        if self.is_empty() {
            return;
        }
        if let Some(kept) = self.by_bucket.lock().get_mut(&charge.bucket)
            && now < kept.ends
            && charge.cost_in_tokens() >= kept.cost
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
        now < self.ends
            && charge.cost_in_tokens() < self.cost
            && charge.mode == Mode::Enforce
            && !charge.counts_overage()
    }

    /// Denies a charge at `now`. Its latest retry after follows from the outcome: the expensive
    /// request is allowed at the end of the reservation.
    fn deny(&self, charge: &Charge, outcome: &mut Outcome, now: u64) {
        let limit = &charge.limit;
        let until_end = self.ends.saturating_sub(now);
        outcome.enough = false;
        let units = outcome.share.taken(limit, self.cost.in_parts(limit.parts()));
        (outcome.level, outcome.times) = limit.reserved(units, until_end, outcome.times);
    }
}

/// Whether the charge needs a full bucket, so that cheaper requests could starve it.
fn needs_all(charge: &Charge, share: Share) -> bool {
    let limit = &charge.limit;
    let units = share.taken(limit, charge.cost);
    let is_full_needed = share.gateways() > 1 && charge.cost > 1 && units >= limit.full();
    is_full_needed && limit.time_to_earn_us(units).is_some()
}

/// Time in microseconds for which a bucket cannot be reserved again, after cheaper requests
/// `waited` for one of this cost.
fn turn(charge: &Charge, cost: Cost, share: Share, waited: u64) -> u64 {
    let limit = &charge.limit;
    let earned = limit.time_to_earn_us(share.taken(limit, cost.in_parts(limit.parts())));
    earned.unwrap_or(0).max(waited).saturating_mul(2)
}
