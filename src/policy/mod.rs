//! The configuration, resolved: every name is looked up, every number is checked. A [`Policy`] is
//! built from a file and never changes; a request uses one policy from start to end.
//!
//! Reading order: the types here; `settings`, `listener`, `acme`, `access_log`, `tracing` and
//! `redis` (everything except rules); `condition`, `request_values`, `expression`, `matcher`,
//! `params`, `path`, `prefixes`, `tree` and `router` (the route of a request); `ip_set` and
//! `ip_access` (which clients may send requests); `template`, `rewrite`, `cors` and `handling`
//! (what a route does beside forwarding); `forward_auth` (a server that is asked
//! whether requests go on); `introspection` (tokens that their issuer is
//! asked about); `compression` (of responses); `errors` (bodies of
//! errors); `split` (which upstream gets a request); `charges` (the rules that apply to a request,
//! and their buckets); `refund` (after which failures tokens are given back);
//! `mirror` (which requests a second upstream gets); `sample` (of requests, by their ids);
//! `retries` (after which ones a request is sent again); `priorities` (which plans are served
//! first); `cost_json` (costs in responses); `restart` (changes that a reload cannot apply); `kind`
//! (what the kind of a rule decides, and limits as they are written); `bucket_changes` (what a
//! reload does to buckets); `limits_hash` (by which gateways compare their limits); `build` (from
//! the file to a policy).
//!
//! Plans, upstreams, routes, rules and limits are referred to by their index in one list each, in
//! the order of the file; keys by their id.

pub mod access_log;
pub mod acme;
pub mod bucket_changes;
pub mod build;
pub mod charges;
pub mod compression;
pub mod condition;
pub mod cors;
mod cost_json;
pub mod errors;
pub mod expression;
pub mod failures;
pub mod forward_auth;
pub mod handling;
pub mod health;
pub mod hosts;
pub mod introspection;
pub mod ip_access;
pub mod ip_set;
pub mod key_store;
mod kind;
pub mod limits_hash;
pub mod listener;
pub mod matcher;
pub mod mirror;
pub mod network_path;
pub mod params;
pub mod path;
mod prefixes;
pub mod priorities;
pub mod redis;
pub mod refund;
mod request_values;
pub mod restart;
pub mod retries;
pub mod rewrite;
pub mod router;
pub mod sample;
pub mod servers;
pub mod settings;
pub mod split;
pub mod template;
pub mod time_limits;
pub mod tracing;
mod tree;
pub mod webhook;
pub mod writable;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::client::password::Passwords;
use crate::client::principal::{Keys, Principal, Tenants};
use crate::client::settings::Clients;
use crate::config::findings::Findings;
use crate::config::words::LeaseWord;
pub use crate::config::words::{Kind, OnFailure, OnMissing};
use crate::limit::Limit;
use crate::limit::adapt::AdaptRule;
use crate::limit::ban::BanRule;
use crate::limit::charge::Mode;
use crate::limit::cost::Cost;
use crate::limit::fixed_window::Overage;
pub use crate::limit::grant::{Grant, Rate, WrittenLimit};
use crate::meter::Source;
use access_log::AccessLog;
use acme::Acme;
use compression::Compression;
use cors::Cors;
use errors::Errors;
use forward_auth::ForwardAuth;
use handling::Handling;
use introspection::Introspection;
use ip_access::IpAccess;
use key_store::KeyStore;
use listener::Listener;
use matcher::Matcher;
use mirror::RouteMirror;
use priorities::Priorities;
use redis::Redis;
use refund::RefundOn;
use retries::Retries;
use router::Router;
use settings::{Admin, Audit, Headers, Log, Memory, Server, Upstream, Usage};
use split::Destination;
use time_limits::TimeLimits;
use tracing::Tracing;

/// What to write if there is no file, or none with routes.
pub const SMALLEST_FILE: &str = "the smallest file that serves is\n\n\
    [upstreams.api]\nservers = [\"127.0.0.1:3000\"]\n\n\
    [routes.all]\npath = \"/*\"\nupstream = \"api\"";

/// Maximum number of enabled rules for one route. One call to Redis carries 1,024 buckets, so at
/// least eight requests share it.
pub const MAX_RULES_PER_ROUTE: usize = 128;

/// A configuration, resolved and immutable.
#[derive(Debug)]
pub struct Policy {
    /// Listeners, timeouts and size limits.
    pub server: Server,
    /// Where clients connect, at least one: those of `server.listen` first, then `[[listeners]]`.
    pub listeners: Vec<Listener>,
    /// Automatic certificates; `None`: off.
    pub acme: Option<Acme>,
    /// Access to the admin port.
    pub admin: Admin,
    /// How clients are identified.
    pub clients: Clients,
    /// Which rate limit headers responses have.
    pub headers: Headers,
    /// Capacity of the bucket store in this process.
    pub memory: Memory,
    /// The shared bucket store; `None`: buckets are kept in this process.
    pub redis: Option<Redis>,
    /// What clients used of their quotas, kept beyond the life of the process.
    pub usage: Usage,
    /// Settings of the access log.
    pub access_log: AccessLog,
    /// The export of traces; `None`: off.
    pub tracing: Option<Tracing>,
    /// The stream of refusal runs in Redis.
    pub audit: Audit,
    /// The log of the process.
    pub log: Log,
    /// Names of the plans.
    pub plans: Vec<Arc<str>>,
    /// The priorities of the plans.
    pub priorities: Priorities,
    /// The clients with API keys in the file.
    pub keys: Keys,
    /// The users of the file with passwords; `None`: there are none.
    pub passwords: Option<Passwords>,
    /// How the issuer of bearer tokens is asked about them; `None`: it is not.
    pub introspection: Option<Box<Introspection>>,
    /// The tenants that the file describes.
    pub tenants: Tenants,
    /// Clients with API keys beside those; `None`: there is no key store.
    pub key_store: Option<KeyStore>,
    /// Groups of endpoints that requests are forwarded to.
    pub upstreams: Vec<Upstream>,
    /// Servers that are asked whether requests go on.
    pub forward_auth: Vec<ForwardAuth>,
    /// Routes, each with its upstream and cost.
    pub routes: Vec<Route>,
    /// Rate limits and the clients that they apply to.
    pub rules: Vec<Rule>,
    /// Headers in `per` of enabled rules, each once.
    pub counted_headers: Vec<http::HeaderName>,
    /// Whether an enabled rule counts by client certificate.
    pub counts_certificates: bool,
    /// Which limits are quotas.
    pub quotas: Quotas,
    /// Indexes of the rules that change what a request took after its response: see
    /// [`Rule::settles`].
    pub settled_rules: Vec<u32>,
    /// All limits of all rules, each once. Buckets refer to theirs by its index.
    pub limits: Vec<Limit>,
    /// Index over all routes.
    pub router: Router,
    /// Which clients may send requests without a route, by their address; `None`: all.
    pub ip_access: Option<Arc<IpAccess>>,
    /// Which pages of other sites can read responses to requests without a route; `None`: none.
    pub cors: Option<Arc<Cors>>,
    /// Whether there are such settings, of a route or of requests without one.
    pub has_cors: bool,
    /// Bodies of errors instead of problem documents; `None`: none.
    pub errors: Option<Box<Errors>>,
    /// What is probably a mistake in the file.
    pub warnings: Findings,
}

impl Policy {
    /// The lists of addresses that apply to a request, by the index of its route.
    pub fn ip_access(&self, route: Option<u32>) -> Option<&IpAccess> {
        match route {
            Some(route) => self.routes.get(route as usize)?.ip_access.as_deref(),
            None => self.ip_access.as_deref(),
        }
    }

    /// Which server is asked about a request, by the index of its route; `None`: none.
    pub fn forward_auth_of(&self, route: Option<u32>) -> Option<&ForwardAuth> {
        let index = self.routes.get(route? as usize)?.forward_auth?;
        self.forward_auth.get(index as usize)
    }

    /// Which pages of other sites can read the response to a request, by the index of its route.
    pub fn cors(&self, route: Option<u32>) -> Option<&Cors> {
        match route {
            Some(route) => self.routes.get(route as usize)?.cors(),
            None => self.cors.as_deref(),
        }
    }

    /// Name of the plan with that index; empty if there is none.
    pub fn plan_name(&self, plan: u32) -> &str {
        self.plans.get(plan as usize).map_or("", |name| name)
    }

    /// Whether a limit is a quota: a fixed window of an hour or longer.
    pub fn has_quotas(&self) -> bool {
        self.quotas != Quotas::None
    }

    /// Whether a limit warns clients before it is reached (`soft`).
    pub fn has_soft(&self) -> bool {
        self.quotas == Quotas::Warned
    }

    /// Sets [`Grant::index`] of every grant to the number that the store assigned to its limit.
    /// `numbers[n]` is the number of `self.limits[n]`.
    pub fn number_limits(&mut self, numbers: &[u32]) {
        for rule in &mut self.rules {
            let by_plan = rule.grant_by_plan.iter_mut().flatten();
            let by_client = rule.grant_by_tenant.values_mut().chain(rule.grant_by_key.values_mut());
            for grant in by_plan.chain(by_client) {
                grant.index = numbers.get(grant.index as usize).copied().unwrap_or(grant.index);
            }
        }
    }
}

/// A route: which requests it matches, where they are forwarded, and what they cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name in the file.
    pub name: Arc<str>,
    /// Which requests it matches.
    pub matcher: Matcher,
    /// Its upstream, or several with weights.
    pub destination: Destination,
    /// Tokens that each request takes from each bucket.
    pub cost: Cost,
    /// Maximum time without data in either direction on a WebSocket.
    pub websocket_idle_timeout: Duration,
    /// Maximum size of a request's body, in bytes: its own, else that of the server; `None`: any
    /// size.
    pub max_body_bytes: Option<u64>,
    /// Time limits of its requests beside those of its upstream; `None`: it has none.
    pub time_limits: Option<Box<TimeLimits>>,
    /// When its requests are sent again; `None`: as its upstream says.
    pub retries: Option<Box<Retries>>,
    /// How its responses are compressed; `None`: as its upstream says.
    pub compression: Option<Compression>,
    /// Which of its requests another upstream gets, too; `None`: as its upstream says.
    pub mirror: Option<Box<RouteMirror>>,
    /// What it does beside forwarding; `None`: nothing.
    pub handling: Option<Arc<Handling>>,
    /// Which clients may send requests, by their address; `None`: all.
    pub ip_access: Option<Arc<IpAccess>>,
    /// Index of the server that is asked about its requests; `None`: none is.
    pub forward_auth: Option<u32>,
    /// Indexes of the enabled rules for this route, in the order of the file.
    pub rules: Vec<u32>,
}

/// A rule: which requests share a bucket, and the limit of that bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name in the file, in headers and in metrics.
    pub name: Arc<str>,
    /// Free text, shown with the rule.
    pub description: Option<String>,
    /// How the rule counts: the kind of all its grants.
    pub kind: Kind,
    /// Requests with equal values of these share a bucket. In canonical order, so that the order in
    /// the file does not matter. Empty: all requests share one bucket.
    pub per: Vec<Dimension>,
    /// A disabled rule has no effect.
    pub enabled: bool,
    /// Indexes of the routes that it applies to; `None`: all.
    pub routes: Option<Vec<u32>>,
    /// Whether it refuses requests or only counts them (shadow).
    pub mode: Mode,
    /// Share of the clients for which it refuses requests, in thousandths, if it does so.
    pub enforced_thousandths: u16,
    /// When clients that go on after refusals are banned; `None`: never.
    pub ban: Option<BanRule>,
    /// When its rate falls because an upstream is unhealthy; `None`: never.
    pub adapt: Option<AdaptRule>,
    /// Index of the rule whose limit this one may replace; `None`: it is a rule of the file.
    pub candidate_of: Option<u32>,
    /// Treatment of clients without a key, if `per` contains `key`.
    pub on_missing: OnMissing,
    /// Treatment of its requests if Redis is unavailable.
    pub on_failure: OnFailure,
    /// Whether gateways borrow tokens of its buckets from Redis.
    pub lease: Lease,
    /// Tokens that a request takes before it is forwarded; `None`: those of its route.
    pub cost: Option<Cost>,
    /// Where its real cost is read at the end of its response; `None`: it is what it took.
    pub count: Option<Arc<Source>>,
    /// Failures after which a request gets its tokens back.
    pub refund_on: RefundOn,
    /// With which others a bucket has a common hash tag in Redis; `None`: with none.
    pub colocated: Option<Colocated>,
    /// Grant of each plan, by the plan's index; `None`: the rule does not apply to that plan.
    pub grant_by_plan: Vec<Option<Grant>>,
    /// Whether the rule has a `plans.<plan>` table for a plan, by the plan's index. Such a plan
    /// has its own buckets, unless `per` contains `key` or `plan`, which separate the plans
    /// already. All other plans share the buckets of the rule's own `rate`, so that another plan's
    /// table does not change their ids.
    pub has_plan_table: Vec<bool>,
    /// Grants of single keys, by the key's id.
    pub grant_by_key: HashMap<Arc<str>, Grant>,
    /// Grants of the clients of single tenants, by the tenant's id.
    pub grant_by_tenant: HashMap<Arc<str>, Grant>,
    /// Clients that it does not limit.
    pub exempt: Exempt,
    /// What grants of clients outside of the file have in common with those in it.
    pub terms: GrantTerms,
    /// Hash of the name. It separates the buckets of this rule from those of other rules.
    pub salt: u128,
}

/// Which limits are quotas: fixed windows of an hour or longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotas {
    /// None.
    None,
    /// Some, and none of them warns.
    Counted,
    /// Some, of which at least one warns clients before it is reached.
    Warned,
}

/// The settings of a rule that its grants have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantTerms {
    /// Parts of a token that the costs of the rule's routes take.
    pub parts: u16,
    /// Time zone of the periods of a fixed window, if it is not the default.
    pub zone: Option<String>,
    /// First day of these periods, if it is not the default.
    pub anchor: Option<u64>,
    /// Longest time that a request waits in a leaky bucket, if it is not the default.
    pub max_delay: Option<String>,
    /// From which on clients are warned, if at all.
    pub soft: Option<String>,
    /// What happens to requests beyond the limit, if it is not the default.
    pub overage: Option<Overage>,
}

impl Route {
    /// Which pages of other sites can read its responses; `None`: the gateway leaves that to the
    /// upstream.
    pub fn cors(&self) -> Option<&Cors> {
        self.handling.as_ref()?.cors.as_deref()
    }

    /// What it does beside forwarding, each in a few words.
    pub fn handling_words(&self) -> Vec<String> {
        let access = self.ip_access.iter().flat_map(|access| access.words());
        let limits = self.time_limits.iter().map(ToString::to_string);
        let retries = self.retries.iter().map(ToString::to_string);
        let compression = self.compression.iter().map(|own| format!("compress: {own}"));
        let mirror = self.mirror.iter().map(|own| format!("mirror: {own}"));
        let asked = self.forward_auth.map(|_| "forward_auth".to_owned());
        access
            .chain(asked)
            .chain(limits)
            .chain(retries)
            .chain(compression)
            .chain(mirror)
            .chain(self.handling.iter().flat_map(|handling| handling.words()))
            .collect()
    }
}

impl Rule {
    /// [`enforced_thousandths`](Self::enforced_thousandths) of a rule that is enforced for all.
    pub const ALL_CLIENTS: u16 = 1_000;

    /// Whether it refuses requests without a key, while it is enabled.
    pub fn requires_key(&self) -> bool {
        self.mode == Mode::Enforce
            && self.on_missing == OnMissing::Deny
            && self.per.contains(&Dimension::Key)
    }

    /// `adapt` in words, with the name of the upstream.
    pub fn adapt_words(&self, policy: &Policy) -> Option<String> {
        let adapt = self.adapt?;
        let upstream = policy.upstreams.get(adapt.upstream as usize)?;
        Some(format!("to {}: {adapt}", upstream.name))
    }

    /// `enforce` as the file writes it; `None`: the rule is enforced for all clients.
    pub fn enforce_words(&self) -> Option<String> {
        let (whole, tenth) = (self.enforced_thousandths / 10, self.enforced_thousandths % 10);
        match tenth {
            _ if self.enforced_thousandths == Self::ALL_CLIENTS => None,
            0 => Some(format!("{whole}%")),
            _ => Some(format!("{whole}.{tenth}%")),
        }
    }

    /// Whether what a request took is changed after its response.
    pub fn settles(&self) -> bool {
        self.enabled && (self.count.is_some() || self.refund_on.has_statuses())
    }

    /// Whether the rule has a `plans.<plan>` table for the plan with that index.
    pub fn has_plan_table(&self, plan: u32) -> bool {
        self.has_plan_table.get(plan as usize).copied().unwrap_or(false)
    }

    /// Whether the rule has a `plans.<plan>` table for any plan.
    pub fn has_plan_tables(&self) -> bool {
        self.has_plan_table.contains(&true)
    }

    /// The limit with that index as it is written; `None` if neither the rule nor the client has
    /// it.
    pub fn written(&self, limit_index: u32, client: Option<&Principal>) -> Option<WrittenLimit> {
        let own = client.and_then(|client| client.own_grant(self.salt));
        let mut grants = own.into_iter().chain(self.grants());
        grants.find(|grant| grant.index == limit_index).map(|grant| grant.written)
    }

    /// The grants of plans, tenants and keys.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        let by_client = self.grant_by_tenant.values().chain(self.grant_by_key.values());
        self.grant_by_plan.iter().flatten().chain(by_client)
    }
}

/// Which buckets have a common hash tag in Redis with a bucket of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colocated {
    /// Those of its client, of all rules per key.
    Key,
    /// Those of all clients of its tenant, of all rules per tenant or key; without a tenant, as
    /// [`Key`](Self::Key).
    Tenant,
}

/// A property of requests that selects the bucket: one item of `per`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The client's address; IPv6 truncated to `clients.ipv6_prefix` bits.
    Ip,
    /// The API key; clients without one are treated by [`OnMissing`].
    Key,
    /// The name of the client's plan.
    Plan,
    /// The name of the request's route.
    Route,
    /// The request's method, case-sensitive.
    Method,
    /// The request's host in lower case, without port.
    Host,
    /// The value of a request header. Requests without the header share a bucket.
    Header(http::HeaderName),
    /// The subject of the client's certificate. The rule does not apply to clients without one.
    Certificate,
    /// The value of a parameter in the path of the request's route, decoded. Requests of routes
    /// without the parameter share a bucket.
    Param(Arc<str>),
    /// The client's tenant. The rule does not apply to clients without one.
    Tenant,
    /// A claim of the client's token. Requests without a token, or with one that lacks the claim,
    /// share a bucket.
    Claim(Arc<str>),
}

impl Dimension {
    /// All but those with a name of their own.
    pub const PLAIN: [Self; 8] = [
        Self::Ip,
        Self::Key,
        Self::Tenant,
        Self::Plan,
        Self::Route,
        Self::Method,
        Self::Host,
        Self::Certificate,
    ];

    /// Whether different clients can have different values, so that one of them can be banned.
    pub const fn is_of_client(&self) -> bool {
        match self {
            Self::Ip
            | Self::Key
            | Self::Header(_)
            | Self::Certificate
            | Self::Param(_)
            | Self::Tenant
            | Self::Claim(_) => true,
            Self::Plan | Self::Route | Self::Method | Self::Host => false,
        }
    }

    /// Sort key within `per`: by kind, then headers and parameters by name.
    fn canonical_position(&self) -> (u8, &str) {
        match self {
            Self::Ip => (0, ""),
            Self::Key => (1, ""),
            Self::Plan => (2, ""),
            Self::Route => (3, ""),
            Self::Method => (4, ""),
            Self::Host => (5, ""),
            Self::Header(name) => (6, name.as_str()),
            Self::Certificate => (7, ""),
            Self::Param(name) => (8, name),
            Self::Tenant => (9, ""),
            Self::Claim(name) => (10, name),
        }
    }
}

impl std::fmt::Display for Dimension {
    /// The syntax of the file.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Ip => "ip",
            Self::Key => "key",
            Self::Plan => "plan",
            Self::Route => "route",
            Self::Method => "method",
            Self::Host => "host",
            Self::Header(name) => return write!(formatter, "header:{name}"),
            Self::Certificate => "cert",
            Self::Tenant => "tenant",
            Self::Param(name) => return write!(formatter, "param:{name}"),
            Self::Claim(name) => return write!(formatter, "claim:{name}"),
        })
    }
}

/// Whether gateways borrow tokens of a rule's buckets from Redis, and spend them without a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lease {
    /// Each request takes its tokens from Redis.
    #[default]
    Off,
    /// As many tokens as the gateway soon needs.
    Auto,
    /// The same, but each gateway borrows at most this number of tokens, at least 1.
    UpTo(u64),
}

impl std::fmt::Display for Lease {
    /// The syntax of the file, without quotes.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Off => formatter.write_str(LeaseWord::Off.name()),
            Self::Auto => formatter.write_str(LeaseWord::Auto.name()),
            Self::UpTo(tokens) => tokens.fmt(formatter),
        }
    }
}

/// Clients that a rule does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Networks of their addresses.
    pub ips: Vec<IpNet>,
    /// Ids of their keys.
    pub keys: Vec<Arc<str>>,
}
