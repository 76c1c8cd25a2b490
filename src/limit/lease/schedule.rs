//! Random schedules of gateways that share a bucket and borrow from it, and the judge of what they
//! admit.

use proptest::prelude::*;

use super::{Account, Lease, Loan, Request};
use crate::base::duration::MICROS_PER_SECOND;
use crate::limit::token_bucket::TokenBucket;

/// Number of gateways.
const GATEWAYS: usize = 4;

/// The bucket in Redis, at times of Redis' clock.
pub(crate) trait SharedBucket {
    /// Takes `units` as often as there are some, at most `count` times. Returns how often.
    fn take(&mut self, units: i64, count: u64, now: u64) -> u64;
    fn lend(&mut self, request: &Request, divisor: i64, now: u64) -> Loan;
    /// Gives back units that were taken at `taken_at`.
    fn give_back(&mut self, units: i64, taken_at: u64, now: u64);
}

/// One event of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Time passes, in microseconds.
    Pass(u64),
    /// Redis' clock is this much slow from now on, in microseconds.
    SetClock(u64),
    /// A gateway gets requests, and takes the tokens from its lease or from the bucket.
    Requests { gateway: usize, count: u64 },
    /// A token is taken from the bucket for a request that another slot of a cluster refuses.
    Refused,
    /// Such a token is given back.
    GiveBack { token: prop::sample::Index },
    /// A gateway takes a token and puts it back, since another limit refuses the request.
    PutBack { gateway: usize },
    /// A gateway sends a call: for a part of the burst, returning a part of its lease.
    Send { gateway: usize, wanted: f64, returned: f64 },
    /// A gateway borrows a part of the burst at once.
    Borrow { gateway: usize, wanted: f64 },
    /// A call reaches Redis. It may be an old one.
    Arrive { call: prop::sample::Index, divisor: i64 },
    /// A reply reaches its gateway, unless it is lost.
    Reply { call: prop::sample::Index },
    /// A gateway is killed, and starts anew.
    Die { gateway: usize },
}

/// A schedule, and its limit.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) limit: TokenBucket,
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    gateway: usize,
    generation: u32,
    sent_at: u64,
    request: Request,
    loan: Option<Loan>,
}

/// A bucket that counts every token when it is admitted. It is never below zero if and only if at
/// most the burst, and what the rate yields in the span, is admitted in every span of time.
#[derive(Debug)]
struct Judge {
    limit: TokenBucket,
    level: i64,
    /// Lowest level.
    lowest: i64,
}

impl Judge {
    fn pass(&mut self, us: u64) {
        self.level = self.level.saturating_add(self.limit.units_in(us)).min(self.limit.full());
    }

    fn admit(&mut self, units: i64) {
        self.level -= units;
        self.lowest = self.lowest.min(self.level);
    }
}

/// Runs a schedule. Returns by how many units it exceeds the limit in some span of time.
pub(crate) fn excess(schedule: &Schedule, bucket: &mut impl SharedBucket) -> i64 {
    let limit = schedule.limit;
    let one = limit.units(limit.parts());
    let mut judge = Judge { limit, level: limit.full(), lowest: 0 };
    let mut leases: [Lease; GATEWAYS] = Default::default();
    let mut generations = [0_u32; GATEWAYS];
    let (mut calls, mut refused): (Vec<Call>, Vec<u64>) = Default::default();
    let (mut now, mut slow) = (1_000 * MICROS_PER_SECOND, 0_u64);
    for event in &schedule.events {
        match *event {
            Event::Pass(us) => {
                now += us;
                judge.pass(us);
            }
            Event::SetClock(by) => {
                // Setting a clock forward looks like elapsed time.
                judge.pass(slow.saturating_sub(by));
                slow = by;
            }
            Event::Requests { gateway, count } => {
                let mut left = count;
                while left > 0 && leases[gateway].take(one, now) {
                    judge.admit(one);
                    left -= 1;
                }
                if left > 0 {
                    judge.admit(one * bucket.take(one, left, now - slow).cast_signed());
                }
            }
            Event::Refused => {
                if bucket.take(one, 1, now - slow) > 0 {
                    refused.push(now - slow);
                }
            }
            Event::GiveBack { token } => {
                if !refused.is_empty() {
                    let taken_at = refused.remove(token.index(refused.len()));
                    bucket.give_back(one, taken_at, now - slow);
                }
            }
            Event::PutBack { gateway } => {
                if leases[gateway].take(one, now) {
                    leases[gateway].put_back(one, now);
                }
            }
            Event::Send { gateway, wanted, returned } => {
                let request = request(&mut leases[gateway], &limit, wanted, returned, now);
                let generation = generations[gateway];
                calls.push(Call { gateway, generation, sent_at: now, request, loan: None });
            }
            Event::Borrow { gateway, wanted } => {
                let request = request(&mut leases[gateway], &limit, wanted, 0.0, now);
                leases[gateway].lent(bucket.lend(&request, 1, now - slow), now, now);
            }
            Event::Arrive { call, divisor } => {
                arrive(&mut calls, call, divisor, bucket, now - slow);
            }
            Event::Reply { call } => reply(&mut calls, call, &mut leases, &generations, now),
            Event::Die { gateway } => {
                leases[gateway] = Lease::default();
                generations[gateway] += 1;
            }
        }
    }
    -judge.lowest
}

/// A call that has not reached the bucket reaches it.
fn arrive(
    calls: &mut [Call],
    call: prop::sample::Index,
    divisor: i64,
    bucket: &mut impl SharedBucket,
    now: u64,
) {
    let mut waiting: Vec<&mut Call> = calls.iter_mut().filter(|call| call.loan.is_none()).collect();
    if !waiting.is_empty() {
        let call = call.index(waiting.len());
        waiting[call].loan = Some(bucket.lend(&waiting[call].request, divisor, now));
    }
}

/// The reply to a call reaches its gateway, unless that was killed.
fn reply(
    calls: &mut Vec<Call>,
    call: prop::sample::Index,
    leases: &mut [Lease],
    generations: &[u32],
    now: u64,
) {
    let answered: Vec<usize> = (0..calls.len()).filter(|at| calls[*at].loan.is_some()).collect();
    if !answered.is_empty() {
        let call = calls.remove(*call.get(&answered));
        let is_same = generations[call.gateway] == call.generation;
        if let Some(loan) = call.loan.filter(|_| is_same) {
            leases[call.gateway].lent(loan, call.sent_at, now);
        }
    }
}

/// A call that returns a part of each part of the lease.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn request(
    lease: &mut Lease,
    limit: &TokenBucket,
    wanted: f64,
    returned: f64,
    now: u64,
) -> Request {
    lease.expire(now);
    let accounts = lease.parts.each_mut().map(|part| {
        let returned = (part.unspent as f64 * returned) as i64;
        part.unspent -= returned;
        let late = std::mem::replace(&mut part.late, 0);
        Account { epoch: part.epoch, spent: 0, returned: returned + late }
    });
    let wanted = (limit.full() as f64 * wanted) as i64;
    Request { wanted, least: 1, accounts: lease.report(accounts) }
}

fn event() -> impl Strategy<Value = Event> {
    let gateway = 0..GATEWAYS;
    let part = prop_oneof![2 => Just(0.0), 2 => 0.0..0.3_f64, 1 => Just(1.0)];
    let call = any::<prop::sample::Index>;
    prop_oneof![
        2 => (0..60_000_u64).prop_map(Event::Pass),
        5 => (0..1_500_000_u64).prop_map(Event::Pass),
        3 => (0..20_000_000_u64).prop_map(Event::Pass),
        1 => prop_oneof![2 => Just(0), 1 => 0..1_000_000_u64].prop_map(Event::SetClock),
        2 => (gateway.clone(), 0..12_u64).prop_map(|(gateway, count)| Event::Requests { gateway, count }),
        4 => (gateway.clone(), 60..80_u64).prop_map(|(gateway, count)| Event::Requests { gateway, count }),
        1 => gateway.clone().prop_map(|gateway| Event::PutBack { gateway }),
        1 => Just(Event::Refused),
        1 => call().prop_map(|token| Event::GiveBack { token }),
        4 => (gateway.clone(), 0.1..0.3_f64)
            .prop_map(|(gateway, wanted)| Event::Borrow { gateway, wanted }),
        4 => (gateway.clone(), 0.0..0.4_f64, part)
            .prop_map(|(gateway, wanted, returned)| Event::Send { gateway, wanted, returned }),
        4 => (call(), 1..4_i64).prop_map(|(call, divisor)| Event::Arrive { call, divisor }),
        4 => call().prop_map(|call| Event::Reply { call }),
        1 => gateway.prop_map(|gateway| Event::Die { gateway }),
    ]
}

/// Schedules of at most so many events, with limits that their requests reach.
pub(crate) fn schedule(events: usize) -> impl Strategy<Value = Schedule> {
    let limit = (1..20_u64, prop_oneof![Just(1_000_000_u64), 300_000..3_000_000_u64], 4..60_u64);
    let limit =
        limit.prop_map(|(tokens, period, burst)| TokenBucket::new(tokens, period, burst).unwrap());
    (limit, prop::collection::vec(event(), 10..events))
        .prop_map(|(limit, events)| Schedule { limit, events })
}
