//! Every Prometheus series, in one place. Labels are names from `gateway.toml`, never clients, so
//! their number is fixed by the file.

use std::sync::OnceLock;

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::limit::charge::{Answer, Charge, Mode};
use crate::policy::Policy;
use crate::store::memory::MemoryStore;

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

/// All series of the process.
pub struct Metrics {
    registry: Registry,
    /// Requests answered, by `route`, `plan` and `status`.
    pub requests: IntCounterVec,
    request_duration: HistogramVec,
    decisions: IntCounterVec,
    check_duration: HistogramVec,
    /// Requests that are being served.
    pub in_flight: IntGauge,
    /// Requests sent again to another server of their upstream, by `upstream`.
    pub upstream_retries: IntCounterVec,
    local_buckets: IntGauge,
    local_evictions: IntCounter,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Buckets in this process.
    Local,
    /// The file alone: no bucket was asked.
    Policy,
}

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
    /// By rule, plan and decision, for [`Source::Local`].
    decisions: Box<[OnceLock<IntCounter>]>,
    plans: usize,
    /// By route.
    durations: Box<[OnceLock<Histogram>]>,
}

// === impl Source ===

impl Source {
    fn label(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Policy => "policy",
        }
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

// === impl Metrics ===

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// Two series of one name, which a test rules out.
    pub fn new(version: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let series = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(series.clone()))?;
            Ok::<_, prometheus::Error>(series)
        };
        let gauge = |name: &str, help: &str| {
            let series = IntGauge::new(name, help)?;
            registry.register(Box::new(series.clone()))?;
            Ok::<_, prometheus::Error>(series)
        };
        let histograms = |name: &str, help: &str, label: &str, bounds: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
            let series = HistogramVec::new(options, &[label])?;
            registry.register(Box::new(series.clone()))?;
            Ok::<_, prometheus::Error>(series)
        };
        let build_info = IntGaugeVec::new(
            Opts::new("tollgate_build_info", "Always 1; the label says which version runs."),
            &["version"],
        )?;
        registry.register(Box::new(build_info.clone()))?;
        build_info.with_label_values(&[version]).set(1);
        gauge("tollgate_config_generation", "How many configurations have been in force.")?.set(1);
        gauge(
            "tollgate_config_last_success_timestamp_seconds",
            "When the configuration in force was read, in Unix time.",
        )?
        .set(i64::try_from(crate::clock::unix_seconds()).unwrap_or_default());
        Ok(Self {
            requests: counters(
                "tollgate_requests_total",
                "Requests answered. Labels are empty where a request has no route or client.",
                &["route", "plan", "status"],
            )?,
            request_duration: histograms(
                "tollgate_request_duration_seconds",
                "Time from a request's head to the end of its answer.",
                "route",
                &REQUEST_SECONDS,
            )?,
            decisions: counters(
                "tollgate_decisions_total",
                "What each rule decided.",
                &["rule", "plan", "decision", "source"],
            )?,
            check_duration: histograms(
                "tollgate_check_duration_seconds",
                "Time that the decision on a request took, over all its rules.",
                "source",
                &CHECK_SECONDS,
            )?,
            in_flight: gauge("tollgate_requests_in_flight", "Requests that are being served.")?,
            upstream_retries: counters(
                "tollgate_upstream_retries_total",
                "Requests sent again to another server of their upstream.",
                &["upstream"],
            )?,
            local_buckets: gauge("tollgate_local_buckets", "Buckets held in this process.")?,
            local_evictions: {
                let help = "Buckets dropped for lack of room before they were full again.";
                let series = IntCounter::new("tollgate_local_evictions_total", help)?;
                registry.register(Box::new(series.clone()))?;
                series
            },
            registry,
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
        self.check_duration.with_label_values(&[source.label()])
    }

    /// Counts a refusal that no bucket took part in: a rule that demands a key, or would.
    pub fn refused_by_policy(&self, policy: &Policy, rule: u32, plan: u32) {
        let Some(rule) = policy.rules.get(rule as usize) else { return };
        let decision = match rule.mode {
            Mode::Enforce => Decision::Deny,
            Mode::Shadow => Decision::ShadowDeny,
        };
        let plan = policy.plan_name(plan);
        let labels = [&*rule.name, plan, decision.label(), Source::Policy.label()];
        self.decisions.with_label_values(&labels).inc();
    }
}

// === impl PolicySeries ===

impl PolicySeries {
    /// Room for the series of `policy`; each is made when it first counts.
    pub fn new(policy: &Policy) -> Self {
        let plans = policy.plans.len();
        let decisions = policy.rules.len() * plans * Decision::COUNT;
        Self {
            decisions: (0..decisions).map(|_| OnceLock::new()).collect(),
            plans,
            durations: policy.routes.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Counts what each rule decided on a request.
    pub fn count(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        plan: u32,
        charges: &[Charge],
        answer: &Answer,
    ) {
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            let Some(decision) = Decision::of(charge, outcome.enough, answer.allowed) else {
                continue;
            };
            let row = charge.rule as usize * self.plans + plan as usize;
            let slot = row * Decision::COUNT + decision as usize;
            let Some(counter) = self.decisions.get(slot) else { continue };
            counter
                .get_or_init(|| {
                    let rule = policy.rules.get(charge.rule as usize).map_or("", |rule| &rule.name);
                    let plan = policy.plan_name(plan);
                    let labels = [rule, plan, decision.label(), Source::Local.label()];
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
