//! `POST /api/reload`: reads the file again, and says what came of it. `GET /api/reloads`: what came
//! of the last ones.

use http::StatusCode;
use serde::Serialize;

use super::answer::Answer as Sent;
use crate::config::changes::{Change, Changes, What};
use crate::limit::TICKS_PER_SECOND;
use crate::reload::history::{Entry, Flaw, Flaws};
use crate::reload::{Cause, Outcome, Reloader};

/// How many mistakes an answer lists.
const LISTED: usize = 100;

/// The answer as JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "result", rename_all = "lowercase")]
pub(super) enum Answer<'a> {
    Applied { generation: u64, changes: Vec<Changed<'a>>, more_changes: usize },
    Unchanged { generation: u64 },
    Rejected { generation: u64, mistakes: Vec<Told<'a>>, more_mistakes: usize },
}

/// The last files, the newest first.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Reloads<'a> {
    /// How many files have been in force.
    generation: u64,
    reloads: Vec<Reload<'a>>,
}

/// One of them.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Reload<'a> {
    /// When, in UTC (RFC 3339).
    at: String,
    /// `noticed` or `asked`.
    cause: &'static str,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// One change. `from` and `to` are TOML, and missing where nothing stood or stands there.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Changed<'a> {
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Told<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'a str>,
}

/// Reloads, and says what came of it.
pub(super) async fn reload(reloader: &Reloader) -> Sent {
    let outcome = reloader.reload(Cause::Asked).await;
    let flaws;
    let (status, answer, note) = match &outcome {
        Outcome::Applied { generation, changes } => {
            let note = format!("generation {} -> {generation}", generation.saturating_sub(1));
            (StatusCode::OK, Answer::applied(*generation, changes), note)
        }
        Outcome::Unchanged { generation } => {
            let answer = Answer::Unchanged { generation: *generation };
            (StatusCode::OK, answer, format!("generation {generation} stays"))
        }
        Outcome::Rejected { generation, error } => {
            flaws = Flaws::of(error, LISTED);
            let note = format!("rejected; generation {generation} stays");
            (StatusCode::UNPROCESSABLE_ENTITY, Answer::rejected(*generation, &flaws), note)
        }
    };
    Sent::json_with(status, &answer).noting(note)
}

/// The last files, of which that generation is in force.
pub(super) fn reloads(reloader: &Reloader, generation: u64) -> Sent {
    let entries = reloader.history().list();
    let reloads = entries.iter().map(Reload::of).collect();
    Sent::json(&Reloads { generation, reloads })
}

impl<'a> Answer<'a> {
    fn applied(generation: u64, changes: &'a Changes) -> Self {
        let Changes { list, not_kept } = changes;
        let changes = list.iter().map(Changed::of).collect();
        Self::Applied { generation, changes, more_changes: *not_kept }
    }

    fn rejected(generation: u64, flaws: &'a Flaws) -> Self {
        let Flaws { list, not_kept } = flaws;
        let mistakes = list.iter().map(Told::of).collect();
        Self::Rejected { generation, mistakes, more_mistakes: *not_kept }
    }
}

impl<'a> Reload<'a> {
    fn of(entry: &'a Entry) -> Self {
        let Entry { unix_ticks, cause, generation, result } = entry;
        Self {
            at: rfc3339(*unix_ticks),
            cause: match cause {
                Cause::Noticed => "noticed",
                Cause::Asked => "asked",
            },
            answer: match result {
                Ok(changes) => Answer::applied(*generation, changes),
                Err(flaws) => Answer::rejected(*generation, flaws),
            },
        }
    }
}

impl<'a> Told<'a> {
    fn of(flaw: &'a Flaw) -> Self {
        let Flaw { message, line, column, help } = flaw;
        Self { message, line: *line, column: *column, help: help.as_deref() }
    }
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

/// A time in ticks since 1970 as RFC 3339 writes it, to the millisecond.
fn rfc3339(unix_ticks: u64) -> String {
    let (seconds, ms) = (unix_ticks / TICKS_PER_SECOND, unix_ticks / 1_000 % 1_000);
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970, in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_people_read_them() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999Z"),
            (951_825_600_000_000, "2000-02-29T12:00:00.000Z"),
            (1_795_248_005_250_000, "2026-11-21T08:00:05.250Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ticks, expected) in table {
            assert_eq!(rfc3339(ticks), expected);
        }
    }
}
