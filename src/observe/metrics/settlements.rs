//! Costs that are known at the end of the response only (`count` of a rule).

use prometheus::{CounterVec, IntCounterVec};

use super::registrar::Registrar;
use crate::limit::cost::Amount;

/// Requests whose costs were read from their responses, by rule.
pub struct SettlementSeries {
    pub(super) requests: IntCounterVec,
    pub(super) tokens: CounterVec,
}

/// Whether the cost of a request was known at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Known,
    /// The response broke off, or the client left.
    Early,
    /// The response did not say it: the request has cost what it had reserved.
    Unknown,
}

impl SettlementSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let requests = series.counters(
            "tollgate_settlements_total",
            "Requests whose cost was read at the end of their response (count), by result: known; early, if the response broke off \
             or the client left; unknown, if the response did not say it: they have cost what they had reserved.",
            &["rule", "result"],
        )?;
        let tokens = series.float_counters(
            "tollgate_settled_cost_tokens_total",
            "Tokens that these requests have cost.",
            &["rule"],
        )?;
        Ok(Self { requests, tokens })
    }

    /// Counts a request, and what it has cost.
    pub fn count(&self, rule: &str, settled: Settled, cost: Amount) {
        let result = match settled {
            Settled::Known => "known",
            Settled::Early => "early",
            Settled::Unknown => "unknown",
        };
        self.requests.with_label_values(&[rule, result]).inc();
        self.tokens.with_label_values(&[rule]).inc_by(cost.as_f64());
    }
}
