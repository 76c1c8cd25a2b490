//! The output of `tollgate top --once`.

use std::fmt::Write as _;

use super::api::{Reload, Status};
use super::feed::Summary;
use super::rates::{Rate, Rates};
use super::screen::words::{count, name, rate, span, time};
use super::state::{Listed, Sort, listed};

/// Maximum number of clients in a list.
const MAX_CLIENTS: usize = 10;

/// Formats the page, which ends with a line break.
pub(super) fn page(at: &str, summary: &Summary) -> String {
    let mut page = String::new();
    let rates = Rates::of(summary.samples.iter());
    gateway(&mut page, at, &summary.data.status, summary.data.reloads.reloads.first());
    let _ = writeln!(page, "requests   {}\n", requests(&rates.total, summary));
    rates_table(&mut page, "PLAN", Sort::Requests.sorted(rates.plans));
    rates_table(&mut page, "RULE", Sort::Requests.sorted(rates.rules));
    let busiest = listed(summary.data.top.rules.iter(), Sort::Requests);
    clients(&mut page, "BUSIEST", &busiest);
    let refused = listed(summary.most_refused.rules.iter(), Sort::Refused);
    clients(&mut page, "MOST REFUSED", &refused);
    upstreams(&mut page, summary);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn requests(total: &Rate, summary: &Summary) -> String {
    let Some(last) = summary.samples.last() else { return "unknown yet".to_owned() };
    let percent = total.refused_percent().map(|percent| format!(" ({percent:.1} %)"));
    format!(
        "allowed {}/s, refused {}/s{}, in flight {}",
        rate(total.allowed),
        rate(total.refused),
        percent.unwrap_or_default(),
        last.in_flight
    )
}

fn gateway(page: &mut String, at: &str, status: &Status, reload: Option<&Reload>) {
    let up = span(status.uptime_s.saturating_mul(1_000));
    let ready = match (status.draining, status.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready",
    };
    let version = name(&status.version, 24);
    let _ = writeln!(page, "tollgate   {version} at {at}, up {up}, {ready}");
    let last = reload.map_or_else(
        || "no reload since the start".to_owned(),
        |reload| format!("last reload {} at {}", name(&reload.result, 16), time(&reload.at)),
    );
    let _ = writeln!(page, "file       generation {}, {last}", count(status.generation));
    let redis = match (&status.breaker, status.redis.configured) {
        (Some(breaker), true) => {
            let connected = if status.redis.connected { "connected" } else { "no connection" };
            let state = name(&breaker.state, 16);
            format!("{connected}, breaker {state}, gateways {}", status.gateways)
        }
        _ => "none".to_owned(),
    };
    let _ = writeln!(page, "redis      {redis}");
    let counts = status.buckets;
    let _ = writeln!(
        page,
        "buckets    {} of {} here, {} evicted, {} with debt",
        count(counts.local),
        count(counts.max),
        count(counts.evictions),
        count(counts.debts)
    );
}

fn rates_table(page: &mut String, title: &str, rows: Vec<(String, Rate)>) {
    let _ = writeln!(page, "{title:32}{:>12}{:>12}{:>12}", "allowed/s", "refused/s", "shadow/s");
    for (own, rates) in rows {
        let [allowed, refused, shadow] =
            [rates.allowed, rates.refused, rates.shadow_refused].map(rate);
        let _ = writeln!(page, "{:32}{allowed:>12}{refused:>12}{shadow:>12}", name(&own, 31));
    }
    page.push('\n');
}

fn clients(page: &mut String, title: &str, rows: &[Listed<'_>]) {
    let _ = writeln!(page, "{title:32}{:20}{:>12}{:>12}", "rule", "requests", "refused");
    for Listed { rule, client } in rows.iter().take(MAX_CLIENTS) {
        let shown = name(&format!("{} {}", client.kind, client.id), 31);
        let (requests, refused) = (count(client.requests), count(client.refused));
        let _ = writeln!(page, "{shown:32}{:20}{requests:>12}{refused:>12}", name(rule, 19));
    }
    page.push('\n');
}

fn upstreams(page: &mut String, summary: &Summary) {
    let _ = writeln!(page, "{:32}{:32}health", "UPSTREAM", "address");
    for one in &summary.data.upstreams.upstreams {
        let own = name(&one.name, 31);
        if one.addresses.is_empty() {
            let servers = name(&one.servers.join(","), 31);
            let _ = writeln!(page, "{own:32}{servers:32}-");
        }
        for server in &one.addresses {
            let (address, health) = (name(&server.address, 31), name(&server.health, 16));
            let _ = writeln!(page, "{own:32}{address:32}{health}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::api::Top;
    use crate::top::rates::tests::sample;
    use crate::top::state::tests::data;

    #[test]
    fn page_shows_all_data() {
        let mut data = data();
        data.upstreams = serde_json::from_str(
            r#"{"upstreams": [
            {"name": "api", "servers": ["api.internal:3000"], "addresses": [
              {"address": "10.0.0.7:3000", "health": "ok", "retry_after_ms": 0}]},
            {"name": "trial", "servers": ["demo"], "addresses": []}]}"#,
        )
        .unwrap();
        let most_refused = data.top.clone();
        let samples = (0..9).map(|at| sample(at, 1_000 + at, 5)).collect();
        insta::assert_snapshot!(page("127.0.0.1:9090", &Summary { data, most_refused, samples }));
    }

    #[test]
    fn page_without_data() {
        let mut data = data();
        data.top = Top::default();
        let summary = Summary { data, ..Summary::default() };
        insta::assert_snapshot!(page("127.0.0.1:9090", &summary));
    }
}
