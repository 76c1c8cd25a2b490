//! The last files that were taken or rejected, for the operator: a list with a bound, so that a file
//! that is written once a second for a year takes no more room than one that never changes.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Cause, Outcome};
use crate::config::changes::{Change, Changes};
use crate::config::diagnostic::{Diagnostic, Report};
use crate::load::LoadError;

/// How many files are remembered.
pub const REMEMBERED: usize = 50;

/// How many changes or flaws of each.
pub const DETAILS: usize = 50;

/// The last files, the newest first.
#[derive(Debug, Default)]
pub struct History(Mutex<VecDeque<PastReload>>);

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastReload {
    /// When, in ticks since 1970.
    pub unix_us: u64,
    /// Why it was read.
    pub cause: Cause,
    /// How many files have been in force afterwards.
    pub generation: u64,
    /// What became of it.
    pub result: Result<Changes, Flaws>,
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaws {
    /// In the order of the file.
    pub list: Vec<Flaw>,
    /// How many more there are.
    pub not_kept: usize,
}

/// One thing that is wrong. It has no place where it is the file that is wrong, and nothing in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong.
    pub message: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column, from 1.
    pub column: Option<usize>,
    /// What to do about it.
    pub help: Option<String>,
}

impl History {
    /// The last files, the newest first.
    pub fn list(&self) -> Vec<PastReload> {
        self.0.lock().iter().cloned().collect()
    }

    /// Remembers what became of a file at that tick since 1970; one that was in force already is
    /// none.
    pub(super) fn add(&self, outcome: &Outcome, cause: Cause, unix_us: u64) {
        let (generation, result) = match outcome {
            Outcome::Unchanged { .. } => return,
            Outcome::Applied { generation, changes } => (*generation, Ok(shortened(changes))),
            Outcome::Rejected { generation, error } => {
                (*generation, Err(Flaws::of(error, DETAILS)))
            }
        };
        let mut list = self.0.lock();
        list.truncate(REMEMBERED - 1);
        list.push_front(PastReload { unix_us, cause, generation, result });
    }
}

fn shortened(changes: &Changes) -> Changes {
    let list: Vec<Change> = changes.list.iter().take(DETAILS).cloned().collect();
    let not_kept = changes.count().saturating_sub(list.len());
    Changes { list, not_kept }
}

impl Flaws {
    /// What is wrong with a file, `most` of it.
    pub fn of(error: &LoadError, most: usize) -> Self {
        let LoadError::Diagnostics(report) = error else {
            let line = match error {
                LoadError::NotText { line, .. } | LoadError::Nul { line, .. } => Some(*line),
                _ => None,
            };
            let flaw = Flaw { message: error.to_string(), line, column: None, help: None };
            return Self { list: vec![flaw], not_kept: 0 };
        };
        let list: Vec<Flaw> = report
            .diagnostics
            .iter()
            .take(most)
            .map(|diagnostic| Flaw::of(report, diagnostic))
            .collect();
        let not_kept = report.count().saturating_sub(list.len());
        Self { list, not_kept }
    }
}

impl Flaw {
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
    fn it_keeps_the_last_ones_and_a_part_of_each() {
        let history = History::default();
        let many: Vec<String> = (0..80).map(|number| format!("[plans.p{number}]")).collect();
        let many = many.join("\n");
        for generation in 2..=61 {
            let changes = Changes::between(&Outline::default(), &Outline::of(&many));
            history.add(&Outcome::Applied { generation, changes }, Cause::Noticed, generation);
            history.add(&Outcome::Unchanged { generation }, Cause::Asked, generation);
        }
        let list = history.list();
        assert_eq!((list.len(), list[0].generation, list[49].generation), (50, 61, 12));
        let changes = list[0].result.as_ref().unwrap();
        assert_eq!((changes.list.len(), changes.count()), (50, 80));
    }
}
