//! All Prometheus series. Labels are names from `gateway.toml` and fixed words, never clients, so
//! the file determines the number of series.
//!
//! Reading order: this file (registration and rendering), `policy` (the series of one policy,
//! without a label look-up per request), `upstream` and `process` (the other families), `counts`,
//! `latency` and `totals` (what samples are made of), `states` (what rules do at the moment),
//! `stale` (removal of series), `registrar` and `docs` (`docs/metrics.md`).

mod checks;
mod counts;
mod docs;
mod keys;
mod latency;
mod mirror;
mod policy;
mod process;
mod quotas;
mod registrar;
mod settlements;
mod stale;
mod states;
mod tls;
mod tokens;
mod totals;
mod upstream;
mod webhooks;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    TextEncoder,
};

use crate::decide::label::source_label;
use crate::decide::reason::Reason;
use crate::observe::process_log;
use crate::store::limiter::Source;
use crate::store::memory::MemoryStore;
use crate::store::redis::nodes::RedisSeries;
pub use checks::{CheckSeries, ChecksSeries};
use counts::{Count, Counts, OutcomeLabel, RequestCount, RequestLabels};
pub use counts::{
    Increases, Name, OutcomeCounts, RouteCounts, RuleCounts, STATUS_CLASSES, UpstreamCounts,
};
pub use keys::KeySeries;
pub use latency::{Durations, Percentiles};
pub use mirror::MirrorResult;
pub use policy::{CompleteRequest, PolicySeries};
pub use process::{ConfigSeries, ConnectionSeries, OpenConnection, OverloadSeries, TraceSeries};
pub use quotas::QuotaSeries;
use registrar::Registrar;
pub use settlements::{Settled, SettlementSeries};
pub use states::RuleStates;
pub use tls::TlsSeries;
pub use tokens::{TokenKeys, TokenSeries};
pub use totals::{Gauges, Totals};
use upstream::UpstreamFamilies;
pub use upstream::{
    NameLookup, RetryReason, ServerHealth, UpstreamLoad, UpstreamResult, UpstreamSeries,
};
pub use webhooks::WebhookSeries;

/// Histogram bounds of request durations, in seconds: from one hop on loopback to the longest
/// timeout in common use.
const REQUEST_SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Histogram bounds of check durations, in seconds: from a look-up in memory to a call to Redis
/// that times out.
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

/// Histogram bounds of the time that a request waits because of leaky buckets, in seconds.
const WAIT_SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0];

/// Histogram bounds of the number of checks in one call to Redis.
const BATCH_CHECKS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// All Prometheus series of the process.
pub struct Metrics {
    registry: Registry,
    /// Serialises renderings, because each begins by setting the series that are computed on
    /// demand.
    rendering: Mutex<()>,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    decisions: IntCounterVec,
    check_duration: HistogramVec,
    /// Number of requests that have begun and not yet ended.
    pub in_flight: IntGauge,
    /// Requests that wait because of leaky buckets.
    pub waits: WaitSeries,
    /// Writes of usage.
    pub usage: UsageSeries,
    /// Look-ups in the key store.
    pub keys: KeySeries,
    /// Checks of credentials.
    pub auth: ChecksSeries,
    /// Units that requests hold, by rule.
    pub held_units: GaugeVec,
    /// What rules do at the moment.
    pub rules: RuleStates,
    /// Panics: bugs of tollgate.
    pub panics: IntCounter,
    /// Number of client connections, open and in total.
    pub connections: ConnectionSeries,
    /// Connections, descriptors and memory against their limits.
    pub overload: OverloadSeries,
    refused: IntCounterVec,
    rejections: IntCounterVec,
    near_limit: IntCounterVec,
    /// Requests that reached no server.
    pub refunds: RefundSeries,
    /// Requests whose costs are read from their responses.
    pub settlements: SettlementSeries,
    /// Requests near and beyond quotas.
    pub quotas: QuotaSeries,
    /// Events that are sent.
    pub webhooks: WebhookSeries,
    upstreams: UpstreamFamilies,
    /// The configuration in force, and reloads.
    pub config: ConfigSeries,
    redis: RedisSeries,
    local_buckets: IntGauge,
    local_evictions: IntCounter,
    log_dropped: IntCounter,
    /// Number of access log lines that were dropped.
    pub access_log_dropped: IntCounter,
    /// Handshakes of clients, and certificates.
    pub tls: TlsSeries,
    /// Keys of token issuers.
    pub tokens: TokenSeries,
    /// Numbers of exported and dropped spans, and exports by result.
    pub traces: TraceSeries,
    /// Refusal runs that could not be added to the stream in Redis.
    pub audit_dropped: IntCounter,
    /// Numbers of orders for automatic certificates, by result.
    pub acme_orders: IntCounterVec,
    /// What samples are made of.
    counts: Counts,
}

/// Writes of usage, to Redis or to a file.
#[derive(Debug, Clone)]
pub struct UsageSeries {
    /// Successful writes.
    pub written: IntCounter,
    /// Failed attempts to open or write the file.
    pub failed: IntCounter,
    /// Records that could not be written yet.
    pub unwritten: IntGauge,
    /// Records that are not kept.
    pub dropped: IntCounter,
}

/// Requests that wait because of leaky buckets.
pub struct WaitSeries {
    /// How many wait.
    pub waiting: IntGauge,
    /// How long they wait, in seconds.
    pub duration: Histogram,
}

// === impl Metrics ===

/// Requests that reached no server, by rule and reason.
pub struct RefundSeries {
    /// Those whose tokens were given back.
    pub given: IntCounterVec,
    /// Those whose tokens could not be given back.
    pub lost: IntCounterVec,
}

impl Metrics {
    /// Registers every series. `version` is the label of `tollgate_build_info`.
    ///
    /// # Errors
    /// Two series have the same name; a test rules this out.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        Ok(Self::register(version)?.0)
    }

    /// As [`new`](Self::new), with the description of each series for `docs/metrics.md`.
    fn register(version: &str) -> Result<(Self, Vec<docs::Described>), prometheus::Error> {
        let series = Registrar::default();
        series.describe_process(version)?;
        let metrics = Self {
            requests: series.counters(
                "tollgate_requests_total",
                "Complete requests. A label is empty if the request matched no route, has no plan, or has no \
                 response because the client disconnected.",
                &["route", "plan", "status"],
            )?,
            request_duration: series.histograms(
                "tollgate_request_duration_seconds",
                "Time from the end of the request head to the end of the response, in seconds.",
                "route",
                &REQUEST_SECONDS,
            )?,
            decisions: series.counters(
                "tollgate_decisions_total",
                "Decisions of each rule (allow, deny, shadow_deny), by what decided (redis, cache, local, policy, lease, ban).",
                &["rule", "plan", "decision", "source"],
            )?,
            check_duration: series.histograms(
                "tollgate_check_duration_seconds",
                "Time to decide on one request, over all of its rules, in seconds.",
                "source",
                &CHECK_SECONDS,
            )?,
            in_flight: series
                .gauge("tollgate_requests_in_flight", "Requests in flight.")?,
            waits: series.waits()?,
            usage: series.usage()?,
            keys: KeySeries::register(&series)?,
            auth: ChecksSeries::register(&series)?,
            held_units: series.held_units()?,
            rules: RuleStates::register(&series)?,
            panics: panics(&series)?,
            connections: ConnectionSeries::register(&series)?,
            overload: OverloadSeries::register(&series)?,
            refused: series.counters(
                "tollgate_refused_total",
                "Requests that a limit refused (429). Each counts once: for the rule with the longest retry after.",
                &["rule", "plan"],
            )?,
            rejections: rejections(&series)?,
            near_limit: near_limit(&series)?,
            refunds: refunds(&series)?,
            settlements: SettlementSeries::register(&series)?,
            quotas: QuotaSeries::register(&series)?,
            webhooks: WebhookSeries::register(&series)?,
            upstreams: UpstreamFamilies::register(&series)?,
            config: ConfigSeries::register(&series)?,
            redis: series.redis()?,
            local_buckets: series
                .gauge("tollgate_local_buckets", "Buckets in this process.")?,
            local_evictions: local_evictions(&series)?,
            log_dropped: log_dropped(&series)?,
            access_log_dropped: access_log_dropped(&series)?,
            tls: TlsSeries::register(&series)?,
            tokens: TokenSeries::register(&series)?,
            traces: TraceSeries::register(&series)?,
            audit_dropped: audit_dropped(&series)?,
            acme_orders: acme_orders(&series)?,
            counts: Counts::default(),
            registry: series.registry.clone(),
            rendering: Mutex::new(()),
        };
        Ok((metrics, series.described.into_inner()))
    }

    /// Counts a health check of an endpoint of this upstream.
    pub(crate) fn count_check(&self, upstream: &str, result: &str) {
        self.upstreams.endpoints.checks.with_label_values(&[upstream, result]).inc();
    }

    /// All series in Prometheus' text format. The series of `store`, `servers`, `lookups` and
    /// `loads` are set to their current values first.
    ///
    /// # Errors
    /// The encoder rejects a series.
    pub fn render(
        &self,
        store: &MemoryStore,
        servers: &[ServerHealth<'_>],
        lookups: &[NameLookup<'_>],
        loads: &[UpstreamLoad<'_>],
    ) -> Result<Vec<u8>, prometheus::Error> {
        let _rendering = self.rendering.lock();
        self.upstreams.endpoints.show(servers, lookups);
        self.upstreams.show_loads(loads);
        self.local_buckets.set(i64::try_from(store.len()).unwrap_or(i64::MAX));
        let evictions = store.evictions();
        self.local_evictions.inc_by(evictions.saturating_sub(self.local_evictions.get()));
        self.log_dropped.inc_by(process_log::dropped().saturating_sub(self.log_dropped.get()));
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }

    /// The histogram of the durations of checks that `source` decides.
    pub fn checks(&self, source: Source) -> Histogram {
        self.check_duration.with_label_values(&[source_label(source)])
    }

    /// The series of Redis: calls, breakers and membership.
    pub fn redis(&self) -> RedisSeries {
        self.redis.clone()
    }

    /// Everything that was counted since the previous call.
    pub fn increases(&self) -> Increases {
        self.counts.take()
    }

    /// The number of complete requests with these labels.
    fn request_count(&self, labels: &RequestLabels) -> Arc<RequestCount> {
        self.counts.requests.get(labels, || {
            let RequestLabels { route, plan, status, outcome, reason } = labels;
            let status = if *status == 0 { String::new() } else { status.to_string() };
            let refused = match outcome {
                OutcomeLabel::Refused(rule) => Some(self.refused.with_label_values(&[rule, plan])),
                _ => None,
            };
            RequestCount {
                since: Count::default(),
                total: self.requests.with_label_values(&[&**route, &**plan, &*status]),
                refused,
                rejected: reason.map(|reason| self.rejections.with_label_values(&[reason.label()])),
            }
        })
    }
}

impl RequestCount {
    fn count(&self) {
        self.since.inc();
        self.total.inc();
        for counter in self.refused.iter().chain(&self.rejected) {
            counter.inc();
        }
    }
}

fn local_evictions(series: &Registrar) -> Result<IntCounter, prometheus::Error> {
    series.keep(IntCounter::new(
        "tollgate_local_evictions_total",
        "Buckets evicted from this process before they were full again, for lack of room.",
    )?)
}

fn acme_orders(series: &Registrar) -> Result<IntCounterVec, prometheus::Error> {
    series.counters(
        "tollgate_acme_orders_total",
        "Orders for automatic certificates by result: ok, or why there is no certificate (docs/acme.md).",
        &["result"],
    )
}

/// Counts lines of the log of the process that are lost.
fn access_log_dropped(series: &Registrar) -> Result<IntCounter, prometheus::Error> {
    series.keep(IntCounter::new(
        "tollgate_access_log_dropped_total",
        "Access log lines dropped because the output was full, too slow or closed.",
    )?)
}

fn near_limit(series: &Registrar) -> Result<IntCounterVec, prometheus::Error> {
    series.counters(
        "tollgate_near_limit_total",
        "Allowed requests that left less than a fifth of the rule's bucket.",
        &["rule", "plan"],
    )
}

fn refunds(series: &Registrar) -> Result<RefundSeries, prometheus::Error> {
    let given = series.counters(
        "tollgate_refunds_total",
        "Allowed requests that reached no server, or whose response had a status of refund_on, and whose tokens were given back, by \
         reason.",
        &["rule", "reason"],
    )?;
    let lost = series.counters(
        "tollgate_refunds_lost_total",
        "Such requests whose tokens could not be given back: Redis did not answer or had deducted \
         them, a lease had ended, or the file was reloaded.",
        &["rule", "reason"],
    )?;
    Ok(RefundSeries { given, lost })
}

fn audit_dropped(series: &Registrar) -> Result<IntCounter, prometheus::Error> {
    series.keep(IntCounter::new(
        "tollgate_audit_dropped_total",
        "Refusal runs missing from the stream in Redis: more ended in a second than are written, \
         or Redis did not accept them in time.",
    )?)
}

fn log_dropped(series: &Registrar) -> Result<IntCounter, prometheus::Error> {
    series.keep(IntCounter::new(
        "tollgate_log_dropped_total",
        "Lines of the log of the process dropped because standard error was full, not read or closed.",
    )?)
}

fn panics(series: &Registrar) -> Result<IntCounter, prometheus::Error> {
    series.keep(IntCounter::new(
        "tollgate_panics_total",
        "Panics, each a bug. A panic ends the request that it occurs in, or the process.",
    )?)
}

/// Registers the counter of reasons. All of its series exist from the start, so that `rate()` sees
/// the first request.
fn rejections(series: &Registrar) -> Result<IntCounterVec, prometheus::Error> {
    let rejections = series.counters(
        "tollgate_rejections_total",
        "Requests that did not get the complete response of an upstream, by reason. docs/responses.md \
         lists the reasons.",
        &["reason"],
    )?;
    for reason in Reason::ALL {
        rejections.with_label_values(&[reason.label()]);
    }
    Ok(rejections)
}

/// Converts microseconds to seconds. Exact below 285 years.
#[allow(clippy::cast_precision_loss, reason = "a duration in microseconds is far below 2^53")]
pub fn seconds(us: u64) -> f64 {
    us as f64 / crate::base::duration::MICROS_PER_SECOND as f64
}
