//! `GET /api/audit`: which clients were refused by which rules, and when.

mod all;

use super::answer::Answer;
use super::query::{BadQuery, Query, TimeRange};
use crate::api::audit::Refusals;
use crate::base::clock;
use crate::base::text::cut;
use crate::base::time::{self, UtcTime};
use crate::config::suggest;
use crate::observe::address::ShownAddress;
use crate::observe::audit::{self, Audit, Kind};
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::store::limiter::Limiter;
use all::FromAll;

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;

/// Maximum of the parameter `limit`.
const MAX_LIMIT: usize = 1_000;

const NAMES: [&str; 10] =
    ["kind", "key", "ip", "rule", "since", "until", "at", "zone", "limit", "all"];

/// Their names elsewhere.
const SYNONYMS: [(&str, &str); 3] = [("from", "since"), ("to", "until"), ("key_id", "key")];

/// The refusal runs that match the query.
pub(super) async fn show(
    snapshot: &Snapshot,
    audit: &Audit,
    limiter: &Limiter,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read_with(query, &NAMES, &[], &SYNONYMS)?;
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit =
        limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
    let policy = &snapshot.policy;
    let ip = query.get("ip").map(|text| ShownAddress::parse(text, policy)).transpose();
    let now = clock::unix_us();
    let range = query.time_range(["since", "until"], now)?;
    let minute = query.minute("at", now)?;
    if minute.is_some() && (range.since.is_some() || range.until.is_some()) {
        return Err(bad("`at` is a minute; give it or `since` and `until`".to_owned()));
    }
    let TimeRange { since, until, zone } = minute.unwrap_or(range);
    let wanted = audit::Query {
        kinds: query.get("kind").map(kinds).transpose()?,
        key: query.get("key").map(str::to_owned),
        ip: ip.map_err(|error| bad(error.to_string()))?,
        rule: query.get("rule").map(str::to_owned),
        since,
        until,
        limit,
    };
    let unknown = unknown_name(policy, audit, &wanted);
    let history = match query.get("all") {
        None | Some("false") => None,
        Some("true") => Some(all::history(policy, limiter)?),
        Some(_) => return Err(bad("`all` must be `true` or `false`".to_owned())),
    };
    if let (Some(detail), None) = (&unknown, &history) {
        return Err(bad(detail.clone()));
    }
    let gateway = limiter.redis().map(|nodes| nodes.gateway());
    let mut own = audit.find(&wanted);
    own.runs.iter_mut().for_each(|run| run.gateway.clone_from(&gateway));
    let (dropped, kept_since) = (own.dropped, own.kept_since);
    let FromAll { runs, more, incomplete } = match history {
        None => FromAll { runs: own.runs, more: own.more, incomplete: None },
        Some(history) => all::merged(&history, &wanted, gateway.as_deref(), own).await,
    };
    if let (Some(detail), true) = (unknown, runs.is_empty()) {
        return Err(bad(detail));
    }
    Ok(Answer::json(&Refusals {
        refusal_runs: runs,
        more,
        dropped,
        kept_since,
        time_zone: time::zone_name(&zone, now),
        since: since.map(UtcTime),
        until: until.map(UtcTime),
        gateway,
        incomplete,
    }))
}

/// Parses a list of kinds, separated by commas.
fn kinds(text: &str) -> Result<Vec<Kind>, Box<Answer>> {
    let names = Kind::ALL.map(Kind::name);
    let kind = |name: &str| {
        let help = || suggest::help(name, &names);
        let unknown = || bad(format!("there is no kind `{}`: {}", cut(name, 64), help()));
        Kind::parse(name).ok_or_else(unknown)
    };
    text.split(',').map(|name| kind(name.trim())).collect()
}

/// Says that the key or the rule of the query is neither in the present file nor in the audit; else
/// the response to a misspelt name would look like that to a name without refusals. Refusals of
/// other gateways may have it: another file, or an earlier one.
fn unknown_name(policy: &Policy, audit: &Audit, query: &audit::Query) -> Option<String> {
    let every = audit::Query::default;
    let unknown = |kind: &str, name: &str, names: &[&str], wanted: audit::Query| {
        if names.contains(&name) || audit.find(&wanted).more > 0 {
            return None;
        }
        let help = suggest::help(name, names);
        Some(format!("the file has no {kind} `{}`: {help}", cut(name, 64)))
    };
    let key = query.key.as_ref().and_then(|key| {
        let names: Vec<_> = policy.keys.all().iter().map(|key| &*key.id).collect();
        unknown("key", key, &names, audit::Query { key: Some(key.clone()), ..every() })
    });
    key.or_else(|| {
        let rule = query.rule.as_ref()?;
        let names: Vec<_> = policy.rules.iter().map(|rule| &*rule.name).collect();
        unknown("rule", rule, &names, audit::Query { rule: Some(rule.clone()), ..every() })
    })
}

fn bad(detail: String) -> Box<Answer> {
    BadQuery(detail).into()
}
