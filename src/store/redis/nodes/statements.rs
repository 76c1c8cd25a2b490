//! Statements of what requests hold, to the nodes that have the buckets. One that cannot be called,
//! or does not accept them, does not delay those to others.

use std::time::Duration;

use futures_util::future::join_all;
use redis::RedisError;
use tokio::time::{sleep, timeout};

use super::Nodes;
use super::failed::FailedNodes;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::store::redis::stating::{self, MAX_STATEMENTS, PAUSE, Stated};

/// Time in microseconds for which a node that has not accepted a statement gets no others.
const FAILED_US: u64 = MICROS_PER_SECOND;

/// Redirections after which the rest of the statements is not made at the end of the process.
const MAX_MOVES: usize = 3;

impl Nodes {
    /// Makes statements that are due: one call for each slot. Those to nodes that cannot be called
    /// or have failed wait for the next renewal.
    pub(super) async fn state_some(&self, failed: &mut FailedNodes) -> Stated {
        let (held, now) = (&self.carried.held, clock::now());
        failed.forget(now.saturating_sub(FAILED_US));
        let due = held.take_due(MAX_STATEMENTS, now, |bucket, rule| {
            self.node_of(bucket, rule).is_some_and(|node| failed.allow(&node))
        });
        if due.is_empty() {
            return Stated::Nothing;
        }
        let slots = self.by_slot(due, |one| (one.bucket, &one.rule));
        let states = slots.into_iter().map(|(slot, due)| async move {
            let node = self.node_of_slot(slot);
            let connection = node.as_ref().and_then(|node| node.link().current());
            if let Some(connection) = connection {
                let moved = |error: &RedisError| self.note_redirect(error, slot);
                let keys = self.carried.keys.keys();
                return (node, stating::state(&connection, held, due, keys, moved).await);
            }
            for one in due {
                held.stated(one.bucket, one.statement, false);
            }
            (node, Stated::Failed)
        });
        let mut result = Stated::Some;
        for (node, stated) in join_all(states).await {
            match (stated, node) {
                (Stated::Failed, Some(node)) => failed.add(node, clock::now()),
                (Stated::Moved, _) => result = Stated::Moved,
                _ => {}
            }
        }
        result
    }

    /// Makes all statements that are due, within about `limit`. Those that are not made end with
    /// their leases.
    pub async fn state_all(&self, limit: Duration) {
        let all = async {
            // Also those that could not be made when they were due.
            self.carried.held.renew(false, clock::now());
            let (mut failed, mut moves) = (FailedNodes::default(), 0);
            while moves < MAX_MOVES {
                match self.state_some(&mut failed).await {
                    Stated::Nothing => return,
                    Stated::Moved => {
                        moves += 1;
                        sleep(PAUSE).await;
                    }
                    Stated::Some | Stated::Failed => {}
                }
            }
        };
        let _ = timeout(limit, all).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fixture::{cluster, cluster_with_one_that_refuses, is_of_first};
    use super::*;
    use crate::limit::Limit;
    use crate::limit::charge::{BucketId, Charge, Mode};
    use crate::limit::concurrency::Concurrency;
    use crate::limit::share::Share;
    use crate::store::held::Holds;
    use crate::store::memory::MemoryStore;
    use crate::store::redis::fixture::{RedisServer, connected};
    use crate::store::redis::script::key;
    use crate::store::rule::rule;

    const BUCKETS: u128 = 600;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A request in flight for each bucket.
    fn hold(nodes: &Nodes) -> Vec<Holds> {
        let limit = Limit::Concurrency(Concurrency::new(5).unwrap());
        let store = MemoryStore::new(100, &[]).holding(Arc::clone(&nodes.carried.held));
        let hold = |bucket| {
            let (bucket, cost, mode) = (BucketId(bucket), limit.parts(), Mode::Enforce);
            let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost, mode };
            store.hold(&[charge], &[rule()], clock::now(), Share::WHOLE).1
        };
        (0..BUCKETS).map(hold).collect()
    }

    /// Asserts that the server has the units of all buckets of the first master.
    fn assert_stated(nodes: &Nodes, server: &RedisServer) {
        let of_first = (0..BUCKETS).filter(|id| is_of_first(nodes, BucketId(*id)));
        let keys: Vec<String> = of_first.map(|id| key("t:", BucketId(id), &rule())).collect();
        let mut connection = server.client().get_connection().unwrap();
        let stated: usize = redis::cmd("EXISTS").arg(&keys).query(&mut connection).unwrap();
        assert_eq!(stated, keys.len());
    }

    #[tokio::test]
    async fn statements_to_a_master_that_is_away_do_not_keep_others_from_being_made() {
        let server = RedisServer::start(&[]);
        let links = [connected(&server.settings()).await, Arc::default()];
        let nodes = cluster(&server.settings(), links);
        let holds = hold(&nodes);
        nodes.state_all(LIMIT).await;
        assert_stated(&nodes, &server);
        drop(holds);
        nodes.state_all(LIMIT).await;
        assert!(nodes.carried.held.is_empty());
    }

    /// Its other statements wait.
    #[tokio::test]
    async fn master_that_does_not_accept_statements_does_not_keep_others_from_being_made() {
        let (nodes, server, other) = cluster_with_one_that_refuses().await;
        let _holds = hold(&nodes);
        nodes.state_all(LIMIT).await;
        assert_stated(&nodes, &server);
        let refused = other.evalsha("rejected_calls");
        assert!((1..=MAX_STATEMENTS).contains(&refused), "{refused}");
    }
}
