//! What a reload does to the buckets of clients: which are kept, and which start full.
//! docs/reload.md has the same as a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Dimension, OnMissing, Policy, Rule};
use crate::limit::Limit;

/// What happens to the buckets of one rule. Rules whose buckets are kept as they are have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketChange {
    /// Name of the rule.
    pub rule: String,
    /// What happens.
    pub effect: Effect,
    /// The clients concerned.
    pub clients: Clients,
    pub why: &'static str,
}

/// What happens to buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "BucketEffect"))]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Clients keep the fraction that they have left.
    KeepFraction,
    /// What clients have used of a fixed window stays used.
    // Until the end of the period; of a sliding window until it leaves the window.
    KeepUsed,
    /// Requests in flight still count.
    KeepHeld,
    /// Clients get a full bucket.
    StartFull,
    /// The bucket is not used any more.
    Expire,
}

/// The clients whose buckets change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clients {
    /// All that the rule applies to.
    All,
    /// Those of a plan.
    Plan(String),
    /// The one with the key of this id.
    Key(String),
    /// Those of a tenant.
    Tenant(String),
    /// The requests of a route.
    Route(String),
    /// Those with IPv6 addresses.
    Ipv6,
    /// Those without a key.
    WithoutKey,
}

/// What happens to the buckets of every rule if `new` replaces `old`.
pub fn between(old: &Policy, new: &Policy) -> Vec<BucketChange> {
    let rules = |policy: &'_ Policy| -> BTreeMap<String, Rule> {
        let enabled = policy.rules.iter().filter(|rule| rule.enabled);
        enabled.map(|rule| (rule.name.to_string(), rule.clone())).collect()
    };
    let (was, is) = (rules(old), rules(new));
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        let mut push = |effect, clients, why| {
            changes.push(BucketChange { rule: name.clone(), effect, clients, why });
        };
        match (was.get(name), is.get(name)) {
            (Some(_), None) => push(Effect::Expire, Clients::All, "the rule is removed or off"),
            (None, _) => push(Effect::StartFull, Clients::All, "the rule is new"),
            (Some(was), Some(is)) if was.per != is.per => {
                push(Effect::StartFull, Clients::All, "`per` changes");
            }
            (Some(was), Some(is)) => {
                let pair = Pair { old, new, was, is };
                pair.separate_buckets(&mut push);
                pair.counted_values(&mut push);
                if !is.kind.has_buckets_of(was.kind) {
                    push(Effect::StartFull, Clients::All, "`kind` changes");
                } else if pair.limits(old, was) != pair.limits(new, is) {
                    let (effect, why) = is.kind.changed_limits();
                    push(effect, Clients::All, why);
                }
            }
        }
    }
    changes
}

/// A rule before and after, with the same `per`.
#[derive(Clone, Copy)]
struct Pair<'a> {
    old: &'a Policy,
    new: &'a Policy,
    was: &'a Rule,
    is: &'a Rule,
}

type Push<'a> = dyn FnMut(Effect, Clients, &'static str) + 'a;

impl Pair<'_> {
    /// Plans and keys that get buckets apart from the others', or lose them.
    fn separate_buckets(self, push: &mut Push<'_>) {
        let Self { old, new, was, is } = self;
        let counts = |dimension: &Dimension| is.per.contains(dimension);
        if counts(&Dimension::Key) {
            return;
        }
        let tables = |policy: &Policy, rule: &Rule| -> BTreeSet<String> {
            let plans = (0..).zip(&policy.plans).filter(|(plan, _)| rule.has_plan_table(*plan));
            plans.map(|(_, name)| name.to_string()).collect()
        };
        if !counts(&Dimension::Plan) {
            for plan in tables(old, was).symmetric_difference(&tables(new, is)) {
                let why = "the plan gets limits apart from the others', or loses them";
                push(Effect::StartFull, Clients::Plan(plan.clone()), why);
            }
        }
        for key in keys(was).symmetric_difference(&keys(is)) {
            let why = "the key gets an override, or loses it";
            push(Effect::StartFull, Clients::Key(key.clone()), why);
        }
        if !counts(&Dimension::Tenant) {
            for tenant in tenants(was).symmetric_difference(&tenants(is)) {
                let why = "the tenant gets an override, or loses it";
                push(Effect::StartFull, Clients::Tenant(tenant.clone()), why);
            }
        }
    }

    /// Values that the rule counts by, and that have another name than before.
    fn counted_values(self, push: &mut Push<'_>) {
        let Self { old, new, was, is } = self;
        let counts = |dimension: &Dimension| is.per.contains(dimension);
        let by_address =
            counts(&Dimension::Ip) || (counts(&Dimension::Key) && is.on_missing == OnMissing::Ip);
        if by_address && old.clients.ipv6_prefix != new.clients.ipv6_prefix {
            push(Effect::StartFull, Clients::Ipv6, "`clients.ipv6_prefix` changes");
        }
        if counts(&Dimension::Key) && was.on_missing != is.on_missing {
            push(Effect::StartFull, Clients::WithoutKey, "`on_missing` changes");
        }
        if counts(&Dimension::Plan) {
            let plans = |policy: &Policy| -> BTreeSet<String> {
                policy.plans.iter().map(ToString::to_string).collect()
            };
            for plan in plans(new).difference(&plans(old)) {
                push(Effect::StartFull, Clients::Plan(plan.clone()), "the plan has a new name");
            }
        }
        if counts(&Dimension::Route) {
            let routes = |policy: &Policy| -> BTreeSet<String> {
                policy.routes.iter().map(|route| route.name.to_string()).collect()
            };
            for route in routes(new).difference(&routes(old)) {
                push(Effect::StartFull, Clients::Route(route.clone()), "the route has a new name");
            }
        }
        if counts(&Dimension::Tenant) {
            for is in new.keys.all() {
                let was = old.keys.named(&is.id);
                if was.is_some_and(|was| was.tenant != is.tenant) && is.tenant.is_some() {
                    let key = Clients::Key(is.id.to_string());
                    push(Effect::StartFull, key, "the client has another tenant");
                }
            }
        }
        if counts(&Dimension::Key) {
            for (digest, is) in new.keys.digests() {
                if old
                    .keys
                    .with_digest(digest)
                    .is_some_and(|was| was.principal.id != is.principal.id)
                {
                    let key = Clients::Key(is.principal.id.to_string());
                    push(Effect::StartFull, key, "the key has a new id");
                }
            }
        }
    }

    /// The limits of a rule by plan, tenant and key.
    fn limits(self, policy: &Policy, rule: &Rule) -> BTreeMap<(&'static str, String), Limit> {
        let of_plan = |(index, name): (usize, &Arc<str>)| {
            let grant = rule.grant_by_plan.get(index).copied().flatten()?;
            let is_shared = [self.old, self.new].iter().all(|policy| policy.plans.contains(name));
            is_shared.then(|| (("plan", name.to_string()), whole(grant.limit)))
        };
        let of_key = |(key, grant): (&Arc<str>, &super::Grant)| {
            let is_in = |policy: &&Policy| policy.keys.named(key).is_some();
            let is_shared = [self.old, self.new].iter().all(is_in);
            is_shared.then(|| (("key", key.to_string()), whole(grant.limit)))
        };
        let plans = policy.plans.iter().enumerate().filter_map(of_plan);
        let of_tenant = |(tenant, grant): (&Arc<str>, &super::Grant)| {
            (("tenant", tenant.to_string()), whole(grant.limit))
        };
        let tenants = rule.grant_by_tenant.iter().map(of_tenant);
        plans.chain(rule.grant_by_key.iter().filter_map(of_key)).chain(tenants).collect()
    }
}

/// The limit without parts of a token, which follow from the costs of routes.
fn whole(limit: Limit) -> Limit {
    limit.with_parts(1).unwrap_or(limit)
}

/// Ids of the keys with an override of the rule.
fn keys(rule: &Rule) -> BTreeSet<String> {
    rule.grant_by_key.keys().map(ToString::to_string).collect()
}

/// Ids of the tenants with an override of the rule.
fn tenants(rule: &Rule) -> BTreeSet<String> {
    rule.grant_by_tenant.keys().map(ToString::to_string).collect()
}

impl std::fmt::Display for Clients {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => formatter.write_str("all clients"),
            Self::Plan(name) => write!(formatter, "clients of plan {name}"),
            Self::Key(id) => write!(formatter, "the client with key {id}"),
            Self::Tenant(id) => write!(formatter, "clients of tenant {id}"),
            Self::Route(name) => write!(formatter, "requests of route {name}"),
            Self::Ipv6 => formatter.write_str("clients with IPv6 addresses"),
            Self::WithoutKey => formatter.write_str("clients without a key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text;

    const FILE: &str = "[upstreams.u]\nservers = ['demo']\n[routes.all]\n[plans.free]\n[plans.pro]\n\
        [keys.acme]\nsha256 = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'\n\
        plan = 'pro'\n[rules.ip]\nper = ['ip']\nrate = '1/s'\n[rules.key]\nper = ['key']\n\
        rate = '2/s'\n[rules.plan]\nper = ['plan', 'route']\nrate = '3/s'\n";

    /// As docs/reload.md lists them.
    #[test]
    fn changed_buckets_are_those_of_the_documentation() {
        let table: [(&str, &str, &[&str]); 13] = [
            ("", "", &[]),
            ("'1/s'", "'1/s'\ndescription = 'x'\nmode = 'shadow'", &[]),
            ("'1/s'", "'5/s'", &["ip: KeepFraction, all clients: rate or burst changes"]),
            ("['ip']", "['ip', 'method']", &["ip: StartFull, all clients: `per` changes"]),
            ("['plan', 'route']", "['route', 'plan']", &[]),
            (
                "rules.ip",
                "rules.address",
                &[
                    "address: StartFull, all clients: the rule is new",
                    "ip: Expire, all clients: the rule is removed or off",
                ],
            ),
            (
                "'1/s'",
                "'1/s'\nenabled = false",
                &["ip: Expire, all clients: the rule is removed or off"],
            ),
            (
                "'1/s'",
                "'1/s'\nplans.pro = { rate = '1/s' }",
                &[
                    "ip: StartFull, clients of plan pro: the plan gets limits apart from the others', or loses them",
                ],
            ),
            ("'2/s'", "'2/s'\nplans.pro = { rate = '2/s' }", &[]),
            (
                "plan = 'pro'",
                "plan = 'pro'\nrules.ip = { rate = '1/s' }",
                &[
                    "ip: StartFull, the client with key acme: the key gets an override, or loses it",
                    "ip: KeepFraction, all clients: rate or burst changes",
                ],
            ),
            (
                "[plans.free]",
                "[clients]\nipv6_prefix = 56\n[plans.free]",
                &[
                    "ip: StartFull, clients with IPv6 addresses: `clients.ipv6_prefix` changes",
                    "key: StartFull, clients with IPv6 addresses: `clients.ipv6_prefix` changes",
                ],
            ),
            (
                "routes.all",
                "routes.every",
                &["plan: StartFull, requests of route every: the route has a new name"],
            ),
            (
                "keys.acme",
                "keys.acme2",
                &["key: StartFull, the client with key acme2: the key has a new id"],
            ),
        ];
        let old = from_text("old", FILE).unwrap();
        for (from, to, expected) in table {
            let new = from_text("new", &FILE.replacen(from, to, 1)).unwrap();
            let shown: Vec<String> = between(&old, &new)
                .into_iter()
                .map(|BucketChange { rule, effect, clients, why }| {
                    format!("{rule}: {effect:?}, {clients}: {why}")
                })
                .collect();
            assert_eq!(shown, expected, "{from} -> {to}");
        }
    }
}
