//! Leases: tokens of a bucket in Redis that this gateway has borrowed, and spends without a call.
//!
//! [`Lease`] is the state of one bucket: what is borrowed, how much of it is left, and how much the
//! gateway needs. Its caller asks for the next [`Step`] every [`STEP_US`], and makes the call that
//! it returns. `lua/take.lua` keeps the units that are lent in the bucket; docs/leases.md says why
//! gateways together never exceed the limit.
//!
//! Units are lent in an epoch, two seconds of Redis' clock, and Redis counts them as lent until the
//! end of the next epoch. This gateway stops spending them [`MARGIN_US`] earlier, by its own clock:
//! it counts from the time at which it sent the call, which is before Redis lent. Until Redis' end,
//! it can still return them.

use crate::base::duration::MICROS_PER_SECOND;

/// Length of an epoch in microseconds.
pub const EPOCH_US: u64 = 2 * MICROS_PER_SECOND;

/// Time between two steps of a lease, in microseconds.
pub const STEP_US: u64 = 50_000;

/// A lease is as large as the demand of the time in which there are this number of requests, so
/// that few of them need a call; but of [`MIN_HORIZON_US`] to [`MAX_HORIZON_US`].
const HORIZON_REQUESTS: u64 = 2_000;

/// See [`HORIZON_REQUESTS`], in microseconds. A few steps.
const MIN_HORIZON_US: u64 = 300_000;

/// See [`HORIZON_REQUESTS`], in microseconds. Less than the shortest life of borrowed units.
const MAX_HORIZON_US: u64 = 800_000;

/// A lease asks for more when it has less than the demand of this time, in microseconds. A few
/// steps, since a busy gateway may be late.
const LOW_US: u64 = 150_000;

/// Units are returned if no request has used the lease for this time, in microseconds.
const IDLE_US: u64 = 200_000;

/// The lease ends if no request has used it for this time, in microseconds.
const END_US: u64 = MICROS_PER_SECOND;

/// Units are returned this time before requests can no longer take them, in microseconds.
const SOON_US: u64 = 150_000;

/// How much earlier than Redis this gateway stops spending, in microseconds. Redis' clock may be
/// set forward by up to a second meanwhile, and this gateway's may be slower.
const MARGIN_US: u64 = MICROS_PER_SECOND + 50_000;

/// Time until the next call after one that lent nothing, in microseconds.
const RETRY_US: u64 = 250_000;

/// Requests in [`START_US`] from which on a lease saves calls.
const START_REQUESTS: u64 = 8;

/// See [`START_REQUESTS`], in microseconds.
const START_US: u64 = 100_000;

/// Fewest requests a second for which a lease is kept.
const MIN_REQUESTS: u64 = 20;

/// Units that Redis has lent in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    epoch: u64,
    /// Units that requests can take.
    unspent: i64,
    /// Units that requests can no longer take. Redis accepts them until [`MARGIN_US`] after
    /// `ends_at`.
    late: i64,
    /// Units that requests took, and that Redis still counts as lent.
    spent: i64,
    /// Time from which on no request takes units, in microseconds of the monotonic clock.
    ends_at: u64,
}

/// A lease of one bucket. All times are in microseconds of the monotonic clock, unless stated
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The older part first. Units of older epochs have expired.
    parts: [Part; 2],
    /// Lowest known level of the bucket in Redis since the last call for units.
    level: i64,
    demand: Demand,
    /// Earliest time of the next call that asks for units.
    ask_at: u64,
    /// Units that are lost, and not yet counted.
    expired: i64,
    is_closed: bool,
}

/// What requests took from a bucket, with or without the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    /// Begin of the current measurement.
    since: u64,
    requests: u64,
    units: i64,
    last_at: u64,
    /// Units and requests in a second, averaged over measurements. No requests: there was no
    /// measurement.
    units_per_s: u64,
    requests_per_s: u64,
}

/// What the owner of a lease does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Makes this call.
    Call(Request),
    /// Drops the lease: it has no units, and no request uses it.
    End,
}

/// What a lease can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// It can borrow, to have at most this number of units.
    Borrow(i64),
    /// It can return units.
    Return,
    /// The store cannot be called.
    Nothing,
}

/// A call for units, and what became of those that were lent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Most units to lend; 0: only returns.
    pub wanted: i64,
    /// Fewest units to lend: fewer would not save a call.
    pub least: i64,
    /// One for each epoch.
    pub accounts: [Account; 2],
}

/// What became of units that were lent in one epoch. Each unit is reported once, whether or not the
/// call succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of the epoch.
    pub epoch: u64,
    /// Units that requests took.
    pub spent: i64,
    /// Units that the bucket gets back.
    pub returned: i64,
}

/// Units that Redis has lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Level of the bucket afterwards.
    pub level: i64,
    /// Number of units; 0: none.
    pub units: i64,
    /// Epoch in which they were lent.
    pub epoch: u64,
    /// Microseconds until Redis no longer counts them as lent.
    pub valid_us: u64,
}

impl Lease {
    /// Takes `units` at `now`. Returns whether the lease had them.
    pub fn take(&mut self, units: i64, now: u64) -> bool {
        self.expire(now);
        if self.is_closed || self.unspent() < units {
            return false;
        }
        let mut missing = units;
        for part in &mut self.parts {
            let taken = part.unspent.min(missing);
            part.unspent -= taken;
            part.spent += taken;
            missing -= taken;
        }
        self.demand.add(units, now);
        true
    }

    /// Puts back units that a request took, but does not use. They are lost if Redis knows already
    /// that they were spent.
    pub fn put_back(&mut self, units: i64, now: u64) {
        self.expire(now);
        let mut left = units;
        for part in self.parts.iter_mut().rev() {
            let back = part.spent.min(left);
            part.spent -= back;
            part.unspent += back;
            left -= back;
        }
        self.expired += left;
        self.expire(now);
        self.demand.remove(units);
    }

    /// Counts a request that took `units` from the bucket in Redis, which had `level` afterwards.
    pub fn note(&mut self, units: i64, level: i64, now: u64) {
        // The reply may be older than that to the last call for units.
        self.level = self.level.min(level);
        self.demand.add(units, now);
    }

    /// Whether a lease would save calls, by the requests until now.
    pub fn is_wanted(&self) -> bool {
        self.demand.requests >= START_REQUESTS
    }

    /// Whether no request used the bucket for a while before `now`, so that another one can have
    /// its place.
    pub const fn is_unused(&self, now: u64) -> bool {
        now.saturating_sub(self.demand.last_at) > START_US
    }

    /// Units that requests can take.
    pub const fn unspent(&self) -> i64 {
        self.parts[0].unspent + self.parts[1].unspent
    }

    /// Units that are neither spent, nor returned, nor lost.
    const fn held(&self) -> i64 {
        self.parts[0].held() + self.parts[1].held()
    }

    /// [`unspent`](Self::unspent) at `now`; 0 if the lease is closed.
    pub fn unspent_at(&mut self, now: u64) -> i64 {
        self.expire(now);
        if self.is_closed { 0 } else { self.unspent() }
    }

    /// Last known level of the bucket in Redis, and what is left of the lease.
    pub const fn available(&self) -> i64 {
        self.level.saturating_add(self.unspent())
    }

    /// No request takes units from now on, and the next steps return them.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether it is closed.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Units that were lost since the last call of this function: most have expired.
    pub const fn take_expired(&mut self) -> i64 {
        std::mem::replace(&mut self.expired, 0)
    }

    /// What to do at `now`. A call has to be followed by [`lent`](Self::lent) or
    /// [`failed`](Self::failed).
    pub fn step(&mut self, means: Means, now: u64) -> Step {
        self.expire(now);
        self.demand.measure(now);
        match means {
            Means::Nothing => {}
            Means::Return => {
                let accounts = self.account(self.target(i64::MAX, now), now);
                if let Some(request) = self.returning(accounts) {
                    return Step::Call(request);
                }
            }
            Means::Borrow(cap) => {
                let target = self.target(cap, now);
                let accounts = self.account(target, now);
                let kept = self.unspent();
                if kept < target.min(self.demand.units_in(LOW_US)) && now >= self.ask_at {
                    let (wanted, least) = (target - kept, self.demand.least());
                    return Step::Call(Request { wanted, least, accounts: self.report(accounts) });
                }
                if let Some(request) = self.returning(accounts) {
                    return Step::Call(request);
                }
            }
        }
        let is_over = self.is_closed || now.saturating_sub(self.demand.last_at) >= END_US;
        if is_over && self.held() == 0 { Step::End } else { Step::Wait }
    }

    /// Units to have at `now`, at most `cap`.
    fn target(&self, cap: i64, now: u64) -> i64 {
        let is_used = !self.is_closed && self.demand.is_worth_it(now);
        if is_used { self.demand.ahead().min(cap) } else { 0 }
    }

    /// The call that only returns units, if there are any.
    fn returning(&mut self, accounts: [Account; 2]) -> Option<Request> {
        let returns = accounts.iter().any(|account| account.returned > 0);
        returns.then(|| Request { wanted: 0, least: 0, accounts: self.report(accounts) })
    }

    /// Adds what a call lent that was sent at `sent_at`.
    pub fn lent(&mut self, loan: Loan, sent_at: u64, now: u64) {
        self.level = loan.level;
        let ends_at = sent_at.saturating_add(loan.valid_us).saturating_sub(MARGIN_US);
        if loan.units <= 0 || ends_at <= now {
            self.failed(now);
        } else {
            self.ask_at = now;
        }
        if loan.units > 0 {
            self.add(Part { epoch: loan.epoch, unspent: loan.units, ends_at, ..Part::default() });
            self.expire(now);
        }
    }

    fn add(&mut self, new: Part) {
        let [older, newer] = &mut self.parts;
        if newer.epoch == new.epoch {
            newer.add(new);
        } else if older.epoch == new.epoch {
            older.add(new);
        } else {
            // The units of an older epoch have expired. If Redis' clock went back, no part is of an
            // older one.
            let kept = if newer.epoch < new.epoch { *newer } else { Part::default() };
            let lost = if newer.epoch < new.epoch { older.held() } else { self.held() };
            self.expired += lost;
            self.parts = [kept, new];
        }
    }

    /// Notes a call that lent nothing, or whose reply is unknown.
    pub const fn failed(&mut self, now: u64) {
        self.ask_at = now.saturating_add(RETRY_US);
    }

    /// Sets aside what requests may not take any more, and drops what Redis no longer accepts.
    fn expire(&mut self, now: u64) {
        for part in &mut self.parts {
            if part.ends_at <= now {
                part.late += std::mem::replace(&mut part.unspent, 0);
            }
            if part.ends_at.saturating_add(MARGIN_US) <= now {
                self.expired += part.late;
                *part = Part { epoch: part.epoch, ..Part::default() };
            }
        }
    }

    /// Removes the units to return, so that about `target` are left: those that requests can no
    /// longer take, or not for long, and those beyond twice the target. Returns one account for
    /// each part.
    fn account(&mut self, target: i64, now: u64) -> [Account; 2] {
        let mut surplus = self.unspent() - target;
        if surplus <= target {
            surplus = 0;
        }
        self.parts.each_mut().map(|part| {
            let is_ending = part.ends_at <= now.saturating_add(SOON_US);
            let returned = if is_ending { part.unspent } else { part.unspent.min(surplus) };
            surplus = (surplus - returned).max(0);
            part.unspent -= returned;
            let late = std::mem::replace(&mut part.late, 0);
            Account { epoch: part.epoch, spent: 0, returned: returned + late }
        })
    }

    /// Completes the accounts by what was spent.
    fn report(&mut self, mut accounts: [Account; 2]) -> [Account; 2] {
        for (account, part) in accounts.iter_mut().zip(&mut self.parts) {
            account.spent = std::mem::replace(&mut part.spent, 0);
        }
        accounts
    }
}

impl Part {
    const fn held(&self) -> i64 {
        self.unspent + self.late
    }

    /// Adds units of the same epoch.
    fn add(&mut self, other: Self) {
        let is_empty = self.held() == 0 && self.spent == 0;
        self.ends_at = if is_empty { other.ends_at } else { self.ends_at.min(other.ends_at) };
        self.unspent += other.unspent;
    }
}

impl Demand {
    fn add(&mut self, units: i64, now: u64) {
        // Before the first step, a measurement is as long as the time in which a lease has to be
        // wanted.
        if self.requests_per_s == 0 && now.saturating_sub(self.since) > START_US {
            *self = Self { since: now, ..Self::default() };
        }
        self.requests += 1;
        self.units = self.units.saturating_add(units);
        self.last_at = self.last_at.max(now);
    }

    /// Forgets a request that took nothing in the end.
    const fn remove(&mut self, units: i64) {
        self.requests = self.requests.saturating_sub(1);
        self.units = if self.units > units { self.units - units } else { 0 };
    }

    /// Ends a measurement, and begins the next one.
    fn measure(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.since).max(STEP_US / 2);
        let per_s = |count: u64| scaled(count, MICROS_PER_SECOND, elapsed);
        let (units, requests) = (per_s(self.units.unsigned_abs()), per_s(self.requests));
        let is_first = self.requests_per_s == 0;
        let average = |was: u64, is: u64| if is_first { is } else { was - was / 4 + is / 4 };
        self.units_per_s = average(self.units_per_s, units);
        self.requests_per_s = average(self.requests_per_s, requests).max(1);
        (self.since, self.requests, self.units) = (now, 0, 0);
    }

    const fn is_worth_it(&self, now: u64) -> bool {
        self.requests_per_s >= MIN_REQUESTS && now.saturating_sub(self.last_at) < IDLE_US
    }

    /// Units of a few requests.
    fn least(&self) -> i64 {
        let units = scaled(self.units_per_s, 4, self.requests_per_s);
        i64::try_from(units).unwrap_or(i64::MAX).max(1)
    }

    /// Units to have for the time ahead.
    fn ahead(&self) -> i64 {
        let us = scaled(HORIZON_REQUESTS, MICROS_PER_SECOND, self.requests_per_s);
        self.units_in(us.clamp(MIN_HORIZON_US, MAX_HORIZON_US))
    }

    /// Units that requests take in this time, in microseconds.
    fn units_in(&self, us: u64) -> i64 {
        i64::try_from(scaled(self.units_per_s, us, MICROS_PER_SECOND)).unwrap_or(i64::MAX)
    }
}

/// `count * factor / divisor`, where a divisor of 0 counts as 1. Saturates.
fn scaled(count: u64, factor: u64, divisor: u64) -> u64 {
    let product = u128::from(count) * u128::from(factor);
    u64::try_from(product / u128::from(divisor.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
pub(crate) mod schedule;
#[cfg(test)]
mod tests;
