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
use crate::client::credential::{Credential, TokenText};
use crate::client::jwt::TokenRefusal;
use crate::client::jwt::compact::Compact;
use crate::client::jwt::verify::{Known, Verified, issuer_of, verify};
use crate::client::principal::Found;
use crate::client::settings::Clients;
use crate::policy::Policy;
use cache::{Cache, Entry};
use keys::{Current, IssuerKeys};

/// Longest time that the start and a reload wait for the keys of issuers.
const FIRST_KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of verified tokens that are kept. With their claims they have about 1 KiB each.
const MAX_VERIFIED: usize = 16_384;

/// Maximum number of refused tokens that are kept, with about 100 bytes each.
const MAX_REFUSED: usize = 16_384;

/// The keys of all issuers of a policy, and its verified tokens.
pub struct Tokens {
    /// In the order of [`Clients::issuers`].
    issuers: Vec<Arc<IssuerKeys>>,
    verified: Cache<Verified>,
    refused: Cache<TokenRefusal>,
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
            let same = known.into_iter().find(|keys| keys.is_of(issuer));
            same.map_or_else(|| Arc::new(IssuerKeys::new(issuer)), Arc::clone)
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
        unix_us: impl FnOnce() -> u64,
    ) -> Result<Found, NoKeys> {
        match credential {
            Some(Credential { digest, source, token: Some(TokenText(token)) })
                if policy.keys.with_digest(digest).is_none() =>
            {
                Ok(match self.verified(policy, digest, token, unix_us())? {
                    Ok(verified) => Found::verified(&verified, *source),
                    Err(why) => Found::refused(*digest, *source, why),
                })
            }
            credential => Ok(policy.keys.look_up(credential, unix_us)),
        }
    }

    /// The result of the verification of a token.
    ///
    /// # Errors
    /// The keys of its issuer have never been fetched.
    fn verified(
        &self,
        policy: &Policy,
        digest: &[u8; 32],
        token: &[u8],
        unix_us: u64,
    ) -> Result<Result<Verified, TokenRefusal>, NoKeys> {
        let clients = &policy.clients;
        let is_current = |entry: &Entry<_>| self.is_current(entry.issuer, entry.version);
        if let Some(entry) = self.verified.get(digest).filter(is_current) {
            return Ok(match entry.value.refusal(unix_us) {
                None => Ok(entry.value),
                Some(why) => Err(why),
            });
        }
        let is_current = |entry: &Entry<_>| self.is_current(entry.issuer, entry.version);
        if let Some(entry) = self.refused.get(digest).filter(is_current) {
            self.note_unknown_key(entry.issuer, entry.value);
            return Ok(Err(entry.value));
        }
        let refused = |issuer, version, value| {
            self.refused.insert(*digest, Entry { issuer, version, value });
            Ok(Err(value))
        };
        let compact = match Compact::parse(token) {
            Ok(compact) => compact,
            Err(why) => return refused(None, 0, why),
        };
        let issuer = match issuer_of(&clients.issuers, &compact) {
            Ok(issuer) => issuer,
            Err(why) => return refused(None, 0, why),
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
                self.note_unknown_key(Some(issuer), why);
                refused(Some(issuer), *version, why)
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

    /// A token has a key that its issuer may have added since its keys were fetched.
    fn note_unknown_key(&self, issuer: Option<usize>, why: TokenRefusal) {
        if why == TokenRefusal::UnknownKey
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

#[cfg(test)]
mod tests;
