//! Descriptions of all series, from which a test generates `docs/metrics.md`.

use std::collections::HashMap;

use prometheus::core::Collector;
use prometheus::proto::MetricType;

/// Name, help, type and labels of one metric.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "read by the test that compares the page with the code")
)]
pub(super) struct Described {
    name: String,
    help: String,
    kind: MetricType,
    labels: Vec<String>,
}

impl Described {
    /// One description for each metric of a collector.
    pub(super) fn all(series: &impl Collector) -> Vec<Self> {
        let families = series.collect();
        let kinds: HashMap<&str, MetricType> =
            families.iter().map(|family| (family.name(), family.get_field_type())).collect();
        let described = |desc: &prometheus::core::Desc| Self {
            name: desc.fq_name.clone(),
            help: desc.help.clone(),
            kind: kinds.get(desc.fq_name.as_str()).copied().unwrap_or(MetricType::UNTYPED),
            labels: desc.variable_labels.clone(),
        };
        series.desc().into_iter().map(described).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;

    use super::*;
    use crate::observe::metrics::Metrics;

    const HEAD: &str = "\
# Metrics

Which series does the gateway export? `GET /metrics` on the admin port returns them in Prometheus' text
format. Labels are names from `gateway.toml` and fixed words, never clients, so the file determines the
number of series. `route` and `plan` are empty if the request matched no route or was refused before its
plan was known.

This page is generated from the code: `UPDATE_METRICS=1 cargo test --lib metrics` writes it.
[Observability](observability.md) explains what to watch, and the [runbook](runbook.md) what each alert means.
";

    fn file(name: &str) -> String {
        format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    fn all() -> Vec<Described> {
        let mut all = Metrics::register("0").unwrap().1;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn page() -> String {
        let mut page = HEAD.to_owned();
        for (heading, prefix) in [("The gateway", "tollgate_"), ("The process", "process_")] {
            let _ = write!(
                page,
                "\n## {heading}\n\n| name | type | labels | |\n| --- | --- | --- | --- |\n"
            );
            for series in all().iter().filter(|series| series.name.starts_with(prefix)) {
                let labels: Vec<String> =
                    series.labels.iter().map(|label| format!("`{label}`")).collect();
                let kind = format!("{:?}", series.kind).to_lowercase();
                let (name, help) = (&series.name, &series.help);
                let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
            }
        }
        page
    }

    #[test]
    fn docs_metrics_md_is_up_to_date() {
        let path = file("metrics.md");
        let page = page();
        if std::env::var_os("UPDATE_METRICS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == page,
            "UPDATE_METRICS=1 cargo test --lib metrics writes docs/metrics.md"
        );
    }

    #[test]
    fn every_series_is_documented() {
        let page = page();
        for series in all() {
            assert!(page.contains(&format!("`{}`", series.name)), "{}", series.name);
            assert!(series.help.ends_with('.') && series.help.len() > 15, "{}", series.name);
            assert!(!series.help.contains('|'), "{}", series.name);
        }
    }

    /// An unknown name would be an alert that never fires, or an empty panel.
    #[test]
    fn every_metric_in_alerts_dashboards_and_docs_exists() {
        let known: HashSet<String> = all()
            .into_iter()
            .flat_map(|series| {
                let parts: &[&str] = match series.kind {
                    MetricType::HISTOGRAM => &["", "_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                parts.iter().map(|part| format!("{}{part}", series.name)).collect::<Vec<_>>()
            })
            .collect();
        let files = [
            "prometheus/alerts.yml",
            "prometheus/alerts.test.yml",
            "grafana/tollgate.json",
            "observability.md",
            "outages.md",
            "redis.md",
            "reload.md",
            "memory-store.md",
            "tracing.md",
        ];
        for name in files {
            let text = std::fs::read_to_string(file(name)).expect(name);
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| word.starts_with("tollgate_")) {
                assert!(known.contains(word), "{name}: {word}");
            }
        }
    }
}
