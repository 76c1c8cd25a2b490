//! Debts of periods that have ended, which are taken from the top-ups of clients once Redis
//! responds.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::Nodes;
use crate::base::clock;

/// Time between two checks for such debts. Without any, a check costs nothing.
const INTERVAL: Duration = Duration::from_secs(1);

/// Checks between two searches of all debts for those whose period has ended.
const CHECKS_PER_SEARCH: u32 = 10;

/// Most debts in a call.
const AT_ONCE: usize = 64;

impl Nodes {
    /// Pays debts whenever Redis responds.
    pub(super) async fn keep_paying(&self) -> Infallible {
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
                self.pay().await;
            }
        }
    }

    /// Pays the debts of periods that have ended, until a call fails: it is repeated later.
    pub(super) async fn pay(&self) {
        let unpaid = self.debts().unpaid();
        self.debts().drop_unconfirmed(clock::now());
        loop {
            let taken = unpaid.lock().take_some(AT_ONCE);
            if taken.is_empty() {
                return;
            }
            let mut has_failed = false;
            for (slot, mut debts) in self.by_slot(taken, |one| (one.lapsed.bucket, &one.rule)) {
                let node = self.node_of_slot(slot).filter(|node| node.is_connected());
                let is_paid = match node {
                    Some(node) => {
                        let now = clock::now();
                        for debt in &mut debts {
                            debt.sent_at.get_or_insert(now);
                        }
                        node.batcher().pay(&debts).await
                    }
                    None => false,
                };
                if is_paid {
                    unpaid.lock().paid(&debts);
                } else {
                    unpaid.lock().put_back(debts);
                    has_failed = true;
                }
            }
            if has_failed {
                return;
            }
        }
    }
}
