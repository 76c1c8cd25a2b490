//! `POST /api/reload`: reloads the configuration and answers with the outcome. `GET /api/reloads`:
//! the last reloads.

use http::StatusCode;

use super::answer::Answer as Sent;
use crate::api::reloads::{Answer, ChangedSetting, How, Reload, Reloads, Warnings};
use crate::base::time::UtcTime;
use crate::config::changes::{Change, Changes, What};
use crate::config::findings::Findings;
use crate::reload::history::{self, PastReload};
use crate::reload::{Cause, ReloadResult, Reloader};

/// Maximum number of errors or warnings in a response.
pub(super) const MAX_ERRORS: usize = 100;

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

impl Answer {
    fn applied(generation: u64, changes: &Changes, warnings: &Findings) -> Self {
        let Changes { list, not_kept } = changes;
        let changes = list.iter().map(ChangedSetting::of).collect();
        let warnings = Warnings::of(warnings);
        Self::Applied { generation, changes, more_changes: *not_kept, warnings }
    }

    fn rejected(generation: u64, errors: &Findings, warnings: &Findings) -> Self {
        let Findings { list: errors, not_kept: more_errors } = errors.clone();
        Self::Rejected { generation, errors, more_errors, warnings: Warnings::of(warnings) }
    }
}

impl Warnings {
    pub(super) fn of(warnings: &Findings) -> Self {
        let Findings { list: warnings, not_kept: more_warnings } = warnings.clone();
        Self { warnings, more_warnings }
    }
}

impl Reload {
    fn of(record: &PastReload) -> Self {
        let PastReload { unix_us, cause, generation, result, warnings } = record;
        Self {
            at: UtcTime(*unix_us),
            cause: *cause,
            answer: match result {
                Ok(changes) => Answer::applied(*generation, changes, warnings),
                Err(errors) => Answer::rejected(*generation, errors, warnings),
            },
        }
    }
}

impl ChangedSetting {
    pub(super) fn of(change: &Change) -> Self {
        let Change { kind, name, what } = change;
        let (how, setting, from, to) = match what {
            What::Added => (How::Added, "", None, None),
            What::Removed => (How::Removed, "", None, None),
            What::Networks { setting } | What::ErrorBody { setting } => {
                (How::FileChanged, &**setting, None, None)
            }
            What::Secret { setting } => (How::SecretChanged, &**setting, None, None),
            What::Changed { setting, from, to } => {
                (How::Changed, &**setting, from.clone(), to.clone())
            }
        };
        let setting = (!setting.is_empty()).then(|| setting.to_owned());
        Self { kind: (*kind).into(), name: name.clone(), what: how, setting, from, to }
    }
}
