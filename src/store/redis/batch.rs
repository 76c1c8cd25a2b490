//! When a check leaves for Redis, and with whom.
//!
//! While no call is under way a check leaves at once; while one is, checks that arrive wait and go
//! together in the next. So an idle gateway adds no latency, and a busy one makes ever fewer calls
//! for a request. This changes when a check is sent, never what it may take.
//!
//! Bounded in every way: a call carries at most [`script::MAX_CHECKS`], a few calls are under way,
//! at most [`MAX_WAITING`] checks wait, and none longer than the budget.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounterVec};
use redis::aio::ConnectionLike;
use tokio::sync::oneshot;

use super::class::ErrorClass;
use super::link::Link;
use super::link::watch::Outcome;
use super::script::{self, Added, Batch, RuleName};
use crate::clock;
use crate::limit::TICKS_PER_SECOND;
use crate::limit::charge::{Answer, Charges};

/// Checks that wait for a call at once. More is a sign that Redis does not keep up: those are
/// decided without it. Far more than Redis decides in anybody's budget, since what is decided
/// without it is not exact; and few enough to be no burden. What travels is bounded by the calls.
pub const MAX_WAITING: usize = 4_096;

/// Calls under way at once. One is enough while it comes back before a full batch has gathered.
const MAX_CALLS: usize = 4;

/// Sends checks to Redis in batches.
pub struct Batcher {
    link: Arc<Link>,
    prefix: String,
    budget: Duration,
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

/// Why Redis has not decided on a check. It may have taken the tokens all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecided;

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

/// A check and whoever waits for it.
struct Waiting {
    charges: Charges,
    rules: Arc<[RuleName]>,
    since: u64,
    answer: oneshot::Sender<Result<Answered, Undecided>>,
}

impl Batcher {
    /// A batcher that sends over `link` and counts in `series`. Keys begin with `prefix`; no check
    /// waits longer than `budget`.
    pub fn new(link: Arc<Link>, prefix: String, budget: Duration, series: CallSeries) -> Arc<Self> {
        Arc::new(Self { link, prefix, budget, series, state: Mutex::default() })
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
        if !self.link.is_up() {
            return Err(Undecided);
        }
        let (answer, answered) = oneshot::channel();
        let check = Waiting { charges, rules, since: clock::now(), answer };
        if !self.enqueue(check) {
            return Err(Undecided);
        }
        answered.await.unwrap_or(Err(Undecided))
    }

    /// Puts a check in line and sees to it that a call goes. Returns whether there was room.
    fn enqueue(self: &Arc<Self>, check: Waiting) -> bool {
        let mut state = self.state.lock();
        if state.waiting.len() >= MAX_WAITING {
            return false;
        }
        state.waiting.push_back(check);
        let full = state.waiting.len() >= script::MAX_CHECKS && state.calls < MAX_CALLS;
        if state.calls == 0 || full {
            state.calls += 1;
            drop(state);
            // A task of its own: a client that goes away must not take the others' call with it.
            tokio::spawn(Arc::clone(self).run());
        }
        true
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
                (batch, members)
            };
            self.call(&batch, members).await;
        }
    }

    /// As many of those who wait as fit into one call.
    fn next_batch(&self, state: &mut State) -> (Batch, Vec<Waiting>) {
        let now = clock::now();
        let mut batch = Batch::default();
        let mut members = Vec::with_capacity(state.waiting.len().min(script::MAX_CHECKS));
        while let Some(check) = state.waiting.pop_front() {
            // Where its client is gone or its time is over, nothing is sent, so nothing is taken.
            let late = now.saturating_sub(check.since) >= ticks(self.budget);
            if late || check.answer.is_closed() {
                let _ = check.answer.send(Err(Undecided));
                continue;
            }
            match batch.add(&check.charges, &check.rules, &self.prefix) {
                Added::In => members.push(check),
                Added::Full if batch.is_empty() => {
                    // Fits into no call at all.
                    let _ = check.answer.send(Err(Undecided));
                }
                Added::Full => {
                    state.waiting.push_front(check);
                    break;
                }
            }
        }
        (batch, members)
    }

    /// One call, and the answers to those who wait for it.
    async fn call(&self, batch: &Batch, members: Vec<Waiting>) {
        let sent_at = clock::now();
        let answers = self.ask(batch, &members, sent_at).await;
        let mut answers = answers.into_iter();
        for member in members {
            let answer = answers.next().flatten().map(|answer| Answered { answer, sent_at });
            let _ = member.answer.send(answer.ok_or(Undecided));
        }
    }

    /// The answers that Redis gives, by the check's number; fewer where it gives none.
    async fn ask(&self, batch: &Batch, members: &[Waiting], now: u64) -> Vec<Option<Answer>> {
        let Some(mut line) = self.link.current() else { return Vec::new() };
        let oldest = members.iter().map(|member| member.since).min().unwrap_or(now);
        let waited = Duration::from_micros(now.saturating_sub(oldest));
        let left = self.budget.saturating_sub(waited);
        let reply = tokio::time::timeout(left, evaluate(&mut line.redis, batch)).await;
        let (label, answers) = match reply {
            Err(_) => {
                line.note(Outcome::TimedOut);
                ("timeout", Vec::new())
            }
            Ok(Err(error)) => (self.link.failed(&line, &error).label(), Vec::new()),
            Ok(Ok(reply)) => {
                if let Ok(answers) = batch.answers(&reply) {
                    line.note(Outcome::Answered);
                    ("ok", answers)
                } else {
                    line.note(Outcome::Failed(ErrorClass::Parse));
                    (ErrorClass::Parse.label(), Vec::new())
                }
            }
        };
        self.series.calls.with_label_values(&[label]).inc();
        #[allow(clippy::cast_precision_loss, reason = "at most MAX_CHECKS")]
        self.series.checks.observe(batch.len() as f64);
        answers
    }
}

/// Runs the script. Where Redis does not know it (a restart, `SCRIPT FLUSH`), it is sent along:
/// one more round trip, once, and no other command than the one that the next master needs too.
async fn evaluate(
    connection: &mut impl ConnectionLike,
    batch: &Batch,
) -> redis::RedisResult<Vec<i64>> {
    let asked = batch.asked();
    let command = |name: &str, script: &str| {
        let mut command = redis::cmd(name);
        command.arg(script).arg(batch.keys().len());
        for key in batch.keys() {
            command.arg(key);
        }
        command.arg("").arg(asked.as_slice());
        command
    };
    let reply = command("EVALSHA", &script::SHA).query_async(connection).await;
    match reply {
        Err(error)
            if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript) =>
        {
            command("EVAL", script::SOURCE).query_async(connection).await
        }
        reply => reply,
    }
}

/// A length of time in ticks.
fn ticks(budget: Duration) -> u64 {
    u64::try_from(budget.as_micros()).unwrap_or(TICKS_PER_SECOND)
}

mod peek;

#[cfg(test)]
mod tests;
