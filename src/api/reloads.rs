//! Responses of `POST /api/reload` and `GET /api/reloads`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};

use crate::base::time::UtcTime;
use crate::config::findings::Finding;
use crate::policy::bucket_changes::Effect;
use crate::reload::Cause;

/// Result of a reload.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Answer {
    Applied {
        generation: u64,
        #[serde(default)]
        changes: Vec<ChangedSetting>,
        #[serde(default)]
        more_changes: usize,
        #[serde(flatten)]
        warnings: Warnings,
    },
    Unchanged {
        generation: u64,
        #[serde(flatten)]
        warnings: Warnings,
    },
    Rejected {
        generation: u64,
        #[serde(default)]
        errors: Vec<Finding>,
        #[serde(default)]
        more_errors: usize,
        #[serde(flatten)]
        warnings: Warnings,
    },
}

/// Warnings of the file, which do not prevent a reload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Warnings {
    pub warnings: Vec<Finding>,
    pub more_warnings: usize,
}

/// The last reloads, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reloads {
    /// Number of configurations that have been in force.
    #[serde(default)]
    pub generation: u64,
    pub reloads: Vec<Reload>,
}

/// A reload of the past, and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reload {
    /// Time of the reload, in UTC (RFC 3339).
    #[serde(serialize_with = "to_the_millisecond")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: UtcTime,
    /// What started the reload: `file_changed` or `requested`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub cause: Cause,
    #[serde(flatten)]
    pub answer: Answer,
}

/// One change. `from` and `to` are TOML; one is missing if the setting is not in that file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangedSetting {
    pub kind: Cow<'static, str>,
    pub name: String,
    #[cfg_attr(test, schemars(with = "String"))]
    pub what: How,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// How an entry of a table or a setting changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Added,
    Removed,
    Changed,
    /// A file of networks changes, or one with the body of an error.
    FileChanged,
    SecretChanged,
}

/// Result of a dry run. Nothing is applied.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DryRun {
    // Always true, unlike in the answer of a reload.
    #[serde(rename = "dry_run", default)]
    pub applies_nothing: bool,
    pub result: DryRunResult,
    /// Generation of the configuration in force.
    pub generation: u64,
    pub changes: Vec<ChangedSetting>,
    pub more_changes: usize,
    /// Settings that differ and that a reload cannot change.
    pub restart: Vec<String>,
    /// Whether `tollgate upgrade` would change them, without closing a port.
    #[serde(default)]
    pub by_upgrade: bool,
    /// What happens to the buckets of clients; rules whose buckets are kept as they are have no
    /// entry.
    pub buckets: Vec<ChangedBuckets>,
    /// Settings that are not compared, because they are secret.
    pub not_compared: Vec<String>,
    /// What has an assumed value, as it is written in the file.
    #[serde(default)]
    pub assumed: Vec<String>,
    pub errors: Vec<Finding>,
    pub more_errors: usize,
    #[serde(flatten)]
    pub warnings: Warnings,
}

/// What a reload would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DryRunResult {
    /// It would apply the file.
    WouldApply,
    /// It would find nothing to change.
    #[default]
    Unchanged,
    /// It would reject the file, because of settings that need a restart.
    NeedsRestart,
    /// It would reject the file, because of errors.
    Rejected,
}

/// What happens to the buckets of a rule.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChangedBuckets {
    pub rule: String,
    pub effect: Effect,
    /// The clients concerned, in words.
    pub clients: String,
    /// The reason, in words.
    pub why: Cow<'static, str>,
}

impl Answer {
    /// `applied`, `unchanged` or `rejected`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Applied { .. } => "applied",
            Self::Unchanged { .. } => "unchanged",
            Self::Rejected { .. } => "rejected",
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn to_the_millisecond<S: Serializer>(time: &UtcTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.3}"))
}
