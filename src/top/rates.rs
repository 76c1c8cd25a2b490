//! How much a second, out of the ticks.

use std::collections::BTreeMap;

use super::api::{Row, Tick};

/// How many of the last ticks a rate is the mean of: one second alone jumps too much to be read.
const MEAN_OF: usize = 5;

/// Requests or decisions a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) allowed: f64,
    pub(super) refused: f64,
    pub(super) shadow_refused: f64,
}

/// Rates by name, and all together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) total: Rate,
    pub(super) plans: Vec<(String, Rate)>,
    pub(super) rules: Vec<(String, Rate)>,
}

/// What a chart shows: so many a second, column by column, the newest last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) allowed: Vec<u64>,
    pub(super) refused: Vec<u64>,
}

impl Rates {
    /// The mean of the last ticks, the newest last; by name, in the order of names.
    pub(super) fn of<'a>(ticks: impl DoubleEndedIterator<Item = &'a Tick>) -> Self {
        let (mut plans, mut rules) = (BTreeMap::new(), BTreeMap::new());
        let (mut total, mut span_ms) = (Row::default(), 0);
        for tick in ticks.rev().take(MEAN_OF) {
            span_ms += tick.span_ms;
            add_all(&mut plans, &tick.plans);
            add_all(&mut rules, &tick.rules);
            tick.plans.values().for_each(|row| add(&mut total, *row));
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
    #[allow(clippy::cast_precision_loss, reason = "for people, who read three digits")]
    fn of(row: Row, span_ms: u64) -> Self {
        let a_second = |count: u64| count as f64 * 1_000.0 / span_ms.max(1) as f64;
        Self {
            allowed: a_second(row.allowed),
            refused: a_second(row.refused),
            shadow_refused: a_second(row.shadow_refused),
        }
    }

    /// Which part of all was refused, in percent; none where there was nothing.
    pub(super) fn refused_percent(&self) -> Option<f64> {
        let all = self.allowed + self.refused;
        (all > 0.0).then(|| self.refused * 100.0 / all)
    }
}

impl Series {
    /// Columns for ticks that span up to `seconds`, at most `columns`, each of the same number of
    /// whole seconds of the clock: what has been drawn does not change as time goes on.
    pub(super) fn of<'a>(
        ticks: impl Iterator<Item = &'a Tick>,
        columns: usize,
        seconds: u64,
    ) -> Self {
        let columns = u64::try_from(columns).unwrap_or(u64::MAX).max(1);
        let width = seconds.div_ceil(columns).max(1);
        let mut sums: BTreeMap<u64, (Row, u64)> = BTreeMap::new();
        for tick in ticks {
            let (row, span_ms) = sums.entry(tick.at_ms / 1_000 / width).or_default();
            *span_ms += tick.span_ms;
            tick.plans.values().for_each(|one| add(row, *one));
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

    /// A tick of one second with requests of one plan and decisions of one rule.
    pub(in crate::top) fn tick(at_s: u64, allowed: u64, refused: u64) -> Tick {
        let row = Row { allowed, refused, shadow_refused: 0 };
        let rows = |name: &str| BTreeMap::from([(name.to_owned(), row)]);
        Tick {
            at_ms: at_s * 1_000,
            span_ms: 1_000,
            plans: rows("free"),
            rules: rows("per-key"),
            config_valid: true,
            ..Tick::default()
        }
    }

    #[test]
    fn a_rate_is_the_mean_of_the_last_five_seconds() {
        let ticks: Vec<Tick> = (0..10).map(|at| tick(at, at * 10, 5)).collect();
        let rates = Rates::of(ticks.iter());
        let expected = Rate { allowed: 70.0, refused: 5.0, shadow_refused: 0.0 };
        assert_eq!(rates.total, expected);
        assert_eq!(rates.plans, [("free".to_owned(), expected)]);
        assert_eq!(rates.rules, [("per-key".to_owned(), expected)]);
        assert_eq!(expected.refused_percent().map(f64::round), Some(7.0));
        assert_eq!(Rates::of([].iter()), Rates::default());
        assert_eq!(Rate::default().refused_percent(), None);
    }

    #[test]
    fn a_long_tick_counts_as_long_as_it_is() {
        let ticks = [Tick { span_ms: 4_000, ..tick(4, 100, 0) }, tick(5, 100, 0)];
        assert!((Rates::of(ticks.iter()).total.allowed - 40.0).abs() < 1e-9);
    }

    #[test]
    fn a_column_is_the_mean_of_its_seconds() {
        let ticks: Vec<Tick> = (8..20).map(|at| tick(at, at, 1)).collect();
        // columns, seconds, allowed
        let table: [(usize, u64, &[u64]); 5] = [
            (12, 12, &[8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]),
            (3, 12, &[9, 13, 17]),
            (2, 12, &[14, 18]),
            (1, 12, &[15]),
            (5, 5, &[15, 16, 17, 18, 19]),
        ];
        for (columns, seconds, allowed) in table {
            let series = Series::of(ticks.iter(), columns, seconds);
            assert_eq!(series.allowed, allowed, "{columns}");
        }
    }

    #[test]
    fn a_gap_is_drawn_as_one() {
        let ticks = [tick(1, 5, 0), tick(4, 7, 1)];
        let series = Series::of(ticks.iter(), 10, 10);
        assert_eq!((series.allowed, series.refused), (vec![5, 0, 0, 7], vec![0, 0, 0, 1]));
        assert_eq!(Series::of([].iter(), 10, 10).allowed, [0; 0]);
    }
}
