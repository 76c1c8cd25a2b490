//! One sample: the differences of all counters since the previous sample.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::observe::metrics::{Decisions, Requests, Totals};

/// Maximum number of plans, and of rules, in one sample. The others are added up in one row.
const MAX_ROWS: usize = 40;

/// Name of the row of the others. No name in `gateway.toml` can be equal to it.
const OTHERS: &str = "…";

/// Differences between two samples. Rows and counts of 0 are left out.
#[derive(Serialize)]
pub(super) struct Sample<'a> {
    /// End of the span, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Length of the span, in milliseconds.
    span_ms: u64,
    plans: BTreeMap<&'a str, PlanRow>,
    rules: BTreeMap<&'a str, RuleRow>,
    statuses: BTreeMap<String, u64>,
    sources: BTreeMap<&'a str, u64>,
    redis_calls: BTreeMap<&'a str, u64>,
    retries: u64,
    in_flight: i64,
    local_buckets: usize,
    /// State of the circuit breaker: `closed`, `half_open` or `open`; `null` without Redis.
    breaker: Option<&'static str>,
    /// Transitions of the breaker since the start, by new state.
    transitions: &'a BTreeMap<String, u64>,
    gateways: Option<i64>,
    generation: i64,
    config_valid: bool,
}

/// Requests of one plan.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
struct PlanRow {
    allowed: u64,
    refused: u64,
}

/// Decisions of one rule.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
struct RuleRow {
    allowed: u64,
    refused: u64,
    shadow_refused: u64,
}

/// A row of counts that can be added up.
trait Row: Copy + Default + PartialEq {
    fn weight(&self) -> u64;
    fn add(&mut self, other: Self);
}

impl<'a> Sample<'a> {
    /// The differences from `before` to `now`, over a span of `span_ms` that ended at `at_ms` (Unix
    /// time). Includes the breaker and the number of gateways if `shares_redis`.
    pub(super) fn between(
        before: &Totals,
        now: &'a Totals,
        shares_redis: bool,
        at_ms: u64,
        span_ms: u64,
    ) -> Self {
        let plans = now.plans.iter().map(|(plan, requests)| {
            (plan.as_str(), PlanRow::between(before.plans.get(plan), *requests))
        });
        let rules = now.rules.iter().map(|(rule, decisions)| {
            (rule.as_str(), RuleRow::between(before.rules.get(rule), *decisions))
        });
        let statuses = now.statuses.iter().map(|(class, count)| {
            let earlier = before.statuses.get(class).copied().unwrap_or_default();
            (format!("{class}xx"), count.saturating_sub(earlier))
        });
        let breaker = match now.now.breaker {
            0 => "closed",
            1 => "half_open",
            _ => "open",
        };
        Self {
            at_ms,
            span_ms,
            plans: largest(plans),
            rules: largest(rules),
            statuses: statuses.filter(|(_, count)| *count > 0).collect(),
            sources: increases(&before.sources, &now.sources),
            redis_calls: increases(&before.redis_calls, &now.redis_calls),
            retries: now.retries.saturating_sub(before.retries),
            in_flight: now.now.in_flight,
            local_buckets: now.now.local_buckets,
            breaker: shares_redis.then_some(breaker),
            transitions: &now.transitions,
            gateways: shares_redis.then_some(now.now.gateways),
            generation: now.now.generation,
            config_valid: now.now.config_valid,
        }
    }
}

/// The increase of each counter; 0 for a series that was removed and created again.
fn increases<'a>(
    before: &BTreeMap<String, u64>,
    now: &'a BTreeMap<String, u64>,
) -> BTreeMap<&'a str, u64> {
    let increases = now.iter().map(|(name, count)| {
        let earlier = before.get(name).copied().unwrap_or_default();
        (name.as_str(), count.saturating_sub(earlier))
    });
    increases.filter(|(_, count)| *count > 0).collect()
}

/// The largest [`MAX_ROWS`] rows that are not 0, and one row for the sum of the others.
fn largest<'a, R: Row>(rows: impl Iterator<Item = (&'a str, R)>) -> BTreeMap<&'a str, R> {
    let mut rows: Vec<_> = rows.filter(|(_, row)| *row != R::default()).collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
    let rest = rows.split_off(rows.len().min(MAX_ROWS));
    let mut largest: BTreeMap<_, _> = rows.into_iter().collect();
    for (_, row) in rest {
        largest.entry(OTHERS).or_default().add(row);
    }
    largest
}

impl PlanRow {
    fn between(before: Option<&Requests>, now: Requests) -> Self {
        let before = before.copied().unwrap_or_default();
        let refused = now.refused.saturating_sub(before.refused);
        let answered = now.answered.saturating_sub(before.answered);
        Self { allowed: answered.saturating_sub(refused), refused }
    }
}

impl RuleRow {
    fn between(before: Option<&Decisions>, now: Decisions) -> Self {
        let before = before.copied().unwrap_or_default();
        Self {
            allowed: now.allow.saturating_sub(before.allow),
            refused: now.deny.saturating_sub(before.deny),
            shadow_refused: now.shadow_deny.saturating_sub(before.shadow_deny),
        }
    }
}

impl Row for PlanRow {
    fn weight(&self) -> u64 {
        self.allowed + self.refused
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
    }
}

impl Row for RuleRow {
    fn weight(&self) -> u64 {
        self.allowed + self.refused + self.shadow_refused
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.shadow_refused += other.shadow_refused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_has_the_differences_of_all_counters() {
        let mut before = Totals::default();
        before.plans.insert("free".to_string(), Requests { answered: 10, refused: 4 });
        before.sources.insert("redis".to_string(), 7);
        let mut now = before.clone();
        now.plans.insert("free".to_string(), Requests { answered: 15, refused: 6 });
        now.rules.insert("r".to_string(), Decisions { allow: 3, deny: 2, shadow_deny: 0 });
        let sample = Sample::between(&before, &now, false, 1_000, 1_000);
        assert_eq!(sample.plans["free"], PlanRow { allowed: 3, refused: 2 });
        assert_eq!(sample.rules["r"], RuleRow { allowed: 3, refused: 2, shadow_refused: 0 });
        assert!(sample.sources.is_empty());
        assert_eq!((sample.breaker, sample.gateways), (None, None));
    }

    #[test]
    fn rows_beyond_the_maximum_are_added_up() {
        let names: Vec<String> = (0..100).map(|name| format!("{name}")).collect();
        let row = |allowed| PlanRow { allowed, refused: 1 };
        let rows = names.iter().zip(0..).map(|(name, allowed)| (name.as_str(), row(allowed)));
        let kept = largest(rows);
        assert_eq!(kept.len(), MAX_ROWS + 1);
        assert_eq!(kept["99"], row(99));
        assert_eq!(kept[OTHERS], PlanRow { allowed: (0..60).sum(), refused: 60 });
    }
}
