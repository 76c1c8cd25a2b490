//! A node: one Redis server, and everything that this process keeps for it.

use std::sync::Arc;

use super::batch::Batcher;
use super::link::Link;
use super::link::breaker::{BreakerStatus, Override};

/// One Redis server, the master of a group of sentinels or of a cluster: its connection and circuit
/// breaker, and the checks that wait for a call of it.
pub struct Node {
    /// Address of the configuration, without user and password.
    address: String,
    batcher: Arc<Batcher>,
}

impl Node {
    /// A node at `address` that is reached through `batcher`.
    pub fn over(address: &str, batcher: Arc<Batcher>) -> Self {
        Self { address: address.to_owned(), batcher }
    }

    /// Address of the configuration, for logs and status.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// State of its circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.link().breaker()
    }

    /// Sets or ends the override of its circuit breaker.
    pub fn set_override(&self, wanted: Override) {
        self.link().set_override(wanted);
    }

    /// Whether it can be called: there is a connection, and the breaker is not open.
    pub fn is_connected(&self) -> bool {
        self.link().is_up()
    }

    /// Whether every request calls it: there is a connection, and the breaker is closed.
    pub fn admits_all(&self) -> bool {
        self.link().admits_all()
    }

    /// Whether it has been reached since the start.
    pub fn is_reached(&self) -> bool {
        self.link().is_reached()
    }

    /// Microseconds until its next probe; 0 while its breaker is closed.
    pub fn retry_after_us(&self) -> u64 {
        self.link().retry_after_us()
    }

    /// Whether it was unavailable until shortly before `now` (microseconds), so that gateways may
    /// not have stated yet what they hold, or some requests are decided locally.
    pub fn is_settling(&self, now: u64) -> bool {
        self.link().is_settling(now) || !self.admits_all()
    }

    /// The batcher that sends checks to it.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.batcher
    }

    /// Its connection and circuit breaker.
    pub fn link(&self) -> &Arc<Link> {
        self.batcher.link()
    }
}
