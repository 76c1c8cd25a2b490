//! What is known of servers when a new pool, or the process of an upgrade, begins: the addresses
//! that names had when they were last looked up, so that it serves while names cannot be looked up,
//! and the orders of operators for endpoints.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::orders::KnownOrders;
use crate::net::address::Origin;
use crate::net::lookup::Found;

/// What a process knows of the servers of its upstreams, and hands over to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    pub addresses: KnownAddresses,
    pub orders: KnownOrders,
}

/// Addresses by server, as it is written: `host:port`, or the name of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAddresses(HashMap<String, Vec<KnownAddress>>);

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum KnownAddress {
    OfHost(SocketAddr),
    /// With what its SRV record says.
    OfService {
        address: SocketAddr,
        target: String,
        priority: u16,
        weight: u16,
    },
}

impl KnownAddresses {
    /// Adds the addresses of a server, unless there are none or the server has some already.
    pub(super) fn add(&mut self, server: &Origin, found: &[Found]) {
        let known = |found: &Found| match server {
            Origin::Host(_) => KnownAddress::OfHost(found.address),
            Origin::Service(_) => KnownAddress::OfService {
                address: found.address,
                target: found.host.to_string(),
                priority: found.priority,
                weight: found.weight,
            },
        };
        if !found.is_empty() {
            let known = || found.iter().map(known).collect();
            self.0.entry(server.to_string()).or_insert_with(known);
        }
    }

    /// The addresses of a server; empty if none is known.
    pub(super) fn of(&self, server: &Origin) -> Vec<Found> {
        let found = |known: &KnownAddress| match known.clone() {
            KnownAddress::OfHost(address) => {
                Found { address, host: server.host().into(), priority: 0, weight: 0 }
            }
            KnownAddress::OfService { address, target, priority, weight } => {
                Found { address, host: target.into(), priority, weight }
            }
        };
        self.0.get(&server.to_string()).map_or_else(Vec::new, |all| all.iter().map(found).collect())
    }
}
