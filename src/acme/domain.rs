//! One domain of `[acme]`: its certificate and its orders.

use std::sync::Arc;

use tokio::task::Id;

use super::plan::{Attempts, Lifetime, next_order};
use crate::tls::certificate::Certificate;

#[derive(Default)]
pub(super) struct Domain {
    /// The certificate of this table's directory and storage.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// The certificate of a table that is not in force any more: presented until there is another.
    pub(super) previous: Option<Arc<Certificate>>,
    /// Key and chain of `certificate`, while they could not be stored.
    pub(super) unsaved: Option<Vec<u8>>,
    pub(super) attempts: Attempts,
    /// Whether the stored records have been read. No certificate is ordered before.
    pub(super) is_loaded: bool,
    /// The order that runs.
    pub(super) order: Option<RunningOrder>,
    seed: u64,
}

/// The certificate of a domain of a table that is not in force any more.
pub(super) struct Kept {
    pub(super) certificate: Arc<Certificate>,
    /// Key and chain, if they could not be stored.
    pub(super) unsaved: Option<Vec<u8>>,
}

/// An order that runs.
pub(super) struct RunningOrder {
    pub(super) id: Id,
    pub(super) before: Attempts,
}

impl Domain {
    /// A domain whose records have not been read. `seed` differs from domain to domain, see
    /// [`next_order`]. `kept`: what the table before this one had, whose directory may be the same.
    /// If it could not store its certificate, this one stores it.
    pub(super) fn new(seed: u64, kept: Option<Kept>, is_same_directory: bool) -> Self {
        let Some(Kept { certificate, unsaved }) = kept else {
            return Self { seed, ..Self::default() };
        };
        if is_same_directory && unsaved.is_some() {
            Self { certificate: Some(certificate), unsaved, seed, ..Self::default() }
        } else {
            Self { previous: Some(certificate), seed, ..Self::default() }
        }
    }

    /// What a table that replaces this one begins with.
    pub(super) fn kept(self) -> Option<Kept> {
        let unsaved = self.unsaved;
        self.certificate.or(self.previous).map(|certificate| Kept { certificate, unsaved })
    }

    pub(super) fn presented(&self) -> Option<&Arc<Certificate>> {
        self.certificate.as_ref().or(self.previous.as_ref())
    }

    /// Unix time of the next order, in seconds; not in the past.
    pub(super) fn next_order(&self, now: u64) -> u64 {
        next_order(self.lifetime(), &self.attempts, self.seed, now).max(now)
    }

    /// Whether an order is due. `now` is the Unix time in seconds.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.is_loaded && self.order.is_none() && self.next_order(now) <= now
    }

    /// Takes an issued certificate. `now` is the Unix time in seconds. Returns whether it must be
    /// renewed already, which counts as a failure: the clock is wrong, or that of the server, and
    /// orders must not follow each other for it.
    pub(super) fn issued(&mut self, certificate: Arc<Certificate>, now: u64) -> bool {
        self.order = None;
        self.certificate = Some(certificate);
        self.previous = None;
        let is_over = next_order(self.lifetime(), &Attempts::default(), self.seed, now) <= now;
        self.attempts = if is_over {
            let error = "the issued certificate must be renewed already: is the clock right?";
            self.attempts.failed(now, None, error.to_owned())
        } else {
            Attempts::succeeded(now)
        };
        is_over
    }

    /// Takes the stored records. Returns whether the certificate is another one than before.
    pub(super) fn loaded(&mut self, attempts: Attempts, stored: Option<Arc<Certificate>>) -> bool {
        self.is_loaded = true;
        let is_older = |stored: &Certificate| {
            let current = self.certificate.as_ref();
            current.is_some_and(|current| stored.not_before() <= current.not_before())
        };
        if self.unsaved.is_some() && stored.as_deref().is_none_or(is_older) {
            return false;
        }
        self.unsaved = None;
        self.attempts = attempts;
        let Some(stored) = stored else { return false };
        let is_new = self.presented().is_none_or(|current| !current.is_same(&stored));
        self.certificate = Some(stored);
        self.previous = None;
        is_new
    }

    fn lifetime(&self) -> Option<Lifetime> {
        self.certificate.as_ref().map(|certificate| Lifetime {
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::order::usable;

    const NOW: u64 = 1_800_000_000;

    fn issued() -> (Arc<Certificate>, Vec<u8>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let pem = [key.serialize_pem(), certificate.pem()].concat().into_bytes();
        (Arc::new(usable("a.test", &pem, NOW).unwrap()), pem)
    }

    /// Of the same directory, no other one is ordered for it.
    #[test]
    fn certificate_that_is_stored_nowhere_is_that_of_the_next_table() {
        for (is_unsaved, is_same_directory) in [(true, true), (false, true), (true, false)] {
            let (certificate, pem) = issued();
            let kept = Kept { certificate, unsaved: is_unsaved.then_some(pem) };
            let mut domain = Domain::new(1, Some(kept), is_same_directory);
            assert!(domain.presented().is_some());
            domain.loaded(Attempts::default(), None);
            let is_kept = is_unsaved && is_same_directory;
            assert_eq!((domain.is_due(NOW), domain.unsaved.is_some()), (!is_kept, is_kept));
            assert!(domain.kept().is_some());
        }
    }
}
