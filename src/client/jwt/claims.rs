//! What the claims of a token say: for whom and when it is valid, and whom it identifies.

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::TokenRefusal;
use super::settings::{Issuer, PlanOf};
use super::verify::Known;
use crate::client::principal::{Principal, TokenIdentity, Validity};

/// Maximum length of the text of a claim that is used, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Maximum length of a client's id in bytes.
const MAX_ID_BYTES: usize = 256;

/// The names and values of a token.
pub(super) type Claims = Map<String, Value>;

/// The claim of this name; `None` also for `null`. A name that no claim has is a path with dots
/// into objects, such as `realm_access.roles`.
fn claim<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    let (first, rest) = match (claims.get(name), name.split_once('.')) {
        (Some(Value::Null), _) => return None,
        (Some(value), _) => return Some(value),
        (None, path) => path?,
    };
    claim(claims.get(first)?.as_object()?, rest)
}

/// A claim as text: of a list, its texts with commas between. `None` if it has none, is empty,
/// begins or ends with white space, or has a control character, or if a text of a list has a comma.
///
/// Headers arrive without outer white space, so `"admin "` would become `admin`, and `["a,b"]`
/// would become the same header as `["a", "b"]`.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Array(items) => {
            let is_item = |text: &&str| is_plain(text) && !text.contains(',');
            let items: Option<Vec<&str>> =
                items.iter().map(|item| item.as_str().filter(is_item)).collect();
            items?.join(",")
        }
        Value::Null | Value::Object(_) => return None,
    };
    is_plain(&text).then_some(text)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

/// The text of a claim that has to be usable if the token has it.
///
/// # Errors
/// [`TokenRefusal::Claims`] if it is not text, or too long.
fn usable(claims: &Claims, name: &str, max_bytes: usize) -> Result<Option<String>, TokenRefusal> {
    let Some(value) = claim(claims, name) else { return Ok(None) };
    let text = text(value).filter(|text| text.len() <= max_bytes);
    text.map(Some).ok_or(TokenRefusal::Claims)
}

/// The time of a claim in microseconds of Unix time; a fraction is allowed (RFC 7519, section 2).
///
/// # Errors
/// [`TokenRefusal::Claims`] if it is not a number.
fn time_us(claims: &Claims, name: &str) -> Result<Option<u64>, TokenRefusal> {
    let Some(value) = claims.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let seconds = value.as_f64().ok_or(TokenRefusal::Claims)?;
    // Saturates: negative times are 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    Ok(Some((seconds * 1e6) as u64))
}

/// When a token is valid, with the skew of the clocks.
///
/// # Errors
/// [`TokenRefusal::Claims`] if a time is not a number.
pub(super) fn validity(issuer: &Issuer, claims: &Claims) -> Result<Validity, TokenRefusal> {
    let skew = issuer.clock_skew_us;
    let expires = time_us(claims, "exp")?;
    let begins = time_us(claims, "nbf")?.max(time_us(claims, "iat")?).unwrap_or(0);
    Ok(Validity {
        not_before_us: begins.saturating_sub(skew),
        expires_us: expires.map_or(Validity::ALWAYS.expires_us, |us| us.saturating_add(skew)),
    })
}

/// Checks that a token is for the gateway, and has what it must have.
///
/// # Errors
/// [`TokenRefusal::Audience`] and [`TokenRefusal::Claims`].
pub(super) fn check(issuer: &Issuer, claims: &Claims) -> Result<(), TokenRefusal> {
    let is_ours = |value: &Value| {
        value.as_str().is_some_and(|text| issuer.audience.iter().any(|own| **own == *text))
    };
    let is_for_us = issuer.audience.is_empty()
        || match claims.get("aud") {
            Some(Value::Array(list)) => list.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
    if !is_for_us {
        return Err(TokenRefusal::Audience);
    }
    let has_all = issuer.required.iter().all(|name| claim(claims, name).is_some());
    if has_all { Ok(()) } else { Err(TokenRefusal::Claims) }
}

/// The client that a token identifies.
///
/// # Errors
/// [`TokenRefusal::Claims`] and [`TokenRefusal::Plan`].
pub(super) fn principal(
    issuer: &Issuer,
    claims: &Claims,
    known: Known<'_>,
) -> Result<Principal, TokenRefusal> {
    let id = usable(claims, &issuer.id_claim, MAX_ID_BYTES)?.ok_or(TokenRefusal::Claims)?;
    let plan = plan(&issuer.plan, claims).ok_or(TokenRefusal::Plan)?;
    let tenant = match &issuer.tenant_claim {
        None => None,
        Some(name) => usable(claims, name, MAX_ID_BYTES)?.map(|id| known.tenants.named(&id)),
    };
    let counted = known.counted.iter().map(|name| {
        let value = usable(claims, name, MAX_TEXT_BYTES)?;
        Ok(value.map(|value| (name.clone(), value.into_boxed_str())))
    });
    let counted: Result<Vec<Option<_>>, TokenRefusal> = counted.collect();
    let token = TokenIdentity {
        claims: counted?.into_iter().flatten().collect(),
        headers: headers(issuer, claims),
        is_hidden: issuer.hide_token,
        ..TokenIdentity::new(&issuer.issuer, &id)
    };
    Ok(Principal::of_token(&id, plan, tenant, token))
}

/// Index of the plan that the claims name: of a list, the first value that is one.
fn plan(plan: &PlanOf, claims: &Claims) -> Option<u32> {
    let value = plan.claim.as_ref().and_then(|name| claim(claims, name));
    let of_text = |value: &Value| plan.by_value.get(text(value)?.as_str()).copied();
    let named = match value {
        Some(Value::Array(items)) => items.iter().find_map(of_text),
        Some(value) => of_text(value),
        None => None,
    };
    named.or(plan.default)
}

/// The headers that the upstream gets. A claim that is missing, or that no header can have, adds
/// none.
fn headers(issuer: &Issuer, claims: &Claims) -> Vec<(HeaderName, HeaderValue)> {
    let each = issuer.headers.iter().filter_map(|(header, name)| {
        let text = text(claim(claims, name)?).filter(|text| text.len() <= MAX_TEXT_BYTES)?;
        Some((header.clone(), HeaderValue::from_bytes(text.as_bytes()).ok()?))
    });
    each.collect()
}
