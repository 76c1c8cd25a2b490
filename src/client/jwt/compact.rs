//! The parts of a token in compact serialization (RFC 7515, section 7.1), not verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::json::object;
use super::{MAX_TOKEN_BYTES, TokenRefusal};
use crate::config::words::{JwtAlgorithm, Word as _};

/// The parts of a token.
#[derive(Clone, PartialEq)]
pub struct Compact<'a> {
    /// The algorithm of the signature.
    pub algorithm: JwtAlgorithm,
    /// The name of the key (`kid`).
    pub kid: Option<String>,
    /// The type (`typ`).
    pub typ: Option<String>,
    /// The bytes that are signed: header, dot and claims, as sent.
    pub signed: &'a [u8],
    pub claims: Map<String, Value>,
    pub signature: Vec<u8>,
}

/// Whether a text has the form of a token: three parts or more, separated by dots. Upstreams may
/// decode more leniently than the gateway.
pub fn has_parts(text: &[u8]) -> bool {
    split(text).is_some_and(|(_, rest)| split(rest).is_some())
}

/// Whether a text is a token rather than an API key, wherever it is: it has three parts or more,
/// separated by dots, and the first begins with a JSON object in base64url.
pub fn is_token(text: &[u8]) -> bool {
    let Some((header, rest)) = split(text) else { return false };
    // Four characters of base64url are three bytes.
    let beginning = header.get(..4).and_then(|first| URL_SAFE_NO_PAD.decode(first).ok());
    beginning.is_some_and(|bytes| bytes.trim_ascii_start().starts_with(b"{"))
        && split(rest).is_some()
}

/// What precedes the first dot, and what follows it.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'.', text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

impl<'a> Compact<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// [`TokenRefusal::TooLong`], [`TokenRefusal::Malformed`] and [`TokenRefusal::Algorithm`].
    pub fn parse(token: &'a [u8]) -> Result<Self, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefusal::TooLong);
        }
        let (header, rest) = split(token).ok_or(TokenRefusal::Malformed)?;
        let (claims, signature) = split(rest).ok_or(TokenRefusal::Malformed)?;
        let signed = token.get(..header.len() + 1 + claims.len()).ok_or(TokenRefusal::Malformed)?;
        let header = object(&decoded(header)?).ok_or(TokenRefusal::Malformed)?;
        let text = |name: &str| match header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(TokenRefusal::Malformed),
        };
        let word = text("alg")?.ok_or(TokenRefusal::Malformed)?;
        let algorithm = JwtAlgorithm::of_word(&word).ok_or(TokenRefusal::Algorithm)?;
        // No extension is understood (RFC 7515, section 4.1.11), and a token within a token is
        // none of ours.
        let is_nested = text("cty")?.is_some_and(|cty| is_type(&cty, "JWT"));
        if header.contains_key("crit") || is_nested {
            return Err(TokenRefusal::Malformed);
        }
        Ok(Self {
            algorithm,
            kid: text("kid")?,
            typ: text("typ")?,
            signed,
            claims: object(&decoded(claims)?).ok_or(TokenRefusal::Malformed)?,
            // A fourth part, as encrypted tokens have, is not base64url because of its dot.
            signature: decoded(signature)?,
        })
    }

    /// The issuer that the claims state (`iss`).
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }
}

/// Decodes base64url without padding: exactly one text for each value, so that a token cannot be
/// varied.
fn decoded(part: &[u8]) -> Result<Vec<u8>, TokenRefusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefusal::Malformed)
}

/// Whether a media type is `wanted`, which may lack `application/` (RFC 7515, section 4.1.9).
pub(super) fn is_type(written: &str, wanted: &str) -> bool {
    const APPLICATION: &str = "application/";
    let bare = |text: &str| match text.get(..APPLICATION.len()) {
        Some(start) if start.eq_ignore_ascii_case(APPLICATION) => APPLICATION.len(),
        _ => 0,
    };
    let (own, wanted) = (&written[bare(written)..], &wanted[bare(wanted)..]);
    own.eq_ignore_ascii_case(wanted)
}
