//! Which certificate a server name gets: an exact name, then a wildcard for one label, then the
//! default.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rustls::SignatureScheme;
use rustls::sign::CertifiedKey;
use smallvec::SmallVec;

use super::certificate::Certificate;

/// The certificates of one listener, by name.
#[derive(Debug, Default)]
pub(super) struct Table {
    exact: Names,
    /// By the name without `*.`.
    wildcards: Names,
    /// The certificates with the names of the first one.
    fallback: Keys,
}

type Names = HashMap<Box<str>, Keys, RandomState>;

/// Certificates with the same name, such as one with an ECDSA key and one with an RSA key for older
/// clients, in the order of the configuration.
type Keys = SmallVec<[Arc<CertifiedKey>; 1]>;

impl Table {
    /// The table of these certificates, in the order of their precedence.
    pub(super) fn of<'a>(certificates: impl IntoIterator<Item = &'a Arc<Certificate>>) -> Self {
        let mut table = Self::default();
        let mut first: Option<&Arc<Certificate>> = None;
        for certificate in certificates {
            let first = *first.get_or_insert(certificate);
            if first.dns_names() == certificate.dns_names() {
                add(&mut table.fallback, certificate);
            }
            for name in certificate.dns_names() {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut table.wildcards, parent),
                    None => (&mut table.exact, name.as_str()),
                };
                add(names.entry(name.into()).or_default(), certificate);
            }
        }
        table
    }

    /// The certificate for exactly this name, in lower case, that the client can verify.
    pub(super) fn exact(
        &self,
        name: &str,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        select(self.exact.get(name)?, schemes)
    }

    /// The certificate whose wildcard matches this name, in lower case.
    pub(super) fn wildcard(
        &self,
        name: &str,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let (_, parent) = name.split_once('.')?;
        select(self.wildcards.get(parent)?, schemes)
    }

    /// The certificate for clients without a matching name.
    pub(super) fn fallback(&self, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        select(&self.fallback, schemes)
    }
}

/// Adds a certificate, unless an earlier one has the same type of key.
fn add(keys: &mut Keys, certificate: &Arc<Certificate>) {
    let key = certificate.key();
    if keys.iter().all(|other| other.key.algorithm() != key.key.algorithm()) {
        keys.push(Arc::clone(key));
    }
}

/// The first key that can sign as the client accepts; else the first, so that the client receives
/// the error that fits its offer.
fn select(keys: &Keys, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
    let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
    let only = keys.len() <= 1;
    keys.iter().find(|key| only || fits(key)).or(keys.first()).cloned()
}
