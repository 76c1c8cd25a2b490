//! `/api/clients/{kind}/{id}/top-ups`: lists what a client has beyond its quotas until a time, and
//! takes it away. `…/grant` with `expires` gives it.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::adjust::{GRANT_EXAMPLE, refusal};
use super::buckets::{name, tokens};
use super::requested::RequestedClient;
use crate::admin::answer::Answer;
use crate::admin::members::BadBody;
use crate::admin::{Arguments, Stores};
use crate::api::top_ups::{RevokedTopUp, TopUp, TopUps};
use crate::base::time::UtcTime;
use crate::base::{clock, period, random};
use crate::decide::applicability::{Applicability, applicabilities};
use crate::limit::charge::Charge;
use crate::limit::top_up::{self, ChangedTopUps, LeftTopUp, TopUpChange, TopUpError};
use crate::policy::Dimension;
use crate::runtime::Snapshot;

/// Longest time until a top-up ends, in microseconds: ten years.
const MAX_US: u64 = 3_653 * 86_400_000_000;

/// Longest id, in characters.
const MAX_ID: usize = 64;

/// The top-up that a grant asks for.
#[derive(Debug)]
pub(super) struct WantedTopUp {
    /// What identifies it among those of the bucket: as the caller says, or random.
    pub(super) id: String,
    /// Unix time in microseconds.
    pub(super) expires_us: u64,
    until: Until,
}

impl WantedTopUp {
    /// The top-up, for the log.
    pub(super) fn note(&self, is_repeated: bool) -> String {
        let Self { id, expires_us, .. } = self;
        if is_repeated {
            format!(", top-up {id} was granted before")
        } else {
            format!(" until {:.0}, top-up {id}", UtcTime(*expires_us))
        }
    }
}

/// The end of a top-up as its caller gave it, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Until {
    /// Unix time.
    At(u64),
    /// From the grant on.
    For(u64),
}

/// What is stored with a top-up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    /// `None`: it was granted by a gateway of version 0.2.0, and its id is its number.
    #[serde(default)]
    id: Option<String>,
    tokens: u64,
    #[serde(default)]
    until: Option<Until>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    by: String,
    /// Unix time in microseconds.
    at_us: u64,
}

impl About {
    pub(super) fn new(wanted: &WantedTopUp, tokens: u64, reason: Option<&str>, by: &str) -> Self {
        let (reason, by) = (reason.map(str::to_owned), by.to_owned());
        let (id, until) = (Some(wanted.id.clone()), Some(wanted.until));
        Self { id, tokens, until, reason, by, at_us: clock::unix_us() }
    }

    /// Whether the other one is a repetition of the same call, by whichever caller.
    fn is_same(&self, other: &Self) -> bool {
        let values = |of: &Self| (of.id.clone(), of.tokens, of.until, of.reason.clone());
        values(self) == values(other)
    }
}

/// Reads `expires` and `id`.
pub(super) fn read(members: &Map<String, Value>) -> Result<Option<WantedTopUp>, BadBody> {
    let bad = |message: String| BadBody::new(message, GRANT_EXAMPLE);
    let Some(value) = members.get("expires") else {
        let message = "`id` is for tokens until a time: give `expires`, too";
        return if members.contains_key("id") { Err(bad(message.to_owned())) } else { Ok(None) };
    };
    let now = clock::unix_us();
    let until = value.as_str().and_then(|text| match UtcTime::parse(text) {
        Some(time) => Some(Until::At(time.0)),
        None => Some(Until::For(period::milliseconds(text).ok()?.saturating_mul(1_000))),
    });
    let end = |until| match until {
        Until::At(unix_us) => unix_us,
        Until::For(us) => now.saturating_add(us),
    };
    let in_range = until.map(|until| (until, end(until)));
    let in_range = in_range.filter(|(_, at)| *at > now && *at - now <= MAX_US);
    let Some((until, expires_us)) = in_range else {
        let message = "`expires` must be a time in the future, such as `2027-01-31T00:00:00Z`, or \
                       a duration from now, such as `90d`; at most ten years";
        return Err(bad(message.to_owned()));
    };
    let id = match members.get("id") {
        None => random::number().to_string(),
        Some(Value::String(id)) if is_id(id) => id.clone(),
        Some(_) => {
            return Err(bad(format!(
                "`id` must be a string of 1 to {MAX_ID} letters of ASCII, digits, `.`, `_`, `:` \
                 and `-` that begins with a letter or digit"
            )));
        }
    };
    Ok(Some(WantedTopUp { id, expires_us, until }))
}

/// Whether a caller may give this id. It is a segment of a path that no client changes.
fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= MAX_ID
        && text.bytes().all(is_plain)
}

/// The number that a bucket has of a top-up with this id.
fn number_of(id: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(id).into();
    let first = digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    random::exact_in_double(first)
}

/// A new top-up of a charge's bucket.
fn addition(charge: &Charge, about: &About, wanted: &WantedTopUp) -> TopUpChange {
    let units = charge.limit.token_units(about.tokens);
    let text = serde_json::to_string(about).unwrap_or_default();
    let id = number_of(&wanted.id);
    TopUpChange::Add(top_up::TopUp { id, units, expires_us: wanted.expires_us }, text)
}

/// Adds a top-up to a charge's bucket, unless the same call was made before.
pub(super) async fn add(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    charge: &Charge,
    about: &About,
    wanted: &WantedTopUp,
) -> Result<ChangedTopUps, Box<Answer>> {
    let changed = change(snapshot, stores, charge, &addition(charge, about, wanted)).await?;
    if let Some(text) = &changed.repeated {
        let kept = serde_json::from_str::<About>(text).ok();
        if !kept.is_some_and(|kept| kept.is_same(about)) {
            let detail = format!(
                "`{}` is the id of a top-up of this client and rule with other values",
                wanted.id
            );
            return Err(Answer::refusal(StatusCode::CONFLICT, &detail));
        }
    }
    Ok(changed)
}

/// Changes or reads the top-ups of a charge's bucket.
async fn change(
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

/// Takes away what is left of one. `rule` of the query says under which rule, if several have one
/// with this id.
pub(in crate::admin) async fn revoke(
    snapshot: &Snapshot,
    stores: Stores<'_>,
    arguments: Arguments<'_>,
) -> Result<Answer, Box<Answer>> {
    let policy = &snapshot.policy;
    let unknown = || Answer::refusal(StatusCode::NOT_FOUND, &TopUpError::Unknown.to_string());
    let [client @ .., id] = arguments.parts else { return Err(unknown()) };
    let (requested, query) =
        RequestedClient::read_with(policy, stores.keys, client, arguments.query, &["rule"]).await?;
    let all = applicabilities(policy, &requested.subject());
    let mut found = None;
    for (applicability, charge) in windows(&all) {
        let rule = &applicability.rule.name;
        if query.get("rule").is_some_and(|wanted| *wanted != **rule) {
            continue;
        }
        let has = change(snapshot, stores, &charge, &TopUpChange::List).await?;
        for one in &has.all {
            let shown = TopUp::of(rule, &charge, one);
            if shown.id != *id || one.left == 0 {
                continue;
            }
            if found.is_some() {
                let detail = "the client has top-ups with this id under several rules: name one, \
                              as `?rule=…`";
                return Err(Answer::refusal(StatusCode::CONFLICT, detail));
            }
            found = Some((applicability, charge, one.id, shown));
        }
    }
    let Some((applicability, charge, number, shown)) = found else { return Err(unknown()) };
    let changed = change(snapshot, stores, &charge, &TopUpChange::Revoke(number)).await?;
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
    let RevokedTopUp { client, rule, from, to, .. } = &revoked;
    let why = shown.reason.map_or(String::new(), |reason| format!(" ({reason:?})"));
    let note = format!(
        "{} {}: {rule}: {from} -> {to}, top-up {id} of {} tokens revoked{why}",
        client.kind, client.id, shown.tokens
    );
    let about = if client.kind == "key" { vec![client.id.clone()] } else { Vec::new() };
    let tenant = requested.client.tenant.as_ref().map(|tenant| &*tenant.id);
    Ok(Answer::json(&revoked).noting(note).about(about).of_tenants(tenant))
}

impl TopUp {
    fn of(rule: &str, charge: &Charge, one: &LeftTopUp) -> Self {
        let about = serde_json::from_str::<About>(&one.text).ok();
        #[allow(clippy::cast_precision_loss, reason = "units are at most 2^53")]
        let left = one.left as f64 / charge.limit.token_units(1) as f64;
        Self {
            id: about
                .as_ref()
                .and_then(|about| about.id.clone())
                .unwrap_or_else(|| one.id.to_string()),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(body: Value) -> Result<Option<WantedTopUp>, String> {
        let Value::Object(members) = body else { panic!("{body}") };
        read(&members).map_err(|error| error.to_string())
    }

    #[test]
    fn id_of_a_top_up_is_a_short_segment_of_a_path() {
        let with = |id: Value| wanted(json!({"expires": "90d", "id": id}));
        let longest = "a".repeat(MAX_ID);
        for id in ["i", "invoice-4711", "a.b_c:D-9", &longest] {
            assert_eq!(with(json!(id)).unwrap().unwrap().id, id);
        }
        for id in [json!(""), json!(".."), json!("a b"), json!("ä"), json!("a/b"), json!(7)] {
            assert!(with(id.clone()).unwrap_err().contains("`id` must be"), "{id}");
        }
        assert!(with(json!(longest + "a")).is_err());
        assert!(wanted(json!({"id": "a"})).unwrap_err().contains("`expires`"));
        assert!(wanted(json!({})).unwrap().is_none());
        let random = || wanted(json!({"expires": "90d"})).unwrap().unwrap().id;
        assert_ne!(random(), random());
    }

    #[test]
    fn repetition_has_the_same_values_as_they_were_given() {
        let about = |body: &Value, tokens, reason| {
            let wanted = wanted(body.clone()).unwrap().unwrap();
            let about = About::new(&wanted, tokens, reason, "ops");
            let text = serde_json::to_string(&about).unwrap();
            serde_json::from_str::<About>(&text).unwrap()
        };
        let call = json!({"expires": "90d", "id": "a"});
        let first = about(&call, 5, Some("gift"));
        assert!(about(&call, 5, Some("gift")).is_same(&first));
        let later = json!({"expires": "2160h", "id": "a"});
        assert!(about(&later, 5, Some("gift")).is_same(&first), "the same duration");
        for (call, tokens, reason) in [
            (&call, 6, Some("gift")),
            (&call, 5, None),
            (&json!({"expires": "91d", "id": "a"}), 5, Some("gift")),
            (&json!({"expires": "2035-01-01T00:00:00Z", "id": "a"}), 5, Some("gift")),
        ] {
            assert!(!about(call, tokens, reason).is_same(&first), "{call} {tokens} {reason:?}");
        }
    }

    #[test]
    fn number_of_an_id_never_changes() {
        assert_eq!(number_of("invoice-4711"), 8_017_970_736_435_154);
        assert!((0..1_000).all(|id| number_of(&id.to_string()) < 1 << 53));
    }
}
