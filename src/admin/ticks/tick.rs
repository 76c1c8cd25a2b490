//! One tick: what was counted between two looks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::observe::metrics::{Decisions, Requests, Totals};

/// How many plans, and how many rules, one tick names. The others are one together: more would
/// neither fit a chart nor the memory.
const NAMED: usize = 40;

/// What those others are called. No name of the file is like it.
const OTHERS: &str = "…";

/// What happened between two looks. Rows of which nothing is to be told are left out.
#[derive(Serialize)]
pub(super) struct Tick<'a> {
    /// When the span ended, in Unix time.
    at_ms: u64,
    /// How long the span was.
    span_ms: u64,
    plans: BTreeMap<&'a str, PlanRow>,
    rules: BTreeMap<&'a str, RuleRow>,
    statuses: BTreeMap<String, u64>,
    sources: BTreeMap<&'a str, u64>,
    redis_calls: BTreeMap<&'a str, u64>,
    retries: u64,
    in_flight: i64,
    local_buckets: usize,
    /// None without Redis.
    breaker: Option<&'static str>,
    /// How often the breaker has changed so far, by the state that followed.
    transitions: &'a BTreeMap<String, u64>,
    gateways: Option<i64>,
    generation: i64,
    config_valid: bool,
}

/// Requests of one plan, between two looks.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
struct PlanRow {
    allowed: u64,
    refused: u64,
}

/// Decisions of one rule, between two looks.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
struct RuleRow {
    allowed: u64,
    refused: u64,
    shadow_refused: u64,
}

/// A row that others can be added to.
trait Row: Copy + Default + PartialEq {
    fn weight(&self) -> u64;
    fn add(&mut self, other: Self);
}

impl<'a> Tick<'a> {
    /// What is told of the `span_ms` between the two, which ended at `at_ms` of Unix time. The breaker
    /// and other gateways are told of where buckets are shared.
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
            plans: named(plans),
            rules: named(rules),
            statuses: statuses.filter(|(_, count)| *count > 0).collect(),
            sources: grown(&before.sources, &now.sources),
            redis_calls: grown(&before.redis_calls, &now.redis_calls),
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

/// What was counted between two looks. A series that is gone and back begins anew.
fn grown<'a>(
    before: &BTreeMap<String, u64>,
    now: &'a BTreeMap<String, u64>,
) -> BTreeMap<&'a str, u64> {
    let grown = now.iter().map(|(name, count)| {
        let earlier = before.get(name).copied().unwrap_or_default();
        (name.as_str(), count.saturating_sub(earlier))
    });
    grown.filter(|(_, count)| *count > 0).collect()
}

/// The rows of which there is something to tell, at most [`NAMED`]: the smallest become one.
fn named<'a, R: Row>(rows: impl Iterator<Item = (&'a str, R)>) -> BTreeMap<&'a str, R> {
    let mut rows: Vec<_> = rows.filter(|(_, row)| *row != R::default()).collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.weight()));
    let rest = rows.split_off(rows.len().min(NAMED));
    let mut named: BTreeMap<_, _> = rows.into_iter().collect();
    for (_, row) in rest {
        named.entry(OTHERS).or_default().add(row);
    }
    named
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
    fn a_tick_tells_what_was_counted_between_two_looks() {
        let mut before = Totals::default();
        before.plans.insert("free".to_string(), Requests { answered: 10, refused: 4 });
        before.sources.insert("redis".to_string(), 7);
        let mut now = before.clone();
        now.plans.insert("free".to_string(), Requests { answered: 15, refused: 6 });
        now.rules.insert("r".to_string(), Decisions { allow: 3, deny: 2, shadow_deny: 0 });
        let tick = Tick::between(&before, &now, false, 1_000, 1_000);
        assert_eq!(tick.plans["free"], PlanRow { allowed: 3, refused: 2 });
        assert_eq!(tick.rules["r"], RuleRow { allowed: 3, refused: 2, shadow_refused: 0 });
        assert!(tick.sources.is_empty());
        assert_eq!((tick.breaker, tick.gateways), (None, None));
    }

    #[test]
    fn names_beyond_a_bound_are_one() {
        let names: Vec<String> = (0..100).map(|name| format!("{name}")).collect();
        let row = |allowed| PlanRow { allowed, refused: 1 };
        let rows = names.iter().zip(0..).map(|(name, allowed)| (name.as_str(), row(allowed)));
        let kept = named(rows);
        assert_eq!(kept.len(), NAMED + 1);
        assert_eq!(kept["99"], row(99));
        assert_eq!(kept[OTHERS], PlanRow { allowed: (0..60).sum(), refused: 60 });
    }
}
