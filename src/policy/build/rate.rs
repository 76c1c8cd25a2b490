//! Parses rates, and limits by window: `10/s`, `100/10s`, `5/250ms`. `meant` guesses what other
//! texts mean.

mod meant;

use super::mistake::Mistake;
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::period::{self, PeriodError};
use crate::base::text::cut;
use crate::limit::token_bucket::TokenBucket;
use crate::policy::Rate;

/// Microseconds in a millisecond.
const MICROS_PER_MILLISECOND: u64 = MICROS_PER_SECOND / 1_000;

/// The setting that a text is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    /// `rate`: tokens that are added per period.
    Rate,
    /// `limit`: maximum number of tokens in any window as long as the period.
    Limit,
}

/// Parses the value of a setting. Zeros are accepted here: building the limit reports them.
///
/// # Errors
/// See [`Mistake`].
pub(super) fn parse(setting: Setting, text: &str) -> Result<Rate, Mistake> {
    let name = setting.name();
    let wrong = |message: &str, help: String| Err(Mistake::new(message, help));
    let shown = cut(text, 40);
    if text.len() > 64 {
        return wrong(&format!("`{shown}` is not a {name}"), setting.looks_like());
    }
    let squeezed: String = text.split_whitespace().collect();
    if squeezed != text && setting.is_usable(&squeezed) {
        return wrong(&format!("a {name} holds no spaces"), format!("write `{squeezed}`"));
    }
    let Some((tokens, period)) = text.split_once('/') else {
        return if is_digits(text) {
            let help = setting.suggestion("for one second, ", &format!("{text}/s"));
            wrong(&format!("the {name} has no period"), help)
        } else {
            wrong(&format!("`{shown}` is not a {name}"), setting.like(text))
        };
    };
    if tokens.starts_with('-') {
        return wrong(&format!("a {name} cannot be negative"), setting.looks_like());
    }
    if let Some((whole, fraction)) = tokens.split_once('.')
        && is_digits(whole)
        && is_digits(fraction)
    {
        return wrong(&format!("the number of a {name} is whole"), setting.of_fraction(text));
    }
    if !is_digits(tokens) {
        return wrong(&format!("`{shown}` is not a {name}"), setting.like(text));
    }
    let Ok(tokens) = tokens.parse::<u64>() else {
        return wrong(&format!("the {name} is too large"), setting.looks_like());
    };
    let period_us = period_us(setting, text, tokens, period)?;
    Ok(Rate { tokens, period_us })
}

/// The period after the slash, in microseconds.
fn period_us(setting: Setting, text: &str, tokens: u64, period: &str) -> Result<u64, Mistake> {
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
    let name = setting.name();
    micros.map_err(|error| {
        let number: String = period.chars().take_while(char::is_ascii_digit).collect();
        let (message, help) = match error {
            PeriodError::UnknownUnit(Some(meant)) => {
                let unit = cut(&period[number.len()..], 16);
                let meant = format!("{tokens}/{number}{meant}");
                (format!("unknown unit `{unit}`"), setting.suggestion("", &meant))
            }
            PeriodError::UnknownUnit(None) if period.is_empty() => {
                let help = setting.suggestion("", &format!("{tokens}/s"));
                (format!("the {name} has no period"), help)
            }
            PeriodError::UnknownUnit(None) => {
                let unit = cut(&period[number.len()..], 16);
                let help = calendar_unit(&unit).filter(|_| number.is_empty() && tokens > 0);
                let help = help.map(|unit| {
                    format!("for calendar periods, write `kind = \"fixed_window\"` and `limit = \"{tokens}/{unit}\"`")
                });
                (format!("unknown unit `{unit}`"), help.unwrap_or_else(|| setting.looks_like()))
            }
            PeriodError::NoUnit => {
                let help = setting.suggestion("for seconds, ", &format!("{tokens}/{number}s"));
                (format!("the period of the {name} has no unit"), help)
            }
            PeriodError::Negative => {
                (format!("the period of a {name} cannot be negative"), setting.looks_like())
            }
            PeriodError::Fraction | PeriodError::NoNumber => {
                (format!("the period of a {name} is a whole number"), setting.of_fraction(text))
            }
            PeriodError::TooLong => {
                (format!("the period of the {name} is too long"), setting.looks_like())
            }
        };
        Mistake { message, help }
    })
}

impl Setting {
    /// Its name in the file.
    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Limit => "limit",
        }
    }

    /// The help for a text that is not like a value of the setting.
    fn looks_like(self) -> String {
        let name = self.name();
        format!(
            "a {name} looks like `10/s`, `100/10s` or `5/250ms`; the units are ms, s, m, h and d"
        )
    }

    /// The help that suggests a value, unless that cannot be counted either.
    fn suggestion(self, when: &str, text: &str) -> String {
        if self.is_usable(text) { format!("{when}write `{text}`") } else { self.looks_like() }
    }

    /// Whether a text can be counted with its default burst.
    fn is_usable(self, text: &str) -> bool {
        let Ok(Rate { tokens, period_us }) = parse(self, text) else { return false };
        let bucket = match self {
            Self::Rate => TokenBucket::new(tokens, period_us, tokens),
            Self::Limit => TokenBucket::by_window(tokens, period_us, default_burst(tokens)),
        };
        bucket.is_ok()
    }

    /// The help for another spelling of a value.
    fn like(self, text: &str) -> String {
        self.meant(text).map_or_else(|| self.looks_like(), |meant| format!("write `{meant}`"))
    }

    /// The value that a text means. A fraction of a limit has no equal: another window is another
    /// limit.
    fn meant(self, text: &str) -> Option<String> {
        let is_other_window = self == Self::Limit && text.contains('.');
        meant::meant(text).filter(|meant| !is_other_window && self.is_usable(meant))
    }

    /// The help for a text with a fraction: the same rate in whole numbers.
    fn of_fraction(self, text: &str) -> String {
        match (self, self.meant(text)) {
            (Self::Rate, Some(meant)) => {
                let burst = meant.split('/').next().unwrap_or_default();
                format!(
                    "write `{meant}`, which is the same; its burst is {burst} if `burst` is left out"
                )
            }
            (Self::Rate, None) => "take a longer period: `0.5/s` is `30/m`".to_owned(),
            (Self::Limit, _) => self.looks_like(),
        }
    }
}

/// The unit of a fixed window that is no length of time.
fn calendar_unit(unit: &str) -> Option<&'static str> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "w" | "week" | "weeks" => "week",
        "mo" | "mon" | "month" | "months" => "month",
        "y" | "year" | "years" => "year",
        _ => return None,
    })
}

/// Burst of a limit by window that has none in the file: a tenth of the limit, at least 1.
pub(super) const fn default_burst(limit: u64) -> u64 {
    if limit < 20 { 1 } else { limit / 10 }
}

/// Whether a text has only digits.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help for a text that is not like a rate.
    const LOOKS_LIKE: &str =
        "a rate looks like `10/s`, `100/10s` or `5/250ms`; the units are ms, s, m, h and d";

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
            assert_eq!(parse(Setting::Rate, text), Ok(Rate { tokens, period_us }), "{text}");
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
            let error = parse(Setting::Rate, text).unwrap_err();
            if text != "10/5 min" {
                assert_eq!(error.message, message, "{text}");
            }
            assert!(help.is_empty() || error.help == help, "{text}: {}", error.help);
        }
    }

    #[test]
    fn limit_is_named_and_never_suggested_with_another_window() {
        let like =
            "a limit looks like `10/s`, `100/10s` or `5/250ms`; the units are ms, s, m, h and d";
        let table = [
            ("1000", "the limit has no period", "for one second, write `1000/s`"),
            ("1000 / h", "a limit holds no spaces", "write `1000/h`"),
            ("1000/hour", "unknown unit `hour`", "write `1000/h`"),
            ("10rps", "`10rps` is not a limit", "write `10/s`"),
            ("1.5/s", "the number of a limit is whole", like),
            ("1/0.5h", "the period of a limit is a whole number", like),
            ("1.5 per second", "`1.5 per second` is not a limit", like),
            ("-5/s", "a limit cannot be negative", like),
            // A limit is at least 2.
            ("1", "the limit has no period", like),
            ("ten", "`ten` is not a limit", like),
        ];
        for (text, message, help) in table {
            let error = parse(Setting::Limit, text).unwrap_err();
            assert_eq!((error.message.as_str(), error.help.as_str()), (message, help), "{text}");
        }
        assert_eq!(parse(Setting::Limit, "1000/h").unwrap().to_string(), "1000/h");
    }
}
