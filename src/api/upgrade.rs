//! Response of `POST /api/upgrade`.

use serde::{Deserialize, Serialize};

/// The process that serves from now on.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Upgraded {
    /// Id of the process that was asked, which drains and ends.
    pub previous_pid: u32,
    /// Id of the process that serves.
    pub pid: u32,
}
