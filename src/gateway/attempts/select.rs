//! Selects the server of an attempt.

use std::sync::Arc;

use http::HeaderValue;
use pingora::prelude::Result;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::proxy::Session;
use tokio::time::Instant;

use super::{affinity, deadline, retry};
use crate::base::clock;
use crate::gateway::exchange::Exchange;
use crate::gateway::{Gateway, respond};
use crate::net::proxy_protocol::{self, Addresses, Version};
use crate::observe::metrics::UpstreamResult;
use crate::policy::retries::Retries;
use crate::policy::servers::Balance;
use crate::policy::settings::Upstream;
use crate::upstream::dial::Dial;
use crate::upstream::endpoint::InFlight;
use crate::upstream::pool::{Pool, Wanted};
use crate::upstream::sticky;

impl Gateway {
    /// Selects the next endpoint of the upstream: one where the request has not failed, if there is
    /// one.
    ///
    /// # Errors
    /// If no endpoint has an address, or all are drained or disabled.
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
        if exchange.attempts.count() == 1 {
            exchange.attempts.deadline = deadline::of(session, exchange);
            let has_budget = exchange.retries().is_some_and(Retries::has_budget);
            if let Some(load) = exchange.load().filter(|_| has_budget) {
                load.retries.note_request(now);
            }
        }
        let proxy_header = upstream.proxy_protocol.map(|version| proxy_header(session, version));
        let (server, pool) = (pool.endpoint(server), Arc::clone(pool));
        Ok(Dial { server, pool, proxy_header, tries_families: true, is_selected: true })
    }
}

/// Waits before a request is retried at an endpoint where it failed.
pub(super) async fn pause(exchange: &mut Exchange) {
    let tries = exchange.attempts.count();
    if tries < 2 {
        return;
    }
    let (avoided, deadline) = (exchange.attempts.avoided(), exchange.attempts.deadline);
    let Some(last) = exchange.attempts.last_mut() else { return };
    if avoided.contains(&last.server) {
        let random = getrandom::u64().unwrap_or_default();
        let end = Instant::now() + retry::pause(tries - 1, random);
        let end = deadline.map_or(end, |deadline| deadline.at.min(end));
        Box::pin(tokio::time::sleep_until(end)).await;
        last.began = clock::now();
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
    let avoided = exchange.attempts.avoided();
    let endpoint = pool.select(Wanted { not: &avoided, cookie, hash }, now)?;
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

/// The PROXY header with the addresses of the client's connection.
pub(super) fn proxy_header(session: &Session, version: Version) -> Arc<[u8]> {
    let inet = |address: Option<&SocketAddr>| address.and_then(SocketAddr::as_inet).copied();
    let (source, destination) = (inet(session.client_addr()), inet(session.server_addr()));
    let addresses =
        source.zip(destination).map(|(source, destination)| Addresses { source, destination });
    proxy_protocol::encode(version, addresses).into()
}
