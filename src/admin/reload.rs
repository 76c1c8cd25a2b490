//! `POST /api/reload`: reloads the configuration and answers with the outcome. `GET /api/reloads`:
//! the last reloads.

use http::StatusCode;
use serde::Serialize;

use super::answer::Answer as Sent;
use super::finding::{self, Finding};
use crate::base::time::UtcTime;
use crate::config::changes::{Change, Changes, What};
use crate::config::findings::Findings;
use crate::reload::history::{self, PastReload};
use crate::reload::{Cause, ReloadResult, Reloader};

/// Maximum number of errors or warnings in a response.
pub(super) const MAX_ERRORS: usize = 100;

/// Result of a reload.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "result", rename_all = "lowercase")]
pub(super) enum Answer<'a> {
    Applied {
        generation: u64,
        changes: Vec<ChangedSetting<'a>>,
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
        errors: Vec<Finding>,
        more_errors: usize,
        #[serde(flatten)]
        warnings: Warnings,
    },
}

/// Warnings of the file, which do not prevent a reload.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Warnings {
    warnings: Vec<Finding>,
    more_warnings: usize,
}

/// The last reloads, the newest first.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Reloads<'a> {
    /// Number of configurations that have been in force.
    generation: u64,
    reloads: Vec<Reload<'a>>,
}

/// A reload of the past, and its outcome.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Reload<'a> {
    /// Time of the reload, in UTC (RFC 3339).
    at: String,
    /// What started the reload: `file_changed` or `requested`.
    cause: &'static str,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// One change. `from` and `to` are TOML; one is missing if the setting is not in that file.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ChangedSetting<'a> {
    kind: &'a str,
    name: &'a str,
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    setting: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
}

/// Reloads the configuration and answers with the outcome.
pub(super) async fn reload(reloader: &Reloader) -> Sent {
    let outcome = reloader.reload(Cause::Requested).await;
    let (status, answer, note) = match &outcome {
        ReloadResult::Applied { generation, changes, warnings } => {
            let note = format!("generation {} -> {generation}", generation.saturating_sub(1));
            (StatusCode::OK, Answer::applied(*generation, changes, warnings), note)
        }
        ReloadResult::Unchanged { generation, warnings } => {
            let warnings = Warnings::of(warnings);
            let answer = Answer::Unchanged { generation: *generation, warnings };
            (StatusCode::OK, answer, format!("generation {generation} stays"))
        }
        ReloadResult::Rejected { generation, error } if error.is_blocked() => {
            let note = format!("the file could not be read; generation {generation} stays");
            let detail = error.to_string();
            return Sent::problem(StatusCode::SERVICE_UNAVAILABLE, &detail).noting(note);
        }
        ReloadResult::Rejected { generation, error } => {
            let errors = history::errors_of(error, MAX_ERRORS);
            let warnings = history::warnings_of(error, MAX_ERRORS);
            let answer = Answer::rejected(*generation, &errors, &warnings);
            let note = format!("rejected; generation {generation} stays");
            (StatusCode::UNPROCESSABLE_ENTITY, answer, note)
        }
    };
    Sent::json_with(status, &answer).noting(note)
}

/// Lists the last reloads; `generation` is in force.
pub(super) fn reloads(reloader: &Reloader, generation: u64) -> Sent {
    let records = reloader.history().list();
    let reloads = records.iter().map(Reload::of).collect();
    Sent::json(&Reloads { generation, reloads })
}

impl<'a> Answer<'a> {
    fn applied(generation: u64, changes: &'a Changes, warnings: &Findings) -> Self {
        let Changes { list, not_kept } = changes;
        let changes = list.iter().map(ChangedSetting::of).collect();
        let warnings = Warnings::of(warnings);
        Self::Applied { generation, changes, more_changes: *not_kept, warnings }
    }

    fn rejected(generation: u64, errors: &Findings, warnings: &Findings) -> Self {
        let (errors, more_errors) = finding::members(errors);
        Self::Rejected { generation, errors, more_errors, warnings: Warnings::of(warnings) }
    }
}

impl Warnings {
    pub(super) fn of(warnings: &Findings) -> Self {
        let (warnings, more_warnings) = finding::members(warnings);
        Self { warnings, more_warnings }
    }
}

impl<'a> Reload<'a> {
    fn of(record: &'a PastReload) -> Self {
        let PastReload { unix_us, cause, generation, result, warnings } = record;
        Self {
            at: format!("{:.3}", UtcTime(*unix_us)),
            cause: match cause {
                Cause::FileChanged => "file_changed",
                Cause::Requested => "requested",
            },
            answer: match result {
                Ok(changes) => Answer::applied(*generation, changes, warnings),
                Err(errors) => Answer::rejected(*generation, errors, warnings),
            },
        }
    }
}

impl<'a> ChangedSetting<'a> {
    pub(super) fn of(change: &'a Change) -> Self {
        let Change { kind, name, what } = change;
        let plain = |what| Self { kind, name, what, setting: None, from: None, to: None };
        let named = |setting: &'a str| (!setting.is_empty()).then_some(setting);
        match what {
            What::Added => plain("added"),
            What::Removed => plain("removed"),
            What::Networks { setting } => Self { setting: named(setting), ..plain("file_changed") },
            What::Secret { setting } => Self { setting: named(setting), ..plain("secret_changed") },
            What::Changed { setting, from, to } => Self {
                setting: named(setting),
                from: from.as_deref(),
                to: to.as_deref(),
                ..plain("changed")
            },
        }
    }
}
