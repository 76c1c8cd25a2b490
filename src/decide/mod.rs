//! The decision on a request. Pure: no I/O, no clock, no Pingora, so that a request which was never
//! sent can be explained by the same code.
//!
//! Reading order: `step` (the order of everything that can end a request), [`precheck`] (everything
//! that is decided before a bucket is read: client, route and charges), `guard` (malformed
//! requests), `raw_head` (what only their bytes show), `headers` (headers that limits count by),
//! `location` (whether a redirect has a URL), `decision` (the decision that follows from the
//! store's answer), `label` (its labels in logs and metrics), `outcome` (how a complete request
//! counts), `own_key` (clients that replace their own keys), `problem` (status and detail of a
//! refusal), `reason` (its code in logs and metrics), `applicability` (which rules apply to a
//! client without a request).

pub mod applicability;
pub mod decision;
pub mod guard;
pub mod headers;
pub mod label;
mod location;
pub mod outcome;
pub mod own_key;
pub mod problem;
pub mod raw_head;
pub mod reason;
pub mod step;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, Version};

use crate::client::credential::{Credential, IdentityError};
use crate::client::identity::{Identity, Peer, client_address, identify};
use crate::client::principal::{Found, KeyRefusal};
use crate::client::settings::{OnMissingKey, OnPreflight, OnUnknownKey};
use crate::client::{ClientKey, address};
use crate::limit::charge::Charges;
use crate::net::framing;
use crate::policy::charges::{KeyRequired, RequestAttributes, Scope};
use crate::policy::cors::{Preflight, PreflightRefusal};
use crate::policy::handling::NoLocation;
use crate::policy::hosts;
use crate::policy::ip_access::{IpAccess, IpDenial};
use crate::policy::matcher::RequestParts;
use crate::policy::path::PathError;
use crate::policy::rewrite::{Rewrite, RewriteError};
use crate::policy::template::{NamedValues, Values};
use crate::policy::{Policy, Route};
use guard::Malformed;
use headers::UncountableHeader;
use own_key::RotationRefusal;
use raw_head::RawHead;
use step::Step;

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
    /// The CORS preflight request that this is, if the gateway itself answers it or refuses it. Its
    /// route is that of the request which it is about, and it has no charges.
    pub preflight: Option<Preflight<'a>>,
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
    /// The client uses a method at `clients.limits_path` that is not allowed there.
    OwnLimitsMethod,
    /// The client wants to replace its own key.
    Rotation(RotationRefusal),
    /// No route matches the host, the path and the method.
    NoRoute,
    /// A CORS preflight request whose origin or method is not allowed.
    Preflight(PreflightRefusal),
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
    /// It has a token, and the keys of the token's issuer have not been fetched since the start.
    NoTokenKeys,
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
    /// It has a known key or a token, which cannot be used.
    KeyRefused {
        /// Where the key was.
        source: usize,
        /// Why it cannot be used.
        why: KeyRefusal,
    },
}

impl Unauthenticated {
    /// Whether the key may be right, and cannot be checked.
    pub const fn is_unverified(self) -> bool {
        let Self::KeyRefused { why, .. } = self else { return false };
        why.is_unverified()
    }
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
        let path = head.uri.path();
        Some(RequestAttributes { route: self.route?, method, host: &self.host, path, headers })
    }

    /// Why the request is refused whatever its buckets hold.
    pub fn refused(&self) -> Option<Refusal> {
        self.identity.as_ref().err().copied().map(Refusal::Rejected).or(self.refusal)
    }

    /// Whether the request is refused for its key only, so that another one could be served.
    pub const fn depends_on_key(&self) -> bool {
        matches!(self.refusal, Some(Refusal::Unauthenticated(_)))
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
}

impl<'a> Head<'a> {
    /// The query with its question mark; empty without one.
    fn query_with_mark(&self) -> String {
        self.uri.query().map_or_else(String::new, |query| format!("?{query}"))
    }

    /// The values of the request for templates of its route: without its query, its client and its
    /// identifier.
    fn values(&self, host: &'a str, route: &'a Route) -> Values<'a> {
        let params = Some(&route.matcher.params);
        Values {
            client_id: None,
            client_plan: "",
            client_tenant: "",
            client_ip: None,
            request_id: "",
            route: &route.name,
            host,
            method: self.method.as_str(),
            // The encoding of control characters makes no difference here.
            path: self.uri.path().as_bytes(),
            query: b"",
            named: NamedValues::Request { headers: self.headers, params },
        }
    }

    /// The parts that the conditions of routes are about, beside host and path.
    pub fn parts(&self) -> RequestParts<'a> {
        RequestParts { method: self.method, headers: self.headers, query: self.uri.query() }
    }
}

/// The API key or the token of a request, to be looked up in [`Policy::keys`] or verified.
///
/// # Errors
/// The request is malformed, or its client cannot be identified.
pub fn credential<'a>(
    policy: &Policy,
    head: &Head<'a>,
) -> Result<Option<Credential<'a>>, Rejection> {
    guard::check(&policy.server, head).map_err(Rejection::Malformed)?;
    Credential::of(&policy.clients, head.headers, head.uri.query()).map_err(Rejection::Identity)
}

/// Decides everything else about a request that needs no bucket, in the order of [`Step::ALL`].
/// `found` is the result of the look-up of its [`credential`].
pub fn precheck<'a>(
    policy: &Policy,
    head: &Head<'a>,
    found: Result<Found, Rejection>,
) -> Precheck<'a> {
    let mut precheck = Precheck {
        identity: found.map(|found| identity(policy, head, found)),
        host: host(head.headers),
        is_own_limits: false,
        preflight: None,
        route: None,
        rewritten: None,
        charges: Charges::new(),
        scope: Scope::All,
        refusal: None,
    };
    if precheck.identity.is_err() {
        return precheck;
    }
    precheck.is_own_limits =
        policy.clients.is_limits_path(head.uri.path(), policy.server.ignore_path_case);
    let answered = match *head.method {
        Method::OPTIONS => precheck.found_for_preflight(policy, head),
        _ => None,
    };
    let found = match answered {
        Some((preflight, found)) => {
            precheck.preflight = Some(preflight);
            found
        }
        None => precheck.found(policy, head, None),
    };
    precheck.route = found.ok().flatten();
    let last = if precheck.preflight.is_some() { Step::Preflight } else { Step::Buckets };
    let mut steps = Step::ALL.into_iter().filter(|step| *step <= last);
    precheck.refusal = steps.find_map(|step| precheck.take(step, policy, head, found));
    precheck.bound_guesses(policy, head);
    precheck
}

impl<'a> Precheck<'a> {
    /// The route of the request, or of the one that `preflight` is about; or why the path has none.
    fn found(
        &self,
        policy: &Policy,
        head: &Head<'_>,
        preflight: Option<&Preflight<'_>>,
    ) -> Result<Option<u32>, PathError> {
        if self.is_own_limits {
            return Ok(None);
        }
        find_route(policy, &self.host, head.uri.path(), head.parts(), preflight)
    }

    /// The preflight request that this is, with its route; `None` if it is none, or if it is a
    /// request as any other, because `cors` does not apply.
    #[cold]
    fn found_for_preflight(
        &self,
        policy: &Policy,
        head: &Head<'a>,
    ) -> Option<(Preflight<'a>, Result<Option<u32>, PathError>)> {
        let preflight = Preflight::of(head.method, head.headers)?;
        let found = self.found(policy, head, Some(&preflight));
        policy.cors(found.ok().flatten()).is_some().then_some((preflight, found))
    }

    /// Takes a step. Returns why it refuses the request; `None` if it does not, or if the step is
    /// not one of the precheck. `found` is the route, or why the path has none.
    fn take(
        &mut self,
        step: Step,
        policy: &Policy,
        head: &Head<'a>,
        found: Result<Option<u32>, PathError>,
    ) -> Option<Refusal> {
        let identity = self.identity.as_ref().ok()?;
        let client = &identity.client;
        let rejection = match step {
            Step::IpAccess => Rejection::IpDenied(policy.ip_access(self.route)?.denial(client.ip)?),
            Step::OwnLimits => {
                if !self.is_own_limits {
                    return None;
                }
                match *head.method {
                    Method::GET | Method::HEAD | Method::OPTIONS => return None,
                    _ if own_key::is_asked(policy, head.method) => {
                        Rejection::Rotation(own_key::refusal(head)?)
                    }
                    _ => Rejection::OwnLimitsMethod,
                }
            }
            Step::Route => match found {
                Err(error) => Rejection::Path(error),
                Ok(None) if self.is_own_limits || self.preflight.is_some() => return None,
                Ok(None) if *head.method == Method::TRACE => Rejection::TraceNotNamed,
                Ok(None) => Rejection::NoRoute,
                Ok(Some(_)) => return None,
            },
            Step::Preflight => {
                let preflight = self.preflight.as_ref()?;
                let refusal = policy.cors(self.route)?.refusal(preflight);
                // Pages of other sites must not replace keys.
                let is_rotation =
                    || self.is_own_limits && own_key::is_asked(policy, &preflight.method);
                let refusal = refusal.or_else(|| is_rotation().then_some(PreflightRefusal::Method));
                Rejection::Preflight(refusal?)
            }
            Step::Maintenance => {
                let retry_after_s = maintenance(policy, identity, self.route)?;
                Rejection::Maintenance { retry_after_s }
            }
            Step::Rewrite => match rewritten(policy, head, &self.host, self.route) {
                Err(error) => Rejection::Path(error),
                Ok(path) => {
                    self.rewritten = path;
                    return None;
                }
            },
            Step::BodyLength => {
                let max_bytes = exceeded_body_limit(policy, head, self.route)?;
                Rejection::BodyTooLarge { max_bytes }
            }
            Step::Key => return self.check_key(policy, head).map(Refusal::Unauthenticated),
            Step::Headers => {
                let attributes = self.attributes(head)?;
                Rejection::Header(headers::uncountable(policy, client, &attributes, self.scope)?)
            }
            Step::RequiredKey => {
                return self.charge(policy, head).map(Refusal::Unauthenticated);
            }
            Step::Location => {
                Rejection::NoLocation(location::missing(policy, head, identity, self)?)
            }
            Step::AcmeChallenge
            | Step::Redirect
            | Step::Head
            | Step::Credential
            | Step::Shed
            | Step::Queue
            | Step::Buckets => return None,
        };
        Some(Refusal::Rejected(rejection))
    }

    /// Returns why `[clients]` refuses the API key, or the request without one.
    fn check_key(&mut self, policy: &Policy, head: &Head<'_>) -> Option<Unauthenticated> {
        let identity = self.identity.as_ref().ok()?;
        if self.is_own_limits {
            return match *head.method {
                // A preflight request of a browser has no key.
                Method::OPTIONS => None,
                // Without a known key there is none to replace.
                Method::POST => unauthenticated(policy, identity).or_else(|| unknown(identity)),
                _ => unauthenticated(policy, identity),
            };
        }
        if is_open_preflight(policy, head, identity) {
            self.scope = Scope::Preflight;
            return None;
        }
        unauthenticated(policy, identity)
    }

    /// Adds the charges of the rules. Returns the rule that demands an API key, if there is none.
    fn charge(&mut self, policy: &Policy, head: &Head<'_>) -> Option<Unauthenticated> {
        let client = &self.identity.as_ref().ok()?.client;
        match policy.charges(client, &self.attributes(head)?, self.scope) {
            Ok(charges) => {
                self.charges = charges;
                None
            }
            Err(required) => Some(Unauthenticated::KeyRequired(required)),
        }
    }

    /// Replaces the charges of a request that is refused, or that is for the client's own limits.
    /// If it may be a guess at a key, the rules that count by address charge it, and may deny it
    /// first: guesses must cost as much there as anywhere.
    fn bound_guesses(&mut self, policy: &Policy, head: &Head<'a>) {
        let Ok(identity) = &self.identity else { return };
        let (is_guess, scope) = match self.refusal {
            None if !self.is_own_limits => return,
            None if *head.method != Method::OPTIONS && may_be_guessed(identity) => {
                (true, Scope::Address)
            }
            Some(Refusal::Unauthenticated(_)) => (true, Scope::Address),
            Some(Refusal::Rejected(Rejection::NoLocation(_))) => {
                (may_be_guessed(identity), Scope::Address)
            }
            None | Some(Refusal::Rejected(_)) => (false, Scope::All),
        };
        let client = &identity.client;
        let charges = match self.attributes(head) {
            _ if !is_guess => Charges::new(),
            Some(attributes) => policy.address_charges(client, &attributes),
            None => {
                let Head { method, uri, headers, .. } = *head;
                policy.address_charges_anywhere(client, method, &self.host, uri.path(), headers)
            }
        };
        (self.charges, self.scope) = (charges, scope);
    }
}

/// Index of the route of a request that was refused before its route was looked up.
#[cold]
pub fn route_of_refused(policy: &Policy, request: &http::request::Parts) -> Option<u32> {
    let (headers, path) = (&request.headers, request.uri.path());
    if policy.clients.is_limits_path(path, policy.server.ignore_path_case) {
        return None;
    }
    let preflight = Preflight::of(&request.method, headers);
    let parts = RequestParts { method: &request.method, headers, query: request.uri.query() };
    find_route(policy, &host(headers), path, parts, preflight.as_ref()).ok().flatten()
}

/// Index of the route of a request, or of the one that `preflight` is about.
fn find_route(
    policy: &Policy,
    host: &str,
    path: &str,
    request: RequestParts<'_>,
    preflight: Option<&Preflight<'_>>,
) -> Result<Option<u32>, PathError> {
    match preflight {
        None => policy.router.find(host, path, request),
        Some(Preflight { method, .. }) => {
            policy.router.find_for_preflight(host, path, RequestParts { method, ..request })
        }
    }
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
///
/// # Errors
/// The path cannot be rewritten.
pub fn rewritten(
    policy: &Policy,
    head: &Head<'_>,
    host: &str,
    route: Option<u32>,
) -> Result<Option<String>, PathError> {
    let Some(route) = route.and_then(|route| policy.routes.get(route as usize)) else {
        return Ok(None);
    };
    let rewrite = route.handling.as_ref().and_then(|handling| handling.rewrite.as_ref());
    let Some(rewrite) = rewrite else { return Ok(None) };
    let query = match rewrite {
        Rewrite::Prefix(_) => String::new(),
        Rewrite::Path(_) => head.query_with_mark(),
    };
    let values = Values { query: query.as_bytes(), ..head.values(host, route) };
    rewrite.path(&values).map(Some).map_err(|error| match error {
        RewriteError::Prefix => PathError::Unrewritable,
        RewriteError::Value => PathError::NoPathValue,
    })
}

/// The route's `max_body_bytes` if the request's `Content-Length` is larger.
fn exceeded_body_limit(policy: &Policy, head: &Head<'_>, route: Option<u32>) -> Option<u64> {
    let digits = framing::content_length(head.headers)?;
    let max_bytes = policy.routes.get(route? as usize)?.max_body_bytes?;
    // Digits that are no u64 are a larger number.
    let is_within = digits.parse().is_ok_and(|length: u64| length <= max_bytes);
    (!is_within).then_some(max_bytes)
}

/// Whether `server.deny_ips` has the client, so that it is refused whatever key it has.
pub fn is_denied_everywhere(policy: &Policy, head: &Head<'_>) -> bool {
    let denies =
        |access: &IpAccess| !access.deny.is_empty() && access.has_denied(address(policy, head));
    policy.ip_access(None).is_some_and(denies)
}

/// The address or network of the client, as rules count it.
pub fn counted_address(policy: &Policy, head: &Head<'_>) -> Option<IpAddr> {
    let prefix = policy.clients.ipv6_prefix;
    address(policy, head).map(|ip| address::counted_address(ip, prefix))
}

fn address(policy: &Policy, head: &Head<'_>) -> Option<IpAddr> {
    client_address(&policy.server.trusted_proxies, peer(head), head.headers)
}

fn peer(head: &Head<'_>) -> Peer {
    Peer { address: head.peer, is_relay: head.is_client_hidden }
}

fn identity(policy: &Policy, head: &Head<'_>, found: Found) -> Identity {
    let peer = peer(head);
    let certificate = head.certificate.filter(|_| policy.counts_certificates);
    let trusted = &policy.server.trusted_proxies;
    identify(&policy.clients, trusted, peer, head.headers, certificate, found)
}

/// Whether `[clients]` treats a preflight request without a key as an anonymous one.
fn is_open_preflight(policy: &Policy, head: &Head<'_>, identity: &Identity) -> bool {
    policy.clients.on_preflight == OnPreflight::Anonymous
        && identity.client.key == ClientKey::Missing
        && identity.key_from.is_none()
        && identity.key_refusal.is_none()
        && is_preflight(head)
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
    if let Some(why) = identity.key_refusal {
        let source = identity.key_from.unwrap_or_default();
        return Some(Unauthenticated::KeyRefused { source, why });
    }
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
            (clients.on_unknown_key == Some(OnUnknownKey::Deny))
                .then_some(Unauthenticated::KeyUnknown { source })
        }
    }
}

/// Why a client without a known key is refused what needs one.
fn unknown(identity: &Identity) -> Option<Unauthenticated> {
    match (&identity.client.key, identity.key_from) {
        (ClientKey::Known(_), _) => None,
        (_, Some(source)) => Some(Unauthenticated::KeyUnknown { source }),
        (_, None) => Some(Unauthenticated::KeyMissing),
    }
}

/// Host of a request as routes compare it; empty without one.
pub fn host(headers: &HeaderMap) -> Cow<'_, str> {
    let header = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    hosts::normalized(header.unwrap_or_default())
}

#[cfg(test)]
mod tests;
