//! Errors and warnings of the configuration file, as members of responses.

use serde::Serialize;

use crate::config::findings::{self, Findings};

/// An error or a warning of the file. `line` and `column` are missing if it concerns the file as a
/// whole.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Finding {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

/// The findings as members, and how many further ones there are.
pub(super) fn members(findings: &Findings) -> (Vec<Finding>, usize) {
    (findings.list.iter().map(Finding::of).collect(), findings.not_kept)
}

impl Finding {
    fn of(finding: &findings::Finding) -> Self {
        let findings::Finding { message, line, column, help } = finding.clone();
        Self { message, line, column, help }
    }
}
