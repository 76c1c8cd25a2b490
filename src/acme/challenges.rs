//! Challenges that the ACME server is about to check: what the gateway answers to it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// Path of HTTP-01 challenges (RFC 8555, section 8.3); the token follows.
pub const HTTP_PREFIX: &str = "/.well-known/acme-challenge/";

/// Proof that the gateway serves a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChallenge {
    pub domain: String,
    /// Random text of the ACME server, which names the challenge.
    pub token: String,
    /// The answer: the token and a hash of the account's public key.
    pub key_authorization: String,
}

/// The challenges to answer by HTTP. Empty most of the time.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Answers by token.
    answers: RwLock<HashMap<Box<str>, Arc<str>>>,
}

impl Challenges {
    /// Answers these challenges from now on, and no others.
    pub fn replace<'a>(&self, challenges: impl Iterator<Item = &'a PendingChallenge>) {
        let answer = |challenge: &PendingChallenge| {
            (challenge.token.as_str().into(), challenge.key_authorization.as_str().into())
        };
        *self.answers.write() = challenges.map(answer).collect();
    }

    /// Returns the answer to a request for `path`; `None` if it is not that of a challenge.
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(HTTP_PREFIX)?;
        self.answers.read().get(token).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_pending_challenge_has_an_answer() {
        let challenges = Challenges::default();
        let one = PendingChallenge {
            domain: "a.example".to_owned(),
            token: "t0k-en_".to_owned(),
            key_authorization: "t0k-en_.thumb".to_owned(),
        };
        challenges.replace([&one].into_iter());
        let answer = |path| challenges.answer(path).map(|answer| answer.to_string());
        assert_eq!(answer("/.well-known/acme-challenge/t0k-en_").as_deref(), Some("t0k-en_.thumb"));
        for other in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/t0k-en",
            "/.well-known/acme-challenge/t0k-en_/",
            "/.well-known/acme-challenge//t0k-en_",
            "/t0k-en_",
        ] {
            assert_eq!(answer(other), None, "{other}");
        }
        challenges.replace([].into_iter());
        assert_eq!(answer("/.well-known/acme-challenge/t0k-en_"), None);
    }
}
