//! `[rules.<name>]`: what a bucket is counted by, and its limit.

use super::Named;
use super::adapt::Adapt;
use super::bans::Ban;
use super::row::DefaultValue::{InWords, Number, Switch, Text, Texts};
use super::row::Form::{Duration, Matches, Rate};
use super::row::Range::{Between, Durations, Shares};
use super::row::Unit;
use super::spanned::Spanned;
use super::tables::{Field, List};
use super::walk::table;
use super::words::{Kind, LeaseWord, OnFailure, OnMissing, RefundReason};
use crate::limit::charge::Mode;
use crate::limit::cost::Cost;
use crate::limit::fixed_window::Overage;

/// Capacity of a bucket, in one of two forms.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum Burst {
    /// A duration such as `5m`: what the rate yields in it.
    Duration(String),
    /// A number of tokens.
    Tokens(u64),
}

/// Tokens that a gateway borrows, in one of two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
pub enum Lease {
    /// `auto` or `off`.
    Word(LeaseWord),
    /// As `auto`, but at most this number of tokens.
    Tokens(u64),
}

/// A limit as text. A number of requests in flight is written without quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "TextOrCount"))]
pub struct LimitText {
    pub(super) text: String,
    /// Whether it is written without quotes.
    pub is_number: bool,
}

/// The forms of a limit, for the schema.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum TextOrCount {
    /// A number of tokens per period, such as `1000/h`.
    Text(#[schemars(regex(pattern = "^[0-9]+(/([0-9]*(ms|s|m|h|d)|week|month|year))?$"))] String),
    /// A number of requests in flight.
    Count(u64),
}

impl LimitText {
    /// A limit as it is written, with or without quotes.
    pub fn new(text: String, is_number: bool) -> Self {
        Self { text, is_number }
    }
}

impl std::ops::Deref for LimitText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

table! {
    /// `[rules.<name>]`: a rate limit, and the requests that it applies to.
    pub struct Rule {
        /// What a bucket is counted by: any of `ip`, `key`, `plan`, `route`, `method`, `host`,
        /// `header:<name>`, `param:<name>`, `cert`. `[]`: one bucket for all clients.
        pub per: List,
        /// How the rule counts.
        pub kind: Field<Kind>,
        /// Refill rate, for plans that are not listed under `plans`: `10/s`, `300/m`, `100/10s`,
        /// `5/250ms`.
        pub rate: Field<String> { form: Rate },
        /// Maximum number of tokens in any window of this length, in place of `rate`: `1000/h`, at
        /// least 2. With `kind = "fixed_window"`: tokens in each calendar period, `10/s` to
        /// `10000000/year`. With `kind = "concurrency"`: requests in flight at once, a number from
        /// 1 to 1000000. With `kind = "sliding_window"`: at most 4096.
        pub limit: Field<LimitText>,
        /// Capacity of a bucket: a number of tokens, or a duration such as `5m` for what the rate
        /// yields in it.
        pub burst: Field<Burst> {
            default: InWords("the number in the rate; with `limit`, a tenth of the limit"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "366d"),
        },
        /// Of a leaky bucket: longest time that a request waits.
        pub max_delay: Field<String> {
            default: Text("1s"),
            form: Duration(Unit::BySize),
            // Clients and proxies before the gateway wait for no longer.
            range: Durations("1ms", "10m"),
        },
        /// Of a fixed window: IANA name of the time zone in which days, weeks, months and years
        /// begin.
        pub zone: Field<String> { default: Text("UTC") },
        /// Of a fixed window: the day on which periods begin. Per month, 1 to 31, or the last day
        /// of a shorter month; per week, 1 (Monday) to 7 (Sunday).
        pub anchor: Field<u64> { default: Number(1), range: Between(1, 31) },
        /// Of a quota: share of the limit from which on clients are warned, such as `"80%"`, by a
        /// header, a metric and webhooks. Nothing is refused because of it.
        pub soft: Field<String> {
            default: InWords("none"),
            form: Matches("^[0-9]{1,3}(\\.[0-9])?%$"),
            range: Shares(1, 1_000),
        },
        /// Of a quota: what happens to requests beyond the limit.
        pub overage: Field<Overage>,
        /// Limits of single plans, by plan: `{ rate, burst }` or `{ limit, burst }`; of a fixed or
        /// sliding window or of requests in flight, `{ limit }`; of a leaky bucket, `{ rate,
        /// max_delay }`.
        pub plans: Named<Grant>,
        /// Names of the routes that the rule counts.
        pub routes: List { default: InWords("all") },
        /// Whether the rule is enforced or only counted and reported.
        pub mode: Field<Mode>,
        /// Share of the clients for which the rule is enforced, such as `"10%"` or `"0.5%"`: always
        /// the same ones. For the others, it is counted and reported.
        pub enforce: Field<String> {
            default: Text("100%"),
            form: Matches("^[0-9]{1,3}(\\.[0-9])?%$"),
            range: Shares(0, 1_000),
        },
        /// Another limit, which is counted and reported beside that of the rule: `{ rate, burst }`,
        /// or as the rule's own.
        pub candidate: Option<Spanned<Grant>>,
        /// Bans clients that go on after refusals: `{ after = 20, within = "1m", for = "10m" }`.
        pub ban: Option<Spanned<Ban>>,
        /// Of a token bucket: the rate falls while an upstream is slow or fails: `{ upstream =
        /// "api", p99 = "500ms", errors = "5%", floor = "10%" }`.
        pub adapt: Option<Spanned<Adapt>>,
        /// Whether the rule is used.
        pub enabled: Field<bool> { default: Switch(true) },
        /// How a rule per key counts a client without one.
        pub on_missing: Field<OnMissing>,
        /// How its requests are decided while Redis fails.
        pub on_failure: Field<OnFailure> { default: InWords("that of `[redis]`") },
        /// Of a token bucket: whether each gateway borrows tokens from Redis, and spends them
        /// without a call: `"auto"`, `"off"`, or the largest number of tokens.
        pub lease: Field<Lease> { default: Text("off") },
        /// Tokens that a request takes from a bucket of this rule, whatever its route costs: above
        /// 0, with at most three decimals.
        pub cost: Field<Cost> { default: InWords("the `cost` of the route") },
        /// What a request costs: `requests` (its `cost`), or what its response says: a number in
        /// the header `header:<name>`, or at the path `json:usage.total_tokens`, or its
        /// `request_bytes`, `response_bytes` or `duration_ms`.
        pub count: Field<String> { default: Text("requests") },
        /// With `count`: tokens that a request takes first, until its cost is known: above 0, with
        /// at most three decimals.
        pub reserve: Field<Cost> { default: Number(1) },
        /// Reasons for which a request that failed gets its tokens back. Since it reached no
        /// server: any of `upstream_connect`, `no_server`, `shed`, `upstream_tls` and
        /// `upstream_connect_timeout`. Or the status of its response: `5xx`, `500`, `502`, `503` or
        /// `504`.
        pub refund_on: Field<Vec<Spanned<RefundReason>>> {
            default: Texts(&["upstream_connect", "no_server", "shed"]),
        },
        /// Clients that the rule does not limit: `{ ips = ["10.0.0.0/8"], keys = ["monitor"] }`.
        pub exempt: Option<Spanned<Exempt>>,
        /// Free text that the admin API and `clients.limits_path` show.
        pub description: Field<String> { default: InWords("none") },
    }
}

table! {
    /// `{ rate, burst }`, `{ limit, burst }`, `{ limit }` or `{ rate, max_delay }`: the limit of
    /// one plan or one key.
    pub struct Grant {
        /// Refill rate, such as `10/s`.
        pub rate: Field<String> { form: Rate },
        /// Maximum number of tokens in any window of this length, in place of `rate`: `1000/h`, at
        /// least 2. With `kind = "fixed_window"`: tokens in each calendar period, `10/s` to
        /// `10000000/year`. With `kind = "concurrency"`: requests in flight at once, a number from
        /// 1 to 1000000. With `kind = "sliding_window"`: at most 4096.
        pub limit: Field<LimitText>,
        /// Capacity of a bucket: a number of tokens, or a duration such as `5m` for what the rate
        /// yields in it.
        pub burst: Field<Burst> {
            default: InWords("the number in the rate; with `limit`, a tenth of the limit"),
            form: Duration(Unit::Seconds),
            range: Durations("1ms", "366d"),
        },
        /// Of a leaky bucket: longest time that a request waits.
        pub max_delay: Field<String> {
            default: InWords("that of the rule"),
            form: Duration(Unit::BySize),
            range: Durations("1ms", "10m"),
        },
        /// Share of the limit from which on clients are warned, such as `"80%"`.
        pub soft: Field<String> {
            default: InWords("that of the rule"),
            form: Matches("^[0-9]{1,3}(\\.[0-9])?%$"),
            range: Shares(1, 1_000),
        },
        /// What happens to requests beyond the limit.
        pub overage: Field<Overage> { default: InWords("that of the rule") },
    }
}

table! {
    /// `{ ips, keys }`: clients that a rule does not limit.
    pub struct Exempt {
        /// Addresses of such clients, or networks such as `10.0.0.0/8`.
        pub ips: List { default: InWords("none") },
        /// Ids of such clients' keys, the `<id>` of `[keys.<id>]`.
        pub keys: List { default: InWords("none") },
    }
}
