//! Parses durations: `10ms`, `1s`, `5m`, `1h`, `1d`.

/// Units, each with its milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Other spellings of the units.
const OTHER_NAMES: [(&str, &[&str]); 5] = [
    ("ms", &["msec", "millis", "millisecond", "milliseconds"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("m", &["min", "mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("d", &["day", "days"]),
];

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeriodError {
    /// It begins with a minus sign.
    Negative,
    /// It has a fraction.
    Fraction,
    /// It has no number.
    NoNumber,
    /// It has no unit.
    NoUnit,
    /// Its unit is unknown; the one that may be meant.
    UnknownUnit(Option<&'static str>),
    /// It is longer than 2^64 milliseconds.
    TooLong,
}

/// Parses a number and a unit into milliseconds.
///
/// # Errors
/// See [`PeriodError`].
pub(crate) fn milliseconds(text: &str) -> Result<u64, PeriodError> {
    if text.starts_with('-') {
        return Err(PeriodError::Negative);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(PeriodError::NoNumber);
    }
    if unit.starts_with(['.', ',']) {
        return Err(PeriodError::Fraction);
    }
    if unit.is_empty() {
        return Err(PeriodError::NoUnit);
    }
    let length = unit_milliseconds(unit)?;
    let number: u64 = number.parse().map_err(|_| PeriodError::TooLong)?;
    number.checked_mul(length).ok_or(PeriodError::TooLong)
}

/// The length of a unit, in milliseconds.
///
/// # Errors
/// [`PeriodError::UnknownUnit`] only.
pub(crate) fn unit_milliseconds(unit: &str) -> Result<u64, PeriodError> {
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    known.map(|(_, length)| *length).ok_or_else(|| PeriodError::UnknownUnit(meant_unit(unit)))
}

/// The unit of another spelling.
pub(crate) fn meant_unit(unit: &str) -> Option<&'static str> {
    let lower = unit.trim().to_ascii_lowercase();
    OTHER_NAMES
        .iter()
        .find(|(ours, others)| *ours == lower || others.contains(&lower.as_str()))
        .map(|(ours, _)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        let table = [
            ("10ms", Ok(10)),
            ("75s", Ok(75_000)),
            ("2m", Ok(120_000)),
            ("1h", Ok(3_600_000)),
            ("1d", Ok(86_400_000)),
            ("0s", Ok(0)),
            ("-1s", Err(PeriodError::Negative)),
            ("1.5s", Err(PeriodError::Fraction)),
            ("s", Err(PeriodError::NoNumber)),
            ("", Err(PeriodError::NoNumber)),
            ("10", Err(PeriodError::NoUnit)),
            ("10 s", Err(PeriodError::UnknownUnit(Some("s")))),
            ("10sec", Err(PeriodError::UnknownUnit(Some("s")))),
            ("10y", Err(PeriodError::UnknownUnit(None))),
            ("99999999999999999999s", Err(PeriodError::TooLong)),
            ("18446744073709551615d", Err(PeriodError::TooLong)),
        ];
        for (text, expected) in table {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
