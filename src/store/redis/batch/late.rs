//! Debts of periods that have ended, which are taken from top-ups. Each call is of its own, as in
//! [`adjust`](super::adjust).

use super::Batcher;
use super::flight::tokens;
use super::peek::OPERATOR_TIMEOUT;
use crate::base::clock;
use crate::store::redis::script;
use crate::store::unpaid::UnpaidDebt;

impl Batcher {
    /// Takes these debts, each to another bucket, from top-ups. In a cluster, all buckets are in
    /// one slot. Returns whether Redis has certainly done so: a call can be repeated.
    pub(in crate::store::redis) async fn pay(&self, debts: &[UnpaidDebt]) -> bool {
        let Some(mut connection) = self.link.current() else { return false };
        let key = |debt: &UnpaidDebt| script::key(self.keys(), debt.lapsed.bucket, &debt.rule);
        let keys: Vec<String> = debts.iter().map(key).collect();
        let call = script::encode_late(debts.iter(), clock::now());
        let reply = self.on_buckets(&mut connection, &keys, (&call, &[]), None);
        let Ok(Ok(numbers)) = tokio::time::timeout(OPERATOR_TIMEOUT, reply).await else {
            return false;
        };
        let Ok(taken) = script::read_late(debts.len(), &numbers) else { return false };
        for (debt, units) in debts.iter().zip(taken) {
            self.count_settled(&debt.rule.name, tokens(units, &debt.lapsed.limit));
        }
        true
    }
}
