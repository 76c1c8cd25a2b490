//! Selects the upstream endpoint of a request, and sets its timeouts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pingora::prelude::{HttpPeer, Result};
use pingora::proxy::Session;

use super::exchange::Exchange;
use super::{Gateway, UPGRADED_IDLE_TIMEOUT, respond};
use crate::clock;
use crate::observe::access_log::UpstreamMarks;
use crate::observe::metrics::UpstreamResult;
use crate::upstream::connection::{Attempt, Connector, Connects};

impl Gateway {
    /// Selects the next endpoint of the upstream: another one if the last could not be connected to.
    pub(super) fn peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        let snapshot = Arc::clone(&exchange.snapshot);
        let index = exchange.upstream_index();
        let upstream = index.and_then(|index| snapshot.policy.upstreams.get(index));
        let now = clock::now();
        let pool = index.and_then(|index| snapshot.pools.get(index));
        let server = pool.and_then(|pool| pool.select(exchange.failed_server, now));
        let (Some(upstream), Some(pool), Some(server)) = (upstream, pool, server) else {
            self.count_upstream(exchange, UpstreamResult::NoServer);
            return Err(respond::no_server());
        };
        exchange.tries += 1;
        exchange.is_connected = false;
        if let (2.., Some(series)) = (exchange.tries, exchange.upstream_series(&self.metrics)) {
            series.retried();
        }
        exchange.server = Some(server);
        exchange.forwarded = exchange.forwarded.or(Some(now));
        exchange.marks = UpstreamMarks { selected: exchange.forwarded, ..UpstreamMarks::default() };
        let mut peer = HttpPeer::new(server, false, String::new());
        let options = &mut peer.options;
        options.connection_timeout = Some(upstream.connect_timeout);
        options.total_connection_timeout = Some(upstream.connect_timeout);
        options.read_timeout = Some(upstream.read_timeout);
        // A head without a body fits into the socket's send buffer, so a write does not wait, and a timer
        // would cost more than the write.
        let has_body = !session.is_body_empty();
        options.write_timeout = has_body.then_some(upstream.write_timeout);
        let connects = if session.is_upgrade_req() {
            Connects::ForUpgrade
        } else if exchange.tries > 1 {
            Connects::Anew
        } else {
            Connects::IdleFirst
        };
        let attempt = Arc::new(Attempt {
            server,
            request_id: exchange.request_id.clone(),
            connects,
            has_body,
            read_timeout: upstream.read_timeout,
            idle_timeout: upstream.idle_timeout,
            idle: Arc::clone(&pool.idle),
            progress: Mutex::default(),
        });
        if attempt.bounds_every_read() {
            options.read_timeout = Some(UPGRADED_IDLE_TIMEOUT);
        }
        // Pingora must not keep connections: `upstream::connection` does.
        options.idle_timeout = Some(Duration::ZERO);
        options.custom_l4 = Some(Arc::new(Connector(Arc::clone(&attempt))));
        exchange.attempt = Some(attempt);
        Ok(Box::new(peer))
    }
}
