//! `/api/bans`: lists, begins, extends and lifts bans.

use http::StatusCode;
use serde_json::{Map, Value};

use super::adjust::find_rule;
use super::requested::RequestedClient;
use crate::admin::answer::Answer;
use crate::admin::members::{self, BadBody};
use crate::admin::query::{BadQuery, Query};
use crate::admin::{Arguments, Stores};
use crate::api::bans::{Ban, Bans, Lifted};
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::base::{clock, period};
use crate::decide::applicability::applicabilities;
use crate::limit::ban::BanRule;
use crate::limit::charge::{BucketId, Mode};
use crate::policy::{Policy, Rule};
use crate::runtime::Snapshot;
use crate::store::bans::about::About;
use crate::store::bans::{self, script};

/// Default and maximum of the parameter `limit`.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// Largest length of a reason, in characters.
const MAX_REASON: usize = 200;

/// Longest ban by an operator, in milliseconds.
const MAX_MS: u64 = 30 * 86_400_000;

const EXAMPLE: &str =
    r#"{"rule": "per-ip", "ip": "203.0.113.7", "for": "1h", "reason": "ticket 7"}"#;

/// Parameters that select the request whose bucket is banned, as for other calls about a client.
const REQUEST: [&str; 5] = ["path", "method", "host", "route", "header"];

/// Which bans a call is about.
struct Filter<'a> {
    rule: Option<&'a str>,
    client: Option<(&'static str, String)>,
    /// The tenant that the caller is limited to.
    tenant: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn read(
        policy: &Policy,
        query: &'a Query,
        tenant: Option<&'a str>,
    ) -> Result<Self, Box<Answer>> {
        let mut clients = Vec::new();
        for kind in ["key", "token", "tenant"] {
            clients.extend(query.get(kind).map(|id| (kind, id.to_owned())));
        }
        if let Some(ip) = query.get("ip") {
            clients.push(("ip", super::requested::counted(ip, policy)?));
        }
        if clients.len() > 1 {
            return Err(bad("give one of `key`, `token`, `tenant` and `ip`"));
        }
        Ok(Self { rule: query.get("rule"), client: clients.pop(), tenant })
    }

    fn includes(&self, policy: &Policy, ban: &bans::Ban) -> bool {
        let about = &ban.about;
        has_bans(policy, &about.rule)
            && self.rule.is_none_or(|rule| rule == about.rule)
            && self.tenant.is_none_or(|tenant| about.tenant.as_deref() == Some(tenant))
            && self.client.as_ref().is_none_or(|(kind, id)| about.kind == *kind && about.id == *id)
    }
}

/// Lists the bans in force. `tenant` is the one that the caller is limited to.
pub(in crate::admin) fn list(
    snapshot: &Snapshot,
    bans: &bans::Bans,
    query: Option<&str>,
    tenant: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let names = ["rule", "key", "token", "tenant", "ip", "cursor", "limit"];
    let query = Query::read(query, &names, &[])?;
    let limit = query.get("limit").map_or(Ok(DEFAULT_LIMIT), str::parse);
    let limit = limit.ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
    let limit =
        limit.ok_or_else(|| bad(&format!("`limit` must be a number from 1 to {MAX_LIMIT}")))?;
    let cursor = query.get("cursor").map(|id| script::bucket(id).ok_or_else(no_id)).transpose()?;
    let filter = Filter::read(&snapshot.policy, &query, tenant)?;
    let now = clock::now();
    let mut found = bans.list(cursor, limit + 1, now, |ban| filter.includes(&snapshot.policy, ban));
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|last| script::id(last.bucket));
    Ok(Answer::json(&Bans { bans: found.iter().map(Ban::of).collect(), next }))
}

/// Lifts bans: the one of an id, or those of a client.
pub(in crate::admin) fn lift(
    snapshot: &Snapshot,
    bans: &bans::Bans,
    query: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let query = Query::read(query, &["id", "rule", "key", "token", "tenant", "ip"], &[])?;
    let policy = &snapshot.policy;
    let filter = Filter::read(policy, &query, None)?;
    let now = clock::now();
    let buckets = match query.get("id") {
        Some(_) if filter.client.is_some() || filter.rule.is_some() => {
            return Err(bad("give an `id`, or a client"));
        }
        Some(id) => vec![script::bucket(id).ok_or_else(no_id)?],
        None if filter.client.is_none() => {
            return Err(bad("give an `id`, or a client: `key`, `token`, `tenant` or `ip`"));
        }
        None => {
            let found = bans.list(None, bans::MAX_CLIENTS, now, |ban| filter.includes(policy, ban));
            found.into_iter().map(|ban| ban.bucket).collect()
        }
    };
    let lifted = buckets.into_iter().filter_map(|bucket| bans.lift(bucket, now));
    let lifted: Vec<bans::Ban> = lifted.collect();
    if lifted.is_empty() {
        return Err(Answer::refusal(StatusCode::NOT_FOUND, "there is no such ban"));
    }
    let each =
        lifted.iter().map(|ban| format!("{} {}: {}", ban.about.kind, ban.about.id, ban.about.rule));
    let note = format!("lifted bans: {}", each.collect::<Vec<_>>().join(", "));
    let keys = lifted.iter().filter(|ban| ban.about.kind == "key").map(|ban| ban.about.id.clone());
    let about = keys.collect();
    let answer = Lifted { lifted: lifted.iter().map(Ban::of).collect() };
    let tenants = lifted.iter().filter_map(|ban| ban.about.tenant_id());
    Ok(Answer::json(&answer).noting(cut(&note, 500)).about(about).of_tenants(tenants))
}

/// Bans a client, or sets the end of its ban. `by` is the caller.
pub(in crate::admin) async fn begin(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    arguments: Arguments<'_>,
    by: &str,
) -> Result<Answer, Box<Answer>> {
    let names = ["id", "rule", "key", "ip", "tenant", "for", "reason"];
    let refused = |error: BadBody| Answer::refusal(StatusCode::BAD_REQUEST, &error.to_string());
    let members = members::read(arguments.body, &names, EXAMPLE).map_err(refused)?;
    let reason = text(&members, "reason").map_err(refused)?;
    if reason.is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        return Err(bad(&format!("`reason` has at most {MAX_REASON} characters")));
    }
    let length = text(&members, "for").map_err(refused)?.map(length_ms).transpose()?;
    let found = match text(&members, "id").map_err(refused)? {
        Some(id) => of_id(snapshot, stores, id)?,
        None => of_client(snapshot, stores, arguments, &members).await?,
    };
    let (bucket, rule, about) = found;
    let for_us = length.map_or(rule.for_us, |ms| ms * 1_000);
    let about = About { by: Some(by.to_owned()), reason: reason.map(str::to_owned), ..about };
    let tenant = about.tenant_id().map(str::to_owned);
    let (bans, now) = (stores.limiter.bans(), clock::now());
    bans.set(bucket, &rule, about, for_us, now);
    let missing = || Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, "there are too many bans");
    let ban = Ban::of(&bans.get(bucket, now).ok_or_else(missing)?);
    let why = reason.map_or(String::new(), |reason| format!(" ({reason:?})"));
    let note =
        format!("banned {} {}: {} for {} ms{why}", ban.kind, ban.client, ban.rule, ban.left_ms);
    let clients = if ban.kind == "key" { vec![ban.client.clone()] } else { Vec::new() };
    Ok(Answer::json(&ban).noting(note).about(clients).of_tenants(tenant.as_deref()))
}

/// The bucket of a ban in force, the setting of its rule, and its client.
fn of_id(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    id: &str,
) -> Result<(BucketId, BanRule, About), Box<Answer>> {
    let bucket = script::bucket(id).ok_or_else(no_id)?;
    let ban = stores.limiter.bans().get(bucket, clock::now());
    let none = || Answer::refusal(StatusCode::NOT_FOUND, "there is no such ban");
    let ban = ban.ok_or_else(none)?;
    let rule = rule(&snapshot.policy, &ban.about.rule).ok_or_else(none)?;
    Ok((bucket, rule.ban.ok_or_else(none)?, (*ban.about).clone()))
}

/// The bucket of a client under a rule, the setting of the rule, and the client.
async fn of_client(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    arguments: Arguments<'_>,
    members: &Map<String, Value>,
) -> Result<(BucketId, BanRule, About), Box<Answer>> {
    let policy = &snapshot.policy;
    let refused = |error: BadBody| Answer::refusal(StatusCode::BAD_REQUEST, &error.to_string());
    let Some(name) = text(members, "rule").map_err(refused)? else {
        return Err(refused(BadBody::new("`rule` is missing", EXAMPLE)));
    };
    let mut clients = Vec::new();
    for kind in ["key", "ip", "tenant"] {
        clients.extend(text(members, kind).map_err(refused)?.map(|id| (kind, id)));
    }
    let [(kind, id)] = clients.as_slice() else {
        return Err(refused(BadBody::new("one of `key`, `ip` and `tenant` is needed", EXAMPLE)));
    };
    Query::read(arguments.query, &REQUEST, &["header"])?;
    let parts = [(*kind).to_owned(), (*id).to_owned()];
    let requested = RequestedClient::read(policy, stores.keys, &parts, arguments.query).await?;
    let applicabilities = applicabilities(policy, &requested.subject());
    let found = find_rule(&applicabilities, name)?;
    let (Some(charge), Some(ban)) = (found.known(), found.rule.ban) else {
        let detail = format!("the rule `{}` has no `ban`", cut(name, 64));
        return Err(Answer::refusal(StatusCode::CONFLICT, &detail));
    };
    if charge.mode == Mode::Shadow {
        let detail = format!("the rule `{}` refuses no request of this client", cut(name, 64));
        return Err(Answer::refusal(StatusCode::CONFLICT, &detail));
    }
    Ok((charge.bucket, ban, About::of(policy, found.rule, &requested.client)))
}

fn rule<'a>(policy: &'a Policy, name: &str) -> Option<&'a Rule> {
    policy.rules.iter().find(|rule| *rule.name == *name && rule.enabled)
}

fn has_bans(policy: &Policy, name: &str) -> bool {
    rule(policy, name).is_some_and(|rule| rule.ban.is_some())
}

/// A member that is a text.
fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, BadBody> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(BadBody::new(format!("`{name}` must be a string"), EXAMPLE)),
    }
}

/// The length of a ban in milliseconds.
fn length_ms(text: &str) -> Result<u64, Box<Answer>> {
    let length = period::milliseconds(text).ok().filter(|ms| (1_000..=MAX_MS).contains(ms));
    length.ok_or_else(|| bad("`for` is a duration such as `1h`, from `1s` to `30d`"))
}

fn no_id() -> Box<Answer> {
    bad("the id of a ban has 32 hexadecimal digits: `GET /api/bans` lists them")
}

fn bad(detail: &str) -> Box<Answer> {
    BadQuery(detail.to_owned()).into()
}

impl Ban {
    fn of(ban: &bans::Ban) -> Self {
        let about = &ban.about;
        Self {
            id: script::id(ban.bucket),
            rule: about.rule.clone(),
            kind: about.kind.clone().into(),
            client: about.id.clone(),
            tenant: about.tenant.clone(),
            until: UtcTime(clock::unix_us().saturating_add(ban.left_us)),
            left_ms: ban.left_us.div_ceil(1_000),
            number: ban.number,
            by: about.by.clone(),
            reason: about.reason.clone(),
        }
    }
}
