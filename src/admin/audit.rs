//! `GET /api/audit`: which clients were refused by which rules, and when.

use serde::Serialize;

use super::answer::Answer;
use super::query::{BadQuery, Query, TimeRange};
use crate::clock;
use crate::config::suggest;
use crate::observe::address::ShownAddress;
use crate::observe::audit::{self, Audit, Kind, Matches, RefusalRunView};
use crate::observe::time::{self, UtcTime};
use crate::runtime::Snapshot;

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;

/// Maximum of the parameter `limit`.
const MAX_LIMIT: usize = 1_000;

const NAMES: [&str; 8] = ["kind", "key", "ip", "rule", "since", "until", "zone", "limit"];

/// Response of `GET /api/audit`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Refusals {
    /// Runs of refusals, the latest first.
    refusal_runs: Vec<RefusalRunView>,
    /// Matching runs beyond `limit`, all of them earlier.
    more: usize,
    /// Refusals, of all clients, whose runs were dropped because the audit was full.
    dropped: u64,
    /// Time since which all runs are kept, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    kept_since: UtcTime,
    /// The zone of times in the query that have no offset.
    time_zone: String,
}

/// The refusal runs that match the query.
pub(super) fn show(
    snapshot: &Snapshot,
    audit: &Audit,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read(query, &NAMES, &[])?;
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit =
        limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
    let policy = &snapshot.policy;
    let ip = query.get("ip").map(|text| ShownAddress::parse(text, policy)).transpose();
    let now = clock::unix_us();
    let TimeRange { since, until, zone } = query.time_range(["since", "until"], now)?;
    let wanted = audit::Query {
        kinds: query.get("kind").map(kinds).transpose()?,
        key: query.get("key").map(str::to_owned),
        ip: ip.map_err(|error| bad(error.to_string()))?,
        rule: query.get("rule").map(str::to_owned),
        since,
        until,
        limit,
    };
    if let Some(key) = query.get("key") {
        let names: Vec<_> = policy.keys.iter().map(|key| &*key.id).collect();
        let wanted = audit::Query { key: Some(key.to_owned()), ..audit::Query::default() };
        exists(audit, ("key", key), &names, &wanted)?;
    }
    if let Some(rule) = query.get("rule") {
        let names: Vec<_> = policy.rules.iter().map(|rule| &*rule.name).collect();
        let wanted = audit::Query { rule: Some(rule.to_owned()), ..audit::Query::default() };
        exists(audit, ("rule", rule), &names, &wanted)?;
    }
    let Matches { runs, more, dropped, kept_since } = audit.find(&wanted);
    let time_zone = time::zone_name(&zone, now);
    Ok(Answer::json(&Refusals { refusal_runs: runs, more, dropped, kept_since, time_zone }))
}

/// Parses a list of kinds, separated by commas.
fn kinds(text: &str) -> Result<Vec<Kind>, Box<Answer>> {
    let names = Kind::ALL.map(Kind::name);
    let kind = |name: &str| {
        let help = || suggest::help(name, &names);
        let unknown = || bad(format!("there is no kind `{}`: {}", suggest::cut(name, 64), help()));
        Kind::parse(name).ok_or_else(unknown)
    };
    text.split(',').map(|name| kind(name.trim())).collect()
}

/// Checks that a key or rule exists, in the present file or in the audit. Otherwise the response to a
/// misspelt name would look like that to a name without refusals.
fn exists(
    audit: &Audit,
    (kind, name): (&str, &str),
    names: &[&str],
    wanted: &audit::Query,
) -> Result<(), Box<Answer>> {
    if names.contains(&name) || audit.find(wanted).more > 0 {
        return Ok(());
    }
    let help = suggest::help(name, names);
    Err(bad(format!("the file has no {kind} `{}`: {help}", suggest::cut(name, 64))))
}

fn bad(detail: String) -> Box<Answer> {
    BadQuery(detail).into()
}
