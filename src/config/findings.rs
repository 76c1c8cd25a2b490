//! The errors or warnings of a report as plain values: for the log and the admin API, and for as
//! long as a configuration is in force.

use serde::{Deserialize, Serialize};

use super::diagnostic::{Diagnostic, Kept, Report};

/// Errors of a file, or warnings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first ones, in the order of the file.
    pub list: Vec<Finding>,
    /// How many further ones there are.
    pub not_kept: usize,
}

/// An error or a warning of the file. `line` and `column` are missing if it concerns the file as a
/// whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    // What is wrong, in one line.
    pub message: String,
    // Counted from 1, as the column, which is in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    // What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Findings {
    /// The number of findings.
    pub fn count(&self) -> usize {
        self.list.len() + self.not_kept
    }

    /// The same, with at most `max` in the list.
    pub fn shortened(&self, max: usize) -> Self {
        let list: Vec<Finding> = self.list.iter().take(max).cloned().collect();
        let not_kept = self.count().saturating_sub(list.len());
        Self { list, not_kept }
    }
}

impl Report {
    /// The errors, at most `max` of them.
    pub fn error_findings(&self, max: usize) -> Findings {
        self.findings(&self.errors, max)
    }

    /// The warnings, at most `max` of them.
    pub fn warning_findings(&self, max: usize) -> Findings {
        self.findings(&self.warnings, max)
    }

    fn findings(&self, kept: &Kept, max: usize) -> Findings {
        let finding = |diagnostic: &Diagnostic| {
            let (line, column) = self.position(diagnostic);
            Finding {
                message: diagnostic.message.clone(),
                line: Some(line),
                column: Some(column),
                help: diagnostic.help.clone(),
            }
        };
        let list: Vec<Finding> = kept.list.iter().take(max).map(finding).collect();
        let not_kept = kept.count().saturating_sub(list.len());
        Findings { list, not_kept }
    }
}
