//! The keys of an issuer: a JSON Web Key Set (RFC 7517, section 5), a public key in PEM, a secret.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use serde_json::{Map, Value};
use thiserror::Error;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, Encode as _};

use super::TokenRefusal;
use super::key::Key;
use crate::config::words::{JwtAlgorithm, Word as _};

/// Maximum number of keys of a set; further ones are ignored.
const MAX_KEYS: usize = 100;

/// Maximum number of keys that one token is verified with.
const MAX_TRIED: usize = 8;

/// Keys that signatures of one issuer are verified with, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<NamedKey>,
}

/// A key, and which tokens it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedKey {
    /// Its name; `None`: tokens do not refer to it by one.
    kid: Option<String>,
    /// Its only algorithm; `None`: all that fit.
    algorithm: Option<JwtAlgorithm>,
    key: Key,
}

/// Why a text is not a set of keys. Never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeySetError {
    #[error("it is not a JSON Web Key Set")]
    NotASet,
    #[error("it has no key for the signatures of a supported algorithm")]
    NoKey,
    #[error("it is not a public key in PEM")]
    NotAKey,
}

impl KeySet {
    /// The keys of a JSON Web Key Set. Those that are not for signatures, or of no supported
    /// algorithm, are left out.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn of_jwks(json: &[u8]) -> Result<Self, KeySetError> {
        let set: Map<String, Value> =
            serde_json::from_slice(json).map_err(|_| KeySetError::NotASet)?;
        let list = set.get("keys").and_then(Value::as_array).ok_or(KeySetError::NotASet)?;
        let jwks = list.iter().filter_map(Value::as_object);
        Self::some(jwks.filter_map(NamedKey::of_jwk).take(MAX_KEYS).collect())
    }

    /// A public key in PEM, or that of a certificate.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn of_pem(pem: &[u8]) -> Result<Self, KeySetError> {
        let key = if let Ok(der) = SubjectPublicKeyInfoDer::from_pem_slice(pem) {
            Key::of_spki(&der)
        } else {
            let der = CertificateDer::from_pem_slice(pem).map_err(|_| KeySetError::NotAKey)?;
            let certificate = Certificate::from_der(&der).map_err(|_| KeySetError::NotAKey)?;
            let info = certificate.tbs_certificate().subject_public_key_info().to_der();
            Key::of_spki(&info.map_err(|_| KeySetError::NotAKey)?)
        };
        let key = key.ok_or(KeySetError::NoKey)?;
        Ok(Self { keys: vec![NamedKey { kid: None, algorithm: None, key }] })
    }

    /// The secret of HMACs.
    pub fn of_secret(secret: &[u8]) -> Self {
        let key = Key::Secret(secret.to_vec());
        Self { keys: vec![NamedKey { kid: None, algorithm: None, key }] }
    }

    fn some(keys: Vec<NamedKey>) -> Result<Self, KeySetError> {
        if keys.is_empty() { Err(KeySetError::NoKey) } else { Ok(Self { keys }) }
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key has this `kid`. A token without one names none.
    pub fn has(&self, kid: Option<&str>) -> bool {
        self.keys.iter().any(|key| key.is_named(kid))
    }

    /// Verifies a signature with the keys that have its `kid`, then with those without a name.
    ///
    /// # Errors
    /// [`TokenRefusal::UnknownKey`], [`TokenRefusal::Algorithm`] and [`TokenRefusal::Signature`].
    pub fn verify(
        &self,
        algorithm: JwtAlgorithm,
        kid: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenRefusal> {
        let is_named = |key: &&NamedKey| key.is_named(kid);
        let is_possible = |key: &&NamedKey| key.kid.is_none() || kid.is_none();
        let named = self.keys.iter().filter(is_named);
        let mut named = named.chain(self.keys.iter().filter(is_possible)).peekable();
        if named.peek().is_none() {
            return Err(TokenRefusal::UnknownKey);
        }
        let fits = |key: &&NamedKey| {
            key.key.fits(algorithm) && key.algorithm.is_none_or(|only| only == algorithm)
        };
        let mut fitting = named.filter(fits).take(MAX_TRIED).peekable();
        if fitting.peek().is_none() {
            return Err(TokenRefusal::Algorithm);
        }
        let is_verified = fitting.any(|key| key.key.verifies(algorithm, signed, signature));
        if is_verified { Ok(()) } else { Err(TokenRefusal::Signature) }
    }
}

impl NamedKey {
    fn is_named(&self, kid: Option<&str>) -> bool {
        self.kid.is_some() && self.kid.as_deref() == kid
    }

    /// `None` if the key is not for signatures of a supported algorithm.
    fn of_jwk(jwk: &Map<String, Value>) -> Option<Self> {
        let is_for_signatures = jwk.get("use").is_none_or(|usage| usage == "sig")
            && jwk.get("key_ops").is_none_or(|operations| {
                operations.as_array().is_some_and(|list| list.iter().any(|one| one == "verify"))
            });
        if !is_for_signatures {
            return None;
        }
        let algorithm = match jwk.get("alg") {
            None => None,
            Some(word) => Some(JwtAlgorithm::of_word(word.as_str()?)?),
        };
        let kid = jwk.get("kid").and_then(Value::as_str).map(str::to_owned);
        Some(Self { kid, algorithm, key: Key::of_jwk(jwk)? })
    }
}
