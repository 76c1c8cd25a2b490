//! The certificates that the gateway obtains itself: those of `[acme]`, and those that answer
//! challenges.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::table::Table;

/// ALPN name of the challenges by certificate (RFC 8737).
pub const ACME_ALPN: &[u8] = b"acme-tls/1";

/// The certificates of `[acme]`. Listeners that use them see a change in the next handshake.
#[derive(Debug)]
pub struct CertificateStore {
    acme: ArcSwap<Acme>,
    /// Certificates that answer challenges, by name in lower case.
    challenges: ArcSwap<HashMap<Box<str>, Arc<CertifiedKey>>>,
}

#[derive(Debug, Default)]
pub(super) struct Acme {
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) table: Table,
}

/// Presents the certificates that answer challenges.
#[derive(Debug)]
pub(super) struct ChallengeResolver(pub(super) Arc<CertificateStore>);

impl Default for CertificateStore {
    fn default() -> Self {
        Self { acme: ArcSwap::from_pointee(Acme::default()), challenges: ArcSwap::default() }
    }
}

impl CertificateStore {
    /// Replaces all certificates of `[acme]`. The first is used for clients without a matching
    /// server name, on listeners without certificate files.
    pub fn set_acme(&self, certificates: Vec<Arc<Certificate>>) {
        let table = Table::of(&certificates);
        self.acme.store(Arc::new(Acme { certificates, table }));
    }

    /// The certificates of `[acme]`.
    pub fn acme(&self) -> Vec<Arc<Certificate>> {
        self.acme.load().certificates.clone()
    }

    /// Answers challenges for this name with this certificate, until
    /// [`end_challenge`](Self::end_challenge). It is presented only to clients that offer nothing
    /// but `acme-tls/1`.
    pub fn begin_challenge(&self, name: &str, certificate: CertifiedKey) {
        let (name, certificate) = (name.to_ascii_lowercase(), Arc::new(certificate));
        self.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            challenges.insert(name.as_str().into(), Arc::clone(&certificate));
            challenges
        });
    }

    /// Answers no more challenges for this name.
    pub fn end_challenge(&self, name: &str) {
        let name = name.to_ascii_lowercase();
        self.challenges.rcu(|challenges| {
            let mut challenges = HashMap::clone(challenges);
            challenges.remove(name.as_str());
            challenges
        });
    }

    pub(super) fn in_force(&self) -> arc_swap::Guard<Arc<Acme>> {
        self.acme.load()
    }
}

impl ResolvesServerCert for ChallengeResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key_for(&hello)
    }
}

impl ChallengeResolver {
    pub(super) fn key_for(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.challenges.load().get(hello.server_name()?).cloned()
    }
}

/// Whether the client validates a challenge: it offers `acme-tls/1` and nothing else.
pub(super) fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello
        .alpn()
        .is_some_and(|mut offered| offered.next() == Some(ACME_ALPN) && offered.next().is_none())
}
