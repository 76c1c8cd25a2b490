//! Parses rates: `10/s`, `100/10s`, `5/250ms`. `meant` guesses what other texts mean.

mod meant;

use super::period::{self, PeriodError};
use crate::config::suggest::cut;
use crate::limit::MICROS_PER_SECOND;
use crate::limit::token_bucket::TokenBucket;
use crate::policy::Rate;

/// Microseconds in a millisecond.
const MICROS_PER_MILLISECOND: u64 = MICROS_PER_SECOND / 1_000;

/// The help for a text that is not like a rate.
const LOOKS_LIKE: &str =
    "a rate looks like `10/s`, `100/10s` or `5/250ms`; the units are ms, s, m, h and d";

/// Why a text is not a rate, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RateError {
    pub(super) message: String,
    pub(super) help: String,
}

/// Parses a rate. Zeros are accepted here: building the limit reports them.
///
/// # Errors
/// See [`RateError`].
pub(super) fn parse(text: &str) -> Result<Rate, RateError> {
    // Other spellings of a rate, and fractions.
    let like = || {
        let meant = meant::meant(text);
        meant.map_or_else(|| LOOKS_LIKE.to_owned(), |meant| format!("write `{meant}`"))
    };
    let wrong = |message: &str, help: String| Err(RateError { message: message.to_owned(), help });
    let shown = cut(text, 40);
    if text.len() > 64 {
        return wrong(&format!("`{shown}` is not a rate"), LOOKS_LIKE.to_owned());
    }
    let squeezed: String = text.split_whitespace().collect();
    if squeezed != text && is_usable(&squeezed) {
        return wrong("a rate holds no spaces", format!("write `{squeezed}`"));
    }
    let Some((tokens, period)) = text.split_once('/') else {
        return if is_digits(text) {
            let help = suggestion("for one second, ", &format!("{text}/s"));
            wrong("the rate has no period", help)
        } else {
            wrong(&format!("`{shown}` is not a rate"), like())
        };
    };
    if tokens.starts_with('-') {
        return wrong("a rate cannot be negative", LOOKS_LIKE.to_owned());
    }
    if let Some((whole, fraction)) = tokens.split_once('.')
        && is_digits(whole)
        && is_digits(fraction)
    {
        return wrong("the number of a rate is whole", of_fraction(text));
    }
    if !is_digits(tokens) {
        return wrong(&format!("`{shown}` is not a rate"), like());
    }
    let Ok(tokens) = tokens.parse::<u64>() else {
        return wrong("the rate is too large", LOOKS_LIKE.to_owned());
    };
    let period_us = period_us(text, tokens, period)?;
    Ok(Rate { tokens, period_us })
}

/// The period after the slash, in microseconds.
fn period_us(text: &str, tokens: u64, period: &str) -> Result<u64, RateError> {
    let milliseconds = period::unit_milliseconds(period).or_else(|error| {
        if period.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            period::milliseconds(period)
        } else {
            Err(error)
        }
    });
    let micros = milliseconds.and_then(|milliseconds| {
        milliseconds.checked_mul(MICROS_PER_MILLISECOND).ok_or(PeriodError::TooLong)
    });
    micros.map_err(|error| {
        let number: String = period.chars().take_while(char::is_ascii_digit).collect();
        let (message, help) = match error {
            PeriodError::UnknownUnit(Some(meant)) => {
                let unit = cut(&period[number.len()..], 16);
                (
                    format!("unknown unit `{unit}`"),
                    suggestion("", &format!("{tokens}/{number}{meant}")),
                )
            }
            PeriodError::UnknownUnit(None) if period.is_empty() => {
                ("the rate has no period".to_owned(), suggestion("", &format!("{tokens}/s")))
            }
            PeriodError::UnknownUnit(None) => {
                let unit = cut(&period[number.len()..], 16);
                (format!("unknown unit `{unit}`"), LOOKS_LIKE.to_owned())
            }
            PeriodError::NoUnit => {
                let help = suggestion("for seconds, ", &format!("{tokens}/{number}s"));
                ("the period of the rate has no unit".to_owned(), help)
            }
            PeriodError::Negative => {
                ("the period of a rate cannot be negative".to_owned(), LOOKS_LIKE.to_owned())
            }
            PeriodError::Fraction | PeriodError::NoNumber => {
                ("the period of a rate is a whole number".to_owned(), of_fraction(text))
            }
            PeriodError::TooLong => {
                ("the period of the rate is too long".to_owned(), LOOKS_LIKE.to_owned())
            }
        };
        RateError { message, help }
    })
}

/// The help that suggests a rate, unless that cannot be counted either.
fn suggestion(when: &str, rate: &str) -> String {
    if is_usable(rate) { format!("{when}write `{rate}`") } else { LOOKS_LIKE.to_owned() }
}

/// Whether a text is a rate that can be counted with its default burst.
fn is_usable(text: &str) -> bool {
    parse(text).is_ok_and(|rate| TokenBucket::new(rate.tokens, rate.period_us, rate.tokens).is_ok())
}

/// The help for a rate with a fraction: the same rate in whole numbers.
fn of_fraction(text: &str) -> String {
    match meant::meant(text) {
        Some(meant) => {
            let burst = meant.split('/').next().unwrap_or_default();
            format!(
                "write `{meant}`, which is the same; its burst is {burst} if `burst` is left out"
            )
        }
        None => "take a longer period: `0.5/s` is `30/m`".to_owned(),
    }
}

/// Whether a text has only digits.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_over_a_period() {
        let table = [
            ("10/s", 10, 1_000_000),
            ("300/m", 300, 60_000_000),
            ("7/h", 7, 3_600_000_000),
            ("1/d", 1, 86_400_000_000),
            ("100/10s", 100, 10_000_000),
            ("5/250ms", 5, 250_000),
            ("1/ms", 1, 1_000),
            ("0/s", 0, 1_000_000),
            ("1/0s", 1, 0),
        ];
        for (text, tokens, period_us) in table {
            assert_eq!(parse(text), Ok(Rate { tokens, period_us }), "{text}");
        }
    }

    #[test]
    fn invalid_rates_are_reported_with_help() {
        let table = [
            ("10", "the rate has no period", "for one second, write `10/s`"),
            ("10/", "the rate has no period", "write `10/s`"),
            ("10/sec", "unknown unit `sec`", "write `10/s`"),
            ("10/5 min", "a rate holds no spaces", ""),
            ("10 / s", "a rate holds no spaces", "write `10/s`"),
            ("0", "the rate has no period", LOOKS_LIKE),
            ("99999999999999999999", "the rate has no period", LOOKS_LIKE),
            ("0/sec", "unknown unit `sec`", LOOKS_LIKE),
            ("10/0", "the period of the rate has no unit", LOOKS_LIKE),
            ("999999999999/9sec", "unknown unit `sec`", LOOKS_LIKE),
            ("1,5/s", "`1,5/s` is not a rate", LOOKS_LIKE),
            ("10/S", "unknown unit `S`", "write `10/s`"),
            ("10/fortnight", "unknown unit `fortnight`", LOOKS_LIKE),
            ("10/10", "the period of the rate has no unit", "for seconds, write `10/10s`"),
            ("-1/s", "a rate cannot be negative", LOOKS_LIKE),
            ("1/-1s", "the period of a rate cannot be negative", LOOKS_LIKE),
            ("0.5/s", "the number of a rate is whole", ""),
            ("1/1.5s", "the period of a rate is a whole number", ""),
            ("ten/s", "`ten/s` is not a rate", LOOKS_LIKE),
            ("NaN/s", "`NaN/s` is not a rate", LOOKS_LIKE),
            ("1e308/s", "`1e308/s` is not a rate", LOOKS_LIKE),
            ("", "`` is not a rate", LOOKS_LIKE),
            ("99999999999999999999/s", "the rate is too large", LOOKS_LIKE),
            ("1/18446744073709551615d", "the period of the rate is too long", LOOKS_LIKE),
            ("1/18446744073709551615ms", "the period of the rate is too long", LOOKS_LIKE),
        ];
        for (text, message, help) in table {
            let error = parse(text).unwrap_err();
            if text != "10/5 min" {
                assert_eq!(error.message, message, "{text}");
            }
            assert!(help.is_empty() || error.help == help, "{text}: {}", error.help);
        }
    }
}
