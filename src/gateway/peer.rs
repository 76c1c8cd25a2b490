//! Which server a request is sent on to, and how long that may take.

use std::sync::Arc;
use std::time::Duration;

use pingora::prelude::{HttpPeer, Result};
use pingora::proxy::Session;

use super::exchange::Exchange;
use super::{Gateway, UPGRADED_IDLE, respond, upgrade};
use crate::clock;
use crate::observe::metrics::UpstreamResult;

/// Sets connections for upgrades apart from those that Pingora keeps for other requests.
const UPGRADES: u64 = 1;

/// Sets the connection of a second try apart: where one kept connection was dead, so may be the
/// next, after a restart of the server for instance.
const RETRIES: u64 = 2;

impl Gateway {
    /// The next server for a request: another one where the last could not be connected to.
    pub(super) fn peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        let snapshot = Arc::clone(&exchange.snapshot);
        let index = exchange.upstream_index();
        let upstream = index.and_then(|index| snapshot.policy.upstreams.get(index));
        let now = clock::now();
        let server = exchange.pool().and_then(|pool| pool.pick(exchange.failed_server, now));
        let (Some(upstream), Some(server)) = (upstream, server) else {
            self.count_upstream(exchange, UpstreamResult::NoServer);
            return Err(respond::no_server());
        };
        exchange.tries += 1;
        exchange.is_connected = false;
        if let (2.., Some(series)) = (exchange.tries, exchange.upstream_series(&self.metrics)) {
            series.tried_again();
        }
        exchange.server = Some(server);
        exchange.sent_on = exchange.sent_on.or(Some(now));
        let mut peer = HttpPeer::new(server, false, String::new());
        let options = &mut peer.options;
        options.connection_timeout = Some(upstream.connect_timeout);
        options.total_connection_timeout = Some(upstream.connect_timeout);
        options.read_timeout = Some(upstream.read_timeout);
        // A head alone fits into what the system takes at once: there is nothing to wait for, and
        // a timer costs more than that.
        options.write_timeout = (!session.is_body_empty()).then_some(upstream.write_timeout);
        options.idle_timeout = Some(upstream.idle_timeout);
        if exchange.tries > 1 {
            options.idle_timeout = Some(Duration::ZERO);
            peer.group_key = RETRIES;
        }
        if session.is_upgrade_req() {
            options.read_timeout = Some(UPGRADED_IDLE);
            let timeout = upstream.connect_timeout;
            options.custom_l4 = Some(Arc::new(upgrade::Connector { timeout }));
            // Neither from the pool nor into it: connections there are of the plain kind.
            options.idle_timeout = Some(Duration::ZERO);
            peer.group_key = UPGRADES;
        }
        Ok(Box::new(peer))
    }
}
