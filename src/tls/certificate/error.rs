//! Why a certificate cannot be used, and what to do about it. No text contains content of a file.

use std::io;
use std::path::PathBuf;

use rustls::Error as TlsError;
use thiserror::Error;

/// The file that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The certificate, with its intermediate certificates.
    Cert,
    /// The private key.
    Key,
    /// The OCSP response.
    Ocsp,
}

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which file.
        part: Part,
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is larger than 1 MiB.
    #[error("{} is larger than 1 MiB; it was not read", path.display())]
    TooLarge {
        /// Which file.
        part: Part,
        path: PathBuf,
    },
    /// A file contains nothing of what it should, in PEM.
    #[error("{} contains no {} in PEM", path.display(), part.wanted())]
    Missing {
        /// Which file.
        part: Part,
        path: PathBuf,
        /// Whether it seems to be DER.
        is_der: bool,
    },
    /// A file is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// Which file.
        part: Part,
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A certificate of the chain is not valid DER.
    #[error("certificate {position} of {} cannot be read", path.display())]
    Unparsable {
        /// The file of the chain.
        path: PathBuf,
        /// Its position in the file, from 1.
        position: usize,
    },
    /// The private key is encrypted.
    #[error("the private key in {} is encrypted", path.display())]
    Encrypted {
        /// The file of the key.
        path: PathBuf,
    },
    /// The private key has a type or size that is not supported.
    #[error("the private key in {} is not supported: {source}", path.display())]
    UnsupportedKey {
        /// The file of the key.
        path: PathBuf,
        /// The error of the TLS library.
        source: TlsError,
    },
    /// The key is that of another certificate.
    #[error(
        "the private key in {} does not belong to the first certificate of {}, which is for {name}",
        key.display(), cert.display()
    )]
    Mismatch {
        /// The file of the chain.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The name of the first certificate.
        name: String,
        /// Position in the chain of the certificate with this key, from 1.
        position: Option<usize>,
    },
    /// The file of the OCSP response contains something else.
    #[error("{} is not an OCSP response in DER", path.display())]
    NotOcsp { path: PathBuf },
    /// The OCSP responder reported an error instead of a status.
    #[error("{} is an error of the OCSP responder (status {status})", path.display())]
    OcspFailed {
        path: PathBuf,
        /// `responseStatus`.
        status: u8,
    },
    /// The OCSP response is about another certificate.
    #[error("the OCSP response in {} is not about the certificate of {name}", path.display())]
    OtherOcsp { path: PathBuf, name: String },
}

// === impl CertificateError ===

impl CertificateError {
    /// The file that the error is about.
    pub fn part(&self) -> Part {
        match self {
            Self::Unreadable { part, .. }
            | Self::TooLarge { part, .. }
            | Self::Missing { part, .. }
            | Self::Damaged { part, .. } => *part,
            Self::Unparsable { .. } => Part::Cert,
            Self::Encrypted { .. } | Self::UnsupportedKey { .. } | Self::Mismatch { .. } => {
                Part::Key
            }
            Self::NotOcsp { .. } | Self::OcspFailed { .. } | Self::OtherOcsp { .. } => Part::Ocsp,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "the user that the gateway runs as needs to read it".to_owned()
            }
            Self::Unreadable { .. } => {
                "a relative path begins at the folder of the configuration file".to_owned()
            }
            Self::TooLarge { .. } => "a chain needs a few KiB; is it the right file?".to_owned(),
            Self::Missing { part, is_der: true, .. } => {
                let command = if *part == Part::Key { "pkey" } else { "x509" };
                format!("it may be DER: `openssl {command} -inform der -in FILE -out FILE.pem`")
            }
            Self::Missing { part, .. } => format!("it needs a line `-----BEGIN {}-----`", part.label()),
            Self::Damaged { .. } | Self::Unparsable { .. } => {
                "copy the file again; `openssl x509 -in FILE -noout -text` shows a certificate".to_owned()
            }
            Self::Encrypted { .. } => {
                "decrypt it with `openssl pkey -in FILE -out FILE.key`, and protect the result by its \
                 permissions"
                    .to_owned()
            }
            Self::UnsupportedKey { .. } => {
                "use an ECDSA key of P-256 or P-384, Ed25519, or RSA with 2048 bits or more".to_owned()
            }
            Self::Mismatch { position: Some(position), .. } => {
                format!("it belongs to certificate {position} of the file: put that one first")
            }
            Self::Mismatch { .. } => {
                "the public keys must be equal: `openssl x509 -in CERT -noout -pubkey` and `openssl \
                 pkey -in KEY -pubout`"
                    .to_owned()
            }
            Self::NotOcsp { .. } | Self::OcspFailed { .. } | Self::OtherOcsp { .. } => {
                "fetch it again: `openssl ocsp -issuer CA -cert CERT -url URL -respout FILE`".to_owned()
            }
        }
    }

    /// Whether the file may exist elsewhere: it is not that it has a wrong content.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }
}

// === impl Part ===

impl Part {
    fn wanted(self) -> &'static str {
        match self {
            Self::Cert => "certificate",
            Self::Key => "private key",
            Self::Ocsp => "OCSP response",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Cert => "CERTIFICATE",
            Self::Key => "PRIVATE KEY",
            Self::Ocsp => "OCSP RESPONSE",
        }
    }
}
