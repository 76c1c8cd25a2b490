//! Batching: when a check is sent to Redis, and with which others.
//!
//! If no call is in flight, a check is sent at once. Otherwise it waits and is sent in the next call,
//! together with all that wait. So an idle gateway adds no latency, and a busy one makes fewer calls
//! per request. If a call takes long, another one is started in parallel. Batching changes when a
//! check is sent, never how many tokens it may take.
//!
//! Everything is bounded: a call has at most [`script::MAX_CHECKS`] checks, at most [`MAX_CALLS`] calls
//! are in flight, at most [`MAX_WAITING`] checks wait, and none waits longer than the budget.
//!
//! Reading order: this file (from a check to a batch), [`queue`] (which checks wait, when a call starts),
//! `flight` (one call, and the debts that it settles), [`peek`] and [`adjust`] (calls for operators and
//! for clients that read their limits), [`settle`] (all debts at the end of the process).

pub mod adjust;
mod flight;
mod holding;
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
use super::script::{self, Added, Batch, StoredRule};
use crate::clock;
use crate::limit::MICROS_PER_SECOND;
use crate::limit::charge::{self, Answer, BucketId, Charge, Charges};
use crate::store::debts::Debts;
use crate::store::held::{Held, Holds};
use queue::{Bounds, Enqueued, Queue};

/// Maximum number of checks that wait for a call. If Redis does not keep up, further checks are decided
/// locally. Far more than Redis decides within any budget, because local decisions are less exact.
pub const MAX_WAITING: usize = 4_096;

/// Maximum number of calls in flight, so that at most 512 checks are. One is enough while it returns
/// before a full batch waits.
const MAX_CALLS: usize = 4;

/// If a call takes longer than the budget divided by this number, another one is started.
const LONG_CALL_DIVISOR: u64 = 4;

/// Time between two searches for expired debts, in microseconds.
const SWEEP_INTERVAL_US: u64 = 10 * MICROS_PER_SECOND;

/// Sends checks to Redis in batches.
pub struct Batcher {
    link: Arc<Link>,
    prefix: String,
    /// Maximum time that a check may wait, in microseconds.
    budget_us: u64,
    debts: Arc<Debts>,
    held: Arc<Held>,
    series: CallSeries,
    state: Mutex<State>,
}

/// Prometheus series of calls to Redis.
#[derive(Clone, Debug)]
pub struct CallSeries {
    /// Number of calls, by `result`.
    pub calls: IntCounterVec,
    /// Number of checks per call.
    pub checks: Histogram,
    /// Checks that were sent but not answered in time: Redis may have taken their tokens.
    pub ambiguous: IntCounter,
    /// Tokens that were granted locally and settled in Redis, by `rule`.
    pub settled: CounterVec,
    /// Debts that were dropped because `memory.max_buckets` was reached.
    pub dropped: IntCounter,
}

/// Redis' answer to a check.
#[derive(Debug)]
pub struct Answered {
    /// Decision of Redis, with the levels of the buckets after it.
    pub answer: Answer,
    /// Time at which the call was sent, in microseconds of the monotonic clock. Redis decided then or
    /// later.
    pub sent_at: u64,
    /// What the request holds until it ends.
    pub holds: Holds,
}

/// Why Redis has not decided on a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undecided {
    /// It was not called, or has certainly taken no tokens.
    NotTaken,
    /// Keys of some buckets, including these, hold another type. It has taken no tokens.
    Unreadable(Vec<BucketId>),
    /// It did not answer in time. It may have taken the tokens.
    Ambiguous,
}

struct State {
    queue: Queue<Waiting>,
    last_sweep: u64,
}

/// A check that waits for its answer.
struct Waiting {
    charges: Charges,
    rules: Arc<[StoredRule]>,
    since: u64,
    answer: oneshot::Sender<Result<Answered, Undecided>>,
}

impl Waiting {
    fn answer(self, answer: Result<Answered, Undecided>) {
        // The request may have ended.
        let _ = self.answer.send(answer);
    }
}

impl Batcher {
    /// Creates a batcher that sends over `link`. Keys start with `prefix`. No check waits longer than
    /// `budget`. Calls settle `debts` and state `held`.
    pub fn new(
        link: Arc<Link>,
        prefix: String,
        budget: Duration,
        (debts, held): (Arc<Debts>, Arc<Held>),
        series: CallSeries,
    ) -> Arc<Self> {
        let budget = u64::try_from(budget.as_micros()).unwrap_or(MICROS_PER_SECOND);
        let queue = Queue::new(Bounds {
            waiting: MAX_WAITING,
            calls: MAX_CALLS,
            checks: script::MAX_CHECKS,
            long_us: budget / LONG_CALL_DIVISOR,
        });
        let state = Mutex::new(State { queue, last_sweep: 0 });
        Arc::new(Self { link, prefix, budget_us: budget, debts, held, series, state })
    }

    /// Connection that calls are sent on, and its circuit breaker.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Debts that calls carry.
    pub fn debts(&self) -> &Arc<Debts> {
        &self.debts
    }

    /// Units that requests of this process hold, which calls state.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Maximum time that a check may wait.
    pub fn budget(&self) -> Duration {
        Duration::from_micros(self.budget_us)
    }

    /// Decides a check in Redis and takes its tokens. `rules` are those of the policy that the
    /// charges come from, by index.
    ///
    /// # Errors
    /// Redis did not decide within the budget.
    pub async fn take(
        self: &Arc<Self>,
        charges: Charges,
        rules: Arc<[StoredRule]>,
    ) -> Result<Answered, Undecided> {
        if !self.link.admits() {
            return Err(Undecided::NotTaken);
        }
        let (answer, answered) = oneshot::channel();
        let check = Waiting { charges, rules, since: clock::now(), answer };
        if !self.enqueue(check) {
            return Err(Undecided::NotTaken);
        }
        answered.await.unwrap_or(Err(Undecided::NotTaken))
    }

    /// Adds a check to the queue, and starts a call if needed. Returns whether there was room.
    fn enqueue(self: &Arc<Self>, check: Waiting) -> bool {
        let since = check.since;
        let enqueued = self.state.lock().queue.enqueue(check, since);
        if enqueued == Enqueued::Starts {
            self.start();
        }
        enqueued != Enqueued::Full
    }

    /// Starts another call in parallel, if one may be started and a check waits.
    fn start_another(self: &Arc<Self>) {
        if self.state.lock().queue.start_another(clock::now()) {
            self.start();
        }
    }

    /// Runs a call that the queue has counted. In its own task: a client that disconnects must not cancel
    /// the call of others.
    fn start(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).run());
    }

    /// Makes calls until no check waits.
    async fn run(self: Arc<Self>) {
        loop {
            // Lets tasks that are ready enqueue their checks first: above all those that were just
            // answered, which would otherwise be split over twice as many calls.
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

    /// Answers queued checks whose budget is over. Returns the time at which the next one's is.
    fn expire_queued(&self, now: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let is_over = |check: &Waiting| now >= check.since + self.budget_us;
        while let Some(check) = state.queue.pop_front_if(is_over) {
            check.answer(Err(Undecided::NotTaken));
        }
        state.queue.front().map(|check| check.since + self.budget_us)
    }

    fn sweep(&self, state: &mut State, now: u64) {
        if now.saturating_sub(state.last_sweep) >= SWEEP_INTERVAL_US {
            state.last_sweep = now;
            self.debts.sweep(now);
        }
    }

    /// Removes as many waiting checks as fit into one call; `None` if no check waits, or only such as have to wait
    /// for the reply to a call of units that are held. That call sends them afterwards.
    fn next_batch(
        &self,
        waiting: &mut VecDeque<Waiting>,
        now: u64,
    ) -> Option<(Batch, VecDeque<Waiting>)> {
        let mut batch = Batch::default();
        let mut members = VecDeque::with_capacity(waiting.len().min(script::MAX_CHECKS));
        let mut later = VecDeque::new();
        while let Some(check) = waiting.pop_front() {
            // Not sent if its request has ended or its budget is over, so no tokens are taken.
            let late = now.saturating_sub(check.since) >= self.budget_us;
            if late || check.answer.is_closed() {
                check.answer(Err(Undecided::NotTaken));
                continue;
            }
            if charge::has_held(&check.charges) && self.is_asked(&check.charges) {
                later.push_back(check);
                continue;
            }
            match batch.add(&check.charges, &check.rules, &self.prefix) {
                Added::In => members.push_back(check),
                Added::TooLarge => check.answer(Err(Undecided::NotTaken)),
                Added::Full => {
                    waiting.push_front(check);
                    break;
                }
            }
        }
        while let Some(check) = later.pop_back() {
            waiting.push_front(check);
        }
        self.begin_held(&batch, &members);
        (!members.is_empty()).then_some((batch, members))
    }

    /// Whether an unanswered call has checks of one of these buckets whose units are held.
    fn is_asked(&self, charges: &[Charge]) -> bool {
        charges.iter().any(|charge| charge.limit.is_held() && self.held.is_asked(charge.bucket))
    }

    /// Notes that a call with these checks is unanswered from now on.
    fn begin_held(&self, batch: &Batch, members: &VecDeque<Waiting>) {
        if batch.held().next().is_none() {
            return;
        }
        for check in members {
            for charge in check.charges.iter().filter(|charge| charge.limit.is_held()) {
                if let Some(rule) = check.rules.get(charge.rule as usize) {
                    self.held.begin(charge.bucket, charge.limit, rule);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
