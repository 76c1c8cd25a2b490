//! The series of one policy's names, found once instead of by label on every request.

use std::sync::OnceLock;

use prometheus::{Histogram, IntCounter};

use super::{Metrics, seconds};
use crate::observe::decision::{Decision, source_label};
use crate::policy::Policy;
use crate::store::limiter::{Source, Taken};

/// A policy's own series.
#[derive(Debug)]
pub struct PolicySeries {
    /// By rule, plan, decision and source.
    decisions: Box<[OnceLock<IntCounter>]>,
    plans: usize,
    /// By route.
    durations: Box<[OnceLock<Histogram>]>,
}

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
