//! Response of `GET /api/audit`.

use serde::{Deserialize, Serialize};

use crate::base::time::UtcTime;
pub use crate::observe::audit::{ChangeView, Kind as RefusalKind, RefusalRunView};

/// Response of `GET /api/audit`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusals {
    /// Runs of refusals, the latest first.
    pub refusal_runs: Vec<RefusalRunView>,
    /// Matching runs beyond `limit`, all of them earlier.
    #[serde(default)]
    pub more: usize,
    /// Changes by callers of the admin API, the latest first.
    #[serde(default)]
    pub changes: Vec<ChangeView>,
    /// Matching changes beyond `limit`, all of them earlier.
    #[serde(default)]
    pub more_changes: usize,
    /// Time since which all changes are kept, in UTC.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub changes_kept_since: UtcTime,
    /// Refusals, of all clients, whose runs were dropped because the audit was full.
    #[serde(default)]
    pub dropped: u64,
    /// Time since which all runs are kept, in UTC.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub kept_since: UtcTime,
    /// The zone of times in the query that have no offset.
    #[serde(default)]
    pub time_zone: String,
    /// The time that the parameter `since` has, in UTC.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub since: Option<UtcTime>,
    /// The time that the parameter `until` has, in UTC.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub until: Option<UtcTime>,
    /// Name of this process, as in `gateway` of its runs; null without Redis.
    pub gateway: Option<String>,
    /// Why runs or changes of other gateways may be missing; null if none is, and without `all`.
    pub incomplete: Option<String>,
}
