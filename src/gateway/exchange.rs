//! The state of one request, from its first phase to its last.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use pingora::prelude::Result;
use prometheus::IntGauge;

use super::respond::failure;
use super::waiting::Wait;
use crate::base::request_id::RequestId;
use crate::decide::decision::Decision;
use crate::decide::reason::{Failure, Reason};
use crate::downstream::ConnectionInfo;
use crate::limit::in_flight::adaptive::Outcome;
use crate::observe::access_log::UpstreamMarks;
use crate::observe::metrics::{Metrics, UpstreamSeries};
use crate::observe::traces::Trace;
use crate::policy::Route;
use crate::policy::client::Client;
use crate::policy::handling::Handling;
use crate::policy::settings::{KeySource, MaxInFlight, Upstream};
use crate::runtime::Snapshot;
use crate::store::held::Holds;
use crate::upstream::connection::{Attempt, Opened};
use crate::upstream::dial::Dial;
use crate::upstream::endpoint::InFlight;
use crate::upstream::load::Slot;
use crate::upstream::pool::Pool;

/// One request and its response. Times are microseconds of the monotonic clock.
pub struct Exchange {
    /// The configuration in force when the request began. A reload does not change it.
    pub snapshot: Arc<Snapshot>,
    /// When its head had been read.
    pub started: u64,
    /// Identifier in logs, in problem documents and in the request to the upstream.
    pub request_id: RequestId,
    /// The client, once identified.
    pub client: Option<Client>,
    /// Where its API key was, as an index into the sources of keys, once known; `None` without a key.
    pub key_from: Option<usize>,
    /// Whether the request came through a trusted proxy.
    pub via_trusted_proxy: bool,
    /// Index of the route, once known.
    pub route: Option<u32>,
    /// Index of the upstream, once the route is known, unless the request is refused before its limits are checked.
    pub upstream: Option<u32>,
    /// The decision, once made.
    pub decision: Option<Decision>,
    /// Time of the check of the rate limits, if any rule applies.
    pub check: Option<CheckTime>,
    /// The units of limits on requests in flight that it holds. Released when the exchange is dropped, whatever
    /// ends it.
    pub(super) holds: Holds,
    /// Its place among the requests in flight at the upstream.
    pub(super) slot: Option<Slot>,
    /// The wait that leaky buckets demand, until it begins.
    pub(super) wait: Option<Wait>,
    /// Microseconds that it has waited because of leaky buckets; `None` if it need not wait.
    pub waited_us: Option<u64>,
    /// Number of upstream endpoints that have been selected for the request.
    pub tries: usize,
    /// The upstream endpoint that was selected last.
    pub server: Option<SocketAddr>,
    /// Counts the request as in flight at that endpoint.
    pub(super) endpoint: Option<InFlight>,
    /// The header `Set-Cookie` of the response, if the client gets another endpoint than its cookie selects.
    pub(super) set_cookie: Option<HeaderValue>,
    /// When the endpoint that was selected last was.
    pub tried: u64,
    /// When an endpoint was first selected.
    pub forwarded: Option<u64>,
    /// When the parts of the time with the endpoint that was selected last ended.
    pub marks: UpstreamMarks,
    /// Microseconds from then to the head of the final response, once received.
    pub upstream_us: Option<u64>,
    /// Status of the final response, once received.
    pub upstream_status: Option<StatusCode>,
    /// Value of `grpc-status` in the trailers that the client was sent, if any.
    pub grpc_status: Option<HeaderValue>,
    /// How the last attempt failed, as a label of the metrics; `None` if it did not.
    pub upstream_failure: Option<&'static str>,
    /// Why the request failed, if it did.
    pub failure: Option<Failure>,
    /// The endpoint that was selected last, for an attempt over HTTP/1.1.
    pub(super) handed: Option<Handed>,
    /// Whether the connection to the endpoint that was selected last had served a request before.
    pub(super) is_reused: bool,
    /// The attempt over HTTP/1.1 at the endpoint that was selected last.
    pub(super) attempt: Option<Arc<Attempt>>,
    /// Bytes of the request's body that the current attempt has received from the client.
    pub(super) body_bytes: u64,
    /// Number of interim responses (102, 103) received so far.
    pub interim: usize,
    /// Whether the endpoint that was selected last has been connected to.
    pub is_connected: bool,
    /// Number of attempts whose endpoint has been connected to.
    pub(super) connections: usize,
    /// Trace of the request, if tracing is enabled.
    pub trace: Option<Trace>,
    /// The client's connection.
    pub connection: Arc<ConnectionInfo>,
    /// The upstream endpoint that could not be connected to.
    pub failed_server: Option<SocketAddr>,
    _in_flight: Counted,
}

/// Time of a check of rate limits, in microseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTime {
    /// Time at which it began.
    pub started: u64,
    /// Its duration.
    pub took: u64,
}

/// An endpoint that speaks HTTP/1.1.
pub(super) struct Handed {
    pub(super) dial: Dial,
    /// A connection to it, if one was needed to know its version of HTTP.
    pub(super) opened: Option<Opened>,
}

/// Counts a request as in flight until it is dropped, also if it ends without a response.
struct Counted(IntGauge);

impl Exchange {
    /// Begins a request whose head has been read at `now`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        connection: Arc<ConnectionInfo>,
        in_flight: IntGauge,
        now: u64,
    ) -> Self {
        in_flight.inc();
        Self {
            snapshot,
            started: now,
            request_id: RequestId::new(),
            client: None,
            key_from: None,
            via_trusted_proxy: false,
            route: None,
            upstream: None,
            decision: None,
            check: None,
            holds: Holds::new(),
            slot: None,
            wait: None,
            waited_us: None,
            tries: 0,
            tried: now,
            server: None,
            endpoint: None,
            set_cookie: None,
            forwarded: None,
            marks: UpstreamMarks::default(),
            upstream_us: None,
            upstream_status: None,
            grpc_status: None,
            upstream_failure: None,
            failure: None,
            handed: None,
            is_reused: false,
            attempt: None,
            body_bytes: 0,
            interim: 0,
            is_connected: false,
            connections: 0,
            trace: None,
            connection,
            failed_server: None,
            _in_flight: Counted(in_flight),
        }
    }

    /// Returns the route, once known.
    pub fn route(&self) -> Option<&Route> {
        self.snapshot.policy.routes.get(self.route? as usize)
    }

    /// Returns what its route does beside forwarding, if it does anything.
    pub fn handling(&self) -> Option<&Handling> {
        self.route()?.handling.as_deref()
    }

    /// Returns why the gateway itself responded, or why the request failed; `None` if neither is the case.
    pub fn reason(&self) -> Option<Reason> {
        Reason::of(self.decision.as_ref(), self.failure)
    }

    /// Returns where its API key was, once known; `None` without a key.
    pub fn key_source(&self) -> Option<&KeySource> {
        self.snapshot.policy.clients.key_sources.get(self.key_from?)
    }

    /// Returns the index of the upstream, once the route is known.
    pub fn upstream_index(&self) -> Option<usize> {
        self.upstream.map(|upstream| upstream as usize)
    }

    /// Returns the series of the upstream, once the route is known.
    pub fn upstream_series(&self, metrics: &Metrics) -> Option<&UpstreamSeries> {
        let snapshot = &self.snapshot;
        snapshot.series.upstream(metrics, &snapshot.policy, self.upstream_index()?)
    }

    /// Counts bytes of the request's body.
    ///
    /// # Errors
    /// The body is larger than the route's `max_body_bytes`.
    pub(super) fn count_body(&mut self, bytes: usize) -> Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.body_bytes = self.body_bytes.saturating_add(bytes);
        let limit = self.route().and_then(|route| route.max_body_bytes);
        if limit.is_some_and(|limit| self.body_bytes > limit) {
            return Err(failure::body_too_large());
        }
        Ok(())
    }

    /// Adapts the limit on requests in flight of an upstream with `max_in_flight = "auto"` to the last attempt, which
    /// ended at `now`: with a response of this status, or with none.
    pub(super) fn sample(&self, status: Option<StatusCode>, now: u64) {
        let upstream = self.upstream_index();
        let is_adaptive = |upstream: &Upstream| upstream.max_in_flight == Some(MaxInFlight::Auto);
        if !self.upstream().is_some_and(is_adaptive) {
            return;
        }
        let Some(load) = upstream.and_then(|index| self.snapshot.loads.get(index)) else { return };
        let outcome = match status {
            None | Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) => {
                Outcome::Failed
            }
            // The time that the client takes for the body is not the upstream's.
            Some(_) => {
                let sent = self.marks.request.unwrap_or(self.tried).max(self.tried);
                Outcome::Answered(now.saturating_sub(sent))
            }
        };
        load.sample(self.tried, outcome, now);
    }

    /// Returns the endpoints of the upstream, once the route is known.
    pub fn pool(&self) -> Option<&Arc<Pool>> {
        self.snapshot.pools.get(self.upstream_index()?)
    }

    /// Returns the upstream, once the route is known.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.snapshot.policy.upstreams.get(self.upstream_index()?)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
