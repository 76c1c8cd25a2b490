//! Series of upstreams.

use std::sync::Arc;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::counts::UpstreamCount;
use super::mirror::MirrorFamilies;
use super::{REQUEST_SECONDS, Registrar, seconds};
use crate::policy::health::{EjectReason, LookupState, State};

/// Result of one attempt to forward a request to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamResult {
    /// A response, by the first digit of its status, 1 to 5.
    Answer(u8),
    /// No connection could be made.
    Connect,
    /// Connected, but no response in time.
    Timeout,
    /// Connected, but the connection was closed or the response is not valid HTTP. This may occur
    /// after a valid head.
    Broken,
    /// No endpoint of the upstream has an address.
    NoServer,
    /// All connections of `max_connections` were in use.
    Overflow,
}

/// Why a request is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// The server could not be connected to.
    Connect,
    /// The server has not processed the request, by its own account.
    Unprocessed,
    /// The connection closed before the head of the response.
    Reset,
    /// The head of the response did not come in time.
    Timeout,
    /// The status of the response.
    Status,
}

pub(super) struct UpstreamFamilies {
    pub(super) results: IntCounterVec,
    pub(super) durations: HistogramVec,
    pub(super) connections: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) over_retry_budget: IntCounterVec,
    pub(super) endpoints: EndpointFamilies,
    pub(super) mirrors: MirrorFamilies,
    in_flight: IntGaugeVec,
    limit: IntGaugeVec,
    open: IntGaugeVec,
    pending: IntGaugeVec,
    pub(super) shed: IntCounterVec,
}

/// The health of endpoints.
pub(super) struct EndpointFamilies {
    healthy: IntGaugeVec,
    states: IntGaugeVec,
    lookups: IntGaugeVec,
    pub(super) ejections: IntCounterVec,
    pub(super) checks: IntCounterVec,
}

/// Current health of one endpoint of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHealth<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The endpoint's address, or its host name if that has no address.
    pub server: String,
    /// Its state; `None`: its name has no address.
    pub state: Option<State>,
}

/// How the last look-up of the name of a server went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameLookup<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The server as the file writes it.
    pub server: String,
    pub state: LookupState,
}

/// Current load of one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamLoad<'a> {
    /// Name of the upstream.
    pub upstream: &'a str,
    /// Requests in flight.
    pub in_flight: u32,
    /// How many may be in flight; `None`: any number.
    pub limit: Option<u32>,
    /// Open connections.
    pub connections: u32,
    /// Requests that wait for one.
    pub pending: u32,
}

/// The series of one upstream: attempts, retries, durations and connections.
#[derive(Debug)]
pub struct UpstreamSeries {
    results: [IntCounter; UpstreamResult::COUNT],
    duration: Histogram,
    new: IntCounter,
    reused: IntCounter,
    /// In the order of [`RetryReason::ALL`].
    retries: [IntCounter; RetryReason::ALL.len()],
    over_retry_budget: IntCounter,
    /// In the order of [`EjectReason::ALL`].
    ejections: [IntCounter; EjectReason::ALL.len()],
    /// The same numbers for samples.
    recent: Arc<UpstreamCount>,
}

impl UpstreamResult {
    const COUNT: usize = 10;

    /// The labels, in the order of [`index`](Self::index).
    const LABELS: [&str; Self::COUNT] = [
        "1xx",
        "2xx",
        "3xx",
        "4xx",
        "5xx",
        "connect",
        "timeout",
        "broken",
        "no_server",
        "overflow",
    ];

    /// Value of the label `result`.
    pub fn label(self) -> &'static str {
        Self::LABELS.get(self.index()).copied().unwrap_or_default()
    }

    fn index(self) -> usize {
        match self {
            Self::Answer(digit) => usize::from(digit.clamp(1, 5)) - 1,
            Self::Connect => 5,
            Self::Timeout => 6,
            Self::Broken => 7,
            Self::NoServer => 8,
            Self::Overflow => 9,
        }
    }
}

impl RetryReason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::Connect, Self::Unprocessed, Self::Reset, Self::Timeout, Self::Status];

    /// The word of metrics and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Unprocessed => "unprocessed",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Status => "status",
        }
    }
}

impl UpstreamFamilies {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            results: series.counters(
                "tollgate_upstream_results_total",
                "Forwarded requests by result: 1xx to 5xx (the response's status), connect, timeout, \
                 broken (connection closed early or invalid HTTP, also after a valid head), no_server \
                 (no address), overflow (max_connections).",
                &["upstream", "result"],
            )?,
            durations: series.histograms(
                "tollgate_upstream_duration_seconds",
                "Time from choosing an endpoint to the head of its response, including a retry, in seconds.",
                "upstream",
                &REQUEST_SECONDS,
            )?,
            connections: series.counters(
                "tollgate_upstream_connections_total",
                "Connections that requests were forwarded on, by whether an idle one was reused.",
                &["upstream", "reused"],
            )?,
            retries: series.counters(
                "tollgate_upstream_retries_total",
                "Requests that were sent again, by why: connect (no connection), unprocessed (the server \
                 said so), reset, timeout, status.",
                &["upstream", "reason"],
            )?,
            over_retry_budget: series.counters(
                "tollgate_upstream_retries_over_budget_total",
                "Requests that failed and were not sent again, because the budget of retries was used up.",
                &["upstream"],
            )?,
            endpoints: EndpointFamilies::register(series)?,
            mirrors: MirrorFamilies::register(series)?,
            in_flight: series.keep(IntGaugeVec::new(
                Opts::new("tollgate_upstream_in_flight", "Requests in flight at the upstream."),
                &["upstream"],
            )?)?,
            limit: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_limit",
                    "How many requests may be in flight at an upstream with max_in_flight.",
                ),
                &["upstream"],
            )?)?,
            open: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_connections_open",
                    "Open connections to the upstream, in use and idle.",
                ),
                &["upstream"],
            )?)?,
            pending: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_pending_requests",
                    "Requests that wait for a connection to the upstream because of max_connections.",
                ),
                &["upstream"],
            )?)?,
            shed: series.counters(
                "tollgate_shed_total",
                "Requests that were refused because the upstream had its max_in_flight (503), by the client's plan.",
                &["upstream", "plan"],
            )?,
        })
    }

    /// Replaces the load series by those of `loads`.
    pub(super) fn show_loads(&self, loads: &[UpstreamLoad<'_>]) {
        for gauges in [&self.in_flight, &self.limit, &self.open, &self.pending] {
            gauges.reset();
        }
        for UpstreamLoad { upstream, in_flight, limit, connections, pending } in loads {
            self.open.with_label_values(&[*upstream]).set(i64::from(*connections));
            self.pending.with_label_values(&[*upstream]).set(i64::from(*pending));
            self.in_flight.with_label_values(&[*upstream]).set(i64::from(*in_flight));
            if let Some(limit) = limit {
                self.limit.with_label_values(&[*upstream]).set(i64::from(*limit));
            }
        }
    }

    /// The series of one upstream. All of them exist from its first request on, so that `rate()`
    /// sees the first failure.
    pub(super) fn of(&self, upstream: &str, recent: Arc<UpstreamCount>) -> UpstreamSeries {
        let connections = |reused| self.connections.with_label_values(&[upstream, reused]);
        UpstreamSeries {
            results: UpstreamResult::LABELS
                .map(|label| self.results.with_label_values(&[upstream, label])),
            duration: self.durations.with_label_values(&[upstream]),
            new: connections("false"),
            reused: connections("true"),
            retries: RetryReason::ALL
                .map(|reason| self.retries.with_label_values(&[upstream, reason.name()])),
            over_retry_budget: self.over_retry_budget.with_label_values(&[upstream]),
            ejections: EjectReason::ALL.map(|reason| {
                self.endpoints.ejections.with_label_values(&[upstream, reason.name()])
            }),
            recent,
        }
    }
}

impl EndpointFamilies {
    fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            healthy: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_healthy",
                    "1 if requests are sent to the endpoint; 0 if not, for any of the reasons in \
                     tollgate_upstream_endpoint_state, or if its name has no address.",
                ),
                &["upstream", "server"],
            )?)?,
            states: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_endpoint_state",
                    "1 for the state that the endpoint is in: up, unreachable (a connection failed \
                     within 5 s), ejected (its requests fail), unchecked (no health check has ended), \
                     unhealthy (its health checks fail), unresolved (its name does not exist any \
                     more), drained or disabled (by an operator).",
                ),
                &["upstream", "server", "state"],
            )?)?,
            lookups: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_lookup_state",
                    "1 for the state that the look-ups of a server's name are in: pending (none has \
                     ended), ok, failed (the addresses stay in use), absent (the name does not exist, \
                     or has no addresses).",
                ),
                &["upstream", "server", "state"],
            )?)?,
            ejections: series.counters(
                "tollgate_upstream_ejections_total",
                "Endpoints that were ejected because their requests failed, by reason: \
                 consecutive_failures, error_rate.",
                &["upstream", "reason"],
            )?,
            checks: series.counters(
                "tollgate_upstream_checks_total",
                "Health checks of endpoints by result: ok, connect, timeout, status, not_serving (gRPC), \
                 protocol. The first of a new endpoint is not counted.",
                &["upstream", "result"],
            )?,
        })
    }

    /// Replaces the series of states by those of `servers` and of `lookups`.
    pub(super) fn show(&self, servers: &[ServerHealth<'_>], lookups: &[NameLookup<'_>]) {
        self.healthy.reset();
        self.states.reset();
        self.lookups.reset();
        for NameLookup { upstream, server, state } in lookups {
            for each in LookupState::ALL {
                let series = self.lookups.with_label_values(&[*upstream, server, each.name()]);
                series.set(i64::from(each == *state));
            }
        }
        for ServerHealth { upstream, server, state } in servers {
            let is_healthy = *state == Some(State::Up);
            self.healthy.with_label_values(&[*upstream, server]).set(i64::from(is_healthy));
            for each in State::ALL.into_iter().filter(|_| state.is_some()) {
                let series = self.states.with_label_values(&[*upstream, server, each.name()]);
                series.set(i64::from(Some(each) == *state));
            }
        }
    }
}

impl UpstreamSeries {
    /// Counts the result of one attempt. `has_answered`: the head of a response had arrived before.
    pub fn count(&self, result: UpstreamResult, has_answered: bool) {
        if let Some(counter) = self.results.get(result.index()) {
            counter.inc();
        }
        let recent = &self.recent;
        match (result, has_answered) {
            (UpstreamResult::Answer(5), _) => &recent.errors,
            (UpstreamResult::Answer(_), _) => &recent.answers,
            (_, false) => &recent.failures,
            (_, true) => &recent.late_failures,
        }
        .inc();
    }

    /// Records the time until the head of a response, in microseconds.
    pub fn observe(&self, us: u64) {
        self.duration.observe(seconds(us));
        self.recent.durations.observe(us);
    }

    /// Counts a retry.
    pub fn retried(&self, reason: RetryReason) {
        increment(&RetryReason::ALL, reason, &self.retries);
        self.recent.retries.inc();
    }

    /// Counts a failure after which the budget allowed no retry.
    pub fn over_retry_budget(&self) {
        self.over_retry_budget.inc();
    }

    /// Counts an endpoint that was ejected.
    pub fn ejected(&self, reason: EjectReason) {
        increment(&EjectReason::ALL, reason, &self.ejections);
    }

    /// Counts a connection that a request is forwarded on.
    pub fn connected(&self, is_reused: bool) {
        if is_reused { &self.reused } else { &self.new }.inc();
    }
}

/// Increments the counter of one of `all`, which has one for each.
fn increment<T: Copy + PartialEq>(all: &[T], one: T, counters: &[IntCounter]) {
    let each = all.iter().zip(counters);
    each.filter(|(own, _)| **own == one).for_each(|(_, counter)| counter.inc());
}
