//! Every Prometheus series, in one place. Labels are names from `gateway.toml`, never clients, so
//! their number is fixed by the file.

mod config;
mod gone;
mod totals;

use std::sync::OnceLock;

use prometheus::core::Collector;
#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    CounterVec, Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::limit::charge::{Charge, Mode};
use crate::policy::Policy;
use crate::store::limiter::{Source, Taken};
use crate::store::memory::MemoryStore;
use crate::store::redis::batch::CallSeries;
use crate::store::redis::link::LinkSeries;
use crate::store::redis::link::gate::BreakerSeries;
pub use config::ConfigSeries;
pub use totals::{Decisions, Gauges, Requests, Totals};

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
    /// Requests answered, by `route`, `plan` and `status`.
    pub requests: IntCounterVec,
    /// Requests that a limit refused, by `plan`. Their status does not tell: gRPC's is 200, and an
    /// API may say 429 itself.
    pub refused: IntCounterVec,
    request_duration: HistogramVec,
    decisions: IntCounterVec,
    check_duration: HistogramVec,
    /// Requests that are being served.
    pub in_flight: IntGauge,
    /// Requests sent again to another server of their upstream, by `upstream`.
    pub upstream_retries: IntCounterVec,
    redis_calls: CallSeries,
    /// The file that the process lives by.
    pub config: ConfigSeries,
    link: LinkSeries,
    local_buckets: IntGauge,
    local_evictions: IntCounter,
}

/// Who decided where no bucket was asked: the file alone.
const POLICY: &str = "policy";

/// What became of one rule's charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Allow,
    Deny,
    ShadowDeny,
}

/// The series of one policy's names, found once instead of by label on every request.
#[derive(Debug)]
pub struct PolicySeries {
    /// By rule, plan, decision and source.
    decisions: Box<[OnceLock<IntCounter>]>,
    plans: usize,
    /// By route.
    durations: Box<[OnceLock<Histogram>]>,
}

/// What a source is called in labels.
fn source_label(source: Source) -> &'static str {
    match source {
        Source::Redis => "redis",
        Source::Cache => "cache",
        Source::Local => "local",
        Source::Policy => POLICY,
    }
}

// === impl Decision ===

impl Decision {
    const COUNT: usize = 3;

    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::ShadowDeny => "shadow_deny",
        }
    }

    /// A request that is refused takes from nobody: only the rules that refused are counted then.
    fn of(charge: &Charge, enough: bool, allowed: bool) -> Option<Self> {
        match (charge.mode, enough, allowed) {
            (_, true, true) => Some(Self::Allow),
            (Mode::Enforce, false, _) => Some(Self::Deny),
            (Mode::Shadow, false, true) => Some(Self::ShadowDeny),
            (_, true, false) | (Mode::Shadow, false, false) => None,
        }
    }
}

// === impl Registrar ===

/// Registers series one by one.
#[derive(Default)]
struct Registrar(Registry);

impl Registrar {
    fn keep<C: Collector + Clone + 'static>(&self, series: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(series.clone()))?;
        Ok(series)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::new(name, help)?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        bounds: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        self.keep(HistogramVec::new(options, &[label])?)
    }

    /// What runs.
    fn describe_process(&self, version: &str) -> Result<(), prometheus::Error> {
        let help = "Always 1; the label says which version runs.";
        let build_info = Opts::new("tollgate_build_info", help);
        let build_info = self.keep(IntGaugeVec::new(build_info, &["version"])?)?;
        build_info.with_label_values(&[version]).set(1);
        Ok(())
    }

    fn redis_calls(&self) -> Result<CallSeries, prometheus::Error> {
        let help = "Calls to Redis, by how they went: ok, timeout, or the error's class.";
        let calls = self.counters("tollgate_redis_calls_total", help, &["result"])?;
        let help = "How many checks one call to Redis carried.";
        let checks = HistogramOpts::new("tollgate_redis_batch_checks", help);
        let checks = self.keep(Histogram::with_opts(checks.buckets(BATCH_CHECKS.to_vec()))?)?;
        let help =
            "Checks that Redis was asked for and did not answer in time. It may have counted them.";
        let name = "tollgate_redis_ambiguous_checks_total";
        let ambiguous = self.keep(IntCounter::new(name, help)?)?;
        let help = "Tokens that were granted without Redis and taken off there later.";
        let settled = Opts::new("tollgate_debt_settled_tokens_total", help);
        let settled = self.keep(CounterVec::new(settled, &["rule"])?)?;
        Ok(CallSeries { calls, checks, ambiguous, settled })
    }

    fn link(&self) -> Result<LinkSeries, prometheus::Error> {
        let help =
            "Whether Redis is asked: 0 closed (always), 1 half open (a part), 2 open (never).";
        let state = self.gauge("tollgate_breaker_state", help)?;
        let help = "Changes of the breaker, by the state that followed.";
        let transitions = self.counters("tollgate_breaker_transitions_total", help, &["to"])?;
        let help = "Live gateways that share this Redis, this one included.";
        let gateways = self.gauge("tollgate_gateways", help)?;
        Ok(LinkSeries { breaker: BreakerSeries { state, transitions }, gateways })
    }
}

// === impl Metrics ===

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// Two series of one name, which a test rules out.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        let series = Registrar::default();
        #[cfg(target_os = "linux")]
        series.0.register(Box::new(ProcessCollector::for_self()))?;
        series.describe_process(version)?;
        Ok(Self {
            requests: series.counters(
                "tollgate_requests_total",
                "Requests answered. Labels are empty where a request has no route or client.",
                &["route", "plan", "status"],
            )?,
            refused: series.counters(
                "tollgate_refused_requests_total",
                "Requests that a limit refused, whatever the status of their answer.",
                &["plan"],
            )?,
            request_duration: series.histograms(
                "tollgate_request_duration_seconds",
                "Time from a request's head to the end of its answer.",
                "route",
                &REQUEST_SECONDS,
            )?,
            decisions: series.counters(
                "tollgate_decisions_total",
                "What each rule decided.",
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
            upstream_retries: series.counters(
                "tollgate_upstream_retries_total",
                "Requests sent again to another server of their upstream.",
                &["upstream"],
            )?,
            redis_calls: series.redis_calls()?,
            config: ConfigSeries::register(&series)?,
            link: series.link()?,
            local_buckets: series
                .gauge("tollgate_local_buckets", "Buckets held in this process.")?,
            local_evictions: series.keep(IntCounter::new(
                "tollgate_local_evictions_total",
                "Buckets dropped for lack of room before they were full again.",
            )?)?,
            registry: series.0,
        })
    }

    /// All series in Prometheus' text format, with the store's own figures as they are now.
    ///
    /// # Errors
    /// A series that cannot be written as text, which the encoder alone knows.
    pub fn render(&self, store: &MemoryStore) -> Result<Vec<u8>, prometheus::Error> {
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
        let decision = match rule.mode {
            Mode::Enforce => Decision::Deny,
            Mode::Shadow => Decision::ShadowDeny,
        };
        let plan = policy.plan_name(plan);
        let labels = [&*rule.name, plan, decision.label(), POLICY];
        self.decisions.with_label_values(&labels).inc();
    }
}

// === impl PolicySeries ===

impl PolicySeries {
    /// Room for the series of `policy`; each is made when it first counts.
    pub fn new(policy: &Policy) -> Self {
        let plans = policy.plans.len();
        let decisions = policy.rules.len() * plans * Decision::COUNT * Source::COUNT;
        Self {
            decisions: (0..decisions).map(|_| OnceLock::new()).collect(),
            plans,
            durations: policy.routes.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Counts what each rule decided on a request.
    pub fn count(&self, metrics: &Metrics, policy: &Policy, plan: u32, taken: &Taken) {
        let Taken { charges, answer, source, waived } = taken;
        let decided = charges.iter().zip(&answer.outcomes).filter_map(|(charge, outcome)| {
            Some((charge, Decision::of(charge, outcome.enough, answer.allowed)?, *source))
        });
        let waived = waived.iter().filter(|_| answer.allowed);
        let waived = waived.map(|charge| (charge, Decision::Allow, Source::Policy));
        for (charge, decision, source) in decided.chain(waived) {
            let row = charge.rule as usize * self.plans + plan as usize;
            let slot =
                (row * Decision::COUNT + decision as usize) * Source::COUNT + source as usize;
            let Some(counter) = self.decisions.get(slot) else { continue };
            counter
                .get_or_init(|| {
                    let rule = policy.rules.get(charge.rule as usize).map_or("", |rule| &rule.name);
                    let plan = policy.plan_name(plan);
                    let labels = [rule, plan, decision.label(), source_label(source)];
                    metrics.decisions.with_label_values(&labels)
                })
                .inc();
        }
    }

    /// Notes how long a request took, in ticks.
    pub fn observe_duration(&self, metrics: &Metrics, policy: &Policy, route: u32, ticks: u64) {
        let Some(slot) = self.durations.get(route as usize) else { return };
        let name = || policy.routes.get(route as usize).map_or("", |route| &route.name);
        slot.get_or_init(|| metrics.request_duration.with_label_values(&[name()]))
            .observe(seconds(ticks));
    }
}

/// Ticks as seconds, for histograms. Exact below 285 years.
#[allow(clippy::cast_precision_loss, reason = "a duration in ticks is far below 2^53")]
pub fn seconds(ticks: u64) -> f64 {
    ticks as f64 / crate::limit::TICKS_PER_SECOND as f64
}
