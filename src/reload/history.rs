//! The history of reloads, for the operator. Its length is bounded, so that its memory does not
//! grow if the file is written every second.

use std::collections::VecDeque;
use std::path::Path;

use parking_lot::Mutex;
use tracing::error;

use super::{Cause, ReloadResult};
use crate::config::changes::{Change, Changes};
use crate::config::findings::{Finding, Findings};
use crate::load::LoadError;

/// Maximum number of reloads in the history.
pub const MAX_RELOADS: usize = 50;

/// Maximum number of changes, errors or warnings kept for each reload.
pub const MAX_DETAILS: usize = 50;

/// The last reloads, the newest first.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<PastReload>>);

/// The result of one reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastReload {
    /// Time of the reload, in microseconds since the Unix epoch.
    pub unix_us: u64,
    /// Why the file was read.
    pub cause: Cause,
    /// Generation of the configuration in force after the reload.
    pub generation: u64,
    /// The changes that were applied, or the errors that the file was rejected for.
    pub result: Result<Changes, Findings>,
    /// Warnings of the file, whether it was applied or rejected.
    pub warnings: Findings,
}

impl History {
    /// The last reloads, the newest first.
    pub fn list(&self) -> Vec<PastReload> {
        self.0.lock().iter().cloned().collect()
    }

    /// Adds a reload that happened `unix_us` microseconds after the Unix epoch. Ignores a reload
    /// that found the file unchanged.
    pub(super) fn add(&self, outcome: &ReloadResult, cause: Cause, unix_us: u64) {
        let (generation, result, warnings) = match outcome {
            ReloadResult::Unchanged { .. } => return,
            ReloadResult::Applied { generation, changes, warnings } => {
                (*generation, Ok(shortened(changes)), warnings.shortened(MAX_DETAILS))
            }
            ReloadResult::Rejected { generation, error } => {
                let errors = errors_of(error, MAX_DETAILS);
                (*generation, Err(errors), warnings_of(error, MAX_DETAILS))
            }
        };
        let mut list = self.0.lock();
        list.truncate(MAX_RELOADS - 1);
        list.push_front(PastReload { unix_us, cause, generation, result, warnings });
    }
}

fn shortened(changes: &Changes) -> Changes {
    let list: Vec<Change> = changes.list.iter().take(MAX_DETAILS).cloned().collect();
    let not_kept = changes.count().saturating_sub(list.len());
    Changes { list, not_kept }
}

/// Logs that the file at `path` was rejected (`event`), and each of its errors.
pub fn log_errors(error: &LoadError, path: &Path, event: &'static str) {
    let errors = errors_of(error, MAX_DETAILS);
    let path = path.display();
    error!(%path, errors = errors.count(), "{event}");
    for Finding { message, line, column, help } in &errors.list {
        error!(%path, line, column, error = message, help, "configuration error");
    }
}

/// The errors that a file was rejected for, at most `max` of them.
pub fn errors_of(error: &LoadError, max: usize) -> Findings {
    if let LoadError::Diagnostics(report) = error {
        return report.error_findings(max);
    }
    let line = match error {
        LoadError::NotText { line, .. } | LoadError::Nul { line, .. } => Some(*line),
        _ => None,
    };
    let error = Finding { message: error.to_string(), line, column: None, help: None };
    Findings { list: vec![error], not_kept: 0 }
}

/// The warnings of a rejected file, at most `max` of them.
pub fn warnings_of(error: &LoadError, max: usize) -> Findings {
    match error {
        LoadError::Diagnostics(report) => report.warning_findings(max),
        _ => Findings::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::outline::Outline;

    #[test]
    fn history_keeps_50_reloads_with_50_changes_each() {
        let history = History::default();
        let many: Vec<String> = (0..80).map(|number| format!("[plans.p{number}]")).collect();
        let many = many.join("\n");
        for generation in 2..=61 {
            let changes = Changes::between(&Outline::default(), &Outline::of(&many));
            let warnings = Findings::default();
            let unchanged = ReloadResult::Unchanged { generation, warnings: warnings.clone() };
            let applied = ReloadResult::Applied { generation, changes, warnings };
            history.add(&applied, Cause::FileChanged, generation);
            history.add(&unchanged, Cause::Requested, generation);
        }
        let list = history.list();
        assert_eq!((list.len(), list[0].generation, list[49].generation), (50, 61, 12));
        let changes = list[0].result.as_ref().unwrap();
        assert_eq!((changes.list.len(), changes.count()), (50, 80));
    }
}
