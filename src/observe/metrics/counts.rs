//! What samples are made of: counts since the previous sample.
//!
//! Each complete request adds one to one [`RequestCount`], which has its route, plan, status and
//! outcome. All sums of a sample come from these counts, so they agree with each other at any time.
//!
//! An upgrade sends them to a process of another version, by the names of their fields: rename
//! none.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::IntCounter;
use serde::{Deserialize, Serialize};

use super::latency::{DurationCounts, Durations, LatencyHistogram};
use crate::decide::reason::Reason;

/// A name from `gateway.toml`; empty for requests that have none.
pub type Name = Arc<str>;

/// A number since the previous sample.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

/// What complete requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestLabels {
    pub(super) route: Name,
    pub(super) plan: Name,
    /// Status sent to the client; 0 if none was sent.
    pub(super) status: u16,
    pub(super) outcome: OutcomeLabel,
    pub(super) reason: Option<Reason>,
}

/// A [`RequestOutcome`](crate::decide::outcome::RequestOutcome) with the name of the rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OutcomeLabel {
    Allowed,
    Refused(Name),
    Unavailable,
    Unauthorized,
    Rejected,
}

/// The number of complete requests with the same labels.
#[derive(Debug)]
pub(super) struct RequestCount {
    pub(super) since: Count,
    /// The series of `tollgate_requests_total`.
    pub(super) total: IntCounter,
    /// The series of `tollgate_refused_total`, if a rule refused the requests.
    pub(super) refused: Option<IntCounter>,
    /// The series of `tollgate_rejections_total`, if the requests have a reason.
    pub(super) rejected: Option<IntCounter>,
}

/// Decisions of one rule.
#[derive(Debug, Default)]
pub(super) struct RuleCount {
    pub(super) allowed: Count,
    pub(super) shadow_refused: Count,
}

/// Attempts to forward requests to one upstream.
#[derive(Debug, Default)]
pub(super) struct UpstreamCount {
    /// Responses with another status than 5xx.
    pub(super) answers: Count,
    /// Responses with status 5xx.
    pub(super) errors: Count,
    /// Attempts without a response.
    pub(super) failures: Count,
    /// Responses that broke off after their head. They are also in `answers` or `errors`.
    pub(super) late_failures: Count,
    pub(super) retries: Count,
    /// Times until the head of a response.
    pub(super) durations: LatencyHistogram,
}

/// Values by name. Each is created once, and shared by all configurations that have the name.
#[derive(Debug)]
pub(super) struct Named<K, V>(Mutex<HashMap<K, Arc<V>>>);

/// All counts of the process.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: Named<RequestLabels, RequestCount>,
    pub(super) rules: Named<Name, RuleCount>,
    /// Durations of requests, by route.
    pub(super) durations: Named<Name, LatencyHistogram>,
    pub(super) upstreams: Named<Name, UpstreamCount>,
}

/// Everything that was counted since the previous call of
/// [`Metrics::increases`](super::Metrics::increases).
#[derive(Clone, Debug, Default)]
pub struct Increases {
    /// Complete requests by plan.
    pub plans: BTreeMap<Name, OutcomeCounts>,
    /// Decisions by rule.
    pub rules: BTreeMap<Name, RuleCounts>,
    /// Complete requests by route.
    pub routes: BTreeMap<Name, RouteCounts>,
    /// Forwarded requests by upstream.
    pub upstreams: BTreeMap<Name, UpstreamCounts>,
    /// Complete requests by the first digit of their status; 0 without a response.
    pub statuses: [u64; STATUS_CLASSES],
    /// Durations of all requests.
    pub durations: Durations,
    /// Requests retried on another endpoint.
    pub retries: u64,
}

/// Number of first digits that a status can have, and 0 for none.
pub const STATUS_CLASSES: usize = 10;

/// Complete requests by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RequestOutcomes"))]
#[serde(default)]
pub struct OutcomeCounts {
    /// Requests that passed all checks.
    pub allowed: u64,
    /// Requests that a rate limit refused (429).
    pub refused: u64,
    /// Requests that a rule with `on_failure = "deny"` could not check (503).
    pub unavailable: u64,
    /// Requests without a valid API key that needed one (401).
    pub unauthorized: u64,
    /// Requests refused for another reason before rate limits (400, 404, 405, …).
    pub rejected: u64,
}

/// Decisions of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "RuleDecisions"))]
#[serde(default)]
pub struct RuleCounts {
    /// Requests that had enough tokens.
    pub allowed: u64,
    /// Requests that the rule refused. A request that several rules refuse counts for one of them.
    pub refused: u64,
    /// Requests that the rule would have refused if it were enforced.
    pub shadow_refused: u64,
}

/// Complete requests of one route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteCounts {
    pub requests: u64,
    /// Requests with a response of status 5xx.
    pub errors: u64,
    /// Times from the head of the request to the end of the response.
    pub durations: Durations,
}

/// Attempts to forward requests to one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamCounts {
    /// All attempts.
    pub requests: u64,
    /// Responses of the upstream with status 5xx.
    pub errors: u64,
    /// Attempts without a complete response.
    pub failures: u64,
    /// Times until the head of a response.
    pub durations: Durations,
}

// === impl Count, Named ===

impl Count {
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self) -> u64 {
        // Most counts do not change in a second, and a load is cheaper than a swap.
        if self.0.load(Ordering::Relaxed) == 0 { 0 } else { self.0.swap(0, Ordering::Relaxed) }
    }
}

impl<K, V> Default for Named<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V> Named<K, V> {
    /// The value of that name, created if there is none.
    pub(super) fn get(&self, name: &K, create: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.0.lock();
        if let Some(value) = values.get(name) {
            return Arc::clone(value);
        }
        let value = Arc::new(create());
        values.insert(name.clone(), Arc::clone(&value));
        value
    }

    /// Removes the values of unwanted names if there are more than `most`.
    pub(super) fn limit(&self, most: usize, is_wanted: impl Fn(&K) -> bool) {
        let mut values = self.0.lock();
        if values.len() > most {
            values.retain(|name, _| is_wanted(name));
        }
    }

    fn each(&self, mut visit: impl FnMut(&K, &V)) {
        self.0.lock().iter().for_each(|(name, value)| visit(name, value));
    }
}

// === impl Counts ===

impl Counts {
    /// Everything that was counted since the previous call.
    pub(super) fn take(&self) -> Increases {
        let mut all = Increases::default();
        self.requests.each(|labels, count| {
            let count = count.since.take();
            if count > 0 {
                all.add_requests(labels, count);
            }
        });
        self.rules.each(|name, rule| {
            let (allowed, shadow_refused) = (rule.allowed.take(), rule.shadow_refused.take());
            if allowed + shadow_refused > 0 {
                let row = all.rules.entry(Arc::clone(name)).or_default();
                (row.allowed, row.shadow_refused) = (allowed, shadow_refused);
            }
        });
        let mut durations = DurationCounts::default();
        self.durations.each(|name, histogram| {
            let taken = histogram.take();
            if !taken.is_empty() {
                durations.add(&taken);
                all.routes.entry(Arc::clone(name)).or_default().durations = taken;
            }
        });
        all.durations = durations.packed();
        self.upstreams.each(|name, upstream| {
            all.retries += upstream.retries.take();
            let row = upstream.take();
            if row != UpstreamCounts::default() {
                all.upstreams.insert(Arc::clone(name), row);
            }
        });
        all
    }
}

impl Increases {
    fn add_requests(&mut self, labels: &RequestLabels, count: u64) {
        let plan = self.plans.entry(Arc::clone(&labels.plan)).or_default();
        *match &labels.outcome {
            OutcomeLabel::Allowed => &mut plan.allowed,
            OutcomeLabel::Refused(rule) => {
                self.rules.entry(Arc::clone(rule)).or_default().refused += count;
                &mut plan.refused
            }
            OutcomeLabel::Unavailable => &mut plan.unavailable,
            OutcomeLabel::Unauthorized => &mut plan.unauthorized,
            OutcomeLabel::Rejected => &mut plan.rejected,
        } += count;
        let class = usize::from(labels.status / 100).min(STATUS_CLASSES - 1);
        let route = self.routes.entry(Arc::clone(&labels.route)).or_default();
        route.requests += count;
        route.errors += if class == 5 { count } else { 0 };
        self.statuses[class] += count;
    }
}

impl UpstreamCount {
    fn take(&self) -> UpstreamCounts {
        let (errors, failures) = (self.errors.take(), self.failures.take());
        UpstreamCounts {
            requests: self.answers.take() + errors + failures,
            errors,
            failures: failures + self.late_failures.take(),
            durations: self.durations.take(),
        }
    }
}

impl OutcomeCounts {
    /// All requests.
    pub const fn all(&self) -> u64 {
        self.allowed + self.refused + self.unavailable + self.unauthorized + self.rejected
    }
}
