//! One order: from the request for a certificate to the certificate.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, HttpClient, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::{sleep, timeout};

use super::account::{Accounts, Credentials};
use super::board::{Answered, Board};
use super::challenges::PendingChallenge;
use super::error::{AcmeError, is_rate_limited, problem_text};
use super::storage::Storage;
use super::transport::{RetryAfter, Transport};
use crate::base::clock;
use crate::net::tls::ClientTls;
use crate::policy::acme::{Acme, Challenge};
use crate::tls::certificate::Certificate;

/// Time limit of an order. Public servers need seconds, some need a minute or two.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the gateway asks for the state of an order that the server works on.
pub(super) const POLL_TIMEOUT: Duration = Duration::from_secs(120);

const POLL: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(POLL_TIMEOUT);

/// Wait between the publication of a challenge and the request to check it: every other gateway
/// reads the challenges within this time.
const PROPAGATION: Duration = Duration::from_millis(2_500);

/// How often an order is begun if the server refuses its nonces. The library repeats each request
/// twice, which a server that has lost its nonces, or one of several servers without the others'
/// nonces, may refuse, too.
const MAX_ATTEMPTS: u32 = 3;

/// What orders need.
pub(super) struct Orders {
    pub(super) settings: Acme,
    pub(super) storage: Storage,
    pub(super) accounts: Accounts,
    pub(super) board: Arc<Board>,
}

/// An issued certificate.
pub(super) struct Issued {
    /// Private key and chain, as they are stored.
    pub(super) pem: Vec<u8>,
    pub(super) certificate: Arc<Certificate>,
}

pub(super) struct Failed {
    pub(super) error: AcmeError,
    /// The seconds that the server asks to wait.
    pub(super) retry_after: Option<u64>,
}

impl Orders {
    /// Orders a certificate for `domain`.
    ///
    /// # Errors
    /// See [`AcmeError`].
    pub(super) async fn issue(&self, domain: &str) -> Result<Issued, Failed> {
        let (_, mut retry_after) = self.transport();
        let issued = self.issue_with_nonces(domain, &mut retry_after);
        let issued = timeout(ORDER_TIMEOUT, issued).await;
        issued.unwrap_or(Err(AcmeError::TooSlow(ORDER_TIMEOUT.as_secs()))).map_err(|error| {
            let waits = matches!(error, AcmeError::Refused { .. } | AcmeError::Malformed(_));
            Failed { error, retry_after: retry_after.seconds().filter(|_| waits) }
        })
    }

    /// Orders, and begins again a few times if the server refuses nonces.
    async fn issue_with_nonces(
        &self,
        domain: &str,
        retry_after: &mut RetryAfter,
    ) -> Result<Issued, AcmeError> {
        for _ in 1..MAX_ATTEMPTS {
            match self.issue_with_account(domain, retry_after).await {
                Err(error) if error.is_bad_nonce() => {}
                result => return result,
            }
        }
        self.issue_with_account(domain, retry_after).await
    }

    /// Orders with the stored account, and with a new one if the server does not have it any more.
    async fn issue_with_account(
        &self,
        domain: &str,
        retry_after: &mut RetryAfter,
    ) -> Result<Issued, AcmeError> {
        let mut unknown: Option<Credentials> = None;
        loop {
            let (transport, waits) = self.transport();
            *retry_after = waits;
            let creating = || transport;
            let credentials = self
                .accounts
                .get(&self.settings, &self.storage, creating, unknown.as_ref())
                .await?;
            let (transport, waits) = self.transport();
            *retry_after = waits;
            match self.issue_as(&credentials, domain, Box::new(transport)).await {
                Err(error) if error.is_unknown_account() && unknown.is_none() => {
                    unknown = Some(credentials);
                }
                result => return result,
            }
        }
    }

    async fn issue_as(
        &self,
        credentials: &Credentials,
        domain: &str,
        transport: Box<dyn HttpClient>,
    ) -> Result<Issued, AcmeError> {
        let credentials: AccountCredentials = serde_json::from_slice(credentials)
            .map_err(|error| AcmeError::Local(error.to_string()))?;
        let account = Account::builder_with_http(transport);
        let account = account.from_credentials(credentials).await?;
        let identifiers = [Identifier::Dns(domain.to_owned())];
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        self.authorize(&mut order, domain).await?;
        let key = KeyPair::generate().map_err(|error| AcmeError::Local(error.to_string()))?;
        let csr = signing_request(domain, &key)?;
        order.finalize_csr(&csr).await?;
        let chain = order.poll_certificate(&POLL).await?;
        let pem = [key.serialize_pem(), chain].concat().into_bytes();
        let certificate = Arc::new(usable(domain, &pem, clock::unix_seconds())?);
        Ok(Issued { pem, certificate })
    }

    /// Proves that this gateway serves the domain, unless the server remembers it.
    async fn authorize(&self, order: &mut Order, domain: &str) -> Result<(), AcmeError> {
        let answered = self.answer_challenges(order, domain).await?;
        if answered.is_empty() && order.state().status != OrderStatus::Pending {
            return Ok(());
        }
        if let Storage::Redis(shared) = &self.storage {
            shared.publish(self.board.own()).await?;
            sleep(PROPAGATION).await;
        }
        let ready = match self.begin_checks(order).await {
            Ok(()) => order.poll_ready(&POLL).await,
            // The challenge may have failed before the server replied: read it anew.
            Err(error @ instant_acme::Error::Api(_)) if !is_rate_limited(&error) => {
                let _ = order.refresh().await;
                Err(error)
            }
            Err(error) => return Err(error.into()),
        };
        match ready {
            Ok(OrderStatus::Invalid) => Err(self.failure(order).await),
            Err(error) => {
                let failure = self.failure(order).await;
                let is_known = matches!(failure, AcmeError::ChallengeFailed(_));
                Err(if is_known { failure } else { error.into() })
            }
            Ok(_) => Ok(()),
        }
    }

    /// Asks the server to check the challenges of an order.
    async fn begin_checks(&self, order: &mut Order) -> Result<(), instant_acme::Error> {
        let kind = challenge_type(self.board.kind());
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Valid
                && let Some(mut challenge) = authorization.challenge(kind.clone())
            {
                challenge.set_ready().await?;
            }
        }
        Ok(())
    }

    /// Begins to answer the challenges of an order.
    async fn answer_challenges(
        &self,
        order: &mut Order,
        domain: &str,
    ) -> Result<Vec<Answered>, AcmeError> {
        let kind = challenge_type(self.board.kind());
        let mut answered = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let Some(challenge) = authorization.challenge(kind.clone()) else {
                return Err(AcmeError::NoChallenge(self.board.kind().name()));
            };
            answered.push(self.board.answer(PendingChallenge {
                domain: domain.to_owned(),
                token: challenge.token.clone(),
                key_authorization: challenge.key_authorization().as_str().to_owned(),
            }));
        }
        Ok(answered)
    }

    /// Why the server found an order invalid: the error of its challenge.
    async fn failure(&self, order: &mut Order) -> AcmeError {
        let mut authorizations = order.authorizations();
        // Read anew: the poll has replaced the state of the order.
        while let Some(Ok(authorization)) = authorizations.next().await {
            let mut challenges = authorization.challenges.iter();
            let problem = challenges.find_map(|challenge| challenge.error.as_ref());
            if let Some(problem) = problem {
                return AcmeError::ChallengeFailed(problem_text(problem));
            }
        }
        AcmeError::Refused { kind: None, text: "the order is invalid, without a reason".to_owned() }
    }

    fn transport(&self) -> (Transport, RetryAfter) {
        Transport::new(ClientTls { ca: self.settings.ca.clone(), certificate: None })
    }
}

fn challenge_type(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// The certificate signing request, in DER.
fn signing_request(domain: &str, key: &KeyPair) -> Result<Vec<u8>, AcmeError> {
    let local = |error: rcgen::Error| AcmeError::Local(error.to_string());
    let mut params = CertificateParams::new([domain.to_owned()]).map_err(local)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key).map_err(local)?.der().to_vec())
}

/// Reads a key and its certificate chain, which must be for `domain`. One that has expired is
/// usable: it is served until it is renewed.
///
/// # Errors
/// [`AcmeError::Certificate`].
pub(super) fn usable(domain: &str, pem: &[u8], now: u64) -> Result<Certificate, AcmeError> {
    let certificate = Certificate::from_pem(domain.as_ref(), pem, pem, now)
        .map_err(|error| AcmeError::Certificate(error.to_string()))?;
    if certificate.dns_names().iter().any(|name| name == domain) {
        Ok(certificate)
    } else {
        Err(AcmeError::Certificate(format!("it is for {}", certificate.name())))
    }
}

#[cfg(test)]
mod tests;
