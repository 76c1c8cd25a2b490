//! Top-ups of quotas in Redis, by an operator. Each call is of its own, as in
//! [`adjust`](super::adjust).

use redis::ErrorKind;

use super::Batcher;
use super::adjust::NotAdjusted;
use super::peek::OPERATOR_TIMEOUT;
use crate::base::clock;
use crate::limit::charge::Charge;
use crate::limit::top_up::{ChangedTopUps, TopUpChange, TopUpError};
use crate::store::redis::script;
use crate::store::rule::StoredRule;

impl Batcher {
    /// Changes the top-ups of a charge's bucket, or reads them. Its limit is a fixed window.
    /// `rules` are those of the policy that the charge comes from, by index.
    ///
    /// # Errors
    /// Of the call, see [`NotAdjusted`]; of the change, [`TopUpError`].
    pub async fn top_up(
        &self,
        charge: &Charge,
        rules: &[StoredRule],
        wanted: &TopUpChange,
    ) -> Result<Result<ChangedTopUps, TopUpError>, NotAdjusted> {
        let mut connection = self.link.current().ok_or(NotAdjusted::Unchanged)?;
        let charges = std::slice::from_ref(charge);
        let keys = self.keys_of(charges, rules).ok_or(NotAdjusted::Unchanged)?;
        let call = script::encode_top_up(charge, wanted, clock::now());
        let reply = self.on_buckets(&mut connection, &keys, &call, &[]);
        let numbers = match tokio::time::timeout(OPERATOR_TIMEOUT, reply).await {
            Err(_) => return Err(NotAdjusted::Unknown),
            Ok(Err(error)) if error.kind() == ErrorKind::Io => return Err(NotAdjusted::Unknown),
            Ok(Err(_)) => return Err(NotAdjusted::Unchanged),
            Ok(Ok(numbers)) => numbers,
        };
        let changed = script::read_top_up(charge, &numbers).map_err(|_| NotAdjusted::Unknown)?;
        changed.ok_or(NotAdjusted::Unreadable(0))
    }
}
