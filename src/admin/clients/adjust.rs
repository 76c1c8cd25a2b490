//! `POST /api/clients/{kind}/{id}/reset` fills the buckets of a client, `…/grant` adds tokens to
//! them.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::buckets::{name, tokens};
use super::requested::RequestedClient;
use super::top_ups::{self, About, WantedTopUp};
use super::{levels, unknown};
use crate::admin::answer::Answer;
use crate::admin::members::{self, BadBody};
use crate::admin::{Arguments, Stores};
use crate::api::clients::Client;
use crate::base::clock;
use crate::base::text::cut;
use crate::decide::applicability::{Applicability, applicabilities};
use crate::limit::MAX_UNITS;
use crate::limit::adjust::Adjustment;
use crate::limit::charge::Charge;
use crate::policy::Policy;
use crate::runtime::Snapshot;
use crate::store::limiter::Source;
use crate::store::redis::batch::adjust::{LevelChange, NotAdjusted};

/// Response of a reset or a grant.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::admin) struct Adjusted {
    client: Client,
    /// Where the buckets are stored: `redis` or `local`.
    levels: Cow<'static, str>,
    buckets: Vec<ChangedBucket>,
    /// Rules that were skipped, because the values that identify their buckets were not given.
    left_out: Vec<LeftOut>,
    /// Id of the top-up, of a grant with `expires`.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_up: Option<String>,
    /// Whether a top-up with this id and these values was granted before, so that nothing is added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// A bucket that was changed, and its tokens before and after.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ChangedBucket {
    rule: String,
    /// Key of the bucket in Redis.
    bucket: String,
    burst: u64,
    /// Whole tokens before the change; negative if the bucket is in debt.
    from: i64,
    /// Whole tokens after the change; above `burst` after a grant with `above_limit`.
    to: i64,
}

/// A rule that was skipped, because its bucket could not be identified.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LeftOut {
    rule: String,
    /// The values of `per` that identify the bucket and were not given.
    unknown: Vec<String>,
}

/// Whether buckets are filled (reset), or tokens are added to them (grant).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum AdjustKind {
    Reset,
    Grant,
}

const RESET_EXAMPLE: &str = r#"{"rule": "per-key"}, or empty"#;

pub(super) const GRANT_EXAMPLE: &str =
    r#"{"rule": "per-key", "tokens": 100, "reason": "ticket 7"}; only `tokens` is required"#;

/// Largest length of a reason, in characters.
const MAX_REASON: usize = 200;

/// What the body of a call says.
struct Wanted {
    /// The only rule to change.
    rule: Option<String>,
    adjustment: Adjustment,
    /// Why, for the log.
    reason: Option<String>,
    top_up: Option<WantedTopUp>,
}

/// Levels of buckets before and after.
struct Moved {
    levels: Vec<LevelChange>,
    source: Source,
    /// See [`Adjusted::repeated`].
    is_repeated: bool,
}

/// Resets the client's buckets, or adds tokens to them.
pub(in crate::admin) async fn adjust(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    kind: AdjustKind,
    arguments: Arguments<'_>,
    by: &str,
) -> Result<Answer, Box<Answer>> {
    let Stores { limiter, usage, keys } = stores;
    let Arguments { parts, query, body, .. } = arguments;
    let policy = &snapshot.policy;
    let bad = |error: BadBody| Answer::refusal(StatusCode::BAD_REQUEST, &error.to_string());
    let Wanted { rule, adjustment, reason, top_up } = read(kind, body).map_err(bad)?;
    let requested = RequestedClient::read(policy, keys, parts, query).await?;
    let applicabilities = applicabilities(policy, &requested.subject());
    let chosen: Vec<&Applicability<'_>> = match &rule {
        Some(name) => vec![find_rule(&applicabilities, name)?],
        None => applicabilities.iter().filter(|one| one.own && one.charge.is_ok()).collect(),
    };
    let left_out = |applicability: &&Applicability<'_>| LeftOut {
        rule: applicability.rule.name.to_string(),
        unknown: unknown(applicability),
    };
    let left_out = chosen.iter().filter(|one| one.known().is_none()).map(left_out).collect();
    let charges: Vec<Charge> = chosen.iter().filter_map(|one| one.known()).collect();
    if let Adjustment::GrantAbove(_) = adjustment {
        require_period(policy, &charges)?;
    }
    let about = match (adjustment, &top_up) {
        (Adjustment::GrantAbove(tokens), Some(wanted)) => {
            Some((wanted, About::new(wanted, tokens, reason.as_deref(), by)))
        }
        _ => None,
    };
    let client = requested.view(policy);
    if charges.is_empty() {
        let buckets = Vec::new();
        let levels = if limiter.is_shared() { "redis" } else { "local" }.into();
        let (top_up, repeated) = (None, false);
        let answer = Adjusted { client, levels, buckets, left_out, top_up, repeated };
        return Ok(Answer::json(&answer));
    }
    let new = about.as_ref().map(|(wanted, about)| (*wanted, about));
    let moved = moved(snapshot, stores, &charges, adjustment, new).await?;
    if let Some(usage) = usage {
        let levels: Vec<i64> = moved.levels.iter().map(|(_, after)| *after).collect();
        let changed = (&charges[..], &levels[..]);
        usage.ledger().note_adjusted(policy, &requested.client, changed, clock::now());
    }
    let buckets: Vec<ChangedBucket> = charges
        .iter()
        .zip(moved.levels)
        .map(|(charge, moved)| ChangedBucket::of(policy, charge, moved))
        .collect();
    let repeated = moved.is_repeated;
    let until = top_up.as_ref().map_or(String::new(), |one| one.note(repeated));
    let note = log_note(&client, &buckets, &until, reason.as_deref());
    let (levels, top_up) = (levels(moved.source), top_up.map(|one| one.id));
    let answer = Adjusted { client, levels, buckets, left_out, top_up, repeated };
    // The path of an address has no key.
    let about = match parts {
        [kind, id] if kind == "key" => vec![id.clone()],
        _ => Vec::new(),
    };
    let tenant = requested.client.tenant.as_ref().map(|tenant| &*tenant.id);
    Ok(Answer::json(&answer).noting(note).about(about).of_tenants(tenant))
}

/// Adjusts the buckets of these charges, or adds a top-up to that of the first.
async fn moved(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    charges: &[Charge],
    adjustment: Adjustment,
    top_up: Option<(&WantedTopUp, &About)>,
) -> Result<Moved, Box<Answer>> {
    let limiter = stores.limiter;
    if let (Some((wanted, about)), Some(charge)) = (top_up, charges.first()) {
        let changed = top_ups::add(snapshot, stores, charge, about, wanted).await?;
        let source = if limiter.is_shared() { Source::Redis } else { Source::Local };
        let levels = vec![(changed.before, changed.after)];
        return Ok(Moved { levels, source, is_repeated: changed.repeated.is_some() });
    }
    let adjusted = limiter.adjust(charges, &snapshot.stored_rules, adjustment).await;
    let adjusted = adjusted.map_err(|error| refusal(&snapshot.policy, charges, error));
    adjusted.map(|(levels, source)| Moved { levels, source, is_repeated: false })
}

/// Reads the body.
fn read(kind: AdjustKind, body: &[u8]) -> Result<Wanted, BadBody> {
    let (names, example) = match kind {
        AdjustKind::Reset => (&["rule", "reason"][..], RESET_EXAMPLE),
        AdjustKind::Grant => {
            (&["rule", "tokens", "above_limit", "expires", "id", "reason"][..], GRANT_EXAMPLE)
        }
    };
    let members = members::read(body, names, example)?;
    let rule = match members.get("rule") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err(BadBody::new("`rule` is not a string", example)),
    };
    let reason = match members.get("reason") {
        None => None,
        Some(Value::String(text)) if text.chars().count() <= MAX_REASON => Some(text.clone()),
        Some(_) => {
            let message = format!("`reason` must be a string of at most {MAX_REASON} characters");
            return Err(BadBody::new(message, example));
        }
    };
    if kind == AdjustKind::Reset {
        return Ok(Wanted { rule, adjustment: Adjustment::Reset, reason, top_up: None });
    }
    let top_up = top_ups::read(&members)?;
    let is_above = match members.get("above_limit") {
        None => top_up.is_some(),
        Some(Value::Bool(is_above)) => *is_above,
        Some(_) => return Err(BadBody::new("`above_limit` is not a boolean", example)),
    };
    if is_above && rule.is_none() {
        let message = "`above_limit` and `expires` need the name of a `rule`";
        return Err(BadBody::new(message, example));
    }
    if top_up.is_some() && !is_above {
        let message = "`expires` is for tokens above the limit: take `above_limit` out";
        return Err(BadBody::new(message, example));
    }
    let most = MAX_UNITS.unsigned_abs();
    match members.get("tokens").and_then(Value::as_u64) {
        Some(tokens) if (1..=most).contains(&tokens) => {
            let adjustment =
                if is_above { Adjustment::GrantAbove(tokens) } else { Adjustment::Grant(tokens) };
            Ok(Wanted { rule, adjustment, reason, top_up })
        }
        _ => {
            let message = format!("`tokens` must be a whole number from 1 to {most}");
            Err(BadBody::new(message, example))
        }
    }
}

/// Refuses a grant above a limit without periods: what is above it would refill, or never end.
fn require_period(policy: &Policy, charges: &[Charge]) -> Result<(), Box<Answer>> {
    let other = charges.iter().find(|charge| charge.limit.highest() <= charge.limit.full());
    let Some(rule) = other.and_then(|charge| policy.rules.get(charge.rule as usize)) else {
        return Ok(());
    };
    let detail = format!(
        "`above_limit` is for rules with kind = \"fixed_window\", whose period ends what is granted; `{}` is a {}",
        cut(&rule.name, 64),
        rule.kind.name()
    );
    Err(Answer::refusal(StatusCode::CONFLICT, &detail))
}

/// The rule of that name, if it has a known bucket for the client.
pub(super) fn find_rule<'a, 'b>(
    applicabilities: &'b [Applicability<'a>],
    name: &str,
) -> Result<&'b Applicability<'a>, Box<Answer>> {
    let shown = cut(name, 64);
    let found = applicabilities.iter().find(|applicability| &*applicability.rule.name == name);
    let Some(applicability) = found else {
        let detail = format!("the file has no rule `{shown}`");
        return Err(Answer::refusal(StatusCode::BAD_REQUEST, &detail));
    };
    let conflict = |detail: &str| Err(Answer::refusal(StatusCode::CONFLICT, detail));
    if applicability.charge.is_err() {
        return conflict(&format!("the rule `{shown}` does not apply to this client"));
    }
    match unknown(applicability).as_slice() {
        [] => Ok(applicability),
        unknown => {
            let unknown = unknown.join(", ");
            conflict(&format!("the rule `{shown}` counts by values that were not given: {unknown}"))
        }
    }
}

/// The response to a failed adjustment.
pub(super) fn refusal(policy: &Policy, charges: &[Charge], error: NotAdjusted) -> Box<Answer> {
    let unavailable = |done: &str, detail: &str| {
        let mut members = Map::new();
        members.insert("done".to_owned(), json!(done));
        Box::new(Answer::problem_with(StatusCode::SERVICE_UNAVAILABLE, detail, members))
    };
    match error {
        NotAdjusted::Unchanged => unavailable("no", "Redis is unavailable; nothing was changed"),
        NotAdjusted::Unknown => {
            unavailable("unknown", "Redis did not respond; it may or may not have made the change")
        }
        NotAdjusted::Unreadable(index) => {
            let rule = charges.get(index).and_then(|one| policy.rules.get(one.rule as usize));
            let name = rule.map_or("", |rule| &rule.name);
            let detail = format!(
                "the key of the bucket of `{name}` in Redis holds another value; nothing was changed"
            );
            Answer::refusal(StatusCode::CONFLICT, &detail)
        }
    }
}

impl ChangedBucket {
    fn of(policy: &Policy, charge: &Charge, (before, after): LevelChange) -> Self {
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

/// The changes, and why they were made, for the log.
fn log_note(
    client: &Client,
    buckets: &[ChangedBucket],
    until: &str,
    reason: Option<&str>,
) -> String {
    let each = buckets.iter().map(|bucket| {
        let ChangedBucket { rule, from, to, .. } = bucket;
        format!("{rule}: {from} -> {to}")
    });
    let moved = each.collect::<Vec<_>>().join(", ");
    let why = reason.map_or(String::new(), |reason| format!(" ({reason:?})"));
    format!("{} {}: {moved}{until}{why}", client.kind, client.id)
}
