//! Buckets in Redis, changed by hand. One call of its own, which is not waited for by any request
//! and says nothing to the breaker.

use std::sync::Arc;

use redis::ErrorKind;

use super::Batcher;
use super::flight::{Coming, LATEST};
use super::peek::OPERATOR_TIMEOUT;
use crate::clock;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{BucketId, Charge};
use crate::store::debts::{Debts, Owed};
use crate::store::redis::call;
use crate::store::redis::script::{self, RuleName};

/// A bucket's level before and after, in its limit's units.
pub type Moved = (i64, i64);

/// What is owed to each charge's bucket, and how much of it was sent along.
type Carried = Vec<Option<(BucketId, Owed, i64)>>;

/// Why buckets were not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdjusted {
    /// Redis was not asked, or said that it has done nothing.
    NotAsked,
    /// Redis was asked and did not answer: it may have done it.
    Unknown,
    /// Something else stands in the place of the bucket of this charge, by its index. Nothing was
    /// changed.
    Unreadable(usize),
}

impl Batcher {
    /// Changes buckets, all of them or none. What this process owes them is settled by it. `rules`
    /// are those of the policy that the charges come from, by index.
    ///
    /// # Errors
    /// See [`NotAdjusted`].
    pub async fn adjust(
        &self,
        charges: &[Charge],
        rules: &[RuleName],
        adjustment: Adjustment,
    ) -> Result<Vec<Moved>, NotAdjusted> {
        let mut line = self.link.current().ok_or(NotAdjusted::NotAsked)?;
        let keys = self.keys(charges, rules).ok_or(NotAdjusted::NotAsked)?;
        let carried: Carried = charges
            .iter()
            .map(|charge| {
                let taken = self.debts.take_out(charge.bucket, &charge.limit, clock::now());
                taken.map(|(owed, units)| (charge.bucket, owed, units))
            })
            .collect();
        let owed =
            (0..u16::MAX).zip(&carried).filter_map(|(index, one)| Some((index, one.as_ref()?.2)));
        let packed_debts = script::encode_debts(owed);
        let call = script::encode_adjust(charges, adjustment);
        let mut coming: Coming = Box::pin(async move {
            call::on_buckets(&mut line.redis, &keys, (&call, &packed_debts)).await
        });
        let debts = Arc::clone(&self.debts);
        let Ok(reply) = tokio::time::timeout(OPERATOR_TIMEOUT, &mut coming).await else {
            tokio::spawn(settle_late(debts, carried, coming, charges.to_vec()));
            return Err(NotAdjusted::Unknown);
        };
        let moved = match reply {
            Err(error) if error.kind() == ErrorKind::Io => Err(NotAdjusted::Unknown),
            Err(_) => Err(NotAdjusted::NotAsked),
            Ok(numbers) => read(charges, &numbers),
        };
        if moved.is_err() {
            owe_on(&debts, carried);
        }
        moved
    }
}

/// What becomes of the debts of a call that was not answered in time. Until it is, or its connection
/// is given up, no other call carries them: Redis may be at them, and would take them off twice.
async fn settle_late(debts: Arc<Debts>, carried: Carried, coming: Coming, charges: Vec<Charge>) {
    let reply = tokio::time::timeout(LATEST, coming).await;
    let is_done = matches!(&reply, Ok(Ok(numbers)) if read(&charges, numbers).is_ok());
    if !is_done {
        owe_on(&debts, carried);
    }
}

/// Debts that may not have been taken off are owed on.
fn owe_on(debts: &Debts, carried: Carried) {
    for (bucket, owed, _) in carried.into_iter().flatten() {
        debts.put_back(bucket, owed, clock::now());
    }
}

/// Reads the script's reply: the level of each charge's bucket before and after.
fn read(charges: &[Charge], reply: &[i64]) -> Result<Vec<Moved>, NotAdjusted> {
    let moved = script::read_adjust(charges, reply).map_err(|_| NotAdjusted::Unknown)?;
    match moved.iter().position(Option::is_none) {
        Some(index) => Err(NotAdjusted::Unreadable(index)),
        None => Ok(moved.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests;
