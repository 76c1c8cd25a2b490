//! Responses of `GET`, `POST` and `DELETE /api/bans`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;

/// Response of `GET /api/bans`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bans {
    /// Bans in force, in the order of their ids.
    pub bans: Vec<Ban>,
    /// The `cursor` of the next page; left out after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Response of `DELETE /api/bans`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Lifted {
    /// The bans that were lifted.
    pub lifted: Vec<Ban>,
}

/// A ban in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ban {
    /// What identifies the ban: 32 hexadecimal digits.
    pub id: String,
    pub rule: String,
    /// What identifies the client: `key`, `token`, `tenant`, `ip` or `unknown_key`.
    pub kind: Cow<'static, str>,
    /// Name of the client.
    pub client: String,
    /// Tenant of the client; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// When it ends.
    #[cfg_attr(test, schemars(with = "String"))]
    pub until: UtcTime,
    /// Milliseconds that are left, rounded up.
    pub left_ms: u64,
    /// Its number in a row of bans, from 1.
    pub number: u32,
    /// The caller of the admin API who has banned the client; left out if its refusals have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as that caller says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Body of `POST /api/bans`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewBan {
    /// Id of a ban in force, whose end is set; without one, `rule` and one of `key`, `ip` and
    /// `tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The rule, which has `ban`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Id of the client's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The tenant, for a rule that counts its clients together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// From now on, such as `1h`; the `for` of the rule by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#for: Option<String>,
    /// Why, for the audit and the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
