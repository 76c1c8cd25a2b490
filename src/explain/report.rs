//! The explanation of a request. Names and codes are a contract, listed in `docs/explain.md`.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::limit::cost::Cost;
use crate::policy::refund::RefundOn;

/// The response to a request, and why. Every `why` is a sentence for people; programs use the other
/// members.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Method, host and path of the request.
    pub request: Request,
    /// The client; `None` if the request is refused before the client is identified.
    pub client: Option<ExplainedClient>,
    /// The route of the request, and why it matches.
    pub route: ExplainedRoute,
    /// What the response says about the origin of the request; left out if it has none, or if
    /// `cors` does not apply to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<ExplainedCors>,
    /// All rules, in the order of the configuration file.
    pub rules: Vec<ExplainedRule>,
    /// Source of the buckets' levels: `redis`, `local`, `none` (the request takes from no bucket),
    /// `unavailable` (Redis is unavailable, and a rule has `on_failure = "deny"`) or `not_read`.
    pub levels: &'static str,
    /// Whether the request is allowed, and why.
    pub verdict: Verdict,
}

/// The request, parsed. Without query and headers, which may contain a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Request {
    /// Method of the request, such as `GET`.
    pub method: String,
    /// Host in lower case, without port.
    pub host: String,
    /// Path of the request, without the query.
    pub path: String,
    /// Members that were not given: `host`, `ip`.
    pub assumed: Vec<&'static str>,
}

/// The client of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedClient {
    /// Address of the client, found through trusted proxies.
    pub address: Option<IpAddr>,
    /// `peer`, `nothing_forwarded`, `malformed`, `hop` or `all_trusted`.
    pub address_from: &'static str,
    /// Position in `X-Forwarded-For` of the address that decided, counted from 1, from the right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<usize>,
    /// How the address was determined.
    pub address_why: String,
    /// The list that refuses the address, in words; left out if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_refused: Option<String>,
    /// The address or network that rules count.
    pub counted_as: Option<String>,
    /// Id of the key; `None` without a known key.
    pub key: Option<String>,
    /// `none`, `known`, `unknown`, `unknown_as_none` (`on_unknown_key = "anonymous"`), `preflight`
    /// (none, and none is needed: `on_preflight = "anonymous"`), or `not_read` (the file has no
    /// keys).
    pub key_state: &'static str,
    /// Where the key was sent, as in `clients.api_key`: `header:x-api-key`.
    pub key_from: Option<String>,
    /// Subject of the client's certificate; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// Tenant of the client; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Plan of the client.
    pub plan: String,
    /// Priority of the plan at an upstream with `max_in_flight`.
    pub priority: i16,
    /// Where the plan comes from: `key` or `anonymous_plan`.
    pub plan_from: &'static str,
}

/// The route of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedRoute {
    /// Name of the route; `null` if no route matches.
    pub name: Option<String>,
    /// Upstream that gets the request; `null` if the route splits its requests one by one.
    pub upstream: Option<String>,
    /// How the upstream's servers are used, if the file says so: `least_request over a:80 (weight
    /// 3), b:80`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Maximum number of requests in flight at the upstream, or `auto`; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<String>,
    /// Time limits of the request and its attempts: those of the upstream that the route does not
    /// replace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limits: Option<String>,
    /// When a request that failed is sent again, if the upstream says so and the route does not:
    /// `up to 1 retry on connect, 503, within 20 % of the requests`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<String>,
    /// The codings by which responses are compressed, if the upstream says so and the route does
    /// not: `br, gzip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compress: Option<String>,
    /// The requests that another upstream gets, too, if the upstream says so and the route does
    /// not: `5% of the requests to shadow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The endpoints of the upstream that get no requests, with the reason: `10.0.0.8:80 ejected:
    /// error rate`. Left out without one, and by the command line, which asks no gateway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints_down: Vec<String>,
    /// The names of servers of the upstream whose last look-up failed, with the reason:
    /// `api.internal:80 failed: no name server answered`. Left out in the same cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lookups_failing: Vec<String>,
    /// What selects the upstream of a route with several: `request` or `client`; left out for a
    /// route with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_by: Option<&'static str>,
    /// The upstreams of a route with several, in the order of the file; left out for a route with
    /// one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<SplitShare>,
    /// Tokens that the request takes from each bucket.
    pub cost: Option<Cost>,
    /// Parameters of the route's path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Param>,
    /// Path that the upstream gets, if the route rewrites it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_path: Option<String>,
    /// What the route does with requests and responses beside forwarding them, each in a few words;
    /// left out if it does nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handling: Vec<String>,
    /// Why this route matches, or why none does.
    pub why: String,
    /// The routes whose host and path match, the most specific first; if no route matches, those
    /// that differ in one criterion.
    pub candidates: Vec<Candidate>,
    /// Readings of the path by different servers, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
}

/// A parameter of the route's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its value as the request has it, not decoded.
    pub value: String,
}

/// An upstream of a route with several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SplitShare {
    /// Name of the upstream.
    pub upstream: String,
    /// Its part of the sum of the weights.
    pub weight: u32,
}

/// A route that matches host and path of the request, or differs in one criterion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Candidate {
    /// Name of the route.
    pub name: String,
    /// Path as in the configuration file.
    pub path: String,
    /// Whether a path with a trailing slash is another path: `same` or `distinct`.
    pub trailing_slash: &'static str,
    /// Hosts that the route matches, separated by `, `; `null` for all hosts.
    pub host: Option<String>,
    /// Methods that the route matches; empty for all methods.
    pub methods: Vec<String>,
    /// Its conditions on headers, query parameters and cookies: `header x-version = 2`; left out
    /// without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Whether this is the route of the request.
    pub wins: bool,
    /// Why this is the route of the request, or why it is not.
    pub why: String,
}

/// The path as some servers read it, and the route that matches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reading {
    /// The path in this reading.
    pub path: String,
    /// What follows two slashes at the beginning, which some servers read as the host; left out for
    /// the other readings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Name of the route that matches this reading; `null` if none does.
    pub route: Option<String>,
}

/// What the response to a request with a header `Origin` says about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedCors {
    /// Whether a page of the origin can read the response.
    pub allowed: bool,
    /// Whether the request is a CORS preflight request, which the gateway answers.
    pub preflight: bool,
    /// The CORS headers of the response.
    pub headers: Vec<HeaderLine>,
    /// Why.
    pub why: String,
}

/// A header of a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeaderLine {
    pub name: &'static str,
    pub value: String,
}

/// A rule, and whether it applies to the request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedRule {
    /// Name of the rule.
    pub name: String,
    /// Whether it applies to the request.
    pub applies: bool,
    /// Whether the rule is enforced, for this client if it applies: `enforce` or `shadow`.
    pub mode: &'static str,
    /// Share of the clients for which it is enforced, if that is not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce: Option<String>,
    /// How requests are decided while Redis fails: `local`, `allow` or `deny`.
    pub on_failure: &'static str,
    /// `auto`, or the largest number of tokens, if gateways borrow tokens of its buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Where the cost of a request is read at the end of its response, which takes `cost` before;
    /// left out if that is its cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// When clients that go on after refusals are banned, in words; left out if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<String>,
    /// Milliseconds that are left of the ban of this client; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub banned_for_ms: Option<u64>,
    /// When the rate falls because an upstream is unhealthy, in words; left out if it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapt: Option<String>,
    /// Share of the rate that the rule has now, in percent; left out if it does not adapt, and by
    /// the command line, which asks no gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_percent: Option<f64>,
    /// Reasons for which a request gets its tokens back: `refund_on` of the rule.
    pub refund_on: Vec<&'static str>,
    /// Dimensions of its buckets, as in the configuration file.
    pub per: Vec<String>,
    /// Why it does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WhyNot>,
    /// Rate, cost and bucket; `None` if the rule does not apply.
    #[serde(flatten)]
    pub charge: Option<Charge>,
}

impl ExplainedRule {
    /// `refund_on` in words, unless it is the default, or the rule counts no tokens.
    pub(super) fn refund_words(&self) -> Option<String> {
        if self.refund_on == RefundOn::default().names() {
            return None;
        }
        Some(match self.refund_on.as_slice() {
            [] => "refund_on nothing".to_owned(),
            reasons => format!("refund_on {}", reasons.join(", ")),
        })
    }
}

/// Why a rule does not apply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhyNot {
    /// `disabled`, `other_routes`, `exempt_ip`, `exempt_key`, `on_missing_skip`,
    /// `on_missing_deny`, `no_rate`, `not_by_address`, `refused_before`, `own_limits` or
    /// `preflight`.
    pub code: Cow<'static, str>,
    /// The reason as a sentence.
    pub why: String,
}

/// What a rule charges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Charge {
    /// Kind of the rule, as in the configuration file.
    pub kind: &'static str,
    /// Rate or limit as in the configuration file.
    pub rate: String,
    /// The setting that `rate` shows: `rate` or `limit`.
    pub rate_is: &'static str,
    /// The bucket's capacity in tokens.
    pub burst: u64,
    /// Periods of a fixed window, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periods: Option<String>,
    /// Longest time that a request waits in a leaky bucket, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay_ms: Option<u64>,
    /// Thousandths of a quota from which on the client is warned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_thousandths: Option<u16>,
    /// `count` if requests beyond the quota are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overage: Option<&'static str>,
    /// Where the rate is configured: `rule`, `plan`, `tenant` or `key`.
    pub rate_of: &'static str,
    /// Tokens that the request takes.
    pub cost: Cost,
    /// Key of the bucket in Redis.
    pub bucket: String,
    /// Requests that share the bucket.
    pub shared_by: Vec<String>,
    /// State of the bucket.
    #[serde(flatten)]
    pub level: Option<Level>,
    /// Whether the rule allows the request because Redis is unavailable (`on_failure = "allow"`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waived: bool,
}

/// State of a bucket before the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Level {
    /// Whole tokens left: the number of requests of cost 1 that the bucket allows.
    pub tokens: u64,
    /// Whether the tokens cover the cost of the request.
    pub enough: bool,
    /// Milliseconds until the tokens cover the cost, rounded up; 0 if they do.
    pub retry_after_ms: u64,
    /// Milliseconds until the bucket is full, rounded up.
    pub full_after_ms: u64,
}

/// The decision on a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// `allow`, `deny`, or `depends` (on buckets that were not read).
    pub decision: &'static str,
    /// Status of the response to a refused request.
    pub status: Option<u16>,
    /// Why; for a refusal, the detail of its response.
    pub why: String,
    /// Media type of the body of the refusal, or of the 429 that the buckets may lead to; left out
    /// if `[errors]` has no body for the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The rule that the response reports.
    pub rule: Option<String>,
    /// Whole tokens left under that rule afterwards.
    pub remaining: Option<u64>,
    /// Milliseconds until the same request is allowed, rounded up.
    pub retry_after_ms: Option<u64>,
    /// Rules in shadow mode that would refuse the request.
    pub shadow_refusals: Vec<String>,
}
