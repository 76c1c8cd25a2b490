//! Lapsed debts, which are taken from the top-ups of clients once Redis responds.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::MissedTickBehavior;

use super::Nodes;
use crate::base::clock;
use crate::store::lapsed::QueuedDebt;
use crate::store::redis::node::Node;

/// Time between two checks for such debts. Without any, a check costs nothing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Checks between two searches of all debts for those that have lapsed or shrunk to 0.
const CHECKS_PER_SEARCH: u32 = 10;

/// Most debts that are sent together.
const AT_ONCE: usize = 64;

/// A check ends once so many debts could not be sent: the next one begins with others.
const MAX_LEFT: usize = 4_096;

impl Nodes {
    /// Settles lapsed debts whenever Redis responds.
    pub(super) async fn keep_settling_lapsed(&self) -> Infallible {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for check in 0..CHECKS_PER_SEARCH {
                interval.tick().await;
                if !self.is_partly_connected() {
                    continue;
                }
                if check == 0 {
                    self.debts().sweep(clock::now());
                }
                self.settle_lapsed().await;
            }
        }
    }

    /// Settles the lapsed debts. Those of a node that is away, or for which a call fails, are kept
    /// for the next check.
    pub(super) async fn settle_lapsed(&self) {
        self.debts().drop_unconfirmed(clock::now());
        let queue = self.debts().lapsed();
        let mut failed: Vec<Arc<Node>> = Vec::new();
        let mut left = Vec::new();
        while left.len() < MAX_LEFT {
            let taken = queue.lock().take_some(AT_ONCE);
            if taken.is_empty() {
                break;
            }
            let has_failed = |node: &Arc<Node>| failed.iter().any(|one| Arc::ptr_eq(one, node));
            let mut calls = Vec::new();
            for (slot, debts) in self.by_slot(taken, |one| (one.debt.bucket, &one.rule)) {
                match self.node_of_slot(slot) {
                    Some(node) if node.is_connected() && !has_failed(&node) => {
                        calls.push(settle_at(node, debts));
                    }
                    _ => left.extend(debts),
                }
            }
            for (node, debts, is_settled) in join_all(calls).await {
                if is_settled {
                    queue.lock().note_settled(&debts);
                } else {
                    left.extend(debts);
                    failed.push(node);
                }
            }
        }
        queue.lock().put_back(left);
    }
}

/// Makes one call. Returns the debts, and whether they are settled.
async fn settle_at(
    node: Arc<Node>,
    mut debts: Vec<QueuedDebt>,
) -> (Arc<Node>, Vec<QueuedDebt>, bool) {
    let now = clock::now();
    for debt in &mut debts {
        debt.sent_at.get_or_insert(now);
    }
    let is_settled = node.batcher().settle_lapsed(&debts).await;
    (node, debts, is_settled)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::cluster;
    use super::*;
    use crate::base::duration::MICROS_PER_SECOND;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::{BucketId, Charge, Mode};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::share::Share;
    use crate::store::lapsed::LapsedDebt;
    use crate::store::redis::fixture::{RedisServer, connected};
    use crate::store::rule::rule;

    const BUCKETS: usize = 600;

    /// Adds lapsed debts to many buckets.
    fn add_debts(nodes: &Nodes) {
        let calendar = Calendar::new(Period::Hour, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(50, calendar).unwrap());
        for bucket in (0..BUCKETS as u128).map(BucketId) {
            let debt = LapsedDebt { bucket, limit, units: 5, ended_us: 3_600_000_000 };
            assert!(nodes.debts().lapsed().lock().add(debt, rule(), BUCKETS));
        }
    }

    /// Asserts that the debts to one master are left, and no others.
    fn assert_left(nodes: &Nodes, master: u16) {
        let left = nodes.debts().lapsed().lock().take_some(BUCKETS);
        let slots: Vec<u16> =
            left.iter().map(|one| nodes.slot_of(one.debt.bucket, &one.rule)).collect();
        assert!(slots.iter().all(|slot| slot % 2 == master), "{slots:?}");
        let owned = |id: &u128| nodes.slot_of(BucketId(*id), &rule()) % 2 == master;
        assert_eq!(slots.len(), (0..BUCKETS as u128).filter(owned).count());
    }

    #[tokio::test]
    async fn debts_to_a_master_that_is_away_do_not_keep_others_from_being_settled() {
        let server = RedisServer::start(&[]);
        let nodes =
            cluster(&server.settings(), [connected(&server.settings()).await, Arc::default()]);
        add_debts(&nodes);
        nodes.settle_lapsed().await;
        assert_left(&nodes, 1);
    }

    #[tokio::test]
    async fn debts_that_have_shrunk_to_nothing_are_removed_without_a_request() {
        let server = RedisServer::start(&[]);
        let nodes =
            cluster(&server.settings(), [connected(&server.settings()).await, Arc::default()]);
        let limit = Limit::token_bucket(1_000_000, MICROS_PER_SECOND, 1).unwrap();
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1, mode };
        let units = limit.units(1);
        nodes.debts().add(&charge, &rule(), units, Share::WHOLE, clock::now());
        let removed = async {
            while !nodes.debts().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            never = nodes.keep_settling_lapsed() => match never {},
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("they are still there"),
            () = removed => {}
        }
    }

    /// Its other debts wait for the next check.
    #[tokio::test]
    async fn master_that_refuses_a_call_is_not_called_again_in_a_check() {
        let (server, other) = (RedisServer::start(&[]), RedisServer::start(&[]));
        let links = [connected(&server.settings()).await, connected(&other.settings()).await];
        let nodes = cluster(&server.settings(), links);
        add_debts(&nodes);
        let mut connection = other.client().get_connection().unwrap();
        let refuse = ["SETUSER", "default", "-evalsha", "-eval"];
        redis::cmd("ACL").arg(&refuse).exec(&mut connection).unwrap();
        nodes.settle_lapsed().await;
        assert_left(&nodes, 1);
        let refused = other.evalsha("rejected_calls");
        // At most one call for each debt of the first batch.
        assert!((1..=AT_ONCE).contains(&refused), "{refused}");
    }
}
