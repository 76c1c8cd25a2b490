//! Batching: when a check is sent to Redis, and with which others.
//!
//! If no call is in flight, a check is sent at once. Otherwise it waits and is sent in the next
//! call, together with all that wait. So an idle gateway adds no latency, and a busy one makes
//! fewer calls per request. If a call takes long, another one is started in parallel. Batching
//! changes when a check is sent, never how many tokens it may take.
//!
//! Everything is bounded: a call has at most [`script::MAX_CHECKS`] checks, at most [`MAX_CALLS`]
//! calls are in flight, at most [`MAX_WAITING`] checks wait, and none waits longer than the budget.
//!
//! Reading order: this file (from a check to a batch), [`queue`] (which checks wait, when a call
//! starts), `flight` (one call, and the debts that it settles), [`giveback`] (tokens of requests
//! that another slot of a cluster refused), [`peek`], [`adjust`] and `top_up` (calls for operators
//! and for clients that read their limits), `lapsed` (debts of periods that have ended), [`settle`]
//! (all debts at the end of the process).

pub mod adjust;
mod flight;
pub mod giveback;
mod holding;
mod lapsed;
pub mod lease;
pub mod peek;
pub mod queue;
pub mod repair;
pub mod settle;
mod top_up;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use prometheus::{CounterVec, Histogram, IntCounter, IntCounterVec};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::keys::{KeySpace, Keys};
use super::link::Link;
use super::nodes::Nodes;
use super::script::{self, Added, Batch};
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::failure::test_point;
use crate::limit::charge::{self, Answer, BucketId, Charge, Charges};
use crate::policy::redis::Colocate;
use crate::store::debts::Debts;
use crate::store::held::{Held, Holds};
use crate::store::rule::StoredRule;
use giveback::GiveBack;
use holding::AskedBuckets;
use queue::{Bounds, Enqueued, Next, Queue};
use repair::Seen;

/// Maximum number of checks that wait for a call. If Redis does not keep up, further checks are
/// decided locally. Far more than Redis decides within any budget, because local decisions are less
/// exact.
pub const MAX_WAITING: usize = 4_096;

/// Maximum number of calls in flight, so that at most 512 checks are. One is enough while it
/// returns before a full batch waits.
const MAX_CALLS: usize = 4;

/// If a call takes longer than the budget divided by this number, another one is started.
const LONG_CALL_DIVISOR: u64 = 4;

/// Time after the budget at which a check is given up that no call has answered, in microseconds.
const GRACE_US: u64 = 5_000;

/// Time until checks are looked at again that wait for a reply of another master to a call of units
/// that are held, as after their slot has moved.
const ASKED_PAUSE: Duration = Duration::from_millis(1);

/// Sends checks to Redis in batches.
pub struct Batcher {
    link: Arc<Link>,
    keys: Arc<KeySpace>,
    /// The cluster that the server is a master of: it has the address of another one that has a
    /// slot.
    cluster: Option<Weak<Nodes>>,
    /// Maximum time that a check may wait, in microseconds.
    budget_us: u64,
    debts: Arc<Debts>,
    held: Arc<Held>,
    series: CallSeries,
    /// Levels that Redis reported, to repair a replica that takes over; `None` without replicas.
    seen: Option<Arc<Seen>>,
    queue: Mutex<Queue<Queued>>,
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
    /// Tokens that gateways borrowed, by `rule` and `event`.
    pub leased: CounterVec,
    /// Debts that were dropped because `memory.max_buckets` was reached.
    pub dropped: IntCounter,
}

/// Redis' answer to a check.
#[derive(Debug)]
pub struct Answered {
    /// Decision of Redis, with the levels of the buckets after it.
    pub answer: Answer,
    /// Time at which the call was sent, in microseconds of the monotonic clock. Redis decided then
    /// or later.
    pub sent_at: u64,
    /// Unix time of the decision in microseconds, by the clock of Redis.
    pub decided_at: u64,
    /// The same by the monotonic clock of this process, as far as it is known: never before the
    /// call was sent.
    pub decided_here_at: u64,
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

/// Where a batcher sends its calls, and what they carry.
pub struct Target {
    /// Connection that calls are sent on, and its circuit breaker.
    pub link: Arc<Link>,
    /// Names the keys of buckets.
    pub keys: Arc<KeySpace>,
    /// The cluster that it is a master of; `None`: a server by itself.
    pub cluster: Option<Weak<Nodes>>,
    /// Debts that calls settle.
    pub debts: Arc<Debts>,
    /// Units that requests of this process hold, which calls state.
    pub held: Arc<Held>,
    /// What a server that takes over is repaired by; `None`: it is not.
    pub seen: Option<Arc<Seen>>,
}

impl Target {
    /// A server by itself, whose keys begin with `prefix`. It is not repaired.
    pub fn server(link: Arc<Link>, prefix: &str, debts: Arc<Debts>, held: Arc<Held>) -> Self {
        let keys = Arc::new(KeySpace::new(prefix, None, Colocate::Off));
        Self { link, keys, cluster: None, debts, held, seen: None }
    }
}

/// What waits for a call.
enum Queued {
    Check(Waiting),
    GiveBack(GiveBack),
    Settle(Settle),
}

/// A bucket whose debt is to be settled, with the next call.
struct Settle {
    slot: u16,
    charge: Charge,
    rules: Arc<[StoredRule]>,
    /// Time at which it was queued, in microseconds.
    since: u64,
}

impl Queued {
    /// Time at which it was queued, in microseconds.
    fn since(&self) -> u64 {
        match self {
            Self::Check(check) => check.since,
            Self::GiveBack(give_back) => give_back.since,
            Self::Settle(settle) => settle.since,
        }
    }
}

/// One call of the script, and the checks in it, in their order.
#[derive(Default)]
struct Gathered {
    slot: u16,
    /// Bucket, if the slot is being moved: then calls have one bucket each, since keys may be at
    /// two nodes.
    bucket: Option<BucketId>,
    batch: Batch,
    members: VecDeque<Waiting>,
    /// What the call gives back, by bucket.
    returned: Vec<GiveBack>,
    /// Its buckets whose units are held, once it is to be sent.
    asked: AskedBuckets,
}

/// A check that waits for its answer.
struct Waiting {
    /// Hash slot of its buckets in a cluster; otherwise 0.
    slot: u16,
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
    /// Creates a batcher. No check waits longer than `budget`.
    pub fn new(target: Target, budget: Duration, series: CallSeries) -> Arc<Self> {
        let Target { link, keys, cluster, debts, held, seen } = target;
        let budget = u64::try_from(budget.as_micros()).unwrap_or(MICROS_PER_SECOND);
        let queue = Queue::new(Bounds {
            waiting: MAX_WAITING,
            calls: MAX_CALLS,
            checks: script::MAX_CHECKS,
            long_us: budget / LONG_CALL_DIVISOR,
        });
        let queue = Mutex::new(queue);
        Arc::new(Self { link, keys, cluster, budget_us: budget, debts, held, series, seen, queue })
    }

    /// Where its calls are sent, and what they carry.
    pub fn target(&self) -> Target {
        Target {
            link: Arc::clone(&self.link),
            keys: Arc::clone(&self.keys),
            cluster: self.cluster.clone(),
            debts: Arc::clone(&self.debts),
            held: Arc::clone(&self.held),
            seen: self.seen.clone(),
        }
    }

    /// Connection that calls are sent on, and its circuit breaker.
    pub fn link(&self) -> &Arc<Link> {
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
        self.take_in(0, charges, rules).await
    }

    /// Like [`take`](Self::take), in a cluster: all charges are in `slot`.
    ///
    /// # Errors
    /// Redis did not decide within the budget.
    pub async fn take_in(
        self: &Arc<Self>,
        slot: u16,
        charges: Charges,
        rules: Arc<[StoredRule]>,
    ) -> Result<Answered, Undecided> {
        let since = clock::now();
        if self.cluster.is_some() && !self.link.admits() {
            // A master that has just got the slot: its connection is a few milliseconds away.
            self.link.until_first_attempt(self.budget()).await;
        }
        if !self.link.admits() {
            return Err(Undecided::NotTaken);
        }
        let (answer, answered) = oneshot::channel();
        let check = Waiting { slot, charges, rules, since, answer };
        if !self.enqueue(Queued::Check(check)) {
            return Err(Undecided::NotTaken);
        }
        // Calls keep to the budget by themselves. Only if one could not go on, its checks are not
        // answered.
        let left = (since + self.budget_us + GRACE_US).saturating_sub(clock::now());
        let answered = timeout(Duration::from_micros(left), answered).await;
        answered.ok().and_then(Result::ok).unwrap_or(Err(Undecided::Ambiguous))
    }

    /// Settles the debt to a charge's bucket with the next call. If too many checks wait, a later
    /// call of the bucket does.
    pub fn settle_soon(self: &Arc<Self>, slot: u16, charge: Charge, rules: &Arc<[StoredRule]>) {
        let settle = Settle { slot, charge, rules: Arc::clone(rules), since: clock::now() };
        self.enqueue(Queued::Settle(settle));
    }

    /// Adds a check to the queue, and starts a call if needed. Returns whether there was room.
    fn enqueue(self: &Arc<Self>, queued: Queued) -> bool {
        let since = queued.since();
        let enqueued = self.queue.lock().enqueue(queued, since);
        if enqueued == Enqueued::Starts {
            self.start();
        }
        enqueued != Enqueued::Full
    }

    /// Starts another call in parallel, if one may be started and a check waits.
    fn start_another(self: &Arc<Self>) {
        if self.queue.lock().start_another(clock::now()) {
            self.start();
        }
    }

    /// Runs a call that the queue has counted. In its own task: a client that disconnects must not
    /// cancel the call of others.
    fn start(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).run());
    }

    /// Makes calls until no check waits.
    async fn run(self: Arc<Self>) {
        let mut running = Running { batcher: &self, has_ended: false };
        loop {
            // Lets tasks that are ready enqueue their checks first: above all those that were just
            // answered, which would otherwise be split over twice as many calls.
            tokio::task::yield_now().await;
            let now = clock::now();
            let next = self.queue.lock().leave(now, |waiting| self.next_calls(waiting, now));
            let mut calls = match next {
                Next::Sends(calls) => calls,
                Next::Pauses => {
                    tokio::time::sleep(ASKED_PAUSE).await;
                    continue;
                }
                Next::Ends => {
                    running.has_ended = true;
                    return;
                }
            };
            test_point("redis call");
            if calls.len() == 1 {
                if let Some(one) = calls.pop() {
                    self.call(one).await;
                }
            } else {
                // Polled together, so that they are written together.
                let calls = calls.into_iter();
                join_all(calls.map(|one| self.call(one))).await;
            }
        }
    }

    /// Answers queued checks whose budget is over. Returns the time at which the next one's is.
    fn expire_queued(&self, now: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let is_over = |queued: &Queued| now >= queued.since() + self.budget_us;
        while let Some(queued) = queue.pop_front_if(is_over) {
            if let Queued::Check(check) = queued {
                check.answer(Err(Undecided::NotTaken));
            }
        }
        queue.front().map(|queued| queued.since() + self.budget_us)
    }

    /// Removes as many waiting checks as fit into one call, or in a cluster into one call for each
    /// slot; `None` if no check waits, or only such as have to wait for the reply to a call of
    /// units that are held. That call sends them afterwards; if it is one to the master that had
    /// the slot before, a call of this batcher does.
    fn next_calls(&self, waiting: &mut VecDeque<Queued>, now: u64) -> Option<Vec<Gathered>> {
        let mut calls = Calls::default();
        let mut later = VecDeque::new();
        while let Some(queued) = waiting.pop_front() {
            let check = match queued {
                Queued::Check(check) => check,
                Queued::GiveBack(give_back) => {
                    if let Some(rest) = self.gather_give_back(&mut calls, give_back) {
                        waiting.push_front(Queued::GiveBack(rest));
                        break;
                    }
                    continue;
                }
                Queued::Settle(settle) => {
                    if self.gather_settle(&mut calls, &settle) == Added::Full {
                        waiting.push_front(Queued::Settle(settle));
                        break;
                    }
                    continue;
                }
            };
            // Not sent if its request has ended or its budget is over, so no tokens are taken.
            let late = now.saturating_sub(check.since) >= self.budget_us;
            if late || check.answer.is_closed() {
                check.answer(Err(Undecided::NotTaken));
                continue;
            }
            if self.is_asked(&check.charges) {
                later.push_back(Queued::Check(check));
                continue;
            }
            if calls.checks >= script::MAX_CHECKS {
                waiting.push_front(Queued::Check(check));
                break;
            }
            let bucket = self.is_migrating(check.slot).then(|| check.charges.first()).flatten();
            let call = calls.of(check.slot, bucket.map(|charge| charge.bucket));
            match call.batch.add(&check.charges, &check.rules, self.keys()) {
                Added::In => {
                    call.members.push_back(check);
                    calls.checks += 1;
                }
                Added::TooLarge => check.answer(Err(Undecided::NotTaken)),
                Added::Full => {
                    waiting.push_front(Queued::Check(check));
                    break;
                }
            }
        }
        while let Some(check) = later.pop_back() {
            waiting.push_front(check);
        }
        for call in &mut calls.gathered {
            self.begin_held(&call.batch, &call.members);
            call.asked = AskedBuckets::of(&self.held, &call.batch);
        }
        calls.gathered.retain(|call| call.batch.has_buckets());
        (!calls.gathered.is_empty()).then_some(calls.gathered)
    }

    fn keys(&self) -> Keys<'_> {
        self.keys.keys()
    }

    /// Whether a slot of the cluster is being moved.
    fn is_migrating(&self, slot: u16) -> bool {
        let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
        cluster.is_some_and(|cluster| cluster.is_migrating(slot))
    }

    /// Adds what is given back to calls. Returns what they have no room for.
    fn gather_give_back(&self, calls: &mut Calls, give_back: GiveBack) -> Option<GiveBack> {
        let is_migrating = self.is_migrating(give_back.slot);
        let mut rest = Charges::new();
        for (charge, rule, returned) in give_back.each() {
            let call = calls.of(give_back.slot, is_migrating.then_some(charge.bucket));
            let (limit, keys) = (charge.limit, self.keys());
            match call.batch.give_back(charge.bucket, limit, rule, returned, keys) {
                Added::In => call.returned.push(give_back.of(charge)),
                Added::Full | Added::TooLarge => rest.push(*charge),
            }
        }
        give_back.with(rest)
    }

    /// Adds a bucket to a call, which then has its debt.
    fn gather_settle(&self, calls: &mut Calls, settle: &Settle) -> Added {
        let Settle { slot, charge, rules, .. } = settle;
        let Some(rule) = rules.get(charge.rule as usize) else { return Added::TooLarge };
        let call = calls.of(*slot, self.is_migrating(*slot).then_some(charge.bucket));
        call.batch.add_debtor(charge.bucket, charge.limit, rule, self.keys())
    }

    /// Whether an unanswered call has checks of one of these buckets whose units are held.
    fn is_asked(&self, charges: &[Charge]) -> bool {
        charge::held(charges).any(|charge| self.held.is_asked(charge.bucket))
    }

    /// Notes that a call with these checks is unanswered from now on.
    fn begin_held(&self, batch: &Batch, members: &VecDeque<Waiting>) {
        if batch.held().next().is_none() {
            return;
        }
        for check in members {
            for charge in charge::held(&check.charges) {
                if let Some(rule) = check.rules.get(charge.rule as usize) {
                    self.held.begin(charge.bucket, charge.limit, rule);
                }
            }
        }
    }
}

/// The place of a call in the queue. If it is dropped before the call has ended, by a panic,
/// another call takes it.
struct Running<'a> {
    batcher: &'a Arc<Batcher>,
    has_ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let starts = self.batcher.queue.lock().abandon(clock::now());
        // Without a runtime, the process ends.
        if let (true, Ok(runtime)) = (starts, Handle::try_current()) {
            runtime.spawn(Arc::clone(self.batcher).run());
        }
    }
}

/// Calls that are being gathered: one for each slot.
#[derive(Default)]
struct Calls {
    gathered: Vec<Gathered>,
    /// Number of checks in all of them.
    checks: usize,
}

impl Calls {
    /// The call of a slot, or of one bucket in it.
    fn of(&mut self, slot: u16, bucket: Option<BucketId>) -> &mut Gathered {
        let found =
            self.gathered.iter().position(|call| call.slot == slot && call.bucket == bucket);
        let place = found.unwrap_or_else(|| {
            self.gathered.push(Gathered { slot, bucket, ..Gathered::default() });
            self.gathered.len() - 1
        });
        &mut self.gathered[place]
    }
}

#[cfg(test)]
mod tests;
