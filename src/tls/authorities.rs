//! The authorities of client certificates.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use sha2::{Digest as _, Sha256};

use super::certificate::{self, CertificateError, Part};

/// The certificates of a `client_ca` file.
#[derive(Debug, Clone)]
pub struct Authorities {
    pub(super) roots: Arc<RootCertStore>,
    /// SHA-256 of the file.
    pub(super) digest: [u8; 32],
}

impl Authorities {
    /// Reads the file. Blocks as long as the file system does.
    ///
    /// # Errors
    /// The file cannot be read, or contains no certificate or an invalid one.
    pub fn load(path: &Path) -> Result<Self, CertificateError> {
        let pem = certificate::read(Part::Cert, path)?;
        let mut roots = RootCertStore::empty();
        for (index, der) in certificate::chain(Part::Cert, path, &pem)?.into_iter().enumerate() {
            let position = index + 1;
            roots
                .add(der)
                .map_err(|_| CertificateError::Unparsable { path: path.to_owned(), position })?;
        }
        Ok(Self { roots: Arc::new(roots), digest: Sha256::digest(&pem).into() })
    }
}
