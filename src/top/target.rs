//! The gateway to show: the address of its admin port and the token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::net::address::HostPort;
use crate::policy::redis::Secret;

/// The default address of the admin port.
pub const DEFAULT: &str = "http://127.0.0.1:9090";

const DEFAULT_PORT: u16 = 9090;

/// The admin port of a gateway.
#[derive(Debug, Clone)]
pub struct Target {
    pub(super) server: HostPort,
    pub(super) token: Option<Secret>,
}

/// Why a text is not the address of an admin port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The text is neither a URL nor `host:port`.
    #[error("this is not an address; it looks like `http://127.0.0.1:9090`")]
    NotAnAddress,
    /// The URL is `https`, which the admin port does not support.
    #[error(
        "`https` is not supported: the admin port has plain HTTP. Forward it to this machine by \
         `ssh -L 9090:127.0.0.1:9090 HOST`"
    )]
    Tls,
    /// The URL has a path, a query or a fragment.
    #[error("the address has a path; leave out what follows the port")]
    Path,
}

impl Target {
    /// Parses a URL or `host:port`. The default port is 9090.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(text: &str, token: Option<Secret>) -> Result<Self, TargetError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(TargetError::Tls),
            _ => return Err(TargetError::NotAnAddress),
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let server = HostPort::parse(authority, Some(DEFAULT_PORT))
            .map_err(|_| TargetError::NotAnAddress)?;
        if matches!(path, "" | "/") { Ok(Self { server, token }) } else { Err(TargetError::Path) }
    }

    /// Returns the admin port of a configuration file. If it listens on all addresses, the address
    /// is that of this machine.
    pub fn of_file(admin: SocketAddr, token: Option<Secret>) -> Self {
        let host = match admin.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            other => other,
        };
        Self { server: HostPort { host: host.to_string(), port: admin.port() }, token }
    }

    pub fn server(&self) -> &HostPort {
        &self.server
    }

    /// Returns `host:port`, for people and for the `Host` header.
    pub fn shown(&self) -> String {
        self.server.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_a_url_or_host_and_port() {
        let shown = |text: &str| Target::parse(text, None).map(|target| target.shown());
        let table = [
            (DEFAULT, Ok("127.0.0.1:9090")),
            ("http://gateway.internal:81/", Ok("gateway.internal:81")),
            ("HTTP://gateway.internal:81", Ok("gateway.internal:81")),
            ("localhost", Ok("localhost:9090")),
            ("10.0.0.7:9091", Ok("10.0.0.7:9091")),
            ("[::1]:9090", Ok("[::1]:9090")),
            ("http://[::1]", Ok("[::1]:9090")),
            ("https://h", Err(TargetError::Tls)),
            ("http://h/metrics", Err(TargetError::Path)),
            ("http://h/?a=b", Err(TargetError::Path)),
            ("http://h?a=b", Err(TargetError::Path)),
            ("ftp://h", Err(TargetError::NotAnAddress)),
            ("h:port", Err(TargetError::NotAnAddress)),
            ("h:70000", Err(TargetError::NotAnAddress)),
            ("http://user:secret@h", Err(TargetError::NotAnAddress)),
            ("", Err(TargetError::NotAnAddress)),
            ("a b", Err(TargetError::NotAnAddress)),
        ];
        for (text, expected) in table {
            assert_eq!(shown(text), expected.map(str::to_owned), "{text}");
        }
    }

    #[test]
    fn unspecified_address_becomes_loopback() {
        let shown = |admin: &str| Target::of_file(admin.parse().unwrap(), None).shown();
        assert_eq!(shown("0.0.0.0:9090"), "127.0.0.1:9090");
        assert_eq!(shown("[::]:9"), "[::1]:9");
        assert_eq!(shown("10.0.0.7:9090"), "10.0.0.7:9090");
    }
}
