//! What is told of a request. Names and words are a contract: `docs/explain.md` lists them.

use std::net::IpAddr;

use serde::Serialize;

/// What would become of a request, and why. Every `why` is a sentence for people; programs go by
/// the other members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// The request as it was read.
    pub request: Request,
    /// Whose it is; none where it was refused before that was known.
    pub client: Option<Client>,
    /// Where it goes.
    pub route: Route,
    /// All rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// Where the buckets' levels come from: `redis`, `local`, `none` (it takes from no bucket),
    /// `unavailable` (Redis cannot be asked, and a rule wants nothing to pass then) or `not_read`.
    pub levels: &'static str,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// The request as it was read. Neither query nor headers: a key may stand there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its host, in lower case, without port.
    pub host: String,
    /// Its path.
    pub path: String,
    /// What was not given: `host`, `ip`.
    pub assumed: Vec<&'static str>,
}

/// Whose the request is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Client {
    /// The client's address.
    pub address: Option<IpAddr>,
    /// `peer`, `nothing_forwarded`, `malformed`, `hop` or `all_trusted`.
    pub address_from: &'static str,
    /// Which address of `X-Forwarded-For` settled it, from the right, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<usize>,
    /// How the address was found.
    pub address_why: String,
    /// The address or the network that rules per address count.
    pub counted_as: Option<String>,
    /// The id of the key; none without a known one.
    pub key: Option<String>,
    /// `none`, `known`, `unknown`, or `unknown_as_none` (`on_unknown_key = "anonymous"`).
    pub key_state: &'static str,
    /// Where the key stood, as the file writes it: `header:x-api-key`.
    pub key_from: Option<String>,
    /// The plan.
    pub plan: String,
    /// Whose plan that is: `key` or `anonymous_plan`.
    pub plan_from: &'static str,
}

/// Where the request goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Route {
    /// The route's name; none where there is none.
    pub name: Option<String>,
    /// Its upstream.
    pub upstream: Option<String>,
    /// Tokens that the request takes from each bucket.
    pub cost: Option<u64>,
    /// Why this one, or why none.
    pub why: String,
    /// The routes whose host and path match, the most specific first; where none is taken, those
    /// that miss by one thing.
    pub candidates: Vec<Candidate>,
    /// The ways in which the path may be read, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
}

/// A route that was weighed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its path as the file writes it.
    pub path: String,
    /// Whether a path with a trailing slash is another path: `same` or `distinct`.
    pub trailing_slash: &'static str,
    /// Its host; none: all.
    pub host: Option<String>,
    /// Its methods; empty: all.
    pub methods: Vec<String>,
    /// Whether it is the one.
    pub wins: bool,
    /// Why it is, or why not.
    pub why: String,
}

/// A way to read the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reading {
    /// The path as it may be read.
    pub path: String,
    /// The route that it would have.
    pub route: Option<String>,
}

/// A rule, and whether it counts the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Whether it counts the request.
    pub applies: bool,
    /// `enforce` or `shadow`.
    pub mode: &'static str,
    /// `local`, `allow` or `deny`.
    pub on_failure: &'static str,
    /// What sets its buckets apart, as the file writes it.
    pub per: Vec<String>,
    /// Why it does not count the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<WhyNot>,
    /// What it charges.
    #[serde(flatten)]
    pub charge: Option<Charge>,
}

/// Why a rule does not count a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WhyNot {
    /// `disabled`, `other_routes`, `exempt_ip`, `exempt_key`, `on_missing_skip`,
    /// `on_missing_deny`, `no_rate`, `not_by_address`, `refused_before` or `own_limits`.
    pub code: &'static str,
    /// The same as a sentence.
    pub why: String,
}

/// What a rule charges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Charge {
    /// The rate as the file writes it.
    pub rate: String,
    /// The bucket's capacity in tokens.
    pub burst: u64,
    /// Whose rate that is: `rule`, `plan` or `key`.
    pub rate_of: &'static str,
    /// Tokens that the request takes.
    pub cost: u64,
    /// The bucket's key, as it stands in Redis.
    pub bucket: String,
    /// Who shares the bucket.
    pub shared_by: Vec<String>,
    /// What is in the bucket.
    #[serde(flatten)]
    pub level: Option<Level>,
    /// Whether it lets the request pass because Redis cannot be asked (`on_failure = "allow"`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waived: bool,
}

/// What is in a bucket before the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Level {
    /// Whole tokens.
    pub tokens: u64,
    /// Whether they are enough.
    pub enough: bool,
    /// Milliseconds until they are, rounded up.
    pub retry_after_ms: u64,
    /// Milliseconds until the bucket is full, rounded up.
    pub full_after_ms: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// `allow`, `deny`, or `depends` (on buckets that were not read).
    pub decision: &'static str,
    /// The status of a refusal.
    pub status: Option<u16>,
    /// Why; of a refusal, the words of its answer.
    pub why: String,
    /// The rule that its answer speaks of.
    pub rule: Option<String>,
    /// Whole tokens that this rule has left afterwards.
    pub remaining: Option<u64>,
    /// Milliseconds until a request like it can pass, rounded up.
    pub retry_after_ms: Option<u64>,
    /// Rules in shadow mode that would refuse it.
    pub shadow_refusals: Vec<String>,
}
