//! `host:port`, the one parser for it: servers, URLs, `Host` headers.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Maximum length of a DNS name (RFC 1035, section 2.3.4).
pub const MAX_HOST_BYTES: usize = 253;

/// Maximum length of one label of a DNS name.
const MAX_LABEL_BYTES: usize = 63;

/// The host and the port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A DNS name or an IP address; IPv6 without brackets.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

/// What a server is written as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An IP address, or a name whose A and AAAA records are its addresses; with the port.
    Host(HostPort),
    /// A name whose SRV records have hosts and ports, such as `_http._tcp.api.internal`.
    Service(Box<str>),
}

/// `host` or `host:port`, split but not validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host as written: IPv6 in brackets. May be empty.
    pub host: &'a str,
    /// The text after the colon, if there is a colon. May be empty.
    pub port: Option<&'a str>,
}

/// Why a text is not a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddressError {
    /// A `[` without its `]`.
    #[error("a `[` lacks its `]`")]
    UnclosedBracket,
    /// The text in brackets is no IPv6 address. A zone (`%eth0`) is not supported.
    #[error("no IPv6 address in the brackets")]
    NotIpv6,
    /// Text other than `:port` after the `]`.
    #[error("no `:` between `]` and the port")]
    AfterBracket,
    /// More than one colon outside of brackets, as in an IPv6 address without them.
    #[error("more than one `:`; write an IPv6 address in brackets")]
    ExtraColon,
    /// No text before the colon, or no text at all.
    #[error("no host")]
    NoHost,
    /// Neither a DNS name nor an IP address.
    #[error("the host is neither a name nor an address")]
    NotHost,
    /// The port is missing, and there is no default.
    #[error("no port")]
    NoPort,
    /// The port is not a number from 1 to 65535.
    #[error("a port is a number from 1 to 65535")]
    NotPort,
}

impl HostPort {
    /// Parses `host:port`; without `:port`, the port is `default_port`. The host becomes lower
    /// case.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, AddressError> {
        let authority = Authority::split(text)?;
        if authority.port.is_none() && default_port.is_none() {
            return Err(AddressError::NoPort);
        }
        let host = match authority.in_brackets() {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
            Some(_) => return Err(AddressError::NotIpv6),
            None if authority.host.is_empty() => return Err(AddressError::NoHost),
            None if is_host(authority.host) => authority.host,
            None => return Err(AddressError::NotHost),
        };
        let port = authority.port.map_or(default_port, port).ok_or(AddressError::NotPort)?;
        Ok(Self { host: host.to_ascii_lowercase(), port })
    }
}

impl Origin {
    /// The address, if it is written as one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Host(HostPort { host, port }) => Some(SocketAddr::new(host.parse().ok()?, *port)),
            Self::Service(_) => None,
        }
    }

    /// The host that the server is known by: its certificate must have that name, not that of the
    /// target of a SRV record, which can be forged. Of `_http._tcp.api.internal` it is
    /// `api.internal` (RFC 6125, section 6.2.1).
    pub fn host(&self) -> &str {
        match self {
            Self::Host(server) => &server.host,
            Self::Service(name) => {
                let mut host = &**name;
                while let Some((label, rest)) = host.split_once('.')
                    && label.starts_with('_')
                {
                    host = rest;
                }
                host
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(server) => server.fmt(formatter),
            Self::Service(name) => formatter.write_str(name),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(formatter, "[{host}]:{port}")
        } else {
            write!(formatter, "{host}:{port}")
        }
    }
}

impl<'a> Authority<'a> {
    /// Splits `host`, `host:port`, `[address]` or `[address]:port`. Allocates nothing.
    ///
    /// # Errors
    /// [`AddressError::UnclosedBracket`], [`AddressError::AfterBracket`] and
    /// [`AddressError::ExtraColon`].
    pub fn split(text: &'a str) -> Result<Self, AddressError> {
        if text.starts_with('[') {
            let end = text.find(']').ok_or(AddressError::UnclosedBracket)? + 1;
            let (host, rest) = text.split_at(end);
            return match rest.strip_prefix(':') {
                None if rest.is_empty() => Ok(Self { host, port: None }),
                None => Err(AddressError::AfterBracket),
                port => Ok(Self { host, port }),
            };
        }
        match text.split_once(':') {
            None => Ok(Self { host: text, port: None }),
            Some((_, port)) if port.contains(':') => Err(AddressError::ExtraColon),
            Some((host, port)) => Ok(Self { host, port: Some(port) }),
        }
    }

    /// Returns the text between the brackets, if the host is in brackets.
    pub fn in_brackets(&self) -> Option<&'a str> {
        self.host.strip_prefix('[')?.strip_suffix(']')
    }
}

/// Parses a port: decimal digits only, from 1 to 65535.
pub fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

/// Whether `text` is a DNS name or an IPv4 address. A name of digits and dots only is an IPv4
/// address or invalid, as resolvers treat it.
pub fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        // A label neither begins nor ends with a hyphen (RFC 1123, section 2.1).
        !label.is_empty()
            && label.len() <= MAX_LABEL_BYTES
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let labels = text.strip_suffix('.').unwrap_or(text);
    text.len() <= MAX_HOST_BYTES
        && labels.split('.').all(is_label)
        && (!is_number || text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_parsed_or_the_error_names_the_part() {
        let valid = [
            ("127.0.0.1:3000", "127.0.0.1", 3000),
            ("[::1]:3000", "::1", 3000),
            ("[2001:DB8::1]:1", "2001:db8::1", 1),
            ("[::ffff:192.0.2.1]:1", "::ffff:192.0.2.1", 1),
            ("API.example.com:80", "api.example.com", 80),
            ("api.example.com.:80", "api.example.com.", 80),
            ("api_1:65535", "api_1", 65535),
            ("api:080", "api", 80),
        ];
        for (text, host, port) in valid {
            let expected = HostPort { host: host.to_owned(), port };
            assert_eq!(HostPort::parse(text, None), Ok(expected), "{text}");
        }
        let long = format!("{}:80", "a".repeat(64));
        let invalid = [
            ("", AddressError::NoPort),
            ("api", AddressError::NoPort),
            ("[::1]", AddressError::NoPort),
            (":", AddressError::NoHost),
            (":80", AddressError::NoHost),
            ("api:", AddressError::NotPort),
            ("api:0", AddressError::NotPort),
            ("api:00", AddressError::NotPort),
            ("api:65536", AddressError::NotPort),
            ("api:99999999999999999999", AddressError::NotPort),
            ("api:+80", AddressError::NotPort),
            ("api:-1", AddressError::NotPort),
            ("api: 80", AddressError::NotPort),
            ("api:80/x", AddressError::NotPort),
            ("[::1]:", AddressError::NotPort),
            ("[::1]:0", AddressError::NotPort),
            ("::1", AddressError::ExtraColon),
            ("api:80:80", AddressError::ExtraColon),
            ("http://api:80", AddressError::ExtraColon),
            ("[::1:80", AddressError::UnclosedBracket),
            ("[::1]80", AddressError::AfterBracket),
            ("[]:80", AddressError::NotIpv6),
            ("[api]:80", AddressError::NotIpv6),
            ("[127.0.0.1]:80", AddressError::NotIpv6),
            ("[fe80::1%eth0]:80", AddressError::NotIpv6),
            ("[fe80::1%251]:80", AddressError::NotIpv6),
            ("999.1.1.1:80", AddressError::NotHost),
            ("a b:80", AddressError::NotHost),
            ("u@api:80", AddressError::NotHost),
            ("a..b:80", AddressError::NotHost),
            ("-a.b:80", AddressError::NotHost),
            ("a.b-:80", AddressError::NotHost),
            ("\u{e4}:80", AddressError::NotHost),
            (&long, AddressError::NotHost),
        ];
        for (text, expected) in invalid {
            assert_eq!(HostPort::parse(text, None), Err(expected), "{text}");
        }
    }

    #[test]
    fn default_port_applies_only_without_a_colon() {
        let parse = |text| HostPort::parse(text, Some(9090)).map(|server| server.to_string());
        assert_eq!(parse("api"), Ok("api:9090".to_owned()));
        assert_eq!(parse("[::1]"), Ok("[::1]:9090".to_owned()));
        assert_eq!(parse("api:1"), Ok("api:1".to_owned()));
        assert_eq!(parse("api:"), Err(AddressError::NotPort));
        assert_eq!(parse(""), Err(AddressError::NoHost));
    }

    #[test]
    fn display_is_parsed_to_the_same_server() {
        for text in ["127.0.0.1:1", "[::1]:65535", "api.example.com:80"] {
            assert_eq!(HostPort::parse(text, None).unwrap().to_string(), text);
        }
    }

    #[test]
    fn split_keeps_brackets_and_validates_nothing() {
        let split = |text| Authority::split(text).map(|found| (found.host, found.port));
        assert_eq!(split(""), Ok(("", None)));
        assert_eq!(split("a b"), Ok(("a b", None)));
        assert_eq!(split("a:"), Ok(("a", Some(""))));
        assert_eq!(split("[x]:y"), Ok(("[x]", Some("y"))));
        assert_eq!(Authority::split("[::1]:80").unwrap().in_brackets(), Some("::1"));
        assert_eq!(Authority::split("a:80").unwrap().in_brackets(), None);
    }
}
