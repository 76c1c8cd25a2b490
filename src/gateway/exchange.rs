//! What one request carries along, from its first phase to its last.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use prometheus::IntGauge;

use crate::decide::decision::Decision;
use crate::observe::metrics::{Metrics, OpenConnection, UpstreamSeries};
use crate::observe::traces::Trace;
use crate::policy::Route;
use crate::policy::client::Client;
use crate::policy::settings::Upstream;
use crate::request_id::RequestId;
use crate::runtime::Snapshot;
use crate::upstream::connection::Attempt;
use crate::upstream::pool::Pool;

/// One request and its answer.
pub struct Exchange {
    /// The rules that it is judged by, whatever is reloaded meanwhile.
    pub snapshot: Arc<Snapshot>,
    /// When its head had been read, in ticks.
    pub started: u64,
    /// What it is called in logs, in problem documents and by the API.
    pub request_id: RequestId,
    /// Its client, once known.
    pub client: Option<Client>,
    /// Whether it came through a trusted proxy.
    pub via_trusted_proxy: bool,
    /// Its route, once known, as an index.
    pub route: Option<u32>,
    /// The decision on it, once made.
    pub decision: Option<Decision>,
    /// Time of the check of its rate limits, if any.
    pub check: Option<CheckTime>,
    /// How often an upstream server was picked for it.
    pub tries: usize,
    /// The upstream server that was picked last.
    pub server: Option<SocketAddr>,
    /// When a server was first picked, in ticks.
    pub sent_on: Option<u64>,
    /// Ticks from then to the head of the answer, once it is there.
    pub upstream_us: Option<u64>,
    /// The status of the answer, once it is there.
    pub upstream_status: Option<StatusCode>,
    /// What became of the last try where that was no answer, in the words of the metrics.
    pub upstream_failure: Option<&'static str>,
    /// The attempt at the server that was picked last.
    pub(super) attempt: Option<Arc<Attempt>>,
    /// Interim responses (102, 103) so far.
    pub interim: usize,
    /// Whether there is a connection to the server that was picked last.
    pub is_connected: bool,
    /// Its place in a trace, where traces are wanted.
    pub trace: Option<Trace>,
    /// Keeps the client's connection counted as open; goes on to the next request on it.
    pub connection: Option<Arc<OpenConnection>>,
    /// The upstream server that could not be connected to.
    pub failed_server: Option<SocketAddr>,
    _in_flight: InFlight,
}

/// Time of a check of rate limits, in microseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTime {
    /// When it began.
    pub started: u64,
    /// How long it took.
    pub took: u64,
}

/// Counts a request for as long as it lives, also where it ends without an answer.
struct InFlight(IntGauge);

impl Exchange {
    /// A request whose head has just been read.
    pub fn new(snapshot: Arc<Snapshot>, in_flight: IntGauge, now: u64) -> Self {
        in_flight.inc();
        Self {
            snapshot,
            started: now,
            request_id: RequestId::new(),
            client: None,
            via_trusted_proxy: false,
            route: None,
            decision: None,
            check: None,
            tries: 0,
            server: None,
            sent_on: None,
            upstream_us: None,
            upstream_status: None,
            upstream_failure: None,
            attempt: None,
            interim: 0,
            is_connected: false,
            trace: None,
            connection: None,
            failed_server: None,
            _in_flight: InFlight(in_flight),
        }
    }

    /// Its route, once known.
    pub fn route(&self) -> Option<&Route> {
        self.snapshot.policy.routes.get(self.route? as usize)
    }

    /// The index of its upstream, once its route is known.
    pub fn upstream_index(&self) -> Option<usize> {
        self.route().map(|route| route.upstream as usize)
    }

    /// The series of its upstream, once its route is known.
    pub fn upstream_series(&self, metrics: &Metrics) -> Option<&UpstreamSeries> {
        let snapshot = &self.snapshot;
        snapshot.series.upstream(metrics, &snapshot.policy, self.upstream_index()?)
    }

    /// Who serves its upstream, once its route is known.
    pub fn pool(&self) -> Option<&Arc<Pool>> {
        self.snapshot.pools.get(self.upstream_index()?)
    }

    /// Its upstream, once its route is known.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.snapshot.policy.upstreams.get(self.upstream_index()?)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
