//! The decision on a request. Pure: no I/O, no clock, no Pingora, so that a request which was never
//! sent can be explained by the same code.
//!
//! Reading order: [`precheck`] (everything that is decided before a bucket is read: client, route
//! and charges), `guard` (malformed requests), `raw_head` (what only their bytes show), `headers`
//! (headers that limits count by), `location` (whether a redirect has a URL), `decision` (the
//! decision that follows from the store's answer), `label` (its labels in logs and metrics),
//! `outcome` (how a complete request counts), `problem` (status and detail of a refusal), `reason`
//! (its code in logs and metrics), `applicability` (which rules apply to a client without a
//! request).

pub mod applicability;
pub mod decision;
pub mod guard;
pub mod headers;
pub mod label;
mod location;
pub mod outcome;
pub mod problem;
pub mod raw_head;
pub mod reason;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, Version};

use crate::client::ClientKey;
use crate::client::credential::{Credential, IdentityError};
use crate::client::identity::{Identity, Peer, identify};
use crate::client::principal::Found;
use crate::client::settings::{OnMissingKey, OnPreflight, OnUnknownKey};
use crate::limit::charge::Charges;
use crate::net::framing;
use crate::policy::Policy;
use crate::policy::charges::{KeyRequired, RequestAttributes, Scope};
use crate::policy::handling::NoLocation;
use crate::policy::hosts;
use crate::policy::ip_access::IpDenial;
use crate::policy::matcher::RequestParts;
use crate::policy::path::PathError;
use crate::policy::rewrite::Rewrite;
use guard::Malformed;
use headers::UncountableHeader;
use raw_head::RawHead;

/// The parts of a request that the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// HTTP version of the request.
    pub version: Version,
    /// Request method, case-sensitive.
    pub method: &'a Method,
    /// Target as received, with the query.
    pub target: &'a [u8],
    /// The target as Pingora parsed it.
    pub uri: &'a Uri,
    /// Request headers, before any is removed for the upstream.
    pub headers: &'a HeaderMap,
    /// Address of the client's end of the connection; `None` on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Whether `peer` is a proxy that only passes bytes on, and sent no address of the client:
    /// forwarding headers are then the client's own.
    pub is_client_hidden: bool,
    /// What only the bytes of the head show.
    pub raw: RawHead,
    /// Subject of the client's certificate, which has been verified; `None` without one.
    pub certificate: Option<&'a str>,
}

/// Everything that is decided about a request before a bucket is read.
#[derive(Clone, Debug)]
pub struct Precheck<'a> {
    /// The client and where its key came from, or why the request was refused before.
    pub identity: Result<Identity, Rejection>,
    /// Host of the request, in lower case, without port and without a final dot.
    pub host: Cow<'a, str>,
    /// Whether the client asks for its own limits (`clients.limits_path`). Such a request has no
    /// route, and no charges unless its key is missing or unknown.
    pub is_own_limits: bool,
    /// Index of the route.
    pub route: Option<u32>,
    /// Path that the upstream gets, if the route rewrites it.
    pub rewritten: Option<String>,
    /// What the request takes from buckets, even if it is refused afterwards.
    pub charges: Charges,
    /// Which rules can charge the request.
    pub scope: Scope,
    /// Why the request is refused even if every bucket holds the cost. `None` if
    /// [`identity`](Self::identity) is an error: see [`refused`](Self::refused).
    pub refusal: Option<Refusal>,
}

/// Why a request is refused whatever its buckets hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Before any bucket is read.
    Rejected(Rejection),
    /// After the rules that count by address have charged it.
    Unauthenticated(Unauthenticated),
}

/// Why a request is refused before any bucket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The request is malformed.
    Malformed(Malformed),
    /// The path is invalid, or ambiguous.
    Path(PathError),
    /// The client cannot be identified.
    Identity(IdentityError),
    /// The client asks for its own limits by another method than GET, HEAD or OPTIONS.
    OwnLimitsMethod,
    /// No route matches the host, the path and the method.
    NoRoute,
    /// Its `Content-Length` is larger than the route's `max_body_bytes`.
    BodyTooLarge {
        /// The route's maximum.
        max_bytes: u64,
    },
    /// The method is TRACE, which no matching route names.
    TraceNotNamed,
    /// The client's address may not send requests: see `allow_ips` and `deny_ips`.
    IpDenied(IpDenial),
    /// The route is in maintenance.
    Maintenance {
        /// When the client is to try again, in seconds.
        retry_after_s: Option<u64>,
    },
    /// The route redirects, and has no URL for the request.
    NoLocation(NoLocation),
    /// A limit cannot count by one of the headers.
    Header(UncountableHeader),
    /// As many requests wait because of leaky buckets as `server.limits.max_waiting_requests`
    /// allows.
    QueueFull,
    /// As many requests are in flight at the upstream as `max_in_flight` allows for the priority of
    /// the client's plan.
    Shed,
}

/// Why a request needs an API key, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unauthenticated {
    /// It has none, and `clients.on_missing_key = "deny"`.
    KeyMissing,
    /// It has none, and a rule demands one (`on_missing = "deny"`).
    KeyRequired(KeyRequired),
    KeyUnknown {
        /// Where the key was, as an index into the sources of keys (`clients.api_key`).
        source: usize,
    },
}

impl<'a> Head<'a> {
    /// The head of a parsed request. `target` is the target as received.
    pub fn of(
        request: &'a http::request::Parts,
        target: &'a [u8],
        peer: Option<IpAddr>,
        raw: RawHead,
    ) -> Self {
        Self {
            version: request.version,
            method: &request.method,
            target,
            uri: &request.uri,
            headers: &request.headers,
            peer,
            is_client_hidden: false,
            raw,
            certificate: None,
        }
    }

    /// The same over a connection whose proxy hides the client, or does not.
    pub fn with_hidden_client(self, is_client_hidden: bool) -> Self {
        Self { is_client_hidden, ..self }
    }

    /// The same over a connection whose client certificate has this subject.
    pub fn with_certificate(self, subject: Option<&'a str>) -> Self {
        Self { certificate: subject, ..self }
    }
}

impl<'a> Precheck<'a> {
    /// The properties of the request that rules count by; `None` if it has no route.
    pub fn attributes(&'a self, head: &Head<'a>) -> Option<RequestAttributes<'a>> {
        let Head { method, headers, .. } = *head;
        Some(RequestAttributes { route: self.route?, method, host: &self.host, headers })
    }

    /// Why the request is refused whatever its buckets hold.
    pub fn refused(&self) -> Option<Refusal> {
        self.identity.as_ref().err().copied().map(Refusal::Rejected).or(self.refusal)
    }

    /// Index of the rule that demands an API key of the request, which has none.
    pub const fn key_required_by(&self) -> Option<u32> {
        match self.refusal {
            Some(Refusal::Unauthenticated(Unauthenticated::KeyRequired(KeyRequired { rule }))) => {
                Some(rule)
            }
            _ => None,
        }
    }

    fn rejected(self, rejection: Rejection) -> Self {
        Self { refusal: Some(Refusal::Rejected(rejection)), ..self }
    }
}

impl<'a> Head<'a> {
    /// The parts that the conditions of routes are about, beside host and path.
    pub const fn parts(&self) -> RequestParts<'a> {
        RequestParts { method: self.method, headers: self.headers }
    }
}

/// The API key of a request, to be looked up in [`Policy::keys`].
///
/// # Errors
/// The request is malformed, or its client cannot be identified.
pub fn credential(policy: &Policy, head: &Head<'_>) -> Result<Option<Credential>, Rejection> {
    guard::check(&policy.server, head).map_err(Rejection::Malformed)?;
    Credential::of(&policy.clients, head.headers, head.uri.query()).map_err(Rejection::Identity)
}

/// Decides everything else about a request that needs no bucket. `found` is the result of the
/// look-up of its [`credential`].
pub fn precheck<'a>(
    policy: &Policy,
    head: &Head<'a>,
    found: Result<Found, Rejection>,
) -> Precheck<'a> {
    let mut precheck = Precheck {
        identity: found.map(|found| identity(policy, head, found)),
        host: host(head.headers),
        is_own_limits: false,
        route: None,
        rewritten: None,
        charges: Charges::new(),
        scope: Scope::All,
        refusal: None,
    };
    let Ok(identity) = &precheck.identity else { return precheck };
    let is_own_limits =
        policy.clients.is_limits_path(head.uri.path(), policy.server.ignore_path_case);
    let found = if is_own_limits {
        Ok(None)
    } else {
        policy.router.find(&precheck.host, head.uri.path(), head.parts())
    };
    precheck.route = found.ok().flatten();
    precheck.is_own_limits = is_own_limits;
    if let Some(access) = policy.ip_access(precheck.route)
        && let Some(denial) = access.denial(identity.client.ip)
    {
        return precheck.rejected(Rejection::IpDenied(denial));
    }
    if is_own_limits {
        return own_limits(policy, head, precheck);
    }
    match found {
        Ok(Some(_)) => {}
        Ok(None) if *head.method == Method::TRACE => {
            return precheck.rejected(Rejection::TraceNotNamed);
        }
        Ok(None) => return precheck.rejected(Rejection::NoRoute),
        Err(error) => return precheck.rejected(Rejection::Path(error)),
    }
    if let Some(retry_after_s) = maintenance(policy, identity, precheck.route) {
        return precheck.rejected(Rejection::Maintenance { retry_after_s });
    }
    match rewritten(policy, head, precheck.route) {
        Ok(path) => precheck.rewritten = path,
        Err(error) => return precheck.rejected(Rejection::Path(error)),
    }
    if let Some(max_bytes) = exceeded_body_limit(policy, head, precheck.route) {
        return precheck.rejected(Rejection::BodyTooLarge { max_bytes });
    }
    let precheck = charge(policy, head, precheck);
    with_location(policy, head, precheck)
}

/// Refuses a request whose route has no URL to redirect it to, before it takes a token. Guessing
/// keys must cost as much here as elsewhere: a request with an unknown key is charged by the rules
/// that count by address.
fn with_location<'a>(policy: &Policy, head: &Head<'a>, precheck: Precheck<'a>) -> Precheck<'a> {
    let (None, Ok(identity)) = (precheck.refusal, &precheck.identity) else { return precheck };
    let Some(missing) = location::missing(policy, head, identity, &precheck) else {
        return precheck;
    };
    let charges = match precheck.attributes(head) {
        Some(attributes) if may_be_guessed(identity) => {
            policy.address_charges(&identity.client, &attributes)
        }
        _ => Charges::new(),
    };
    Precheck { charges, scope: Scope::Address, ..precheck }.rejected(Rejection::NoLocation(missing))
}

/// Whether the request has a key that is unknown.
fn may_be_guessed(identity: &Identity) -> bool {
    identity.key_from.is_some() && identity.client.principal().is_none()
}

/// The `Retry-After` of a route that does not serve the client, in seconds; the outer none: it
/// serves the client.
#[allow(clippy::option_option, reason = "no maintenance and no time are different things")]
fn maintenance(policy: &Policy, identity: &Identity, route: Option<u32>) -> Option<Option<u64>> {
    let route = policy.routes.get(route? as usize)?;
    let maintenance = route.handling.as_ref()?.maintenance.as_ref()?;
    maintenance.applies_to(identity.client.ip).then_some(maintenance.retry_after_s)
}

/// The path that the upstream gets, if the route rewrites it.
fn rewritten(
    policy: &Policy,
    head: &Head<'_>,
    route: Option<u32>,
) -> Result<Option<String>, PathError> {
    let route = route.and_then(|route| policy.routes.get(route as usize));
    let rewrite = route.and_then(|route| route.handling.as_ref()?.rewrite.as_ref());
    let path = |rewrite: &Rewrite| rewrite.path(head.uri.path()).ok_or(PathError::Unrewritable);
    rewrite.map(path).transpose()
}

/// The route's `max_body_bytes` if the request's `Content-Length` is larger.
fn exceeded_body_limit(policy: &Policy, head: &Head<'_>, route: Option<u32>) -> Option<u64> {
    let digits = framing::content_length(head.headers)?;
    let max_bytes = policy.routes.get(route? as usize)?.max_body_bytes?;
    // Digits that are no u64 are a larger number.
    let is_within = digits.parse().is_ok_and(|length: u64| length <= max_bytes);
    (!is_within).then_some(max_bytes)
}

/// A request of a client for its own limits. Guessing keys must cost as much here as on any route:
/// the rules that count by address charge a request with an unknown key, whether it is refused or
/// not.
fn own_limits<'a>(policy: &Policy, head: &Head<'a>, precheck: Precheck<'a>) -> Precheck<'a> {
    let Ok(identity) = &precheck.identity else { return precheck };
    let client = &identity.client;
    let reason = match *head.method {
        // A preflight request of a browser has no key.
        Method::OPTIONS => return precheck,
        Method::GET | Method::HEAD => unauthenticated(policy, identity),
        _ => return precheck.rejected(Rejection::OwnLimitsMethod),
    };
    if reason.is_none() && !may_be_guessed(identity) {
        return precheck;
    }
    let charges =
        policy.address_charges_anywhere(client, head.method, &precheck.host, head.headers);
    let refusal = reason.map(Refusal::Unauthenticated);
    Precheck { charges, scope: Scope::Address, refusal, ..precheck }
}

fn identity(policy: &Policy, head: &Head<'_>, found: Found) -> Identity {
    let peer = Peer { address: head.peer, is_relay: head.is_client_hidden };
    let certificate = head.certificate.filter(|_| policy.counts_certificates);
    let trusted = &policy.server.trusted_proxies;
    identify(&policy.clients, trusted, (peer, head.headers), certificate, found)
}

/// Adds the charges of a request whose client and route are known. Without a valid key, the rules
/// that count by address charge it before it is refused, and may deny it first: otherwise guesses
/// at keys would be free.
fn charge<'a>(policy: &Policy, head: &Head<'a>, precheck: Precheck<'a>) -> Precheck<'a> {
    let Ok(identity) = &precheck.identity else { return precheck };
    let Some(attributes) = precheck.attributes(head) else { return precheck };
    let client = &identity.client;
    let is_open_preflight = policy.clients.on_preflight == OnPreflight::Anonymous
        && client.key == ClientKey::Missing
        && identity.key_from.is_none()
        && is_preflight(head);
    let (scope, mut reason) = if is_open_preflight {
        (Scope::Preflight, None)
    } else {
        (Scope::All, unauthenticated(policy, identity))
    };
    if reason.is_none()
        && let Some(header) = headers::uncountable(policy, client, &attributes, scope)
    {
        return precheck.rejected(Rejection::Header(header));
    }
    let mut charges = Charges::new();
    if reason.is_none() {
        match policy.charges(client, &attributes, scope) {
            Ok(all) => charges = all,
            Err(required) => reason = Some(Unauthenticated::KeyRequired(required)),
        }
    }
    let Some(reason) = reason else { return Precheck { charges, scope, ..precheck } };
    let charges = policy.address_charges(client, &attributes);
    let refusal = Some(Refusal::Unauthenticated(reason));
    Precheck { charges, scope: Scope::Address, refusal, ..precheck }
}

/// Whether this is a CORS preflight request: a browser asks whether a page may send another
/// request. It carries no credentials (Fetch standard, section "CORS-preflight fetch").
fn is_preflight(head: &Head<'_>) -> bool {
    *head.method == Method::OPTIONS
        && head.headers.contains_key(http::header::ORIGIN)
        && head.headers.contains_key(http::header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Why `[clients]` refuses the client for its key.
fn unauthenticated(policy: &Policy, identity: &Identity) -> Option<Unauthenticated> {
    let clients = &policy.clients;
    match &identity.client.key {
        ClientKey::Known(_) => None,
        ClientKey::Missing => {
            // An unknown key that counts as none is still what to correct.
            let unknown = identity.key_from.map(|source| Unauthenticated::KeyUnknown { source });
            (clients.on_missing_key == OnMissingKey::Deny)
                .then_some(unknown.unwrap_or(Unauthenticated::KeyMissing))
        }
        ClientKey::Unknown(_) => {
            let source = identity.key_from.unwrap_or_default();
            (clients.on_unknown_key == OnUnknownKey::Deny)
                .then_some(Unauthenticated::KeyUnknown { source })
        }
    }
}

/// Host of a request as routes compare it; empty without one.
pub fn host(headers: &HeaderMap) -> Cow<'_, str> {
    let header = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    hosts::normalized(header.unwrap_or_default())
}

#[cfg(test)]
mod tests;
