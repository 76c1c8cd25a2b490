//! Who a request is from: the peer's address and the request's headers become a [`Client`].
//!
//! Nothing a client sends is believed unless it came through a trusted proxy; a key is compared
//! by its SHA-256 and never kept.

pub mod address;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::net::percent::decode_query;
use crate::policy::client::{Client, ClientKey};
use crate::policy::settings::{Clients, KeySource, OnConflictingKeys, OnUnknownKey};
use crate::policy::{Digest, Policy};
use address::{AddressFrom, canonical, forwarded_address, is_trusted};

/// The longest key that is read, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// What is known of a request's sender before any rule is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The client.
    pub client: Client,
    /// Whether the peer is a trusted proxy, so that its forwarding headers are believed.
    pub via_trusted_proxy: bool,
    /// How the client's address was found.
    pub address_from: AddressFrom,
    /// Where the key stood, as an index into [`Clients::key_sources`]; none where there is none.
    pub key_from: Option<usize>,
}

/// Why a request has no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// Two keys that are not the same.
    #[error("the request has two different API keys; send one")]
    ConflictingKeys,
    /// A key of more than [`MAX_KEY_BYTES`].
    #[error("the API key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong,
}

/// Finds the client of a request. `peer` is the address of the connection's other end, none on a
/// Unix socket; `query` is the part of the target behind the question mark.
///
/// # Errors
/// See [`IdentityError`].
pub fn identify(
    policy: &Policy,
    peer: Option<IpAddr>,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Identity, IdentityError> {
    let peer = peer.map(canonical);
    let trusted = &policy.server.trusted_proxies;
    let via_trusted_proxy = peer.is_some_and(|peer| is_trusted(trusted, peer));
    let (ip, address_from) = match peer {
        Some(peer) if via_trusted_proxy => {
            let (ip, from) = forwarded_address(trusted, peer, headers);
            (Some(ip), from)
        }
        other => (other, AddressFrom::Peer),
    };
    let found = key_digest(&policy.clients, headers, query)?;
    let (key, plan) = resolve(policy, found.map(|(digest, _)| digest));
    let key_from = found.map(|(_, source)| source);
    Ok(Identity { client: Client { ip, key, plan }, via_trusted_proxy, address_from, key_from })
}

/// Whether `header` names the same thing as `own` to a server that takes `_` for `-`, without
/// being it: WSGI and CGI do, so such a header would reach the API under our name.
pub fn is_alias(header: &str, own: &str) -> bool {
    header.len() == own.len()
        && header.contains('_')
        && !header.eq_ignore_ascii_case(own)
        && header
            .bytes()
            .zip(own.bytes())
            .all(|(a, b)| a.eq_ignore_ascii_case(&b) || (a == b'_' && b == b'-'))
}

/// Name and value of each parameter of a query as it came, in order, still encoded.
pub fn query_parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
}

/// Whether the parameter `name`, as it came, is the one that the file calls `own`.
pub fn is_parameter(name: &str, own: &str) -> bool {
    // Three bytes stand for one at most: of other lengths nothing need be decoded.
    let may_be = (own.len()..=3 * own.len()).contains(&name.len());
    name == own || (may_be && *decode_query(name) == *own.as_bytes())
}

/// The digest of the request's key and the index of its source, where it has one. An empty key is
/// none. However many there are, one is hashed.
fn key_digest(
    clients: &Clients,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Option<(Digest, usize)>, IdentityError> {
    let mut found: Option<(Cow<'_, [u8]>, usize)> = None;
    for (index, source) in clients.key_sources.iter().enumerate() {
        let mut take = |key| take_key(clients, &mut found, index, key);
        match source {
            KeySource::Header(name) => {
                let values = headers.get_all(name).iter();
                values.map(|value| Cow::Borrowed(value.as_bytes())).try_for_each(&mut take)?;
            }
            KeySource::Bearer => {
                let values = headers.get_all(header::AUTHORIZATION).iter();
                let keys = values.filter_map(|value| bearer(value.as_bytes()));
                keys.map(Cow::Borrowed).try_for_each(&mut take)?;
            }
            KeySource::Query(name) => {
                let parameters = query.into_iter().flat_map(query_parameters);
                parameters
                    .filter(|(parameter, _)| is_parameter(parameter, name))
                    .try_for_each(|(_, value)| take(decode_query(value)))?;
            }
        }
    }
    Ok(found.map(|(key, source)| (Sha256::digest(key).into(), source)))
}

/// Takes the key from the source of that index, unless an earlier source has one.
fn take_key<'a>(
    clients: &Clients,
    found: &mut Option<(Cow<'a, [u8]>, usize)>,
    source: usize,
    key: Cow<'a, [u8]>,
) -> Result<(), IdentityError> {
    if key.is_empty() {
        return Ok(());
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(IdentityError::KeyTooLong);
    }
    match found {
        None => *found = Some((key, source)),
        Some((first, _)) => {
            let denies = clients.on_conflicting_keys == OnConflictingKeys::Deny;
            if denies && *first != key {
                return Err(IdentityError::ConflictingKeys);
            }
        }
    }
    Ok(())
}

/// The token of `Bearer <token>`; the scheme's case does not matter (RFC 9110, section 11.1). A tab
/// is taken for the space: servers that split at white space do, and would find a key there that
/// was not seen here.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && matches!(token, [b' ' | b'\t', ..]);
    is_bearer.then(|| token.trim_ascii())
}

/// The client's key and plan. An unknown key that is not to be refused is no key, or one of its
/// own.
fn resolve(policy: &Policy, digest: Option<Digest>) -> (ClientKey, u32) {
    let anonymous = policy.clients.anonymous_plan;
    let Some(digest) = digest else { return (ClientKey::Missing, anonymous) };
    let known = policy.key_by_digest.get(&digest).copied();
    match known.and_then(|index| Some((index, policy.keys.get(index as usize)?))) {
        Some((index, key)) => (ClientKey::Known(index), key.plan),
        None if policy.clients.on_unknown_key == OnUnknownKey::Anonymous => {
            (ClientKey::Missing, anonymous)
        }
        None => (ClientKey::Unknown(digest), anonymous),
    }
}

#[cfg(test)]
mod tests;
