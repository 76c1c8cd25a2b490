//! Responses of `GET` and `DELETE /api/clients/{kind}/{id}/top-ups`.

use serde::{Deserialize, Serialize};

use super::clients::Client;
use crate::base::time::UtcTime;

/// Response of `GET /api/clients/{kind}/{id}/top-ups`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopUps {
    pub client: Client,
    /// Those that can be used, by rule in the order of the file, then in the order in which they
    /// are used.
    pub top_ups: Vec<TopUp>,
}

/// Tokens beyond a quota, until a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopUp {
    /// What identifies it among those of the client.
    pub id: String,
    pub rule: String,
    /// Tokens that were granted.
    pub tokens: u64,
    /// Tokens that are left.
    pub left: f64,
    /// When it ends.
    #[cfg_attr(test, schemars(with = "String"))]
    pub expires: UtcTime,
    /// When it was granted.
    #[cfg_attr(test, schemars(with = "String"))]
    pub granted: UtcTime,
    /// The caller of the admin API who granted it.
    pub by: String,
    /// Why, as that caller says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Response of `DELETE /api/clients/{kind}/{id}/top-ups/{top_up}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RevokedTopUp {
    pub client: Client,
    pub rule: String,
    /// Key of the bucket in Redis.
    pub bucket: String,
    /// Whole tokens of the bucket before; negative if it is in debt.
    pub from: i64,
    /// Whole tokens of the bucket afterwards.
    pub to: i64,
}
