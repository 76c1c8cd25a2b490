//! The state of one request, from its first phase to its last.

use std::sync::Arc;

use http::HeaderValue;
use pingora::prelude::Result;
use prometheus::IntGauge;
use smallvec::SmallVec;

use super::attempts::Attempts;
use super::attempts::mirror::Mirroring;
use super::compression::Encoder;
use super::judge::Judged;
use super::metering::Metering;
use super::respond::failure;
use crate::base::clock;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::request_id::RequestId;
use crate::client::Client;
use crate::client::identity::Identity;
use crate::client::settings::KeySource;
use crate::decide::decision::Decision;
use crate::decide::reason::{Failure, Reason};
use crate::downstream::ConnectionInfo;
use crate::limit::cost::Amount;
use crate::observe::metrics::{Metrics, UpstreamSeries};
use crate::observe::traces::Trace;
use crate::policy::Route;
use crate::policy::compression::Compression;
use crate::policy::handling::Handling;
use crate::policy::mirror::Mirror;
use crate::policy::retries::Retries;
use crate::policy::settings::Upstream;
use crate::policy::time_limits::TimeLimits;
use crate::runtime::Snapshot;
use crate::upstream::load::Load;
use crate::upstream::pool::Pool;

/// Time after the head of a response from which it counts as a success of its endpoint although it
/// has not ended, in microseconds.
const PROVEN_US: u64 = 5 * MICROS_PER_SECOND;

/// One request and its response. Times are microseconds of the monotonic clock.
pub struct Exchange {
    /// The configuration in force when the request began. A reload does not change it.
    pub snapshot: Arc<Snapshot>,
    /// When its head had been read.
    pub started: u64,
    /// Identifier in logs, in problem documents and in the request to the upstream.
    pub request_id: RequestId,
    /// The client's connection.
    pub connection: Arc<ConnectionInfo>,
    /// What was decided, once it is.
    pub judged: Option<Judged>,
    /// Microseconds that it has waited because of leaky buckets; `None` if it need not wait.
    pub waited_us: Option<u64>,
    /// The attempts to send it to a server.
    pub attempts: Attempts,
    /// The copy for another upstream, until it is sent.
    pub(super) mirroring: Mirroring,
    /// Compresses the body of the response, if it is compressed, until it has ended.
    pub(super) encoder: Option<Box<Encoder>>,
    /// Reads what it costs by its response, until that has ended.
    pub(super) metering: Option<Box<Metering>>,
    /// Charges, by index, that are given back since it failed. They are not settled.
    pub(super) refunded: Vec<usize>,
    /// Whether the others are settled.
    pub(super) is_settled: bool,
    /// Rules, by index, that settle costs at the end of the response, and these costs.
    pub costs: SmallVec<[(u32, Amount); 1]>,
    /// Value of `grpc-status` in the trailers that the client was sent, if any.
    pub grpc_status: Option<HeaderValue>,
    /// Why the request failed, if it did.
    pub failure: Option<Failure>,
    /// Trace of the request, if tracing is enabled.
    pub trace: Option<Trace>,
    /// Bytes of the body of a server's response, as the client gets it.
    pub(super) response_bytes: u64,
    /// Whether it has been recorded.
    pub(super) is_recorded: bool,
    _in_flight: Counted,
}

/// Counts a request as in flight until it is dropped, also if it ends without a response.
pub(super) struct Counted(IntGauge);

impl Exchange {
    /// Begins a request whose head has been read at `now`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        connection: Arc<ConnectionInfo>,
        in_flight: IntGauge,
        now: u64,
    ) -> Self {
        Self {
            snapshot,
            started: now,
            request_id: RequestId::new(),
            connection,
            judged: None,
            waited_us: None,
            attempts: Attempts::default(),
            mirroring: Mirroring::default(),
            encoder: None,
            metering: None,
            refunded: Vec::new(),
            is_settled: false,
            costs: SmallVec::new(),
            grpc_status: None,
            failure: None,
            trace: None,
            response_bytes: 0,
            is_recorded: false,
            _in_flight: Counted::new(in_flight),
        }
    }

    /// Returns the decision, once made.
    pub fn decision(&self) -> Option<&Decision> {
        self.judged.as_ref().map(|judged| &judged.decision)
    }

    /// Returns who the client is, once known.
    pub fn identity(&self) -> Option<&Identity> {
        self.judged.as_ref()?.identity.as_ref()
    }

    /// Returns the client, once known.
    pub fn client(&self) -> Option<&Client> {
        self.identity().map(|identity| &identity.client)
    }

    /// Returns whether the request came through a trusted proxy.
    pub fn via_trusted_proxy(&self) -> bool {
        self.identity().is_some_and(|identity| identity.via_trusted_proxy)
    }

    /// Returns the index of the route, once known.
    pub fn route_index(&self) -> Option<u32> {
        self.judged.as_ref()?.route
    }

    /// Returns the route, once known.
    pub fn route(&self) -> Option<&Route> {
        self.snapshot.policy.routes.get(self.route_index()? as usize)
    }

    /// Returns what its route does beside forwarding, if it does anything.
    pub fn handling(&self) -> Option<&Handling> {
        self.route()?.handling.as_deref()
    }

    /// Returns why the gateway itself responded, or why the request failed; `None` if neither is
    /// the case.
    pub fn reason(&self) -> Option<Reason> {
        Reason::of(self.decision(), self.failure)
    }

    /// Returns where its API key was, once known; `None` without a key.
    pub fn key_source(&self) -> Option<&KeySource> {
        self.snapshot.policy.clients.key_sources.get(self.identity()?.key_from?)
    }

    /// Returns the index of the upstream, once the route is known, unless the request is refused
    /// before its limits are checked.
    pub fn upstream_index(&self) -> Option<usize> {
        self.judged.as_ref()?.upstream.map(|upstream| upstream as usize)
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
        let received = &mut self.attempts.body_bytes;
        *received = received.saturating_add(bytes);
        let received = *received;
        let limit = self.route().and_then(|route| route.max_body_bytes);
        if limit.is_some_and(|limit| received > limit) {
            return Err(failure::body_too_large());
        }
        Ok(())
    }

    /// Notes that the response to the last attempt has not broken off, for the health of its
    /// endpoint, unless it counts already.
    pub(super) fn note_success(&mut self) {
        let index = self.upstream_index();
        let attempt = self.attempts.last_mut().filter(|attempt| attempt.is_unproven);
        let Some(attempt) = attempt else { return };
        attempt.is_unproven = false;
        let pool = index.and_then(|index| self.snapshot.pools.get(index));
        if let (Some(pool), Some(endpoint)) = (pool, &attempt.endpoint) {
            pool.observe(endpoint, None, clock::now());
        }
    }

    /// Notes a part of the body of the response, for the health of the endpoint: a long response
    /// counts before its end.
    pub(super) fn note_part(&mut self) {
        let unproven = self.attempts.last().filter(|attempt| attempt.is_unproven);
        let Some(head) = unproven.and_then(|attempt| attempt.marks.head) else { return };
        if clock::now().saturating_sub(head) >= PROVEN_US {
            self.note_success();
        }
    }

    /// Ends the work of the upstream: the request is in flight there no more.
    pub(super) fn release_upstream(&mut self) {
        self.note_success();
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.endpoint = None;
        }
        self.release_slot();
    }

    /// Notes that the final response has begun.
    pub(super) fn note_answered(&mut self) {
        if let Some(slot) = self.judged.as_mut().and_then(|judged| judged.slot.as_mut()) {
            slot.answered();
        }
    }

    /// Gives up its place among the requests in flight at the upstream.
    pub(super) fn release_slot(&mut self) {
        if let Some(judged) = &mut self.judged {
            judged.slot = None;
        }
    }

    /// Gives up its units of limits on requests in flight, and its place at the upstream.
    pub(super) fn release_holds(&mut self) {
        if let Some(judged) = &mut self.judged {
            judged.holds.clear();
            judged.slot = None;
        }
    }

    /// Returns the endpoints of the upstream, once the route is known.
    pub fn pool(&self) -> Option<&Arc<Pool>> {
        self.snapshot.pools.get(self.upstream_index()?)
    }

    /// Returns when the request is sent again, once the route is known.
    pub fn retries(&self) -> Option<&Retries> {
        let of_route = self.route().and_then(|route| route.retries.as_deref());
        of_route.or_else(|| self.upstream().map(|upstream| &upstream.retries))
    }

    /// Returns how its response is compressed, once the route is known; `None`: not at all.
    pub fn compression(&self) -> Option<&Compression> {
        let of_route = self.route().and_then(|route| route.compression.as_ref());
        let own = of_route.or_else(|| self.upstream().map(|upstream| &upstream.compression))?;
        (!own.is_off()).then_some(own)
    }

    /// Returns which requests another upstream gets, too, once the route is known.
    pub fn mirror(&self) -> Option<&Mirror> {
        match self.route().and_then(|route| route.mirror.as_deref()) {
            Some(of_route) => of_route.on(),
            None => self.upstream()?.mirror.as_deref(),
        }
    }

    /// Returns its time limits beside those of every upstream.
    pub fn time_limits(&self) -> TimeLimits {
        let of_upstream = self.upstream().map(|upstream| upstream.time_limits).unwrap_or_default();
        match self.route().and_then(|route| route.time_limits.as_deref()) {
            Some(of_route) => of_route.or(of_upstream),
            None => of_upstream,
        }
    }

    /// Returns the requests in flight at the upstream and the budget of its retries, once the route
    /// is known.
    pub fn load(&self) -> Option<&Arc<Load>> {
        self.snapshot.loads.get(self.upstream_index()?)
    }

    /// Returns the upstream, once the route is known.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.snapshot.policy.upstreams.get(self.upstream_index()?)
    }
}

impl Counted {
    pub(super) fn new(in_flight: IntGauge) -> Self {
        in_flight.inc();
        Self(in_flight)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
