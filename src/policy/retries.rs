//! `retries` of an upstream or a route: after which failures a request is sent again, and how often.

use std::fmt;

use http::StatusCode;

use crate::config::row::DefaultValue;
use crate::config::tables;

/// When the requests of an upstream or a route are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Maximum number of retries of a request; 0: it is sent once.
    pub count: u8,
    /// The failures after which it is sent again.
    pub on: RetryOn,
    /// Whether requests are also sent again if their method is not idempotent and a server may have
    /// processed them.
    pub non_idempotent: bool,
    /// Maximum number of retries that may add load to the upstream, in percent of its requests.
    pub budget_percent: u16,
}

/// The failures after which a request is sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryOn(u128);

/// A failure that `on` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCause {
    /// No server has processed the request: none could be connected to, or it said so.
    Connect,
    /// The connection closed before the head of the response.
    Reset,
    /// The head of the response did not come in time.
    Timeout,
    /// A response with this status.
    Status(StatusCode),
}

impl RetryCause {
    /// The words that are no status.
    const PLAIN: [(&str, Self); 3] =
        [("connect", Self::Connect), ("reset", Self::Reset), ("timeout", Self::Timeout)];

    /// The statuses that are not 5xx.
    const OTHER_STATUSES: [StatusCode; 3] =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];

    /// Its bit: those of 5xx first. 0 for a status that is never a reason.
    fn bit(self) -> u128 {
        let at = match self {
            Self::Status(status) if status.is_server_error() => u32::from(status.as_u16()) - 500,
            Self::Status(status) => {
                match (100..).zip(Self::OTHER_STATUSES).find(|(_, other)| *other == status) {
                    Some((at, _)) => at,
                    None => return 0,
                }
            }
            Self::Connect => 103,
            Self::Reset => 104,
            Self::Timeout => 105,
        };
        1 << at
    }
}

impl RetryOn {
    /// All 5xx.
    const SERVER_ERRORS: Self = Self((1 << 100) - 1);

    /// What an item of `on` stands for; `None`: it is not one.
    pub fn of_word(word: &str) -> Option<Self> {
        if word == "5xx" {
            return Some(Self::SERVER_ERRORS);
        }
        if let Some((_, plain)) = RetryCause::PLAIN.into_iter().find(|(own, _)| *own == word) {
            return Some(Self(plain.bit()));
        }
        let status = word.parse().ok().and_then(|status| StatusCode::from_u16(status).ok())?;
        let bit = RetryCause::Status(status).bit();
        (bit != 0 && word.len() == 3).then_some(Self(bit))
    }

    /// These failures and those.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, cause: RetryCause) -> bool {
        self.0 & cause.bit() != 0
    }

    /// Its items, as the file writes them.
    pub fn names(self) -> Vec<String> {
        let plain = RetryCause::PLAIN.into_iter().filter(|(_, cause)| self.has(*cause));
        let mut names: Vec<String> = plain.map(|(word, _)| word.to_owned()).collect();
        let has_all = self.and(Self::SERVER_ERRORS) == self;
        if has_all {
            names.push("5xx".to_owned());
        }
        let others = RetryCause::OTHER_STATUSES.into_iter();
        let errors = (500..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let statuses = others.chain(errors.filter(|_| !has_all));
        let statuses = statuses.filter(|status| self.has(RetryCause::Status(*status)));
        names.extend(statuses.map(|status| status.as_str().to_owned()));
        names
    }
}

impl Retries {
    /// Whether retries can add load to the upstream: those after which it may have processed the
    /// request.
    pub fn has_budget(&self) -> bool {
        let free = Self::default().on;
        self.count > 0 && self.on.and(free) != free
    }
}

impl Default for Retries {
    fn default() -> Self {
        let row = &tables::Retries::on;
        let words: &[&str] = if let DefaultValue::Texts(words) = row.default { words } else { &[] };
        let on = words.iter().filter_map(|word| RetryOn::of_word(word));
        let count = tables::Retries::count.number().and_then(|count| u8::try_from(count).ok());
        Self {
            count: count.unwrap_or_default(),
            on: on.fold(RetryOn::default(), RetryOn::and),
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
        if self.count == 0 || self.on == RetryOn::default() {
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

    fn on(words: &[&str]) -> RetryOn {
        words
            .iter()
            .map(|word| RetryOn::of_word(word).unwrap())
            .fold(RetryOn::default(), RetryOn::and)
    }

    #[test]
    fn words_are_what_they_name() {
        let some = on(&["connect", "503", "429"]);
        let status = |status| RetryCause::Status(StatusCode::from_u16(status).unwrap());
        let table = [
            (RetryCause::Connect, true),
            (RetryCause::Reset, false),
            (RetryCause::Timeout, false),
            (status(503), true),
            (status(502), false),
            (status(429), true),
            (status(408), false),
            (status(200), false),
            (status(404), false),
        ];
        for (cause, expected) in table {
            assert_eq!(some.has(cause), expected, "{cause:?}");
        }
        assert_eq!(some.names(), ["connect", "429", "503"]);
        let all = on(&["5xx", "timeout", "reset", "599"]);
        assert!((500..600).all(|number| all.has(status(number))));
        assert_eq!(all.names(), ["reset", "timeout", "5xx"]);
        for word in ["", "404", "600", "4xx", "0503", "+503", "Connect", "50", "error"] {
            assert_eq!(RetryOn::of_word(word), None, "{word}");
        }
    }

    #[test]
    fn default_is_one_retry_of_what_no_server_has_processed() {
        let default = Retries::default();
        assert_eq!(default.to_string(), "up to 1 retry on connect");
        assert_eq!((default.budget_percent, default.has_budget()), (20, false));
        let more = Retries { count: 3, on: on(&["connect", "5xx"]), ..default };
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
