//! Gateways over one bucket of any kind, and schedules of outages, for property tests of the bounds
//! of `docs/outages.md`.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::base::now::Now;
use crate::limit::Limit;
use crate::limit::bucket::Bucket;
use crate::limit::charge::{BucketId, Mode, take};
use crate::limit::stamp_log::StampLog;
use crate::store::debts::RemovedDebt;
use crate::store::rule::rule;

/// One step of a schedule.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// This many microseconds pass.
    Wait(u64),
    /// The shared store becomes unavailable to a gateway, or available again.
    Turn(usize),
    /// The same for all gateways.
    TurnAll(bool),
    /// A gateway gets requests of this cost, all at once.
    Ask { gateway: usize, requests: u64, cost: u64 },
    /// A gateway gets a request and no answer of the store in time. `taken`: the store took the
    /// tokens.
    AskTimedOut { gateway: usize, cost: u64, taken: bool },
    /// A gateway decides a request locally, which then reaches no server.
    Fail { gateway: usize, cost: u64 },
    /// What every n-th of those requests took is given back.
    Refund { every: usize },
    /// A gateway restarts. `settles`: it first settles its debts, if the store is available.
    Restart { gateway: usize, settles: bool },
}

/// Gateways over one bucket.
pub(super) struct World {
    pub(super) limit: Limit,
    pub(super) share: Share,
    pub(super) shared: Shared,
    pub(super) gateways: Vec<Fallback>,
    pub(super) is_up: Vec<bool>,
    /// Whether each has reached the shared store since it started.
    pub(super) reached: Vec<Arc<AtomicBool>>,
    pub(super) now: u64,
    /// Requests that reach no server: the gateway, the charge, the time at which it was taken, and
    /// the number of debts that were removed before.
    pub(super) failing: Vec<(usize, Charge, (u64, u64))>,
    /// Times of grants, and units. Without those of requests that reach no server.
    pub(super) granted: Vec<(u64, i64)>,
    /// Times, and the sum over all gateways of the microseconds with a debt since the previous
    /// entry.
    pub(super) less_debt: Vec<(u64, u64)>,
    /// Times at which gateways ended without a settlement, and units of their debts.
    pub(super) lost: Vec<(u64, i64)>,
    /// Times at which gateways restarted, in microseconds.
    pub(super) restarts: Vec<u64>,
}

/// A gateway that starts at `now`.
fn started(limit: Limit, share: Share, reached: &Arc<AtomicBool>, now: u64) -> Fallback {
    let memory = Arc::new(MemoryStore::new(1_000, &[limit]));
    memory.start_empty(share, Arc::clone(reached), now);
    Fallback::new(memory, Arc::new(Debts::new(1_000)))
}

impl World {
    pub(super) fn new(gateways: usize, limit: Limit) -> Self {
        let share = Share::one_of(u32::try_from(gateways).unwrap());
        let reached: Vec<_> = (0..gateways).map(|_| Arc::new(AtomicBool::new(true))).collect();
        Self {
            limit,
            share,
            shared: Shared::full(&limit),
            gateways: reached.iter().map(|reached| started(limit, share, reached, 0)).collect(),
            is_up: vec![true; gateways],
            reached,
            now: 0,
            failing: Vec::new(),
            granted: Vec::new(),
            less_debt: Vec::new(),
            lost: Vec::new(),
            restarts: Vec::new(),
        }
    }

    /// A charge of this many tokens, at most the capacity.
    pub(super) fn charge(&self, cost: u64) -> Charge {
        let (bucket, limit, mode) = (BucketId(7), self.limit, Mode::Enforce);
        let cost = cost.min(limit.capacity()) * limit.parts();
        Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode }
    }

    /// Does what the script does for a call with this charge and the gateway's debts.
    fn call(&mut self, gateway: usize, charge: Charge) -> (Answer, Option<RemovedDebt>) {
        let owed = self.gateways[gateway].debts.remove(charge.bucket, &self.limit, self.now);
        let units = owed.as_ref().map_or(0, |owed| owed.units);
        self.shared.settle(&self.limit, units, self.now);
        (self.shared.take(charge, self.now), owed)
    }

    pub(super) fn ask(&mut self, gateway: usize, cost: u64) {
        let charge = self.charge(cost);
        let answer = if self.is_up[gateway] {
            let (answer, _) = self.call(gateway, charge);
            self.gateways[gateway].learn(&[charge], &answer, self.now, self.now);
            answer
        } else {
            self.gateways[gateway].take(&[charge], &[rule()], self.now, self.share).0
        };
        self.note(&answer, charge);
    }

    pub(super) fn ask_timed_out(&mut self, gateway: usize, cost: u64, taken: bool) {
        let charge = self.charge(cost);
        let bucket = charge.bucket;
        let owed = if taken {
            self.call(gateway, charge).1
        } else {
            self.gateways[gateway].debts.remove(bucket, &self.limit, self.now)
        };
        if let Some(owed) = owed {
            self.gateways[gateway].debts.put_back(owed, self.now);
        }
        let answer = self.gateways[gateway].take(&[charge], &[rule()], self.now, self.share).0;
        self.note(&answer, charge);
    }

    /// A gateway that cannot reach the store allows a request, if it may, which does not pass.
    fn fail(&mut self, gateway: usize, cost: u64) {
        let charge = self.charge(cost);
        if self.is_up[gateway] {
            return;
        }
        let fallback = &self.gateways[gateway];
        let removals = fallback.removals();
        if fallback.take(&[charge], &[rule()], self.now, self.share).0.allowed() {
            self.failing.push((gateway, charge, (self.now, removals)));
        }
    }

    fn refund(&mut self, every: usize) {
        let failing = std::mem::take(&mut self.failing);
        for (number, (gateway, charge, (at, removals))) in failing.into_iter().enumerate() {
            if number % every == 0 {
                self.gateways[gateway].refund(&charge, self.share, at, removals, false, self.now);
            } else {
                self.failing.push((gateway, charge, (at, removals)));
            }
        }
    }

    fn restart(&mut self, gateway: usize, settles: bool) {
        self.failing.retain(|(of, ..)| *of != gateway);
        let (bucket, now) = (self.charge(1).bucket, self.now);
        let owed = self.gateways[gateway].debts.remove(bucket, &self.limit, now);
        let units = owed.map_or(0, |owed| owed.units);
        if settles && self.is_up[gateway] {
            self.shared.settle(&self.limit, units, now);
        } else {
            self.lost.push((now, units));
        }
        self.restarts.push(now);
        self.reached[gateway] = Arc::new(AtomicBool::new(self.is_up[gateway]));
        self.gateways[gateway] = started(self.limit, self.share, &self.reached[gateway], now);
    }

    fn note(&mut self, answer: &Answer, charge: Charge) {
        if answer.allowed() {
            self.granted.push((self.now, self.limit.units(charge.cost)));
        }
    }

    /// A world after these steps.
    pub(super) fn played(gateways: usize, limit: Limit, steps: &[Step]) -> Self {
        let mut world = Self::new(gateways, limit);
        for step in steps {
            world.play(step);
        }
        world
    }

    pub(super) fn play(&mut self, step: &Step) {
        let count = self.gateways.len();
        match *step {
            Step::Wait(us) => {
                let less_debt = self.gateways.iter().filter(|gateway| !gateway.debts.is_empty());
                self.less_debt.push((self.now, us * less_debt.count() as u64));
                self.now += us;
            }
            Step::Turn(gateway) => self.is_up[gateway % count] ^= true,
            Step::TurnAll(up) => self.is_up = vec![up; count],
            Step::Ask { gateway, requests, cost } => {
                (0..requests).for_each(|_| self.ask(gateway % count, cost));
            }
            Step::AskTimedOut { gateway, cost, taken } => {
                self.ask_timed_out(gateway % count, cost, taken);
            }
            Step::Fail { gateway, cost } => self.fail(gateway % count, cost),
            Step::Refund { every } => self.refund(every),
            Step::Restart { gateway, settles } => self.restart(gateway % count, settles),
        }
        for (reached, is_up) in self.reached.iter().zip(&self.is_up) {
            reached.fetch_or(*is_up, Ordering::Relaxed);
        }
    }
}

/// State of the bucket in the shared store.
pub(super) enum Shared {
    /// Of a kind whose state is a level.
    Bucket(Bucket),
    /// Of a sliding window.
    Log(StampLog),
}

impl Shared {
    fn full(limit: &Limit) -> Self {
        match limit.log() {
            Some(_) => Self::Log(StampLog::default()),
            None => Self::Bucket(Bucket::full(limit, Now::unix(0))),
        }
    }

    fn settle(&mut self, limit: &Limit, units: i64, now: u64) {
        match (self, limit.log()) {
            (Self::Log(log), Some(window)) => log.settle(&window, units, now),
            (Self::Bucket(bucket), _) => {
                *bucket = bucket.refilled(limit, Now::unix(now)).less_debt(limit, units);
            }
            (Self::Log(_), None) => unreachable!("the limit does not change"),
        }
    }

    fn take(&mut self, charge: Charge, now: u64) -> Answer {
        match (self, charge.limit.log()) {
            (Self::Log(log), Some(window)) => {
                let mut bucket = [log.bucket(&window, now)];
                let answer = take(&[charge], &mut bucket, Share::WHOLE);
                if answer.allowed() {
                    log.record(&window, bucket[0].level, now);
                }
                answer
            }
            (Self::Bucket(bucket), _) => {
                let mut buckets = [bucket.refilled(&charge.limit, Now::unix(now))];
                let answer = take(&[charge], &mut buckets, Share::WHOLE);
                *bucket = buckets[0];
                answer
            }
            (Self::Log(_), None) => unreachable!("the limit does not change"),
        }
    }
}
