//! Rates per second, computed from samples.

use std::collections::BTreeMap;

use crate::api::samples::{OutcomeCounts, RuleCounts, Sample};

/// Number of samples that a rate is the mean of: a rate of one second changes too fast to be read.
const SAMPLES_PER_RATE: usize = 5;

/// Complete requests per second, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RequestRate {
    pub(super) allowed: f64,
    pub(super) refused: f64,
    pub(super) unavailable: f64,
    pub(super) unauthorized: f64,
    pub(super) rejected: f64,
}

/// Decisions of one rule per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DecisionRate {
    pub(super) allowed: f64,
    pub(super) refused: f64,
    pub(super) shadow_refused: f64,
}

/// Requests of one route or to one upstream per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TrafficRate {
    pub(super) requests: f64,
    pub(super) errors: f64,
    pub(super) failures: f64,
}

/// Rates by name, in the order of names.
pub(super) type Named<R> = Vec<(String, R)>;

/// All present rates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) total: RequestRate,
    pub(super) plans: Named<RequestRate>,
    pub(super) rules: Named<DecisionRate>,
    pub(super) routes: Named<TrafficRate>,
    pub(super) upstreams: Named<TrafficRate>,
    /// Complete requests by class of their status.
    pub(super) statuses: Named<f64>,
}

/// The columns of the charts: requests per second, newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) refused: Vec<u64>,
}

impl Rates {
    /// Computes the mean of the last samples. `samples` are in order of time.
    pub(super) fn of<'a>(samples: impl DoubleEndedIterator<Item = &'a Sample>) -> Self {
        let last: Vec<&Sample> = samples.rev().take(SAMPLES_PER_RATE).collect();
        let mut total = [0; 5];
        for row in last.iter().flat_map(|sample| sample.plans.values()) {
            add(&mut total, row.counts());
        }
        Self {
            total: per_second(total, span_ms(&last)).into(),
            plans: named(&last, |sample| &sample.plans, OutcomeCounts::counts, RequestRate::from),
            rules: named(&last, |sample| &sample.rules, RuleCounts::counts, DecisionRate::from),
            routes: named(
                &last,
                |sample| &sample.routes,
                |row| [row.requests, row.errors, 0],
                TrafficRate::from,
            ),
            upstreams: named(
                &last,
                |sample| &sample.upstreams,
                |row| [row.requests, row.errors, row.failures],
                TrafficRate::from,
            ),
            statuses: named(&last, |sample| &sample.statuses, |count| [*count], |[rate]| rate),
        }
    }
}

fn span_ms(samples: &[&Sample]) -> u64 {
    samples.iter().map(|sample| sample.span_ms).sum()
}

/// The rates of all rows of the same name.
fn named<C, R, const N: usize>(
    samples: &[&Sample],
    rows: impl Fn(&Sample) -> &BTreeMap<String, C>,
    counts: impl Fn(&C) -> [u64; N],
    rate: impl Fn([f64; N]) -> R,
) -> Named<R> {
    let mut sums: BTreeMap<&String, [u64; N]> = BTreeMap::new();
    for (name, row) in samples.iter().flat_map(|sample| rows(sample)) {
        add(sums.entry(name).or_insert([0; N]), counts(row));
    }
    let span_ms = span_ms(samples);
    let rates = sums.into_iter().map(|(name, sum)| (name.clone(), rate(per_second(sum, span_ms))));
    rates.collect()
}

fn add<const N: usize>(sums: &mut [u64; N], counts: [u64; N]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn per_second<const N: usize>(counts: [u64; N], span_ms: u64) -> [f64; N] {
    counts.map(|count| count as f64 * 1_000.0 / span_ms.max(1) as f64)
}

impl OutcomeCounts {
    fn counts(&self) -> [u64; 5] {
        [self.allowed, self.refused, self.unavailable, self.unauthorized, self.rejected]
    }
}

impl RuleCounts {
    fn counts(&self) -> [u64; 3] {
        [self.allowed, self.refused, self.shadow_refused]
    }
}

impl From<[f64; 5]> for RequestRate {
    fn from([allowed, refused, unavailable, unauthorized, rejected]: [f64; 5]) -> Self {
        Self { allowed, refused, unavailable, unauthorized, rejected }
    }
}

impl From<[f64; 3]> for DecisionRate {
    fn from([allowed, refused, shadow_refused]: [f64; 3]) -> Self {
        Self { allowed, refused, shadow_refused }
    }
}

impl From<[f64; 3]> for TrafficRate {
    fn from([requests, errors, failures]: [f64; 3]) -> Self {
        Self { requests, errors, failures }
    }
}

impl RequestRate {
    pub(super) fn all(&self) -> f64 {
        self.allowed + self.refused + self.other()
    }

    /// Requests that were neither allowed nor refused by a limit.
    pub(super) fn other(&self) -> f64 {
        self.unavailable + self.unauthorized + self.rejected
    }

    /// Percentage of requests that a limit refused; `None` without requests.
    pub(super) fn refused_percent(&self) -> Option<f64> {
        let all = self.all();
        (all > 0.0).then(|| self.refused * 100.0 / all)
    }
}

impl Series {
    /// Computes at most `columns` columns for the last `seconds`. All have the same number of
    /// seconds and begin at multiples of it, so that a column does not change as time passes.
    pub(super) fn of<'a>(
        samples: impl Iterator<Item = &'a Sample>,
        columns: usize,
        seconds: u64,
    ) -> Self {
        let columns = u64::try_from(columns).unwrap_or(u64::MAX).max(1);
        let width = seconds.div_ceil(columns).max(1);
        let mut sums: BTreeMap<u64, ([u64; 5], u64)> = BTreeMap::new();
        for sample in samples {
            let (sum, span_ms) = sums.entry(sample.at_ms / 1_000 / width).or_default();
            *span_ms += sample.span_ms;
            sample.plans.values().for_each(|row| add(sum, row.counts()));
        }
        let last = sums.keys().next_back().copied().unwrap_or_default();
        let first =
            sums.keys().next().copied().unwrap_or_default().max((last + 1).saturating_sub(columns));
        let mut series = Self::default();
        if sums.is_empty() {
            return series;
        }
        for column in first..=last {
            let ([allowed, refused, ..], span_ms) = sums.get(&column).copied().unwrap_or_default();
            let a_second = |count: u64| count.saturating_mul(1_000) / span_ms.max(1);
            series.allowed.push(a_second(allowed));
            series.refused.push(a_second(refused));
        }
        series
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One second with requests of one plan and decisions of one rule.
    pub(in crate::top) fn sample(at_s: u64, allowed: u64, refused: u64) -> Sample {
        let requests = OutcomeCounts { allowed, refused, ..OutcomeCounts::default() };
        let decisions = RuleCounts { allowed, refused, shadow_refused: 0 };
        Sample {
            at_ms: at_s * 1_000,
            span_ms: 1_000,
            plans: BTreeMap::from([("free".to_owned(), requests)]),
            rules: BTreeMap::from([("per-key".to_owned(), decisions)]),
            config_valid: true,
            ..Sample::default()
        }
    }

    #[test]
    fn rate_is_the_mean_of_the_last_five_samples() {
        let samples: Vec<Sample> = (0..10).map(|at| sample(at, at * 10, 5)).collect();
        let rates = Rates::of(samples.iter());
        let expected = RequestRate { allowed: 70.0, refused: 5.0, ..RequestRate::default() };
        let of_rule = DecisionRate { allowed: 70.0, refused: 5.0, shadow_refused: 0.0 };
        assert_eq!(rates.total, expected);
        assert_eq!(rates.plans, [("free".to_owned(), expected)]);
        assert_eq!(rates.rules, [("per-key".to_owned(), of_rule)]);
        assert_eq!(expected.refused_percent().map(f64::round), Some(7.0));
        assert_eq!(Rates::of([].iter()), Rates::default());
        assert_eq!(RequestRate::default().refused_percent(), None);
    }

    #[test]
    fn long_sample_counts_by_its_length() {
        let samples = [Sample { span_ms: 4_000, ..sample(4, 100, 0) }, sample(5, 100, 0)];
        assert!((Rates::of(samples.iter()).total.allowed - 40.0).abs() < 1e-9);
    }

    #[test]
    fn column_is_the_mean_of_its_seconds() {
        let samples: Vec<Sample> = (8..20).map(|at| sample(at, at, 1)).collect();
        // columns, seconds, allowed
        let table: [(usize, u64, &[u64]); 5] = [
            (12, 12, &[8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]),
            (3, 12, &[9, 13, 17]),
            (2, 12, &[14, 18]),
            (1, 12, &[15]),
            (5, 5, &[15, 16, 17, 18, 19]),
        ];
        for (columns, seconds, allowed) in table {
            let series = Series::of(samples.iter(), columns, seconds);
            assert_eq!(series.allowed, allowed, "{columns}");
        }
    }

    #[test]
    fn gap_is_drawn_as_zero() {
        let samples = [sample(1, 5, 0), sample(4, 7, 1)];
        let series = Series::of(samples.iter(), 10, 10);
        assert_eq!((series.allowed, series.refused), (vec![5, 0, 0, 7], vec![0, 0, 0, 1]));
        assert_eq!(Series::of([].iter(), 10, 10).allowed, [0; 0]);
    }
}
