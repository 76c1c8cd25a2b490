//! The history of reloads, for the operator. Its length is bounded, so that its memory does not grow
//! if the file is written every second.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Cause, ReloadResult};
use crate::config::changes::{Change, Changes};
use crate::config::diagnostic::{Diagnostic, Report};
use crate::load::LoadError;

/// Maximum number of reloads in the history.
pub const MAX_RELOADS: usize = 50;

/// Maximum number of changes or errors kept for each reload.
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
    pub result: Result<Changes, ConfigErrors>,
}

/// The errors of a rejected file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The first errors, in the order of the file.
    pub list: Vec<ConfigError>,
    /// Number of errors that are not in `list`.
    pub not_kept: usize,
}

/// One error of a rejected file. It has no position if it concerns the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Description of the error.
    pub message: String,
    /// Line of the error, counted from 1; `None` without a position.
    pub line: Option<usize>,
    /// Column of the error in characters, counted from 1; `None` without a position.
    pub column: Option<usize>,
    /// How to correct the error.
    pub help: Option<String>,
}

impl History {
    /// The last reloads, the newest first.
    pub fn list(&self) -> Vec<PastReload> {
        self.0.lock().iter().cloned().collect()
    }

    /// Adds a reload that happened `unix_us` microseconds after the Unix epoch. Ignores a reload that
    /// found the file unchanged.
    pub(super) fn add(&self, outcome: &ReloadResult, cause: Cause, unix_us: u64) {
        let (generation, result) = match outcome {
            ReloadResult::Unchanged { .. } => return,
            ReloadResult::Applied { generation, changes } => (*generation, Ok(shortened(changes))),
            ReloadResult::Rejected { generation, error } => {
                (*generation, Err(ConfigErrors::of(error, MAX_DETAILS)))
            }
        };
        let mut list = self.0.lock();
        list.truncate(MAX_RELOADS - 1);
        list.push_front(PastReload { unix_us, cause, generation, result });
    }
}

fn shortened(changes: &Changes) -> Changes {
    let list: Vec<Change> = changes.list.iter().take(MAX_DETAILS).cloned().collect();
    let not_kept = changes.count().saturating_sub(list.len());
    Changes { list, not_kept }
}

impl ConfigErrors {
    /// The errors of a file, at most `max` of them.
    pub fn of(error: &LoadError, max: usize) -> Self {
        let LoadError::Diagnostics(report) = error else {
            let line = match error {
                LoadError::NotText { line, .. } | LoadError::Nul { line, .. } => Some(*line),
                _ => None,
            };
            let error = ConfigError { message: error.to_string(), line, column: None, help: None };
            return Self { list: vec![error], not_kept: 0 };
        };
        let list: Vec<ConfigError> = report
            .diagnostics
            .iter()
            .take(max)
            .map(|diagnostic| ConfigError::of(report, diagnostic))
            .collect();
        let not_kept = report.count().saturating_sub(list.len());
        Self { list, not_kept }
    }
}

impl ConfigError {
    fn of(report: &Report, diagnostic: &Diagnostic) -> Self {
        let (line, column) = report.position(diagnostic);
        Self {
            message: diagnostic.message.clone(),
            line: Some(line),
            column: Some(column),
            help: diagnostic.help.clone(),
        }
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
            history.add(
                &ReloadResult::Applied { generation, changes },
                Cause::FileChanged,
                generation,
            );
            history.add(&ReloadResult::Unchanged { generation }, Cause::Requested, generation);
        }
        let list = history.list();
        assert_eq!((list.len(), list[0].generation, list[49].generation), (50, 61, 12));
        let changes = list[0].result.as_ref().unwrap();
        assert_eq!((changes.list.len(), changes.count()), (50, 80));
    }
}
