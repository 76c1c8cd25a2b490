//! Buckets in Redis, changed by hand. One call of its own, which is not waited for by any request
//! and says nothing to the breaker.

use std::sync::Arc;

use redis::ErrorKind;

use super::Batcher;
use super::flight::{Coming, LATEST};
use super::peek::PATIENCE;
use crate::clock;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::{BucketId, Charge};
use crate::limit::double;
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
        let key = |charge: &Charge| {
            let rule = rules.get(charge.rule as usize).ok_or(NotAdjusted::NotAsked)?;
            Ok(script::key(&self.prefix, charge.bucket, rule))
        };
        let keys = charges.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let carried: Carried = charges
            .iter()
            .map(|charge| {
                let taken = self.debts.take_out(charge.bucket, &charge.limit, clock::now());
                taken.map(|(owed, units)| (charge.bucket, owed, units))
            })
            .collect();
        let owed =
            |index: usize| carried.get(index).and_then(Option::as_ref).map_or(0, |(.., u)| *u);
        let mut asked = Vec::new();
        for (index, charge) in charges.iter().enumerate() {
            charge.limit.encode(&mut asked);
            asked.extend_from_slice(&double(owed(index)));
            asked.extend_from_slice(&double(adjustment.units(&charge.limit)));
        }
        let mut coming: Coming =
            Box::pin(async move { call::adjust(&mut line.redis, &keys, &asked).await });
        let debts = Arc::clone(&self.debts);
        let Ok(reply) = tokio::time::timeout(PATIENCE, &mut coming).await else {
            tokio::spawn(settle_late(debts, carried, coming, charges.len()));
            return Err(NotAdjusted::Unknown);
        };
        let moved = match reply {
            Err(error) if error.kind() == ErrorKind::Io => Err(NotAdjusted::Unknown),
            Err(_) => Err(NotAdjusted::NotAsked),
            Ok(numbers) => read(&numbers, charges.len()),
        };
        if moved.is_err() {
            owe_on(&debts, carried);
        }
        moved
    }
}

/// What becomes of the debts of a call that was not answered in time. Until it is, or its connection
/// is given up, no other call carries them: Redis may be at them, and would take them off twice.
async fn settle_late(debts: Arc<Debts>, carried: Carried, coming: Coming, buckets: usize) {
    let reply = tokio::time::timeout(LATEST, coming).await;
    let is_done = matches!(&reply, Ok(Ok(numbers)) if read(numbers, buckets).is_ok());
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

/// The script's reply about so many buckets.
fn read(numbers: &[i64], buckets: usize) -> Result<Vec<Moved>, NotAdjusted> {
    match numbers {
        [number] => Err(NotAdjusted::Unreadable(usize::try_from(number - 1).unwrap_or_default())),
        _ if numbers.len() == 2 * buckets => {
            Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
        }
        _ => Err(NotAdjusted::Unknown),
    }
}

#[cfg(test)]
mod tests;
