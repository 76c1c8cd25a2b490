//! `GET /api/policy`: the configuration in force, without secrets.

mod identity;
mod settings;

use std::sync::Arc;

use serde::Serialize;

use super::upstreams::servers;
use crate::client::principal::Principal;
use crate::config::findings::{Finding, Findings};
use crate::explain::report::SplitShare;
use crate::explain::resolved::split_shares;
use crate::explain::wording;
use crate::limit::cost::Cost;
use crate::limit::fixed_window::Overage;
use crate::policy::settings::Target;
use crate::policy::split::Destination;
use crate::policy::{self, Grant};
use crate::runtime::Snapshot;
use identity::{ForwardAuthSettings, KeyStoreSettings};
use settings::{ClientSettings, ListenerSettings, RedisSettings, ServerSettings};

/// Maximum number of keys, and of limits of each rule, in the response.
const MAX_LISTED: usize = 1_000;

/// Response of `GET /api/policy`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Policy {
    /// Number of configurations that have been in force.
    generation: u64,
    server: ServerSettings,
    /// Those of `server.listen` first, then `[[listeners]]`.
    listeners: Vec<ListenerSettings>,
    admin: Admin,
    /// `null` if buckets are stored in this process.
    redis: Option<RedisSettings>,
    audit: Audit,
    clients: ClientSettings,
    /// `null` without one.
    key_store: Option<KeyStoreSettings>,
    forward_auth: Vec<ForwardAuthSettings>,
    /// `[cors]` in a few words; `null` without it. Those of routes are in their `handling`.
    cors: Option<String>,
    /// Statuses with bodies of `[errors]`, and their media types: `429: text/html`.
    errors: Vec<String>,
    plans: Vec<String>,
    /// Priorities of the plans, in their order: which requests an upstream with `max_in_flight`
    /// refuses last.
    priorities: Vec<i16>,
    keys: Vec<Key>,
    more_keys: usize,
    upstreams: Vec<Upstream>,
    routes: Vec<Route>,
    rules: Vec<Rule>,
    /// What is probably a mistake in the file.
    warnings: Vec<Finding>,
    more_warnings: usize,
}

/// Access to the admin port.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Admin {
    /// Whether the admin API requires a token.
    token: bool,
}

/// Where refusal runs are kept besides the memory of this process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Audit {
    /// Approximate number of refusal runs in the stream in Redis; `null` without a stream.
    stream: Option<u64>,
    /// Whether `GET /api/audit` can list the refusals of all gateways.
    all_gateways: bool,
}

/// An API key by its id; the key itself is never shown.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Key {
    id: String,
    plan: String,
    /// Tenant of the client; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// Whether the client is served.
    enabled: bool,
}

/// An upstream and its servers.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Upstream {
    name: String,
    servers: Vec<String>,
    /// How requests are distributed over the servers, as in the configuration file.
    balance: String,
    /// Weights of the servers, in their order.
    weights: Vec<u16>,
    /// Priorities of the servers, in their order. The lowest with a healthy server is used.
    priorities: Vec<u8>,
    /// Name of the cookie that keeps the requests of a client on one server.
    #[serde(skip_serializing_if = "Option::is_none")]
    sticky_cookie: Option<String>,
    /// How long the weight of a server rises after it has become healthy, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    slow_start_ms: Option<u64>,
    /// Maximum number of requests in flight, or `auto`; `null` without one.
    max_in_flight: Option<String>,
    /// Maximum number of open connections; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<u32>,
    /// When requests that failed are sent again, in a few words.
    retries: String,
    /// The codings by which responses are compressed: `br, gzip`; left out without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    compress: Option<String>,
    /// The requests that another upstream gets, too: `5% of the requests to shadow`; left out if
    /// there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror: Option<String>,
    /// Time limits of requests and attempts, as in the configuration file; left out without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_limits: Option<String>,
}

/// A route: which requests it matches, where they are forwarded and what they cost.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Route {
    name: String,
    /// Hosts that the route matches, separated by `, `; `null` for all hosts.
    host: Option<String>,
    path: String,
    /// Whether a trailing slash makes another path: `same` or `distinct`.
    trailing_slash: &'static str,
    /// Methods that the route matches; empty for all methods.
    methods: Vec<String>,
    /// Its conditions on headers, query parameters and cookies: `header x-version = 2`; left out
    /// without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<String>,
    /// Empty if the gateway answers itself, or if the route has several.
    upstream: String,
    /// What selects the upstream of a route with several: `request` or `client`; left out for a
    /// route with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    split_by: Option<&'static str>,
    /// The upstreams of a route with several, in the order of the file; left out for a route with
    /// one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    split: Vec<SplitShare>,
    cost: Cost,
    /// What the route does with requests and responses beside forwarding them, each in a few words;
    /// left out if it does nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    handling: Vec<String>,
    /// The enabled rules that apply to the route.
    rules: Vec<String>,
}

/// A rule: its limits, and the requests that it applies to.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Rule {
    name: String,
    description: Option<String>,
    enabled: bool,
    /// How the rule counts, as in the configuration file: `token_bucket`.
    kind: &'static str,
    /// Whether the rule is enforced: `enforce` or `shadow`.
    mode: &'static str,
    /// Share of the clients for which the rule is enforced, if that is not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforce: Option<String>,
    /// When clients that go on after refusals are banned, in words; left out if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<String>,
    /// When the rate falls because an upstream is unhealthy, in words; left out if it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapt: Option<String>,
    /// Share of the rate that the rule has now, in percent; left out if it does not adapt.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_percent: Option<f64>,
    /// Name of the rule whose limit this one may replace, of a candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate_of: Option<String>,
    per: Vec<String>,
    /// Names of the routes that the rule counts; `null` for all routes.
    routes: Option<Vec<String>>,
    /// How a rule per key counts a client without one: `ip`, `skip`, `shared` or `deny`.
    on_missing: &'static str,
    /// How requests are decided while Redis fails: `local`, `allow` or `deny`.
    on_failure: &'static str,
    /// Whether gateways borrow tokens of its buckets: `off`, `auto`, or the largest number of
    /// tokens.
    lease: String,
    /// Tokens that a request takes; left out if that is the `cost` of its route.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    /// Where the cost of a request is read, after it took `cost`; left out if that is its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<String>,
    /// Reasons for which a request gets its tokens back.
    refund_on: Vec<&'static str>,
    limits: Vec<Limit>,
    more_limits: usize,
    exempt: Exempt,
}

/// The limit of a rule for a plan, for one tenant or for one key.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Limit {
    plan: Option<String>,
    key: Option<String>,
    /// The tenant whose clients have the limit, if it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// Rate or limit as in the configuration file; `20 in flight` for a limit on requests in
    /// flight.
    rate: String,
    /// The setting that `rate` shows: `rate` or `limit`.
    rate_is: &'static str,
    /// Kind of the rule, as in the configuration file.
    kind: &'static str,
    burst: u64,
    /// Periods of a fixed window, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    periods: Option<String>,
    /// Longest time that a request waits in a leaky bucket, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delay_ms: Option<u64>,
    /// Thousandths of a quota from which on clients are warned.
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_thousandths: Option<u16>,
    /// `count` if requests beyond a quota are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    overage: Option<&'static str>,
}

/// Clients that are exempt from a rule.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Exempt {
    ips: Vec<String>,
    keys: Vec<String>,
}

impl Upstream {
    fn of(upstream: &policy::settings::Upstream) -> Self {
        let each = match &upstream.target {
            Target::Demo => &[],
            Target::Servers(servers) => servers.as_slice(),
        };
        let slow_start_ms = Some(upstream.slow_start_us / 1_000).filter(|ms| *ms > 0);
        Self {
            name: upstream.name.to_string(),
            servers: servers(upstream),
            balance: upstream.balance.to_string(),
            weights: each.iter().map(|server| server.weight).collect(),
            priorities: each.iter().map(|server| server.priority).collect(),
            sticky_cookie: upstream.sticky.as_ref().map(|sticky| sticky.cookie.to_string()),
            slow_start_ms,
            max_in_flight: upstream.max_in_flight.map(|most| most.to_string()),
            max_connections: upstream.max_connections.map(|max| max.open),
            retries: upstream.retries.to_string(),
            compress: Some(&upstream.compression)
                .filter(|compression| !compression.is_off())
                .map(ToString::to_string),
            mirror: upstream.mirror.as_ref().map(ToString::to_string),
            time_limits: Some(upstream.time_limits)
                .filter(|limits| !limits.is_empty())
                .map(|limits| limits.to_string()),
        }
    }
}

impl Policy {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let policy = &snapshot.policy;
        let key = |key: &Arc<Principal>| Key {
            id: key.id.to_string(),
            plan: policy.plan_name(key.plan).to_owned(),
            tenant: key.tenant.as_ref().map(|tenant| tenant.id.to_string()),
            enabled: key.is_enabled,
        };
        let Findings { list: warnings, not_kept: more_warnings } = policy.warnings.clone();
        Self {
            generation: snapshot.generation,
            server: ServerSettings::of(policy),
            listeners: policy.listeners.iter().map(ListenerSettings::of).collect(),
            admin: Admin { token: policy.admin.requires_token() },
            redis: policy.redis.as_ref().map(RedisSettings::of),
            audit: Audit {
                stream: policy.audit.stream,
                all_gateways: policy.audit.stream.is_some(),
            },
            clients: ClientSettings::of(policy),
            key_store: policy.key_store.as_ref().map(KeyStoreSettings::of),
            forward_auth: ForwardAuthSettings::all(policy),
            cors: policy.cors.as_ref().map(|cors| cors.words()),
            errors: policy.errors.as_ref().map_or_else(Vec::new, |errors| errors.words()),
            plans: policy.plans.iter().map(ToString::to_string).collect(),
            priorities: (0..)
                .zip(&policy.plans)
                .map(|(plan, _)| policy.priorities.number(plan))
                .collect(),
            keys: policy.keys.all().iter().take(MAX_LISTED).map(key).collect(),
            more_keys: policy.keys.all().len().saturating_sub(MAX_LISTED),
            upstreams: policy.upstreams.iter().map(Upstream::of).collect(),
            routes: policy.routes.iter().map(|route| Route::of(policy, route)).collect(),
            rules: (0..)
                .zip(&policy.rules)
                .map(|(index, rule)| Rule::of(policy, rule, snapshot.rates.share(index)))
                .collect(),
            warnings,
            more_warnings,
        }
    }
}

impl Route {
    fn of(policy: &policy::Policy, route: &policy::Route) -> Self {
        let rule = |rule: &u32| policy.rules.get(*rule as usize).map(|rule| rule.name.to_string());
        let upstream = match &route.destination {
            Destination::One(upstream) => policy.upstreams.get(*upstream as usize),
            Destination::Gateway | Destination::Split(_) => None,
        };
        Self {
            name: route.name.to_string(),
            host: route.matcher.hosts.text(),
            path: route.matcher.path.to_string(),
            trailing_slash: route.matcher.trailing_slash.name(),
            methods: route.matcher.conditions.methods.iter().map(ToString::to_string).collect(),
            conditions: route.matcher.conditions.value_words(),
            upstream: upstream.map_or_else(String::new, |upstream| upstream.name.to_string()),
            split_by: route.destination.split().map(|split| split.by.name()),
            split: split_shares(policy, &route.destination),
            cost: route.cost,
            handling: route.handling_words(),
            rules: route.rules.iter().filter_map(rule).collect(),
        }
    }
}

impl Rule {
    fn of(policy: &policy::Policy, rule: &policy::Rule, rates: Option<u16>) -> Self {
        let route = |route: &u32| Some(policy.routes.get(*route as usize)?.name.to_string());
        let limits = limits(policy, rule);
        let more_limits = limits.len().saturating_sub(MAX_LISTED);
        Self {
            name: rule.name.to_string(),
            description: rule.description.clone(),
            enabled: rule.enabled,
            kind: rule.kind.name(),
            mode: rule.mode.name(),
            enforce: rule.enforce_words(),
            ban: rule.ban.map(|ban| ban.to_string()),
            adapt: rule.adapt_words(policy),
            rate_percent: rates.map(|share| f64::from(share) / 10.0),
            candidate_of: rule
                .candidate_of
                .and_then(|of| Some(policy.rules.get(of as usize)?.name.to_string())),
            per: rule.per.iter().map(ToString::to_string).collect(),
            routes: rule.routes.as_ref().map(|routes| routes.iter().filter_map(route).collect()),
            on_missing: rule.on_missing.name(),
            on_failure: rule.on_failure.name(),
            lease: rule.lease.to_string(),
            cost: rule.cost,
            count: rule.count.as_ref().map(ToString::to_string),
            refund_on: rule.refund_on.names(),
            limits: limits.into_iter().take(MAX_LISTED).collect(),
            more_limits,
            exempt: Exempt {
                ips: rule.exempt.ips.iter().map(ToString::to_string).collect(),
                keys: rule.exempt.keys.iter().map(ToString::to_string).collect(),
            },
        }
    }
}

/// The limits of a rule: first those of plans, in the order of the file, then those of tenants,
/// then those of keys.
fn limits(policy: &policy::Policy, rule: &policy::Rule) -> Vec<Limit> {
    let limit = |plan, key, tenant, grant: &Grant| Limit {
        plan,
        key,
        tenant,
        rate: grant.written.to_string(),
        rate_is: grant.written.setting(),
        kind: rule.kind.name(),
        burst: grant.limit.capacity(),
        periods: grant.written.calendar().map(wording::periods),
        max_delay_ms: grant.written.max_delay_us().map(|us| us / 1_000),
        soft_thousandths: grant.limit.soft_thousandths(),
        overage: grant.limit.counts_overage().then(|| Overage::Count.name()),
    };
    let plans = (0..).zip(&rule.grant_by_plan).filter_map(|(plan, grant)| {
        Some(limit(Some(policy.plan_name(plan).to_owned()), None, None, grant.as_ref()?))
    });
    let keys = policy.keys.all().iter().filter_map(|key| {
        Some(limit(None, Some(key.id.to_string()), None, rule.grant_by_key.get(&key.id)?))
    });
    let mut by_tenant: Vec<_> = rule.grant_by_tenant.iter().collect();
    by_tenant.sort_by(|a, b| a.0.cmp(b.0));
    let tenants = by_tenant.into_iter();
    let tenants = tenants.map(|(id, grant)| limit(None, None, Some(id.to_string()), grant));
    plans.chain(tenants).chain(keys).collect()
}
