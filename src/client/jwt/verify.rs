//! The verification of one token.

use std::sync::Arc;

use serde_json::Value;

use super::TokenRefusal;
use super::claims;
use super::compact::{Compact, is_type};
use super::json;
use super::key_set::KeySet;
use super::settings::Issuer;
use crate::client::principal::{KeyRefusal, Principal, Tenants, Validity};

/// A token whose signature and claims are right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The client that it identifies.
    pub principal: Arc<Principal>,
    /// When it can be used.
    pub validity: Validity,
}

/// What the configuration has that tokens may refer to.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Claims that rules count by.
    pub counted: &'a [Box<str>],
    pub tenants: &'a Tenants,
}

/// Types of tokens that are accepted unless the configuration names others. Other types, such as
/// `logout+jwt`, are not for access (RFC 8725, section 3.11).
const USUAL_TYPES: [&str; 2] = ["JWT", "at+jwt"];

/// Index of the issuer that a token states.
///
/// # Errors
/// [`TokenRefusal::Issuer`].
pub fn issuer_of(issuers: &[Issuer], token: &Compact<'_>) -> Result<usize, TokenRefusal> {
    let stated = token.issuer().ok_or(TokenRefusal::Issuer)?;
    issuers.iter().position(|one| *one.issuer == *stated).ok_or(TokenRefusal::Issuer)
}

/// Verifies a token of `issuer` with its keys, except for its time.
///
/// # Errors
/// Why it is refused. Claims are only looked at if the signature is right.
pub fn verify(
    issuer: &Issuer,
    keys: &KeySet,
    token: &Compact<'_>,
    known: Known<'_>,
) -> Result<Verified, TokenRefusal> {
    if !issuer.algorithms.contains(&token.algorithm) {
        return Err(TokenRefusal::Algorithm);
    }
    let is_one = |wanted: &str| token.typ.as_ref().is_some_and(|typ| is_type(typ, wanted));
    let is_right_type = match &issuer.types {
        Some(types) => types.iter().any(|wanted| is_one(wanted)),
        None => token.typ.is_none() || USUAL_TYPES.into_iter().any(is_one),
    };
    if !is_right_type {
        return Err(TokenRefusal::Type);
    }
    keys.verify(token.algorithm, token.kid.as_deref(), token.signed, &token.signature)?;
    claims::check(issuer, &token.claims)?;
    let validity = claims::validity(issuer, &token.claims)?;
    let principal = Arc::new(claims::principal(issuer, &token.claims, known)?);
    Ok(Verified { principal, validity })
}

/// What the answer of an issuer says about a token (RFC 7662, section 2.2), at `unix_us`. `None` if
/// it is not an answer.
pub fn introspected(
    issuer: &Issuer,
    scopes: &[Box<str>],
    json: &[u8],
    known: Known<'_>,
    unix_us: u64,
) -> Option<Result<Verified, TokenRefusal>> {
    let members = json::object(json)?;
    if !members.get("active")?.as_bool()? {
        return Some(Err(TokenRefusal::Inactive));
    }
    let verified = || {
        claims::check(issuer, &members)?;
        let own = members.get("scope").and_then(Value::as_str).unwrap_or_default();
        if !scopes.iter().all(|scope| own.split(' ').any(|own| *own == **scope)) {
            return Err(TokenRefusal::Scope);
        }
        let validity = claims::validity(issuer, &members)?;
        let principal = Arc::new(claims::principal(issuer, &members, known)?);
        let verified = Verified { principal, validity };
        verified.refusal(unix_us).map_or(Ok(verified), Err)
    };
    Some(verified())
}

impl Verified {
    /// Why the token cannot be used at `unix_us`; `None` if it can.
    pub fn refusal(&self, unix_us: u64) -> Option<TokenRefusal> {
        match self.validity.refusal(unix_us)? {
            KeyRefusal::NotYetValid => Some(TokenRefusal::NotYetValid),
            _ => Some(TokenRefusal::Expired),
        }
    }
}
