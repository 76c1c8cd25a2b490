//! The addresses that names of servers had when they were last looked up. A new pool, or the
//! process of an upgrade, begins with them, so that it serves while names cannot be looked up.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::net::address::HostPort;

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
