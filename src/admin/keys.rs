//! `/api/keys`: the clients of the key store, and their API keys.
//!
//! Reading order: this file (calls about one client), `list`, `import`.

mod import;
mod list;

use http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::Arguments;
use super::answer::Answer;
use crate::api::keys::{ClientChange, IssuedKey, NewClient, RemovedClient, Rotation, StoredClient};
use crate::base::clock;
use crate::base::period;
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::config::suggest;
use crate::keys::edit::{self, Change, NewRecord, NewSecret};
use crate::keys::kept::{Damage, KeptError, Replaced, Replacement, Stored};
use crate::keys::record::{Override, Record, Secret};
use crate::keys::secret::NewKey;
use crate::keys::store::KeyStore;
use crate::policy::Policy;
use crate::policy::build::stored_grant;

/// Default of `overlap`.
const DEFAULT_OVERLAP: &str = "24h";

/// Maximum of `overlap`.
const MAX_OVERLAP: &str = "3660d";

/// How often a change is tried again that another one has overtaken.
const TRIES: usize = 5;

/// The key store in which a call reads and writes.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    store: &'a KeyStore,
    policy: &'a Policy,
    /// The tenant that the caller is limited to: it sees the clients of that one only.
    tenant: Option<&'a str>,
}

/// What a call does with one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyCall {
    Show,
    Patch,
    Remove,
    Rotate,
    Disable,
    Enable,
}

/// What a call makes of a record.
struct Edited {
    /// `None`: it is removed.
    after: Option<Record>,
    /// A new API key.
    key: Option<String>,
    note: String,
}

impl<'a> Keys<'a> {
    /// The key store.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(
        store: Option<&'a KeyStore>,
        policy: &'a Policy,
        tenant: Option<&'a str>,
    ) -> Result<Self, Box<Answer>> {
        let detail = "the file has no [key_store]: its clients are those of [keys]";
        let store = store.ok_or_else(|| Answer::refusal(StatusCode::CONFLICT, detail))?;
        Ok(Self { store, policy, tenant })
    }

    /// Creates a client.
    pub(super) async fn create(self, body: &[u8]) -> Result<Answer, Box<Answer>> {
        let new: NewClient = parse(body)?;
        let (record, key) = self.new_record(new, clock::unix_us())?;
        let id = record.id.clone();
        let before = self.get(&id).await?;
        if let Some(before) = before {
            return match before.record {
                Ok(before)
                    if key.is_none() && self.sees(&before) && before.is_same_client(&record) =>
                {
                    Ok(shown(&before, None))
                }
                _ => Err(self.id_is_taken(&id, "the key store has a client")),
            };
        }
        let replacement = Replacement { id: id.clone(), before: None, after: Some(record.clone()) };
        match self.replace(replacement).await? {
            Replaced::Done => {}
            Replaced::Changed => {
                return Err(self.id_is_taken(&id, "another call has just created a client"));
            }
            Replaced::KeyOfAnother => return Err(key_of_another()),
        }
        let issued = IssuedKey { key, client: StoredClient::of(&record) };
        Ok(Answer::json_with(StatusCode::CREATED, &issued)
            .with_header(header::LOCATION, &format!("/api/keys/{id}"))
            .with_header(header::ETAG, &tag(&record))
            .noting(format!("client {id} created with the plan {}", record.plan))
            .of_tenants(record.tenant.as_deref())
            .about(vec![id]))
    }

    /// Shows or changes one client.
    pub(super) async fn of_client(
        self,
        call: KeyCall,
        arguments: Arguments<'_>,
    ) -> Result<Answer, Box<Answer>> {
        let id = arguments.parts.first().map_or("", String::as_str);
        for _ in 0..TRIES {
            let stored = self.get(id).await?.filter(|stored| self.sees_stored(stored));
            let stored = stored.ok_or_else(|| no_client(id))?;
            let record = match &stored.record {
                Ok(record) => record.clone(),
                Err(_) if call == KeyCall::Remove && arguments.if_match.is_none() => {
                    return self.remove_damaged(stored).await;
                }
                Err(damage) => return Err(damaged(&stored.id, damage)),
            };
            if !matches(arguments.if_match, &record) {
                let detail = "the client has been changed: its version is not that of If-Match";
                return Err(Answer::refusal(StatusCode::PRECONDITION_FAILED, detail));
            }
            if call == KeyCall::Show {
                return self.show(&record).await;
            }
            let Edited { after, key, note } = self.edit(call, &record, arguments.body)?;
            let shown = match &after {
                Some(after) => shown(after, key),
                None => Answer::json(&RemovedClient { id: record.id, was_readable: true }),
            };
            let replacement = Replacement { id: id.to_owned(), before: Some(stored), after };
            let tenants = tenants_of(&replacement);
            let shown = shown.noting(note).about(vec![id.to_owned()]);
            let shown = shown.of_tenants(tenants.iter().map(String::as_str));
            match self.replace(replacement).await? {
                Replaced::Done => return Ok(shown),
                Replaced::Changed => {}
                Replaced::KeyOfAnother => return Err(key_of_another()),
            }
        }
        Err(overtaken())
    }

    /// The response with a client, and when it was last used.
    async fn show(self, record: &Record) -> Result<Answer, Box<Answer>> {
        let used =
            self.store.kept.last_uses(&[&record.id]).await.map_err(|error| unread(&error))?;
        let last_used = used.first().copied().flatten().map(UtcTime);
        let client = StoredClient { last_used, ..StoredClient::of(record) };
        Ok(Answer::json(&client).with_header(header::ETAG, &tag(record)))
    }

    /// Removes a client whose record cannot be read.
    async fn remove_damaged(self, stored: Stored) -> Result<Answer, Box<Answer>> {
        let id = stored.id.clone();
        let note = format!("client {id} removed, whose record could not be read");
        let one = Replacement { id: id.clone(), before: Some(stored), after: None };
        match self.replace(one).await? {
            Replaced::Done => {
                let removed = RemovedClient { id: id.clone(), was_readable: false };
                Ok(Answer::json(&removed).noting(note).about(vec![id]))
            }
            Replaced::Changed | Replaced::KeyOfAnother => Err(overtaken()),
        }
    }

    fn edit(self, call: KeyCall, record: &Record, body: &[u8]) -> Result<Edited, Box<Answer>> {
        let now_us = clock::unix_us();
        let id = &record.id;
        let enable = |enabled| {
            edit::changed(record, Change { enabled: Some(enabled), ..Change::default() }, now_us)
        };
        let (after, key, note) = match call {
            KeyCall::Show => (Some(record.clone()), None, String::new()),
            KeyCall::Remove => (None, None, format!("client {id} removed")),
            KeyCall::Disable => (Some(enable(false)), None, format!("client {id} disabled")),
            KeyCall::Enable => (Some(enable(true)), None, format!("client {id} enabled")),
            KeyCall::Patch => {
                let change: ClientChange = parse(body)?;
                let is_limited = change.plan.is_some()
                    || change.tenant.is_some()
                    || !change.overrides.is_empty();
                if self.tenant.is_some() && is_limited {
                    let why = "`plan`, `tenant` and `overrides` cannot be changed";
                    return Err(self.not_of_tenant(why));
                }
                let note = format!("client {id} changed: {}", names(&change));
                let ClientChange { plan, tenant, enabled, metadata, overrides, secrets } = change;
                let plan = plan.map(|plan| self.plan(Some(plan))).transpose()?;
                self.check_overrides(
                    plan.as_deref().unwrap_or(&record.plan),
                    overrides.iter().filter_map(|(rule, own)| Some((rule, own.as_ref()?))),
                )?;
                let change = Change { plan, tenant, enabled, metadata, overrides, secrets };
                (Some(edit::changed(record, change, now_us)), None, note)
            }
            KeyCall::Rotate => {
                let rotation = if body.is_empty() { Rotation::default() } else { parse(body)? };
                let overlap_us = overlap(rotation.overlap.as_deref())?;
                let new = new_key()?;
                let Rotation { name, expires, .. } = rotation;
                let secret = NewSecret { digest: new.digest, name, expires, overlap_us };
                let after = edit::rotated(record, secret, now_us);
                let note = format!(
                    "client {id} got a new key; the others are valid for {} s",
                    overlap_us / 1_000_000
                );
                (Some(after), Some(new.text), note)
            }
        };
        // A client of which the file has a key can still be disabled.
        if let (Some(after), KeyCall::Patch | KeyCall::Rotate) = (&after, call) {
            self.check(after)?;
        }
        let after = self.with_lock(call, record, after)?;
        Ok(Edited { after, key, note })
    }

    /// A changed record with its lock: what an operator has disabled, a caller who is limited to a
    /// tenant neither enables nor removes.
    fn with_lock(
        self,
        call: KeyCall,
        before: &Record,
        after: Option<Record>,
    ) -> Result<Option<Record>, Box<Answer>> {
        let is_served = after.as_ref().is_none_or(|after| after.enabled);
        if self.tenant.is_some() {
            return match (before.locked && is_served, after) {
                (true, _) => Err(self.not_of_tenant("an operator has disabled the client")),
                (false, after) => Ok(after),
            };
        }
        let locked = match call {
            KeyCall::Disable => true,
            KeyCall::Enable => false,
            // Another change of a client that its tenant has disabled leaves that to the tenant.
            _ if before.enabled == is_served => before.locked,
            _ => !is_served,
        };
        Ok(after.map(|after| Record { locked, ..after }))
    }

    /// A new record, and the API key that was made for it.
    fn new_record(
        self,
        new: NewClient,
        now_us: u64,
    ) -> Result<(Record, Option<String>), Box<Answer>> {
        let NewClient { id, plan, tenant, enabled, metadata, overrides, secrets, .. } = new;
        let NewClient { name, not_before, expires, .. } = new;
        let id = id.map_or_else(random_id, Ok)?;
        if self.policy.keys.named(&id).is_some() {
            return Err(self.id_is_taken(&id, "the file has a client"));
        }
        let (secrets, key) = match secrets {
            Some(secrets) if name.is_none() && not_before.is_none() && expires.is_none() => {
                (secrets, None)
            }
            Some(_) => {
                let detail = "`name`, `not_before` and `expires` are those of a new key: with \
                              `secrets`, write them there";
                return Err(bad(detail));
            }
            None => {
                let new = new_key()?;
                let secret = Secret { name, sha256: new.digest, not_before, expires };
                (vec![secret], Some(new.text))
            }
        };
        let tenant = tenant.or_else(|| self.tenant.map(str::to_owned));
        let plan_of_tenant = self.plan_of_tenant(tenant.as_deref());
        if self.tenant.is_some() {
            self.check_new(plan.as_deref(), tenant.as_deref(), plan_of_tenant.as_deref())?;
            if !overrides.is_empty() {
                return Err(self.not_of_tenant("its clients have no `overrides`"));
            }
        }
        let plan = self.plan(plan.or(plan_of_tenant))?;
        let is_disabled = enabled == Some(false);
        self.check_overrides(&plan, overrides.iter())?;
        let new = NewRecord { id, plan, tenant, is_disabled, metadata, overrides, secrets };
        let locked = is_disabled && self.tenant.is_none();
        let record = Record { locked, ..edit::created(new, now_us) };
        self.check(&record)?;
        Ok((record, key))
    }

    /// Checks a record that is to be stored: the file has none of its keys.
    fn check(self, record: &Record) -> Result<(), Box<Answer>> {
        record.check().map_err(|error| bad(&error.to_string()))?;
        for digest in record.digests() {
            if let Some(known) = self.policy.keys.with_digest(&digest) {
                let detail = match self.tenant {
                    None => format!("the file has this key, of `{}`", known.principal.id),
                    Some(_) => "another client has this key".to_owned(),
                };
                return Err(Answer::refusal(StatusCode::CONFLICT, &detail));
            }
        }
        Ok(())
    }

    /// Checks overrides of a client with this plan that are to be stored: the policy has their
    /// rules.
    fn check_overrides<'o>(
        self,
        plan: &str,
        overrides: impl Iterator<Item = (&'o String, &'o Override)>,
    ) -> Result<(), Box<Answer>> {
        // Without the plan, whose requests get 503, the limits are those of no plan.
        let plan = self.policy.plans.iter().position(|own| **own == *plan);
        let plan = plan.and_then(|plan| u32::try_from(plan).ok()).unwrap_or(u32::MAX);
        for (name, own) in overrides {
            let rules = &self.policy.rules;
            let Some(rule) = rules.iter().find(|rule| *rule.name == **name) else {
                let names: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
                let help = suggest::help(name, &names);
                return Err(bad(&format!("the file has no rule `{}`: {help}", cut(name, 64))));
            };
            stored_grant(self.policy, rule, plan, own.text())
                .map_err(|why| bad(&format!("`overrides.{}`: {why}", cut(name, 64))))?;
        }
        Ok(())
    }

    /// Whether the caller may see a client.
    fn sees(self, record: &Record) -> bool {
        self.tenant.is_none_or(|tenant| record.tenant.as_deref() == Some(tenant))
    }

    /// The same of what is stored. Records that cannot be read are those of no tenant.
    fn sees_stored(self, stored: &Stored) -> bool {
        match &stored.record {
            Ok(record) => self.sees(record),
            Err(_) => self.tenant.is_none(),
        }
    }

    /// The refusal of a new client. A caller that is limited to a tenant learns no more of the
    /// clients of others than that it cannot have the id.
    fn id_is_taken(self, id: &str, who: &str) -> Box<Answer> {
        let id = cut(id, 64);
        let detail = match self.tenant {
            None => format!("{who} `{id}`"),
            Some(_) => format!("the id `{id}` is not free"),
        };
        Answer::refusal(StatusCode::CONFLICT, &detail)
    }

    /// Checks that a caller who is limited to a tenant may create a client: one of that tenant, and
    /// with its plan, since another one could have higher limits.
    fn check_new(
        self,
        plan: Option<&str>,
        tenant: Option<&str>,
        plan_of_tenant: Option<&str>,
    ) -> Result<(), Box<Answer>> {
        if tenant != self.tenant {
            return Err(self.not_of_tenant("clients of others cannot be created"));
        }
        match plan_of_tenant {
            Some(own) if plan.is_none_or(|plan| plan == own) => Ok(()),
            Some(_) => Err(self.not_of_tenant("its clients have the plan of the tenant")),
            None => Err(self.not_of_tenant("the file has no plan for its clients")),
        }
    }

    fn not_of_tenant(self, why: &str) -> Box<Answer> {
        let tenant = cut(self.tenant.unwrap_or_default(), 64);
        let detail = format!("the token is for tenant `{tenant}` only: {why}");
        Answer::refusal(StatusCode::FORBIDDEN, &detail)
    }

    /// The plan that the configuration has for clients of a tenant.
    fn plan_of_tenant(self, tenant: Option<&str>) -> Option<String> {
        let plan = self.policy.tenants.named(tenant?).plan?;
        Some(self.policy.plan_name(plan).to_owned())
    }

    /// The plan of a client: one that the configuration has.
    fn plan(self, plan: Option<String>) -> Result<String, Box<Answer>> {
        let plans: Vec<&str> = self.policy.plans.iter().map(|plan| &**plan).collect();
        match (plan, plans.as_slice()) {
            (Some(plan), _) if plans.contains(&plan.as_str()) => Ok(plan),
            (None, [only]) => Ok((*only).to_owned()),
            (given, _) => {
                let what = given.map_or_else(
                    || "the client needs a `plan`".to_owned(),
                    |plan| format!("the file has no plan `{}`", cut(&plan, 64)),
                );
                Err(bad(&format!("{what}; the plans are {}", suggest::list(&plans, "and"))))
            }
        }
    }

    async fn get(self, id: &str) -> Result<Option<Stored>, Box<Answer>> {
        Ok(self.store.kept.get(&[id]).await.map_err(|error| unread(&error))?.pop().flatten())
    }

    async fn replace(self, one: Replacement) -> Result<Replaced, Box<Answer>> {
        let (id, tenants) = (one.id.clone(), tenants_of(&one));
        let replaced = self.store.kept.replace(&[one]).await;
        self.store.note_change();
        let replaced = replaced.and_then(|mut all| all.pop().ok_or(KeptError::NoResult));
        replaced.map_err(|error| {
            let tenants = tenants.iter().map(String::as_str);
            Box::new(unwritten(&error).about(vec![id]).of_tenants(tenants))
        })
    }
}

/// The words of an error without texts of the body, which may be keys.
fn without_texts(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let Some((before, rest)) = words.split_once("string \"") else { return words };
    let after = rest.rfind("\", expected").and_then(|end| rest.get(end + 1..));
    format!("{before}a text{}", after.unwrap_or_default())
}

/// Reads a body.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Answer>> {
    let why = |error: serde_json::Error| {
        bad(&format!("the body is not valid: {}", without_texts(&error)))
    };
    if !is_object(body) {
        return Err(bad("the body is not a JSON object"));
    }
    serde_json::from_slice(body).map_err(why)
}

/// Whether a text can be a JSON object: what is derived by serde reads lists, too.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().starts_with(b"{")
}

fn overlap(text: Option<&str>) -> Result<u64, Box<Answer>> {
    let most_ms = period::milliseconds(MAX_OVERLAP).unwrap_or(u64::MAX);
    let overlap_ms = period::milliseconds(text.unwrap_or(DEFAULT_OVERLAP)).ok();
    let overlap_ms = overlap_ms.filter(|overlap_ms| *overlap_ms <= most_ms);
    let wrong = || bad("`overlap` is a duration up to 3660d, such as `24h`");
    overlap_ms.map(|overlap_ms| overlap_ms.saturating_mul(1_000)).ok_or_else(wrong)
}

/// The members that a change has, for the log.
fn names(change: &ClientChange) -> String {
    let ClientChange { plan, tenant, enabled, metadata, overrides, secrets } = change;
    let mut names = Vec::new();
    names.extend(plan.as_ref().map(|plan| format!("plan {}", cut(plan, 64))));
    names.extend(tenant.as_ref().map(|tenant| {
        format!("tenant {}", tenant.as_deref().map_or("none".to_owned(), |it| cut(it, 64)))
    }));
    names.extend(enabled.map(|enabled| format!("enabled {enabled}")));
    names.extend(secrets.as_ref().map(|secrets| format!("{} secrets", secrets.len())));
    names.extend((!metadata.is_empty()).then(|| "metadata".to_owned()));
    names.extend(overrides.iter().map(|(rule, own)| {
        let verb = if own.is_some() { "override of" } else { "no override of" };
        format!("{verb} {}", cut(rule, 64))
    }));
    names.join(", ")
}

fn random_id() -> Result<String, Box<Answer>> {
    let random = getrandom::u64().map_err(no_random)?;
    Ok(format!("client-{random:016x}"))
}

fn new_key() -> Result<NewKey, Box<Answer>> {
    NewKey::random().map_err(no_random)
}

fn no_random(error: getrandom::Error) -> Box<Answer> {
    let detail = format!("the system has no random numbers: {error}");
    Answer::refusal(StatusCode::INTERNAL_SERVER_ERROR, &detail)
}

/// A client, with its version as the entity tag.
fn shown(record: &Record, key: Option<String>) -> Answer {
    let client = StoredClient::of(record);
    let answer = match key {
        Some(key) => Answer::json(&IssuedKey { key: Some(key), client }),
        None => Answer::json(&client),
    };
    answer.with_header(header::ETAG, &tag(record))
}

fn tag(record: &Record) -> String {
    // A client that is removed and created again begins with the same version.
    format!("\"{}-{:x}\"", record.version, record.created.0)
}

/// Whether a record is one that `If-Match` allows to be changed.
fn matches(if_match: Option<&str>, record: &Record) -> bool {
    let Some(tags) = if_match else { return true };
    let own = tag(record);
    tags.split(',').map(str::trim).any(|tag| tag == "*" || tag == own)
}

fn bad(detail: &str) -> Box<Answer> {
    Answer::refusal(StatusCode::BAD_REQUEST, detail)
}

fn no_client(id: &str) -> Box<Answer> {
    let detail = format!("the key store has no client `{}`", cut(id, 64));
    Answer::refusal(StatusCode::NOT_FOUND, &detail)
}

/// The refusal of a call about a client whose record cannot be read.
fn damaged(id: &str, damage: &Damage) -> Box<Answer> {
    let detail = format!(
        "the record of `{}` cannot be read ({}): DELETE removes it",
        cut(id, 64),
        cut(&damage.why, 200)
    );
    Answer::refusal(StatusCode::CONFLICT, &detail)
}

fn overtaken() -> Box<Answer> {
    let detail = "other changes of the client were faster: try again";
    Answer::refusal(StatusCode::CONFLICT, detail)
}

fn key_of_another() -> Box<Answer> {
    let detail = "another client of the key store has one of these keys";
    Answer::refusal(StatusCode::CONFLICT, detail)
}

/// The response if the store cannot be read.
pub(super) fn unread(error: &KeptError) -> Box<Answer> {
    let detail = format!("the key store cannot be read now: {error}");
    Answer::refusal(StatusCode::SERVICE_UNAVAILABLE, &detail)
}

/// The tenants of a client before and after a replacement.
fn tenants_of(one: &Replacement) -> Vec<String> {
    let before = one.before.as_ref().and_then(|before| before.record.as_ref().ok());
    let both = before.into_iter().chain(one.after.as_ref());
    both.filter_map(|record| record.tenant.clone()).collect()
}

/// The response to a change of which it is not known whether it was made.
pub(super) fn unwritten(error: &KeptError) -> Answer {
    let detail = format!("the key store cannot be written now: {error}");
    let done = [("done".to_owned(), "unknown".into())].into_iter().collect();
    Answer::problem_with(StatusCode::SERVICE_UNAVAILABLE, &detail, done)
        .noting(format!("not known whether it was done: {error}"))
}
