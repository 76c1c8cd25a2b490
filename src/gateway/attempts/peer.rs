//! Selects the upstream endpoint of a request, and sets its timeouts.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, header};
use parking_lot::Mutex;
use pingora::prelude::{Error, HttpPeer, Result};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::Session;

use super::{Handed, affinity};
use crate::base::clock;
use crate::downstream::connection::ClientProtocol;
use crate::gateway::exchange::Exchange;
use crate::gateway::request::grpc_deadline;
use crate::gateway::{Gateway, MAX_TRIES, respond};
use crate::net::proxy_protocol::{self, Addresses, Version};
use crate::observe::metrics::UpstreamResult;
use crate::policy::servers::Balance;
use crate::policy::settings::{ProxyVersion, Upstream};
use crate::upstream::connection::{Attempt, Connector, Connects, Progress, TimedOut};
use crate::upstream::dial::Dial;
use crate::upstream::endpoint::InFlight;
use crate::upstream::pool::{Pool, Wanted};
use crate::upstream::sticky;

impl Gateway {
    /// Selects the next endpoint of the upstream: another one if the last could not be connected
    /// to.
    ///
    /// # Errors
    /// If no endpoint has an address.
    pub(super) fn select(&self, session: &Session, exchange: &mut Exchange) -> Result<Dial> {
        let snapshot = Arc::clone(&exchange.snapshot);
        let index = exchange.upstream_index();
        let upstream = index.and_then(|index| snapshot.policy.upstreams.get(index));
        let now = clock::now();
        let pool = index.and_then(|index| snapshot.pools.get(index));
        let chosen = upstream
            .zip(pool)
            .and_then(|(upstream, pool)| choose(session, exchange, upstream, pool, now));
        let (Some(upstream), Some(pool), Some((endpoint, cookie))) = (upstream, pool, chosen)
        else {
            self.count_upstream(exchange, UpstreamResult::NoServer);
            return Err(respond::no_server());
        };
        let server = endpoint.address();
        exchange.attempts.begin(endpoint, cookie, now);
        let tries = exchange.attempts.count();
        if let (2.., Some(series)) = (tries, exchange.upstream_series(&self.metrics)) {
            series.retried();
        }
        let proxy_header = upstream.proxy_protocol.map(|version| proxy_header(session, version));
        Ok(Dial { server: pool.endpoint(server), pool: Arc::clone(pool), proxy_header })
    }

    /// The endpoint of the next attempt over HTTP/1.1.
    ///
    /// # Errors
    /// If no endpoint has an address.
    pub(in crate::gateway) fn peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        // A retry sends the body from its beginning.
        exchange.attempts.body_bytes = 0;
        let Handed { dial, opened } = match exchange.attempts.handed.take() {
            Some(handed) => handed,
            None => Handed { dial: self.select(session, exchange)?, opened: None },
        };
        let Some(upstream) = exchange.upstream() else { return Err(respond::no_server()) };
        let mut peer = HttpPeer::new(dial.server.address, false, String::new());
        let options = &mut peer.options;
        options.connection_timeout = Some(upstream.connect_timeout);
        options.total_connection_timeout = Some(upstream.connect_timeout);
        options.read_timeout = Some(upstream.read_timeout);
        // A head without a body fits into the socket's send buffer, so a write does not wait, and a
        // timer would cost more than the write.
        let has_body = !session.is_body_empty();
        options.write_timeout = has_body.then_some(upstream.write_timeout);
        let connects = if session.is_upgrade_req() {
            Connects::ForUpgrade
        } else if exchange.attempts.count() > 1 {
            Connects::Anew
        } else {
            Connects::IdleFirst
        };
        let mut attempt = attempt(exchange, upstream, dial, connects, has_body);
        attempt.deadline = grpc_deadline::of(session, exchange.started);
        let attempt = Arc::new(attempt);
        if has_body {
            let limits = &exchange.snapshot.policy.server.limits;
            let awaits_continue = session.req_header().headers.contains_key(header::EXPECT);
            let transfer = &exchange.connection.transfer;
            *attempt.progress.lock() =
                Progress::measured(limits.body_min_rate, transfer, awaits_continue);
        }
        *attempt.opened.lock() = opened;
        if attempt.bounds_every_read() {
            options.read_timeout = None;
        }
        // Pingora must not keep connections: `upstream::connection` does.
        options.idle_timeout = Some(Duration::ZERO);
        options.custom_l4 = Some(Arc::new(Connector(Arc::clone(&attempt))));
        if let Some(last) = exchange.attempts.last_mut() {
            last.connection = Some(attempt);
        }
        Ok(Box::new(peer))
    }

    /// Notes that the endpoint that was selected last has been connected to.
    pub(in crate::gateway) fn connected(&self, exchange: &mut Exchange, is_reused: bool) {
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_reused = Some(is_reused);
            attempt.marks.connected = Some(clock::now());
        }
        if let Some(series) = exchange.upstream_series(&self.metrics) {
            series.connected(is_reused);
        }
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (false, Some(pool), Some(endpoint)) = (is_reused, exchange.pool(), endpoint) {
            pool.readmit(endpoint, clock::now());
        }
    }

    /// Ejects the endpoint that was selected last, which could not be connected to. Nothing was
    /// sent, so another endpoint can be tried, whatever the method. If the deadline of a gRPC call
    /// has passed, neither.
    #[allow(clippy::unnecessary_box_returns, reason = "the type that Pingora's phases return")]
    pub(in crate::gateway) fn failed_to_connect(
        &self,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        let timed_out = exchange.attempts.connection().and_then(Attempt::timed_out);
        if timed_out == Some(TimedOut::Deadline) {
            error = grpc_deadline::passed();
        }
        if grpc_deadline::has_passed(&error) {
            // Not a failure of the server: a client can set any deadline.
            self.count_upstream(exchange, UpstreamResult::Timeout);
            return error;
        }
        if let Some(attempt) = exchange.attempts.last_mut() {
            attempt.is_refused = true;
        }
        exchange.sample(None, clock::now());
        self.count_upstream(exchange, UpstreamResult::Connect);
        let endpoint = exchange.attempts.last().and_then(|attempt| attempt.endpoint.as_ref());
        if let (Some(pool), Some(endpoint)) = (exchange.pool(), endpoint) {
            pool.eject(endpoint, clock::now());
        }
        error.set_retry(exchange.attempts.count() < MAX_TRIES);
        error
    }
}

/// Selects an endpoint. If the client's cookie does not select it, also returns the cookie that the
/// response sets.
fn choose(
    session: &Session,
    exchange: &Exchange,
    upstream: &Upstream,
    pool: &Pool,
    now: u64,
) -> Option<(InFlight, Option<HeaderValue>)> {
    let headers = &session.req_header().headers;
    let sticky = upstream.sticky.as_ref();
    let cookie = sticky.and_then(|sticky| sticky::of_request(sticky, headers));
    let hash = match &upstream.balance {
        Balance::Hash(source) => affinity::hash(source, headers, exchange),
        Balance::RoundRobin | Balance::LeastRequest | Balance::RandomTwo => 0,
    };
    let endpoint = pool.select(Wanted { not: exchange.attempts.refused(), cookie, hash }, now)?;
    let set_cookie = sticky.and_then(|sticky| {
        let is_known =
            |value: &str| cookie.is_some_and(|cookie| sticky::values(cookie).any(|it| it == value));
        let value = pool.cookie(endpoint.address()).filter(|value| !is_known(value));
        let is_https = exchange.connection.tls.is_some();
        let others = exchange.snapshot.pools.iter();
        let others = others.filter_map(|pool| pool.value_beside(upstream, cookie?));
        sticky::set_cookie(sticky, &sticky::joined(&value?, others), is_https)
    });
    Some((endpoint, set_cookie))
}

fn attempt(
    exchange: &Exchange,
    upstream: &Upstream,
    dial: Dial,
    connects: Connects,
    has_body: bool,
) -> Attempt {
    let route = exchange.route();
    Attempt {
        dial,
        request_id: exchange.request_id.clone(),
        connects,
        has_body,
        read_timeout: upstream.read_timeout,
        upgraded_idle_timeout: route.map_or(Duration::MAX, |route| route.websocket_idle_timeout),
        idle_timeout: upstream.idle_timeout,
        deadline: None,
        opened: Mutex::default(),
        progress: Mutex::default(),
        client_timeout: match exchange.connection.protocol {
            ClientProtocol::Http1 => None,
            ClientProtocol::Http2 => Some(exchange.snapshot.policy.server.read_timeout),
        },
    }
}

/// The PROXY header with the addresses of the client's connection.
fn proxy_header(session: &Session, version: ProxyVersion) -> Arc<[u8]> {
    let inet = |address: Option<&SocketAddr>| address.and_then(SocketAddr::as_inet).copied();
    let (source, destination) = (inet(session.client_addr()), inet(session.server_addr()));
    let addresses =
        source.zip(destination).map(|(source, destination)| Addresses { source, destination });
    let version = match version {
        ProxyVersion::V1 => Version::V1,
        ProxyVersion::V2 => Version::V2,
    };
    proxy_protocol::encode(version, addresses).into()
}
