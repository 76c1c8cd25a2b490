//! Numbers and durations within their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::period::{self, PeriodError};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;

/// Maximum of most durations: a day, in milliseconds.
const MAX_MILLISECONDS: u64 = 86_400_000;

/// Checks that a whole number is in the range; if it is left out, returns `default`.
pub(super) fn number(
    name: &str,
    field: Option<&Spanned<u64>>,
    default: u64,
    bounds: RangeInclusive<u64>,
    diagnostics: &mut Diagnostics,
) -> Option<usize> {
    let value = field.map_or(default, |field| *field.get_ref());
    if let Some(field) = field
        && !bounds.contains(&value)
    {
        let (least, most) = bounds.into_inner();
        let message = format!("`{name}` is at least {least} and at most {most}");
        diagnostics.push(Diagnostic::new(field.span(), message));
        return None;
    }
    usize::try_from(value).ok()
}

/// Checks that a duration is a millisecond to a day; if it is left out, returns `default_ms`.
pub(super) fn duration(
    name: &str,
    field: Option<&Spanned<String>>,
    default_ms: u64,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    duration_up_to((MAX_MILLISECONDS, "1d"), name, field, default_ms, diagnostics)
}

/// As [`duration`], with another maximum, in milliseconds and as text.
pub(super) fn duration_up_to(
    most: (u64, &str),
    name: &str,
    field: Option<&Spanned<String>>,
    default_ms: u64,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    duration_in(((1, "1ms"), most), name, field, default_ms, diagnostics)
}

/// As [`duration`], with another minimum and maximum, each in milliseconds and as text.
pub(super) fn duration_in(
    ((least_ms, least), (most_ms, most)): ((u64, &str), (u64, &str)),
    name: &str,
    field: Option<&Spanned<String>>,
    default_ms: u64,
    diagnostics: &mut Diagnostics,
) -> Option<Duration> {
    let shortest = || format!("the shortest is `{least}`");
    let Some(field) = field else {
        return Some(Duration::from_millis(default_ms));
    };
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
