//! Series of names that no file has any more.

use std::collections::HashSet;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;

use super::Metrics;
use crate::policy::Policy;

/// Series of one name up to which all stay, those of names that are gone too.
const KEPT: usize = 2_000;

/// The names of the file in force.
struct Known {
    route: HashSet<String>,
    plan: HashSet<String>,
    rule: HashSet<String>,
    upstream: HashSet<String>,
}

impl Metrics {
    /// Makes room where files with ever other names have left series behind: those of names that
    /// `policy` does not have. A counter that is gone from one scrape to the next is what Prometheus
    /// expects of a restart, too; up to the bound none goes.
    pub fn remove_stale(&self, policy: &Policy) {
        let known = Known {
            route: policy.routes.iter().map(|route| route.name.to_string()).collect(),
            plan: policy.plans.iter().map(ToString::to_string).collect(),
            rule: policy.rules.iter().map(|rule| rule.name.to_string()).collect(),
            upstream: policy.upstreams.iter().map(|upstream| upstream.name.to_string()).collect(),
        };
        known.remove_unknown(&self.requests, &["route", "plan", "status"]);
        known.remove_unknown(&self.request_duration, &["route"]);
        known.remove_unknown(&self.decisions, &["rule", "plan", "decision", "source"]);
        known.remove_unknown(&self.refused, &["rule", "plan"]);
        known.remove_unknown(&self.near_limit, &["rule", "plan"]);
        let upstreams = &self.upstreams;
        known.remove_unknown(&upstreams.results, &["upstream", "result"]);
        known.remove_unknown(&upstreams.durations, &["upstream"]);
        known.remove_unknown(&upstreams.connections, &["upstream", "reused"]);
        known.remove_unknown(&upstreams.retries, &["upstream"]);
    }
}

impl Known {
    /// Drops the series of other names, where there are too many in all. `labels` are those of the
    /// family, in order.
    fn remove_unknown<B: MetricVecBuilder>(&self, family: &MetricVec<B>, labels: &[&str]) {
        let families = family.collect();
        let series = || families.iter().flat_map(MetricFamily::get_metric);
        if series().count() <= KEPT {
            return;
        }
        for series in series() {
            let value = |label: &&str| {
                let pair = series.get_label().iter().find(|pair| pair.name() == *label);
                pair.map_or("", |pair| pair.value())
            };
            let values: Vec<&str> = labels.iter().map(value).collect();
            if labels.iter().zip(&values).any(|(label, value)| self.is_gone(label, value)) {
                // Gone already is as good.
                let _ = family.remove_label_values(&values);
            }
        }
    }

    /// Whether a label is a name that the file lacks. An empty one is no name.
    fn is_gone(&self, label: &str, value: &str) -> bool {
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
    fn only_names_that_are_gone_go_and_only_beyond_the_bound() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let known = Known {
            route: names(&["here"]),
            plan: names(&["free"]),
            rule: names(&[]),
            upstream: names(&[]),
        };
        let labels = ["route", "plan", "status"];
        let family = IntCounterVec::new(Opts::new("a", "b"), &labels).unwrap();
        let count = || family.collect()[0].get_metric().len();
        for route in 0..KEPT - 3 {
            family.with_label_values(&[&format!("r{route}"), "free", "200"]).inc();
        }
        family.with_label_values(&["here", "free", "200"]).inc();
        family.with_label_values(&["here", "gone", "200"]).inc();
        family.with_label_values(&["", "", "400"]).inc();
        known.remove_unknown(&family, &labels);
        assert_eq!(count(), KEPT);
        family.with_label_values(&["one more", "free", "200"]).inc();
        known.remove_unknown(&family, &labels);
        assert_eq!(count(), 2);
        assert_eq!(family.with_label_values(&["here", "free", "200"]).get(), 1);
        assert_eq!(family.with_label_values(&["", "", "400"]).get(), 1);
    }
}
