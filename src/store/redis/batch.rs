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
pub mod queue;
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
use crate::limit::MICROS_PER_SECOND;
use crate::limit::charge::{Answer, BucketId, Charges};
use crate::store::debts::Debts;
use queue::{Bounds, Enqueued, Queue};

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
const SWEEP: u64 = 10 * MICROS_PER_SECOND;

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
    /// Debts that were dropped because `memory.max_buckets` was reached.
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

struct State {
    queue: Queue<Waiting>,
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
        let budget = u64::try_from(budget.as_micros()).unwrap_or(MICROS_PER_SECOND);
        let queue = Queue::new(Bounds {
            waiting: MAX_WAITING,
            calls: MAX_CALLS,
            checks: script::MAX_CHECKS,
            long: budget / LONG,
        });
        let state = Mutex::new(State { queue, last_sweep: 0 });
        Arc::new(Self { link, prefix, budget, debts, series, state })
    }

    /// Connection that calls are sent on, and its circuit breaker.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Debts that calls carry.
    pub fn debts(&self) -> &Arc<Debts> {
        &self.debts
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
        let since = check.since;
        let enqueued = self.state.lock().queue.enqueue(check, since);
        if enqueued == Enqueued::Starts {
            self.start();
        }
        enqueued != Enqueued::Full
    }

    /// A call beside those under way, if there may be one and a check waits for it.
    fn start_another(self: &Arc<Self>) {
        if self.state.lock().queue.start_another(clock::now()) {
            self.start();
        }
    }

    /// Runs a call that the queue has counted. A task of its own: a client that goes away must not
    /// take the others' call with it.
    fn start(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).run());
    }

    /// Makes calls until nobody waits.
    async fn run(self: Arc<Self>) {
        loop {
            // Whoever is ready to ask comes along: those above all who have just been answered,
            // and would otherwise go half and half in twice as many calls.
            tokio::task::yield_now().await;
            let now = clock::now();
            let gathered = {
                let mut state = self.state.lock();
                self.sweep(&mut state, now);
                state.queue.leave(now, |waiting| self.next_batch(waiting, now))
            };
            let Some((batch, members)) = gathered else { return };
            self.call(batch, members).await;
        }
    }

    /// Tells those in line who have waited long enough that nobody was asked. Returns when the next
    /// of them will have.
    fn expire_queued(&self, now: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let is_over = |check: &Waiting| now >= check.since + self.budget;
        while let Some(check) = state.queue.pop_front_if(is_over) {
            check.answer(Err(Undecided::NotAsked));
        }
        state.queue.front().map(|check| check.since + self.budget)
    }

    fn sweep(&self, state: &mut State, now: u64) {
        if now.saturating_sub(state.last_sweep) >= SWEEP {
            state.last_sweep = now;
            self.debts.sweep(now);
        }
    }

    /// As many of those who wait as fit into one call; `None` if no check waits.
    fn next_batch(
        &self,
        waiting: &mut VecDeque<Waiting>,
        now: u64,
    ) -> Option<(Batch, VecDeque<Waiting>)> {
        let mut batch = Batch::default();
        let mut members = VecDeque::with_capacity(waiting.len().min(script::MAX_CHECKS));
        while let Some(check) = waiting.pop_front() {
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
                    waiting.push_front(check);
                    break;
                }
            }
        }
        (!members.is_empty()).then_some((batch, members))
    }
}

#[cfg(test)]
mod tests;
