//! The output of `tollgate top --once`.

use std::fmt::Write as _;

use super::feed::Summary;
use super::rates::{Named, Rates, RequestRate, TrafficRate};
use super::screen::words::{count, endpoint, latency, name, rate, run_span, span};
use super::screen::{overload, refusals, words};
use super::state::{Listed, Sort, listed};
use super::zone::Zone;
use crate::api::reloads::Reload;
use crate::api::samples::Latency;
use crate::api::status::Status;

/// Maximum number of clients, or of refusal runs, in a list.
const MAX_CLIENTS: usize = 10;

/// Formats the page, which ends with a line break.
pub(super) fn page(at: &str, summary: &Summary) -> String {
    let mut page = String::new();
    let rates = Rates::of(summary.samples.iter());
    let zone = Zone::of(Some(&summary.data.recent));
    gateway(&mut page, at, &summary.data.status, &zone, summary.data.reloads.reloads.first());
    let _ = writeln!(page, "requests   {}", requests(&rates.total, summary));
    let _ = writeln!(page, "responses  {}\n", responses(&rates, summary));
    let of_plan = |row: RequestRate| [row.allowed, row.refused, row.other()];
    let plans = Sort::Requests.sorted(rates.plans);
    let plans = plans.into_iter().map(|(name, row)| (name, of_plan(row)));
    rates_table(&mut page, "PLAN", "other/s", plans.collect());
    let rules = Sort::Requests.sorted(rates.rules).into_iter();
    let rules = rules.map(|(name, row)| (name, [row.allowed, row.refused, row.shadow_refused]));
    rates_table(&mut page, "RULE", "shadow/s", rules.collect());
    let total = summary.data.recent.total.as_ref();
    let of_route = |name: &str| Some(total?.routes.get(name)?.latency);
    let of_upstream = |name: &str| Some(total?.upstreams.get(name)?.latency);
    let routes = Sort::Requests.sorted(rates.routes);
    traffic(&mut page, "ROUTE", "", routes, of_route);
    let upstreams_by_load = Sort::Requests.sorted(rates.upstreams);
    traffic(&mut page, "ATTEMPTS AT UPSTREAM", "failed/s", upstreams_by_load, of_upstream);
    let busiest = listed(summary.data.top.rules.iter(), Sort::Requests);
    clients(&mut page, "BUSIEST", &busiest);
    let refused = listed(summary.most_refused.rules.iter(), Sort::Refused);
    clients(&mut page, "MOST REFUSED", &refused);
    refusal_runs(&mut page, summary, &zone);
    upstreams(&mut page, summary);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn requests(total: &RequestRate, summary: &Summary) -> String {
    let Some(last) = summary.samples.last() else { return "unknown yet".to_owned() };
    let percent = total.refused_percent().map(|percent| format!(" ({percent:.1} %)"));
    format!(
        "{}/s: allowed {}, refused {}{}, unauthorized {}, unavailable {}, rejected {}; in flight {}",
        rate(total.all()),
        rate(total.allowed),
        rate(total.refused),
        percent.unwrap_or_default(),
        rate(total.unauthorized),
        rate(total.unavailable),
        rate(total.rejected),
        last.in_flight
    )
}

/// Responses by class of their status, and the latency of the last ten seconds.
fn responses(rates: &Rates, summary: &Summary) -> String {
    if rates.statuses.is_empty() {
        return "none in the last seconds".to_owned();
    }
    let each = rates.statuses.iter().map(|(class, per_second)| {
        let class = if class == "none" { "no response" } else { class };
        format!("{} {}/s", name(class, 12), rate(*per_second))
    });
    let mut shown = each.collect::<Vec<_>>().join(", ");
    let found = summary.data.recent.total.as_ref().map(|total| total.latency).unwrap_or_default();
    if found.p50_ms.is_some() {
        let _ =
            write!(shown, "; p50 {} ms, p99 {} ms", latency(found.p50_ms), latency(found.p99_ms));
    }
    shown
}

fn gateway(page: &mut String, at: &str, status: &Status, zone: &Zone, reload: Option<&Reload>) {
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
        |reload| format!("last reload {} at {}", reload.answer.name(), zone.time(reload.at)),
    );
    let _ = writeln!(page, "file       generation {}, {last}", count(status.generation));
    let redis = match (&status.breaker, status.redis.configured) {
        (Some(breaker), true) => {
            let connected = if status.redis.connected { "connected" } else { "no connection" };
            let state = breaker.state.name();
            let away = status.redis.away.as_ref().map(|away| format!("; {}", name(away, 160)));
            let away = away.unwrap_or_default();
            let others = words::other_limits(status).map(|text| format!(", {text}"));
            let others = others.unwrap_or_default();
            format!("{connected}, breaker {state}, gateways {}{others}{away}", status.gateways)
        }
        _ => "none".to_owned(),
    };
    let _ = writeln!(page, "redis      {redis}");
    let _ = writeln!(page, "time zone  {}", zone.label());
    let counts = &status.buckets;
    let _ = writeln!(
        page,
        "buckets    {} of {} here, {} evicted, {} with debt",
        count(counts.local),
        count(counts.max),
        count(counts.evictions),
        count(counts.debts)
    );
    if let (Some(usage), Some(connections)) = (overload::usage(status), &status.connections) {
        let state = overload::overload(status).unwrap_or_else(|| "none".to_owned());
        let _ = writeln!(page, "clients    {usage}");
        let _ = writeln!(page, "closed     last minute: {}", overload::rejected(connections));
        let _ = writeln!(page, "overload   {state}");
    }
    for (kind, text, _) in words::rules(status) {
        let _ = writeln!(page, "{kind:10} {text}");
    }
}

fn rates_table(page: &mut String, title: &str, third: &str, rows: Named<[f64; 3]>) {
    let _ = writeln!(page, "{title:32}{:>12}{:>12}{third:>12}", "allowed/s", "refused/s");
    for (own, rates) in rows {
        let [allowed, refused, last] = rates.map(rate);
        let _ = writeln!(page, "{:32}{allowed:>12}{refused:>12}{last:>12}", name(&own, 31));
    }
    page.push('\n');
}

/// A table of requests, errors and latency. `failed` is the title of the column of failures, empty
/// without it.
fn traffic(
    page: &mut String,
    title: &str,
    failed: &str,
    rows: Named<TrafficRate>,
    latency_of: impl Fn(&str) -> Option<Latency>,
) {
    let _ = writeln!(
        page,
        "{title:32}{:>12}{:>12}{failed:>12}{:>12}{:>12}",
        "requests/s", "5xx/s", "p50 ms", "p99 ms"
    );
    for (own, row) in rows {
        let found = latency_of(&own).unwrap_or_default();
        let failures = if failed.is_empty() { String::new() } else { rate(row.failures) };
        let _ = writeln!(
            page,
            "{:32}{:>12}{:>12}{failures:>12}{:>12}{:>12}",
            name(&own, 31),
            rate(row.requests),
            rate(row.errors),
            latency(found.p50_ms),
            latency(found.p99_ms)
        );
    }
    page.push('\n');
}

fn refusal_runs(page: &mut String, summary: &Summary, zone: &Zone) {
    let _ = writeln!(
        page,
        "{:21}{:11}{:32}{:20}{:>7}{:>10}",
        "LATEST REFUSALS", "for", "client", "rule", "status", "refused"
    );
    for run in summary.data.audit.refusal_runs.iter().take(MAX_CLIENTS) {
        let _ = writeln!(
            page,
            "{:21}{:11}{:32}{:20}{:>7}{:>10}",
            zone.time(run.first),
            run_span(run),
            name(&refusals::client(run), 31),
            name(&refusals::rule(run), 19),
            refusals::status(run),
            count(run.count)
        );
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
            let (address, health) = (name(&server.address, 31), endpoint(server));
            let _ = writeln!(page, "{own:32}{address:32}{health}");
        }
        if let Some(limit) = one.limit {
            let load = format!("{} of {limit} in flight", one.in_flight);
            let _ = writeln!(page, "{own:32}{:32}{load}", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::clients::Top;
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
        data.status.rules = serde_json::from_str(
            r#"[{"rule": "per-ip", "bans": 3, "rate_percent": 100},
                {"rule": "monthly", "warned": 1204, "overage_tokens": 0.5}]"#,
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
