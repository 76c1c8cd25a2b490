//! `POST /api/clients/{kind}/{id}/reset` and `…/grant`: a full bucket, or tokens for one.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::buckets::{name, tokens};
use super::who::Who;
use super::{Client, levels, unknown};
use crate::admin::answer::Answer;
use crate::admin::members::{self, BadBody};
use crate::config::suggest::cut;
use crate::decide::meetings::{Meeting, meetings};
use crate::limit::MAX_UNITS;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::Charge;
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::store::limiter::Limiter;
use crate::store::redis::batch::adjust::{Moved, NotAdjusted};

/// The answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::admin) struct Adjusted {
    client: Client,
    /// Where the buckets are: `redis` or `local`.
    levels: &'static str,
    buckets: Vec<Changed>,
    /// Rules whose buckets something unknown names.
    left_out: Vec<LeftOut>,
}

/// A bucket that was changed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Changed {
    rule: String,
    /// The bucket's key, as it stands in Redis.
    bucket: String,
    burst: u64,
    /// Whole tokens before; below zero: a debt.
    from: i64,
    /// Whole tokens afterwards.
    to: i64,
}

/// A rule that was passed over.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftOut {
    rule: String,
    /// What names its bucket and was not said.
    unknown: Vec<String>,
}

/// What is to be done, and how a body looks that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum Wanted {
    Reset,
    Grant,
}

const RESET: &str = r#"{"rule": "per-key"}, or nothing"#;

const GRANT: &str = r#"{"rule": "per-key", "tokens": 100}; `rule` may be left out"#;

/// Changes the client's buckets.
pub(in crate::admin) async fn adjust(
    snapshot: &Snapshot,
    limiter: &Limiter,
    parts: &[String],
    query: Option<&str>,
    (wanted, body): (Wanted, &[u8]),
) -> Result<Answer, Box<Answer>> {
    let policy = &snapshot.policy;
    let bad = |error: BadBody| Answer::refusal(StatusCode::BAD_REQUEST, &error.to_string());
    let (rule, adjustment) = read(wanted, body).map_err(bad)?;
    let who = Who::read(policy, parts, query)?;
    let meetings = meetings(policy, &who.subject());
    let chosen: Vec<&Meeting<'_>> = match &rule {
        Some(name) => vec![one(&meetings, name)?],
        None => meetings.iter().filter(|one| one.own && one.charge.is_ok()).collect(),
    };
    let left_out = |meeting: &&Meeting<'_>| LeftOut {
        rule: meeting.rule.name.to_string(),
        unknown: unknown(meeting),
    };
    let left_out = chosen.iter().filter(|one| one.known().is_none()).map(left_out).collect();
    let charges: Vec<Charge> = chosen.iter().filter_map(|one| one.known()).collect();
    let client = who.told(policy);
    if charges.is_empty() {
        let buckets = Vec::new();
        let levels = if limiter.is_shared() { "redis" } else { "local" };
        return Ok(Answer::json(&Adjusted { client, levels, buckets, left_out }));
    }
    let adjusted = limiter.adjust(&charges, &snapshot.rule_names, adjustment).await;
    let (moved, source) = adjusted.map_err(|error| refusal(policy, &charges, error))?;
    let buckets: Vec<Changed> = charges
        .iter()
        .zip(moved)
        .map(|(charge, moved)| Changed::of(policy, charge, moved))
        .collect();
    let note = noted(&client, &buckets);
    let answer = Adjusted { client, levels: levels(source), buckets, left_out };
    Ok(Answer::json(&answer).noting(note))
}

/// The rule that the body names, and what is to be done to its bucket.
fn read(wanted: Wanted, body: &[u8]) -> Result<(Option<String>, Adjustment), BadBody> {
    let (names, example) = match wanted {
        Wanted::Reset => (&["rule"][..], RESET),
        Wanted::Grant => (&["rule", "tokens"][..], GRANT),
    };
    let members = members::read(body, names, example)?;
    let rule = match members.get("rule") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err(BadBody::new("`rule` is not a string", example)),
    };
    if wanted == Wanted::Reset {
        return Ok((rule, Adjustment::Reset));
    }
    let most = MAX_UNITS.unsigned_abs();
    match members.get("tokens").and_then(Value::as_u64) {
        Some(tokens) if (1..=most).contains(&tokens) => Ok((rule, Adjustment::Grant(tokens))),
        _ => {
            let message = format!("`tokens` is a whole number from 1 to {most}");
            Err(BadBody::new(message, example))
        }
    }
}

/// The rule of that name, where it has a bucket for the client.
fn one<'a, 'b>(meetings: &'b [Meeting<'a>], name: &str) -> Result<&'b Meeting<'a>, Box<Answer>> {
    let shown = cut(name, 64);
    let found = meetings.iter().find(|meeting| &*meeting.rule.name == name);
    let Some(meeting) = found else {
        let detail = format!("the file has no rule `{shown}`");
        return Err(Answer::refusal(StatusCode::BAD_REQUEST, &detail));
    };
    let conflict = |detail: &str| Err(Answer::refusal(StatusCode::CONFLICT, detail));
    if meeting.charge.is_err() {
        return conflict(&format!("the rule `{shown}` does not apply to this client"));
    }
    match unknown(meeting).as_slice() {
        [] => Ok(meeting),
        unknown => {
            let unknown = unknown.join(", ");
            conflict(&format!("the rule `{shown}` counts by what was not said: {unknown}"))
        }
    }
}

/// Why nothing was done, or why that is not known.
fn refusal(policy: &Policy, charges: &[Charge], error: NotAdjusted) -> Box<Answer> {
    let unavailable = |done: &str, detail: &str| {
        let mut members = Map::new();
        members.insert("done".to_owned(), json!(done));
        Box::new(Answer::problem_with(StatusCode::SERVICE_UNAVAILABLE, detail, members))
    };
    match error {
        NotAdjusted::NotAsked => unavailable("no", "Redis cannot be asked; nothing was changed"),
        NotAdjusted::Unknown => {
            unavailable("unknown", "Redis did not answer; it may have made the change, or not")
        }
        NotAdjusted::Unreadable(index) => {
            let rule = charges.get(index).and_then(|one| policy.rules.get(one.rule as usize));
            let name = rule.map_or("", |rule| &rule.name);
            let detail = format!(
                "something else stands in Redis in the place of the bucket of `{name}`; nothing \
                 was changed"
            );
            Answer::refusal(StatusCode::CONFLICT, &detail)
        }
    }
}

impl Changed {
    fn of(policy: &Policy, charge: &Charge, (before, after): Moved) -> Self {
        let rule = policy.rules.get(charge.rule as usize);
        Self {
            rule: rule.map_or_else(String::new, |rule| rule.name.to_string()),
            bucket: rule.map_or_else(String::new, |rule| name(policy, rule, charge)),
            burst: charge.limit.capacity(),
            from: tokens(charge, before),
            to: tokens(charge, after),
        }
    }
}

/// What was changed, for the log.
fn noted(client: &Client, buckets: &[Changed]) -> String {
    let each = buckets.iter().map(|bucket| {
        let Changed { rule, from, to, .. } = bucket;
        format!("{rule}: {from} -> {to}")
    });
    let moved = each.collect::<Vec<_>>().join(", ");
    format!("{} {}: {moved}", client.kind, client.id)
}
