//! Who a request is from: the peer's address and the request's headers become a [`Client`].
//!
//! Nothing a client sends is believed unless it came through a trusted proxy; a key is compared
//! by its SHA-256 and never kept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, header};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::policy::client::{Client, ClientKey};
use crate::policy::settings::{Clients, KeySource, OnConflictingKeys, OnUnknownKey};
use crate::policy::{Digest, Policy};

/// The longest key that is read, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// How many addresses of `X-Forwarded-For` are looked at, from the right. No real chain of proxies
/// is longer, and a forged one must not cost more.
const MAX_HOPS: usize = 32;

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

/// How an address was found. Hops are addresses of `X-Forwarded-For`, counted from the right,
/// from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFrom {
    /// The peer's own: it is no trusted proxy, so its `X-Forwarded-For` is not looked at.
    Peer,
    /// The peer's own: it is a trusted proxy, and sent no `X-Forwarded-For`.
    NothingForwarded,
    /// The peer's own: what stands at this hop is no address.
    Junk(usize),
    /// The right-most hop that is no trusted proxy.
    Hop(usize),
    /// This hop, the last that was looked at: it is a trusted proxy, as are all before it.
    AllTrusted(usize),
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

/// The address as the client would write it: IPv4 inside IPv6 (mapped, `::ffff:0:0/96`, and
/// translated by NAT64, `64:ff9b::/96` of RFC 6052) is IPv4.
pub fn canonical(ip: IpAddr) -> IpAddr {
    const NAT64: u128 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).to_bits();
    let IpAddr::V6(v6) = ip else { return ip };
    if v6.to_bits() & !u128::from(u32::MAX) == NAT64 {
        let [.., a, b, c, d] = v6.octets();
        return IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    }
    ip.to_canonical()
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
    name == own || ((name.contains('%') || name.contains('+')) && decoded(name) == own.as_bytes())
}

fn is_trusted(trusted: &[IpNet], ip: IpAddr) -> bool {
    trusted.iter().any(|net| net.contains(&ip))
}

/// The right-most address of `X-Forwarded-For` that is not a trusted proxy's. Where all are, the
/// left-most; where junk stands in the way, the peer.
fn forwarded_address(
    trusted: &[IpNet],
    peer: IpAddr,
    headers: &HeaderMap,
) -> (IpAddr, AddressFrom) {
    const FORWARDED_FOR: &str = "x-forwarded-for";
    // One line, the last, in nearly every request.
    let lines: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    let hops = lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut nearest = (peer, AddressFrom::NothingForwarded);
    for (hop, number) in hops.take(MAX_HOPS).zip(1..) {
        let Some(ip) = parse_hop(hop) else { return (peer, AddressFrom::Junk(number)) };
        nearest = (ip, AddressFrom::AllTrusted(number));
        if !is_trusted(trusted, ip) {
            return (ip, AddressFrom::Hop(number));
        }
    }
    nearest
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .ok()?;
    Some(canonical(ip))
}

/// The digest of the request's key and the index of its source, where it has one. An empty key is
/// none.
fn key_digest(
    clients: &Clients,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Option<(Digest, usize)>, IdentityError> {
    let mut found: Option<(Digest, usize)> = None;
    let mut take = |source: usize, key: &[u8]| -> Result<(), IdentityError> {
        if key.is_empty() {
            return Ok(());
        }
        if key.len() > MAX_KEY_BYTES {
            return Err(IdentityError::KeyTooLong);
        }
        let digest: Digest = Sha256::digest(key).into();
        match found {
            Some((first, _)) if first != digest => match clients.on_conflicting_keys {
                OnConflictingKeys::Deny => Err(IdentityError::ConflictingKeys),
                OnConflictingKeys::First => Ok(()),
            },
            Some(_) => Ok(()),
            None => {
                found = Some((digest, source));
                Ok(())
            }
        }
    };
    for (index, source) in clients.key_sources.iter().enumerate() {
        let mut take = |key: &[u8]| take(index, key);
        match source {
            KeySource::Header(name) => {
                headers.get_all(name).iter().try_for_each(|value| take(value.as_bytes()))?;
            }
            KeySource::Bearer => {
                let values = headers.get_all(header::AUTHORIZATION).iter();
                values.filter_map(|value| bearer(value.as_bytes())).try_for_each(&mut take)?;
            }
            KeySource::Query(name) => {
                let parameters = query.into_iter().flat_map(query_parameters);
                parameters
                    .filter(|(parameter, _)| is_parameter(parameter, name))
                    .try_for_each(|(_, value)| take(&decoded(value)))?;
            }
        }
    }
    Ok(found)
}

/// The token of `Bearer <token>`; the scheme's case does not matter (RFC 9110, section 11.1). A tab
/// is taken for the space: servers that split at white space do, and would find a key there that
/// was not seen here.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"bearer") && matches!(token, [b' ' | b'\t', ..]);
    is_bearer.then(|| token.trim_ascii())
}

/// A query's value as a server reads it: `%xx` decoded, `+` a space. Broken escapes stay.
fn decoded(value: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let pair = (digit(bytes.get(index + 1)), digit(bytes.get(index + 2)));
        match (byte, pair) {
            (b'%', (Some(high), Some(low))) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
                index += 3;
            }
            (b'+', _) => {
                decoded.push(b' ');
                index += 1;
            }
            _ => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    decoded
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
