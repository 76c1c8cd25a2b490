//! Why a connection was closed without a response.

use super::connection::Slow;
use super::open::ShedCause;

/// Why the gateway closed a connection that it could not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client closed it, or its TLS handshake failed, which other series count.
    Uncounted,
    /// Its peer is not one of `server.trusted_proxies`, and the listener requires a PROXY header.
    UntrustedProxy,
    /// It does not begin with a valid PROXY header.
    ProxyHeader,
    /// The PROXY header or the TLS handshake did not arrive in time.
    HandshakeTimeout,
    /// The head of a request, or the preface of HTTP/2, did not arrive in time.
    HeadTimeout,
    /// The head of a request is longer than four times the limits above which requests get 431 or
    /// 414.
    HeadSize,
    /// The preface of HTTP/2 is not valid.
    Preface,
    /// Its client was too slow.
    Slow(Slow),
    /// Too many of its requests were malformed.
    Malformed,
    /// There are `server.limits.max_connections` connections.
    MaxConnections,
    /// There are `server.limits.max_connections_per_ip` connections from its address.
    MaxConnectionsPerIp,
    /// It was idle.
    Shed(ShedCause),
}

impl Ended {
    /// The value of the label `reason`; `None` if it is not counted.
    pub(super) fn label(self) -> Option<&'static str> {
        Some(match self {
            Self::Uncounted => return None,
            Self::UntrustedProxy => "untrusted_proxy",
            Self::ProxyHeader => "proxy_header",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HeadTimeout => "head_timeout",
            Self::HeadSize => "head_size",
            Self::Preface => "preface",
            Self::Slow(slow) => slow.label(),
            Self::Malformed => "malformed_requests",
            Self::MaxConnections => "max_connections",
            Self::MaxConnectionsPerIp => "max_connections_per_ip",
            Self::Shed(ShedCause::Room) => "shed",
            Self::Shed(ShedCause::Descriptors) => "no_descriptors",
            Self::Shed(ShedCause::Memory) => "memory",
        })
    }
}
