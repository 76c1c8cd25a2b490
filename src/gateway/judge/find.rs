//! Whose credential a request has.

use crate::base::unix_time;
use crate::client::credential::{Credential, CredentialKind, SecretText};
use crate::client::password::Passwords;
use crate::client::principal::{Found, KeyRefusal};
use crate::decide::decision::LimitCheck;
use crate::decide::{self, Head, Rejection};
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::tokens::NoKeys;

impl Gateway {
    /// Finds whose credential a request has: in the file, by the token or the password that it is,
    /// or else in the key store.
    ///
    /// # Errors
    /// It is a token that cannot be verified yet.
    pub(super) async fn find(
        &self,
        head: &Head<'_>,
        credential: Option<&Credential<'_>>,
        exchange: &Exchange,
    ) -> Result<Found, Rejection> {
        let (snapshot, now) = (&exchange.snapshot, exchange.started);
        let policy = &snapshot.policy;
        // Nothing is verified, and no key is looked up in the store, for a client that is refused
        // by its address anyway.
        let asks_more_than_the_file = self.keys.is_some() || !policy.clients.issuers.is_empty();
        if asks_more_than_the_file && decide::is_denied_everywhere(policy, head) {
            return Ok(policy.keys.look_up(credential, || unix_time::of(now)));
        }
        if let Some(passwords) = &policy.passwords
            && let Some(Credential { source, kind: CredentialKind::Password(login), .. }) =
                credential
        {
            let verification = self.verify(head, exchange, passwords, login, *source);
            return Ok(Box::pin(verification).await);
        }
        let found = snapshot.tokens.look_up(policy, credential, || unix_time::of(now));
        let found = found.map_err(|NoKeys| Rejection::NoTokenKeys)?;
        Ok(match (&self.keys, found.unknown_key()) {
            (Some(keys), Some(unknown)) => {
                keys.find(policy, snapshot.generation, unknown, now).await
            }
            _ => found,
        })
    }

    /// Finds whose login a request has, from the source with this index.
    async fn verify(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        passwords: &Passwords,
        login: &SecretText<'_>,
        source: usize,
    ) -> Found {
        let checks = &self.passwords;
        let unchecked = Found::unusable(source, KeyRefusal::Unchecked);
        let Some(check) = checks.begin(passwords, &login.0) else { return unchecked };
        if let Some(found) = checks.kept(&check, source) {
            return found;
        }
        if !self.is_worth_a_check(head, exchange, &unchecked).await {
            return unchecked;
        }
        checks.verify(&check, source).await
    }

    /// Whether a credential that takes time to check is checked: not for a request that is refused
    /// anyway, or whose address has no tokens left for another guess. Takes no tokens: the request
    /// is charged once its client is known, so the checks that run at the same time are the most
    /// by which an address can exceed its limit. `unchecked` is the result without a check.
    async fn is_worth_a_check(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        unchecked: &Found,
    ) -> bool {
        let snapshot = &exchange.snapshot;
        let precheck = decide::precheck(&snapshot.policy, head, Ok(unchecked.clone()));
        if !precheck.depends_on_key() {
            return false;
        }
        if precheck.charges.is_empty() {
            return true;
        }
        let rules = &snapshot.stored_rules;
        let taken = self.limiter.peek(&precheck.charges, rules, exchange.started).await;
        LimitCheck::of(taken).allowed()
    }
}
