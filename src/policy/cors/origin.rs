//! Origins of pages: a scheme, a host and a port (RFC 6454, section 6.2).

use std::fmt;

use thiserror::Error;

use crate::net::address::{AddressError, Authority, MAX_HOST_BYTES, is_host, port};
use crate::policy::hosts::HostPattern;
use crate::policy::matcher::ipv6_host;

/// An origin, or all origins below a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OriginPattern {
    /// `null`: of pages without an origin, such as sandboxed frames and files.
    Null,
    /// The origins of a scheme, a host and a port.
    Site(Site),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Site {
    /// In lower case.
    scheme: Box<str>,
    host: HostPattern,
    /// `None`: the default of the scheme.
    port: Option<u16>,
}

/// Why a text is not an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OriginError {
    /// There is no `://`.
    #[error("the origin has no scheme")]
    NoScheme,
    /// The text before `://` is not the name of a scheme.
    #[error("the scheme of the origin is not valid")]
    Scheme,
    /// The only character after the port is a slash.
    #[error("an origin does not end in a slash")]
    Slash,
    /// A path, a query or a fragment.
    #[error("an origin has no path")]
    Path,
    /// `user@`.
    #[error("an origin has no user")]
    User,
    /// A `*` elsewhere than as the whole first label of a host with others.
    #[error("`*` is allowed only as the first label of the host of an origin")]
    Wildcard,
    /// The port is not a number from 1 to 65535.
    #[error("the port of the origin is not a number from 1 to 65535")]
    Port,
    /// The host is neither a name nor an address.
    #[error("the host of the origin is neither a name nor an address")]
    Host,
}

/// The parts of an origin as it is written.
struct Parts<'a> {
    scheme: &'a str,
    /// IPv6 in brackets.
    host: &'a str,
    /// `None`: the default of the scheme.
    port: Option<u16>,
}

impl OriginPattern {
    /// Parses an origin of the file: `null`, `https://app.example.com`, or
    /// `https://*.example.com`.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        if text == "null" {
            return Ok(Self::Null);
        }
        let Parts { scheme, host, port } = Parts::of(text)?;
        Ok(Self::Site(Site {
            scheme: scheme.to_ascii_lowercase().into(),
            host: self::host(host)?,
            port,
        }))
    }
}

/// Whether the value of a header `Origin` is one of these.
pub(super) fn is_listed(patterns: &[OriginPattern], origin: &str) -> bool {
    if origin == "null" {
        return patterns.contains(&OriginPattern::Null);
    }
    let Ok(parts) = Parts::of(origin) else { return false };
    patterns.iter().any(|pattern| match pattern {
        OriginPattern::Null => false,
        OriginPattern::Site(site) => site.has(&parts),
    })
}

impl Site {
    fn has(&self, origin: &Parts<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(origin.scheme)
            && self.port == origin.port
            && match &self.host {
                HostPattern::Exact(own) => own.eq_ignore_ascii_case(origin.host),
                HostPattern::Below(suffix) => is_below(origin.host, suffix),
            }
    }
}

impl fmt::Display for OriginPattern {
    /// The syntax of the file.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Site(Site { scheme, host, port }) => {
                write!(formatter, "{scheme}://{host}")?;
                port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
            }
        }
    }
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, OriginError> {
        let (scheme, rest) = text.split_once("://").ok_or(OriginError::NoScheme)?;
        if !is_scheme(scheme) {
            return Err(OriginError::Scheme);
        }
        match rest.find(['/', '?', '#', '\\']) {
            Some(at) if &rest[at..] == "/" => return Err(OriginError::Slash),
            Some(_) => return Err(OriginError::Path),
            None if rest.contains('@') => return Err(OriginError::User),
            None => {}
        }
        let authority = Authority::split(rest).map_err(|error| match error {
            AddressError::ExtraColon => OriginError::Port,
            _ => OriginError::Host,
        })?;
        let written = match authority.port {
            None => None,
            Some(text) => Some(port(text).ok_or(OriginError::Port)?),
        };
        let port = written.filter(|port| Some(*port) != default_port(scheme));
        Ok(Self { scheme, host: authority.host, port })
    }
}

/// Whether a host is below a name, which begins with a dot.
fn is_below(host: &str, suffix: &str) -> bool {
    let Some(at) = host.len().checked_sub(suffix.len()).filter(|at| *at > 0) else { return false };
    host.len() <= MAX_HOST_BYTES
        && host.as_bytes().get(at..).is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
        && is_host(host)
}

/// The host of an origin of the file.
fn host(text: &str) -> Result<HostPattern, OriginError> {
    if let Some(address) = ipv6_host(text) {
        return Ok(HostPattern::Exact(address));
    }
    // An origin has the final dot of its host, so it is part of the name here.
    let name = text.to_ascii_lowercase();
    match name.strip_prefix('*') {
        None if name.contains('*') => Err(OriginError::Wildcard),
        None if is_host(&name) => Ok(HostPattern::Exact(name)),
        None => Err(OriginError::Host),
        Some(below) => {
            let parent = below.strip_prefix('.').ok_or(OriginError::Wildcard)?;
            let last = parent.rsplit('.').next().unwrap_or_default();
            let is_address = last.bytes().all(|byte| byte.is_ascii_digit());
            match is_host(parent) && !is_address {
                true => Ok(HostPattern::Below(below.to_owned())),
                false if parent.contains('*') => Err(OriginError::Wildcard),
                false => Err(OriginError::Host),
            }
        }
    }
}

/// Whether a text is the name of a scheme (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.as_bytes().iter().all(is_letter)
}

/// The port that an origin with this scheme leaves out.
fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else {
        None
    }
}
