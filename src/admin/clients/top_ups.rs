//! `/api/clients/{kind}/{id}/top-ups`: lists what a client has beyond its quotas until a time, and
//! takes it away. `…/grant` with `expires` gives it.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::adjust::{GRANT_EXAMPLE, refusal};
use super::buckets::{name, tokens};
use super::requested::RequestedClient;
use crate::admin::answer::Answer;
use crate::admin::members::BadBody;
use crate::admin::{Arguments, Stores};
use crate::api::top_ups::{RevokedTopUp, TopUp, TopUps};
use crate::base::time::UtcTime;
use crate::base::{clock, period};
use crate::decide::applicability::{Applicability, applicabilities};
use crate::limit::charge::Charge;
use crate::limit::top_up::{self, ChangedTopUps, LeftTopUp, TopUpChange, TopUpError};
use crate::policy::Dimension;
use crate::runtime::Snapshot;

/// Longest time until a top-up ends, in microseconds: ten years.
const MAX_US: u64 = 3_653 * 86_400_000_000;

/// Largest id, so that a double holds it exactly.
const MAX_ID: u64 = (1 << 53) - 1;

/// What is stored with a top-up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    by: String,
    /// Unix time in microseconds.
    at_us: u64,
}

impl About {
    pub(super) fn new(tokens: u64, reason: Option<&str>, by: &str) -> Self {
        let (reason, by) = (reason.map(str::to_owned), by.to_owned());
        Self { tokens, reason, by, at_us: clock::unix_us() }
    }
}

/// Reads `expires`, in microseconds of Unix time.
pub(super) fn expires(members: &Map<String, Value>) -> Result<Option<u64>, BadBody> {
    let Some(value) = members.get("expires") else { return Ok(None) };
    let now = clock::unix_us();
    let parsed = value.as_str().and_then(|text| match UtcTime::parse(text) {
        Some(time) => Some(time.0),
        None => Some(now.saturating_add(period::milliseconds(text).ok()?.saturating_mul(1_000))),
    });
    let in_range = parsed.filter(|at| *at > now && *at - now <= MAX_US);
    let message = "`expires` must be a time in the future, such as `2027-01-31T00:00:00Z`, or a \
                   duration from now, such as `90d`; at most ten years";
    in_range.map(Some).ok_or_else(|| BadBody::new(message, GRANT_EXAMPLE))
}

/// A new top-up of a charge's bucket, and its id.
pub(super) fn new(charge: &Charge, about: &About, expires_us: u64) -> (u64, TopUpChange) {
    let random = getrandom::u64().unwrap_or_else(|_| clock::unix_us());
    let id = random & MAX_ID;
    let units = charge.limit.token_units(about.tokens);
    let text = serde_json::to_string(about).unwrap_or_default();
    (id, TopUpChange::Add(top_up::TopUp { id, units, expires_us }, text))
}

/// Changes or reads the top-ups of a charge's bucket.
pub(super) async fn change(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    charge: &Charge,
    wanted: &TopUpChange,
) -> Result<ChangedTopUps, Box<Answer>> {
    let policy = &snapshot.policy;
    if matches!(wanted, TopUpChange::Add(..))
        && !stores.limiter.is_shared()
        && policy.usage.file.is_some()
    {
        let detail = "`expires` needs [redis]: a restart would lose the top-up, which `usage.file` does not have";
        return Err(Answer::refusal(StatusCode::CONFLICT, detail));
    }
    let changed = stores.limiter.top_up(charge, &snapshot.stored_rules, wanted).await;
    let changed = changed.map_err(|error| refusal(policy, std::slice::from_ref(charge), error))?;
    changed.map_err(|error| {
        let status = match error {
            TopUpError::Unknown => StatusCode::NOT_FOUND,
            TopUpError::TooMany | TopUpError::TooLarge | TopUpError::NoRoom => StatusCode::CONFLICT,
        };
        Answer::refusal(status, &error.to_string())
    })
}

/// The buckets of fixed windows that a client has.
fn windows<'a, 'b>(
    all: &'b [Applicability<'a>],
) -> impl Iterator<Item = (&'b Applicability<'a>, Charge)> {
    let known = all.iter().filter_map(|one| Some((one, one.known()?)));
    known.filter(|(_, charge)| charge.limit.calendar().is_some())
}

/// Lists those that can be used. A caller who is limited to a `tenant` gets those of rules per key
/// or tenant only, and gives no parameters.
pub(in crate::admin) async fn list(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    arguments: Arguments<'_>,
    tenant: Option<&str>,
) -> Result<Answer, Box<Answer>> {
    let policy = &snapshot.policy;
    let Arguments { parts, query, .. } = arguments;
    let is_limited = tenant.is_some();
    if is_limited && query.is_some() {
        let detail = "the token is for one tenant: this call takes no parameters";
        return Err(Answer::refusal(StatusCode::FORBIDDEN, detail));
    }
    let requested = RequestedClient::read(policy, stores.keys, parts, query).await?;
    let mut all = applicabilities(policy, &requested.subject());
    if is_limited {
        all.retain(|one| one.rule.per.contains(&Dimension::Key) || one.rule.counts_tenants());
    }
    let mut top_ups = Vec::new();
    for (applicability, charge) in windows(&all) {
        let changed = change(snapshot, stores, &charge, &TopUpChange::List).await?;
        let rule = &applicability.rule.name;
        top_ups.extend(changed.all.iter().map(|one| TopUp::of(rule, &charge, one)));
    }
    Ok(Answer::json(&TopUps { client: requested.view(policy), top_ups }))
}

/// Takes away what is left of one.
pub(in crate::admin) async fn revoke(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    arguments: Arguments<'_>,
) -> Result<Answer, Box<Answer>> {
    let policy = &snapshot.policy;
    let unknown = || Answer::refusal(StatusCode::NOT_FOUND, &TopUpError::Unknown.to_string());
    let [client @ .., id] = arguments.parts else { return Err(unknown()) };
    let id: u64 = id.parse().map_err(|_| unknown())?;
    let requested = RequestedClient::read(policy, stores.keys, client, arguments.query).await?;
    let all = applicabilities(policy, &requested.subject());
    for (applicability, charge) in windows(&all) {
        let has = change(snapshot, stores, &charge, &TopUpChange::List).await?;
        let Some(one) = has.all.iter().find(|one| one.id == id) else { continue };
        let changed = change(snapshot, stores, &charge, &TopUpChange::Revoke(id)).await?;
        if let Some(usage) = stores.usage {
            let changed = (&[charge][..], &[changed.after][..]);
            usage.ledger().note_adjusted(policy, &requested.client, changed, clock::now());
        }
        let revoked = RevokedTopUp {
            client: requested.view(policy),
            rule: applicability.rule.name.to_string(),
            bucket: name(policy, applicability.rule, &charge),
            from: tokens(&charge, changed.before),
            to: tokens(&charge, changed.after),
        };
        let shown = TopUp::of(&revoked.rule, &charge, one);
        let RevokedTopUp { client, rule, from, to, .. } = &revoked;
        let why = shown.reason.map_or(String::new(), |reason| format!(" ({reason:?})"));
        let note = format!(
            "{} {}: {rule}: {from} -> {to}, top-up {id} of {} tokens revoked{why}",
            client.kind, client.id, shown.tokens
        );
        let about = if client.kind == "key" { vec![client.id.clone()] } else { Vec::new() };
        let tenant = requested.client.tenant.as_ref().map(|tenant| &*tenant.id);
        return Ok(Answer::json(&revoked).noting(note).about(about).of_tenants(tenant));
    }
    Err(unknown())
}

impl TopUp {
    fn of(rule: &str, charge: &Charge, one: &LeftTopUp) -> Self {
        let about = serde_json::from_str::<About>(&one.text).ok();
        #[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
        let left = one.left as f64 / charge.limit.token_units(1) as f64;
        Self {
            id: one.id.to_string(),
            rule: rule.to_owned(),
            tokens: about.as_ref().map_or(0, |about| about.tokens),
            left,
            expires: UtcTime(one.expires_us),
            granted: UtcTime(about.as_ref().map_or(0, |about| about.at_us)),
            by: about.as_ref().map_or_else(String::new, |about| about.by.clone()),
            reason: about.and_then(|about| about.reason),
        }
    }
}
