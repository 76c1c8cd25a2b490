//! Lapsed debts, which are taken from top-ups. Each call is of its own, as in
//! [`adjust`](super::adjust).

use super::Batcher;
use super::flight::tokens;
use super::peek::OPERATOR_TIMEOUT;
use crate::base::clock;
use crate::store::lapsed::QueuedDebt;
use crate::store::redis::script;

impl Batcher {
    /// Takes these debts, each to another bucket, from top-ups. In a cluster, all buckets are in
    /// one slot. Returns whether Redis has certainly done so: a call can be repeated.
    pub(in crate::store::redis) async fn settle_lapsed(&self, debts: &[QueuedDebt]) -> bool {
        let Some(mut connection) = self.link.current() else { return false };
        let key = |one: &QueuedDebt| script::key(self.keys(), one.debt.bucket, &one.rule);
        let keys: Vec<String> = debts.iter().map(key).collect();
        let call = script::encode_lapsed(debts, clock::now());
        let reply = self.on_buckets(&mut connection, &keys, (&call, &[]), None);
        let Ok(Ok(numbers)) = tokio::time::timeout(OPERATOR_TIMEOUT, reply).await else {
            return false;
        };
        let Ok(taken) = script::read_lapsed(debts.len(), &numbers) else { return false };
        for (one, units) in debts.iter().zip(taken) {
            self.count_settled(&one.rule.name, tokens(units, &one.debt.limit));
        }
        true
    }
}
