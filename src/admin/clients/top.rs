//! `GET /api/clients`: who asks most of each rule, or is refused most.

use std::cmp::Reverse;

use serde::Serialize;

use crate::admin::answer::Answer;
use crate::admin::query::{BadQuery, Query};
use crate::clock;
use crate::config::suggest::cut;
use crate::observe::consumption::{Counted, Merged, Who};
use crate::policy::Policy;
use crate::policy::client::counted_as;
use crate::runtime::Snapshot;

/// How many clients of a rule are listed, unless the query says otherwise.
const LIMIT: usize = 20;

/// How many it may ask for.
const MOST: usize = 100;

/// The answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::admin) struct Top {
    /// What they are sorted by: `requests` or `refused`.
    by: &'static str,
    /// Milliseconds that the counts span.
    since_ms: u64,
    /// How often rules were asked, all clients together.
    counted: u64,
    /// The most that a count is too high by, and that somebody has come who is not listed.
    error_at_most: u64,
    rules: Vec<TopOfRule>,
}

/// One rule.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TopOfRule {
    rule: String,
    clients: Vec<TopClient>,
}

/// One client.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TopClient {
    /// `key`, `ip` or `unknown_key`.
    kind: &'static str,
    id: String,
    /// How often the rule was asked about it; never too low.
    requests: u64,
    /// How often it lacked the tokens; never too low.
    refused: u64,
    /// By how much the number that is sorted by may be too high.
    error: u64,
}

/// What is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Requests,
    Refused,
}

/// Who asks most, as the query wants it.
pub(in crate::admin) fn show(
    snapshot: &Snapshot,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read(query, &["rule", "by", "limit"], &[])?;
    let bad = |detail: String| Box::<Answer>::from(BadQuery(detail));
    let by = match query.get("by") {
        None | Some("requests") => By::Requests,
        Some("refused") => By::Refused,
        Some(_) => return Err(bad("`by` is `requests` or `refused`".to_owned())),
    };
    let limit = query.get("limit").map_or(Ok(LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MOST).contains(limit));
    let limit = limit.ok_or_else(|| bad(format!("`limit` is a number from 1 to {MOST}")))?;
    let policy = &snapshot.policy;
    let wanted = query.get("rule");
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    if let (Some(name), false) = (wanted, policy.rules.iter().any(|rule| is_wanted(&rule.name))) {
        return Err(bad(format!("the file has no rule `{}`", cut(name, 64))));
    }
    let merged = snapshot.consumption.merged(clock::now());
    let rules = (0..).zip(&policy.rules).filter(|(_, rule)| is_wanted(&rule.name));
    let rules = rules.map(|(index, rule)| TopOfRule {
        rule: rule.name.to_string(),
        clients: top(policy, &merged, index, by, limit),
    });
    Ok(Answer::json(&Top {
        by: match by {
            By::Requests => "requests",
            By::Refused => "refused",
        },
        since_ms: merged.span / 1_000,
        counted: merged.total,
        error_at_most: merged.error_at_most,
        rules: rules.collect(),
    }))
}

fn top(policy: &Policy, merged: &Merged, rule: u32, by: By, limit: usize) -> Vec<TopClient> {
    let key = |counted: &Counted| match by {
        By::Requests => (counted.requests, counted.requests_error),
        By::Refused => (counted.refused, counted.refused_error),
    };
    let of_rule = merged.counted.iter().filter(|counted| counted.item.rule == rule);
    let mut found: Vec<&Counted> = of_rule.filter(|counted| key(counted).0 > 0).collect();
    found.sort_by_cached_key(|counted| (Reverse(key(counted).0), told(policy, counted.item.who)));
    let client = |counted: &Counted| {
        let (kind, id) = told(policy, counted.item.who);
        let Counted { requests, refused, .. } = *counted;
        TopClient { kind, id, requests, refused, error: key(counted).1 }
    };
    found.into_iter().take(limit).map(client).collect()
}

/// A client as it is told: never by a key itself.
fn told(policy: &Policy, who: Who) -> (&'static str, String) {
    match who {
        Who::Key(key) => {
            let key = policy.keys.get(key as usize);
            ("key", key.map_or_else(String::new, |key| key.id.to_string()))
        }
        Who::UnknownKey(beginning) => ("unknown_key", format!("{beginning:016x}")),
        Who::Ip(ip) => ("ip", counted_as(ip, policy.clients.ipv6_prefix)),
    }
}
