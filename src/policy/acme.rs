//! `[acme]`, resolved: automatic certificates.

use std::path::PathBuf;

use super::redis::Secret;
pub use crate::config::words::Challenge;

/// Certificates that the gateway requests from an authority by ACME (RFC 8555), and renews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acme {
    /// URL of the authority's directory, with `https://`.
    pub directory: String,
    /// Where the authority sends notices; `None`: nowhere.
    pub email: Option<String>,
    /// Names of the certificates in lower case, at least one, each once; no wildcards.
    pub domains: Vec<String>,
    /// Where account and certificates are kept.
    pub storage: AcmeStorage,
    /// How the gateway proves that it serves a domain.
    pub challenge: Challenge,
    /// PEM file: the authorities of the directory's own certificate; `None`: public authorities.
    pub ca: Option<PathBuf>,
    /// External account binding; `None`: the authority needs none.
    pub eab: Option<Eab>,
}

/// Where account and certificates are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcmeStorage {
    /// A folder of this machine.
    Folder(PathBuf),
    /// Redis, for all gateways that share it.
    Redis {
        /// What private keys are encrypted with: visible ASCII characters.
        key: Secret,
    },
}

/// External account binding: an account that the authority knows from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eab {
    /// Identifier of the account at the authority.
    pub key_id: String,
    /// The MAC key of the account, decoded.
    pub hmac_key: EabKey,
}

/// A MAC key that `Debug` never shows.
#[derive(Clone, PartialEq, Eq)]
pub struct EabKey(Vec<u8>);

impl EabKey {
    /// Wraps the bytes of a key.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, for signatures only.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for EabKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("***")
    }
}
