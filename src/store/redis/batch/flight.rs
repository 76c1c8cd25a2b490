//! One call in flight: the checks that wait for it, its timeout, and its result.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisResult;
use smallvec::SmallVec;

use super::repair::Repair;
use super::{Answered, Batcher, Gathered, LONG_CALL_DIVISOR, Undecided, Waiting};
use crate::base::clock;
use crate::limit::Limit;
use crate::store::debts::RemovedDebt;
use crate::store::redis::call::{self, Until};
use crate::store::redis::class::ErrorClass;
use crate::store::redis::cluster::redirect::Redirect;
use crate::store::redis::link::Connection;
use crate::store::redis::nodes::CallReply;
use crate::store::redis::script::{Batch, Reply};

/// Debts that a call settles.
type SentDebts = SmallVec<[RemovedDebt; 4]>;

/// A reply that is awaited.
pub(super) type PendingReply = Pin<Box<dyn Future<Output = RedisResult<Vec<i64>>> + Send>>;

/// A reply that is awaited, of a call that another node of a cluster may answer.
type PendingCall = Pin<Box<dyn Future<Output = CallReply> + Send>>;

/// Time after which a reply to a call with debts is no longer awaited. A connection that does not
/// answer is given up long before.
pub(super) const LATE_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

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
        !matches!(self, Self::TimedOut | Self::Failed(ErrorClass::Connection))
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
        let mut pending = self.send(&connection, &batch, slot, sent_at);
        let reply = self.wait(&mut pending, &mut members).await;
        let is_late = reply.is_none();
        let is_own = reply.as_ref().is_some_and(|reply| reply.via.is_none());
        let end = self.read(&connection, &batch, reply);
        self.series.calls.with_label_values(&[end.label()]).inc();
        if is_late && !carried.is_empty() {
            tokio::spawn(Arc::clone(self).settle_late(Arc::clone(&batch), carried, pending));
        } else {
            self.settle(&batch, carried, end.reply());
        }
        match end.reply() {
            Some(reply) => {
                returned.iter().zip(&reply.given).for_each(|(one, given)| one.note_given(*given));
            }
            None if end.is_certain() => self.give_back_again(returned),
            None => {}
        }
        let in_redis = end.reply().map(|reply| batch.units_after(reply));
        let decided_here_at = self.decided_here_at(end.reply(), is_own, members.since);
        members.answer(end, decided_here_at, self);
        // Not earlier: a statement would lack the units that these checks have taken.
        self.end_held(&batch, in_redis);
        asked.end();
    }

    /// Sends a call. Its reply can be awaited for longer than its checks wait.
    fn send(
        &self,
        connection: &Connection,
        batch: &Arc<Batch>,
        slot: u16,
        sent_at: u64,
    ) -> PendingCall {
        let (mut redis, batch, ends) =
            (connection.redis.clone(), Arc::clone(batch), sent_at + self.budget_us);
        let (cluster, clock) = (self.cluster.clone(), self.clock());
        Box::pin(async move {
            let reply = call::take(&mut redis, &batch, Until::RunBy(ends, &clock)).await;
            match (reply, cluster.as_ref().and_then(Weak::upgrade)) {
                (Err(error), Some(cluster)) if Redirect::of(&error).is_some() => {
                    cluster.follow(error, &batch, slot, (redis, clock), ends).await
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

    /// When Redis decided, by the clock of this process: at the latest now. `is_own`: it was this
    /// server.
    fn decided_here_at(&self, reply: Option<&Reply>, is_own: bool, sent_at: u64) -> u64 {
        let now = clock::now();
        match reply {
            Some(reply) if is_own => self.clock.here(reply.decided_at, sent_at..now),
            _ => now,
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

    /// Settles the debts of a call that was not answered in time. Until it is, or its connection is
    /// closed, no other call has its debts, since Redis may have settled them already.
    async fn settle_late(
        self: Arc<Self>,
        batch: Arc<Batch>,
        carried: SentDebts,
        pending: PendingCall,
    ) {
        let late = tokio::time::timeout(LATE_REPLY_TIMEOUT, pending).await;
        let numbers = late.ok().and_then(|late| late.reply.ok());
        let reply = numbers.and_then(|numbers| batch.read(&numbers).ok());
        self.settle(&batch, carried, reply.as_ref());
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
