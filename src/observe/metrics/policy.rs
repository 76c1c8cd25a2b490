//! The series of one policy, by index. Each is looked up by its labels once, not on every request.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use prometheus::{Histogram, IntCounter};

use super::counts::{
    Count, Name, OutcomeLabel, RequestCount, RequestLabels, RuleCount, UpstreamCount,
};
use super::latency::LatencyHistogram;
use super::{Metrics, UpstreamSeries, seconds};
use crate::decide::label::{DecisionLabel, source_label};
use crate::decide::outcome::RequestOutcome;
use crate::decide::reason::Reason;
use crate::limit::charge::Mode;
use crate::policy::Policy;
use crate::store::limiter::{Source, Taken};

/// Series of one policy. Each is created when it first counts.
#[derive(Debug)]
pub struct PolicySeries {
    /// Numbers of decisions, by rule, plan, decision and source.
    decisions: Box<[OnceLock<IntCounter>]>,
    /// Numbers of decisions for samples, by rule.
    rules: Box<[OnceLock<Arc<RuleCount>>]>,
    /// Numbers of complete requests. Written once for each combination that occurs.
    requests: RwLock<HashMap<RequestKey, Arc<RequestCount>>>,
    /// Numbers of allowed requests that left less than a fifth of a bucket, by rule and plan.
    near_limit: Box<[OnceLock<IntCounter>]>,
    plans: usize,
    /// Durations of requests, by route; the last one is of requests without a route.
    durations: Box<[OnceLock<RouteDurations>]>,
    /// Attempts, retries and connections, by upstream.
    upstreams: Box<[OnceLock<UpstreamSeries>]>,
    /// Numbers of requests that were refused because of `max_in_flight`, by upstream and plan.
    shed: Box<[OnceLock<IntCounter>]>,
}

#[derive(Clone, Copy, Debug)]
pub struct CompleteRequest {
    /// Index of the route; `None` if it has none.
    pub route: Option<u32>,
    /// Index of the client's plan; `None` if the client was not identified.
    pub plan: Option<u32>,
    /// Status sent to the client; `None` if the client disconnected first.
    pub status: Option<u16>,
    /// How its checks ended.
    pub outcome: RequestOutcome,
    /// Why it did not get the complete response of an upstream, if it did not.
    pub reason: Option<Reason>,
    /// Time from its head to the end of the response, in microseconds.
    pub took_us: u64,
}

/// What complete requests are counted by, as indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RequestKey {
    route: Option<u32>,
    plan: Option<u32>,
    status: Option<u16>,
    outcome: RequestOutcome,
    reason: Option<Reason>,
}

/// Durations of the requests of one route.
#[derive(Debug)]
struct RouteDurations {
    series: Histogram,
    recent: Arc<LatencyHistogram>,
}

/// `count` slots without a series.
fn slots<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl PolicySeries {
    /// Creates empty slots for the series of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let plans = policy.plans.len();
        let rows = policy.rules.len() * plans;
        Self {
            decisions: slots(rows * DecisionLabel::OF_CHARGE * Source::COUNT),
            rules: slots(policy.rules.len()),
            requests: RwLock::default(),
            near_limit: slots(rows),
            plans,
            durations: slots(policy.routes.len() + 1),
            upstreams: slots(policy.upstreams.len()),
            shed: slots(policy.upstreams.len() * plans),
        }
    }

    /// Counts the decision of each rule on one request. `plan` is an index into `policy.plans`.
    pub fn count(&self, metrics: &Metrics, policy: &Policy, plan: u32, taken: &Taken) {
        let Taken { charges, answer, waived, .. } = taken;
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if answer.allowed() && outcome.enough && charge.limit.is_nearly_exhausted(outcome.level)
            {
                self.count_near_limit(metrics, policy, charge.rule, plan);
                if !policy.has_soft() && outcome.level < 0 {
                    metrics.quotas.count(policy, plan, charge, outcome);
                }
            }
        }
        if policy.has_soft() && answer.allowed() {
            let each = charges.iter().zip(&answer.outcomes);
            let enforced = each.filter(|(charge, _)| charge.mode == Mode::Enforce);
            enforced
                .for_each(|(charge, outcome)| metrics.quotas.count(policy, plan, charge, outcome));
        }
        let each = charges.iter().zip(&answer.outcomes).enumerate();
        let decided = each.filter_map(|(index, (charge, outcome))| {
            let decision = DecisionLabel::of(charge, outcome.enough, answer.allowed())?;
            Some((charge, decision, taken.source_of(index)))
        });
        let waived = waived.iter().filter(|_| answer.allowed());
        let waived = waived.map(|charge| (charge, DecisionLabel::Allow, Source::Policy));
        for (charge, decision, source) in decided.chain(waived) {
            self.count_decision(metrics, policy, charge.rule, plan, decision, source);
        }
    }

    /// Counts a decision of a rule with `on_missing = "deny"` on a request without a key: no bucket
    /// is read. `rule` and `plan` are indexes into `policy`. `mode`: that of the rule for the
    /// client.
    pub fn refused_by_policy(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        rule: u32,
        plan: u32,
        mode: Mode,
    ) {
        let decision = DecisionLabel::of_missing_key(mode);
        self.count_decision(metrics, policy, rule, plan, decision, Source::Policy);
    }

    fn count_decision(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        rule: u32,
        plan: u32,
        decision: DecisionLabel,
        source: Source,
    ) {
        let row = rule as usize * self.plans + plan as usize;
        let slot =
            (row * DecisionLabel::OF_CHARGE + decision as usize) * Source::COUNT + source as usize;
        let Some(counter) = self.decisions.get(slot) else { return };
        let name = || policy.rules.get(rule as usize).map(|rule| Name::clone(&rule.name));
        counter
            .get_or_init(|| {
                let name = name().unwrap_or_default();
                let plan = policy.plan_name(plan);
                let labels = [&*name, plan, decision.as_str(), source_label(source)];
                metrics.decisions.with_label_values(&labels)
            })
            .inc();
        let count: fn(&RuleCount) -> &Count = match decision {
            DecisionLabel::Allow => |rule| &rule.allowed,
            DecisionLabel::ShadowDeny => |rule| &rule.shadow_refused,
            // Counted when the request is complete, for one of the rules that refuse it.
            DecisionLabel::Deny | DecisionLabel::Reject => return,
        };
        let Some(slot) = self.rules.get(rule as usize) else { return };
        let rules = &metrics.counts.rules;
        count(slot.get_or_init(|| rules.get(&name().unwrap_or_default(), RuleCount::default)))
            .inc();
    }

    /// Counts a request of a plan that was refused because its upstream has as many in flight as it
    /// may.
    pub fn shed(&self, metrics: &Metrics, policy: &Policy, upstream: usize, plan: u32) {
        let Some(counter) = self.shed.get(upstream * self.plans + plan as usize) else { return };
        let name = || policy.upstreams.get(upstream).map_or("", |upstream| &upstream.name);
        let family = &metrics.upstreams.shed;
        counter.get_or_init(|| family.with_label_values(&[name(), policy.plan_name(plan)])).inc();
    }

    fn count_near_limit(&self, metrics: &Metrics, policy: &Policy, rule: u32, plan: u32) {
        let slot = self.near_limit.get(rule as usize * self.plans + plan as usize);
        let Some(slot) = slot else { return };
        let name = || policy.rules.get(rule as usize).map_or("", |rule| &rule.name);
        let family = &metrics.near_limit;
        slot.get_or_init(|| family.with_label_values(&[name(), policy.plan_name(plan)])).inc();
    }

    /// Counts a complete request, and records its duration.
    pub fn complete(&self, metrics: &Metrics, policy: &Policy, request: &CompleteRequest) {
        let CompleteRequest { route, plan, status, outcome, reason, took_us } = *request;
        let key = RequestKey { route, plan, status, outcome, reason };
        let known = self.requests.read().get(&key).map(|count| count.count());
        if known.is_none() {
            let count = metrics.request_count(&labels(policy, key));
            count.count();
            self.requests.write().insert(key, count);
        }
        let slot = route.map_or(self.durations.len() - 1, |route| route as usize);
        let Some(slot) = self.durations.get(slot) else { return };
        let durations = slot.get_or_init(|| {
            let name = route_name(policy, route);
            RouteDurations {
                series: metrics.request_duration.with_label_values(&[&*name]),
                recent: metrics.counts.durations.get(&name, LatencyHistogram::default),
            }
        });
        durations.series.observe(seconds(took_us));
        durations.recent.observe(took_us);
    }

    /// The series of the upstream with that index; `None` if there is none.
    pub fn upstream(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        upstream: usize,
    ) -> Option<&UpstreamSeries> {
        let slot = self.upstreams.get(upstream)?;
        let name = || policy.upstreams.get(upstream).map_or("", |upstream| &upstream.name);
        Some(slot.get_or_init(|| {
            let recent = metrics.counts.upstreams.get(&Name::from(name()), UpstreamCount::default);
            metrics.upstreams.of(name(), recent)
        }))
    }
}

fn route_name(policy: &Policy, route: Option<u32>) -> Name {
    let route = route.and_then(|route| policy.routes.get(route as usize));
    route.map(|route| Name::clone(&route.name)).unwrap_or_default()
}

fn labels(policy: &Policy, key: RequestKey) -> RequestLabels {
    let rule_name = |rule: u32| policy.rules.get(rule as usize).map(|rule| Name::clone(&rule.name));
    let plan = key.plan.and_then(|plan| policy.plans.get(plan as usize));
    RequestLabels {
        route: route_name(policy, key.route),
        plan: plan.map(Name::clone).unwrap_or_default(),
        status: key.status.unwrap_or_default(),
        outcome: match key.outcome {
            RequestOutcome::Allowed => OutcomeLabel::Allowed,
            RequestOutcome::Refused { rule } => {
                OutcomeLabel::Refused(rule_name(rule).unwrap_or_default())
            }
            RequestOutcome::Unavailable => OutcomeLabel::Unavailable,
            RequestOutcome::Unauthorized => OutcomeLabel::Unauthorized,
            RequestOutcome::Rejected => OutcomeLabel::Rejected,
        },
        reason: key.reason,
    }
}
