//! Errors of connection attempts. Their texts contain no secrets.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::base::blocking::NoResult;
use crate::net::tls::TlsError;
use crate::store::redis::class::ErrorClass;

/// Why an attempt to connect failed.
#[derive(Debug, Error)]
pub(in crate::store::redis) enum ConnectError {
    /// A name cannot be resolved.
    #[error("{host}: no address: {source}")]
    Lookup { host: String, source: io::Error },
    /// The connection over TCP or the Unix socket failed.
    #[error("{at}: {source}")]
    Io { at: String, source: io::Error },
    /// The TLS handshake failed.
    #[error("{at}: TLS: {source}")]
    Tls { at: String, source: io::Error },
    /// The configured certificates are invalid.
    #[error("{0}")]
    Files(#[from] TlsError),
    /// The configured certificates were not read in time.
    #[error("the certificates that [redis] names cannot be read: {0}")]
    FilesUnread(NoResult),
    /// The server answered with an error or closed the connection.
    #[error("{at}: {step}: {text}")]
    Refused { at: String, step: &'static str, class: ErrorClass, text: String },
    /// The server did not answer in time.
    #[error("{at}: {step} took longer than a second")]
    Silent { at: String, step: &'static str },
    /// The server answers slower than a check may take.
    #[error("{at}: a probe took longer than the {budget:?} of `timeout`")]
    TooSlow { at: String, budget: Duration },
    /// The sentinel does not know the master.
    #[error("the sentinel {at} knows no master `{master}`")]
    UnknownMaster { at: String, master: String },
    /// No master of the cluster has the slot of a key.
    #[error("no master of the cluster has slot {slot}")]
    NoMaster { slot: u16 },
}

impl ConnectError {
    /// Kind of error, by which repeated log lines are suppressed.
    pub(in crate::store::redis) fn kind(&self) -> &'static str {
        match self {
            Self::Lookup { .. } => "lookup",
            Self::Io { .. } => "io",
            Self::Tls { .. } => "tls",
            Self::Files(_) | Self::FilesUnread(_) => "files",
            Self::Refused { class, .. } => class.label(),
            Self::Silent { .. } => "silent",
            Self::TooSlow { .. } => "slow",
            Self::UnknownMaster { .. } => "unknown master",
            Self::NoMaster { .. } => "no master",
        }
    }
}
