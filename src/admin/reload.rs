//! `POST /api/reload`: reads the file again, and says what came of it.

use http::StatusCode;
use serde::Serialize;

use crate::config::changes::{Change, Changes, What};
use crate::config::mistake::Report;
use crate::load::LoadError;
use crate::reload::{Cause, Outcome, Reloader};

/// How many mistakes an answer lists.
const LISTED: usize = 100;

/// The answer as JSON.
#[derive(Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum Answer<'a> {
    Applied { generation: u64, changes: Vec<Changed<'a>>, more_changes: usize },
    Unchanged { generation: u64 },
    Rejected { generation: u64, mistakes: Vec<Told<'a>>, more_mistakes: usize },
}

/// One change. `from` and `to` are TOML, and missing where nothing stood or stands there.
#[derive(Serialize)]
struct Changed<'a> {
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

/// One mistake. It has no place where it is the file that is wrong, and nothing in it.
#[derive(Serialize)]
struct Told<'a> {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

/// Reloads, and says what came of it.
pub(super) async fn reload(reloader: &Reloader) -> (StatusCode, Vec<u8>) {
    let outcome = reloader.reload(Cause::Asked).await;
    let (status, answer) = match &outcome {
        Outcome::Applied { generation, changes } => {
            let Changes { list, not_kept } = changes;
            let changes = list.iter().map(Changed::of).collect();
            let generation = *generation;
            (StatusCode::OK, Answer::Applied { generation, changes, more_changes: *not_kept })
        }
        Outcome::Unchanged { generation } => {
            (StatusCode::OK, Answer::Unchanged { generation: *generation })
        }
        Outcome::Rejected { generation, error } => {
            let (mistakes, more_mistakes) = told(error);
            let generation = *generation;
            let answer = Answer::Rejected { generation, mistakes, more_mistakes };
            (StatusCode::UNPROCESSABLE_ENTITY, answer)
        }
    };
    let mut body = serde_json::to_vec_pretty(&answer).unwrap_or_default();
    body.push(b'\n');
    (status, body)
}

impl<'a> Changed<'a> {
    fn of(change: &'a Change) -> Self {
        let Change { kind, name, what } = change;
        let plain = |what| Self { kind, name, what, setting: None, from: None, to: None };
        let named = |setting: &'a str| (!setting.is_empty()).then_some(setting);
        match what {
            What::Added => plain("added"),
            What::Removed => plain("removed"),
            What::Secret { setting } => {
                Self { setting: named(setting), ..plain("the secret changed") }
            }
            What::Changed { setting, from, to } => Self {
                setting: named(setting),
                from: from.as_deref(),
                to: to.as_deref(),
                ..plain("changed")
            },
        }
    }
}

/// What is wrong with a file, and how much more.
fn told(error: &LoadError) -> (Vec<Told<'_>>, usize) {
    let LoadError::Mistakes(report) = error else {
        let line = match error {
            LoadError::NotText { line, .. } | LoadError::Nul { line, .. } => Some(*line),
            _ => None,
        };
        return (vec![Told { message: error.to_string(), line, column: None, help: None }], 0);
    };
    let told: Vec<Told<'_>> =
        report.mistakes.iter().take(LISTED).map(|mistake| place(report, mistake)).collect();
    let more = report.count().saturating_sub(told.len());
    (told, more)
}

fn place<'a>(report: &Report, mistake: &'a crate::config::mistake::Mistake) -> Told<'a> {
    let (line, column) = report.position(mistake);
    Told {
        message: mistake.message.clone(),
        line: Some(line),
        column: Some(column),
        help: mistake.help.as_deref(),
    }
}
