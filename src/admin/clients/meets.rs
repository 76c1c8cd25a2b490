//! Each rule, held against a client of whose request not all may be known.

use http::Method;

use super::who::Who;
use crate::explain::words;
use crate::limit::charge::Charge;
use crate::policy::charges::{Facts, Scope, WhyNot};
use crate::policy::client::ClientKey;
use crate::policy::settings::OnMissingKey;
use crate::policy::{Dimension, OnMissing, Policy, Rule};

/// What a rule makes of a client.
#[derive(Debug)]
pub(super) struct Meeting<'a> {
    pub(super) rule: &'a Rule,
    /// What it would charge, where nothing is unknown that names the bucket or the limit.
    pub(super) charge: Result<Charge, WhyNot>,
    /// What names the bucket and was not said, as the file writes it. The charge's bucket is none
    /// of the client's then.
    pub(super) unknown: Vec<String>,
    /// Whether the bucket is this client's and nobody else's.
    pub(super) own: bool,
}

impl Meeting<'_> {
    /// The charge, where its bucket is known.
    pub(super) fn known(&self) -> Option<Charge> {
        self.charge.ok().filter(|_| self.unknown.is_empty())
    }
}

/// What every rule makes of the client, in the order of the file.
pub(super) fn meetings<'a>(policy: &'a Policy, who: &Who) -> Vec<Meeting<'a>> {
    (0..).zip(&policy.rules).map(|(index, rule)| meeting(policy, who, index, rule)).collect()
}

fn meeting<'a>(policy: &'a Policy, who: &Who, index: u32, rule: &'a Rule) -> Meeting<'a> {
    let counted = (0..).zip(&policy.routes).filter(|(_, route)| route.rules.contains(&index));
    let mut counted = counted.map(|(route, _)| route);
    let (first, second) = (counted.next(), counted.next());
    // Where there is only one route that it counts, no other can be meant.
    let is_known = who.route.is_some() || second.is_none();
    let facts = Facts {
        route: who.route.or(first).unwrap_or(u32::MAX),
        method: who.method.as_ref().unwrap_or(&Method::GET),
        host: who.host.as_deref().unwrap_or_default(),
        headers: &who.headers,
    };
    let is_refused =
        who.client.key == ClientKey::Missing && policy.clients.on_missing_key == OnMissingKey::Deny;
    let scope = if is_refused { Scope::Address } else { Scope::All };
    // Where it counts no route at all, that is not what is said of it.
    let charge = if rule.enabled {
        policy.charge(index, &who.client, &facts, scope)
    } else {
        Err(WhyNot::Disabled)
    };
    let is_unknown = |dimension: &&Dimension| match dimension {
        Dimension::Ip => who.client.ip.is_none(),
        Dimension::Key | Dimension::Plan => false,
        Dimension::Route => !is_known,
        Dimension::Method => who.method.is_none(),
        Dimension::Host => who.host.is_none(),
        Dimension::Header(name) => !who.headers.contains_key(name) && !who.absent.contains(name),
    };
    let unknown = match charge {
        Ok(_) => rule.per.iter().filter(is_unknown).map(words::dimension).collect(),
        Err(_) => Vec::new(),
    };
    Meeting { rule, charge, unknown, own: is_own(rule, who) }
}

/// Whether nobody else shares the client's buckets under that rule.
fn is_own(rule: &Rule, who: &Who) -> bool {
    let per = |dimension| rule.per.contains(&dimension);
    match (who.by_key, who.client.key) {
        (true, ClientKey::Known(key)) => {
            per(Dimension::Key) || rule.quota_by_key.contains_key(&key)
        }
        (true, _) => per(Dimension::Key),
        (false, ClientKey::Missing) => {
            per(Dimension::Ip) || (per(Dimension::Key) && rule.on_missing == OnMissing::Ip)
        }
        (false, _) => per(Dimension::Ip),
    }
}
