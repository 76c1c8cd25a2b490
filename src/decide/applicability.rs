//! Which rules apply to a client, without a request or with a part of one: for the admin port, and
//! for a client that asks for its own limits.

use http::{HeaderMap, HeaderName, Method};

use crate::base::hash::Digest;
use crate::client::settings::OnMissingKey;
use crate::client::{Client, ClientKey};
use crate::limit::charge::Charge;
use crate::policy::charges::{GrantOf, RequestAttributes, Scope, WhyNot};
use crate::policy::{Dimension, OnMissing, Policy, Rule};

/// A client, and the known parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The client as rules see it. Its address is `None` if it is not known.
    pub client: &'a Client,
    /// What the client is selected by.
    pub selected_by: SelectedBy,
    /// Index of the route, if known.
    pub route: Option<u32>,
    /// The method, if known.
    pub method: Option<&'a Method>,
    /// The host in lower case, without port, if known.
    pub host: Option<&'a str>,
    /// Headers of the request, as far as they are known.
    pub headers: &'a HeaderMap,
    /// Headers that the request is known not to have.
    pub absent: Absent<'a>,
}

/// What a client is selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedBy {
    /// Its key.
    Key,
    /// Its tenant: it stands for all clients of the tenant.
    Tenant,
    /// Its address.
    Address,
}

/// Headers that a request is known not to have.
#[derive(Clone, Copy, Debug)]
pub enum Absent<'a> {
    /// Only these are known to be absent.
    Only(&'a [HeaderName]),
    /// All headers are absent except the known ones.
    AllOthers,
}

/// Whether a rule applies to a client, and what it charges.
#[derive(Debug)]
pub struct Applicability<'a> {
    /// The rule that was matched with the client.
    pub rule: &'a Rule,
    /// The charge, or why the rule does not apply.
    pub charge: Result<Charge, WhyNot>,
    /// Unknown dimensions of the bucket. If there are any, the bucket of `charge` is not one of the
    /// client's.
    pub unknown: Vec<&'a Dimension>,
    /// Whether no other client takes from the bucket.
    pub own: bool,
}

impl Applicability<'_> {
    /// The charge, if its bucket is known.
    pub fn known(&self) -> Option<Charge> {
        self.charge.ok().filter(|_| self.unknown.is_empty())
    }
}

/// The applicability of every rule, in the order of the configuration file.
pub fn applicabilities<'a>(policy: &'a Policy, subject: &Subject<'_>) -> Vec<Applicability<'a>> {
    (0..)
        .zip(&policy.rules)
        .map(|(index, rule)| applicability(policy, subject, index, rule))
        .collect()
}

/// The applicability of the rule with this index.
pub fn applicability<'a>(
    policy: &'a Policy,
    subject: &Subject<'_>,
    index: u32,
    rule: &'a Rule,
) -> Applicability<'a> {
    let mut counted = policy.routes_of(index);
    let (first, second) = (counted.next(), counted.next());
    // If the rule counts only one route, the route is known.
    let is_known = subject.route.is_some() || second.is_none();
    let attributes = RequestAttributes {
        route: subject.route.or(first).unwrap_or(u32::MAX),
        method: subject.method.unwrap_or(&Method::GET),
        host: subject.host.unwrap_or_default(),
        path: "",
        headers: subject.headers,
    };
    // A tenant stands for its clients, which have keys.
    let is_of_tenant = subject.selected_by == SelectedBy::Tenant;
    let is_refused = !is_of_tenant
        && subject.client.key == ClientKey::Missing
        && policy.clients.on_missing_key == OnMissingKey::Deny;
    let scope = if is_refused { Scope::Address } else { Scope::All };
    // Only a whole request shows that the client has no certificate.
    let is_cert_unknown =
        subject.client.certificate.is_none() && matches!(subject.absent, Absent::Only(_));
    let with_certificate = is_cert_unknown
        .then(|| Client { certificate: Some(Digest::default()), ..subject.client.clone() });
    let client = with_certificate.as_ref().unwrap_or(subject.client);
    // A disabled rule counts no route; `Disabled` is the reason to report.
    let charge = if rule.enabled {
        policy.charge(index, client, &attributes, scope)
    } else {
        Err(WhyNot::Disabled)
    };
    let is_unknown = |dimension: &&Dimension| match dimension {
        Dimension::Ip => subject.client.ip.is_none(),
        Dimension::Key | Dimension::Plan => is_of_tenant,
        Dimension::Tenant => false,
        Dimension::Route => !is_known,
        Dimension::Method => subject.method.is_none(),
        Dimension::Host => subject.host.is_none(),
        Dimension::Header(name) => !subject.headers.contains_key(name) && !subject.absent.has(name),
        Dimension::Certificate => is_cert_unknown,
        Dimension::Param(_) | Dimension::Claim(_) => true,
    };
    let mut unknown: Vec<&Dimension> = match charge {
        Ok(_) => rule.per.iter().filter(is_unknown).collect(),
        Err(_) => Vec::new(),
    };
    // Without a plan of the tenant, the plans of its clients select the bucket.
    let has_plan = subject.client.tenant.as_ref().is_some_and(|tenant| tenant.plan.is_some());
    if is_of_tenant && charge.is_ok() && unknown.is_empty() && !has_plan {
        let granted = rule.grant_of(client);
        if matches!(granted, GrantOf::Plan(_)) && rule.has_plan_tables() {
            unknown.push(&Dimension::Plan);
        }
    }
    Applicability { rule, charge, unknown, own: is_own(rule, subject) }
}

/// Whether no other client takes from the client's buckets of the rule.
fn is_own(rule: &Rule, subject: &Subject<'_>) -> bool {
    let per = |dimension| rule.per.contains(&dimension);
    match (subject.selected_by, &subject.client.key) {
        (SelectedBy::Key, ClientKey::Known(_)) => {
            per(Dimension::Key) || rule.has_key_grant(subject.client)
        }
        (SelectedBy::Key, _) => per(Dimension::Key),
        (SelectedBy::Tenant, _) => rule.counts_tenants(),
        (SelectedBy::Address, ClientKey::Missing) => {
            per(Dimension::Ip) || (per(Dimension::Key) && rule.on_missing == OnMissing::Ip)
        }
        (SelectedBy::Address, _) => per(Dimension::Ip),
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
