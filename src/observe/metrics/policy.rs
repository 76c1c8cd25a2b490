//! The series of one policy, by index. Each is looked up by its labels once, not on every request.

use std::sync::OnceLock;

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::{Metrics, UpstreamSeries, seconds};
use crate::decide::label::{DecisionLabel, source_label};
use crate::policy::Policy;
use crate::store::limiter::{Source, Taken};

/// Series of one policy. Each is created when it first counts.
#[derive(Debug)]
pub struct PolicySeries {
    /// Numbers of decisions, by rule, plan, decision and source.
    decisions: Box<[OnceLock<IntCounter>]>,
    /// Numbers of refused requests, by rule and plan.
    refused: Box<[OnceLock<IntCounter>]>,
    /// Numbers of allowed requests that left less than a fifth of a bucket, by rule and plan.
    near_limit: Box<[OnceLock<IntCounter>]>,
    plans: usize,
    /// Durations of requests, by route.
    durations: Box<[OnceLock<Histogram>]>,
    /// Attempts, retries and connections, by upstream.
    upstreams: Box<[OnceLock<UpstreamSeries>]>,
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
            refused: slots(rows),
            near_limit: slots(rows),
            plans,
            durations: slots(policy.routes.len()),
            upstreams: slots(policy.upstreams.len()),
        }
    }

    /// Counts the decision of each rule on one request. `plan` is an index into `policy.plans`.
    pub fn count(&self, metrics: &Metrics, policy: &Policy, plan: u32, taken: &Taken) {
        let Taken { charges, answer, waived, .. } = taken;
        for (charge, outcome) in charges.iter().zip(&answer.outcomes) {
            if answer.allowed() && outcome.enough && charge.limit.is_nearly_exhausted(outcome.level)
            {
                let family = &metrics.near_limit;
                self.count_rule(&self.near_limit, family, policy, (charge.rule, plan));
            }
        }
        let each = charges.iter().zip(&answer.outcomes).enumerate();
        let decided = each.filter_map(|(index, (charge, outcome))| {
            let decision = DecisionLabel::of(charge, outcome.enough, answer.allowed())?;
            Some((charge, decision, taken.source_of(index)))
        });
        let waived = waived.iter().filter(|_| answer.allowed());
        let waived = waived.map(|charge| (charge, DecisionLabel::Allow, Source::Policy));
        for (charge, decision, source) in decided.chain(waived) {
            let row = charge.rule as usize * self.plans + plan as usize;
            let slot = (row * DecisionLabel::OF_CHARGE + decision as usize) * Source::COUNT
                + source as usize;
            let Some(counter) = self.decisions.get(slot) else { continue };
            counter
                .get_or_init(|| {
                    let rule = policy.rules.get(charge.rule as usize).map_or("", |rule| &rule.name);
                    let plan = policy.plan_name(plan);
                    let labels = [rule, plan, decision.as_str(), source_label(source)];
                    metrics.decisions.with_label_values(&labels)
                })
                .inc();
        }
    }

    /// Counts a request that `rule` refused. `rule` and `plan` are indexes into `policy`.
    pub fn refused(&self, metrics: &Metrics, policy: &Policy, rule: u32, plan: u32) {
        self.count_rule(&self.refused, &metrics.refused, policy, (rule, plan));
    }

    fn count_rule(
        &self,
        slots: &[OnceLock<IntCounter>],
        family: &IntCounterVec,
        policy: &Policy,
        (rule, plan): (u32, u32),
    ) {
        let Some(slot) = slots.get(rule as usize * self.plans + plan as usize) else { return };
        let name = || policy.rules.get(rule as usize).map_or("", |rule| &rule.name);
        slot.get_or_init(|| family.with_label_values(&[name(), policy.plan_name(plan)])).inc();
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
        Some(slot.get_or_init(|| metrics.upstreams.of(name())))
    }

    /// Records the duration of a request of that route, in microseconds.
    pub fn observe_duration(&self, metrics: &Metrics, policy: &Policy, route: u32, us: u64) {
        let Some(slot) = self.durations.get(route as usize) else { return };
        let name = || policy.routes.get(route as usize).map_or("", |route| &route.name);
        slot.get_or_init(|| metrics.request_duration.with_label_values(&[name()]))
            .observe(seconds(us));
    }
}
