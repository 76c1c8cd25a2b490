//! Why a connection was closed without a response.

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
    /// The preface of HTTP/2 is not valid.
    Preface,
    /// Too many of its requests were malformed.
    Malformed,
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
            Self::Preface => "preface",
            Self::Malformed => "malformed_requests",
        })
    }
}
