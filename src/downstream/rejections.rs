//! Counts connections that the gateway closes without a response, and logs them at a bounded rate.

use std::net::IpAddr;
use std::sync::Arc;

use tracing::{info, warn};

use crate::base::bounded_log::BoundedLog;
use crate::base::clock;
use crate::observe::address::ShownAddress;
use crate::observe::metrics::ConnectionSeries;
use crate::policy::Policy;

/// Counts and logs closed connections. Clones share the log's rate.
#[derive(Clone)]
pub struct Rejections {
    series: ConnectionSeries,
    log: Arc<BoundedLog>,
}

/// Reasons that an operator should look into: clients that did nothing wrong are affected.
const WARNINGS: [&str; 3] = ["max_connections", "no_descriptors", "memory"];

impl Rejections {
    /// Counts in `series`.
    pub fn new(series: ConnectionSeries) -> Self {
        Self { series, log: Arc::default() }
    }

    /// Counts a connection from `peer` that was closed for `reason`, a value of the label of
    /// `tollgate_connections_rejected_total`. One line for each reason is logged in 10 s, with the
    /// number since the last line; `policy` says how an address is shown.
    pub fn note(&self, reason: &'static str, peer: Option<IpAddr>, policy: &Policy) {
        self.series.reject(reason);
        let Some(count) = self.log.note(reason, clock::now()) else { return };
        let last_peer = peer.and_then(|ip| ShownAddress::of(ip, policy));
        let last_peer = last_peer.map(|shown| shown.to_string());
        if WARNINGS.contains(&reason) {
            warn!(reason, count, last_peer, "client connections were closed");
        } else {
            info!(reason, count, last_peer, "client connections were closed");
        }
    }
}
