//! Everything once, as text: for scripts, and for who reads no screen.

use std::fmt::Write as _;

use super::api::{Reload, Status};
use super::feed::Seen;
use super::rates::{Rate, Rates};
use super::screen::words::{count, moment, name, rate, span};
use super::state::{Listed, Sort, listed};

/// How many clients are listed.
const CLIENTS: usize = 10;

/// The page, which ends with a line break.
pub(super) fn page(at: &str, seen: &Seen) -> String {
    let mut page = String::new();
    let rates = Rates::of(seen.ticks.iter());
    gateway(&mut page, at, &seen.answers.status, seen.answers.reloads.reloads.first());
    let _ = writeln!(page, "requests   {}\n", requests(&rates.total, seen));
    rates_table(&mut page, "PLAN", Sort::Requests.sorted(rates.plans));
    rates_table(&mut page, "RULE", Sort::Requests.sorted(rates.rules));
    let busiest = listed(seen.answers.top.rules.iter(), Sort::Requests);
    clients(&mut page, "BUSIEST", &busiest);
    let refused = listed(seen.most_refused.rules.iter(), Sort::Refused);
    clients(&mut page, "MOST REFUSED", &refused);
    upstreams(&mut page, seen);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn requests(total: &Rate, seen: &Seen) -> String {
    let Some(last) = seen.ticks.last() else { return "not known yet".to_owned() };
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
        |reload| format!("last reload {} at {}", name(&reload.result, 16), moment(&reload.at)),
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
        "buckets    {} of {} here, {} dropped, {} owing",
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
    for Listed { rule, client } in rows.iter().take(CLIENTS) {
        let who = name(&format!("{} {}", client.kind, client.id), 31);
        let (requests, refused) = (count(client.requests), count(client.refused));
        let _ = writeln!(page, "{who:32}{:20}{requests:>12}{refused:>12}", name(rule, 19));
    }
    page.push('\n');
}

fn upstreams(page: &mut String, seen: &Seen) {
    let _ = writeln!(page, "{:32}{:32}health", "UPSTREAM", "address");
    for one in &seen.answers.upstreams.upstreams {
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
    use crate::top::rates::tests::tick;
    use crate::top::state::tests::answers;

    #[test]
    fn everything_once() {
        let mut answers = answers();
        answers.upstreams = serde_json::from_str(
            r#"{"upstreams": [
            {"name": "api", "servers": ["api.internal:3000"], "addresses": [
              {"address": "10.0.0.7:3000", "health": "ok", "retry_after_ms": 0}]},
            {"name": "trial", "servers": ["demo"], "addresses": []}]}"#,
        )
        .unwrap();
        let most_refused = answers.top.clone();
        let ticks = (0..9).map(|at| tick(at, 1_000 + at, 5)).collect();
        insta::assert_snapshot!(page("127.0.0.1:9090", &Seen { answers, most_refused, ticks }));
    }

    #[test]
    fn nothing_yet() {
        let mut answers = answers();
        answers.top = Top::default();
        let seen = Seen { answers, ..Seen::default() };
        insta::assert_snapshot!(page("127.0.0.1:9090", &seen));
    }
}
