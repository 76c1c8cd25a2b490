//! Adjustments of buckets in Redis by an operator. Each is one call, for which no request waits and
//! which has no effect on the circuit breaker.

use std::sync::Arc;

use redis::ErrorKind;

use super::Batcher;
use super::flight::{LATE_REPLY_TIMEOUT, PendingReply, tokens};
use super::peek::OPERATOR_TIMEOUT;
use crate::base::clock;
use crate::base::duration::micros;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::Charge;
use crate::store::debts::{Debts, RemovedDebt};
use crate::store::redis::script;
use crate::store::rule::StoredRule;

/// A bucket's level before and after, in its limit's units.
pub type LevelChange = (i64, i64);

/// Debt to each charge's bucket.
type SentDebts = Vec<Option<RemovedDebt>>;

/// Why buckets were not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdjusted {
    /// Redis was not called, or has certainly changed nothing.
    Unchanged,
    /// Redis did not answer: it may have changed the buckets.
    Unknown,
    /// The key of this charge's bucket holds another type; the index of the charge. Nothing was
    /// changed.
    Unreadable(usize),
}

impl Batcher {
    /// Adjusts buckets, all of them or none, and settles the debts to them. `rules` are those of
    /// the policy that the charges come from, by index.
    ///
    /// # Errors
    /// See [`NotAdjusted`].
    pub async fn adjust(
        self: &Arc<Self>,
        charges: &[Charge],
        rules: &[StoredRule],
        adjustment: Adjustment,
    ) -> Result<Vec<LevelChange>, NotAdjusted> {
        let encode = || {
            let now = clock::now();
            let statement = |bucket| self.held.statement_to_adjust(bucket, now);
            let is_kept = !matches!(adjustment, Adjustment::GiveBack(_));
            script::encode_adjust(charges, adjustment, now, statement, is_kept)
        };
        let of = charges.to_vec();
        self.call_settling(charges, rules, encode, move |reply| read(&of, reply)).await
    }

    /// Makes a call on the charges' buckets that also settles the debts to them. `read` reads its
    /// reply.
    pub(super) async fn call_settling<T>(
        self: &Arc<Self>,
        charges: &[Charge],
        rules: &[StoredRule],
        encode: impl FnOnce() -> Vec<u8>,
        read: impl Fn(&[i64]) -> Result<T, NotAdjusted> + Send + 'static,
    ) -> Result<T, NotAdjusted> {
        let mut connection = self.link.current().ok_or(NotAdjusted::Unchanged)?;
        let keys = self.keys_of(charges, rules).ok_or(NotAdjusted::Unchanged)?;
        let carried: SentDebts = charges
            .iter()
            .map(|charge| self.debts.remove(charge.bucket, &charge.limit, clock::now()))
            .collect();
        let owed = (0..u16::MAX)
            .zip(&carried)
            .filter_map(|(index, one)| Some((index, one.as_ref()?.units)));
        let packed_debts = script::encode_debts(owed);
        let call = encode();
        let (this, ends) =
            (Arc::clone(self), clock::now().saturating_add(micros(OPERATOR_TIMEOUT)));
        let mut pending: PendingReply = Box::pin(async move {
            this.on_buckets(&mut connection, &keys, (&call, &packed_debts), Some(ends)).await
        });
        let debts = Arc::clone(&self.debts);
        let Ok(reply) = tokio::time::timeout(OPERATOR_TIMEOUT, &mut pending).await else {
            tokio::spawn(settle_late(debts, carried, pending, move |reply| read(reply).is_ok()));
            return Err(NotAdjusted::Unknown);
        };
        let moved = match reply {
            Err(error) if error.kind() == ErrorKind::Io => Err(NotAdjusted::Unknown),
            Err(_) => Err(NotAdjusted::Unchanged),
            Ok(numbers) => read(&numbers),
        };
        if moved.is_err() {
            put_back(&debts, carried);
            return moved;
        }
        for (charge, RemovedDebt { owed, units, .. }) in
            charges.iter().zip(carried).filter_map(|(charge, one)| Some((charge, one?)))
        {
            self.count_settled(&owed.rule.name, tokens(units, &charge.limit));
        }
        moved
    }
}

/// Settles the debts of a call that was not answered in time. Until it is, or its connection is
/// closed, no other call has them, since Redis may have settled them already.
async fn settle_late(
    debts: Arc<Debts>,
    carried: SentDebts,
    pending: PendingReply,
    is_done: impl Fn(&[i64]) -> bool,
) {
    let reply = tokio::time::timeout(LATE_REPLY_TIMEOUT, pending).await;
    if !matches!(&reply, Ok(Ok(numbers)) if is_done(numbers)) {
        put_back(&debts, carried);
    }
}

/// Puts back debts that may not have been settled.
fn put_back(debts: &Debts, carried: SentDebts) {
    for removed in carried.into_iter().flatten() {
        debts.put_back(removed, clock::now());
    }
}

/// Reads the script's reply: the level of each charge's bucket before and after.
fn read(charges: &[Charge], reply: &[i64]) -> Result<Vec<LevelChange>, NotAdjusted> {
    let moved = script::read_adjust(charges, reply).map_err(|_| NotAdjusted::Unknown)?;
    match moved.iter().position(Option::is_none) {
        Some(index) => Err(NotAdjusted::Unreadable(index)),
        None => Ok(moved.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests;
