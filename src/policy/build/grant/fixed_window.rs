//! Fixed windows: `limit`, in calendar periods that the rule's `zone` and `anchor` place.

use super::super::mistake::Mistake;
use super::super::percentage::optional_thousandths;
use super::{LimitAlone, ReadLimit, Written, help_for, is_explained};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::{self as written, LimitText, Rule};
use crate::config::spanned::Spanned;
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, CalendarError, Period};
use crate::limit::fixed_window::{FixedWindow, Overage};
use crate::policy::WrittenLimit;

/// Help for a text that is not like a limit.
const LOOKS_LIKE: &str = "a limit of a fixed window looks like `10000/d` or `1000000/month`; the periods are s, m, h, \
                          d, week, month and year";

/// Other spellings of the periods.
const OTHER_WORDS: [(Period, &[&str]); 7] = [
    (Period::Second, &["sec", "second", "seconds", "1s"]),
    (Period::Minute, &["min", "minute", "minutes", "1m", "60s"]),
    (Period::Hour, &["hr", "hour", "hours", "1h", "60m"]),
    (Period::Day, &["day", "days", "daily", "1d", "24h"]),
    (Period::Week, &["w", "weeks", "weekly", "7d", "1week"]),
    (Period::Month, &["mo", "months", "monthly", "30d", "31d", "1month"]),
    (Period::Year, &["y", "years", "yearly", "365d", "366d", "1year"]),
];

const WORDS: LimitAlone = LimitAlone {
    kind: "a fixed window",
    example: "\"10000/d\"",
    no_burst: ": the whole limit may be used at once",
    bucket: "a token bucket with this limit",
};

/// Reads the grant in the table at `path`; none without a limit, or with an error.
pub(super) fn read(
    written: Written<'_>,
    path: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<ReadLimit> {
    let field = WORDS.field(written, diagnostics)?;
    if is_explained(path, "burst", diagnostics) {
        return None;
    }
    let wrong = |message: String, help: &str| Diagnostic::new(field.span(), message).help(help);
    let soft = written.soft;
    let soft = optional_thousandths(&written::Grant::soft, soft, diagnostics)?.unwrap_or(0);
    let overage = written.overage.as_ref().map(|overage| *overage.get_ref()).unwrap_or_default();
    let window = parse(field.get_ref())
        .map_err(|mistake| mistake.at(field.span()))
        .and_then(|(tokens, period)| {
            let calendar = calendar(period, written, field)?;
            is_long_enough(period, written, field)?;
            FixedWindow::new(tokens, calendar)
                .map(|window| window.with(overage, soft))
                .map_err(|error| wrong(error.to_string(), help_for(tokens)))
        })
        .map(|window| (Limit::FixedWindow(window), WrittenLimit::Window(window)));
    ReadLimit::without_burst(window, field.span(), diagnostics)
}

/// Checks that what only quotas have is not set for shorter periods.
fn is_long_enough(
    period: Period,
    written: Written<'_>,
    field: &Spanned<LimitText>,
) -> Result<(), Diagnostic> {
    let soft = written.soft.as_ref().map(|soft| ("soft", soft.span()));
    let overage = written.overage.as_ref().filter(|it| *it.get_ref() != Overage::default());
    let set = soft.or(overage.map(|overage| ("overage", overage.span())));
    match set {
        Some((name, span)) if matches!(period, Period::Second | Period::Minute) => {
            let message = format!("`{name}` is for quotas, with periods of an hour or longer");
            let diagnostic = Diagnostic::new(span, message);
            Err(diagnostic.and(field.span(), "the limit".to_owned()).help("take it out"))
        }
        _ => Ok(()),
    }
}

/// The periods of a grant. The zone is valid: the rule's is checked once.
fn calendar(
    period: Period,
    written: Written<'_>,
    field: &Spanned<LimitText>,
) -> Result<Calendar, Diagnostic> {
    let zone = written
        .zone
        .as_ref()
        .map_or_else(|| Rule::zone.text().unwrap_or_default(), |zone| zone.get_ref());
    let anchor = match written.anchor {
        Some(anchor) if period.max_anchor() == 1 => {
            let word = period.word();
            let message = format!("`anchor` is for limits per week and per month, not `/{word}`");
            let diagnostic = Diagnostic::new(anchor.span(), message);
            return Err(diagnostic.and(field.span(), "the limit".to_owned()).help("take it out"));
        }
        Some(anchor) => Some(*anchor.get_ref()),
        None => Rule::anchor.number(),
    };
    let anchor = anchor.and_then(|anchor| u8::try_from(anchor).ok()).unwrap_or(u8::MAX);
    Calendar::new(period, zone, anchor).map_err(|error| {
        match (error, written.anchor, written.zone) {
            (CalendarError::Anchor, Some(anchor), _) => {
                let (word, most) = (period.word(), period.max_anchor());
                let message = format!("the anchor of a {word} is a day from 1 to {most}");
                let help = match period {
                    Period::Week => "1 is Monday, the default; 7 is Sunday",
                    _ => "in a shorter month, the period starts on its last day",
                };
                Diagnostic::new(anchor.span(), message).help(help)
            }
            (_, _, Some(zone)) => unknown_zone(zone),
            _ => Diagnostic::new(field.span(), error.to_string()),
        }
    })
}

/// The error of a zone that does not exist.
pub(in crate::policy::build) fn unknown_zone(zone: &Spanned<String>) -> Diagnostic {
    let message = format!("there is no time zone `{}`", cut(zone.get_ref(), 64));
    let help = "write the IANA name, such as `Europe/Berlin` or `UTC`";
    Diagnostic::new(zone.span(), message).help(help)
}

/// Parses a number and a period.
///
/// # Errors
/// See [`Mistake`].
fn parse(text: &str) -> Result<(u64, Period), Mistake> {
    let wrong = |message: String, help: String| Err(Mistake { message, help });
    let shown = cut(text, 40);
    let not_a_limit = || wrong(format!("`{shown}` is not a limit"), LOOKS_LIKE.to_owned());
    if text.len() > 64 {
        return not_a_limit();
    }
    let (tokens, word) = text.split_once('/').unwrap_or((text, ""));
    if tokens.is_empty() || !tokens.bytes().all(|byte| byte.is_ascii_digit()) {
        return not_a_limit();
    }
    let Ok(tokens) = tokens.parse::<u64>() else {
        return wrong("the limit is too large".to_owned(), LOOKS_LIKE.to_owned());
    };
    if let Some(period) = Period::ALL.into_iter().find(|period| period.word() == word) {
        return Ok((tokens, period));
    }
    if word.is_empty() {
        let help = format!("for a day, write `{tokens}/d`");
        return wrong("the limit has no period".to_owned(), help);
    }
    let lower = word.trim().to_ascii_lowercase();
    let meant = OTHER_WORDS
        .into_iter()
        .find(|(period, words)| period.word() == lower || words.contains(&lower.as_str()));
    let help = meant.map_or_else(
        || LOOKS_LIKE.to_owned(),
        |(period, _)| format!("write `{tokens}/{}`", period.word()),
    );
    wrong(format!("`{}` is not a period of a fixed window", cut(word, 24)), help)
}
