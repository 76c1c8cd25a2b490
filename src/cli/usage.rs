//! `tollgate usage`: asks a running gateway what clients used of their quotas.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::Args;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};

use super::columns::aligned;
use super::file::ConfigFile;
use super::print;
use super::target::{TargetFlags, exit_of};
use crate::api::usage::{QuotaUsage, Usage};
use crate::base::text::cut;
use crate::base::time::{self, UtcTime};
use crate::net::percent::encode_component;
use crate::top::{Client, GatewayError};

/// Number of entries in one response.
const PAGE: usize = 1_000;

const HEADINGS: [&str; 8] = ["rule", "client", "plan", "from", "to", "zone", "used", "of"];

/// Zone of periods whose zone this machine lacks.
const DEFAULT_ZONE: &str = "UTC";

/// Which usage to show.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Only the client with the key of this id.
    #[arg(long, value_name = "ID", conflicts_with = "ip")]
    key_id: Option<String>,
    /// Only the client with this address; for IPv6, with any address of its network.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Only this rule.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// The periods: `current`, `all`, or those that contain a time such as `2026-10-31T12:00:00Z`.
    /// Other periods than the current ones need `[redis]` or `usage.file`. Default: current.
    #[arg(long, value_name = "PERIOD", conflicts_with_all = ["since", "until"])]
    period: Option<String>,
    /// Only periods that end after this time: `2026-10-01 00:00`, or an age such as `90d`.
    #[arg(long, value_name = "TIME", alias = "from")]
    since: Option<String>,
    /// Only periods that begin at this time or earlier.
    #[arg(long, value_name = "TIME", alias = "to")]
    until: Option<String>,
    /// Time zone of `--since` and `--until`, and in which periods are shown, such as Europe/Berlin
    /// or UTC. Default: that of the gateway, and for periods that of their rule.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Maximum number of entries, 1 or more.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::new(PAGE).unwrap_or(NonZeroUsize::MIN))]
    limit: NonZeroUsize,
    /// Print the entries of `GET /api/usage` as they are.
    #[arg(long)]
    json: bool,
    /// The gateway.
    #[command(flatten)]
    target: TargetFlags,
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
        Ok(found) => print(&page(&found, flags.zone.as_deref())),
        Err(error) => {
            eprintln!("error: {error}");
            exit_of(&error)
        }
    }
}

async fn found(client: &Client, flags: &Flags) -> Result<Found, GatewayError> {
    let mut entries: Vec<Value> = Vec::new();
    let mut cursor = None;
    loop {
        let wanted = flags.limit.get().saturating_sub(entries.len()).clamp(1, PAGE);
        let usage: Usage<Value> = client.get(&flags.path(wanted, cursor.as_deref())).await?;
        entries.extend(usage.entries);
        let is_full = entries.len() >= flags.limit.get();
        cursor = usage.next;
        if cursor.is_none() || is_full {
            return Ok(Found { source: usage.source, entries, has_more: cursor.is_some() });
        }
    }
}

impl Flags {
    /// Path and query of a request for `limit` entries.
    fn path(&self, limit: usize, cursor: Option<&str>) -> String {
        let mut path = format!("/api/usage?limit={limit}");
        let texts = [
            ("key", self.key_id.as_deref()),
            ("ip", self.ip.as_deref()),
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

impl QuotaUsage {
    fn row(&self, zone: Option<&str>) -> Vec<String> {
        let client = match (&*self.client_kind, &*self.client) {
            (kind, "") => cut(kind, 64),
            (kind, client) => format!("{} {}", cut(kind, 16), cut(client, 64)),
        };
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
