//! Removal of series whose names are no longer in the file.

use std::collections::HashSet;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;

use super::Metrics;
use super::counts::{OutcomeLabel, RequestLabels};
use crate::policy::Policy;

/// Maximum number of series of one metric up to which stale ones are kept.
const MAX_SERIES: usize = 2_000;

/// The names in the configuration in force.
struct Names {
    route: HashSet<String>,
    plan: HashSet<String>,
    rule: HashSet<String>,
    upstream: HashSet<String>,
}

impl Metrics {
    /// Removes series with names that `policy` does not have, from each metric with more than
    /// `MAX_SERIES` series. This bounds the memory if many reloads rename things. Prometheus treats
    /// a counter that disappears like a restart.
    pub fn remove_stale(&self, policy: &Policy) {
        let names = Names {
            route: policy.routes.iter().map(|route| route.name.to_string()).collect(),
            plan: policy.plans.iter().map(ToString::to_string).collect(),
            rule: policy.rules.iter().map(|rule| rule.name.to_string()).collect(),
            upstream: policy.upstreams.iter().map(|upstream| upstream.name.to_string()).collect(),
        };
        names.remove_unknown(&self.requests, &["route", "plan", "status"]);
        names.remove_unknown(&self.request_duration, &["route"]);
        names.remove_unknown(&self.decisions, &["rule", "plan", "decision", "source"]);
        names.remove_unknown(&self.refused, &["rule", "plan"]);
        names.remove_unknown(&self.near_limit, &["rule", "plan"]);
        for refunds in [&self.refunds.given, &self.refunds.lost] {
            names.remove_unknown(refunds, &["rule", "reason"]);
        }
        names.remove_unknown(&self.settlements.requests, &["rule", "result"]);
        names.remove_unknown(&self.settlements.tokens, &["rule"]);
        names.remove_unknown(&self.quotas.warned, &["rule", "plan"]);
        names.remove_unknown(&self.quotas.overage, &["rule", "plan"]);
        let upstreams = &self.upstreams;
        names.remove_unknown(&upstreams.results, &["upstream", "result"]);
        names.remove_unknown(&upstreams.durations, &["upstream"]);
        names.remove_unknown(&upstreams.connections, &["upstream", "reused"]);
        names.remove_unknown(&upstreams.retries, &["upstream", "reason"]);
        names.remove_unknown(&upstreams.over_retry_budget, &["upstream"]);
        names.remove_unknown(&upstreams.shed, &["upstream", "plan"]);
        names.remove_unknown(&upstreams.endpoints.ejections, &["upstream", "reason"]);
        names.remove_unknown(&upstreams.endpoints.checks, &["upstream", "result"]);
        names.remove_unknown(&upstreams.mirrors.results, &["upstream", "result"]);
        let counts = &self.counts;
        counts.requests.limit(MAX_SERIES, |labels| !names.is_stale_request(labels));
        counts.rules.limit(MAX_SERIES, |rule| names.rule.contains(&**rule));
        counts.durations.limit(MAX_SERIES, |route| !names.is_stale("route", route));
        counts.upstreams.limit(MAX_SERIES, |upstream| names.upstream.contains(&**upstream));
    }
}

impl Names {
    /// Removes the series with other names if there are too many in total. `labels` are the
    /// family's label names, in order.
    fn remove_unknown<B: MetricVecBuilder>(&self, family: &MetricVec<B>, labels: &[&str]) {
        let families = family.collect();
        let series = || families.iter().flat_map(MetricFamily::get_metric);
        if series().count() <= MAX_SERIES {
            return;
        }
        for series in series() {
            let value = |label: &&str| {
                let pair = series.get_label().iter().find(|pair| pair.name() == *label);
                pair.map_or("", |pair| pair.value())
            };
            let values: Vec<&str> = labels.iter().map(value).collect();
            if labels.iter().zip(&values).any(|(label, value)| self.is_stale(label, value)) {
                // Fails only if another thread has removed the series.
                let _ = family.remove_label_values(&values);
            }
        }
    }

    fn is_stale_request(&self, labels: &RequestLabels) -> bool {
        let RequestLabels { route, plan, outcome, .. } = labels;
        let is_stale_rule = match outcome {
            OutcomeLabel::Refused(rule) => self.is_stale("rule", rule),
            _ => false,
        };
        is_stale_rule || self.is_stale("route", route) || self.is_stale("plan", plan)
    }

    /// Whether a label value is a name that is not in the file. Empty values and fixed words are
    /// not names.
    fn is_stale(&self, label: &str, value: &str) -> bool {
        let names = match label {
            "route" => &self.route,
            "plan" => &self.plan,
            "rule" => &self.rule,
            "upstream" => &self.upstream,
            _ => return false,
        };
        !value.is_empty() && !names.contains(value)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn only_stale_series_are_removed_and_only_beyond_the_bound() {
        let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let names = Names {
            route: set(&["here"]),
            plan: set(&["free"]),
            rule: set(&[]),
            upstream: set(&[]),
        };
        let labels = ["route", "plan", "status"];
        let family = IntCounterVec::new(Opts::new("a", "b"), &labels).unwrap();
        let count = || family.collect()[0].get_metric().len();
        for route in 0..MAX_SERIES - 3 {
            family.with_label_values(&[&format!("r{route}"), "free", "200"]).inc();
        }
        family.with_label_values(&["here", "free", "200"]).inc();
        family.with_label_values(&["here", "stale", "200"]).inc();
        family.with_label_values(&["", "", "400"]).inc();
        names.remove_unknown(&family, &labels);
        assert_eq!(count(), MAX_SERIES);
        family.with_label_values(&["one more", "free", "200"]).inc();
        names.remove_unknown(&family, &labels);
        assert_eq!(count(), 2);
        assert_eq!(family.with_label_values(&["here", "free", "200"]).get(), 1);
        assert_eq!(family.with_label_values(&["", "", "400"]).get(), 1);
    }
}
