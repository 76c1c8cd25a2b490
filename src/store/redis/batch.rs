//! When a check leaves for Redis, and with whom.
//!
//! While no call is under way a check leaves at once; while one is, checks that arrive wait and go
//! together in the next. So an idle gateway adds no latency, and a busy one makes ever fewer calls
//! for a request. A call that takes long is not waited for: others go beside it. This changes when
//! a check is sent, never what it may take.
//!
//! Bounded in every way: a call carries at most [`script::MAX_CHECKS`], a few calls are under way,
//! at most [`MAX_WAITING`] checks wait, and none longer than the budget.

pub mod adjust;
mod flight;
pub mod peek;
pub mod settle;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{CounterVec, Histogram, IntCounter, IntCounterVec};
use tokio::sync::oneshot;

use super::link::Link;
use super::script::{self, Added, Batch, RuleName};
use crate::clock;
use crate::limit::TICKS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charges};
use crate::store::debts::Debts;

/// Checks that wait for a call at once. More is a sign that Redis does not keep up: those are
/// decided without it. Far more than Redis decides in anybody's budget, since what is decided
/// without it is not exact; and few enough to be no burden. What travels is bounded by the calls.
pub const MAX_WAITING: usize = 4_096;

/// Calls under way at once, so that at most 512 checks are. One is enough while it comes back before
/// a full batch has gathered.
const MAX_CALLS: usize = 4;

/// The part of the budget after which a call counts as long: the next one leaves beside it.
const LONG: u64 = 4;

/// How often debts that have shrunk to nothing are forgotten, in ticks.
const SWEEP: u64 = 10 * TICKS_PER_SECOND;

/// Sends checks to Redis in batches.
pub struct Batcher {
    link: Arc<Link>,
    prefix: String,
    /// The most that a check may wait, in ticks.
    budget: u64,
    debts: Arc<Debts>,
    series: CallSeries,
    state: Mutex<State>,
}

/// What is counted of calls.
#[derive(Clone, Debug)]
pub struct CallSeries {
    /// By `result`.
    pub calls: IntCounterVec,
    /// How many checks each carried.
    pub checks: Histogram,
    /// Checks that were sent and not answered in time: Redis may have taken their tokens.
    pub ambiguous: IntCounter,
    /// Tokens granted alone and taken off in Redis, by `rule`.
    pub settled: CounterVec,
    /// Debts that were dropped for want of room.
    pub dropped: IntCounter,
}

/// A check's answer, and when its call was sent: what a refusal's wait counts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// When the call was sent, in ticks of this process' clock: Redis decided at this instant or
    /// later.
    pub sent_at: u64,
}

/// Why Redis has not decided on a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// It was not asked, or said that it has not taken anything.
    NotAsked,
    /// Keys of another type stand in the place of some buckets, these among them. It has not taken
    /// anything.
    Unreadable(Vec<BucketId>),
    /// It was asked and did not answer in time. It may have taken the tokens.
    Ambiguous,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    calls: usize,
    /// When the last call was sent.
    last_sent: u64,
    last_sweep: u64,
}

/// A check and whoever waits for it.
struct Waiting {
    charges: Charges,
    rules: Arc<[RuleName]>,
    since: u64,
    answer: oneshot::Sender<Result<Answered, Undecided>>,
}

impl Waiting {
    fn answer(self, answer: Result<Answered, Undecided>) {
        // Whoever asked may be gone.
        let _ = self.answer.send(answer);
    }
}

impl Batcher {
    /// A batcher that sends over `link` and counts in `series`. Keys begin with `prefix`; no check
    /// waits longer than `budget`. Calls carry what is owed by `debts`.
    pub fn new(
        link: Arc<Link>,
        prefix: String,
        budget: Duration,
        debts: Arc<Debts>,
        series: CallSeries,
    ) -> Arc<Self> {
        let budget = u64::try_from(budget.as_micros()).unwrap_or(TICKS_PER_SECOND);
        Arc::new(Self { link, prefix, budget, debts, series, state: Mutex::default() })
    }

    /// Whom it asks.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The most that a check may wait.
    pub fn budget(&self) -> Duration {
        Duration::from_micros(self.budget)
    }

    /// Decides a check in Redis and takes its tokens. `rules` are those of the policy that the
    /// charges come from, by index.
    ///
    /// # Errors
    /// Redis has not decided within the budget, for whatever reason.
    pub async fn take(
        self: &Arc<Self>,
        charges: Charges,
        rules: Arc<[RuleName]>,
    ) -> Result<Answered, Undecided> {
        if !self.link.admits() {
            return Err(Undecided::NotAsked);
        }
        let (answer, answered) = oneshot::channel();
        let check = Waiting { charges, rules, since: clock::now(), answer };
        if !self.enqueue(check) {
            return Err(Undecided::NotAsked);
        }
        answered.await.unwrap_or(Err(Undecided::NotAsked))
    }

    /// Puts a check in line and sees to it that a call goes. Returns whether there was room.
    fn enqueue(self: &Arc<Self>, check: Waiting) -> bool {
        let mut state = self.state.lock();
        if state.waiting.len() >= MAX_WAITING {
            return false;
        }
        let takes_long = check.since.saturating_sub(state.last_sent) >= self.budget / LONG;
        state.waiting.push_back(check);
        if state.calls == 0 || takes_long || state.waiting.len() >= script::MAX_CHECKS {
            self.send_one_more(&mut state);
        }
        true
    }

    /// A call beside those under way, if there may be one and somebody waits for it.
    fn send_one_more(self: &Arc<Self>, state: &mut State) {
        if state.calls < MAX_CALLS && !state.waiting.is_empty() {
            state.calls += 1;
            state.last_sent = clock::now();
            // A task of its own: a client that goes away must not take the others' call with it.
            tokio::spawn(Arc::clone(self).run());
        }
    }

    /// Makes calls until nobody waits.
    async fn run(self: Arc<Self>) {
        loop {
            // Whoever is ready to ask comes along: those above all who have just been answered,
            // and would otherwise go half and half in twice as many calls.
            tokio::task::yield_now().await;
            let (batch, members) = {
                let mut state = self.state.lock();
                let (batch, members) = self.next_batch(&mut state);
                if members.is_empty() {
                    state.calls -= 1;
                    return;
                }
                state.last_sent = clock::now();
                (batch, members)
            };
            self.call(batch, members).await;
        }
    }

    /// Tells those in line who have waited long enough that nobody was asked. Returns when the next
    /// of them will have.
    fn expire_queued(&self, now: u64) -> Option<u64> {
        let mut state = self.state.lock();
        while let Some(check) = state.waiting.front() {
            let ends = check.since + self.budget;
            if now < ends {
                return Some(ends);
            }
            if let Some(check) = state.waiting.pop_front() {
                check.answer(Err(Undecided::NotAsked));
            }
        }
        None
    }

    /// As many of those who wait as fit into one call.
    fn next_batch(&self, state: &mut State) -> (Batch, VecDeque<Waiting>) {
        let now = clock::now();
        if now.saturating_sub(state.last_sweep) >= SWEEP {
            state.last_sweep = now;
            self.debts.sweep(now);
        }
        let mut batch = Batch::default();
        let mut members = VecDeque::with_capacity(state.waiting.len().min(script::MAX_CHECKS));
        while let Some(check) = state.waiting.pop_front() {
            // Where its client is gone or its time is over, nothing is sent, so nothing is taken.
            let late = now.saturating_sub(check.since) >= self.budget;
            if late || check.answer.is_closed() {
                check.answer(Err(Undecided::NotAsked));
                continue;
            }
            match batch.add(&check.charges, &check.rules, &self.prefix) {
                Added::In => members.push_back(check),
                Added::TooLarge => check.answer(Err(Undecided::NotAsked)),
                Added::Full => {
                    state.waiting.push_front(check);
                    break;
                }
            }
        }
        (batch, members)
    }
}

#[cfg(test)]
mod tests;
