//! The metrics of docs/metrics.md, which is generated from the code: a name or a label that is not
//! there is a mistake in the test, and not a count of 0.

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Suffixes of the series of a histogram.
const OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_count", "_sum"];

/// A row of the page: type and labels.
fn row(name: &str) -> Option<(&'static str, &'static str)> {
    let own = format!("| `{name}` | ");
    let rest = PAGE.lines().find_map(|line| line.strip_prefix(&own))?;
    let mut cells = rest.split(" | ");
    Some((cells.next()?, cells.next()?))
}

fn row_of_series(name: &str) -> Option<(&'static str, &'static str)> {
    let histogram = || {
        let of = OF_HISTOGRAMS.iter().find_map(|suffix| name.strip_suffix(suffix))?;
        row(of).filter(|(kind, _)| *kind == "histogram")
    };
    row(name).or_else(histogram)
}

/// Asserts that the page has a metric with this name and these labels.
#[track_caller]
pub(crate) fn assert_metric(name: &str, labels: &[(&str, &str)]) {
    let (_, known) =
        row_of_series(name).unwrap_or_else(|| panic!("no metric {name} in docs/metrics.md"));
    for (label, _) in labels {
        assert!(
            known.split(", ").any(|known| known.trim_matches([' ', '`']) == *label),
            "{name} has no label {label} in docs/metrics.md, but {known}"
        );
    }
}

/// Whether the metric is a gauge.
pub(crate) fn is_gauge(name: &str) -> bool {
    row(name).is_some_and(|(kind, _)| kind == "gauge")
}

#[test]
fn metrics_and_labels_that_are_not_documented_panic() {
    let fails = |name: &'static str, label: Option<&'static str>| {
        let labels: Vec<_> = label.map(|label| (label, "x")).into_iter().collect();
        std::panic::catch_unwind(move || assert_metric(name, &labels)).is_err()
    };
    assert!(!fails("tollgate_breaker_state", None) && is_gauge("tollgate_breaker_state"));
    assert!(!fails("tollgate_decisions_total", Some("source")));
    assert!(!fails("tollgate_redis_batch_checks_count", None));
    assert!(fails("tollgate_breaker_states", None));
    assert!(fails("tollgate_decisions_total", Some("sources")));
    assert!(fails("tollgate_breaker_state_count", None));
}
