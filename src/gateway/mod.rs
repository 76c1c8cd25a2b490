//! One request through Pingora's phases.
//!
//! Reading order: this file (the phases), `exchange` (what one request carries along), `judge`
//! (may it pass?), `respond` (answers of our own, the only place that knows a status code),
//! `limit_headers` (what answers say about limits), `forward` (what the API gets to see), `leftover` (bodies that nobody wants), `pool` (who serves an
//! upstream), `upgrade` (WebSockets), `demo`, `listen`, `drain`.

pub mod drain;
pub mod exchange;
pub mod listen;
pub mod pool;
/// Answers of our own; explanations use their words.
pub(crate) mod respond;

mod demo;
mod forward;
mod judge;
mod leftover;
mod limit_headers;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::Version;
use http::header::TRANSFER_ENCODING;
use pingora::modules::http::HttpModules;
use pingora::prelude::{Error, HttpPeer, RequestHeader, ResponseHeader, Result};
use pingora::proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use prometheus::Histogram;

use crate::clock;
use crate::limit::verdict::Verdict;
use crate::observe::consumption::Consumption;
use crate::observe::metrics::{Metrics, PolicySeries, seconds};
use crate::policy::Policy;
use crate::policy::settings::Target;
use crate::store::limiter::{Limiter, Source};
use crate::store::redis::script::RuleName;
use exchange::Exchange;
use pool::Pool;

/// How long an upgraded connection (a WebSocket) may be silent. Long, since silence is normal
/// there; not endless, since a vanished client would be kept for ever.
const UPGRADED_IDLE: Duration = Duration::from_secs(3600);

/// Sets connections for upgrades apart from those that Pingora keeps for other requests.
const UPGRADES: u64 = 1;

/// Sets the connection of a second try apart: where one kept connection was dead, so may be the
/// next, after a restart of the server for instance.
const RETRIES: u64 = 2;

/// How often a request is sent to an upstream at most: once, and once more.
pub const MAX_TRIES: usize = 2;

/// The snapshot that new requests live by. Written by a reload alone.
pub type Current = ArcSwap<Snapshot>;

/// The proxy: what outlives a request.
pub struct Gateway {
    current: Arc<Current>,
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    /// By source.
    checks: [Histogram; Source::COUNT],
}

/// What a request lives by, from its first phase to its last.
pub struct Snapshot {
    /// How many files have been in force, this one included.
    pub generation: u64,
    /// The rules.
    pub policy: Policy,
    /// The policy's own series.
    pub series: PolicySeries,
    /// Who asks most.
    pub consumption: Consumption,
    /// What the policy's rules are called in Redis.
    pub rule_names: Arc<[RuleName]>,
    /// One for each of the policy's upstreams.
    pub pools: Vec<Arc<Pool>>,
}

impl Snapshot {
    /// Everything that the first policy needs to serve requests. `pools` has one for each of its
    /// upstreams.
    pub fn new(policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        let series = PolicySeries::new(&policy);
        let rule_names = policy.rules.iter().map(RuleName::of).collect();
        let consumption = Consumption::default();
        Self { generation: 1, policy, series, consumption, rule_names, pools }
    }

    /// The same for a policy that follows that of `previous`.
    pub fn following(previous: &Self, policy: Policy, pools: Vec<Arc<Pool>>) -> Self {
        let consumption = previous.consumption.carried_over(&previous.policy, &policy);
        let generation = previous.generation + 1;
        Self { generation, consumption, ..Self::new(policy, pools) }
    }
}

impl Gateway {
    /// A gateway that serves by whatever is `current` and decides by `limiter`.
    pub fn new(current: Arc<Current>, limiter: Arc<Limiter>, metrics: Arc<Metrics>) -> Self {
        let checks = Source::ALL.map(|source| metrics.checks(source));
        Self { current, limiter, metrics, checks }
    }
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::new(self.current.load_full(), self.metrics.in_flight.clone(), clock::now())
    }

    /// None: compression is the API's own business.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn early_request_filter(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let server = &exchange.snapshot.policy.server;
        // Pingora waits for the next request for ever otherwise. A connection that is to close
        // after this request has no such time, and must not get one.
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(server.keepalive_timeout.as_secs().max(1)));
        }
        let upgrade = session.is_upgrade_req();
        let read_timeout = if upgrade { UPGRADED_IDLE } else { server.read_timeout };
        session.set_read_timeout(Some(read_timeout));
        session.set_write_timeout(Some(server.write_timeout));
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        if let Err(refusal) = self.judge(session, exchange).await {
            respond::refuse(session, exchange, refusal).await?;
            return Ok(true);
        }
        if let Some(Target::Demo) = exchange.upstream().map(|upstream| &upstream.target) {
            demo::answer(session, exchange).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Box<HttpPeer>> {
        let snapshot = Arc::clone(&exchange.snapshot);
        let index = exchange.upstream_index();
        let upstream = index.and_then(|index| snapshot.policy.upstreams.get(index));
        let pool = index.and_then(|index| snapshot.pools.get(index));
        let server = pool.and_then(|pool| pool.pick(exchange.failed_server, clock::now()));
        let (Some(upstream), Some(server)) = (upstream, server) else {
            return Err(respond::no_server());
        };
        exchange.tries += 1;
        if exchange.tries > 1 {
            let retries = &self.metrics.upstream_retries;
            retries.with_label_values(&[&*upstream.name]).inc();
        }
        exchange.server = Some(server);
        let mut peer = HttpPeer::new(server, false, String::new());
        let options = &mut peer.options;
        options.connection_timeout = Some(upstream.connect_timeout);
        options.total_connection_timeout = Some(upstream.connect_timeout);
        options.read_timeout = Some(upstream.read_timeout);
        options.write_timeout = Some(upstream.write_timeout);
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

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        forward::prepare(session.client_addr(), request, exchange)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()>
    where
        Self::CTX: Send + Sync,
    {
        // HTTP/1.0 knows no chunks (RFC 9112, section 6.1): the body ends with the connection.
        if session.req_header().version == Version::HTTP_10
            && response.remove_header(&TRANSFER_ENCODING).is_some()
        {
            session.set_keepalive(None);
        }
        drain::announce(session);
        limit_headers::insert(response, exchange)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Exchange,
        mut error: Box<Error>,
    ) -> Box<Error> {
        // Nothing was sent, so another server may have the request, whatever its method.
        exchange.failed_server = exchange.server;
        let index = exchange.upstream_index();
        let pool = index.and_then(|index| exchange.snapshot.pools.get(index));
        if let (Some(pool), Some(server)) = (pool, exchange.server) {
            pool.note_down(server, clock::now());
        }
        error.set_retry(exchange.tries < MAX_TRIES);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        exchange: &mut Exchange,
    ) -> FailToProxy
    where
        Self::CTX: Send + Sync,
    {
        respond::fail(session, exchange, error).await
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, exchange: &mut Exchange) {
        let policy = &exchange.snapshot.policy;
        let status = session.response_written().map_or("", |response| response.status.as_str());
        let plan = exchange.client.map_or("", |client| policy.plan_name(client.plan));
        let route = exchange.route().map_or("", |route| &route.name);
        self.metrics.requests.with_label_values(&[route, plan, status]).inc();
        let verdict = exchange.judged.as_ref().map(|judged| judged.verdict);
        if matches!(verdict, Some(Verdict::Refused { .. })) {
            self.metrics.refused.with_label_values(&[plan]).inc();
        }
        if let Some(route) = exchange.route {
            let ticks = clock::now().saturating_sub(exchange.started);
            exchange.snapshot.series.observe_duration(&self.metrics, policy, route, ticks);
        }
    }

    /// Failures are logged by [`respond::fail`], with the request's id and without its query.
    fn suppress_error_log(&self, _: &Session, _: &Exchange, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Exchange,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    /// Pingora's own summary has the query, where a key may stand.
    fn request_summary(&self, session: &Session, exchange: &Exchange) -> String {
        let request = session.req_header();
        format!("{} {} ({})", request.method, request.uri.path(), exchange.request_id)
    }
}

impl Gateway {
    /// Notes how long a decision took.
    fn observe_check(&self, source: Source, ticks: u64) {
        if let Some(checks) = self.checks.get(source as usize) {
            checks.observe(seconds(ticks));
        }
    }
}
