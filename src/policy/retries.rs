//! `retries` of an upstream or a route: after which failures a request is sent again, and how
//! often.

use std::fmt;

use super::failures::FailureSet;
use crate::config::tables;

/// When the requests of an upstream or a route are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Maximum number of retries of a request; 0: it is sent once.
    pub count: u8,
    /// The failures after which it is sent again.
    pub on: FailureSet,
    /// Whether requests are also sent again if their method is not idempotent and a server may have
    /// processed them.
    pub non_idempotent: bool,
    /// Maximum number of retries that may add load to the upstream, in percent of its requests.
    pub budget_percent: u16,
}

impl Retries {
    /// Whether retries can add load to the upstream: those after which it may have processed the
    /// request.
    pub fn has_budget(&self) -> bool {
        self.count > 0 && self.on.has_processed()
    }
}

impl Default for Retries {
    fn default() -> Self {
        let row = &tables::Retries::on;
        let words = row.texts().unwrap_or_default();
        let count = tables::Retries::count.number().and_then(|count| u8::try_from(count).ok());
        Self {
            count: count.unwrap_or_default(),
            on: FailureSet::of_words(words.iter().copied()).unwrap_or_default(),
            non_idempotent: tables::Retries::non_idempotent.is_on(),
            budget_percent: tables::Retries::budget.text().and_then(percent).unwrap_or_default(),
        }
    }
}

/// The number of a text such as `20%`; `None` if it is not a whole number of percent.
pub fn percent(text: &str) -> Option<u16> {
    let number = text.strip_suffix('%')?;
    let is_plain = (1..=4).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    if is_plain { number.parse().ok() } else { None }
}

impl fmt::Display for Retries {
    /// A few words: `up to 2 retries on connect, 503, within 20 % of the requests`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 || self.on == FailureSet::default() {
            return f.write_str("no retries");
        }
        let word = if self.count == 1 { "retry" } else { "retries" };
        write!(f, "up to {} {word} on {}", self.count, self.on.names().join(", "))?;
        if self.has_budget() {
            write!(f, ", within {} % of the requests", self.budget_percent)?;
        }
        if self.non_idempotent {
            f.write_str(", of any method")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_one_retry_of_what_no_server_has_processed() {
        let default = Retries::default();
        assert_eq!(default.to_string(), "up to 1 retry on connect");
        assert_eq!((default.budget_percent, default.has_budget()), (20, false));
        let more =
            Retries { count: 3, on: FailureSet::of_words(["connect", "5xx"]).unwrap(), ..default };
        assert_eq!(
            more.to_string(),
            "up to 3 retries on connect, 5xx, within 20 % of the requests"
        );
        assert!(more.has_budget() && !Retries { count: 0, ..more }.has_budget());
        assert_eq!(Retries { count: 0, ..more }.to_string(), "no retries");
    }

    #[test]
    fn percentages_are_whole_numbers() {
        for (text, expected) in [
            ("20%", Some(20)),
            ("1000%", Some(1000)),
            ("20", None),
            ("%", None),
            ("-1%", None),
            ("+1%", None),
            ("1.5%", None),
            ("99999%", None),
            ("20 %", None),
        ] {
            assert_eq!(percent(text), expected, "{text}");
        }
    }
}
