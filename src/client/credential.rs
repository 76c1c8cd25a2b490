//! The API key, the token or the password of a request. Keys are compared by their SHA-256 and not
//! kept.

use std::borrow::Cow;
use std::fmt;

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::jwt::compact::{has_parts, is_token};
use super::password;
use super::settings::{Clients, KeySource, OnConflictingKeys};
use crate::base::hash::Digest;
use crate::net::percent::decode_query;

/// Maximum length of an API key in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The API key, the token or the password that a request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    /// SHA-256 of its text.
    pub digest: Digest,
    /// Where it was, as an index into [`Clients::key_sources`].
    pub source: usize,
    pub kind: CredentialKind<'a>,
}

/// What a credential is verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialKind<'a> {
    /// An API key: the known ones.
    Key,
    /// A token, unless an API key of the file has its digest: the keys of its issuer.
    Token(SecretText<'a>),
    /// A bearer text whose issuer can be asked, if it is no API key: the issuer.
    Opaque(SecretText<'a>),
    /// A user and a password, with a colon between: the users' hashes.
    Password(SecretText<'a>),
}

/// The text of a credential. Not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText<'a>(pub Cow<'a, [u8]>);

impl fmt::Debug for SecretText<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// Why a request's client cannot be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The request has two different keys.
    #[error("the request has two different API keys")]
    ConflictingKeys {
        /// Where the first key is, as an index into [`Clients::key_sources`].
        first: usize,
        /// Where the other key is.
        second: usize,
    },
    /// A key is longer than [`MAX_KEY_BYTES`].
    #[error("the API key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong {
        /// Where the key is, as an index into [`Clients::key_sources`].
        at: usize,
    },
}

/// Whether `header` differs from `own` but is the same to a server that treats `_` as `-`. WSGI and
/// CGI do, so an upstream would read such a header in place of the gateway's.
pub fn is_alias(header: &str, own: &str) -> bool {
    header.len() == own.len()
        && header.contains('_')
        && !header.eq_ignore_ascii_case(own)
        && header
            .bytes()
            .zip(own.bytes())
            .all(|(a, b)| a.eq_ignore_ascii_case(&b) || (a == b'_' && b == b'-'))
}

/// Name and value of each parameter of a query, in order, not decoded.
pub fn query_parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
}

/// Whether the parameter `name`, not decoded, is `own`.
pub fn is_parameter(name: &str, own: &str) -> bool {
    // An encoded byte takes at most three bytes; names of other lengths need not be decoded.
    let may_be = (own.len()..=3 * own.len()).contains(&name.len());
    name == own || (may_be && *decode_query(name) == *own.as_bytes())
}

impl<'a> Credential<'a> {
    /// The credential of a request; `None` without one, or if nothing is read as a key. `query` is
    /// the part of the target after the question mark. Empty keys are ignored. Hashes at most one
    /// key.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn of(
        clients: &Clients,
        headers: &'a HeaderMap,
        query: Option<&'a str>,
    ) -> Result<Option<Self>, IdentityError> {
        if clients.on_unknown_key.is_none() {
            return Ok(None);
        }
        let mut found: Option<(Cow<'a, [u8]>, usize)> = None;
        for (index, source) in clients.key_sources.iter().enumerate() {
            let mut add = |key| add_key(clients, &mut found, index, key);
            match source {
                KeySource::Header(name) => {
                    let values = headers.get_all(name).iter();
                    values.map(|value| Cow::Borrowed(value.as_bytes())).try_for_each(&mut add)?;
                }
                KeySource::Bearer => {
                    let values = headers.get_all(header::AUTHORIZATION).iter();
                    let keys = values.filter_map(|value| bearer(value.as_bytes()));
                    keys.map(Cow::Borrowed).try_for_each(&mut add)?;
                }
                KeySource::Basic => {
                    let values = headers.get_all(header::AUTHORIZATION).iter();
                    let logins = values.filter_map(|value| password::login(value.as_bytes()));
                    logins.map(Cow::Owned).try_for_each(&mut add)?;
                }
                KeySource::Query(name) => {
                    let parameters = query.into_iter().flat_map(query_parameters);
                    parameters
                        .filter(|(parameter, _)| is_parameter(parameter, name))
                        .try_for_each(|(_, value)| add(decode_query(value)))?;
                }
            }
        }
        Ok(found.map(|(key, source)| {
            let digest = Sha256::digest(&key).into();
            let kind = if clients.key_sources.get(source) == Some(&KeySource::Basic) {
                CredentialKind::Password(SecretText(key))
            } else if clients.reads_as_token(source, &key) {
                CredentialKind::Token(SecretText(key))
            } else if clients.reads_as_opaque(source) {
                CredentialKind::Opaque(SecretText(key))
            } else {
                CredentialKind::Key
            };
            Self { digest, source, kind }
        }))
    }
}

impl Clients {
    /// Whether the issuer of texts from the source with this index can be asked about them.
    fn reads_as_opaque(&self, source: usize) -> bool {
        self.introspects && self.key_sources.get(source) == Some(&KeySource::Bearer)
    }

    /// Whether a text from the source with this index is read as a token, not as an API key. A
    /// bearer token of three parts always is: a forged one that the gateway cannot decode must not
    /// pass as an unknown API key.
    fn reads_as_token(&self, source: usize, text: &[u8]) -> bool {
        let is_bearer = || self.key_sources.get(source) == Some(&KeySource::Bearer);
        !self.issuers.is_empty() && (is_token(text) || (is_bearer() && has_parts(text)))
    }
}

/// Stores a key from the source with that index, unless an earlier source had one.
fn add_key<'a>(
    clients: &Clients,
    found: &mut Option<(Cow<'a, [u8]>, usize)>,
    source: usize,
    key: Cow<'a, [u8]>,
) -> Result<(), IdentityError> {
    if key.is_empty() {
        return Ok(());
    }
    // The length of a token is checked when it is verified.
    let is_key = !clients.reads_as_token(source, &key) && !clients.reads_as_opaque(source);
    if key.len() > MAX_KEY_BYTES && is_key {
        return Err(IdentityError::KeyTooLong { at: source });
    }
    match found {
        None => *found = Some((key, source)),
        Some((key_before, first)) => {
            let is_denied = clients.on_conflicting_keys == OnConflictingKeys::Deny;
            if is_denied && *key_before != key {
                return Err(IdentityError::ConflictingKeys { first: *first, second: source });
            }
        }
    }
    Ok(())
}

/// The token of `Bearer <token>`; the scheme is case-insensitive (RFC 9110, section 11.1). A tab
/// counts as the space, as it does for servers that split at white space; otherwise they would see
/// a key that the gateway did not.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && matches!(token, [b' ' | b'\t', ..]);
    is_bearer.then(|| token.trim_ascii())
}
