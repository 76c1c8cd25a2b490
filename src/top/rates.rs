//! Rates per second, computed from samples.

use std::collections::BTreeMap;

use super::api::{Row, Sample};

/// Number of samples that a rate is the mean of: a rate of one second changes too fast to be read.
const SAMPLES_PER_RATE: usize = 5;

/// Requests or decisions per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) allowed: f64,
    pub(super) refused: f64,
    pub(super) shadow_refused: f64,
}

/// The total rate, and rates by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) total: Rate,
    pub(super) plans: Vec<(String, Rate)>,
    pub(super) rules: Vec<(String, Rate)>,
}

/// The columns of the charts: requests per second, newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) refused: Vec<u64>,
}

impl Rates {
    /// Computes the mean of the last samples. `samples` are in order of time, the result by name.
    pub(super) fn of<'a>(samples: impl DoubleEndedIterator<Item = &'a Sample>) -> Self {
        let (mut plans, mut rules) = (BTreeMap::new(), BTreeMap::new());
        let (mut total, mut span_ms) = (Row::default(), 0);
        for sample in samples.rev().take(SAMPLES_PER_RATE) {
            span_ms += sample.span_ms;
            add_all(&mut plans, &sample.plans);
            add_all(&mut rules, &sample.rules);
            sample.plans.values().for_each(|row| add(&mut total, *row));
        }
        let named = |rows: BTreeMap<&String, Row>| {
            rows.into_iter().map(|(name, row)| (name.clone(), Rate::of(row, span_ms))).collect()
        };
        Self { total: Rate::of(total, span_ms), plans: named(plans), rules: named(rules) }
    }
}

fn add_all<'a>(sums: &mut BTreeMap<&'a String, Row>, rows: &'a BTreeMap<String, Row>) {
    for (name, row) in rows {
        add(sums.entry(name).or_default(), *row);
    }
}

fn add(sum: &mut Row, row: Row) {
    sum.allowed += row.allowed;
    sum.refused += row.refused;
    sum.shadow_refused += row.shadow_refused;
}

impl Rate {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(row: Row, span_ms: u64) -> Self {
        let a_second = |count: u64| count as f64 * 1_000.0 / span_ms.max(1) as f64;
        Self {
            allowed: a_second(row.allowed),
            refused: a_second(row.refused),
            shadow_refused: a_second(row.shadow_refused),
        }
    }

    /// Percentage of requests that were refused; `None` without requests.
    pub(super) fn refused_percent(&self) -> Option<f64> {
        let all = self.allowed + self.refused;
        (all > 0.0).then(|| self.refused * 100.0 / all)
    }
}

impl Series {
    /// Computes at most `columns` columns for the last `seconds`. All have the same number of seconds
    /// and begin at multiples of it, so that a column does not change as time passes.
    pub(super) fn of<'a>(
        samples: impl Iterator<Item = &'a Sample>,
        columns: usize,
        seconds: u64,
    ) -> Self {
        let columns = u64::try_from(columns).unwrap_or(u64::MAX).max(1);
        let width = seconds.div_ceil(columns).max(1);
        let mut sums: BTreeMap<u64, (Row, u64)> = BTreeMap::new();
        for sample in samples {
            let (row, span_ms) = sums.entry(sample.at_ms / 1_000 / width).or_default();
            *span_ms += sample.span_ms;
            sample.plans.values().for_each(|one| add(row, *one));
        }
        let last = sums.keys().next_back().copied().unwrap_or_default();
        let first =
            sums.keys().next().copied().unwrap_or_default().max((last + 1).saturating_sub(columns));
        let mut series = Self::default();
        if sums.is_empty() {
            return series;
        }
        for column in first..=last {
            let (row, span_ms) = sums.get(&column).copied().unwrap_or_default();
            let a_second = |count: u64| count.saturating_mul(1_000) / span_ms.max(1);
            series.allowed.push(a_second(row.allowed));
            series.refused.push(a_second(row.refused));
        }
        series
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One second with requests of one plan and decisions of one rule.
    pub(in crate::top) fn sample(at_s: u64, allowed: u64, refused: u64) -> Sample {
        let row = Row { allowed, refused, shadow_refused: 0 };
        let rows = |name: &str| BTreeMap::from([(name.to_owned(), row)]);
        Sample {
            at_ms: at_s * 1_000,
            span_ms: 1_000,
            plans: rows("free"),
            rules: rows("per-key"),
            config_valid: true,
            ..Sample::default()
        }
    }

    #[test]
    fn rate_is_the_mean_of_the_last_five_samples() {
        let samples: Vec<Sample> = (0..10).map(|at| sample(at, at * 10, 5)).collect();
        let rates = Rates::of(samples.iter());
        let expected = Rate { allowed: 70.0, refused: 5.0, shadow_refused: 0.0 };
        assert_eq!(rates.total, expected);
        assert_eq!(rates.plans, [("free".to_owned(), expected)]);
        assert_eq!(rates.rules, [("per-key".to_owned(), expected)]);
        assert_eq!(expected.refused_percent().map(f64::round), Some(7.0));
        assert_eq!(Rates::of([].iter()), Rates::default());
        assert_eq!(Rate::default().refused_percent(), None);
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
