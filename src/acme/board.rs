//! The challenges of the orders that are running, here and on other gateways, and how they reach
//! those who answer: the responder for HTTP-01, the handshakes for TLS-ALPN-01.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use tracing::error;

use super::challenges::{Challenges, PendingChallenge};
use crate::policy::acme::Challenge;
use crate::tls::store::CertificateStore;

/// Challenges to answer, of one ACME server.
pub(super) struct Board {
    kind: Challenge,
    responder: Arc<Challenges>,
    certificates: Arc<CertificateStore>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// Of this gateway's orders.
    own: Vec<PendingChallenge>,
    /// Of all gateways, as read from Redis.
    shared: Vec<PendingChallenge>,
    /// The certificates of TLS-ALPN-01 challenges that are in the store, by domain.
    presented: HashMap<String, String>,
}

/// A challenge that is answered until this is dropped.
pub(super) struct Answered {
    board: Arc<Board>,
    token: String,
}

impl Board {
    pub(super) fn new(
        kind: Challenge,
        responder: Arc<Challenges>,
        certificates: Arc<CertificateStore>,
    ) -> Self {
        Self { kind, responder, certificates, pending: Mutex::default() }
    }

    /// How challenges are answered.
    pub(super) fn kind(&self) -> Challenge {
        self.kind
    }

    /// Answers a challenge of this gateway's order.
    pub(super) fn answer(self: &Arc<Self>, challenge: PendingChallenge) -> Answered {
        let token = challenge.token.clone();
        let mut pending = self.pending.lock();
        pending.own.push(challenge);
        self.apply(&mut pending);
        Answered { board: Arc::clone(self), token }
    }

    /// Answers the challenges of other gateways, and no others.
    pub(super) fn set_shared(&self, challenges: Vec<PendingChallenge>) {
        let mut pending = self.pending.lock();
        if pending.shared != challenges {
            pending.shared = challenges;
            self.apply(&mut pending);
        }
    }

    /// The challenges of this gateway's orders.
    pub(super) fn own(&self) -> Vec<PendingChallenge> {
        self.pending.lock().own.clone()
    }

    fn apply(&self, pending: &mut Pending) {
        match self.kind {
            Challenge::Http01 => {
                self.responder.replace(pending.shared.iter().chain(&pending.own));
            }
            Challenge::TlsAlpn01 => self.present(pending),
        }
    }

    /// Puts the certificates of all challenges into the store, and removes those of others.
    fn present(&self, pending: &mut Pending) {
        let Pending { own, shared, presented } = pending;
        let wanted: HashMap<&str, &str> = shared
            .iter()
            .chain(own.iter())
            .map(|challenge| (&*challenge.domain, &*challenge.key_authorization))
            .collect();
        presented.retain(|domain, _| {
            let is_wanted = wanted.contains_key(&**domain);
            if !is_wanted {
                self.certificates.end_challenge(domain);
            }
            is_wanted
        });
        for (domain, authorization) in wanted {
            if presented.get(domain).is_some_and(|shown| shown == authorization) {
                continue;
            }
            match challenge_certificate(domain, authorization) {
                Ok(certificate) => {
                    self.certificates.begin_challenge(domain, certificate);
                    presented.insert(domain.to_owned(), authorization.to_owned());
                }
                Err(problem) => error!(domain, "no certificate for a challenge: {problem}"),
            }
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let mut pending = self.pending.lock();
        (pending.own, pending.shared) = (Vec::new(), Vec::new());
        self.apply(&mut pending);
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        let mut pending = self.board.pending.lock();
        pending.own.retain(|challenge| challenge.token != self.token);
        self.board.apply(&mut pending);
    }
}

/// The self-signed certificate of a TLS-ALPN-01 challenge (RFC 8737, section 3).
fn challenge_certificate(domain: &str, authorization: &str) -> Result<CertifiedKey, String> {
    let digest = Sha256::digest(authorization);
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let params = CertificateParams::new([domain.to_owned()]);
    let mut params = params.map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&digest)];
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = any_supported_type(&der).map_err(|error| error.to_string())?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}
