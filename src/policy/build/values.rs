//! Numbers, durations and switches: within their bounds, or the default of their setting.

use std::ops::Range;
use std::time::Duration;

use crate::base::period::{self, PeriodError};
use crate::base::text::cut;
use crate::base::time::UtcTime;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::{self, Row};
use crate::config::spanned::Spanned;
use crate::config::tables::{Field, TimeText};

/// Whether a setting is on.
pub(super) fn switch(row: &Row, field: &Field<bool>) -> bool {
    field.as_ref().map_or(row.is_on(), |field| *field.get_ref())
}

/// Checks that a whole number is in the range of its setting.
pub(super) fn number(
    row: &Row,
    field: &Field<u64>,
    diagnostics: &mut Diagnostics,
) -> Option<usize> {
    let value = match field {
        Some(field) => number_in(row, field, diagnostics)?,
        None => row.number()?,
    };
    usize::try_from(value).ok()
}

/// As [`number`], for a setting that the file has.
pub(super) fn number_in<T: Copy + Into<i128>>(
    row: &Row,
    field: &Spanned<T>,
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    let value = *field.get_ref();
    if !row.range().has(value) {
        diagnostics.push(out_of_range(row, field.span()));
        return None;
    }
    Some(value)
}

/// Checks that a number with a fraction is in the range of its setting.
pub(super) fn fraction_in(
    row: &Row,
    field: &Spanned<f64>,
    help: &str,
    diagnostics: &mut Diagnostics,
) -> Option<f64> {
    let value = *field.get_ref();
    if !row.range().has_fraction(value) {
        diagnostics.push(out_of_range(row, field.span()).help(help));
        return None;
    }
    Some(value)
}

/// The diagnostic of a number that is not in the range of its setting.
pub(super) fn out_of_range(row: &Row, span: Range<usize>) -> Diagnostic {
    Diagnostic::new(span, format!("`{}` is {}", row.name, row.range().in_words()))
}

/// Checks that a duration is in the range of its setting.
pub(super) fn duration(
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    match field {
        Some(field) => written_duration(row, field, diagnostics),
        None => Some(Duration::from_millis(period::milliseconds(row.text()?).ok()?)),
    }
}

/// As [`duration`], for a setting without a default; the inner result is none if it is left out.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
pub(super) fn optional_duration(
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<Duration>> {
    optional(field.as_ref(), |field| written_duration(row, field, diagnostics))
}

/// A date and a time in microseconds of Unix time; the inner result is none if it is left out.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
pub(super) fn optional_time(
    row: &Row,
    field: &Field<TimeText>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<u64>> {
    optional(field.as_ref(), |field| {
        let text = field.get_ref().0.trim();
        if let Some(time) = UtcTime::parse(text) {
            return Some(time.0);
        }
        let name = row.name;
        let in_utc = |suffix: &str| Some(format!("{text}{suffix}")).filter(|text| is_time(text));
        let message =
            format!("`{name}` is a date and a time with an offset, not `{}`", cut(text, 40));
        let help = match in_utc("Z").or_else(|| in_utc("T00:00:00Z")) {
            Some(text) => format!("in UTC: `{name} = {text}`; elsewhere with `+01:00` for the `Z`"),
            None => format!("it looks like `{name} = 2027-01-31T00:00:00Z`"),
        };
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        None
    })
}

fn is_time(text: &str) -> bool {
    UtcTime::parse(text).is_some()
}

/// Reads a setting that may be left out: the inner result is none then, and the outer one with an
/// error.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
pub(super) fn optional<T, U>(
    field: Option<&T>,
    read: impl FnOnce(&T) -> Option<U>,
) -> Option<Option<U>> {
    match field {
        Some(field) => read(field).map(Some),
        None => Some(None),
    }
}

/// As [`duration`], for a setting that the file has.
pub(super) fn written_duration(
    row: &Row,
    field: &Spanned<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    let row::Range::Durations(least, most) = row.range() else { return None };
    let name = row.name;
    let least_ms = period::milliseconds(least).unwrap_or_default();
    let most_ms = period::milliseconds(most).unwrap_or_default();
    let shortest = || format!("the shortest is `{least}`");
    let text = field.get_ref();
    let (message, help) = match period::milliseconds(text) {
        Ok(0) if least_ms > 0 => (format!("`{name}` cannot be 0"), shortest()),
        Ok(milliseconds) if milliseconds < least_ms => {
            (format!("`{name}` is too short"), shortest())
        }
        Ok(milliseconds) if milliseconds <= most_ms => {
            return Some(Duration::from_millis(milliseconds));
        }
        Ok(_) | Err(PeriodError::TooLong) => {
            (format!("`{name}` is too long"), format!("the longest is `{most}`"))
        }
        Err(PeriodError::Negative) => (format!("`{name}` cannot be negative"), shortest()),
        Err(PeriodError::Fraction) => {
            let help = "take a smaller unit: `1.5s` is `1500ms`".to_owned();
            (format!("`{name}` is a whole number of its unit"), help)
        }
        Err(PeriodError::NoUnit) => {
            let (unit, short) =
                if most_ms > 1000 { ("seconds", "s") } else { ("milliseconds", "ms") };
            let help = format!("for {unit}, write `{name} = \"{}{short}\"`", cut(text, 24));
            (format!("`{name}` has no unit"), help)
        }
        Err(PeriodError::UnknownUnit(Some(meant))) => {
            let number: String = text.chars().take_while(char::is_ascii_digit).collect();
            let help = format!("write `{name} = \"{}{meant}\"`", cut(&number, 24));
            (format!("`{name}` has an unknown unit"), help)
        }
        Err(PeriodError::UnknownUnit(None) | PeriodError::NoNumber) => {
            let help = "a duration looks like `10ms`, `5s`, `2m`, `1h` or `1d`".to_owned();
            (format!("`{name}` is not a duration"), help)
        }
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}
