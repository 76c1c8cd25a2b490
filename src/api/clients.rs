//! Responses of `GET /api/clients` and `GET /api/clients/{kind}/{id}/buckets`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::explain::report;
use crate::limit::charge::Mode;
use crate::policy::Kind;

/// Response of `GET /api/clients`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Top {
    /// Sort order: `requests` or `refused`.
    #[serde(default)]
    pub by: Cow<'static, str>,
    /// Time that the counts cover, in milliseconds.
    pub since_ms: u64,
    /// Number of decisions of all rules about all clients.
    #[serde(default)]
    pub counted: u64,
    /// Upper bound of the error of every count, and of the count of a client that is not listed.
    #[serde(default)]
    pub error_at_most: u64,
    pub rules: Vec<TopOfRule>,
}

/// A rule, and its clients with the most requests or refusals.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopOfRule {
    pub rule: String,
    pub clients: Vec<TopClient>,
}

/// A client, and how many of its requests a rule counted and refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopClient {
    /// What identifies the client: `key`, `tenant`, `ip` or `unknown_key`.
    pub kind: Cow<'static, str>,
    pub id: String,
    /// Requests that the rule counted; never too low.
    pub requests: u64,
    /// Requests that the rule refused; never too low.
    pub refused: u64,
    /// Upper bound of the excess of the number that the list is sorted by.
    #[serde(default)]
    pub error: u64,
}

/// A client as responses show it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Client {
    /// What identifies the client: `key`, `tenant` or `ip`.
    pub kind: Cow<'static, str>,
    pub id: String,
    pub plan: String,
    /// The address or network by which rules count the client, if it is known.
    pub counted_as: Option<String>,
}

/// Response of `GET /api/clients/{kind}/{id}/buckets`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientBuckets {
    #[serde(default)]
    pub client: Client,
    /// Where the buckets are stored: `redis` or `local`.
    #[serde(default)]
    pub levels: Cow<'static, str>,
    /// All rules, in the order of the file.
    pub rules: Vec<RuleBucket>,
}

/// One rule, and the client's bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuleBucket {
    pub rule: String,
    /// Whether the rule applies to the client, as far as the request is known.
    #[serde(default)]
    pub applies: bool,
    /// Whether the rule is enforced: `enforce` or `shadow`.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub mode: Mode,
    #[serde(default)]
    pub per: Vec<String>,
    /// Whether only this client uses the bucket.
    #[serde(default)]
    pub own: bool,
    /// Kind of the rule, as in the configuration file.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub kind: Kind,
    /// Rate or limit as in the configuration file.
    pub rate: Option<String>,
    pub burst: Option<u64>,
    /// Milliseconds in which an empty bucket becomes full, or length of the period or window,
    /// rounded up.
    pub window_ms: Option<u64>,
    /// The values of `per` that identify the bucket and were not given.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Key of the bucket in Redis.
    pub bucket: Option<String>,
    /// Whole tokens; negative if the bucket is in debt.
    pub tokens: Option<i64>,
    pub full_after_ms: Option<u64>,
    /// Milliseconds until a request is allowed, rounded up; 0 if it is allowed now.
    pub next_after_ms: Option<u64>,
    /// Why the rule does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<report::WhyNot>,
}
