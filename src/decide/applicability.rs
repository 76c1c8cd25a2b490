//! Each rule, held against a client of whose request not all may be known: for whoever asks what a
//! client has left, without sending the request that would take it.

use http::{HeaderMap, HeaderName, Method};

use crate::limit::charge::Charge;
use crate::policy::charges::{Facts, Scope, WhyNot};
use crate::policy::client::{Client, ClientKey};
use crate::policy::settings::OnMissingKey;
use crate::policy::{Dimension, OnMissing, Policy, Rule};

/// A client, and what is known of a request of its.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// As rules see it. Its address is none where it is not known.
    pub client: Client,
    /// Whether the client is meant by its key, else by its address.
    pub by_key: bool,
    /// The route, as an index.
    pub route: Option<u32>,
    /// The method.
    pub method: Option<&'a Method>,
    /// The host, in lower case, without port.
    pub host: Option<&'a str>,
    /// What it sends.
    pub headers: &'a HeaderMap,
    /// What it does not send.
    pub absent: Absent<'a>,
}

/// Of which headers it is known that a request does not have them.
#[derive(Clone, Copy, Debug)]
pub enum Absent<'a> {
    /// Of these.
    Only(&'a [HeaderName]),
    /// Of all that it is not known to have.
    AllOthers,
}

/// What a rule makes of a client.
#[derive(Debug)]
pub struct Applicability<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What it would charge, where nothing is unknown that names the bucket or the limit.
    pub charge: Result<Charge, WhyNot>,
    /// What names the bucket and is not known. The charge's bucket is none of the client's then.
    pub unknown: Vec<&'a Dimension>,
    /// Whether the bucket is this client's and nobody else's.
    pub own: bool,
}

impl Applicability<'_> {
    /// The charge, where its bucket is known.
    pub fn known(&self) -> Option<Charge> {
        self.charge.ok().filter(|_| self.unknown.is_empty())
    }
}

/// What every rule makes of the client, in the order of the file.
pub fn applicabilities<'a>(policy: &'a Policy, subject: &Subject<'_>) -> Vec<Applicability<'a>> {
    (0..)
        .zip(&policy.rules)
        .map(|(index, rule)| applicability(policy, subject, index, rule))
        .collect()
}

/// What the rule of that index makes of the client.
pub fn applicability<'a>(
    policy: &'a Policy,
    subject: &Subject<'_>,
    index: u32,
    rule: &'a Rule,
) -> Applicability<'a> {
    let mut counted = policy.routes_of(index);
    let (first, second) = (counted.next(), counted.next());
    // Where there is only one route that it counts, no other can be meant.
    let is_known = subject.route.is_some() || second.is_none();
    let facts = Facts {
        route: subject.route.or(first).unwrap_or(u32::MAX),
        method: subject.method.unwrap_or(&Method::GET),
        host: subject.host.unwrap_or_default(),
        headers: subject.headers,
    };
    let is_refused = subject.client.key == ClientKey::Missing
        && policy.clients.on_missing_key == OnMissingKey::Deny;
    let scope = if is_refused { Scope::Address } else { Scope::All };
    // Where it counts no route at all, that is not what is said of it.
    let charge = if rule.enabled {
        policy.charge(index, &subject.client, &facts, scope)
    } else {
        Err(WhyNot::Disabled)
    };
    let is_unknown = |dimension: &&Dimension| match dimension {
        Dimension::Ip => subject.client.ip.is_none(),
        Dimension::Key | Dimension::Plan => false,
        Dimension::Route => !is_known,
        Dimension::Method => subject.method.is_none(),
        Dimension::Host => subject.host.is_none(),
        Dimension::Header(name) => !subject.headers.contains_key(name) && !subject.absent.has(name),
    };
    let unknown = match charge {
        Ok(_) => rule.per.iter().filter(is_unknown).collect(),
        Err(_) => Vec::new(),
    };
    Applicability { rule, charge, unknown, own: is_own(rule, subject) }
}

/// Whether nobody else shares the client's buckets under that rule.
fn is_own(rule: &Rule, subject: &Subject<'_>) -> bool {
    let per = |dimension| rule.per.contains(&dimension);
    match (subject.by_key, subject.client.key) {
        (true, ClientKey::Known(key)) => {
            per(Dimension::Key) || rule.grant_by_key.contains_key(&key)
        }
        (true, _) => per(Dimension::Key),
        (false, ClientKey::Missing) => {
            per(Dimension::Ip) || (per(Dimension::Key) && rule.on_missing == OnMissing::Ip)
        }
        (false, _) => per(Dimension::Ip),
    }
}

impl Absent<'_> {
    fn has(self, name: &HeaderName) -> bool {
        match self {
            Self::Only(names) => names.contains(name),
            Self::AllOthers => true,
        }
    }
}
