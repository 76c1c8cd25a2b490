//! The rules as they are meant: every name resolved, every number checked. Built whole from a
//! file, then never changed; a request lives and dies with one of them.
//!
//! Reading order: the types here; `settings`, `access_log`, `tracing` and `redis` (what is not a rule); `matcher`, `path`, `prefixes` and
//! `router` (which route a request takes); `client` and `charges` (what the request owes); `restart` (what a
//! running gateway cannot take from another); `build` (how a policy comes
//! out of a file).
//!
//! Names are resolved to indexes: plans, keys, upstreams, routes, rules and limits each stand in
//! one list, in the order of the file.

pub mod access_log;
pub mod build;
pub mod charges;
pub mod client;
pub mod matcher;
pub mod path;
mod prefixes;
pub mod redis;
pub mod restart;
pub mod router;
pub mod settings;
pub mod tracing;

use std::collections::HashMap;
use std::sync::Arc;

use ipnet::IpNet;

use crate::limit::Limit;
use crate::limit::charge::Mode;
use access_log::AccessLog;
use matcher::Matcher;
use redis::Redis;
use router::Router;
use settings::{Admin, Audit, Clients, Headers, Memory, Server, Upstream};
use tracing::Tracing;

/// The most enabled rules that may count the requests of one route. One call to the shared store
/// carries 1,024 buckets, so at least eight requests share it.
pub const MAX_RULES_PER_ROUTE: usize = 128;

/// SHA-256 of an API key as it was sent.
pub type Digest = [u8; 32];

/// Everything that a request is judged by.
#[derive(Debug)]
pub struct Policy {
    /// Listeners and the guards around requests.
    pub server: Server,
    /// Who may use the operator's port.
    pub admin: Admin,
    /// How clients are told apart.
    pub clients: Clients,
    /// What answers say about limits.
    pub headers: Headers,
    /// How many buckets this process keeps.
    pub memory: Memory,
    /// The store that gateways share; none: buckets live in this process.
    pub redis: Option<Redis>,
    /// One line for every request.
    pub access_log: AccessLog,
    /// Where traces of requests go; none: there are none.
    pub tracing: Option<Tracing>,
    /// Where refusals are kept beside this process.
    pub audit: Audit,
    /// Names of plans; an index into it is a plan.
    pub plans: Vec<Arc<str>>,
    /// Known clients.
    pub keys: Vec<Key>,
    /// Which key has this digest.
    pub key_by_digest: HashMap<Digest, u32>,
    /// What requests are sent on to.
    pub upstreams: Vec<Upstream>,
    /// Where requests may go.
    pub routes: Vec<Route>,
    /// Limits.
    pub rules: Vec<Rule>,
    /// Headers that enabled rules count by, each once.
    pub counted_headers: Vec<http::HeaderName>,
    /// Every limit that any rule grants, each once. Buckets refer to theirs by its index.
    pub limits: Vec<Limit>,
    /// Finds the route of a request.
    pub router: Router,
}

impl Policy {
    /// The name of a plan; empty for an index that is none.
    pub fn plan_name(&self, plan: u32) -> &str {
        self.plans.get(plan as usize).map_or("", |name| name)
    }

    /// Has every grant name its limit by the number that a store has for it: `numbers` has one for
    /// each of the policy's limits.
    pub fn number_limits(&mut self, numbers: &[u32]) {
        for rule in &mut self.rules {
            let of_plans = rule.quota_by_plan.iter_mut().flatten();
            for grant in of_plans.chain(rule.quota_by_key.values_mut()) {
                grant.index = numbers.get(grant.index as usize).copied().unwrap_or(grant.index);
            }
        }
    }
}

/// A known client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The name that logs and metrics show.
    pub id: Arc<str>,
    /// Index of its plan.
    pub plan: u32,
}

/// Where a request may go, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its name in the file.
    pub name: Arc<str>,
    /// What it matches.
    pub matcher: Matcher,
    /// Index of its upstream.
    pub upstream: u32,
    /// Tokens that a request takes from each bucket, at least 1.
    pub cost: u64,
    /// Indexes of the enabled rules that count its requests, in the order of the file.
    pub rules: Vec<u32>,
}

/// A limit: who shares a bucket, and what the bucket allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name in the file, in headers and in metrics.
    pub name: Arc<str>,
    /// Free text from the file.
    pub description: Option<String>,
    /// Who shares a bucket, in canonical order, whatever the order in the file. Empty: everybody.
    pub per: Vec<Dimension>,
    /// Whether it is there at all.
    pub enabled: bool,
    /// Indexes of the routes that it counts; none: all.
    pub routes: Option<Vec<u32>>,
    /// Whether it refuses or only counts.
    pub mode: Mode,
    /// What becomes of a client without a key, where `per` has `key`.
    pub on_missing: OnMissing,
    /// What becomes of its requests when the shared store fails.
    pub on_failure: OnFailure,
    /// Grant of each plan, by the plan's index; none: the rule does not apply to that plan.
    pub quota_by_plan: Vec<Option<Grant>>,
    /// Whether the rule has a `plans.<plan>` table for a plan, by the plan's index. Such a plan
    /// has its own buckets, unless `per` contains `key` or `plan`, which separate the plans already.
    /// All other plans share the buckets of the plain grant, so that another plan's table does
    /// not change their ids.
    pub has_own_quota: Vec<bool>,
    /// Grants of single keys, by the key's index.
    pub quota_by_key: HashMap<u32, Grant>,
    /// Who is not limited by it.
    pub exempt: Exempt,
    /// A hash of the name, which sets its buckets apart from those of other rules.
    pub salt: u128,
}

impl Rule {
    /// Whether that plan, by its index, has a `plans.<plan>` table in this rule.
    pub fn has_own_quota(&self, plan: u32) -> bool {
        self.has_own_quota.get(plan as usize).copied().unwrap_or(false)
    }

    /// How the file wrote the rate of the limit with that index, where this rule grants it.
    pub fn rate_of(&self, limit_index: u32) -> Option<Rate> {
        let grants = self.quota_by_plan.iter().flatten().chain(self.quota_by_key.values());
        grants.into_iter().find(|grant| grant.index == limit_index).map(|grant| grant.rate)
    }
}

/// A limit and its index in [`Policy::limits`], or what [`Policy::number_limits`] put in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Number by which buckets of this limit refer to it.
    pub index: u32,
    /// The limit itself.
    pub limit: Limit,
    /// How the file wrote the rate, as tokens and a period in ticks: for what people read.
    pub rate: Rate,
}

/// A rate as it was written: `tokens` per `period_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens per period.
    pub tokens: u64,
    /// The period in ticks.
    pub period_us: u64,
}

impl std::fmt::Display for Rate {
    /// As the file writes it: `100/s`, `5/250ms`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(&str, u64); 5] = [
            ("d", 86_400_000_000),
            ("h", 3_600_000_000),
            ("m", 60_000_000),
            ("s", 1_000_000),
            ("ms", 1_000),
        ];
        let Self { tokens, period_us } = *self;
        match UNITS.into_iter().find(|(_, ticks)| period_us.is_multiple_of(*ticks)) {
            Some((unit, ticks)) if ticks == period_us => write!(formatter, "{tokens}/{unit}"),
            Some((unit, ticks)) => write!(formatter, "{tokens}/{}{unit}", period_us / ticks),
            None => write!(formatter, "{tokens}/{period_us}us"),
        }
    }
}

/// What sets one client's bucket apart from another's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// The client's address, IPv6 by prefix.
    Ip,
    /// The API key.
    Key,
    /// The client's plan.
    Plan,
    /// The route.
    Route,
    /// The request's method.
    Method,
    /// The request's host.
    Host,
    /// The value of a request header; its absence is a value of its own.
    Header(http::HeaderName),
}

impl Dimension {
    /// Where it stands in a rule's `per`: by kind, headers by name.
    fn canonical_position(&self) -> (u8, &str) {
        match self {
            Self::Ip => (0, ""),
            Self::Key => (1, ""),
            Self::Plan => (2, ""),
            Self::Route => (3, ""),
            Self::Method => (4, ""),
            Self::Host => (5, ""),
            Self::Header(name) => (6, name.as_str()),
        }
    }
}

impl std::fmt::Display for Dimension {
    /// As the file writes it.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Ip => "ip",
            Self::Key => "key",
            Self::Plan => "plan",
            Self::Route => "route",
            Self::Method => "method",
            Self::Host => "host",
            Self::Header(name) => return write!(formatter, "header:{name}"),
        })
    }
}

/// What a rule per key does with a client that sent none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// Counts the client by its address.
    #[default]
    Ip,
    /// Does not apply.
    Skip,
    /// Counts all such clients in one bucket.
    Shared,
    /// Answers 401.
    Deny,
}

/// What becomes of a request when the shared store cannot be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Decided by buckets in this process.
    #[default]
    Local,
    /// Passes.
    Allow,
    /// Answers 503.
    Deny,
}

/// Who a rule does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Addresses.
    pub ips: Vec<IpNet>,
    /// Indexes of keys.
    pub keys: Vec<u32>,
}
