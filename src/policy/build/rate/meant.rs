//! Guesses the rate that a text means, such as `90/m` for `1.5/s` and `10/s` for `10rps`. The guess
//! is exact, or none.

use super::Setting;
use crate::base::period;
#[cfg(test)]
use crate::policy::Rate;

/// Maximum number of digits of a number, before and after its point.
const MAX_DIGITS: usize = 9;

/// Units that a rate is converted to, in milliseconds.
const UNITS: [(&str, u128); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A positive number, as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fraction {
    over: u128,
    under: u128,
}

/// The rate that a text means, as it is written in the file; none if that is not clear, or if the
/// text is a rate already.
pub(super) fn meant(text: &str) -> Option<String> {
    let text = text.to_lowercase().replace(" per ", "/").replace(['_', ' '], "");
    let (tokens, period) = split(&text)?;
    let tokens = number(&tokens)?;
    let digits = period.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (length, unit) = period.split_at(digits);
    let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| Some(*name) == known_unit(unit))?;
    let length = if length.is_empty() { Fraction { over: 1, under: 1 } } else { number(length)? };
    let period = length.over * unit_ms;
    let written = if tokens.under == 1 && length.under == 1 {
        let length = if length.over == 1 { String::new() } else { length.over.to_string() };
        format!("{}/{length}{}", tokens.over, known_unit(unit)?)
    } else if tokens.under == 1 && period.is_multiple_of(length.under) {
        over_period(tokens.over, period / length.under)?
    } else {
        let over = tokens.over * length.under;
        exact(Fraction { over, under: tokens.under * length.over }, unit_ms)?
    };
    Setting::Rate.is_usable(&written).then_some(written)
}

/// Splits a text at its period: `10/s`, `10r/s`, `10req/s`, `10rps`.
fn split(text: &str) -> Option<(String, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | 'k');
    let (number, rest) = text.split_at(text.find(|c| !is_number(c))?);
    let number = number.to_owned();
    if let Some(unit) = rest.strip_prefix("rp").or_else(|| rest.strip_prefix("qp")) {
        return matches!(unit, "s" | "m" | "h" | "d").then_some((number, unit));
    }
    let (counted, period) = rest.split_once('/')?;
    let counts = ["", "r", "req", "reqs", "request", "requests", "token", "tokens"];
    counts.contains(&counted).then_some((number, period))
}

/// The unit of another spelling.
fn known_unit(unit: &str) -> Option<&'static str> {
    UNITS
        .into_iter()
        .map(|(name, _)| name)
        .find(|name| *name == unit)
        .or_else(|| period::meant_unit(unit))
}

/// A number such as `1.5`, `1,000` or `2k`; none for 0.
fn number(text: &str) -> Option<Fraction> {
    let (text, factor) = text.strip_suffix('k').map_or((text, 1), |number| (number, 1_000));
    let text = without_commas(text)?;
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = part.trim_end_matches('0');
    let is_short = |digits: &str| {
        digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if whole.is_empty() || !is_short(whole) || !is_short(part) {
        return None;
    }
    let under = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let over: u128 = format!("{whole}{part}").parse::<u128>().ok()? * factor;
    (over > 0).then_some(Fraction { over, under }.reduced())
}

/// A number without the commas between its groups of three digits. Other commas may be meant as
/// points.
fn without_commas(text: &str) -> Option<String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut groups = whole.split(',');
    let is_first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()));
    let is_grouped = !whole.contains(',') || (is_first && groups.all(|group| group.len() == 3));
    (is_grouped && !part.contains(',')).then(|| text.replace(',', ""))
}

/// A fraction of tokens per `unit_ms`: in the shortest unit from this one on in which the number is
/// whole, or else over several of a unit.
fn exact(tokens: Fraction, unit_ms: u128) -> Option<String> {
    let Fraction { over, under } = tokens.reduced();
    for (name, length) in UNITS.into_iter().filter(|(_, length)| *length >= unit_ms) {
        let Fraction { over, under } =
            Fraction { over: over * length, under: under * unit_ms }.reduced();
        if under == 1 {
            return Some(format!("{over}/{name}"));
        }
    }
    over_period(over, under * unit_ms)
}

/// A rate with a period in milliseconds, in the longest unit that measures it.
fn over_period(tokens: u128, period: u128) -> Option<String> {
    let (name, length) =
        UNITS.into_iter().rev().find(|(_, length)| period.is_multiple_of(*length))?;
    let count = period / length;
    let count = if count == 1 { String::new() } else { count.to_string() };
    Some(format!("{tokens}/{count}{name}"))
}

impl Fraction {
    fn reduced(self) -> Self {
        let (mut a, mut b) = (self.over, self.under);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        let divisor = a.max(1);
        Self { over: self.over / divisor, under: self.under / divisor }
    }
}

/// Whether the rate has the number of tokens per period that `tokens` per `unit` has.
#[cfg(test)]
fn is_exact(rate: Rate, tokens: Fraction, unit_ms: u128) -> bool {
    u128::from(rate.tokens) * tokens.under * unit_ms * 1_000
        == tokens.over * u128::from(rate.period_us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_spellings_are_converted_exactly() {
        let table = [
            ("1.5/s", Some("90/m")),
            ("0.5/s", Some("30/m")),
            ("1.5/m", Some("90/h")),
            ("0.25/m", Some("15/h")),
            ("2.0/s", Some("2/s")),
            ("0.001/s", Some("1/1000s")),
            ("0.5/d", Some("1/2d")),
            ("0.3/d", Some("3/10d")),
            ("10/1.5s", Some("10/1500ms")),
            ("10/1.5m", Some("10/90s")),
            ("10/0.5ms", Some("20/ms")),
            ("1.5/10s", Some("9/m")),
            ("10 per second", Some("10/s")),
            ("10 requests per minute", Some("10/m")),
            ("5 req/hour", Some("5/h")),
            ("10rps", Some("10/s")),
            ("10 rpm", Some("10/m")),
            ("10r/s", Some("10/s")),
            ("10R/M", Some("10/m")),
            ("100/min", Some("100/m")),
            ("100/hour", Some("100/h")),
            ("100/10sec", Some("100/10s")),
            ("10 / 5 min", Some("10/5m")),
            ("1k/s", Some("1000/s")),
            ("1,000/s", Some("1000/s")),
            ("12,345,678/s", Some("12345678/s")),
            ("1,000.5/s", Some("60030/m")),
            ("1,5/s", None),
            ("10,00/s", None),
            ("1000,000/s", None),
            ("1.000,5/s", None),
            ("1,5k/s", None),
            ("10/0s", None),
            ("10/0 sec", None),
            ("999999999/999999d", None),
            ("1_000/s", Some("1000/s")),
            ("0/s", None),
            ("0.0/s", None),
            ("ten/s", None),
            ("10", None),
            ("10/", None),
            ("10/fortnight", None),
            ("1e3/s", None),
            ("-1.5/s", None),
            ("1.5.5/s", None),
            (".5/s", None),
            ("10rpx", None),
            ("9999999999.5/s", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(meant(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn fraction_is_converted_exactly(
            whole in 0_u32..100_000,
            part in 0_u32..1_000,
            unit in prop::sample::select(&UNITS[..]),
        ) {
            prop_assume!(whole > 0 || part > 0);
            let text = format!("{whole}.{part:03}/{}", unit.0);
            if let Some(written) = meant(&text) {
                let rate = super::super::parse(Setting::Rate, &written).unwrap();
                let over = u128::from(whole) * 1_000 + u128::from(part);
                let tokens = Fraction { over, under: 1_000 };
                prop_assert!(is_exact(rate, tokens, unit.1), "{text} is not {written}");
            } else {
                // Over a longer period, the default burst of more tokens cannot be counted.
                prop_assert!(unit.0 == "d" || unit.0 == "h" || whole > 100, "{text}");
            }
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "[0-9.,k_ ]{0,24}[a-z/ ]{0,12}[0-9.]{0,24}[a-z]{0,7}") {
            if let Some(written) = meant(&text) {
                prop_assert!(super::super::parse(Setting::Rate, &written).is_ok(), "{}: {}", text, written);
            }
        }
    }
}
