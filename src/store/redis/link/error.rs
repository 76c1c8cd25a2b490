//! Why there is no connection, in words for the log. None of them holds a secret.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::blocking::NoResult;
use crate::net::tls::TlsError;
use crate::store::redis::class::ErrorClass;

/// Why an attempt to connect failed.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    /// A name cannot be looked up.
    #[error("{host}: no address: {source}")]
    Lookup { host: String, source: io::Error },
    /// The system cannot connect.
    #[error("{at}: {source}")]
    Io { at: String, source: io::Error },
    /// The two sides do not agree on TLS.
    #[error("{at}: TLS: {source}")]
    Tls { at: String, source: io::Error },
    /// The gateway's own files are no good.
    #[error("{0}")]
    Files(#[from] TlsError),
    /// The gateway's own files have not been read in time.
    #[error("the certificates that [redis] names cannot be read: {0}")]
    FilesUnread(NoResult),
    /// The server answered with an error, or hung up.
    #[error("{at}: {step}: {text}")]
    Refused { at: String, step: &'static str, class: ErrorClass, text: String },
    /// The other side did not answer in time.
    #[error("{at}: {step} took longer than a second")]
    Silent { at: String, step: &'static str },
    /// The server answers, and not as fast as a check needs it.
    #[error("{at}: a probe took longer than the {budget:?} of `timeout`")]
    TooSlow { at: String, budget: Duration },
    /// The sentinel does not watch such a master.
    #[error("the sentinel {at} knows no master `{master}`")]
    UnknownMaster { at: String, master: String },
}

impl ConnectError {
    /// A word for its kind: what has been said once is not said again for a while.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Lookup { .. } => "lookup",
            Self::Io { .. } => "io",
            Self::Tls { .. } => "tls",
            Self::Files(_) | Self::FilesUnread(_) => "files",
            Self::Refused { class, .. } => class.label(),
            Self::Silent { .. } => "silent",
            Self::TooSlow { .. } => "slow",
            Self::UnknownMaster { .. } => "unknown master",
        }
    }
}
