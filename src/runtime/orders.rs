//! Orders of operators for endpoints that apply to all gateways with the same Redis.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::CurrentSnapshot;
use crate::base::background::Background;
use crate::base::clock;
use crate::base::random::pause_ms;
use crate::policy::redis::Redis;
use crate::store::redis::link::records::{Records, RecordsError};
use crate::upstream::health::Order;
use crate::upstream::pool::Pool;
use crate::upstream::shared_orders::{Applied, SharedOrders};

/// Interval in which the orders of other gateways are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shortest and longest time after a failure. It differs by chance, so that gateways which lost
/// Redis together do not connect to it together.
const RETRY_MS: RangeInclusive<u64> = 5_000..=15_000;

/// Name of the record with all orders.
const RECORD: &str = "upstream_orders";

/// The orders that this gateway shares. Clones share all of it.
#[derive(Clone, Debug, Default)]
pub struct OrderBoard(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    given: Mutex<Given>,
    state: Mutex<BoardState>,
    has_new: Notify,
}

/// What an order of an operator has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// There is no such endpoint.
    Unknown,
    /// It was in force before.
    Unchanged,
    Changed,
}

/// The orders that operators have given to this process.
#[derive(Debug, Default)]
struct Given {
    count: u64,
    /// Whether another process has taken over: an order for this one would be lost.
    is_closed: bool,
}

/// The shared orders, for the process of an upgrade.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BoardState {
    known: SharedOrders,
    /// A newer order for this gateway alone stays in force until there is a newer one.
    applied: Applied,
}

/// Exchanges orders with the other gateways, and applies theirs.
pub struct OrderSharing {
    board: OrderBoard,
    current: Arc<CurrentSnapshot>,
    /// `None`: there is no Redis.
    records: Option<Records>,
}

impl OrderBoard {
    /// A board that continues with what another process knows.
    pub fn new(state: BoardState) -> Self {
        Self(Arc::new(Board { state: Mutex::new(state), ..Board::default() }))
    }

    /// Number of orders of operators that have changed something in this process.
    pub fn count(&self) -> u64 {
        self.0.given.lock().count
    }

    /// Gives an order to this process by `give`. `None`: another process has taken over.
    pub fn give_here(&self, give: impl FnOnce() -> Effect) -> Option<Effect> {
        let mut given = self.0.given.lock();
        if given.is_closed {
            return None;
        }
        let effect = give();
        given.count += u64::from(effect == Effect::Changed);
        Some(effect)
    }

    /// Takes no more orders for this process, if there have been no others than the first `count`.
    /// Returns whether that is so.
    pub fn close_after(&self, count: u64) -> bool {
        let mut given = self.0.given.lock();
        given.is_closed |= given.count == count;
        given.is_closed
    }

    /// Takes orders for this process again.
    pub fn reopen(&self) {
        self.0.given.lock().is_closed = false;
    }

    /// What this process knows.
    pub fn state(&self) -> BoardState {
        self.0.state.lock().clone()
    }

    /// Gives an order to all gateways, this one included. Does not wait until they have it.
    pub fn give(&self, upstream: &str, server: &str, order: Option<Order>) {
        self.0.state.lock().known.give(upstream, server, order, clock::unix_us());
        self.0.has_new.notify_one();
    }
}

impl OrderSharing {
    /// Creates the service, by the Redis of the file.
    pub fn new(board: OrderBoard, current: Arc<CurrentSnapshot>, redis: Option<&Redis>) -> Self {
        Self { board, current, records: redis.cloned().map(Records::new) }
    }

    async fn run(&self, records: &Records) {
        let mut is_failing = false;
        loop {
            let failure = self.exchange(records).await.err();
            match &failure {
                None if is_failing => info!("orders for endpoints are shared again"),
                Some(cause) if !is_failing => {
                    warn!(%cause, "orders for endpoints are not shared");
                }
                _ => {}
            }
            is_failing = failure.is_some();
            self.apply();
            let pause = if is_failing { pause_ms(&RETRY_MS) } else { INTERVAL };
            tokio::select! {
                () = self.board.0.has_new.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads the orders in Redis, and adds those that only this gateway knows.
    ///
    /// # Errors
    /// Redis is not available, or has something else there.
    async fn exchange(&self, records: &Records) -> Result<(), RecordsError> {
        let before = records.get(RECORD).await?.unwrap_or_default();
        let stored = if before.is_empty() {
            SharedOrders::default()
        } else {
            serde_json::from_slice(&before).map_err(|_| RecordsError::malformed())?
        };
        let known = {
            let mut state = self.board.0.state.lock();
            state.known.merge(&stored, clock::unix_us());
            state.known.clone()
        };
        if known != stored {
            // If another gateway has changed it meanwhile, the next round merges both.
            let content = serde_json::to_vec(&known).unwrap_or_default();
            if !records.replace(RECORD, &before, &content).await? {
                self.board.0.has_new.notify_one();
            }
        }
        Ok(())
    }

    /// Applies the orders that are new here, to the endpoints that this gateway knows.
    fn apply(&self) {
        let BoardState { known, mut applied } = self.board.state();
        let snapshot = self.current.load_full();
        for order in known.iter() {
            let pool = snapshot.pools.iter().find(|pool| **pool.name() == *order.upstream);
            let give = |pool: &Arc<Pool>| pool.order(&order.server, order.order);
            if applied.lacks(order) && pool.is_some_and(give) {
                applied.note(order);
            }
        }
        applied.keep(&known);
        self.board.0.state.lock().applied = applied;
    }
}

impl Background for OrderSharing {
    fn start(&self, mut shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(records) = &self.records else { return };
            tokio::select! {
                _ = shutdown.changed() => {}
                () = self.run(records) => {}
            }
        })
    }
}
