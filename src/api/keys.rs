//! Requests and responses of `/api/keys`: the clients of the key store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;
use crate::keys::record::{Override, Record, Secret};

/// A client of the key store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoredClient {
    pub id: String,
    pub plan: String,
    #[serde(default)]
    pub tenant: Option<String>,
    /// Whether its requests are served.
    pub enabled: bool,
    /// Whether a token that is limited to a tenant cannot enable or remove it, because an operator
    /// without such a limit has disabled it.
    #[serde(default)]
    pub locked: bool,
    /// Its API keys, by their hashes.
    pub secrets: Vec<Secret>,
    /// Free texts, which the gateway does not use.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Its limits under single rules, by their names, in place of those of its plan. One of a rule
    /// that the configuration does not have, or has of another kind, does nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Override>,
    /// Number of changes so far, the creation included.
    #[serde(default)]
    pub version: u64,
    /// Time of the creation, in UTC.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub created: UtcTime,
    /// Time of the last change, in UTC.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub updated: UtcTime,
    /// When it last sent a request, within five minutes, in UTC; absent if that is not known, and
    /// in responses to changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub last_used: Option<UtcTime>,
}

/// A client with a new API key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IssuedKey {
    /// The API key. It is not stored: no other response has it. Null if the request had hashes of
    /// keys.
    pub key: Option<String>,
    #[serde(flatten)]
    pub client: StoredClient,
}

/// Some clients, by their ids.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoredClients {
    pub keys: Vec<StoredClient>,
    /// Clients of these ids are stored in a form that this version cannot read. Requests with
    /// their keys are those with unknown keys. Empty with the filter `plan`, and for a token that
    /// is limited to a tenant.
    #[serde(default)]
    pub damaged: Vec<DamagedClient>,
    /// The parameter `cursor` of the request for further clients; null after the last.
    pub next: Option<String>,
    /// Number of all clients in the store; null for a token that is limited to a tenant.
    pub total: Option<u64>,
}

/// A client that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamagedClient {
    pub id: String,
    pub why: String,
}

/// Response of `DELETE /api/keys/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovedClient {
    pub id: String,
    /// Whether this version could read what was stored of it.
    #[serde(default)]
    pub was_readable: bool,
}

/// What has become of the lines of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Imported {
    /// Clients that are new.
    pub created: u64,
    /// Clients that the store has already, as they are.
    pub unchanged: u64,
    /// Lines that are not in the store.
    pub failed: Vec<FailedLine>,
}

/// A line of an import that is not in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedLine {
    /// From 1 on.
    pub line: u64,
    pub why: String,
}

/// Body of `POST /api/keys`, and a line of `POST /api/keys/import`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NewClient {
    /// Id of the client. Without it, the gateway makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Plan of the client; required if the configuration has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether its requests are served; `true` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Its limits under single rules, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Override>,
    /// Hashes of keys that the client has already. Without them, the gateway makes a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<Secret>>,
    /// Name of the new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the new key begins to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub not_before: Option<UtcTime>,
    /// When the new key ceases to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub expires: Option<UtcTime>,
}

/// Body of `PATCH /api/keys/{id}`: a JSON Merge Patch (RFC 7396) of what it lists.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClientChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// `null`: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub tenant: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Texts to set; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Option<String>>,
    /// Overrides to set, by the names of rules; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, Option<Override>>,
    /// All API keys of the client, by their hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Vec<Secret>>,
}

/// Body of `POST /api/keys/{id}/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rotation {
    /// How long the client's present keys are still valid, such as `24h`, which is the default;
    /// `0s`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// Name of the new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the new key ceases to be valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub expires: Option<UtcTime>,
}

/// A member that may be `null`: `None` only if it is absent.
#[allow(clippy::option_option, reason = "absent and null are different things")]
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl StoredClient {
    /// The client of a record.
    pub fn of(record: &Record) -> Self {
        Self {
            id: record.id.clone(),
            plan: record.plan.clone(),
            tenant: record.tenant.clone(),
            enabled: record.enabled,
            locked: record.locked,
            secrets: record.secrets.clone(),
            metadata: record.metadata.clone(),
            overrides: record.overrides.clone(),
            version: record.version,
            created: record.created,
            updated: record.updated,
            last_used: None,
        }
    }
}
