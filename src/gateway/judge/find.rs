//! Whose credential a request has, and whether a server that is asked about it lets it go on.

use std::sync::Arc;

use super::guesses::NotFound;
use crate::auth::forward::{Asked, ForwardAuthChecks, Outcome};
use crate::auth::introspection::Introspected;
use crate::base::hash::Digest;
use crate::base::request_id::RequestId;
use crate::base::unix_time;
use crate::client::auth_answer::AuthAnswer;
use crate::client::credential::{Credential, CredentialKind, SecretText};
use crate::client::password::Passwords;
use crate::client::principal::{Found, KeyRefusal};
use crate::decide::decision::LimitCheck;
use crate::decide::{self, Head, Precheck, Rejection};
use crate::gateway::Gateway;
use crate::gateway::attempts::forward::{FORWARDED_PROTO, REQUEST_ID};
use crate::gateway::exchange::Exchange;
use crate::limit::charge::Charges;
use crate::policy::forward_auth::{ForwardAuth, OnAuthFailure};
use crate::policy::introspection::OnStoreFailure;
use crate::tokens::NoKeys;

impl Gateway {
    /// Finds whose credential a request has, unless a server that is asked about it says who the
    /// client is.
    ///
    /// # Errors
    /// See [`NotFound`].
    pub(super) async fn find(
        &self,
        head: &Head<'_>,
        credential: Option<&Credential<'_>>,
        exchange: &Exchange,
    ) -> Result<Found, NotFound> {
        if exchange.snapshot.forward_auth.is_empty() {
            return self.find_by_credential(head, credential, exchange).await;
        }
        Box::pin(self.authorize(head, credential, exchange)).await
    }

    /// Finds whose credential a request has: in the file, by the token or the password that it is,
    /// in the key store, or else by its issuer.
    ///
    /// # Errors
    /// It is a token that cannot be verified yet, or its address has no tokens left for a look-up.
    async fn find_by_credential(
        &self,
        head: &Head<'_>,
        credential: Option<&Credential<'_>>,
        exchange: &Exchange,
    ) -> Result<Found, NotFound> {
        let (snapshot, now) = (&exchange.snapshot, exchange.started);
        let policy = &snapshot.policy;
        // Nothing is verified, and no key is looked up in the store, for a client that is refused
        // by its address anyway.
        let asks_more_than_the_file =
            self.keys.is_some() || !policy.clients.issuers.is_empty() || policy.clients.introspects;
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
        let known = snapshot.tokens.known(policy, credential, || unix_time::of(now));
        let found = match (known, credential) {
            (Some(known), _) => known,
            (None, Some(token)) => self.verify_token(head, exchange, token)?,
            (None, None) => Found::NO_KEY,
        };
        let found = match (&self.keys, found.unknown_key()) {
            (Some(keys), Some(unknown)) => {
                let (digest, source) = unknown;
                let mut cached = keys.kept(policy, &digest, now);
                if cached.is_none() {
                    self.bound_look_up(head, exchange, source)?;
                    cached = Box::pin(keys.fetch(digest)).await;
                }
                keys.found(policy, snapshot.generation, unknown, cached, now)
            }
            _ => found,
        };
        if let Some(Credential { digest, source, kind: CredentialKind::Opaque(token) }) = credential
            && found.unknown_key().is_some()
        {
            return Ok(Box::pin(self.introspect(head, exchange, digest, token, *source)).await);
        }
        Ok(found)
    }

    /// Verifies the token of a request.
    ///
    /// # Errors
    /// It cannot be verified yet, or its address has no tokens left.
    fn verify_token(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        token: &Credential<'_>,
    ) -> Result<Found, NotFound> {
        self.bound_look_up(head, exchange, token.source)?;
        let (snapshot, unix_us) = (&exchange.snapshot, unix_time::of(exchange.started));
        let verified = snapshot.tokens.verify(&snapshot.policy, token, unix_us);
        verified.map_err(|NoKeys| Rejection::NoTokenKeys.into())
    }

    /// Finds whose token a request has, from the source with this index, by its SHA-256.
    async fn introspect(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        digest: &Digest,
        token: &SecretText<'_>,
        source: usize,
    ) -> Found {
        let policy = &exchange.snapshot.policy;
        let unchecked = Found::unusable(source, KeyRefusal::Unchecked);
        let settings = policy.introspection.as_deref();
        let Some((settings, checks)) = settings.zip(exchange.snapshot.introspection.as_ref())
        else {
            return unchecked;
        };
        let series = &self.introspections;
        let known = match checks.kept(digest, series) {
            Some(known) => known,
            None if !self.is_worth_a_check(head, exchange, &unchecked).await => return unchecked,
            None => {
                let is_worth_it = self.is_worth_a_check(head, exchange, &unchecked);
                checks.ask(settings, policy, (digest, &token.0), is_worth_it, series).await
            }
        };
        match known {
            Introspected::Active(verified) => {
                match verified.refusal(unix_time::of(exchange.started)) {
                    None => Found::verified(&verified, source),
                    Some(why) => Found::refused(*digest, source, why),
                }
            }
            Introspected::Refused(why) => Found::refused(*digest, source, why),
            Introspected::Failed if settings.on_failure == OnStoreFailure::Anonymous => {
                Found::unverified(source, true)
            }
            Introspected::Failed | Introspected::NotAsked => unchecked,
        }
    }

    /// Finds the client of a request whose API keys cannot be used: as the server of its route
    /// says, if that names the client.
    ///
    /// # Errors
    /// `rejection`, on any other route.
    pub(super) async fn find_without_key(
        &self,
        head: &Head<'_>,
        rejection: Rejection,
        exchange: &Exchange,
    ) -> Result<Found, NotFound> {
        let policy = &exchange.snapshot.policy;
        if policy.forward_auth.is_empty() || !matches!(rejection, Rejection::Identity(_)) {
            return Err(rejection.into());
        }
        let precheck = decide::precheck(policy, head, Ok(Found::without_answer()));
        let settings = policy.forward_auth_of(precheck.route);
        if settings.is_none_or(|settings| settings.client.is_none()) {
            return Err(rejection.into());
        }
        self.authorize(head, None, exchange).await
    }

    /// Finds the client of a request, and asks the server of its route whether it goes on. It is
    /// not asked about requests that are refused anyway.
    ///
    /// # Errors
    /// As [`find_by_credential`](Self::find_by_credential).
    async fn authorize(
        &self,
        head: &Head<'_>,
        credential: Option<&Credential<'_>>,
        exchange: &Exchange,
    ) -> Result<Found, NotFound> {
        let snapshot = &exchange.snapshot;
        let policy = &snapshot.policy;
        let unanswered = Found::without_answer();
        // The address and the route of the request, and its charges if it is refused.
        let precheck = decide::precheck(policy, head, Ok(unanswered.clone()));
        let route = precheck.route.and_then(|route| policy.routes.get(route as usize));
        let Some(index) = route.and_then(|route| route.forward_auth) else {
            return self.find_by_credential(head, credential, exchange).await;
        };
        let settings = policy.forward_auth.get(index as usize);
        let Some((settings, checks)) = settings.zip(snapshot.forward_auth.get(index as usize))
        else {
            return Ok(unanswered);
        };
        if !precheck.depends_on_key() {
            return Ok(unanswered);
        }
        let (mut found, mut asked) = (Found::NO_KEY, precheck);
        if settings.client.is_none() {
            found = self.find_by_credential(head, credential, exchange).await?;
            // Its own limits, not those of strangers with its address.
            asked = decide::precheck(policy, head, Ok(found.clone()));
            if asked.refused().is_some() {
                return Ok(found);
            }
        }
        Ok(match self.ask(settings, checks, head, &asked, exchange).await {
            Outcome::Answered(answered) => match &*answered.answer {
                AuthAnswer::Refused(refusal) => {
                    Found::refused_by_server(refusal.status, &answered.answer)
                }
                AuthAnswer::Allowed(_) => {
                    let found = answered.client.as_ref().map_or(found, Found::named_by_server);
                    Found { auth: Some(Arc::clone(&answered.answer)), ..found }
                }
            },
            // A client must not be able to switch the question off.
            Outcome::Failed { is_of_server: true }
                if settings.on_failure == OnAuthFailure::Allow =>
            {
                found
            }
            Outcome::Failed { .. } => unanswered,
        })
    }

    /// Asks the server of a route about a request, unless the answer is known, or the client, as
    /// far as it is known, has no tokens left.
    async fn ask(
        &self,
        settings: &ForwardAuth,
        checks: &ForwardAuthChecks,
        head: &Head<'_>,
        precheck: &Precheck<'_>,
        exchange: &Exchange,
    ) -> Outcome {
        let identity = precheck.identity.as_ref().ok();
        let via_proxy = identity.is_some_and(|identity| identity.via_trusted_proxy);
        let given = |name: &str| head.headers.get(name).filter(|_| via_proxy);
        let request_id = given(REQUEST_ID).and_then(|id| RequestId::adopt(id.as_bytes()));
        let own_scheme = if exchange.connection.tls.is_some() { "https" } else { "http" };
        let asked = Asked {
            head,
            via_proxy,
            ip: identity.and_then(|identity| identity.client.ip),
            scheme: given(FORWARDED_PROTO).map_or(own_scheme.as_bytes(), |given| given.as_bytes()),
            request_id: request_id.as_ref().unwrap_or(&exchange.request_id).as_str().as_bytes(),
        };
        let digest = ForwardAuthChecks::digest(settings, &asked);
        let series = &self.checks_by_server;
        if let Some(outcome) = digest.as_ref().and_then(|digest| checks.kept(digest, series)) {
            return outcome;
        }
        if !self.has_tokens_left(exchange, &precheck.charges).await {
            return Outcome::Failed { is_of_server: false };
        }
        let policy = &exchange.snapshot.policy;
        let is_worth_it = self.has_tokens_left(exchange, &precheck.charges);
        checks.ask(settings, policy, &asked, digest.as_ref(), is_worth_it, series).await
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
        let address = decide::counted_address(&exchange.snapshot.policy, head);
        let Some(check) = checks.begin(passwords, &login.0, address) else { return unchecked };
        if let Some(found) = checks.kept(&check, source) {
            return found;
        }
        if !self.is_worth_a_check(head, exchange, &unchecked).await {
            return unchecked;
        }
        let is_worth_it = self.is_worth_a_check(head, exchange, &unchecked);
        checks.verify(&check, source, is_worth_it).await
    }

    /// Whether a credential that takes time to check is checked: not for a request that is refused
    /// anyway. `unchecked` is the result without a check.
    async fn is_worth_a_check(
        &self,
        head: &Head<'_>,
        exchange: &Exchange,
        unchecked: &Found,
    ) -> bool {
        let policy = &exchange.snapshot.policy;
        let precheck = decide::precheck(policy, head, Ok(unchecked.clone()));
        precheck.depends_on_key() && self.has_tokens_left(exchange, &precheck.charges).await
    }

    /// Whether an address has tokens left for another guess: these are the charges of one. Takes
    /// none: the request is charged once its client is known. It is asked before a check, and again
    /// when the turn of one has come that waited, so the checks that run at the same time are about
    /// the most by which an address can exceed its limit. Takes at most as long as a check, since a
    /// check of a credential waits for it.
    async fn has_tokens_left(&self, exchange: &Exchange, charges: &Charges) -> bool {
        if charges.is_empty() {
            return true;
        }
        let rules = &exchange.snapshot.stored_rules;
        let taken = self.limiter.peek_in_time(charges, rules, exchange.started).await;
        LimitCheck::of(taken).allowed()
    }
}
