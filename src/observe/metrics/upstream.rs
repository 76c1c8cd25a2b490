//! The series of upstreams and of connections.

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::{REQUEST_SECONDS, Registrar, seconds};

/// What became of one try to have a request answered by an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamResult {
    /// An answer, by the first digit of its status, 1 to 5.
    Answer(u8),
    /// No connection.
    Connect,
    /// Connected, and not answered in time.
    Timeout,
    /// Connected, and broken off or answered with what is no HTTP, perhaps behind a good head.
    Broken,
    /// None of its servers has an address.
    NoServer,
}

/// The series of all upstreams.
pub(super) struct UpstreamFamilies {
    pub(super) results: IntCounterVec,
    pub(super) durations: HistogramVec,
    pub(super) connections: IntCounterVec,
    pub(super) retries: IntCounterVec,
    healthy: IntGaugeVec,
}

/// A server of an upstream, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHealth<'a> {
    /// The upstream's name.
    pub upstream: &'a str,
    /// The server's address; its name, where that has none.
    pub server: String,
    /// Whether requests go there.
    pub is_healthy: bool,
}

/// The series of one upstream.
#[derive(Debug)]
pub struct UpstreamSeries {
    results: [IntCounter; UpstreamResult::COUNT],
    duration: Histogram,
    new: IntCounter,
    reused: IntCounter,
    retries: IntCounter,
}

/// The series of clients' connections.
#[derive(Clone)]
pub struct ConnectionSeries {
    open: IntGauge,
    all: IntCounter,
}

/// Counts a client's connection as open for as long as it lives.
pub struct OpenConnection(IntGauge);

impl UpstreamResult {
    const COUNT: usize = 9;

    /// The labels, in the order of [`index`](Self::index).
    const LABELS: [&str; Self::COUNT] =
        ["1xx", "2xx", "3xx", "4xx", "5xx", "connect", "timeout", "broken", "no_server"];

    /// What it is called.
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
        }
    }
}

impl UpstreamFamilies {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            results: series.counters(
                "tollgate_upstream_results_total",
                "What became of requests that were sent on: 1xx to 5xx by the answer's status; \
                 connect, timeout, broken (cut off, or no HTTP; also behind a good head), no_server (no \
                 address).",
                &["upstream", "result"],
            )?,
            durations: series.histograms(
                "tollgate_upstream_duration_seconds",
                "Time from choosing a server to the head of its answer, a second try included.",
                "upstream",
                &REQUEST_SECONDS,
            )?,
            connections: series.counters(
                "tollgate_upstream_connections_total",
                "Connections that requests were sent on over, by whether they were kept from before.",
                &["upstream", "reused"],
            )?,
            retries: series.counters(
                "tollgate_upstream_retries_total",
                "Requests sent again to another server of their upstream.",
                &["upstream"],
            )?,
            healthy: series.keep(IntGaugeVec::new(
                Opts::new(
                    "tollgate_upstream_healthy",
                    "Whether a server is taken for healthy: 1; or 0 while it is passed over, since it \
                     could not be connected to lately, or its name has no address.",
                ),
                &["upstream", "server"],
            )?)?,
        })
    }

    /// Has series of these servers and no others.
    pub(super) fn show(&self, servers: &[ServerHealth<'_>]) {
        self.healthy.reset();
        for ServerHealth { upstream, server, is_healthy } in servers {
            self.healthy.with_label_values(&[*upstream, server]).set(i64::from(*is_healthy));
        }
    }

    /// The series of one upstream. All are there from its first request on, so that a rate sees the
    /// first failure.
    pub(super) fn of(&self, upstream: &str) -> UpstreamSeries {
        let connections = |reused| self.connections.with_label_values(&[upstream, reused]);
        UpstreamSeries {
            results: UpstreamResult::LABELS
                .map(|label| self.results.with_label_values(&[upstream, label])),
            duration: self.durations.with_label_values(&[upstream]),
            new: connections("false"),
            reused: connections("true"),
            retries: self.retries.with_label_values(&[upstream]),
        }
    }
}

impl UpstreamSeries {
    /// Counts what became of a try.
    pub fn count(&self, result: UpstreamResult) {
        if let Some(counter) = self.results.get(result.index()) {
            counter.inc();
        }
    }

    /// Notes how long the head of an answer took, in ticks.
    pub fn observe(&self, ticks: u64) {
        self.duration.observe(seconds(ticks));
    }

    /// Counts a request that is sent again.
    pub fn tried_again(&self) {
        self.retries.inc();
    }

    /// Counts a connection that a request is sent on over.
    pub fn connected(&self, is_reused: bool) {
        if is_reused { &self.reused } else { &self.new }.inc();
    }
}

impl ConnectionSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            open: series.gauge(
                "tollgate_client_connections_open",
                "Open connections of clients that have sent a request.",
            )?,
            all: series.keep(IntCounter::new(
                "tollgate_client_connections_total",
                "Connections of clients that have sent a request.",
            )?)?,
        })
    }

    /// Counts a connection with its first request.
    pub fn open(&self) -> OpenConnection {
        self.all.inc();
        self.open.inc();
        OpenConnection(self.open.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}
