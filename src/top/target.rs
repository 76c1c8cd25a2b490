//! Which gateway is asked: where its admin port is, and what it wants to hear.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use thiserror::Error;

use crate::policy::redis::Secret;

/// The admin port's own default.
pub const DEFAULT: &str = "http://127.0.0.1:9090";

/// A gateway's admin port.
#[derive(Debug, Clone)]
pub struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) token: Option<Secret>,
}

/// Why a text names no admin port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TargetError {
    /// No URL at all.
    #[error("the address is none; it looks like `http://127.0.0.1:9090`")]
    NotAnAddress,
    /// TLS, which the admin port does not speak.
    #[error(
        "`https` is not spoken: the admin port has plain HTTP. Bring it here by \
         `ssh -L 9090:127.0.0.1:9090 HOST`"
    )]
    Tls,
    /// More than an address.
    #[error("the address has a path; leave out what follows the port")]
    Path,
}

impl Target {
    /// The admin port at a URL, or at `host:port`; port 9090 where there is none.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(text: &str, token: Option<Secret>) -> Result<Self, TargetError> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = whole.parse().map_err(|_| TargetError::NotAnAddress)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(TargetError::Tls),
            _ => return Err(TargetError::NotAnAddress),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(TargetError::Path);
        }
        let authority = uri.authority().ok_or(TargetError::NotAnAddress)?;
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(TargetError::NotAnAddress);
        }
        // A port that is no number is none to `http`, and would quietly be the default.
        let port = match (authority.port_u16(), authority.as_str().rsplit_once(':')) {
            (Some(port), _) => port,
            (None, Some((_, rest))) if !rest.contains(']') => {
                return Err(TargetError::NotAnAddress);
            }
            (None, _) => 9090,
        };
        Ok(Self { host: host.to_owned(), port, token })
    }

    /// The admin port of a file, on this machine where it is on all addresses.
    pub fn of_file(admin: SocketAddr, token: Option<Secret>) -> Self {
        let host = match admin.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            other => other,
        };
        Self { host: host.to_string(), port: admin.port(), token }
    }

    /// Host and port, as people and `Host` have them.
    pub fn shown(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_url_or_what_stands_in_one() {
        let shown = |text: &str| Target::parse(text, None).map(|target| target.shown());
        let table = [
            (DEFAULT, Ok("127.0.0.1:9090")),
            ("http://gateway.internal:81/", Ok("gateway.internal:81")),
            ("localhost", Ok("localhost:9090")),
            ("10.0.0.7:9091", Ok("10.0.0.7:9091")),
            ("[::1]:9090", Ok("[::1]:9090")),
            ("http://[::1]", Ok("[::1]:9090")),
            ("https://h", Err(TargetError::Tls)),
            ("http://h/metrics", Err(TargetError::Path)),
            ("http://h/?a=b", Err(TargetError::Path)),
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
    fn a_port_on_all_addresses_is_on_this_machine() {
        let shown = |admin: &str| Target::of_file(admin.parse().unwrap(), None).shown();
        assert_eq!(shown("0.0.0.0:9090"), "127.0.0.1:9090");
        assert_eq!(shown("[::]:9"), "[::1]:9");
        assert_eq!(shown("10.0.0.7:9090"), "10.0.0.7:9090");
    }
}
