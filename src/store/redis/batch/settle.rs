//! Settlement of all debts at the end of the process. They are only in its memory.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Batcher;
use super::flight::tokens;
use super::peek::OPERATOR_TIMEOUT;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::store::debts::{Debts, InFlightSum, RemovedDebt};
use crate::store::redis::call::{self, Until};
use crate::store::redis::script::{Added, Batch};

/// Result of a settlement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settlement {
    /// Debts that were settled in Redis.
    pub settled: Sum,
    /// Debts that were not settled, or may not have been.
    pub lost: Sum,
    /// Why some debts were not settled; `None` if all were.
    pub why: Option<String>,
}

/// Sum of several debts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// Number of buckets with a debt.
    pub buckets: usize,
    /// Tokens of all debts together.
    pub tokens: f64,
}

/// Time after a redirection until debts are sent again.
const REDIRECT_PAUSE: Duration = Duration::from_millis(5);

impl Settlement {
    /// Adds another one.
    pub(in crate::store::redis) fn add(&mut self, other: Self) {
        self.settled = self.settled.and(other.settled);
        self.lost = self.lost.and(other.lost);
        self.why = self.why.take().or(other.why);
    }
}

impl Sum {
    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { buckets: self.buckets + other.buckets, tokens: self.tokens + other.tokens }
    }

    /// Sum of these debts, also of those in calls that are not answered.
    pub fn of(debts: &Debts) -> Self {
        let InFlightSum { debts: buckets, tokens } = debts.in_flight();
        let mut sum = Self { buckets, tokens };
        let now = clock::now();
        for removed in debts.take_some(usize::MAX, now, |_, _| true) {
            sum.add(&removed);
            debts.put_back(removed, now);
        }
        sum
    }

    /// Number of tokens, rounded.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of tokens, for people who read it"
    )]
    pub fn whole_tokens(self) -> u64 {
        self.tokens.round() as u64
    }

    fn add(&mut self, removed: &RemovedDebt) {
        self.buckets += 1;
        self.tokens += tokens(removed.units, &removed.owed.debt.limit());
    }
}

impl Batcher {
    /// Makes one call. In a cluster, all debts are to buckets of one slot. The result has why no
    /// further call is made.
    pub(in crate::store::redis) async fn settle_some(
        &self,
        taken: Vec<RemovedDebt>,
        ends: Instant,
    ) -> (Settlement, Result<(), String>) {
        let mut settlement = Settlement::default();
        let Some(mut connection) = self.link.current() else {
            self.put_back(taken);
            return (settlement, Err("Redis is unavailable".to_owned()));
        };
        let mut batch = Batch::default();
        let (taken, left): (Vec<_>, Vec<_>) = taken.into_iter().partition(|removed| {
            let RemovedDebt { bucket, owed, units, .. } = removed;
            let limit = owed.debt.limit();
            batch.settle(*bucket, limit, &owed.rule, *units, self.keys()) == Added::In
        });
        self.put_back(left);
        let ends = ends.min(Instant::now() + OPERATOR_TIMEOUT);
        // Also later: nothing else settles them.
        let until = Until::SentBy(clock::now() + MICROS_PER_SECOND);
        let call = call::take(&mut connection.redis, &batch, until);
        let reply = match timeout_at(ends, call).await {
            Ok(Ok(numbers)) => batch.read(&numbers).map_err(|error| error.to_string()),
            Ok(Err(error)) if error.is_io_error() => Err(self.link.describe(&error)),
            Ok(Err(error)) => {
                let first = taken.first();
                let slot = first.map(|first| self.keys().slot(first.bucket, &first.owed.rule));
                self.put_back(taken);
                let cluster = self.cluster.as_ref().and_then(Weak::upgrade);
                if let (Some(cluster), Some(slot)) = (cluster, slot)
                    && cluster.note_redirect(&error, slot)
                {
                    // They are settled at the master that has the slot now.
                    tokio::time::sleep(REDIRECT_PAUSE).await;
                    return (settlement, Ok(()));
                }
                let why = format!("Redis says: {}", self.link.describe(&error));
                return (settlement, Err(why));
            }
            Err(_) => Err("Redis does not answer".to_owned()),
        };
        for removed in &taken {
            let RemovedDebt { bucket, owed, units, .. } = removed;
            match &reply {
                Ok(reply) if !reply.unreadable.contains(bucket) => {
                    settlement.settled.add(removed);
                    self.count_settled(&owed.rule.name, tokens(*units, &owed.debt.limit()));
                }
                Ok(_) => {
                    settlement.lost.add(removed);
                    settlement.why =
                        Some("a key holds another type of value than a bucket".to_owned());
                }
                Err(_) => settlement.lost.add(removed),
            }
        }
        (settlement, reply.map(drop))
    }

    pub(in crate::store::redis) fn put_back(&self, taken: Vec<RemovedDebt>) {
        let now = clock::now();
        for removed in taken {
            self.debts.put_back(removed, now);
        }
    }
}

#[cfg(test)]
mod tests;
