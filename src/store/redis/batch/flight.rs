//! One call in flight: the checks that wait for it, its timeout, and its result.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisResult;
use smallvec::SmallVec;

use super::giveback::GiveBack;
use super::repair::Repair;
use super::{Answered, Batcher, Gathered, LONG_CALL_DIVISOR, Undecided, Waiting};
use crate::base::clock;
use crate::limit::Limit;
use crate::store::debts::RemovedDebt;
use crate::store::redis::call::{self, Until};
use crate::store::redis::class::{ErrorClass, classify};
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::link::Connection;
use crate::store::redis::nodes::CallReply;
use crate::store::redis::script::{Batch, Reply};
use crate::store::redis::server_clock::ServerClock;

/// Debts that a call settles.
type SentDebts = SmallVec<[RemovedDebt; 4]>;

/// A reply that is awaited.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = RedisResult<Vec<i64>>> + Send>>;

/// A reply that is awaited, of a call that another node of a cluster may answer.
type PendingCall = Pin<Box<dyn Future<Output = CallReply> + Send>>;

/// Time after which a reply to a call with more than checks is no longer awaited. A connection that
/// does not answer is given up long before.
pub(super) const LATE_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a call has besides checks.
struct Extras {
    carried: SentDebts,
    /// What it gives back.
    returned: Vec<GiveBack>,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.carried.is_empty() && self.returned.is_empty()
    }
}

/// How a call ended.
enum CallEnd {
    Answered(Reply),
    TimedOut,
    Failed(ErrorClass),
}

impl CallEnd {
    /// Value of the label `result` of `tollgate_redis_calls_total`.
    fn label(&self) -> &'static str {
        match self {
            Self::Answered(_) => "ok",
            Self::TimedOut => "timeout",
            Self::Failed(class) => class.label(),
        }
    }

    fn reply(&self) -> Option<&Reply> {
        match self {
            Self::Answered(reply) => Some(reply),
            Self::TimedOut | Self::Failed(_) => None,
        }
    }

    /// Whether checks without an answer have certainly taken no tokens.
    fn is_certain(&self) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::TimedOut => false,
            Self::Failed(class) => class.is_without_effect(),
        }
    }
}

impl Batcher {
    /// Makes one call and answers its checks.
    pub(super) async fn call(self: &Arc<Self>, gathered: Gathered) {
        let Gathered { slot, mut batch, members, returned, asked, .. } = gathered;
        let sent_at = clock::now();
        let Some(connection) = self.link.current() else {
            for member in members {
                member.answer(Err(Undecided::NotTaken));
            }
            self.end_held(&batch, None);
            asked.end();
            return;
        };
        let carried = self.carry(&mut batch, sent_at);
        batch.state(|bucket| self.held.statement(bucket, sent_at));
        self.repair(&mut batch, sent_at);
        #[allow(clippy::cast_precision_loss, reason = "at most MAX_CHECKS")]
        self.series.checks.observe(batch.len() as f64);
        let mut members = PendingChecks { next: 0, waiting: members, since: sent_at };
        let batch = Arc::new(batch);
        let mut pending = self.send(&connection, &batch, slot, sent_at + self.budget_us);
        let reply = self.wait(&mut pending, &mut members).await;
        let server =
            reply.as_ref().and_then(|reply| reply.via.as_ref()).map(|via| via.node.batcher());
        let server = Arc::clone(server.unwrap_or(self).link());
        let is_late = reply.is_none();
        let end = self.read(&connection, &batch, reply);
        self.series.calls.with_label_values(&[end.label()]).inc();
        let in_redis = end.reply().map(|reply| batch.units_after(reply));
        let decided_here_at = decided_here_at(end.reply(), server.clock(), members.since);
        let extras = Extras { carried, returned };
        if is_late && !extras.is_empty() {
            tokio::spawn(Arc::clone(self).end_late(Arc::clone(&batch), extras, pending));
        } else {
            self.end_extras(&batch, extras, end.reply(), end.is_certain());
        }
        members.answer(end, decided_here_at, self);
        // Not earlier: a statement would lack the units that these checks have taken.
        self.end_held(&batch, in_redis);
        asked.end();
    }

    /// Sends a call, which the server runs by `ends`. Its reply can be awaited for longer.
    fn send(
        &self,
        connection: &Connection,
        batch: &Arc<Batch>,
        slot: u16,
        ends: u64,
    ) -> PendingCall {
        let (mut redis, batch) = (connection.redis.clone(), Arc::clone(batch));
        let (cluster, link) = (self.cluster.clone(), Arc::clone(&self.link));
        Box::pin(async move {
            let reply = call::take(&mut redis, &batch, Until::RunBy(ends, link.clock())).await;
            match (reply, cluster.as_ref().and_then(Weak::upgrade)) {
                (Err(error), Some(cluster)) if Redirect::of(&error).is_some() => {
                    cluster.follow(error, &batch, slot, (redis, link), ends).await
                }
                (reply, _) => CallReply { reply, via: None },
            }
        })
    }

    /// Adds the debts to its buckets to a call.
    fn carry(&self, batch: &mut Batch, now: u64) -> SentDebts {
        let mut carried = SentDebts::new();
        if self.debts.is_empty() {
            return carried;
        }
        for (bucket, limit, _) in batch.buckets() {
            carried.extend(self.debts.remove(bucket, &limit, now));
        }
        for removed in &carried {
            batch.add_debt(removed.bucket, removed.units);
        }
        carried
    }

    /// Adds the levels that were seen before another server took over.
    fn repair(&self, batch: &mut Batch, now: u64) {
        if let (Some(seen), Some(since)) = (&self.seen, self.link.repairs_since(now)) {
            let repair = Repair { since, sent_at: now, budget_us: self.budget_us };
            batch.claim(|bucket, limit| seen.claim(bucket, limit, &repair));
        }
    }

    /// Levels that a call of another node has to carry if it is redirected to this one, which may
    /// have taken over.
    pub fn encode_claims(&self, batch: &Batch, now: u64) -> Vec<u8> {
        let (Some(seen), Some(since)) = (&self.seen, self.link.repairs_since(now)) else {
            return batch.encode_claims();
        };
        let repair = Repair { since, sent_at: now, budget_us: self.budget_us };
        batch.encode_claims_by(|bucket, limit| seen.claim(bucket, limit, &repair))
    }

    /// Waits for the reply, at most for one budget. Checks whose own budget ends earlier are
    /// answered then. If the call takes long, another one is started in parallel.
    async fn wait(
        self: &Arc<Self>,
        pending: &mut PendingCall,
        members: &mut PendingChecks,
    ) -> Option<CallReply> {
        let sent_at = members.since;
        let (ends, mut next_parallel_start) =
            (sent_at + self.budget_us, Some(sent_at + self.budget_us / LONG_CALL_DIVISOR));
        loop {
            let now = clock::now();
            let expired = members.expire(now, self.budget_us);
            self.series.ambiguous.inc_by(expired);
            if next_parallel_start.is_some_and(|next_parallel_start| now >= next_parallel_start) {
                next_parallel_start = None;
                self.start_another();
            }
            if now >= ends {
                return None;
            }
            // Also queued checks: if all calls are full and take long, nothing else expires them.
            let wakeups = [
                members.next_deadline(self.budget_us),
                next_parallel_start,
                self.expire_queued(now),
            ];
            let next = wakeups.into_iter().flatten().fold(ends, u64::min);
            let pause = tokio::time::sleep(Duration::from_micros(next.saturating_sub(now)));
            tokio::select! {
                biased;
                reply = pending.as_mut() => return Some(reply),
                () = pause => {}
            }
        }
    }

    /// Reads the reply to a call. Reports the result to the circuit breaker.
    fn read(&self, connection: &Connection, batch: &Batch, reply: Option<CallReply>) -> CallEnd {
        let Some(CallReply { reply, via }) = reply else {
            self.link.timed_out(connection);
            return CallEnd::TimedOut;
        };
        let (link, connection) = match &via {
            Some(via) => {
                self.link.answered(connection);
                (via.node.batcher().link(), &via.connection)
            }
            None => (&self.link, connection),
        };
        match reply {
            // The node that has the slot now cannot be called. The one that says so has not failed.
            Err(error) if self.cluster.is_some() && Redirect::of(&error).is_some() => {
                link.answered(connection);
                CallEnd::Failed(ErrorClass::Cluster)
            }
            Err(error) => CallEnd::Failed(link.failed(connection, &error)),
            Ok(numbers) => {
                if let Ok(reply) = batch.read(&numbers) {
                    link.answered(connection);
                    if reply.lacks_right {
                        link.cannot_read_windows();
                    } else if link.misses_windows() && batch.needs_commands() {
                        link.can_read_windows();
                    }
                    CallEnd::Answered(reply)
                } else {
                    link.malformed(connection);
                    CallEnd::Failed(ErrorClass::Parse)
                }
            }
        }
    }

    /// Ends what a call had besides checks that was not answered in time. Until it is, or its
    /// connection is closed, no other call has it, since Redis may have executed it already.
    async fn end_late(self: Arc<Self>, batch: Arc<Batch>, extras: Extras, pending: PendingCall) {
        let late = tokio::time::timeout(LATE_REPLY_TIMEOUT, pending).await;
        let (reply, is_certain) = match late.map(|late| late.reply) {
            Ok(Ok(numbers)) => (batch.read(&numbers).ok(), false),
            Ok(Err(error)) => (None, classify(&error).is_without_effect()),
            Err(_) => (None, false),
        };
        self.end_extras(&batch, extras, reply.as_ref(), is_certain);
    }

    /// Notes what Redis has executed, and queues the rest again. `is_certain`: without a reply,
    /// that is all of it.
    fn end_extras(
        self: &Arc<Self>,
        batch: &Batch,
        extras: Extras,
        reply: Option<&Reply>,
        is_certain: bool,
    ) {
        self.settle(batch, extras.carried, reply);
        match reply {
            Some(reply) => {
                let given = extras.returned.iter().zip(&reply.given);
                given.for_each(|(one, given)| one.note_given(*given));
            }
            None if is_certain => self.give_back_again(extras.returned),
            None => {}
        }
    }

    /// Counts tokens that were settled in Redis.
    pub(super) fn count_settled(&self, rule: &str, tokens: f64) {
        self.series.settled.with_label_values(&[rule]).inc_by(tokens);
    }

    /// Counts settled debts, and puts back those that may not have been settled.
    fn settle(&self, batch: &Batch, carried: SentDebts, reply: Option<&Reply>) {
        let now = clock::now();
        for removed in carried {
            let bucket = removed.bucket;
            let settled = reply.is_some_and(|reply| !reply.unreadable.contains(&bucket));
            if !settled {
                self.debts.put_back(removed, now);
                continue;
            }
            if let Some((_, limit, rule)) = batch.buckets().find(|(id, ..)| *id == bucket) {
                self.count_settled(rule, tokens(removed.units, &limit));
            }
        }
    }
}

/// When Redis decided, by the clock of this process: at the latest now.
fn decided_here_at(reply: Option<&Reply>, server: &ServerClock, sent_at: u64) -> u64 {
    let now = clock::now();
    reply.map_or(now, |reply| server.here(reply.decided_at, sent_at..now))
}

/// Converts units to tokens.
#[allow(clippy::cast_precision_loss, reason = "both are below 2^53")]
pub(super) fn tokens(units: i64, limit: &Limit) -> f64 {
    units as f64 / limit.token_units(1) as f64
}

/// Checks of a call that are not answered yet, the oldest first.
struct PendingChecks {
    /// Number of the first of them in the batch.
    next: usize,
    waiting: VecDeque<Waiting>,
    /// Time at which the call was sent, in microseconds.
    since: u64,
}

impl PendingChecks {
    /// Time at which the budget of the oldest is over.
    fn next_deadline(&self, budget: u64) -> Option<u64> {
        self.waiting.front().map(|member| member.since + budget)
    }

    /// Answers the checks whose budget is over. Returns their number.
    fn expire(&mut self, now: u64, budget: u64) -> u64 {
        let before = self.waiting.len();
        while self.next_deadline(budget).is_some_and(|deadline| now >= deadline)
            && let Some(member) = self.waiting.pop_front()
        {
            member.answer(Err(Undecided::Ambiguous));
            self.next += 1;
        }
        (before - self.waiting.len()) as u64
    }

    /// Answers the remaining checks of a call of this batcher.
    fn answer(self, end: CallEnd, decided_here_at: u64, batcher: &Batcher) {
        let is_certain = end.is_certain();
        let reply = match end {
            CallEnd::Answered(reply) => reply,
            CallEnd::TimedOut | CallEnd::Failed(_) => Reply::default(),
        };
        let Reply { answers, unreadable, decided_at, .. } = reply;
        let undecided = match (is_certain, unreadable.is_empty()) {
            (true, true) => Undecided::NotTaken,
            (true, false) => Undecided::Unreadable(unreadable),
            (false, _) => Undecided::Ambiguous,
        };
        let mut answers = answers.into_iter();
        let mut answers = answers.by_ref().skip(self.next);
        for member in self.waiting {
            let answer = answers.next().flatten();
            let answered = answer.map(|answer| {
                if let Some(seen) = &batcher.seen {
                    seen.note(&member.charges, &answer, self.since, decided_at);
                }
                let holds = batcher.held.hold(&member.charges, &member.rules, &answer);
                Answered { answer, sent_at: self.since, decided_at, decided_here_at, holds }
            });
            member.answer(answered.ok_or_else(|| undecided.clone()));
        }
    }
}
