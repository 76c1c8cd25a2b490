//! Reading and adjusting buckets for operators, and for clients that read their limits: each node
//! is asked for its own.

use std::time::Duration;

use futures_util::future::join_all;

use super::Nodes;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::Charge;
use crate::limit::reading::Reading;
use crate::limit::top_up::{ChangedTopUps, TopUpChange, TopUpError};
use crate::store::redis::batch::Undecided;
use crate::store::redis::batch::adjust::{LevelChange, NotAdjusted};
use crate::store::rule::StoredRule;

impl Nodes {
    /// State of the charges' buckets: as `Batcher::peek`.
    ///
    /// # Errors
    /// A node does not answer, or not within `timeout`.
    pub async fn peek(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        timeout: Duration,
    ) -> Result<Vec<Option<Reading>>, Undecided> {
        let parts = self.parts(charges, rules);
        if parts.is_empty() && !self.is_partly_connected() {
            return Err(Undecided::NotTaken);
        }
        let peeks = parts.iter().map(|part| async move {
            let node = part.node.as_ref().ok_or(Undecided::NotTaken)?;
            node.batcher().peek(&part.charges, rules, timeout).await
        });
        let mut found = vec![None; charges.len()];
        for (part, readings) in parts.iter().zip(join_all(peeks).await) {
            for (charge, reading) in part.charges.iter().zip(readings?) {
                for at in positions(charges, charge) {
                    found[at] = reading;
                }
            }
        }
        Ok(found)
    }

    /// Adjusts buckets for an operator: as `Batcher::adjust`. In a cluster, all or none holds for
    /// the buckets of each slot only.
    ///
    /// # Errors
    /// See [`NotAdjusted`]. In a cluster, [`NotAdjusted::Unknown`] also if some buckets were
    /// changed before an error.
    pub async fn adjust(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
        adjustment: Adjustment,
    ) -> Result<Vec<LevelChange>, NotAdjusted> {
        let mut moved = vec![(0, 0); charges.len()];
        for (done, part) in self.parts(charges, rules).into_iter().enumerate() {
            let failed = |error| if done > 0 { NotAdjusted::Unknown } else { error };
            let node = part.node.ok_or_else(|| failed(NotAdjusted::Unchanged))?;
            let adjusted = node.batcher().adjust(&part.charges, rules, adjustment).await;
            let adjusted =
                adjusted.map_err(|error| failed(of_all(error, &part.charges, charges)))?;
            for (charge, change) in part.charges.iter().zip(adjusted) {
                for at in positions(charges, charge) {
                    moved[at] = change;
                }
            }
        }
        Ok(moved)
    }

    /// Changes the top-ups of a charge's bucket, or reads them: as `Batcher::top_up`.
    ///
    /// # Errors
    /// Of the call, see [`NotAdjusted`]; of the change, [`TopUpError`].
    pub async fn top_up(
        &self,
        charge: &Charge,
        rules: &[StoredRule],
        wanted: &TopUpChange,
    ) -> Result<Result<ChangedTopUps, TopUpError>, NotAdjusted> {
        let part = self.parts(std::slice::from_ref(charge), rules).into_iter().next();
        let node = part.and_then(|part| part.node).ok_or(NotAdjusted::Unchanged)?;
        node.batcher().top_up(charge, rules, wanted).await
    }

    /// Settles the debts to the buckets of these charges: one call, or in a cluster one for each
    /// slot. Buckets without a debt are not called for.
    ///
    /// # Errors
    /// That of the first call that failed: see [`NotAdjusted`]. The other calls are made.
    pub async fn settle_debts(
        &self,
        charges: &[Charge],
        rules: &[StoredRule],
    ) -> Result<(), NotAdjusted> {
        let debts = self.debts();
        let owed: Vec<Charge> =
            charges.iter().filter(|charge| debts.has(charge.bucket)).copied().collect();
        if owed.is_empty() {
            return Ok(());
        }
        let nothing = Adjustment::GiveBack(0);
        let mut result = Ok(());
        for part in self.parts(&owed, rules) {
            let settled = match &part.node {
                Some(node) => node.batcher().adjust(&part.charges, rules, nothing).await.map(drop),
                None => Err(NotAdjusted::Unchanged),
            };
            result = result.and(settled.map_err(|error| of_all(error, &part.charges, charges)));
        }
        result
    }
}

/// The error of a part of the charges, as one of all of them.
fn of_all(error: NotAdjusted, part: &[Charge], charges: &[Charge]) -> NotAdjusted {
    let NotAdjusted::Unreadable(at) = error else { return error };
    let at = part.get(at).and_then(|charge| positions(charges, charge).next());
    at.map_or(NotAdjusted::Unchanged, NotAdjusted::Unreadable)
}

/// Places of the charges of a bucket.
fn positions<'a>(charges: &'a [Charge], of: &'a Charge) -> impl Iterator<Item = usize> + 'a {
    let is_same = |(_, charge): &(usize, &Charge)| charge.bucket == of.bucket;
    charges.iter().enumerate().filter(is_same).map(|(at, _)| at)
}
