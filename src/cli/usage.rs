//! `tollgate usage`: asks a running gateway what clients used of their quotas.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::columns::aligned;
use super::file::ConfigFile;
use super::target::{TargetFlags, exit_of};
use super::{print, print_bytes};
use crate::api::usage::{
    DAY_COLUMNS, DayUsage, PERIOD_COLUMNS, QuotaUsage, Usage, csv, json_lines,
};
use crate::base::text::cut;
use crate::base::time::{self, UtcTime};
use crate::net::percent::encode_component;
use crate::top::{Client, GatewayError};

/// Number of entries in one response.
const PAGE: usize = 1_000;

const HEADINGS: [&str; 8] = ["rule", "client", "plan", "from", "to", "zone", "used", "of"];

const DAY_HEADINGS: [&str; 8] =
    ["day", "zone", "rule", "client", "plan", "requests", "used", "overage"];

/// Zone of periods whose zone this machine lacks.
const DEFAULT_ZONE: &str = "UTC";

/// Which usage to show.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Only the client with the key of this id.
    #[arg(long, value_name = "ID", conflicts_with_all = ["ip", "tenant", "client"])]
    key_id: Option<String>,
    /// Only the client with this id, whether it is that of a key, a token, a tenant or an address.
    #[arg(long, value_name = "ID", conflicts_with_all = ["ip", "tenant"])]
    client: Option<String>,
    /// Only the tenant with this id.
    #[arg(long, value_name = "ID", conflicts_with = "ip")]
    tenant: Option<String>,
    /// Only the client with this address; for IPv6, with any address of its network.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Only this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// List usage by day, or by day and route, instead of by period. Needs `usage.detail`. Without
    /// other days, those of the current month in UTC.
    #[arg(long, value_name = "day|route")]
    by: Option<By>,
    /// Only this route, with `--by route`.
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Only clients that have this plan.
    #[arg(long, value_name = "NAME")]
    plan: Option<String>,
    /// Only periods that begin in this month, such as `2026-11`, or with `--by`, its days: in the
    /// time zone of each rule.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["period", "since", "until", "day"])]
    month: Option<String>,
    /// The same for a day, such as `2026-11-28`.
    #[arg(long, value_name = "DAY", conflicts_with_all = ["period", "since", "until"])]
    day: Option<String>,
    /// The periods: `current`, `all`, or those that contain a time such as `2026-10-31T12:00:00Z`.
    /// Other periods than the current ones need `[redis]` or `usage.file`. Default: current.
    #[arg(long, value_name = "PERIOD", conflicts_with_all = ["since", "until"])]
    period: Option<String>,
    /// Only periods that end after this time: `2026-10-01 00:00`, or an age such as `90d`. With
    /// `--by`, a day.
    #[arg(long, value_name = "TIME", alias = "from")]
    since: Option<String>,
    /// Only periods that begin at this time or earlier. With `--by`, the last day.
    #[arg(long, value_name = "TIME", alias = "to")]
    until: Option<String>,
    /// Time zone of `--since` and `--until`, and in which periods are shown, such as Europe/Berlin
    /// or UTC. Default: that of the gateway, and for periods that of their rule.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Maximum number of entries, 1 or more. Default: 1000; as CSV and JSON Lines, all.
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Print the entries of `GET /api/usage` as they are.
    #[arg(long, conflicts_with_all = ["csv", "jsonl"])]
    json: bool,
    /// Print CSV, with times in UTC. An apostrophe precedes texts that begin like a formula.
    #[arg(long, conflicts_with = "jsonl")]
    csv: bool,
    /// Print each entry as a line of JSON.
    #[arg(long)]
    jsonl: bool,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
}

/// What usage is listed by instead of by period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// By day.
    Day,
    /// By day and route.
    Route,
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Route => "route",
        }
    }
}

/// All entries that are wanted, up to `--limit`.
#[derive(Debug)]
struct Found {
    source: Cow<'static, str>,
    entries: Vec<Value>,
    has_more: bool,
}

/// Prints what was used.
pub(super) fn usage(file: &ConfigFile, flags: &Flags) -> ExitCode {
    let (client, runtime) = match flags.target.client(file) {
        Ok(client) => client,
        Err(exit) => return exit,
    };
    match runtime.block_on(found(&client, flags)) {
        Ok(found) if flags.json => {
            let Found { source, entries, has_more } = found;
            let all = json!({ "source": source, "entries": entries, "more": has_more });
            print(&format!("{all:#}\n"))
        }
        Ok(found) if flags.csv || flags.jsonl => export(&found, flags),
        Ok(found) if flags.by.is_some() => print(&days(&found)),
        Ok(found) => print(&page(&found, flags.zone.as_deref())),
        Err(error) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
    }
}

/// Prints the entries for other programs.
fn export(found: &Found, flags: &Flags) -> ExitCode {
    let text = if flags.jsonl {
        json_lines(found.entries.iter())
    } else if flags.by.is_some() {
        cells(&DAY_COLUMNS, found, DayUsage::as_cells)
    } else {
        cells(&PERIOD_COLUMNS, found, QuotaUsage::as_cells)
    };
    let Some(text) = text else {
        eprintln!("error: the gateway sent entries that this version does not know");
        return ExitCode::FAILURE;
    };
    if found.has_more {
        eprintln!("warning: there are more entries: give a larger --limit");
    }
    print_bytes(&text)
}

/// All entries as CSV; `None` if one of them is unknown.
fn cells<E: DeserializeOwned + Serialize>(
    columns: &[&str],
    found: &Found,
    as_cells: impl Fn(&E) -> E,
) -> Option<Vec<u8>> {
    let each = found.entries.iter().map(|entry| E::deserialize(entry).ok());
    let each: Option<Vec<E>> = each.collect();
    csv(columns, each?.iter().map(as_cells))
}

async fn found(client: &Client, flags: &Flags) -> Result<Found, GatewayError> {
    let limit = flags.limit();
    let mut entries: Vec<Value> = Vec::new();
    let mut cursor = None;
    loop {
        let wanted = limit.saturating_sub(entries.len()).clamp(1, PAGE);
        let usage: Usage<Value> = client.get(&flags.path(wanted, cursor.as_deref())).await?;
        entries.extend(usage.entries);
        let is_full = entries.len() >= limit;
        cursor = usage.next;
        if cursor.is_none() || is_full {
            return Ok(Found { source: usage.source, entries, has_more: cursor.is_some() });
        }
    }
}

impl Flags {
    fn limit(&self) -> usize {
        let all = if self.csv || self.jsonl { usize::MAX } else { PAGE };
        self.limit.map_or(all, NonZeroUsize::get)
    }

    /// Path and query of a request for `limit` entries.
    fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let mut path = format!("/api/usage?limit={limit}");
        let texts = [
            ("key", self.key_id.as_deref()),
            ("ip", self.ip.as_deref()),
            ("client", self.client.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("by", self.by.map(By::name)),
            ("route", self.route.as_deref()),
            ("plan", self.plan.as_deref()),
            ("month", self.month.as_deref()),
            ("day", self.day.as_deref()),
            ("rule", self.rule.as_deref()),
            ("period", self.period.as_deref()),
            ("since", self.since.as_deref()),
            ("until", self.until.as_deref()),
            ("zone", self.zone.as_deref()),
            ("cursor", cursor),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                let _ = write!(path, "&{name}={}", encode_component(text));
            }
        }
        path
    }
}

/// The entries as a table, with times in `zone`, else in that of each rule.
fn page(Found { source, entries, has_more }: &Found, zone: Option<&str>) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    let each = entries.iter().filter_map(|entry| QuotaUsage::deserialize(entry).ok());
    rows.extend(each.map(|entry| entry.row(zone)));
    let mut text = if rows.len() > 1 {
        aligned(&rows).join("\n") + "\n"
    } else {
        "No usage of quotas in these periods.\n".to_owned()
    };
    if *has_more {
        let _ = writeln!(text, "… and more: give a larger --limit.");
    }
    if source == "local" {
        let _ = writeln!(
            text,
            "\nOnly of the keys in the file, since the start of this gateway: it has neither [redis] nor usage.file."
        );
    }
    text
}

/// The entries by day as a table.
fn days(Found { entries, has_more, .. }: &Found) -> String {
    let by_day: Vec<DayUsage> =
        entries.iter().filter_map(|entry| DayUsage::deserialize(entry).ok()).collect();
    let has_routes = by_day.iter().any(|entry| entry.route.is_some());
    let mut head = DAY_HEADINGS.map(str::to_owned).to_vec();
    if has_routes {
        head.insert(5, "route".to_owned());
    }
    let mut rows = vec![head];
    rows.extend(by_day.iter().map(|entry| entry.row(has_routes)));
    let mut text = if rows.len() > 1 {
        aligned(&rows).join("\n") + "\n"
    } else {
        "No usage of quotas on these days.\n".to_owned()
    };
    if *has_more {
        let _ = writeln!(text, "… and more: give a larger --limit.");
    }
    text
}

fn shown_client(kind: &str, client: &str) -> String {
    match (kind, client) {
        (kind, "") => cut(kind, 64),
        (kind, client) => format!("{} {}", cut(kind, 16), cut(client, 64)),
    }
}

impl DayUsage {
    fn row(&self, has_routes: bool) -> Vec<String> {
        let route = self.route.as_deref().unwrap_or_default();
        let route = has_routes.then(|| cut(route, 64));
        let first = [
            self.day.clone(),
            self.zone.clone(),
            cut(&self.rule, 64),
            shown_client(&self.client_kind, &self.client),
            cut(&self.plan, 64),
        ];
        let numbers = [self.requests.to_string(), self.used.to_string(), self.overage.to_string()];
        first.into_iter().chain(route).chain(numbers).collect()
    }
}

impl QuotaUsage {
    fn row(&self, zone: Option<&str>) -> Vec<String> {
        let client = shown_client(&self.client_kind, &self.client);
        let zone = zone.unwrap_or(&self.zone);
        let (zone, times) =
            time::zone(zone).map_or((DEFAULT_ZONE, TimeZone::UTC), |times| (zone, times));
        vec![
            cut(&self.rule, 64),
            client,
            cut(&self.plan, 64),
            minute(self.period_start, &times),
            minute(self.period_end, &times),
            zone.to_owned(),
            self.used.to_string(),
            self.limit.to_string(),
        ]
    }
}

/// A time without seconds: `2026-11-01 00:00`.
fn minute(time: UtcTime, zone: &TimeZone) -> String {
    time.in_zone(zone.clone(), "%Y-%m-%d %H:%M")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, has_more: bool) -> Found {
        let entry = |client: &str, used: f64| {
            json!({ "rule": "monthly", "client_kind": "key", "client": client, "plan": "pro",
                "period_start": "2026-10-31T23:00:00.000000Z", "period_end": "2026-11-30T23:00:00.000000Z",
                "limit": 100_000, "used": used, "counted_at": null, "bucket": "00", "zone": "Europe/Berlin" })
        };
        let entries = vec![entry("acme", 2_081.0), entry("other", 0.5)];
        Found { source: source.to_owned().into(), entries, has_more }
    }

    #[test]
    fn usage_is_a_table() {
        insta::assert_snapshot!(page(&found("redis", true), None), @r"
        rule     client     plan  from              to                zone           used  of
        monthly  key acme   pro   2026-11-01 00:00  2026-12-01 00:00  Europe/Berlin  2081  100000
        monthly  key other  pro   2026-11-01 00:00  2026-12-01 00:00  Europe/Berlin  0.5   100000
        … and more: give a larger --limit.
        ");
        let nothing = Found { entries: Vec::new(), ..found("local", false) };
        insta::assert_snapshot!(page(&nothing, None), @r"
        No usage of quotas in these periods.

        Only of the keys in the file, since the start of this gateway: it has neither [redis] nor usage.file.
        ");
    }

    #[test]
    fn usage_by_day_is_a_table_and_csv() {
        let entry = |day: &str, route: Value| {
            json!({ "day": day, "zone": "Europe/Berlin", "rule": "monthly", "client_kind": "token",
                "client": "=acme", "plan": "pro", "route": route, "requests": 12, "used": 12.5, "overage": 2.0 })
        };
        let found = |route: &Value| Found {
            source: "redis".into(),
            entries: vec![entry("2026-11-27", route.clone()), entry("2026-11-28", route.clone())],
            has_more: false,
        };
        insta::assert_snapshot!(days(&found(&json!("search"))), @r"
        day         zone           rule     client       plan  route   requests  used  overage
        2026-11-27  Europe/Berlin  monthly  token =acme  pro   search  12        12.5  2
        2026-11-28  Europe/Berlin  monthly  token =acme  pro   search  12        12.5  2
        ");
        insta::assert_snapshot!(days(&found(&json!(null))), @r"
        day         zone           rule     client       plan  requests  used  overage
        2026-11-27  Europe/Berlin  monthly  token =acme  pro   12        12.5  2
        2026-11-28  Europe/Berlin  monthly  token =acme  pro   12        12.5  2
        ");
        let text = cells(&DAY_COLUMNS, &found(&json!("search")), DayUsage::as_cells).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "2026-11-27,Europe/Berlin,monthly,token,'=acme,pro,search,12,12.5,2.0"
        );
    }

    #[test]
    fn periods_are_in_the_zone_that_is_asked_for_or_in_utc() {
        let mut found = found("redis", false);
        found.entries.truncate(1);
        let times = |found: &Found, zone| {
            let page = page(found, zone);
            let row = page.lines().nth(1).unwrap().split("  ").map(str::trim);
            row.filter(|cell| !cell.is_empty()).skip(3).take(3).collect::<Vec<_>>().join(", ")
        };
        let shown = times(&found, Some("America/New_York"));
        assert_eq!(shown, "2026-10-31 19:00, 2026-11-30 18:00, America/New_York");
        for zone in [json!("Nowhere/At_All"), json!(null)] {
            found.entries[0]["zone"] = zone;
            found.entries[0].as_object_mut().unwrap().retain(|_, value| !value.is_null());
            assert_eq!(times(&found, None), "2026-10-31 23:00, 2026-11-30 23:00, UTC");
        }
    }
}
