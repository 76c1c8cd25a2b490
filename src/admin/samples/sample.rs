//! A sample: what was counted in a span of time. Samples of consecutive spans can be merged.
//!
//! An upgrade sends them to a process of another version, by the names of their fields: rename
//! none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer};

use crate::observe::metrics::{
    Durations, Gauges, Increases, Name, OutcomeCounts, RouteCounts, RuleCounts, STATUS_CLASSES,
    Totals, UpstreamCounts,
};

/// Maximum number of plans, of rules, of routes and of upstreams in one sample. The others are
/// added up in one row.
const MAX_ROWS: usize = 40;

/// Name of the row of the others. No name in `gateway.toml` can be equal to it.
const OTHERS: &str = "…";

/// Counts of one span of time. Rows of 0 are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    /// End of the span, in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// Length of the span, in milliseconds.
    pub(super) span_ms: u64,
    pub(super) plans: Rows<OutcomeCounts>,
    pub(super) rules: Rows<RuleCounts>,
    pub(super) routes: Rows<RouteCounts>,
    pub(super) upstreams: Rows<UpstreamCounts>,
    pub(super) statuses: [u64; STATUS_CLASSES],
    /// Durations of all requests.
    pub(super) durations: Durations,
    pub(super) sources: Rows<u64>,
    pub(super) redis_calls: Rows<u64>,
    /// Client connections that were closed without a response, by reason.
    pub(super) rejected_connections: Rows<u64>,
    pub(super) retries: u64,
    /// Gauges at the end of the span. Of merged samples: the most requests in flight, the worst
    /// state of the breaker, and whether the file was valid all the time.
    pub(super) gauges: Gauges,
    /// Transitions of the breaker since the start, by new state.
    #[serde(serialize_with = "serialize_shared", deserialize_with = "deserialize_shared")]
    pub(super) transitions: Arc<BTreeMap<String, u64>>,
}

/// At most [`MAX_ROWS`] rows by name and one of the others, in the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rows<R>(Box<[(Name, R)]>);

/// Counts that can be added up.
pub(super) trait Row: Clone + Default + PartialEq {
    /// The number of requests or decisions that the row counts.
    fn weight(&self) -> u64;
    fn add(&mut self, other: &Self);
}

// === impl Sample ===

impl Sample {
    /// The sample of a span of `span_ms` that ended at `at_ms` (Unix time). `before` are the totals
    /// at its beginning, `now` those at its end.
    pub(super) fn of(
        counted: Increases,
        before: &Totals,
        now: &Totals,
        at_ms: u64,
        span_ms: u64,
    ) -> Self {
        let same = before.transitions == now.transitions;
        Self {
            at_ms,
            span_ms,
            plans: Rows::largest(counted.plans),
            rules: Rows::largest(counted.rules),
            routes: Rows::largest(counted.routes),
            upstreams: Rows::largest(counted.upstreams),
            statuses: counted.statuses,
            durations: counted.durations,
            sources: increases(&before.sources, &now.sources),
            redis_calls: increases(&before.redis_calls, &now.redis_calls),
            rejected_connections: increases(
                &before.rejected_connections,
                &now.rejected_connections,
            ),
            retries: counted.retries,
            gauges: now.now,
            transitions: Arc::clone(if same { &before.transitions } else { &now.transitions }),
        }
    }

    pub(super) fn requests(&self) -> OutcomeCounts {
        let mut sum = OutcomeCounts::default();
        self.plans.iter().for_each(|(_, row)| Row::add(&mut sum, row));
        sum
    }

    /// Adds the sample of the span that follows.
    pub(super) fn add(&mut self, next: &Self) {
        self.at_ms = next.at_ms;
        self.span_ms += next.span_ms;
        self.plans.add(&next.plans);
        self.rules.add(&next.rules);
        self.routes.add(&next.routes);
        self.upstreams.add(&next.upstreams);
        for (sum, count) in self.statuses.iter_mut().zip(next.statuses) {
            *sum += count;
        }
        self.durations.add(&next.durations);
        self.sources.add(&next.sources);
        self.redis_calls.add(&next.redis_calls);
        self.rejected_connections.add(&next.rejected_connections);
        self.retries += next.retries;
        self.gauges = Gauges {
            in_flight: self.gauges.in_flight.max(next.gauges.in_flight),
            breaker: self.gauges.breaker.max(next.gauges.breaker),
            config_valid: self.gauges.config_valid && next.gauges.config_valid,
            ..next.gauges
        };
        self.transitions = Arc::clone(&next.transitions);
    }
}

fn serialize_shared<S: Serializer>(
    transitions: &BTreeMap<String, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    transitions.serialize(serializer)
}

fn deserialize_shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Arc<BTreeMap<String, u64>>, D::Error> {
    BTreeMap::deserialize(deserializer).map(Arc::new)
}

/// The increase of each counter.
fn increases(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Rows<u64> {
    let increases = now.iter().map(|(name, count)| {
        let earlier = before.get(name).copied().unwrap_or_default();
        (Name::from(name.as_str()), count.saturating_sub(earlier))
    });
    Rows::largest(increases)
}

// === impl Rows ===

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<R> Rows<R> {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &R)> {
        self.0.iter().map(|(name, row)| (&**name, row))
    }
}

impl<R: Row> Rows<R> {
    /// The largest [`MAX_ROWS`] rows that are not 0, and one row for the sum of the others. `rows`
    /// are in the order of names.
    fn largest(rows: impl IntoIterator<Item = (Name, R)>) -> Self {
        let mut rows: Vec<(Name, R)> =
            rows.into_iter().filter(|(_, row)| *row != R::default()).collect();
        let has_others = rows.iter().any(|(name, _)| &**name == OTHERS);
        if rows.len() > MAX_ROWS + usize::from(has_others) {
            rows.sort_by_key(|(name, row)| (&**name == OTHERS, std::cmp::Reverse(row.weight())));
            let mut others = R::default();
            rows.drain(MAX_ROWS..).for_each(|(_, row)| others.add(&row));
            rows.push((Name::from(OTHERS), others));
            rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Self(rows.into())
    }

    fn add(&mut self, other: &Self) {
        if other.0.is_empty() {
            return;
        }
        let mut rows: BTreeMap<Name, R> =
            std::mem::take(&mut self.0).into_vec().into_iter().collect();
        for (name, row) in &other.0 {
            match rows.get_mut(name) {
                Some(sum) => sum.add(row),
                None => drop(rows.insert(Name::clone(name), row.clone())),
            }
        }
        *self = Self::largest(rows);
    }
}

impl<R: Serialize> Serialize for Rows<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, R: Row + Deserialize<'de>> Deserialize<'de> for Rows<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = BTreeMap::<String, R>::deserialize(deserializer)?;
        Ok(Self::largest(rows.into_iter().map(|(name, row)| (Name::from(name), row))))
    }
}

impl Row for u64 {
    fn weight(&self) -> u64 {
        *self
    }

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl Row for OutcomeCounts {
    fn weight(&self) -> u64 {
        self.all()
    }

    fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.unavailable += other.unavailable;
        self.unauthorized += other.unauthorized;
        self.rejected += other.rejected;
    }
}

impl Row for RuleCounts {
    fn weight(&self) -> u64 {
        self.allowed + self.refused + self.shadow_refused
    }

    fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.shadow_refused += other.shadow_refused;
    }
}

impl Row for RouteCounts {
    fn weight(&self) -> u64 {
        self.requests
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.durations.add(&other.durations);
    }
}

impl Row for UpstreamCounts {
    fn weight(&self) -> u64 {
        self.requests
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.failures += other.failures;
        self.durations.add(&other.durations);
    }
}

#[cfg(test)]
pub(super) mod tests;
