//! The request as it is forwarded to the upstream: with forwarding headers that the upstream can
//! trust, and without the API key if `clients.hide_key` is set.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use percent_encoding::{CONTROLS, percent_encode, utf8_percent_encode};
use pingora::prelude::{Error, ErrorType, RequestHeader, Result};
use pingora::protocols::l4::socket::SocketAddr;

use crate::base::request_id::RequestId;
use crate::client::address::canonical;
use crate::client::auth_answer::AuthAnswer;
use crate::client::credential;
use crate::client::password;
use crate::client::settings::{Clients, KeySource};
use crate::gateway::exchange::Exchange;
use crate::gateway::header_edits::{self, Subject};
use crate::gateway::header_text::HeaderText;
use crate::net::{forwarding, framing};
use crate::policy::Policy;
use crate::policy::handling::UpstreamHost;
use crate::policy::rewrite::Rewrite;

pub(in crate::gateway) const REQUEST_ID: &str = "X-Request-Id";
const FORWARDED_FOR: &str = "X-Forwarded-For";
pub(in crate::gateway) const FORWARDED_PROTO: &str = "X-Forwarded-Proto";
const FORWARDED_HOST: &str = "X-Forwarded-Host";
const FORWARDED_PREFIX_NAME: &str = "X-Forwarded-Prefix";

/// Headers that decide where a request ends.
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];

/// CGI hands it to programs as the variable `HTTP_PROXY`, which names the proxy for their own
/// requests (httpoxy). No client uses it.
const PROXY: &str = "proxy";

/// Prepares the request for the upstream. `peer` is the address of the client's end of the
/// connection.
///
/// # Errors
/// If a value is not valid in a header or as a target, which cannot happen with a head that was
/// parsed.
pub(in crate::gateway) fn prepare(
    peer: Option<&SocketAddr>,
    request: &mut RequestHeader,
    exchange: &Exchange,
) -> Result<()> {
    let clients = &exchange.snapshot.policy.clients;
    if !matches!(request.raw_path(), [b'/' | b'*', ..]) {
        // A URL, as clients send to a proxy. An origin server gets the path (RFC 9112, section
        // 3.2.1), which is all that the parsed URI has.
        request.set_uri(request.uri.clone());
    }
    if !request.raw_path().is_ascii() {
        // curl sends the letters of a URL as they are. Not all servers accept them.
        let encoded = percent_encode(request.raw_path(), CONTROLS).to_string();
        request.set_raw_path(encoded.as_bytes())?;
    }
    let present = Present::among(&request.headers);
    if present.aliases || (present.forwarding && !exchange.via_trusted_proxy()) {
        remove_untrusted(request, exchange);
    }
    let keeps_forwarding = present.forwarding && exchange.via_trusted_proxy();
    set_forwarding(peer, request, exchange, keeps_forwarding)?;
    if present.content_length
        && let Some(length) = framing::one_length(&request.headers)
    {
        request.insert_header(header::CONTENT_LENGTH, length)?;
    }
    if !request.headers.contains_key(header::HOST) {
        // Of HTTP/1.0. The upstream gets HTTP/1.1, which requires one (RFC 9112, section 3.2).
        request.insert_header(header::HOST, HeaderValue::from_static(""))?;
    }
    if clients.hide_key {
        hide_key(request, clients)?;
    } else if let Some(passwords) = &exchange.snapshot.policy.passwords
        && passwords.is_hidden
    {
        hide_login(request)?;
    }
    if !clients.issuers.is_empty() || !clients.claim_headers.is_empty() || clients.introspects {
        set_claims(request, clients, exchange)?;
    }
    let Some(handling) = exchange.handling() else { return Ok(()) };
    // Variables have the values of the client's request.
    let subject = Subject::for_request(request, handling);
    let rewritten = exchange.judged.as_ref().and_then(|judged| judged.rewritten.as_deref());
    if let Some((rewrite, path)) = handling.rewrite.as_ref().zip(rewritten) {
        rewrite_path(request, rewrite, path, exchange)?;
    }
    match &handling.upstream_host {
        None => {}
        Some(UpstreamHost::Fixed(host)) => request.insert_header(header::HOST, host.clone())?,
        Some(UpstreamHost::OfServer) => {
            if let Some(host) = host_of_server(exchange) {
                request.insert_header(header::HOST, host)?;
            }
        }
    }
    header_edits::edit_request(request, subject.as_ref(), exchange)
}

/// The identifier that a trusted proxy has given a request.
pub(in crate::gateway) fn given_id(request: &RequestHeader) -> Option<RequestId> {
    RequestId::adopt(request.headers.get(REQUEST_ID)?.as_bytes())
}

/// Replaces the path, and announces the prefix that was taken away. The query stays.
fn rewrite_path(
    request: &mut RequestHeader,
    rewrite: &Rewrite,
    path: &str,
    exchange: &Exchange,
) -> Result<()> {
    let mut target = utf8_percent_encode(path, CONTROLS).to_string();
    if let Some(query) = request.uri.query() {
        target.push('?');
        target.push_str(query);
    }
    request.set_raw_path(target.as_bytes())?;
    if let Rewrite::Prefix(rewrite) = rewrite
        && rewrite.is_announced
    {
        let outer =
            request.headers.get(FORWARDED_PREFIX_NAME).filter(|_| exchange.via_trusted_proxy());
        let outer =
            outer.and_then(|outer| outer.to_str().ok()).map(|outer| outer.trim_end_matches('/'));
        let outer = outer.filter(|outer| outer.starts_with('/')).unwrap_or_default();
        request.insert_header(FORWARDED_PREFIX_NAME, format!("{outer}{}", rewrite.prefix))?;
    }
    Ok(())
}

/// The host of the server that was selected, as configured, with the port unless it is that of the
/// scheme.
fn host_of_server(exchange: &Exchange) -> Option<String> {
    let server = exchange.pool()?.server(exchange.attempts.last()?.server)?;
    let is_tls = exchange.upstream()?.tls.is_some();
    let default_port = if is_tls { 443 } else { 80 };
    let text = server.to_string();
    let port = format!(":{default_port}");
    Some(text.strip_suffix(&port).map_or(text.clone(), str::to_owned))
}

/// Kinds of headers that a request has, found in one pass over the names. Most requests have none
/// of them, and a look-up of every name would cost more.
#[derive(Default)]
struct Present {
    /// A name with an underscore, or [`PROXY`].
    aliases: bool,
    /// A name that may be one of [`forwarding`].
    forwarding: bool,
    /// Whether there is a `Content-Length`.
    content_length: bool,
}

impl Present {
    fn among(headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys() {
            present.content_length |= *name == header::CONTENT_LENGTH;
            present.aliases |= name.as_str().contains('_') || name.as_str() == PROXY;
            present.forwarding |= forwarding::may_be_forwarding(name);
        }
        present
    }
}

/// Removes [`PROXY`], forwarding headers that do not come from a trusted proxy, and headers that
/// some servers read as others which the gateway checks or sets, because they treat `_` as `-`.
fn remove_untrusted(request: &mut RequestHeader, exchange: &Exchange) {
    let is_untrusted = |name: &&HeaderName| {
        let is_alias = name.as_str().contains('_');
        if name.as_str() == PROXY {
            true
        } else if forwarding::is_forwarding(name.as_str()) {
            is_alias || !exchange.via_trusted_proxy()
        } else {
            is_alias && is_alias_of_ours(name.as_str(), &exchange.snapshot.policy)
        }
    };
    let untrusted: Vec<HeaderName> = request.headers.keys().filter(is_untrusted).cloned().collect();
    for name in untrusted {
        request.remove_header(&name);
    }
}

/// Whether upstreams may read a header as one of an API key, one that limits count by, or one of
/// [`FRAMING`].
fn is_alias_of_ours(name: &str, policy: &Policy) -> bool {
    let sources = policy.clients.key_sources.iter().filter_map(|source| match source {
        KeySource::Header(name) => Some(name.as_str()),
        KeySource::Bearer | KeySource::Query(_) | KeySource::Basic => None,
    });
    let counted = policy.counted_headers.iter().map(HeaderName::as_str);
    FRAMING.into_iter().chain(sources).chain(counted).any(|own| credential::is_alias(name, own))
}

/// Sets the forwarding headers. With `keeps_forwarding`, those that a trusted proxy sent are kept
/// or extended.
fn set_forwarding(
    peer: Option<&SocketAddr>,
    request: &mut RequestHeader,
    exchange: &Exchange,
    keeps_forwarding: bool,
) -> Result<()> {
    let mut hops = HeaderText::new();
    if keeps_forwarding {
        for line in &request.headers.get_all(FORWARDED_FOR) {
            hops.element(line.as_bytes());
        }
    }
    if let Some(peer) = peer.and_then(SocketAddr::as_inet) {
        hops.address(canonical(peer.ip()));
    }
    if !hops.is_empty() {
        request.insert_header(FORWARDED_FOR, hops)?;
    }
    if !(keeps_forwarding && request.headers.contains_key(FORWARDED_PROTO)) {
        let scheme = if exchange.connection.tls.is_some() { "https" } else { "http" };
        request.insert_header(FORWARDED_PROTO, HeaderValue::from_static(scheme))?;
    }
    if !(keeps_forwarding && request.headers.contains_key(FORWARDED_HOST))
        && let Some(host) = request.headers.get(header::HOST).cloned()
    {
        request.insert_header(FORWARDED_HOST, host)?;
    }
    request.insert_header(REQUEST_ID, exchange.request_id.as_str())
}

/// Whether two names are one to servers that treat `_` as `-`.
fn is_read_as(name: &str, own: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == own.len() && name.bytes().map(dashed).eq(own.bytes().map(dashed))
}

/// Sets the headers of the client's token and of the server that was asked about the request, and
/// removes the token if the upstream does not get it. Those that the client itself sent are
/// removed, with or without a token: upstreams trust them.
fn set_claims(request: &mut RequestHeader, clients: &Clients, exchange: &Exchange) -> Result<()> {
    let is_ours = |name: &&HeaderName| {
        clients.claim_headers.iter().any(|own| is_read_as(name.as_str(), own.as_str()))
    };
    let own: Vec<HeaderName> = request.headers.keys().filter(is_ours).cloned().collect();
    for name in own {
        request.remove_header(&name);
    }
    let Some(identity) = exchange.identity() else { return Ok(()) };
    if let Some(token) = identity.client.principal().and_then(|known| known.token.as_ref()) {
        for (name, value) in &token.headers {
            request.insert_header(name.clone(), value.clone())?;
        }
        if token.is_hidden && !clients.hide_key {
            hide_key(request, clients)?;
        }
    }
    if let Some(AuthAnswer::Allowed(headers)) = identity.auth.as_deref() {
        let mut previous = None;
        for (name, value) in headers {
            if previous != Some(name) {
                request.remove_header(name);
            }
            request.append_header(name.clone(), value.clone())?;
            previous = Some(name);
        }
    }
    Ok(())
}

fn hide_key(request: &mut RequestHeader, clients: &Clients) -> Result<()> {
    for source in &clients.key_sources {
        match source {
            KeySource::Header(name) => {
                request.remove_header(name);
            }
            KeySource::Bearer => {
                hide_authorization(request, |value| credential::bearer(value).is_some())?;
            }
            KeySource::Basic => hide_login(request)?,
            KeySource::Query(name) => hide_parameter(request, name)?,
        }
    }
    Ok(())
}

/// Removes users and passwords.
fn hide_login(request: &mut RequestHeader) -> Result<()> {
    hide_authorization(request, |value| password::encoded_login(value).is_some())
}

/// Removes the lines of `Authorization` with a credential; those of other schemes stay.
fn hide_authorization(
    request: &mut RequestHeader,
    is_credential: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    let is_key = |value: &&HeaderValue| is_credential(value.as_bytes());
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

/// Removes a parameter from the query and leaves the rest unchanged.
fn hide_parameter(request: &mut RequestHeader, name: &str) -> Result<()> {
    let Some(query) = request.uri.query() else { return Ok(()) };
    let is_key = |parameter: &&str| {
        let bare = parameter.split_once('=').map_or(*parameter, |(bare, _)| bare);
        credential::is_parameter(bare, name)
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
    fn every_forwarding_header_is_detected() {
        let names = ["x-forwarded", "x-forwarded-for", "x-forwarded-port", "x_forwarded-ssl"];
        for name in names.into_iter().chain(["forwarded", "x-real-ip", "x-request-id"]) {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("x"));
            let present = Present::among(&headers);
            assert!(present.forwarding || present.aliases, "{name}");
            assert!(forwarding::is_forwarding(name), "{name}");
        }
        for name in ["x-forward", "forwarded-for", "x-real-ips", "x-api-key", "x-request"] {
            assert!(!forwarding::is_forwarding(name), "{name}");
        }
    }
}
