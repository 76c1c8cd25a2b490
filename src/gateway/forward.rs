//! What the API gets to see of a request: forwarding headers that it can believe, and the key
//! only where it should.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use pingora::prelude::{Error, ErrorType, RequestHeader, Result};
use pingora::protocols::l4::socket::SocketAddr;

use super::exchange::Exchange;
use super::header_text::HeaderText;
use crate::identity;
use crate::policy::Policy;
use crate::policy::settings::{Clients, KeySource};

pub(super) const REQUEST_ID: &str = "X-Request-Id";
const FORWARDED_FOR: &str = "X-Forwarded-For";
pub(super) const FORWARDED_PROTO: &str = "X-Forwarded-Proto";
const FORWARDED_HOST: &str = "X-Forwarded-Host";

/// What clients say of themselves under these names is dropped unless a trusted proxy passed it
/// on, since APIs believe it. The first four are then set anew.
const FORWARDING: [&str; 6] =
    [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, REQUEST_ID, "Forwarded", "X-Real-IP"];

/// What these names begin with, in lower case; `x-` alone is how many a key's header begins.
const FORWARDING_BEGIN: [&str; 3] = ["x-forwarded", "x-re", "forwarded"];

/// Prepares the request that is sent on. `peer` is the connection's other end.
///
/// # Errors
/// A value that is no header or target, which a request that was read cannot have.
pub(super) fn prepare(
    peer: Option<&SocketAddr>,
    request: &mut RequestHeader,
    exchange: &Exchange,
) -> Result<()> {
    let clients = &exchange.snapshot.policy.clients;
    if !matches!(request.raw_path(), [b'/' | b'*', ..]) {
        // A URL, as proxies are asked; an origin is asked for the path, which is all that Pingora
        // keeps beside the target as it came (RFC 9112, section 3.2.1).
        request.set_uri(request.uri.clone());
    }
    let suspects = Suspects::among(&request.headers);
    if suspects.aliases {
        drop_aliases(request, &exchange.snapshot.policy);
    }
    if suspects.forwarding && !exchange.via_trusted_proxy {
        for name in FORWARDING {
            request.remove_header(name);
        }
    }
    let is_told = suspects.forwarding && exchange.via_trusted_proxy;
    set_forwarding(peer, request, exchange, is_told)?;
    if suspects.content_length
        && let Some(length) = one_length(&request.headers)
    {
        request.insert_header(header::CONTENT_LENGTH, length)?;
    }
    if clients.hide_key {
        hide_key(request, clients)?;
    }
    Ok(())
}

/// What else there may be to do, by one look at each name. Most requests have nothing of it, and a
/// search for every name that might be there costs more.
#[derive(Default)]
struct Suspects {
    /// A name with `_`.
    aliases: bool,
    /// A name that begins as those of [`FORWARDING`] do.
    forwarding: bool,
    /// A body of a known length.
    content_length: bool,
}

impl Suspects {
    fn among(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            found.content_length |= *name == header::CONTENT_LENGTH;
            let name = name.as_str();
            found.aliases |= name.contains('_');
            found.forwarding |= FORWARDING_BEGIN.iter().any(|begin| name.starts_with(begin));
        }
        found
    }
}

/// Drops headers that servers which take `_` for `-` would read as ones that we check or set.
fn drop_aliases(request: &mut RequestHeader, policy: &Policy) {
    let odd = |name: &&HeaderName| name.as_str().contains('_');
    let suspects: Vec<HeaderName> = request.headers.keys().filter(odd).cloned().collect();
    let sources = || {
        policy.clients.key_sources.iter().filter_map(|source| match source {
            KeySource::Header(name) => Some(name.as_str()),
            KeySource::Bearer | KeySource::Query(_) => None,
        })
    };
    for name in suspects {
        let counted = policy.counted_headers.iter().map(HeaderName::as_str);
        let mut ours = FORWARDING.into_iter().chain(sources()).chain(counted);
        if ours.any(|own| identity::is_alias(name.as_str(), own)) {
            request.remove_header(&name);
        }
    }
}

/// `is_told`: a trusted proxy may have said some of it already.
fn set_forwarding(
    peer: Option<&SocketAddr>,
    request: &mut RequestHeader,
    exchange: &Exchange,
    is_told: bool,
) -> Result<()> {
    let mut hops = HeaderText::new();
    if is_told {
        for line in &request.headers.get_all(FORWARDED_FOR) {
            hops.element(line.as_bytes());
        }
    }
    if let Some(peer) = peer.and_then(SocketAddr::as_inet) {
        hops.address(identity::address::canonical(peer.ip()));
    }
    if !hops.is_empty() {
        request.insert_header(FORWARDED_FOR, hops)?;
    }
    if !(is_told && request.headers.contains_key(FORWARDED_PROTO)) {
        request.insert_header(FORWARDED_PROTO, HeaderValue::from_static("http"))?;
    }
    if !(is_told && request.headers.contains_key(FORWARDED_HOST))
        && let Some(host) = request.headers.get(header::HOST).cloned()
    {
        request.insert_header(FORWARDED_HOST, host)?;
    }
    request.insert_header(REQUEST_ID, exchange.request_id.as_str())
}

/// The length that stands for several equal ones, in lines of their own or in a list; none where
/// there is but one. Pingora lets such pass; whoever reads them next may not, or may read them
/// otherwise. RFC 9110, section 8.6, demands one.
pub(super) fn one_length(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let (first, second) = (lines.next()?, lines.next().is_some());
    let length = first.as_bytes().split(|byte| *byte == b',').next()?.trim_ascii();
    let is_one = !second && length.len() == first.len();
    if is_one { None } else { HeaderValue::from_bytes(length).ok() }
}

fn hide_key(request: &mut RequestHeader, clients: &Clients) -> Result<()> {
    for source in &clients.key_sources {
        match source {
            KeySource::Header(name) => {
                request.remove_header(name);
            }
            KeySource::Bearer => hide_bearer(request)?,
            KeySource::Query(name) => hide_parameter(request, name)?,
        }
    }
    Ok(())
}

/// Takes out the lines of `Authorization` that hold a key; those of other schemes stay.
fn hide_bearer(request: &mut RequestHeader) -> Result<()> {
    let is_key = |value: &&HeaderValue| identity::bearer(value.as_bytes()).is_some();
    let lines = request.headers.get_all(header::AUTHORIZATION);
    if !lines.iter().any(|value| is_key(&value)) {
        return Ok(());
    }
    let kept: Vec<HeaderValue> = lines.iter().filter(|value| !is_key(value)).cloned().collect();
    request.remove_header(&header::AUTHORIZATION);
    for value in kept {
        request.append_header(header::AUTHORIZATION, value)?;
    }
    Ok(())
}

/// Takes a parameter out of the query and leaves the rest as it came.
fn hide_parameter(request: &mut RequestHeader, name: &str) -> Result<()> {
    let Some(query) = request.uri.query() else { return Ok(()) };
    let is_key = |parameter: &&str| {
        let bare = parameter.split_once('=').map_or(*parameter, |(bare, _)| bare);
        identity::is_parameter(bare, name)
    };
    if !query.split('&').any(|parameter| is_key(&parameter)) {
        return Ok(());
    }
    let kept: Vec<&str> = query.split('&').filter(|parameter| !is_key(parameter)).collect();
    let path = request.uri.path();
    let target =
        if kept.is_empty() { path.to_string() } else { format!("{path}?{}", kept.join("&")) };
    let mut parts = request.uri.clone().into_parts();
    let broken = |_| Error::new(ErrorType::InvalidHTTPHeader);
    parts.path_and_query = Some(target.parse().map_err(broken)?);
    request.set_uri(Uri::from_parts(parts).map_err(|_| Error::new(ErrorType::InvalidHTTPHeader))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_dropped_is_looked_for() {
        for name in FORWARDING {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("x"));
            assert!(Suspects::among(&headers).forwarding, "{name}");
        }
    }
}
