//! `server.listen` and `[[listeners]]`, resolved: where clients connect, and how.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use crate::config::words::{ClientAuthMode, Redirect, TlsVersion};

/// Where clients connect, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where it accepts connections.
    pub address: ListenAddress,
    /// TLS; `None`: connections are in clear.
    pub tls: Option<ListenerTls>,
    /// Whether HTTP/2 is served beside HTTP/1.1: by ALPN with TLS, by prior knowledge without.
    pub http2: bool,
    /// Whether each connection begins with a header of the PROXY protocol. Only trusted proxies may
    /// then connect.
    pub proxy_protocol: bool,
    /// What every request is answered with instead of its response; `None`: requests are served.
    pub redirect: Option<Redirect>,
    /// `Strict-Transport-Security` of responses; only with TLS.
    pub hsts: Option<Hsts>,
}

/// Where a listener accepts connections. Displayed as in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddress {
    /// A TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix {
        /// Absolute path, at most 107 bytes.
        path: PathBuf,
        /// Permissions of the socket.
        mode: u32,
    },
}

/// `Strict-Transport-Security` (RFC 6797).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// How long browsers use only HTTPS, in seconds.
    pub max_age_s: u64,
    /// Whether this includes all subdomains.
    pub include_subdomains: bool,
    /// Whether the domain may be added to the lists that browsers contain.
    pub preload: bool,
}

/// TLS of a listener: it has certificate files, certificates of `[acme]`, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Certificate files. The first is used for clients without a matching server name.
    pub certificates: Vec<CertificateFiles>,
    /// Whether the certificates of `[acme]` are used, too.
    pub acme: bool,
    /// Whose client certificates are accepted; `None`: clients are not asked for one.
    pub client_auth: Option<ClientAuth>,
    /// The oldest version that is accepted.
    pub min_version: TlsVersion,
}

/// A certificate and its private key, which the gateway presents to clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// PEM file: the certificate, followed by the intermediate certificates up to its authority.
    pub cert: PathBuf,
    /// PEM file: the private key of the certificate.
    pub key: PathBuf,
    /// DER file: an OCSP response, which is stapled.
    pub ocsp: Option<PathBuf>,
}

/// Verification of client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuth {
    /// PEM file: the authorities of client certificates.
    pub ca: PathBuf,
    /// Whether a client may have none.
    pub mode: ClientAuthMode,
}

// === impl Listener ===

impl Listener {
    /// Index of the listener at this address: the one at `hint`, if it has the address. Several
    /// listeners can have the same one if the kernel selects their ports.
    pub fn position(listeners: &[Self], hint: usize, address: &ListenAddress) -> Option<usize> {
        let has_address = |listener: &Self| listener.address == *address;
        if listeners.get(hint).is_some_and(has_address) {
            return Some(hint);
        }
        listeners.iter().position(has_address)
    }

    /// A listener for HTTP/1.1 in clear, as in `server.listen`.
    pub fn clear(address: SocketAddr) -> Self {
        Self {
            address: ListenAddress::Tcp(address),
            tls: None,
            http2: false,
            proxy_protocol: false,
            redirect: None,
            hsts: None,
        }
    }
}

// === impl ListenAddress ===

impl ListenAddress {
    /// The TCP address; `None` for a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix { path, .. } => write!(formatter, "unix:{}", path.display()),
        }
    }
}
