//! `GET /api/clients`: the clients with the most requests or refusals of each rule.

use std::cmp::Reverse;

use crate::admin::answer::Answer;
use crate::admin::query::{BadQuery, Query};
use crate::api::clients::{Top, TopClient, TopOfRule};
use crate::base::clock;
use crate::base::text::cut;
use crate::observe::consumption::{Counted, Merged};
use crate::policy::Policy;
use crate::runtime::Snapshot;

/// Default of the parameter `limit`.
const DEFAULT_LIMIT: usize = 20;

/// Maximum of the parameter `limit`.
const MAX_LIMIT: usize = 100;

/// Sort order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SortBy {
    Requests,
    Refused,
}

/// Lists the clients with the most requests or refusals.
pub(in crate::admin) fn show(
    snapshot: &Snapshot,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read(query, &["rule", "by", "limit"], &[])?;
    let bad = |detail: String| Box::<Answer>::from(BadQuery(detail));
    let by = match query.get("by") {
        None | Some("requests") => SortBy::Requests,
        Some("refused") => SortBy::Refused,
        Some(_) => return Err(bad("`by` must be `requests` or `refused`".to_owned())),
    };
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit =
        limit.ok_or_else(|| bad(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
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
            SortBy::Requests => "requests".into(),
            SortBy::Refused => "refused".into(),
        },
        since_ms: merged.span / 1_000,
        counted: merged.total,
        error_at_most: merged.error_at_most,
        rules: rules.collect(),
    }))
}

fn top(policy: &Policy, merged: &Merged, rule: u32, by: SortBy, limit: usize) -> Vec<TopClient> {
    let key = |counted: &Counted| match by {
        SortBy::Requests => (counted.requests, counted.requests_error),
        SortBy::Refused => (counted.refused, counted.refused_error),
    };
    let of_rule = merged.counted.iter().filter(|counted| counted.item.rule == rule);
    let mut found: Vec<&Counted> = of_rule.filter(|counted| key(counted).0 > 0).collect();
    found.sort_by_cached_key(|counted| (Reverse(key(counted).0), counted.shown(policy)));
    let client = |counted: &Counted| {
        let (kind, id) = counted.shown(policy);
        let Counted { requests, refused, .. } = *counted;
        TopClient { kind: kind.into(), id, requests, refused, error: key(counted).1 }
    };
    found.into_iter().take(limit).map(client).collect()
}
