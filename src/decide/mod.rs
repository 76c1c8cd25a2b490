//! What is decided of a request before any bucket is asked: whether it is one, whose it is, where
//! it goes, and what it owes. Pure, so that a request that nobody sent can be explained by the
//! very code that decides on those that come.
//!
//! Reading order: [`decide`] (the steps, in order), `guard` (what no request may be), `headers`
//! (those that limits count by), `meetings`
//! (what rules make of a client without a request).

pub mod guard;
pub mod headers;
pub mod meetings;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri, Version};

use crate::identity::{self, Identity, IdentityError};
use crate::limit::charge::Charges;
use crate::net::address::Authority;
use crate::policy::Policy;
use crate::policy::charges::{Facts, KeyRequired, Scope};
use crate::policy::client::{Client, ClientKey};
use crate::policy::matcher::ipv6_host;
use crate::policy::path::PathError;
use crate::policy::settings::{OnMissingKey, OnUnknownKey};
use guard::Malformed;
use headers::UncountableHeader;

/// What a request says of itself, as far as anything is decided by it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its version of HTTP.
    pub version: Version,
    /// Its method.
    pub method: &'a Method,
    /// Its target as it came, with the query.
    pub target: &'a [u8],
    /// The same, read.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The address of the connection's other end; none on a Unix socket.
    pub peer: Option<IpAddr>,
    /// Whether it came with both `Content-Length` and `Transfer-Encoding`.
    pub has_two_lengths: bool,
}

/// What is known of a request before any bucket is asked.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// Whose it is, or why it was refused before that was known.
    pub identity: Result<Identity, Refusal>,
    /// The host that it is for, in lower case, without port and without a final dot.
    pub host: Cow<'a, str>,
    /// Whether it asks what its client has left (`clients.limits_path`). It goes to no route then,
    /// and owes nothing but where its key is missing or in no file.
    pub asks_limits: bool,
    /// Its route, as an index.
    pub route: Option<u32>,
    /// What it owes, whether it is refused afterwards or not.
    pub charges: Charges,
    /// Which rules count it.
    pub scope: Scope,
    /// The rule that demands a key of it, as an index, where one does and it has none.
    pub demanded_by: Option<u32>,
    /// Why it does not pass even where every bucket holds what it owes; behind
    /// [`identity`](Self::identity), which may say so first.
    pub refusal: Option<Refusal>,
}

/// Why a request does not pass. Its limits, where they are the reason, stand in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no request that could be sent on.
    Malformed(Malformed),
    /// Its path has no meaning, or more than one.
    Path(PathError),
    /// It has no client.
    Identity(IdentityError),
    /// It asks what its client has left, by a method that asks nothing.
    OtherMethod,
    /// No route matches.
    NoRoute,
    /// It is TRACE, which no route names that matches otherwise.
    TraceNotNamed,
    /// A limit counts by one of its headers, and cannot.
    Header(UncountableHeader),
    /// It has no key and needs one.
    KeyMissing,
    /// Its key is unknown.
    KeyUnknown,
    /// A rule lacks the tokens.
    Limited,
    /// A rule cannot be asked, and wants nothing to pass then.
    Unavailable {
        /// Ticks until it may be asked again.
        retry_after: u64,
    },
}

impl<'a> Head<'a> {
    /// The head of a request that has been read. `target` is the target as it came.
    pub fn of(
        request: &'a http::request::Parts,
        target: &'a [u8],
        peer: Option<IpAddr>,
        has_two_lengths: bool,
    ) -> Self {
        Self {
            version: request.version,
            method: &request.method,
            target,
            uri: &request.uri,
            headers: &request.headers,
            peer,
            has_two_lengths,
        }
    }
}

impl<'a> Case<'a> {
    /// What rules may look at; none where no route was found.
    pub fn facts(&'a self, head: &Head<'a>) -> Option<Facts<'a>> {
        let Head { method, headers, .. } = *head;
        Some(Facts { route: self.route?, method, host: &self.host, headers })
    }

    /// Why it does not pass, whatever its buckets hold.
    pub fn refused(&self) -> Option<Refusal> {
        self.identity.err().or(self.refusal)
    }
}

/// Decides everything about a request that needs no bucket.
pub fn decide<'a>(policy: &Policy, head: &Head<'a>) -> Case<'a> {
    let mut case = Case {
        identity: identity(policy, head),
        host: host(head.headers),
        asks_limits: false,
        route: None,
        charges: Charges::new(),
        scope: Scope::All,
        demanded_by: None,
        refusal: None,
    };
    let Ok(identity) = case.identity else { return case };
    if policy.clients.is_limits_path(head.uri.path(), policy.server.ignore_path_case) {
        return limits(policy, head, &identity, case);
    }
    match policy.router.find(&case.host, head.uri.path(), head.method) {
        Ok(Some(route)) => case.route = Some(route),
        Ok(None) if *head.method == Method::TRACE => case.refusal = Some(Refusal::TraceNotNamed),
        Ok(None) => case.refusal = Some(Refusal::NoRoute),
        Err(error) => case.refusal = Some(Refusal::Path(error)),
    }
    charge(policy, head, &identity.client, case)
}

/// A request that asks what its client has left. Guessing keys must cost here what it costs
/// elsewhere, whatever routes there are: a key that no file knows is counted by the rules per
/// address, whether it is refused for that or not.
fn limits<'a>(policy: &Policy, head: &Head<'a>, identity: &Identity, case: Case<'a>) -> Case<'a> {
    let client = &identity.client;
    let is_known = matches!(client.key, ClientKey::Known(_));
    let may_be_guessed = identity.key_from.is_some() && !is_known;
    let case = Case { asks_limits: true, ..case };
    let refused = match *head.method {
        // Browsers ask so before they send a key.
        Method::OPTIONS => return case,
        Method::GET | Method::HEAD => unauthenticated(policy, client),
        _ => return Case { refusal: Some(Refusal::OtherMethod), ..case },
    };
    if refused.is_none() && !may_be_guessed {
        return case;
    }
    let charges = policy.address_charges_anywhere(client, head.method, &case.host, head.headers);
    Case { charges, scope: Scope::Address, refusal: refused, ..case }
}

fn identity(policy: &Policy, head: &Head<'_>) -> Result<Identity, Refusal> {
    guard::check(&policy.server, head).map_err(Refusal::Malformed)?;
    identity::identify(policy, head.peer, head.headers, head.uri.query()).map_err(Refusal::Identity)
}

/// What the request owes, now that its client and its route are known. One without a valid key is
/// counted by the rules per address before it is refused: they may refuse it first, so that keys
/// cannot be guessed at leisure.
fn charge<'a>(policy: &Policy, head: &Head<'a>, client: &Client, case: Case<'a>) -> Case<'a> {
    let Some(facts) = case.facts(head) else { return case };
    let refusal = unauthenticated(policy, client);
    // One without a valid key is counted as it is everywhere, or guesses would be free.
    if refusal.is_none()
        && let Some(header) = headers::uncountable(policy, client, &facts)
    {
        return Case { refusal: Some(Refusal::Header(header)), ..case };
    }
    let owed = match refusal {
        None => policy.charges(client, &facts),
        Some(_) => Ok(policy.address_charges(client, &facts)),
    };
    let (charges, demanded_by) = match owed {
        Ok(charges) => (charges, None),
        Err(KeyRequired { rule }) => (policy.address_charges(client, &facts), Some(rule)),
    };
    let refusal = refusal.or(demanded_by.map(|_| Refusal::KeyMissing));
    let scope = if refusal.is_some() { Scope::Address } else { Scope::All };
    Case { charges, scope, demanded_by, refusal, ..case }
}

/// Whether the file demands a key that this client does not have.
fn unauthenticated(policy: &Policy, client: &Client) -> Option<Refusal> {
    let clients = &policy.clients;
    match client.key {
        ClientKey::Known(_) => None,
        ClientKey::Missing => {
            (clients.on_missing_key == OnMissingKey::Deny).then_some(Refusal::KeyMissing)
        }
        ClientKey::Unknown(_) => {
            (clients.on_unknown_key == OnUnknownKey::Deny).then_some(Refusal::KeyUnknown)
        }
    }
}

/// The host that a request is for, in lower case, without port and without a final dot. An IPv6
/// address as [`ipv6_host`] writes it.
pub fn host(headers: &HeaderMap) -> Cow<'_, str> {
    let header = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = header.unwrap_or_default();
    let host = Authority::split(host).map_or(host, |authority| authority.host);
    if let Some(address) = ipv6_host(host) {
        return Cow::Owned(address);
    }
    let host = host.trim_end_matches('.');
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

#[cfg(test)]
mod tests;
