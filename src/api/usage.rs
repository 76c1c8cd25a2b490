//! Response of `GET /api/usage`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// First characters of a text that a spreadsheet takes for a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

use crate::base::time::UtcTime;

/// Response of `GET /api/usage`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Usage"))]
pub struct Usage<E = QuotaUsage> {
    /// Where counts are from: `redis` (of all gateways that share it), `file` (`usage.file`), or
    /// `local` (the buckets, of the keys in the file of the configuration, in current periods
    /// only).
    pub source: Cow<'static, str>,
    /// Time of the response, in UTC. Redis and the file are at most a second behind.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: UtcTime,
    /// Quotas that were used, by the end of their periods.
    pub entries: Vec<E>,
    /// The parameter `cursor` of the request for further entries; null after the last.
    pub next: Option<String>,
}

/// What one client used of one quota in one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaUsage {
    pub rule: String,
    /// What identifies the client: `key`, `ip` or `unknown_key`; `shared` if the rule counts
    /// several clients together.
    pub client_kind: Cow<'static, str>,
    /// The client; empty if several are counted together.
    pub client: String,
    pub plan: String,
    /// First instant of the period, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub period_start: UtcTime,
    /// First instant after the period, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub period_end: UtcTime,
    /// Tokens of the quota.
    pub limit: u64,
    /// Tokens that requests took, less what an operator has granted: below zero after a grant above
    /// the limit.
    pub used: f64,
    /// Time of the last request, in UTC; null if it is not known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub counted_at: Option<UtcTime>,
    /// The bucket, in hexadecimal: distinguishes entries of rules that count by more than the
    /// client.
    #[serde(default)]
    pub bucket: String,
    /// Time zone that the period begins and ends in, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: Cow<'static, str>,
    /// Tokens used beyond the limit; 0 if there are none.
    #[serde(default)]
    pub overage: f64,
}

/// Response of `GET /api/usage?by=…`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "UsageByDay"))]
pub struct UsageByDay<E = DayUsage> {
    /// Where counts are from: `redis` (of all gateways that share it), or `file` (`usage.file`).
    pub source: Cow<'static, str>,
    /// Time of the response, in UTC. Redis and the file are at most a second behind.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: UtcTime,
    /// What clients used, by day.
    pub entries: Vec<E>,
    /// The parameter `cursor` of the request for further entries; null after the last.
    pub next: Option<String>,
}

/// What one client used of one quota on one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DayUsage {
    /// The day, such as `2026-11-28`, in the zone.
    pub day: String,
    /// Time zone of the rule, in which the day begins and ends, such as `Europe/Berlin`.
    pub zone: String,
    pub rule: String,
    /// What identifies the client: `key`, `token`, `tenant`, `ip` or `unknown_key`; `shared` if the
    /// rule counts several clients together.
    pub client_kind: Cow<'static, str>,
    /// The client; empty if several are counted together.
    pub client: String,
    /// The plan that the client had.
    pub plan: String,
    /// The route, with `by=route`; null with `by=day`, and empty if no route matched.
    pub route: Option<String>,
    /// Requests that were allowed, without those that got their tokens back.
    pub requests: i64,
    /// Tokens that these requests took. What an operator grants changes nothing here.
    pub used: f64,
    /// Those of these tokens that the quota did not hold.
    pub overage: f64,
}

/// Columns of entries by period as CSV.
pub const PERIOD_COLUMNS: [&str; 12] = [
    "rule",
    "client_kind",
    "client",
    "plan",
    "period_start",
    "period_end",
    "limit",
    "used",
    "counted_at",
    "bucket",
    "zone",
    "overage",
];

/// Columns of entries by day as CSV.
pub const DAY_COLUMNS: [&str; 10] = [
    "day",
    "zone",
    "rule",
    "client_kind",
    "client",
    "plan",
    "route",
    "requests",
    "used",
    "overage",
];

impl QuotaUsage {
    /// With texts that no spreadsheet takes for formulas.
    pub fn as_cells(&self) -> Self {
        Self {
            rule: cell(&self.rule),
            client: cell(&self.client),
            plan: cell(&self.plan),
            ..self.clone()
        }
    }
}

impl DayUsage {
    /// With texts that no spreadsheet takes for formulas.
    pub fn as_cells(&self) -> Self {
        Self {
            rule: cell(&self.rule),
            client: cell(&self.client),
            plan: cell(&self.plan),
            route: self.route.as_deref().map(cell),
            ..self.clone()
        }
    }
}

/// A text, after an apostrophe if a spreadsheet would take it for a formula: ids of clients may
/// come from tokens of others.
fn cell(text: &str) -> String {
    if text.starts_with(FORMULA) { format!("'{text}") } else { text.to_owned() }
}

/// Entries as CSV (RFC 4180), after a head with these columns if there are some; `None` if one
/// cannot be written.
pub fn csv<E: Serialize>(columns: &[&str], entries: impl Iterator<Item = E>) -> Option<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    if !columns.is_empty() {
        writer.write_record(columns).ok()?;
    }
    for entry in entries {
        writer.serialize(entry).ok()?;
    }
    writer.into_inner().ok()
}

/// Entries as JSON Lines; `None` if one cannot be written.
pub fn json_lines<E: Serialize>(entries: impl Iterator<Item = E>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut text, &entry).ok()?;
        text.push(b'\n');
    }
    Some(text)
}

/// The zone of the periods of a gateway that does not send it.
fn utc() -> Cow<'static, str> {
    "UTC".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_no_formulas_and_quotes_what_needs_it() {
        let ids = ["acme", "=1+1", "+49", "-1", "@x", "\tx", "a,\"b\"", "a\r\nb", "é", "'=1"];
        let entry = |id: &str| DayUsage {
            day: "2026-11-28".into(),
            zone: "UTC".into(),
            rule: "r".into(),
            client_kind: "token".into(),
            client: id.into(),
            plan: "p".into(),
            route: None,
            requests: 1,
            used: 1.5,
            overage: 0.0,
        };
        let text = csv(&DAY_COLUMNS, ids.iter().map(|id| entry(id).as_cells())).unwrap();
        let mut reader = csv::Reader::from_reader(&text[..]);
        let read: Vec<String> =
            reader.records().map(|record| record.unwrap().get(4).unwrap().to_owned()).collect();
        let expected =
            ["acme", "'=1+1", "'+49", "'-1", "'@x", "'\tx", "a,\"b\"", "a\r\nb", "é", "'=1"];
        assert_eq!(read, expected);
        let text = String::from_utf8(text).unwrap();
        let first = "2026-11-28,UTC,r,token,acme,p,,1,1.5,0.0\r\n";
        assert!(text.contains(first), "{text}");
        let line = json_lines(std::iter::once(entry("=1"))).unwrap();
        assert!(String::from_utf8(line).unwrap().contains("\"client\":\"=1\""));
    }
}
