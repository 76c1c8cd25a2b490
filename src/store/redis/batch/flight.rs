//! One call on its way: who waits for it, for how long, and what its end means.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use smallvec::SmallVec;

use super::{Answered, Batcher, LONG, Undecided, Waiting};
use crate::clock;
use crate::limit::Limit;
use crate::limit::charge::BucketId;
use crate::store::debts::Owed;
use crate::store::redis::call;
use crate::store::redis::class::ErrorClass;
use crate::store::redis::link::Connection;
use crate::store::redis::script::{Batch, Reply};

/// What a call carries off: a bucket, the debt to it, and its units as they were sent.
type Carried = SmallVec<[(BucketId, Owed, i64); 4]>;

/// A reply that may come.
pub(super) type Coming = Pin<Box<dyn Future<Output = RedisResult<Vec<i64>>> + Send>>;

/// How long after its call a reply may say what became of debts. A connection that does not answer
/// is given up long before.
pub(super) const LATEST: Duration = Duration::from_secs(10);

impl Batcher {
    /// One call, and the answers to those who wait for it.
    pub(super) async fn call(self: &Arc<Self>, mut batch: Batch, members: VecDeque<Waiting>) {
        let sent_at = clock::now();
        let Some(line) = self.link.current() else {
            for member in members {
                member.answer(Err(Undecided::NotAsked));
            }
            return;
        };
        let carried = self.carry(&mut batch, sent_at);
        #[allow(clippy::cast_precision_loss, reason = "at most MAX_CHECKS")]
        self.series.checks.observe(batch.len() as f64);
        let mut members = Members { next: 0, waiting: members, since: sent_at };
        let batch = Arc::new(batch);
        let mut coming = self.ask(&line, &batch, sent_at);
        let reply = self.wait(&mut coming, &mut members).await;
        let is_late = reply.is_none();
        let (label, reply) = self.read(&line, &batch, reply);
        self.series.calls.with_label_values(&[label]).inc();
        if is_late && !carried.is_empty() {
            tokio::spawn(Arc::clone(self).settle_late(batch, carried, coming));
        } else {
            self.settle(&batch, carried, reply.as_ref());
        }
        let nothing_taken = label != "timeout" && label != ErrorClass::Connection.label();
        members.answer(reply, nothing_taken);
    }

    /// Sends a call. Its reply may be waited for longer than by those who made it.
    fn ask(&self, line: &Connection, batch: &Arc<Batch>, sent_at: u64) -> Coming {
        let (mut redis, batch, ends) =
            (line.redis.clone(), Arc::clone(batch), sent_at + self.budget);
        Box::pin(async move { call::take(&mut redis, &batch, ends).await })
    }

    /// Adds to a call what is owed to its buckets.
    fn carry(&self, batch: &mut Batch, now: u64) -> Carried {
        let mut carried = Carried::new();
        if self.debts.is_empty() {
            return carried;
        }
        for (bucket, limit, _) in batch.buckets() {
            if let Some((owed, units)) = self.debts.take_out(bucket, &limit, now) {
                carried.push((bucket, owed, units));
            }
        }
        for (bucket, _, units) in &carried {
            batch.owe(*bucket, *units);
        }
        carried
    }

    /// The reply, if it comes within a budget of its own. Whoever has waited for his own does not
    /// wait for that; and once the call takes long, the next one leaves beside it.
    async fn wait(
        self: &Arc<Self>,
        coming: &mut Coming,
        members: &mut Members,
    ) -> Option<RedisResult<Vec<i64>>> {
        let sent_at = members.since;
        let (ends, mut relief) = (sent_at + self.budget, Some(sent_at + self.budget / LONG));
        loop {
            let now = clock::now();
            let expired = members.expire(now, self.budget);
            self.series.ambiguous.inc_by(expired);
            if relief.is_some_and(|relief| now >= relief) {
                relief = None;
                self.start_another();
            }
            if now >= ends {
                return None;
            }
            // Those in line, too: where calls are full and take long, nobody else sees to them.
            let turns = [members.next_deadline(self.budget), relief, self.expire_queued(now)];
            let next = turns.into_iter().flatten().fold(ends, u64::min);
            let pause = tokio::time::sleep(Duration::from_micros(next.saturating_sub(now)));
            tokio::select! {
                biased;
                reply = coming.as_mut() => return Some(reply),
                () = pause => {}
            }
        }
    }

    /// What the end of a call means, in a word and as answers; and tells the link.
    fn read(
        &self,
        line: &Connection,
        batch: &Batch,
        reply: Option<RedisResult<Vec<i64>>>,
    ) -> (&'static str, Option<Reply>) {
        match reply {
            None => {
                self.link.timed_out(line);
                ("timeout", None)
            }
            Some(Err(error)) => (self.link.failed(line, &error).label(), None),
            Some(Ok(numbers)) => {
                if let Ok(reply) = batch.read(&numbers) {
                    self.link.answered(line);
                    ("ok", Some(reply))
                } else {
                    self.link.misled(line);
                    (ErrorClass::Parse.label(), None)
                }
            }
        }
    }

    /// The same for a call that was not answered in time. Until it is, or its connection is given
    /// up, no other call carries its debts: Redis may be at them, and would take them off twice.
    async fn settle_late(self: Arc<Self>, batch: Arc<Batch>, carried: Carried, coming: Coming) {
        let numbers = tokio::time::timeout(LATEST, coming).await;
        let reply = match numbers {
            Ok(Ok(numbers)) => batch.read(&numbers).ok(),
            Ok(Err(_)) | Err(_) => None,
        };
        self.settle(&batch, carried, reply.as_ref());
    }

    /// Counts tokens that were taken off in Redis.
    pub(super) fn count_settled(&self, rule: &str, tokens: f64) {
        self.series.settled.with_label_values(&[rule]).inc_by(tokens);
    }

    /// Debts that may not have been taken off are owed on.
    fn settle(&self, batch: &Batch, carried: Carried, reply: Option<&Reply>) {
        let now = clock::now();
        for (bucket, owed, units) in carried {
            let settled = reply.is_some_and(|reply| !reply.unreadable.contains(&bucket));
            if !settled {
                self.debts.put_back(bucket, owed, now);
                continue;
            }
            if let Some((_, limit, rule)) = batch.buckets().find(|(id, ..)| *id == bucket) {
                self.count_settled(rule, tokens(units, &limit));
            }
        }
    }
}

/// What so many units are worth.
#[allow(clippy::cast_precision_loss, reason = "both are below 2^53")]
pub(super) fn tokens(units: i64, limit: &Limit) -> f64 {
    units as f64 / limit.units(1) as f64
}

/// Those who wait for a call, the oldest first, by their numbers in the batch.
struct Members {
    /// The number of the first who still waits.
    next: usize,
    waiting: VecDeque<Waiting>,
    /// When the call was sent.
    since: u64,
}

impl Members {
    /// When the oldest has waited long enough.
    fn next_deadline(&self, budget: u64) -> Option<u64> {
        self.waiting.front().map(|member| member.since + budget)
    }

    /// Lets those go who have waited long enough. Returns how many.
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

    /// Tells the others what became of their checks.
    fn answer(self, reply: Option<Reply>, nothing_taken: bool) {
        let Reply { answers, unreadable } = reply.unwrap_or_default();
        let undecided = match (nothing_taken, unreadable.is_empty()) {
            (true, true) => Undecided::NotAsked,
            (true, false) => Undecided::Unreadable(unreadable),
            (false, _) => Undecided::Ambiguous,
        };
        let mut answers = answers.into_iter();
        let mut answers = answers.by_ref().skip(self.next);
        for member in self.waiting {
            let answer = answers.next().flatten();
            let answered = answer.map(|answer| Answered { answer, sent_at: self.since });
            member.answer(answered.ok_or_else(|| undecided.clone()));
        }
    }
}
