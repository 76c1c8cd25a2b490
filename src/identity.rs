//! Identifies the client of a request from the peer's address and the request's headers and query.
//!
//! Forwarded headers are used only if the peer is a trusted proxy. API keys are compared by their
//! SHA-256 and not kept.

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
use address::{AddressSource, canonical, forwarded_address, is_trusted};

/// Maximum length of an API key in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The client of a request, and how it was identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The client as rules count it.
    pub client: Client,
    /// Whether the peer is a trusted proxy, so that its forwarded headers are used.
    pub via_trusted_proxy: bool,
    /// Where the client's address comes from.
    pub address_from: AddressSource,
    /// Where the key was, as an index into [`Clients::key_sources`]; `None` without a key.
    pub key_from: Option<usize>,
}

impl Identity {
    /// The identity of the same request over a connection whose client certificate has this
    /// subject. It is hashed only if a rule counts by it.
    pub fn with_certificate(self, policy: &Policy, subject: Option<&str>) -> Self {
        let subject = subject.filter(|_| policy.counts_certificates);
        let certificate = subject.map(|subject| Sha256::digest(subject).into());
        Self { client: Client { certificate, ..self.client }, ..self }
    }

    /// The identity of the same request if it also had the key with that index, in the first place
    /// where keys are read.
    pub fn with_key(self, policy: &Policy, key: Option<u32>) -> Self {
        let known = key.and_then(|index| Some((index, policy.keys.get(index as usize)?)));
        let Some((index, key)) = known.filter(|_| !policy.clients.key_sources.is_empty()) else {
            return self;
        };
        let client = Client { key: ClientKey::Known(index), plan: key.plan, ..self.client };
        Self { client, key_from: Some(0), ..self }
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

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its address; `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether it only passes on the bytes of a client without an address. Then it has written none
    /// of their headers.
    pub is_relay: bool,
}

/// Identifies the client of a request. `query` is the part of the target after the question mark.
///
/// # Errors
/// See [`IdentityError`].
pub fn identify(
    policy: &Policy,
    peer: Peer,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Identity, IdentityError> {
    let Peer { address, is_relay } = peer;
    let peer = address.map(canonical);
    let trusted = &policy.server.trusted_proxies;
    let via_trusted_proxy = !is_relay && peer.is_some_and(|peer| is_trusted(trusted, peer));
    let (ip, address_from) = match peer {
        Some(peer) if via_trusted_proxy => {
            let (ip, from) = forwarded_address(trusted, peer, headers);
            (Some(ip), from)
        }
        other => (other, AddressSource::Peer),
    };
    let found = key_digest(&policy.clients, headers, query)?;
    let (key, plan) = resolve(policy, found.map(|(digest, _)| digest));
    let key_from = found.map(|(_, source)| source);
    let client = Client { ip, key, plan, certificate: None };
    Ok(Identity { client, via_trusted_proxy, address_from, key_from })
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

/// The digest of the request's key and the index of its source, if it has a key. Empty keys are
/// ignored. Hashes at most one key per request. None if nothing is read as a key.
fn key_digest(
    clients: &Clients,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Option<(Digest, usize)>, IdentityError> {
    if clients.on_unknown_key == OnUnknownKey::NotRead {
        return Ok(None);
    }
    let mut found: Option<(Cow<'_, [u8]>, usize)> = None;
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
            KeySource::Query(name) => {
                let parameters = query.into_iter().flat_map(query_parameters);
                parameters
                    .filter(|(parameter, _)| is_parameter(parameter, name))
                    .try_for_each(|(_, value)| add(decode_query(value)))?;
            }
        }
    }
    Ok(found.map(|(key, source)| (Sha256::digest(key).into(), source)))
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
    if key.len() > MAX_KEY_BYTES {
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

/// The client's key and plan. With `on_unknown_key = "anonymous"`, an unknown key is no key.
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
