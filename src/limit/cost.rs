//! [`Cost`]: how many tokens a request takes, exact to a thousandth.

use std::fmt;

/// Number of tokens that a request takes, above 0, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    thousandths: u64,
}

/// Thousandths in a token.
const THOUSANDTHS: u64 = 1_000;

impl Cost {
    /// One token.
    pub const ONE: Self = Self { thousandths: THOUSANDTHS };

    /// A cost of thousandths of a token; `None` for 0.
    pub const fn from_thousandths(thousandths: u64) -> Option<Self> {
        if thousandths == 0 { None } else { Some(Self { thousandths }) }
    }

    /// Reads `5`, `0.5` or `12.125`: at most three decimals, and above 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let decimals = if decimals.len() > 3 { decimals.trim_end_matches('0') } else { decimals };
        if !is_digits(whole) || decimals.len() > 3 || !(decimals.is_empty() || is_digits(decimals))
        {
            return None;
        }
        let part: u64 = format!("{decimals:0<3}").parse().ok()?;
        let whole: u64 = whole.parse().ok()?;
        Self::from_thousandths(whole.checked_mul(THOUSANDTHS)?.checked_add(part)?)
    }

    /// A cost of `count` parts of a token that has `parts` parts, at least 1. Rounded down to
    /// thousandths; at least one.
    pub const fn of_parts(count: u64, parts: u64) -> Self {
        let thousandths = count.saturating_mul(THOUSANDTHS) / if parts == 0 { 1 } else { parts };
        Self { thousandths: if thousandths == 0 { 1 } else { thousandths } }
    }

    /// The number of parts, of a token that has `parts` parts: exact if `parts` is a multiple of
    /// [`denominator`](Self::denominator), else rounded up.
    pub const fn in_parts(self, parts: u64) -> u64 {
        // Also for more than 2^64 thousandths, a number that no bucket holds.
        self.thousandths.saturating_mul(parts).saturating_add(THOUSANDTHS - 1) / THOUSANDTHS
    }

    /// The smallest number of parts of a token of which the cost is a whole number, 1 to 1000.
    pub const fn denominator(self) -> u64 {
        THOUSANDTHS / greatest_common_divisor(self.thousandths, THOUSANDTHS)
    }

    /// The cost in tokens, rounded up.
    pub const fn tokens_up(self) -> u64 {
        self.thousandths.div_ceil(THOUSANDTHS)
    }

    /// Whether the cost is above a number of tokens.
    pub const fn exceeds(self, tokens: u64) -> bool {
        self.thousandths > tokens.saturating_mul(THOUSANDTHS)
    }

    /// The cost in tokens, only to be shown: exact to a thousandth up to 2^53 thousandths.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    pub const fn as_f64(self) -> f64 {
        self.thousandths as f64 / 1_000.0
    }

    /// The cost in tokens; `None` if it has decimals.
    pub const fn whole(self) -> Option<u64> {
        if self.thousandths.is_multiple_of(THOUSANDTHS) {
            Some(self.thousandths / THOUSANDTHS)
        } else {
            None
        }
    }

    /// The cost in thousandths of a token.
    pub const fn thousandths(self) -> u64 {
        self.thousandths
    }
}

impl fmt::Display for Cost {
    /// Without trailing zeros: `5`, `0.5`, `12.125`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Amount::of_thousandths(self.thousandths).fmt(formatter)
    }
}

/// Number of tokens that a request has cost, 0 or above, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount {
    thousandths: u64,
}

impl Amount {
    /// An amount of thousandths of a token.
    pub const fn of_thousandths(thousandths: u64) -> Self {
        Self { thousandths }
    }

    /// An amount of whole tokens. Saturates.
    pub const fn of_tokens(tokens: u64) -> Self {
        Self { thousandths: tokens.saturating_mul(THOUSANDTHS) }
    }

    /// Reads a number as JSON writes it: `5`, `0.25` or `1.5e3`, rounded up to a thousandth. `None`
    /// below zero, and for other texts.
    pub fn of_json(text: &str) -> Option<Self> {
        let is_part =
            |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+');
        if text.starts_with('+') || !text.bytes().all(is_part) {
            return None;
        }
        if let Ok(tokens) = text.parse() {
            return Some(Self::of_tokens(tokens));
        }
        let number: f64 = text.parse().ok()?;
        // The product of a decimal fraction is often slightly above a whole number.
        let thousandths = (number * 1_000.0 - 1e-6).ceil();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not below 0; saturates"
        )]
        (number >= 0.0 && number.is_finite()).then_some(Self { thousandths: thousandths as u64 })
    }

    /// An amount of `count` parts of a token that has `parts` parts, at least 1. Rounded down to
    /// thousandths. Saturates.
    pub const fn of_parts(count: u64, parts: u64) -> Self {
        Self { thousandths: count.saturating_mul(THOUSANDTHS) / if parts == 0 { 1 } else { parts } }
    }

    /// The sum of both. Saturates.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { thousandths: self.thousandths.saturating_add(other.thousandths) }
    }

    /// The number of parts, of a token that has `parts` parts, rounded up. Saturates.
    pub const fn in_parts(self, parts: u64) -> u64 {
        self.thousandths.saturating_mul(parts).saturating_add(THOUSANDTHS - 1) / THOUSANDTHS
    }

    /// The amount in tokens, only to be shown: exact to a thousandth up to 2^53 thousandths.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    pub const fn as_f64(self) -> f64 {
        self.thousandths as f64 / 1_000.0
    }

    /// The whole tokens, rounded up.
    pub const fn tokens_up(self) -> u64 {
        self.thousandths.div_ceil(THOUSANDTHS)
    }

    /// The amount in thousandths of a token.
    pub const fn thousandths(self) -> u64 {
        self.thousandths
    }
}

impl fmt::Display for Amount {
    /// Without trailing zeros: `5`, `0`, `12.125`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.thousandths / THOUSANDTHS, self.thousandths % THOUSANDTHS);
        if part == 0 {
            return whole.fmt(formatter);
        }
        let decimals = format!("{part:03}");
        write!(formatter, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// Least common multiple of two numbers of parts, each at least 1.
pub const fn common_parts(a: u64, b: u64) -> u64 {
    a / greatest_common_divisor(a, b) * b
}

/// Computes the greatest common divisor by Euclid's algorithm; `a` if `b` is 0.
pub const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_read_and_shown_exactly() {
        // (text, thousandths, shown, denominator)
        let table = [
            ("1", 1_000, "1", 1),
            ("5", 5_000, "5", 1),
            ("5.0", 5_000, "5", 1),
            ("0.5", 500, "0.5", 2),
            ("0.50", 500, "0.5", 2),
            ("0.500000", 500, "0.5", 2),
            ("0.001", 1, "0.001", 1_000),
            ("12.125", 12_125, "12.125", 8),
            ("0.04", 40, "0.04", 25),
            ("9007199254740.999", 9_007_199_254_740_999, "9007199254740.999", 1_000),
            ("18446744073709551", 18_446_744_073_709_551_000, "18446744073709551", 1),
        ];
        for (text, thousandths, shown, denominator) in table {
            let cost = Cost::parse(text).unwrap();
            assert_eq!(cost, Cost { thousandths }, "{text}");
            assert_eq!(cost.to_string(), shown);
            assert_eq!(cost.denominator(), denominator, "{text}");
            assert_eq!(Cost::of_parts(cost.in_parts(denominator), denominator), cost, "{text}");
        }
        for text in ["", "0", "0.0", ".5", "0.0005", "-1", "1e3", "x", "99999999999999999999", " 1"]
        {
            assert_eq!(Cost::parse(text), None, "{text}");
        }
    }

    #[test]
    fn cost_is_compared_with_tokens() {
        let cost = Cost::parse("2.5").unwrap();
        assert!(cost.exceeds(2) && !cost.exceeds(3));
        assert_eq!((cost.tokens_up(), cost.in_parts(2), cost.in_parts(1)), (3, 5, 3));
        assert_eq!(common_parts(2, 8), 8);
        assert_eq!(common_parts(25, 8), 200);
    }

    #[test]
    fn amounts_are_read_as_json_writes_them() {
        for (text, thousandths) in [
            ("0", Some(0)),
            ("57", Some(57_000)),
            ("0.1", Some(100)),
            ("0.0001", Some(1)),
            ("1e3", Some(1_000_000)),
            ("1.5E+2", Some(150_000)),
            ("25e-1", Some(2_500)),
            ("1e400", None),
            ("99999999999999999999", Some(u64::MAX)),
            ("-0", Some(0)),
            ("-1", None),
            ("+5", None),
            ("", None),
            ("nan", None),
            ("inf", None),
            ("1e", None),
            ("0x10", None),
        ] {
            assert_eq!(Amount::of_json(text).map(Amount::thousandths), thousandths, "{text}");
        }
        assert_eq!(Amount::of_json("12.0001").unwrap().in_parts(1), 13);
        assert_eq!(Amount::of_tokens(u64::MAX).in_parts(1_000), u64::MAX / 1_000);
    }
}
