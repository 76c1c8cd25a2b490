//! Response of `GET /api/usage`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;

/// Response of `GET /api/usage`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Usage"))]
pub struct Usage<E = QuotaUsage> {
    /// Where counts are from: `redis` (of all gateways that share it), `file` (`usage.file`), or
    /// `local` (the buckets, of the keys in the file of the configuration, in current periods
    /// only).
    pub source: Cow<'static, str>,
    /// Time of the response, in UTC. Redis and the file are at most a second behind.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: UtcTime,
    /// Quotas that were used, by the end of their periods.
    pub entries: Vec<E>,
    /// The parameter `cursor` of the request for further entries; null after the last.
    pub next: Option<String>,
}

/// What one client used of one quota in one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaUsage {
    pub rule: String,
    /// What identifies the client: `key`, `ip` or `unknown_key`; `shared` if the rule counts
    /// several clients together.
    pub client_kind: Cow<'static, str>,
    /// The client; empty if several are counted together.
    pub client: String,
    pub plan: String,
    /// First instant of the period, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub period_start: UtcTime,
    /// First instant after the period, in UTC.
    #[cfg_attr(test, schemars(with = "String"))]
    pub period_end: UtcTime,
    /// Tokens of the quota.
    pub limit: u64,
    /// Tokens that requests took, less what an operator has granted: below zero after a grant above
    /// the limit.
    pub used: f64,
    /// Time of the last request, in UTC; null if it is not known.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub counted_at: Option<UtcTime>,
    /// The bucket, in hexadecimal: distinguishes entries of rules that count by more than the
    /// client.
    #[serde(default)]
    pub bucket: String,
    /// Time zone that the period begins and ends in, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: Cow<'static, str>,
}

/// The zone of the periods of a gateway that does not send it.
fn utc() -> Cow<'static, str> {
    "UTC".into()
}
