//! Numbers, durations and switches: within their bounds, or the default of their setting.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::period::{self, PeriodError};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::Field;

/// The shortest and the longest duration that a setting takes, as the file has them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    least: &'static str,
    most: &'static str,
}

impl Bounds {
    /// Those of most durations.
    const USUAL: Self = Self::up_to("1d");

    pub(super) const fn new(least: &'static str, most: &'static str) -> Self {
        Self { least, most }
    }

    pub(super) const fn up_to(most: &'static str) -> Self {
        Self::new("1ms", most)
    }
}

/// Whether a setting is on.
pub(super) fn switch(row: &Row, field: &Field<bool>) -> bool {
    field.as_ref().map_or(row.is_on(), |field| *field.get_ref())
}

/// Checks that a whole number is in the range.
pub(super) fn number(
    row: &Row,
    field: &Field<u64>,
    bounds: RangeInclusive<u64>,
    diagnostics: &mut Diagnostics,
) -> Option<usize> {
    let value = match field {
        Some(field) => number_in(row, field, bounds, diagnostics)?,
        None => row.number()?,
    };
    usize::try_from(value).ok()
}

/// As [`number`], for a setting that the file has.
pub(super) fn number_in(
    row: &Row,
    field: &Spanned<u64>,
    bounds: RangeInclusive<u64>,
    diagnostics: &mut Diagnostics,
) -> Option<u64> {
    let value = *field.get_ref();
    if !bounds.contains(&value) {
        let (name, least, most) = (row.name, bounds.start(), bounds.end());
        let message = format!("`{name}` is at least {least} and at most {most}");
        diagnostics.push(Diagnostic::new(field.span(), message));
        return None;
    }
    Some(value)
}

/// Checks that a duration is a millisecond to a day.
pub(super) fn duration(
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    duration_in(Bounds::USUAL, row, field, diagnostics)
}

/// As [`duration`], with other bounds.
pub(super) fn duration_in(
    bounds: Bounds,
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    match field {
        Some(field) => written_duration(bounds, row, field, diagnostics),
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
    match field {
        Some(field) => written_duration(Bounds::USUAL, row, field, diagnostics).map(Some),
        None => Some(None),
    }
}

/// As [`duration_in`], for a setting that the file has.
pub(super) fn written_duration(
    bounds: Bounds,
    row: &Row,
    field: &Spanned<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    let (name, Bounds { least, most }) = (row.name, bounds);
    let least_ms = period::milliseconds(least).unwrap_or_default();
    let most_ms = period::milliseconds(most).unwrap_or_default();
    let shortest = || format!("the shortest is `{least}`");
    let text = field.get_ref();
    let (message, help) = match period::milliseconds(text) {
        Ok(0) => (format!("`{name}` cannot be 0"), shortest()),
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
