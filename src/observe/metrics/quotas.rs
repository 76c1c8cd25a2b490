//! Quotas whose clients are warned, or that are exceeded.

use std::collections::HashMap;

use prometheus::core::Collector as _;
use prometheus::{CounterVec, IntCounterVec};

use super::registrar::Registrar;
use super::totals::{counted, each, label};
use crate::limit::charge::{Charge, Outcome};
use crate::policy::Policy;

/// Requests near and beyond quotas, by rule and plan.
pub struct QuotaSeries {
    pub(super) warned: IntCounterVec,
    pub(super) overage: CounterVec,
}

impl QuotaSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let warned = series.counters(
            "tollgate_soft_limit_requests_total",
            "Allowed requests of clients that have used the share of their quota at which they are warned (soft).",
            &["rule", "plan"],
        )?;
        let overage = series.float_counters(
            "tollgate_overage_tokens_total",
            "Tokens that requests took beyond quotas (overage = \"count\").",
            &["rule", "plan"],
        )?;
        Ok(Self { warned, overage })
    }

    /// Requests of clients that were warned, and tokens beyond quotas, by rule.
    pub fn by_rule(&self) -> HashMap<String, (u64, f64)> {
        let mut sums: HashMap<String, (u64, f64)> = HashMap::new();
        each(&self.warned.collect(), |series| {
            sums.entry(label(series, "rule")).or_default().0 += counted(series);
        });
        each(&self.overage.collect(), |series| {
            sums.entry(label(series, "rule")).or_default().1 += series.get_counter().get_value();
        });
        sums
    }

    /// Counts the charge of an allowed request, whose bucket is at the level of `outcome` then.
    pub(super) fn count(&self, policy: &Policy, plan: u32, charge: &Charge, outcome: &Outcome) {
        let rule = policy.rules.get(charge.rule as usize).map_or("", |rule| &rule.name);
        let labels = [rule, policy.plan_name(plan)];
        if charge.limit.is_soft_exceeded(outcome.level) {
            self.warned.with_label_values(&labels).inc();
        }
        if charge.counts_overage() && outcome.level < 0 {
            let units = charge.limit.units(charge.cost).min(outcome.level.saturating_neg());
            let tokens = units_in_tokens(units);
            self.overage.with_label_values(&labels).inc_by(tokens);
        }
    }
}

/// Units of a quota are thousandths of a token.
#[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
fn units_in_tokens(units: i64) -> f64 {
    units as f64 / 1_000.0
}
