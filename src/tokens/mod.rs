//! Tokens of identity providers, for requests: the keys that they are verified with, and those that
//! have been verified.
//!
//! Reading order: this file (the look-up of one token), `cache` (the results of verifications),
//! `schedule` (when keys are fetched), `keys` (the keys of one issuer), `fetch` (the requests for
//! them).

mod cache;
mod fetch;
pub mod keys;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::base::clock;
use crate::base::hash::Digest;
use crate::client::credential::{Credential, CredentialKind, SecretText};
use crate::client::jwt::TokenRefusal;
use crate::client::jwt::compact::Compact;
use crate::client::jwt::key_set::KeySet;
use crate::client::jwt::settings::Issuer;
use crate::client::jwt::verify::{Known, Verified, issuer_of, verify};
use crate::client::principal::Found;
use crate::client::settings::Clients;
use crate::policy::Policy;
use cache::{Cache, Entry};
use keys::{Current, IssuerKeys};

/// Longest time that the start and a reload wait for the keys of issuers.
const FIRST_KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of verified tokens that are kept.
const MAX_VERIFIED: usize = 16_384;

/// Maximum number of refused tokens that are kept.
const MAX_REFUSED: usize = 16_384;

/// The keys of all issuers of a policy, and its verified tokens.
pub struct Tokens {
    /// In the order of [`Clients::issuers`].
    issuers: Vec<Arc<IssuerKeys>>,
    verified: Cache<Verified>,
    refused: Cache<Refused>,
}

/// The result of the verification of a token that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    why: TokenRefusal,
    /// Whether its issuer may have added its key since the keys were fetched.
    may_have_new_key: bool,
}

/// The keys of the issuer of a token have never been fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoKeys;

impl Tokens {
    /// The tokens of a policy. Keys that `previous` has of the same place are kept; verified tokens
    /// are not, because they may mean something else.
    pub fn new(clients: &Clients, previous: Option<&Self>) -> Self {
        let keys = |issuer| {
            let known = previous.into_iter().flat_map(|previous| &previous.issuers);
            match known.into_iter().find(|keys| keys.is_of(issuer)) {
                None => Arc::new(IssuerKeys::new(issuer)),
                Some(keys) => {
                    keys.follow(issuer, clock::now());
                    Arc::clone(keys)
                }
            }
        };
        Self {
            issuers: clients.issuers.iter().map(keys).collect(),
            verified: Cache::new(MAX_VERIFIED),
            refused: Cache::new(MAX_REFUSED),
        }
    }

    /// The keys of each issuer.
    pub fn issuers(&self) -> &[Arc<IssuerKeys>] {
        &self.issuers
    }

    /// Finds whose credential a request has: an API key, or else a token. `unix_us` returns the
    /// Unix time in microseconds.
    ///
    /// # Errors
    /// The token cannot be verified yet.
    pub fn look_up(
        &self,
        policy: &Policy,
        credential: Option<&Credential<'_>>,
        unix_us: impl Fn() -> u64,
    ) -> Result<Found, NoKeys> {
        match (self.known(policy, credential, &unix_us), credential) {
            (Some(found), _) => Ok(found),
            (None, Some(token)) => self.verify(policy, token, unix_us()),
            (None, None) => Ok(Found::NO_KEY),
        }
    }

    /// The same without a verification; `None`: it is a token that has to be
    /// [verified](Self::verify).
    pub fn known(
        &self,
        policy: &Policy,
        credential: Option<&Credential<'_>>,
        unix_us: impl FnOnce() -> u64,
    ) -> Option<Found> {
        match credential {
            Some(Credential { digest, source, kind: CredentialKind::Token(_) })
                if policy.keys.with_digest(digest).is_none() =>
            {
                let kept = self.kept(digest, unix_us());
                kept.map(|verified| found(verified, digest, *source))
            }
            credential => Some(policy.keys.look_up(credential, unix_us)),
        }
    }

    /// Verifies the token of a request at `unix_us` (microseconds), which is not
    /// [known](Self::known).
    ///
    /// # Errors
    /// The keys of its issuer have never been fetched.
    pub fn verify(
        &self,
        policy: &Policy,
        token: &Credential<'_>,
        unix_us: u64,
    ) -> Result<Found, NoKeys> {
        let Credential { digest, source, kind: CredentialKind::Token(SecretText(text)) } = token
        else {
            return Ok(policy.keys.look_up(Some(token), || unix_us));
        };
        let verified = self.verified(policy, digest, text, unix_us)?;
        Ok(found(verified, digest, *source))
    }

    /// The result of an earlier verification of a token.
    fn kept(&self, digest: &Digest, unix_us: u64) -> Option<Result<Verified, TokenRefusal>> {
        let is_current = |entry: &Entry<_>| self.is_current(entry.issuer, entry.version);
        if let Some(entry) = self.verified.get(digest).filter(is_current) {
            return Some(match entry.value.refusal(unix_us) {
                None => Ok(entry.value),
                Some(why) => Err(why),
            });
        }
        let is_current = |entry: &Entry<_>| self.is_current(entry.issuer, entry.version);
        let entry = self.refused.get(digest).filter(is_current)?;
        self.note_new_key(entry.issuer, entry.value);
        Some(Err(entry.value.why))
    }

    /// Verifies a token, and keeps the result.
    ///
    /// # Errors
    /// The keys of its issuer have never been fetched.
    fn verified(
        &self,
        policy: &Policy,
        digest: &Digest,
        token: &[u8],
        unix_us: u64,
    ) -> Result<Result<Verified, TokenRefusal>, NoKeys> {
        let clients = &policy.clients;
        let refused = |issuer, version, value: Refused| {
            self.note_new_key(issuer, value);
            self.refused.insert(*digest, Entry { issuer, version, value });
            Ok(Err(value.why))
        };
        let compact = match Compact::parse(token) {
            Ok(compact) => compact,
            Err(why) => return refused(None, 0, Refused { why, may_have_new_key: false }),
        };
        let issuer = match issuer_of(&clients.issuers, &compact) {
            Ok(issuer) => issuer,
            Err(why) => return refused(None, 0, Refused { why, may_have_new_key: false }),
        };
        let (Some(settings), Some(keys)) = (clients.issuers.get(issuer), self.issuers.get(issuer))
        else {
            return Err(NoKeys);
        };
        let Some(current) = keys.current() else {
            keys.request();
            return Err(NoKeys);
        };
        let Current { keys, version } = &*current;
        let known = Known { counted: &clients.counted_claims, tenants: &policy.tenants };
        match verify(settings, keys, &compact, known) {
            Err(why) => {
                let may_have_new_key = may_have_new_key(settings, keys, &compact, why);
                refused(Some(issuer), *version, Refused { why, may_have_new_key })
            }
            Ok(verified) => {
                let (issuer, version) = (Some(issuer), *version);
                let entry = Entry { issuer, version, value: verified.clone() };
                self.verified.insert(*digest, entry);
                Ok(verified.refusal(unix_us).map_or(Ok(verified), Err))
            }
        }
    }

    /// Whether the issuer's keys are still those of this version, so that a verification would have
    /// the same result. Without an issuer, keys make no difference.
    fn is_current(&self, issuer: Option<usize>, version: u64) -> bool {
        let Some(issuer) = issuer else { return true };
        let current = self.issuers.get(issuer).and_then(|keys| keys.current());
        current.is_some_and(|current| current.version == version)
    }

    /// Demands a fetch of the issuer's keys if the token may have a new one.
    fn note_new_key(&self, issuer: Option<usize>, refused: Refused) {
        if refused.may_have_new_key
            && let Some(keys) = issuer.and_then(|issuer| self.issuers.get(issuer))
        {
            keys.request();
        }
    }

    /// Fetches the keys of all issuers that have none, at the same time, or waits for fetches that
    /// have begun. Ends after [`FIRST_KEYS_TIMEOUT`]; what is not there by then is fetched later.
    pub async fn fetch_missing(&self) {
        let mut tasks = JoinSet::new();
        for keys in self.issuers.iter().filter(|keys| keys.current().is_none()) {
            let keys = Arc::clone(keys);
            tasks.spawn(async move {
                keys.fetch(clock::now()).await;
                keys.until_tried().await;
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FIRST_KEYS_TIMEOUT, all).await;
    }
}

/// The client of a token with this digest, from the source with this index.
fn found(verified: Result<Verified, TokenRefusal>, digest: &Digest, source: usize) -> Found {
    match verified {
        Ok(verified) => Found::verified(&verified, source),
        Err(why) => Found::refused(*digest, source, why),
    }
}

/// Whether a token that is refused may have a key that its issuer has added since `keys` were
/// fetched. Without a `kid`, of the token or of the keys, only the signature shows it.
fn may_have_new_key(
    issuer: &Issuer,
    keys: &KeySet,
    token: &Compact<'_>,
    why: TokenRefusal,
) -> bool {
    match why {
        TokenRefusal::UnknownKey => true,
        TokenRefusal::Signature | TokenRefusal::Algorithm => {
            issuer.algorithms.contains(&token.algorithm) && !keys.has(token.kid.as_deref())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
