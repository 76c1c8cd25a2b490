//! Settlement of all debts at the end of the process. A node that is away or fails does not keep
//! those to others from being settled.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::Nodes;
use super::failed::FailedNodes;
use crate::base::clock;
use crate::store::debts::RemovedDebt;
use crate::store::redis::batch::settle::Settlement;
use crate::store::redis::node::Node;
use crate::store::redis::script::MAX_CHECKS;

impl Nodes {
    /// Settles all debts in Redis, within about `limit`. Where the circuit breaker is open, the
    /// node is probed once, at once, while the debts to others are settled. A call that is not
    /// answered is not repeated: Redis may have settled its debts. Debts in earlier calls that are
    /// not answered yet are awaited.
    ///
    /// Debts that Redis has certainly not settled are kept.
    pub async fn settle_all(&self, limit: Duration) -> Settlement {
        let ends = Instant::now() + limit;
        let mut settlement = Settlement::default();
        if !self.has_debts() {
            return settlement;
        }
        let nodes = self.all();
        let probes = nodes.iter().map(|node| node.link().probe_and_wait(ends));
        let mut probes: FuturesUnordered<_> = probes.collect();
        // Begins all of them. Those of nodes that can be called end at once.
        while let Some(Some(_)) = probes.next().now_or_never() {}
        let mut failed = FailedNodes::default();
        loop {
            while Instant::now() < ends
                && self.settle_reachable(&mut settlement, &mut failed, ends).await
            {}
            let changes = async {
                tokio::select! {
                    Some(_) = probes.next() => true,
                    () = self.debts().until_one_ends(), if self.debts().in_flight().debts > 0 => true,
                    else => false,
                }
            };
            if !self.has_debts() || !timeout_at(ends, changes).await.unwrap_or(false) {
                break;
            }
        }
        if settlement.why.is_none() && self.has_debts() {
            settlement.why = Some(self.why_unsettled().to_owned());
        }
        settlement
    }

    /// Why debts are left for which no call has failed.
    fn why_unsettled(&self) -> &'static str {
        match (self.debts().is_empty() || self.is_connected(), self.is_cluster()) {
            // The time was over.
            (true, _) => "Redis does not answer",
            (false, true) => "a master is unavailable",
            (false, false) => "Redis is unavailable",
        }
    }

    /// Settles the debts to nodes that can be called and are not among `failed`, and adds nodes
    /// that fail to these. Returns whether there were such debts.
    async fn settle_reachable(
        &self,
        settlement: &mut Settlement,
        failed: &mut FailedNodes,
        ends: Instant,
    ) -> bool {
        let taken = self.debts().take_some(usize::MAX, clock::now(), |bucket, rule| {
            self.node_of(bucket, rule).is_some_and(|node| failed.allow(&node))
        });
        if taken.is_empty() {
            return false;
        }
        let mut calls: Vec<(Arc<Node>, Vec<RemovedDebt>)> = Vec::new();
        for (slot, debts) in self.by_slot(taken, |one| (one.bucket, &one.owed.rule)) {
            let Some(node) = self.node_of_slot(slot) else {
                self.put_back(debts);
                continue;
            };
            match calls.iter_mut().find(|(one, _)| Arc::ptr_eq(one, &node)) {
                Some((_, all)) => all.extend(debts),
                None => calls.push((node, debts)),
            }
        }
        let calls = calls.into_iter().map(|(node, debts)| self.settle_at(node, debts, ends));
        for (node, part, result) in join_all(calls).await {
            settlement.add(part);
            if let Err(why) = result {
                failed.add(node, clock::now());
                settlement.why = settlement.why.take().or(Some(why));
            }
        }
        true
    }

    /// Settles debts to one node, until a call fails. The result has why.
    async fn settle_at(
        &self,
        node: Arc<Node>,
        mut debts: Vec<RemovedDebt>,
        ends: Instant,
    ) -> (Arc<Node>, Settlement, Result<(), String>) {
        let (mut settlement, mut result) = (Settlement::default(), Ok(()));
        while result.is_ok() && !debts.is_empty() && Instant::now() < ends {
            let some = debts.split_off(debts.len().saturating_sub(MAX_CHECKS));
            let slots = self.by_slot(some, |one| (one.bucket, &one.owed.rule));
            let calls = slots.into_values().map(|some| node.batcher().settle_some(some, ends));
            for (part, one) in join_all(calls).await {
                settlement.add(part);
                result = result.and(one);
            }
        }
        self.put_back(debts);
        (node, settlement, result)
    }

    fn put_back(&self, debts: Vec<RemovedDebt>) {
        for removed in debts {
            self.debts().put_back(removed, clock::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cluster, cluster_with_one_that_refuses, is_of_first};
    use super::*;
    use crate::base::duration::MICROS_PER_SECOND;
    use crate::limit::Limit;
    use crate::limit::charge::{BucketId, Charge, Mode};
    use crate::limit::share::Share;
    use crate::store::redis::fixture::{RedisServer, connected};
    use crate::store::rule::rule;

    const BUCKETS: u128 = 600;

    fn add_debts(nodes: &Nodes) {
        let limit = Limit::token_bucket(100, 86_400 * MICROS_PER_SECOND, 100).unwrap();
        for bucket in (0..BUCKETS).map(BucketId) {
            let charge =
                Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode: Mode::Enforce };
            nodes.debts().add(&charge, &rule(), limit.units(7), Share::WHOLE, clock::now());
        }
    }

    /// Number of debts to the first master, and to the second one.
    fn owed(nodes: &Nodes) -> (usize, usize) {
        let is_first = |id: &u128| is_of_first(nodes, BucketId(*id));
        let (first, second): (Vec<u128>, Vec<u128>) = (0..BUCKETS).partition(is_first);
        (first.len(), second.len())
    }

    #[tokio::test]
    async fn debts_to_other_masters_are_settled_while_one_is_probed() {
        let server = RedisServer::start(&[]);
        let links = [connected(&server.settings()).await, Arc::default()];
        let nodes = cluster(&server.settings(), links);
        add_debts(&nodes);
        let settlement = nodes.settle_all(Duration::from_secs(2)).await;
        let (to_first, to_second) = owed(&nodes);
        assert_eq!(settlement.settled.buckets, to_first);
        assert_eq!(settlement.why.as_deref(), Some("a master is unavailable"));
        assert_eq!((settlement.lost.buckets, nodes.debts().len()), (0, to_second));
    }

    #[tokio::test]
    async fn debts_to_other_masters_are_settled_if_one_refuses_them() {
        let (nodes, _server, _other) = cluster_with_one_that_refuses().await;
        add_debts(&nodes);
        let settlement = nodes.settle_all(Duration::from_secs(60)).await;
        let (to_first, to_second) = owed(&nodes);
        assert_eq!(settlement.settled.buckets, to_first);
        assert!(settlement.why.unwrap().starts_with("Redis says"));
        assert_eq!((settlement.lost.buckets, nodes.debts().len()), (0, to_second));
    }
}
