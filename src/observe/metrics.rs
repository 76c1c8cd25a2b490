//! Every Prometheus series, in one place. Labels are names from `gateway.toml`, never clients, so
//! their number is fixed by the file.

mod config;
/// What `docs/metrics.md` says.
mod docs;
mod policy;
mod registrar;
mod stale;
mod totals;
mod traces;
mod upstream;

use parking_lot::Mutex;
use prometheus::{
    Encoder, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry, TextEncoder,
};

use super::decision::{Decision, POLICY, source_label};
use crate::policy::Policy;
use crate::store::limiter::Source;
use crate::store::memory::MemoryStore;
use crate::store::redis::batch::CallSeries;
use crate::store::redis::link::LinkSeries;
pub use config::ConfigSeries;
pub use policy::PolicySeries;
use registrar::Registrar;
pub use totals::{Decisions, Gauges, Requests, Totals};
pub use traces::TraceSeries;
use upstream::UpstreamFamilies;
pub use upstream::{
    ConnectionSeries, OpenConnection, ServerHealth, UpstreamResult, UpstreamSeries,
};

/// Upper bounds of request durations, in seconds: from a proxied hop on loopback to the longest
/// timeout in common use.
const REQUEST_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Upper bounds of a check's duration, in seconds: from a lookup in memory to a call that hangs.
const CHECK_SECONDS: [f64; 12] = [
    0.000_000_5,
    0.000_001,
    0.000_002_5,
    0.000_01,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.1,
];

/// Upper bounds of the number of checks in a call.
const BATCH_CHECKS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// All series of the process.
pub struct Metrics {
    registry: Registry,
    /// Held while series that are as of now are set and read.
    rendering: Mutex<()>,
    /// Requests answered, by `route`, `plan` and `status`.
    pub requests: IntCounterVec,
    request_duration: HistogramVec,
    decisions: IntCounterVec,
    check_duration: HistogramVec,
    /// Requests that are being served.
    pub in_flight: IntGauge,
    /// Connections of clients.
    pub connections: ConnectionSeries,
    refused: IntCounterVec,
    near_limit: IntCounterVec,
    upstreams: UpstreamFamilies,
    redis_calls: CallSeries,
    /// The file that the process lives by.
    pub config: ConfigSeries,
    link: LinkSeries,
    local_buckets: IntGauge,
    local_evictions: IntCounter,
    /// Lines of the access log that were lost.
    pub access_log_dropped: IntCounter,
    /// What became of spans.
    pub traces: TraceSeries,
    /// Bursts of refusals that the stream in Redis lacks.
    pub audit_dropped: IntCounter,
}

// === impl Metrics ===

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// Two series of one name, which a test rules out.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        Ok(Self::register(version)?.0)
    }

    /// The same, and what each is.
    fn register(version: &str) -> Result<(Self, Vec<docs::Described>), prometheus::Error> {
        let series = Registrar::default();
        series.describe_process(version)?;
        let metrics = Self {
            requests: series.counters(
                "tollgate_requests_total",
                "Requests answered. Labels are empty where a request has no route or client.",
                &["route", "plan", "status"],
            )?,
            request_duration: series.histograms(
                "tollgate_request_duration_seconds",
                "Time from a request's head to the end of its answer.",
                "route",
                &REQUEST_SECONDS,
            )?,
            decisions: series.counters(
                "tollgate_decisions_total",
                "What each rule decided: allow, deny, shadow_deny; and by whom: redis, cache, local, policy.",
                &["rule", "plan", "decision", "source"],
            )?,
            check_duration: series.histograms(
                "tollgate_check_duration_seconds",
                "Time that the decision on a request took, over all its rules.",
                "source",
                &CHECK_SECONDS,
            )?,
            in_flight: series
                .gauge("tollgate_requests_in_flight", "Requests that are being served.")?,
            connections: ConnectionSeries::register(&series)?,
            refused: series.counters(
                "tollgate_refused_total",
                "Requests that a limit refused, each once: by the rule to wait for longest.",
                &["rule", "plan"],
            )?,
            near_limit: series.counters(
                "tollgate_near_limit_total",
                "Requests that passed and left less than a fifth of the rule's bucket.",
                &["rule", "plan"],
            )?,
            upstreams: UpstreamFamilies::register(&series)?,
            redis_calls: series.redis_calls()?,
            config: ConfigSeries::register(&series)?,
            link: series.link()?,
            local_buckets: series
                .gauge("tollgate_local_buckets", "Buckets held in this process.")?,
            local_evictions: series.keep(IntCounter::new(
                "tollgate_local_evictions_total",
                "Buckets dropped for lack of room before they were full again.",
            )?)?,
            access_log_dropped: series.keep(IntCounter::new(
                "tollgate_access_log_dropped_total",
                "Lines of the access log that were lost: its place was full, too slow, or gone.",
            )?)?,
            traces: TraceSeries::register(&series)?,
            audit_dropped: series.keep(IntCounter::new(
                "tollgate_audit_dropped_total",
                "Bursts of refusals that the stream in Redis lacks: more than 50 in a second, or \
                 Redis took too few.",
            )?)?,
            registry: series.registry.clone(),
            rendering: Mutex::new(()),
        };
        Ok((metrics, series.described.into_inner()))
    }

    /// All series in Prometheus' text format, with the store's own figures and `servers` as they
    /// are now.
    ///
    /// # Errors
    /// A series that cannot be written as text, which the encoder alone knows.
    pub fn render(
        &self,
        store: &MemoryStore,
        servers: &[ServerHealth<'_>],
    ) -> Result<Vec<u8>, prometheus::Error> {
        let _alone = self.rendering.lock();
        self.upstreams.show(servers);
        self.local_buckets.set(i64::try_from(store.len()).unwrap_or(i64::MAX));
        let evictions = store.evictions();
        self.local_evictions.inc_by(evictions.saturating_sub(self.local_evictions.get()));
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }

    /// The histogram of checks that `source` decides, to be kept.
    pub fn checks(&self, source: Source) -> Histogram {
        self.check_duration.with_label_values(&[source_label(source)])
    }

    /// The series of calls to Redis, for whoever makes them.
    pub fn redis_calls(&self) -> CallSeries {
        self.redis_calls.clone()
    }

    /// The series of the link to Redis, for whoever keeps it.
    pub fn link(&self) -> LinkSeries {
        self.link.clone()
    }

    /// Counts a refusal that no bucket took part in: a rule that demands a key, or would.
    pub fn refused_by_policy(&self, policy: &Policy, rule: u32, plan: u32) {
        let Some(rule) = policy.rules.get(rule as usize) else { return };
        let decision = Decision::of_demand(rule.mode);
        let plan = policy.plan_name(plan);
        let labels = [&*rule.name, plan, decision.label(), POLICY];
        self.decisions.with_label_values(&labels).inc();
    }
}

/// Ticks as seconds, for histograms. Exact below 285 years.
#[allow(clippy::cast_precision_loss, reason = "a duration in ticks is far below 2^53")]
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / crate::limit::MICROS_PER_SECOND as f64
}
