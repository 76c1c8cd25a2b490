//! What is known of servers when a new pool, or the process of an upgrade, begins: the addresses
//! that names had when they were last looked up, so that it serves while names cannot be looked up,
//! and the orders of operators for endpoints.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::orders::KnownOrders;
use crate::net::address::HostPort;

/// What a process knows of the servers of its upstreams, and hands over to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub addresses: KnownAddresses,
    pub orders: KnownOrders,
}

/// Addresses by server, as it is written: `host:port`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAddresses(HashMap<String, Vec<SocketAddr>>);

impl KnownAddresses {
    /// Adds the addresses of a server, unless there are none or the server has some already.
    pub(super) fn add(&mut self, server: &HostPort, addresses: &[SocketAddr]) {
        if !addresses.is_empty() {
            self.0.entry(server.to_string()).or_insert_with(|| addresses.to_vec());
        }
    }

    /// The addresses of a server; empty if none is known.
    pub(super) fn of(&self, server: &HostPort) -> Vec<SocketAddr> {
        self.0.get(&server.to_string()).cloned().unwrap_or_default()
    }
}
