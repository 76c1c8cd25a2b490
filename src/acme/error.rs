//! Why a certificate could not be ordered, in words for a log line. Texts of the server are
//! shortened and their control characters escaped.

use thiserror::Error;

use super::order::POLL_TIMEOUT;
use super::storage::StorageError;

/// Maximum number of characters of a text of the server.
const MAX_CHARS: usize = 300;

/// Problem type of a server that limits the rate of orders (RFC 8555, section 6.7).
pub(super) const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";

/// Problem type of an account that the server does not have.
pub(super) const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Problem type of a request whose nonce the server does not accept, which a new request may cure
/// (RFC 8555, section 6.5).
pub(super) const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Why a certificate could not be ordered.
#[derive(Debug, Error)]
pub enum AcmeError {
    /// No response of the server.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The address that did not respond.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server refused a request.
    #[error("the server refused: {text}")]
    Refused {
        /// Type of the problem, as in RFC 8555, section 6.7.
        kind: Option<String>,
        /// The server's words.
        text: String,
    },
    /// The server could not verify that the gateway serves the domain.
    #[error("the challenge failed: {0}")]
    ChallengeFailed(String),
    /// The server does not offer the configured challenge for the domain.
    #[error("the server does not offer the challenge {0} for this domain")]
    NoChallenge(&'static str),
    /// The order was not complete in time.
    #[error("the server did not complete the order within {0} s")]
    TooSlow(u64),
    /// A response is not what RFC 8555 says.
    #[error("malformed response: {0}")]
    Malformed(String),
    /// The server's certificate for the domain cannot be used.
    #[error("the issued certificate cannot be used: {0}")]
    Certificate(String),
    /// The account or a certificate cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Another gateway took the lock in Redis while this one was ordering.
    #[error("lost the lock in Redis while ordering")]
    LockLost,
    /// Keys cannot be made, or the settings do not fit.
    #[error("{0}")]
    Local(String),
}

impl AcmeError {
    /// Label of the result in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { kind: Some(kind), .. } if kind == RATE_LIMITED => "rate_limited",
            Self::Refused { .. } | Self::NoChallenge(_) => "refused",
            Self::ChallengeFailed(_) => "challenge",
            Self::TooSlow(_) => "timeout",
            Self::Malformed(_) | Self::Certificate(_) => "malformed",
            Self::Storage(_) | Self::LockLost => "storage",
            Self::Local(_) => "local",
        }
    }

    /// Whether the server does not know the stored account.
    pub(super) fn is_unknown_account(&self) -> bool {
        matches!(self, Self::Refused { kind: Some(kind), .. } if kind == NO_ACCOUNT)
    }

    /// Whether the server did not accept a nonce that it had issued.
    pub(super) fn is_bad_nonce(&self) -> bool {
        matches!(self, Self::Refused { kind: Some(kind), .. } if kind == BAD_NONCE)
    }
}

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error;

        match error {
            Error::Api(problem) => {
                let text = problem_text(&problem);
                Self::Refused { kind: problem.r#type, text }
            }
            Error::Json(error) => Self::Malformed(readable(&error.to_string())),
            Error::Str(missing) => Self::Malformed(missing.to_owned()),
            Error::Timeout(_) => Self::TooSlow(POLL_TIMEOUT.as_secs()),
            Error::Unsupported(feature) => Self::Malformed(format!("no support for {feature}")),
            Error::Other(error) => match error.downcast::<AcmeError>() {
                Ok(error) => *error,
                Err(error) => Self::Malformed(readable(&error.to_string())),
            },
            other => Self::Malformed(readable(&other.to_string())),
        }
    }
}

/// Whether the server refuses a request because there were too many.
pub(super) fn is_rate_limited(error: &instant_acme::Error) -> bool {
    matches!(error, instant_acme::Error::Api(it) if it.r#type.as_deref() == Some(RATE_LIMITED))
}

/// Detail and type of a problem document and of its parts.
pub(super) fn problem_text(problem: &instant_acme::Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    for part in &problem.subproblems {
        text.push_str("; ");
        text.push_str(&part.to_string());
    }
    if let Some(kind) = &problem.r#type {
        let space = if text.is_empty() { "" } else { " " };
        text.extend([space, "(", kind, ")"]);
    }
    readable(if text.is_empty() { "no reason given" } else { &text })
}

/// The text on one line, without control characters, and not too long.
pub(super) fn readable(text: &str) -> String {
    let mut line = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == MAX_CHARS {
            line.push('…');
            break;
        }
        if character.is_control() || is_direction_mark(character) {
            line.extend(character.escape_unicode());
        } else {
            line.push(character);
        }
    }
    line
}

/// Characters that change the direction of the text after them.
const fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_server_is_one_short_line() {
        let long = readable(&format!("a\nb\u{1b}[31m\u{202e}{}", "x".repeat(1000)));
        assert!(long.starts_with("a\\u{a}b\\u{1b}[31m\\u{202e}xxx"), "{long}");
        assert!(long.chars().count() < 340, "{long}");
    }

    #[test]
    fn problem_shows_detail_type_and_parts() {
        let problem: instant_acme::Problem = serde_json::from_str(
            r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many orders",
                "subproblems": [{"detail": "for a", "identifier": {"type": "dns", "value": "a.example"}}]}"#,
        )
        .unwrap();
        let error = AcmeError::from(instant_acme::Error::Api(problem));
        insta::assert_snapshot!(error, @r#"the server refused: too many orders; for "a.example": for a (urn:ietf:params:acme:error:rateLimited)"#);
        assert_eq!(error.label(), "rate_limited");
        let empty: instant_acme::Problem = serde_json::from_str("{}").unwrap();
        assert_eq!(problem_text(&empty), "no reason given");
    }
}
