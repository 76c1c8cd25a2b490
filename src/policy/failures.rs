//! Sets of failures of servers, as `on` of `retries` and `eject` lists them: `["connect", "5xx"]`.

use http::StatusCode;

/// The bit of [`ServerFailure::Connect`].
const CONNECT_BIT: u32 = 103;

/// Failures of servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailureSet(u128);

/// How a request that was sent to an endpoint failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFailure {
    /// No server has processed the request: none could be connected to, or it said so.
    Connect,
    /// The connection closed before the head of the response.
    Reset,
    /// The head of the response did not come in time.
    Timeout,
    /// A response with this status.
    Status(StatusCode),
}

impl ServerFailure {
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
            Self::Connect => CONNECT_BIT,
            Self::Reset => 104,
            Self::Timeout => 105,
        };
        1 << at
    }
}

impl FailureSet {
    /// All 5xx.
    const SERVER_ERRORS: Self = Self((1 << 100) - 1);

    /// [`ServerFailure::Connect`].
    const CONNECT: Self = Self(1 << CONNECT_BIT);

    /// What an item of `on` stands for; `None`: it is not one.
    pub fn of_word(word: &str) -> Option<Self> {
        if word == "5xx" {
            return Some(Self::SERVER_ERRORS);
        }
        if let Some((_, plain)) = ServerFailure::PLAIN.into_iter().find(|(own, _)| *own == word) {
            return Some(Self(plain.bit()));
        }
        let status = word.parse().ok().and_then(|status| StatusCode::from_u16(status).ok())?;
        let bit = ServerFailure::Status(status).bit();
        (bit != 0 && word.len() == 3).then_some(Self(bit))
    }

    /// What a list of items stands for; `None`: one of them is not one.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut sets = words.into_iter().map(Self::of_word);
        sets.try_fold(Self::default(), |all, set| Some(all.and(set?)))
    }

    /// These failures and those.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, cause: ServerFailure) -> bool {
        self.0 & cause.bit() != 0
    }

    /// Whether a server may have processed the request after one of them.
    pub fn has_processed(self) -> bool {
        self.and(Self::CONNECT) != Self::CONNECT
    }

    /// Its items, as the file writes them.
    pub fn names(self) -> Vec<String> {
        let plain = ServerFailure::PLAIN.into_iter().filter(|(_, cause)| self.has(*cause));
        let mut names: Vec<String> = plain.map(|(word, _)| word.to_owned()).collect();
        let has_all = self.and(Self::SERVER_ERRORS) == self;
        if has_all {
            names.push("5xx".to_owned());
        }
        let others = ServerFailure::OTHER_STATUSES.into_iter();
        let errors = (500..600).filter_map(|status| StatusCode::from_u16(status).ok());
        let statuses = others.chain(errors.filter(|_| !has_all));
        let statuses = statuses.filter(|status| self.has(ServerFailure::Status(*status)));
        names.extend(statuses.map(|status| status.as_str().to_owned()));
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_they_name() {
        let on = |words: &[&str]| FailureSet::of_words(words.iter().copied()).unwrap();
        let some = on(&["connect", "503", "429"]);
        let status = |status| ServerFailure::Status(StatusCode::from_u16(status).unwrap());
        let table = [
            (ServerFailure::Connect, true),
            (ServerFailure::Reset, false),
            (ServerFailure::Timeout, false),
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
            assert_eq!(FailureSet::of_word(word), None, "{word}");
            assert_eq!(FailureSet::of_words(["connect", word]), None, "{word}");
        }
    }
}
