//! A certificate with its private key, as files or as a result of ACME. It is checked when it is
//! loaded, so that a mistake is found before a client meets it.

mod error;
mod warning;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};

use super::staple::{Malformed, Response, Status, Verdict};
use super::x509::{self, Content};
use crate::policy::listener::CertificateFiles;
pub use error::{CertificateError, Part};
pub use warning::Warning;

/// Maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

const DAY_S: u64 = 24 * 60 * 60;

/// A certificate expires soon if it has less than this many seconds left: automatic renewals happen
/// earlier.
pub const SOON_S: u64 = 7 * DAY_S;

/// A certificate that a listener presents.
#[derive(Debug)]
pub struct Certificate {
    /// What it is called in logs and metrics: its first name.
    name: Arc<str>,
    content: Content,
    /// Chain, key and the OCSP response that is stapled.
    key: Arc<CertifiedKey>,
    /// The end of the stapled response's validity, Unix time in seconds; `None`: it has none, or
    /// nothing is stapled.
    staple_until: Option<u64>,
    /// Why its OCSP response is not stapled.
    unstapled: Option<Warning>,
    /// SHA-256 of all files.
    digest: [u8; 32],
}

/// The content of the files of a certificate.
#[derive(Debug)]
struct Bytes {
    cert: Vec<u8>,
    key: Vec<u8>,
    ocsp: Option<Vec<u8>>,
}

// === impl Certificate ===

impl Certificate {
    /// Reads and checks the files of a certificate. `now` is the Unix time in seconds. Blocks as
    /// long as the file system does.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn load(files: &CertificateFiles, now: u64) -> Result<Self, CertificateError> {
        let bytes = Bytes::read(files)?;
        Self::of(files, bytes, now)
    }

    /// The same; the previous certificate if its files have the same content and the same OCSP
    /// response is still valid.
    ///
    /// # Errors
    /// See [`CertificateError`].
    pub fn load_again(
        files: &CertificateFiles,
        previous: &Arc<Self>,
        now: u64,
    ) -> Result<Arc<Self>, CertificateError> {
        let bytes = Bytes::read(files)?;
        if bytes.digest() == previous.digest && !previous.is_staple_over(now) {
            return Ok(Arc::clone(previous));
        }
        Self::of(files, bytes, now).map(Arc::new)
    }

    /// A certificate that was issued to the gateway: its chain and its key in PEM.
    ///
    /// # Errors
    /// See [`CertificateError`]. Paths are `origin`.
    pub fn from_pem(
        origin: &Path,
        chain: &[u8],
        key: &[u8],
        now: u64,
    ) -> Result<Self, CertificateError> {
        let files =
            CertificateFiles { cert: origin.to_owned(), key: origin.to_owned(), ocsp: None };
        Self::of(&files, Bytes { cert: chain.to_owned(), key: key.to_owned(), ocsp: None }, now)
    }

    fn of(files: &CertificateFiles, bytes: Bytes, now: u64) -> Result<Self, CertificateError> {
        let digest = bytes.digest();
        let chain = chain(Part::Cert, &files.cert, &bytes.cert)?;
        let content = content(&files.cert, &chain)?;
        let key = private_key(&files.key, &bytes.key)?;
        let mut key = paired(files, chain, &content, key)?;
        let name = content.name().unwrap_or_else(|| files.cert.display().to_string());
        let mut unstapled = None;
        let mut staple_until = None;
        if let Some((path, der)) = files.ocsp.as_ref().zip(bytes.ocsp) {
            let verdict = staple(path, &der, &content, &name)?;
            unstapled = verdict.warning(now);
            if unstapled.is_none() {
                staple_until = verdict.next_update;
                key.ocsp = Some(der);
            }
        }
        Ok(Self { name: name.into(), content, key: Arc::new(key), staple_until, unstapled, digest })
    }

    /// What it is called in logs and metrics: its first DNS name, else its first IP address, else
    /// its subject or file.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its DNS names in lower case. A wildcard begins with `*.`.
    pub fn dns_names(&self) -> &[String] {
        &self.content.dns_names
    }

    pub fn addresses(&self) -> &[IpAddr] {
        &self.content.addresses
    }

    /// Unix time in seconds at which its validity begins.
    pub fn not_before(&self) -> u64 {
        self.content.not_before
    }

    /// Unix time in seconds at which its validity ends.
    pub fn not_after(&self) -> u64 {
        self.content.not_after
    }

    /// Whether an OCSP response is stapled.
    pub fn is_stapled(&self) -> bool {
        self.key.ocsp.is_some()
    }

    /// Whether the validity of the stapled OCSP response is over at the Unix time `now`, in
    /// seconds.
    pub fn is_staple_over(&self, now: u64) -> bool {
        self.staple_until.is_some_and(|end| end <= now)
    }

    /// What clients may object to at the Unix time `now`, in seconds.
    pub fn warnings(&self, now: u64) -> Vec<Warning> {
        let mut warnings = self.content.warnings(now);
        warnings.extend(self.unstapled);
        warnings
    }

    /// Chain, key and OCSP response for handshakes.
    pub(super) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// Whether the files of both certificates have the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Content {
    fn warnings(&self, now: u64) -> Vec<Warning> {
        let left = self.not_after.saturating_sub(now);
        let validity = if left == 0 {
            Some(Warning::Expired)
        } else if now < self.not_before {
            Some(Warning::NotYetValid)
        } else {
            (left < SOON_S).then_some(Warning::ExpiresSoon { days: left / DAY_S })
        };
        let has_no_names = self.dns_names.is_empty() && self.addresses.is_empty();
        let others = [
            has_no_names.then_some(Warning::NoNames),
            self.is_authority.then_some(Warning::Authority),
            (!self.is_for_servers).then_some(Warning::NotForServers),
        ];
        validity.into_iter().chain(others.into_iter().flatten()).collect()
    }
}

impl Verdict {
    /// Why the response is not stapled.
    fn warning(&self, now: u64) -> Option<Warning> {
        match self.status {
            Status::Revoked => Some(Warning::StapleRevoked),
            Status::Unknown => Some(Warning::StapleUnknown),
            Status::Good => {
                let is_over = self.next_update.is_some_and(|end| end <= now);
                is_over.then_some(Warning::StapleExpired)
            }
        }
    }
}

// === impl Bytes ===

impl Bytes {
    fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        Ok(Self {
            cert: read(Part::Cert, &files.cert)?,
            key: read(Part::Key, &files.key)?,
            ocsp: files.ocsp.as_ref().map(|path| read(Part::Ocsp, path)).transpose()?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for bytes in [&self.cert, &self.key].into_iter().chain(&self.ocsp) {
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        }
        digest.finalize().into()
    }
}

/// Reads a file.
pub(super) fn read(part: Part, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let unreadable = |source| CertificateError::Unreadable { part, path: path.to_owned(), source };
    // Before it is opened: opening a pipe would block.
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        let reason = if about.is_dir() { "it is a directory" } else { "it is no regular file" };
        return Err(unreadable(io::Error::other(reason)));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(CertificateError::TooLarge { part, path: path.to_owned() });
    }
    Ok(bytes)
}

/// The certificates of a PEM file, at least one.
pub(super) fn chain(
    part: Part,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let pem = without_mark(pem);
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| damaged(part, path, &error))?;
    if chain.is_empty() { Err(missing(part, path, pem)) } else { Ok(chain) }
}

/// The content of the first certificate. Of the others, only the form is checked.
fn content(path: &Path, chain: &[CertificateDer<'static>]) -> Result<Content, CertificateError> {
    let unparsable = |position| CertificateError::Unparsable { path: path.to_owned(), position };
    if let Some(index) = chain.iter().position(|der| x509::subject(der).is_none()) {
        return Err(unparsable(index + 1));
    }
    chain.first().and_then(|der| Content::of(der)).ok_or_else(|| unparsable(1))
}

fn private_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, CertificateError> {
    let pem = without_mark(pem);
    match PrivateKeyDer::from_pem_slice(pem) {
        // An encrypted key in the older form looks like any other, apart from its headers.
        _ if contains(pem, b"ENCRYPTED") => {
            Err(CertificateError::Encrypted { path: path.to_owned() })
        }
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(missing(Part::Key, path, pem)),
        Err(error) => Err(damaged(Part::Key, path, &error)),
    }
}

/// Text without the byte order mark that editors on Windows write, which hides the first line.
fn without_mark(pem: &[u8]) -> &[u8] {
    pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(pem)
}

/// The chain with its key, which must belong to its first certificate.
fn paired(
    files: &CertificateFiles,
    chain: Vec<CertificateDer<'static>>,
    content: &Content,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, CertificateError> {
    let provider = super::provider();
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|source| CertificateError::UnsupportedKey { path: files.key.clone(), source })?;
    let belongs = |certificate: &CertificateDer<'static>| {
        let pair = CertifiedKey::new(vec![certificate.clone()], Arc::clone(&key));
        pair.keys_match().is_ok()
    };
    let position = chain.iter().position(belongs).map(|index| index + 1);
    if position != Some(1) {
        return Err(CertificateError::Mismatch {
            cert: files.cert.clone(),
            key: files.key.clone(),
            name: content.name().unwrap_or_else(|| "no name".to_owned()),
            position,
        });
    }
    Ok(CertifiedKey::new(chain, key))
}

fn staple(
    path: &Path,
    der: &[u8],
    content: &Content,
    name: &str,
) -> Result<Verdict, CertificateError> {
    let response = Response::parse(der).map_err(|malformed| match malformed {
        Malformed::NotOcsp => CertificateError::NotOcsp { path: path.to_owned() },
        Malformed::Unsuccessful(status) => {
            CertificateError::OcspFailed { path: path.to_owned(), status }
        }
    })?;
    let other = || CertificateError::OtherOcsp { path: path.to_owned(), name: name.to_owned() };
    response.about(&content.serial).ok_or_else(other)
}

fn missing(part: Part, path: &Path, bytes: &[u8]) -> CertificateError {
    let is_der = bytes.first() == Some(&0x30);
    CertificateError::Missing { part, path: path.to_owned(), is_der }
}

fn damaged(part: Part, path: &Path, error: &pem::Error) -> CertificateError {
    // The texts of the library contain lines of the file, which may be of a key.
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => {
            "a section has no END line; was it written to the end?"
        }
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "a section is not base64",
        _ => "it is not PEM",
    };
    CertificateError::Damaged { part, path: path.to_owned(), reason: reason.to_owned() }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests;
