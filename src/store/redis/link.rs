//! The connection to Redis. Requests borrow it and never wait for it: it is there, or it is not.
//! A [`Supervisor`] makes and replaces it in the background.
//!
//! Not the client's own connection manager: that one makes requests wait while it connects, waits
//! the same times in every process, and never replaces a connection to a server that was demoted,
//! hangs, or once answered nonsense.
//!
//! Reading order: [`watch`] (when a connection is replaced) and `backoff` (when the next is made),
//! both pure; `health` (what is known of one); `stream`, `tls`, `connect`, `sentinel` (how one is
//! made); `supervise`; `journal` and `error` (what is logged of it).

mod backoff;
mod connect;
mod error;
mod health;
mod journal;
mod sentinel;
mod stream;
mod supervise;
pub mod tls;
pub mod watch;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tracing::warn;

use super::class::{ErrorClass, classify, describe};
use crate::clock;
use crate::policy::redis::Redis;
use health::Health;
use journal::Journal;
pub use supervise::Supervisor;
use watch::Outcome;

/// Where requests find the connection.
#[derive(Debug, Default)]
pub struct Link {
    /// Written by the supervisor only.
    current: ArcSwapOption<Line>,
    connections: AtomicU64,
    journal: Mutex<Journal>,
}

/// A connection on loan. What became of each call on it is to be noted, on it: news of one
/// connection says nothing of the next.
#[derive(Debug, Clone)]
pub struct Line {
    /// The connection itself. It waits for an answer for ever: the time is the caller's to limit.
    pub redis: MultiplexedConnection,
    health: Arc<Health>,
}

impl Link {
    /// A link without a connection, and who will see to one. Does no I/O.
    pub fn new(settings: &Redis) -> (Arc<Self>, Supervisor) {
        let link = Arc::new(Self::default());
        let resolver = connect::system_resolver();
        (Arc::clone(&link), Supervisor::new(link, settings.clone(), resolver))
    }

    /// Whether there is a connection that answers.
    pub fn is_up(&self) -> bool {
        self.current.load().as_ref().is_some_and(|line| line.health.broken().is_none())
    }

    /// The connection, if there is one that answers. Never connects, never waits.
    pub fn current(&self) -> Option<Line> {
        let line = self.current.load();
        line.as_ref().filter(|line| line.health.broken().is_none()).map(|line| Line::clone(line))
    }

    /// How many connections there have been.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Notes that a call on `line` ended in `error`, and says of what class that is. Errors that
    /// leave the connection in place are logged, each class at most once a minute; of others the
    /// supervisor logs the consequence.
    pub fn failed(&self, line: &Line, error: &RedisError) -> ErrorClass {
        let class = classify(error);
        line.note(Outcome::Failed(class));
        let is_news = class != ErrorClass::NoScript && !class.asks_for_another_connection();
        if is_news && self.journal.lock().wants(class.label(), clock::now()) {
            warn!("Redis refuses a call: {}", describe(error));
        }
        class
    }

    fn publish(&self, line: Line) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.current.store(Some(Arc::new(line)));
    }

    fn withdraw(&self) {
        self.current.store(None);
    }
}

impl Line {
    /// Notes what became of a call.
    pub fn note(&self, outcome: Outcome) {
        self.health.note(outcome);
    }
}
