//! `POST /api/upgrade`: starts the program on disk, which takes over the listening sockets.

use std::sync::Arc;

use http::StatusCode;

use super::answer::Answer;
use crate::api::upgrade::Upgraded;
use crate::process::handover::{UpgradeError, Upgrader};

/// Upgrades, and answers once the new process serves or has failed.
pub(super) async fn upgrade(upgrader: &Arc<Upgrader>) -> Answer {
    let previous_pid = std::process::id();
    match upgrader.upgrade().await {
        Ok(pid) => {
            Answer::json(&Upgraded { previous_pid, pid }).noting(format!("{previous_pid} -> {pid}"))
        }
        Err(error) => {
            let status = match error {
                UpgradeError::InProgress
                | UpgradeError::Starting
                | UpgradeError::Stopping
                | UpgradeError::Ordered => StatusCode::CONFLICT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Answer::problem(status, &error.to_string()).noting("not upgraded".to_owned())
        }
    }
}
