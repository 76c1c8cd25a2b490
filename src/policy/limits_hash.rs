//! A hash of what decides on rate limits, by which gateways that share a Redis notice that their
//! files differ there. Pure.
//!
//! Everything is written by its name, and sorted where the file's order has no meaning. Not part of
//! it: servers of upstreams, listeners, trusted proxies, secrets of keys, descriptions, what a
//! route does beside forwarding, but for `cors`, whose preflight requests take no tokens.

use std::fmt::{self, Write as _};

use sha2::{Digest as _, Sha256};

use super::redis::Address;
use super::{Grant, Policy, Route, Rule};

/// Hash of the limits of a configuration. Equal for two files under which every request takes the
/// same tokens from the same buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsHash(pub u64);

impl fmt::Display for LimitsHash {
    /// 16 hexadecimal digits.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl LimitsHash {
    /// The hash of a configuration.
    pub fn of(policy: &Policy) -> Self {
        let mut lines = vec![clients(policy)];
        lines.extend(names_of_buckets(policy));
        lines.extend(policy.cors.is_some().then(|| "cors".to_owned()));
        let plan = |plan| policy.plan_name(plan);
        lines.extend(
            policy.keys.all().iter().map(|key| format!("key {:?} {:?}", key.id, plan(key.plan))),
        );
        lines.extend(policy.routes.iter().map(|one| route(policy, one)));
        lines.extend(expressions(policy));
        for rule in policy.rules.iter().filter(|rule| rule.enabled) {
            lines.push(settings(rule));
            lines.extend(grants(policy, rule));
        }
        lines.sort_unstable();
        let mut hash = Sha256::new();
        for line in lines {
            hash.update(line);
            hash.update(b"\n");
        }
        let digest: [u8; 32] = hash.finalize().into();
        let first = digest.first_chunk().copied().unwrap_or_default();
        Self(u64::from_be_bytes(first))
    }
}

/// How a Redis Cluster names the buckets: gateways with different names count in different buckets.
/// `None` without one.
fn names_of_buckets(policy: &Policy) -> Option<String> {
    let redis =
        policy.redis.as_ref().filter(|redis| matches!(redis.address, Address::Cluster(_)))?;
    Some(format!("buckets {} {}", redis.colocate.name(), redis.lanes.unwrap_or_default()))
}

/// How requests get their client and plan, or no charge.
fn clients(policy: &Policy) -> String {
    let clients = &policy.clients;
    let sources = clients.key_sources.iter().map(ToString::to_string).collect::<Vec<_>>();
    format!(
        "clients {:?} {sources:?} {} {} {} {} {} {:?} {}",
        policy.plan_name(clients.anonymous_plan),
        clients.on_missing_key.name(),
        clients.on_preflight.name(),
        clients.on_unknown_key_name(),
        clients.on_conflicting_keys.name(),
        clients.ipv6_prefix,
        clients.limits_path,
        if policy.server.ignore_path_case { "insensitive" } else { "sensitive" },
    )
}

/// Which requests a route matches, what they cost, and by which rules they are limited.
fn route(policy: &Policy, route: &Route) -> String {
    let matcher = &route.matcher;
    let hosts = matcher.hosts.patterns().iter().map(ToString::to_string);
    let rule = |rule: &u32| policy.rules.get(*rule as usize).map(|rule| rule.name.to_string());
    format!(
        "route {:?} {:?} {:?} {} {:?} {} {:?}{}",
        route.name,
        sorted(hosts),
        matcher.path.to_string(),
        matcher.trailing_slash.name(),
        sorted(matcher.conditions.words().into_iter()),
        route.cost,
        sorted(route.rules.iter().filter_map(rule)),
        // Preflight requests about it take no tokens. Left out without it, as the cost of a rule.
        if route.cors().is_some() { " cors" } else { "" },
    )
}

/// The order of the routes with expressions, which are tried in that of the file; `None` without
/// any.
fn expressions(policy: &Policy) -> Option<String> {
    let is_expression = |route: &&Route| route.matcher.path.text().is_none();
    let names = policy.routes.iter().filter(is_expression).map(|route| &route.name);
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| format!("expressions {names:?}"))
}

/// Which requests a rule applies to, and how it decides.
fn settings(rule: &Rule) -> String {
    // Left out without one, so that the hash is that of versions that do not know it.
    let cost = rule.cost.map_or_else(String::new, |cost| format!(" cost {cost}"));
    let count = rule.count.as_ref().map_or_else(String::new, |count| format!(" count {count}"));
    let enforce = match rule.enforced_thousandths {
        Rule::ALL_CLIENTS => String::new(),
        share => format!(" enforce {share}"),
    };
    let ban = rule.ban.map_or_else(String::new, |ban| format!(" ban {ban}"));
    let adapt = rule.adapt.map_or_else(String::new, |adapt| format!(" adapt {adapt}"));
    format!(
        "rule {:?} {} {} {:?} {} {} {} {:?} {:?} {:?}{cost}{count}{enforce}{ban}{adapt}",
        rule.name,
        rule.kind.name(),
        rule.mode.name(),
        rule.per.iter().map(ToString::to_string).collect::<Vec<_>>(),
        rule.on_missing.name(),
        rule.on_failure.name(),
        rule.lease,
        rule.refund_on.names(),
        sorted(rule.exempt.ips.iter().map(ToString::to_string)),
        sorted(rule.exempt.keys.iter().map(ToString::to_string))
    )
}

/// The limits of a rule, one line for each plan and key.
fn grants<'a>(policy: &'a Policy, rule: &'a Rule) -> impl Iterator<Item = String> + 'a {
    let plans = (0..).zip(&rule.grant_by_plan).filter_map(|(plan, grant)| {
        let own = if rule.has_plan_table(plan) { "own" } else { "common" };
        Some(format!("plan {:?} {own} {}", policy.plan_name(plan), limit(grant.as_ref()?)))
    });
    let keys = rule.grant_by_key.iter().map(|(key, grant)| format!("key {key:?} {}", limit(grant)));
    let tenants = rule.grant_by_tenant.iter();
    let tenants = tenants.map(|(tenant, grant)| format!("tenant {tenant:?} {}", limit(grant)));
    plans.chain(keys).chain(tenants).map(|granted| format!("limit {:?} {granted}", rule.name))
}

/// The parameters of a limit.
fn limit(grant: &Grant) -> String {
    let capacity = grant.limit.capacity();
    let mut text = grant.written.amount();
    let _ = write!(text, " {} {capacity}", grant.written.setting());
    if let Some(us) = grant.written.max_delay_us() {
        let _ = write!(text, " {us}us");
    }
    if let Some(calendar) = grant.written.calendar() {
        let _ = write!(text, " {:?} {}", calendar.zone(), calendar.anchor());
    }
    // Left out without it, so that the hash is that of versions that do not know it.
    if grant.limit.counts_overage() {
        text.push_str(" overage");
    }
    text
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::from_text;

    const FILE: &str = r#"
        [clients]
        anonymous_plan = "free"
        [plans.free]
        [plans.pro]
        [keys.acme]
        sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        plan = "pro"
        [keys.other]
        sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
        plan = "free"
        [upstreams.api]
        servers = ["127.0.0.1:3000", "127.0.0.1:3001"]
        [routes.a]
        path = "/a"
        methods = ["GET", "POST"]
        upstream = "api"
        [routes.b]
        path = "/b/*"
        upstream = "api"
        cost = 2
        [rules.one]
        per = ["key", "ip"]
        rate = "60/m"
        burst = 5
        plans.pro = { rate = "10/s" }
        [rules.two]
        kind = "fixed_window"
        per = ["key"]
        limit = "1000/month"
        zone = "Europe/Berlin"
        exempt = { keys = ["other"] }
    "#;

    fn hash(text: &str) -> LimitsHash {
        let policy = from_text("gateway.toml", text).unwrap_or_else(|report| panic!("{report}"));
        LimitsHash::of(&policy)
    }

    #[test]
    fn hash_is_that_of_another_way_to_write_the_same_limits() {
        let rewritten = FILE
            .replace("\"127.0.0.1:3000\", \"127.0.0.1:3001\"", "\"10.0.0.9:80\"")
            .replace("\"GET\", \"POST\"", "\"POST\", \"GET\"")
            .replace("\"key\", \"ip\"", "\"ip\", \"key\"")
            .replace("\"60/m\"", "\"1/s\" # a second")
            .replace(
                "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                &"ab".repeat(32),
            )
            .replace("[rules.two]", "[rules.two]\ndescription = \"billed\"");
        let (head, rules) = rewritten.split_once("[rules.one]").unwrap();
        let (one, two) = rules.split_once("[rules.two]").unwrap();
        let other_order = format!("{head}[rules.two]{two}[rules.one]{one}");
        assert_ne!(other_order, FILE);
        assert_eq!(hash(&other_order), hash(FILE));
        let off = format!("{FILE}[rules.off]\nenabled = false\nper = []\nrate = \"1/s\"\n");
        assert_eq!(hash(&off), hash(FILE));
    }

    #[test]
    fn hash_differs_with_the_names_of_the_buckets_in_a_cluster() {
        let of = |settings: &str| {
            hash(&format!("{FILE}[redis]\nurl = \"redis+cluster://127.0.0.1:1\"\n{settings}"))
        };
        let all = ["", "lanes = 3", "lanes = 0", "colocate = \"key\""].map(of);
        for (number, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(number));
        }
        let one = |url: &str| hash(&format!("{FILE}[redis]\nurl = \"{url}\"\n"));
        assert_eq!(one("redis://127.0.0.1:1"), one("redis://127.0.0.2:1"));
        assert_eq!(of("lanes = 6"), of(""));
    }

    #[test]
    fn hash_differs_with_everything_that_limits_depend_on() {
        for (was, is) in [
            ("burst = 5", "burst = 6"),
            ("\"60/m\"", "\"61/m\""),
            ("plans.pro = { rate = \"10/s\" }", "plans.pro = { rate = \"10/s\", burst = 11 }"),
            ("plans.pro = { rate", "plans.free = { rate"),
            ("per = [\"key\"]", "per = [\"ip\"]"),
            ("Europe/Berlin", "Europe/Paris"),
            ("1000/month", "1000/week"),
            ("exempt = { keys = [\"other\"] }", "exempt = { keys = [\"acme\"] }"),
            ("exempt", "mode = \"shadow\"\nexempt"),
            ("exempt", "on_failure = \"deny\"\nexempt"),
            ("exempt", "routes = [\"a\"]\nexempt"),
            ("exempt", "refund_on = []\nexempt"),
            ("exempt", "cost = 2\nexempt"),
            ("exempt", "enforce = \"10%\"\nexempt"),
            ("exempt", "ban = { after = 5 }\nexempt"),
            ("burst = 5", "burst = 5\nadapt = { upstream = \"api\", p99 = \"1s\" }"),
            ("exempt", "candidate = { limit = \"9/month\" }\nexempt"),
            ("exempt", "refund_on = [\"no_server\"]\nexempt"),
            ("exempt", "count = \"header:x-cost\"\nexempt"),
            ("burst = 5", "burst = 5\nlease = \"auto\""),
            ("[plans.free]", "api_key = [\"bearer\"]\n[plans.free]"),
            ("[plans.free]", "on_conflicting_keys = \"first\"\n[plans.free]"),
            ("[plans.free]", "limits_path = \"/limits\"\n[plans.free]"),
            ("[plans.free]", "[server]\npath_case = \"insensitive\"\n[plans.free]"),
            ("cost = 2", "cost = 3"),
            ("cost = 2", "cost = 2\ncors = { origins = [\"*\"] }"),
            ("[plans.free]", "[cors]\norigins = [\"*\"]\n[plans.free]"),
            ("path = \"/b/*\"", "path = \"/b\""),
            ("\"GET\", \"POST\"", "\"GET\""),
            ("plan = \"free\"\n        [upstreams", "plan = \"pro\"\n        [upstreams"),
            ("anonymous_plan = \"free\"", "anonymous_plan = \"pro\""),
            ("anonymous_plan = \"free\"", "anonymous_plan = \"free\"\nipv6_prefix = 56"),
            ("anonymous_plan = \"free\"", "anonymous_plan = \"free\"\non_unknown_key = \"accept\""),
            ("[rules.one]", "[rules.uno]"),
        ] {
            let changed = FILE.replacen(was, is, 1);
            assert_ne!(changed, FILE, "{was}");
            assert_ne!(hash(&changed), hash(FILE), "{was} -> {is}");
        }
    }

    #[test]
    fn hash_differs_with_conditions_and_with_the_order_of_expressions() {
        let of = |first: &str, second: &str, conditions: &str| {
            hash(&format!(
                "{FILE}[routes.{first}]\npath_regex = 'x'\nupstream = 'api'\n\
                 [routes.{second}]\npath_regex = 'x'\nupstream = 'api'\n{conditions}"
            ))
        };
        let all = [
            of("c", "d", "headers = { x-a = '1' }"),
            of("d", "c", "headers = { x-a = '1' }"),
            of("c", "d", "headers = { x-a = '1*' }"),
            of("c", "d", "query = { x-a = '1' }"),
            of("c", "d", "headers = { x-a = true }"),
        ];
        for (number, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(number));
        }
        let swapped = |first, second| {
            hash(&format!(
                "{FILE}[routes.{first}]\npath_regex = '{first}'\nupstream = 'api'\n\
                 [routes.{second}]\npath_regex = '{second}'\nupstream = 'api'\n"
            ))
        };
        assert_ne!(swapped("c", "d"), swapped("d", "c"));
    }
}
