//! Verifications of passwords: away from the threads that serve requests, few at a time, and each
//! result kept by a keyed digest.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::task::spawn_blocking;

use super::flights::{Flights, Kept, Timed};
use crate::base::clock;
use crate::base::hash::Digest;
use crate::client::password::{Candidate, Passwords};
use crate::client::principal::{Found, KeyRefusal};
use crate::observe::metrics::CheckSeries;

/// Maximum number of results that are kept.
const MAX_KEPT: usize = 16_384;

/// Maximum number of their bytes: that of all of them.
const MAX_KEPT_BYTES: u64 = 2 << 20;

/// How long a wrong password is not verified again, in microseconds.
const WRONG_KEPT_US: u64 = 60_000_000;

/// How long a request waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// Verifies passwords. Reloads keep it: a digest is also one of the user's hash.
///
/// It is one of the client's address, too: else an address without tokens could find out, at any
/// rate, which password another one has logged in with.
pub struct PasswordChecks {
    /// Of this process, so that nothing in memory can be compared with lists of passwords.
    key: hmac::Key,
    /// Whether a password is right; `None`: it was not verified.
    flights: Flights<Option<bool>>,
    series: CheckSeries,
}

/// A login, and what it is verified with.
pub struct PasswordCheck<'a> {
    candidate: Candidate<'a>,
    digest: Digest,
    kept_us: u64,
}

impl PasswordChecks {
    /// Verifies passwords on half of the cores at most.
    pub fn new(series: CheckSeries) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        // Without randomness, there is no TLS either; the digests are still kept in memory only.
        let key = key.unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, b"tollgate"));
        let kept = Kept { most: MAX_KEPT, most_bytes: MAX_KEPT_BYTES, bytes: |_| 0 };
        Self { key, flights: Flights::new(&kept, (cores / 2).max(1), PATIENCE), series }
    }

    /// What a login, a user and a password with a colon between, is verified with. `address` is
    /// that of the client, as limits count it.
    pub fn begin<'a>(
        &self,
        passwords: &'a Passwords,
        login: &'a [u8],
        address: Option<IpAddr>,
    ) -> Option<PasswordCheck<'a>> {
        let colon = login.iter().position(|byte| *byte == b':').unwrap_or(login.len());
        let any = self.sign(&[login.get(..colon).unwrap_or_default()]);
        let any = any.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        let candidate = passwords.candidate(login, any)?;
        let address = address.map(|address| address.to_string()).unwrap_or_default();
        let digest = self.sign(&[candidate.hash.as_bytes(), login, address.as_bytes()]);
        Some(PasswordCheck { candidate, digest, kept_us: passwords.kept_us })
    }

    /// The result for a login from the source with this index, if it is known without a
    /// verification.
    pub fn kept(&self, check: &PasswordCheck<'_>, source: usize) -> Option<Found> {
        let is_right = self.flights.kept(&check.digest)??;
        self.series.cached.inc();
        Some(check.found(is_right, source))
    }

    /// Verifies a login from the source with this index. `is_worth_it` says, when its turn has come
    /// after others, whether it is still to be verified.
    pub async fn verify(
        &self,
        check: &PasswordCheck<'_>,
        source: usize,
        is_worth_it: impl Future<Output = bool> + Send,
    ) -> Found {
        let Candidate { hash, password, .. } = &check.candidate;
        let (hash, password) = ((*hash).clone(), password.to_vec());
        self.verify_by(check, source, is_worth_it, move || hash.verify(&password)).await
    }

    /// The same. `verify` says whether the password is right, and takes long.
    async fn verify_by(
        &self,
        check: &PasswordCheck<'_>,
        source: usize,
        is_worth_it: impl Future<Output = bool> + Send,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Found {
        let verified = self.flights.join(&check.digest, |turn| async move {
            if turn.has_waited && !is_worth_it.await {
                return Timed { value: None, until: 0 };
            }
            let verification = spawn_blocking(move || {
                // Also if the request is gone: its turn ends with the work.
                let _turn = turn;
                let began = clock::now();
                let is_right = verify();
                (is_right, clock::now().saturating_sub(began))
            });
            let Ok((is_right, took_us)) = verification.await else {
                // It has panicked: the password may be right.
                return Timed { value: None, until: 0 };
            };
            self.series.observe(took_us);
            let is_user = check.candidate.principal.is_some();
            let kept_us = if is_right && is_user { check.kept_us } else { WRONG_KEPT_US };
            Timed { value: Some(is_right), until: clock::now().saturating_add(kept_us) }
        });
        let Ok(Some(is_right)) = verified.await else {
            self.series.failed.inc();
            return Found::unusable(source, KeyRefusal::Unchecked);
        };
        let found = check.found(is_right, source);
        let is_allowed = found.refusal.is_none();
        if is_allowed { &self.series.allowed } else { &self.series.refused }.inc();
        found
    }

    /// HMAC of texts, each preceded by its length.
    fn sign(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        for (byte, signed) in digest.iter_mut().zip(context.sign().as_ref()) {
            *byte = *signed;
        }
        digest
    }
}

impl PasswordCheck<'_> {
    /// Whose login it is. The hash of an unknown user is that of another one, whose password is
    /// wrong here.
    fn found(&self, is_right: bool, source: usize) -> Found {
        match self.candidate.principal {
            Some(principal) if is_right => Found::of(principal, source),
            _ => Found::unusable(source, KeyRefusal::Password),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;

    use super::*;
    use crate::client::password::{PasswordHash, User};
    use crate::client::principal::Principal;
    use crate::observe::metrics::Metrics;

    #[tokio::test]
    async fn result_of_a_verification_that_panics_is_neither_kept_nor_a_wrong_password() {
        let name: Arc<str> = Arc::from("ann");
        let hash = "$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm";
        let principal = Arc::new(Principal::new(Arc::clone(&name), 0, true));
        let user = User { principal, hash: PasswordHash::parse(hash).unwrap() };
        let challenge = HeaderValue::from_static("Basic");
        let passwords =
            Passwords::new([(name, user)].into(), challenge, true, u64::MAX / 2).unwrap();
        let checks = PasswordChecks::new(Metrics::new("test").unwrap().auth.basic());
        let check = checks.begin(&passwords, b"ann:secret", None).unwrap();
        let is_worth_it = || std::future::ready(true);
        let panics = || panic!("a verification that fails");
        let found = checks.verify_by(&check, 0, is_worth_it(), panics).await;
        assert_eq!(found.refusal, Some(KeyRefusal::Unchecked));
        assert!(checks.kept(&check, 0).is_none());
        assert_eq!((checks.series.failed.get(), checks.series.refused.get()), (1, 0));
        let found = checks.verify_by(&check, 0, is_worth_it(), || true).await;
        assert_eq!(found.refusal, None);
        assert!(checks.kept(&check, 0).is_some());
    }
}
