//! What one route matches, by itself.

use std::net::Ipv6Addr;

use http::Method;

/// What a route matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// The host in lower case, without port; none: all hosts.
    pub host: Option<String>,
    /// The path.
    pub path: PathPattern,
    /// The methods; empty: all.
    pub methods: Vec<Method>,
}

/// What a route's path matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// This path only.
    Exact(String),
    /// Every path that begins with it. Begins and ends with a slash.
    Prefix(String),
}

impl std::fmt::Display for PathPattern {
    /// As the file writes it.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(path) => formatter.write_str(path),
            Self::Prefix(prefix) => write!(formatter, "{prefix}*"),
        }
    }
}

/// Which parts of a request a route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// Its host.
    pub host: bool,
    /// Its path.
    pub path: bool,
    /// Its method.
    pub method: bool,
}

impl Matcher {
    /// Which parts of a request match, one by one: what the index over all routes does not tell of
    /// those that it passes over.
    pub fn fit(&self, host: &str, reading: &str, method: &Method, ignore_case: bool) -> Fit {
        let part = |pattern: &str, reading: Option<&str>| match reading {
            Some(reading) if ignore_case => reading.eq_ignore_ascii_case(pattern),
            Some(reading) => reading == pattern,
            None => false,
        };
        let path = match &self.path {
            PathPattern::Exact(pattern) => part(pattern, Some(reading)),
            PathPattern::Prefix(pattern) => part(pattern, reading.get(..pattern.len())),
        };
        let methods = &self.methods;
        Fit {
            host: self.host.as_ref().is_none_or(|own| own == host),
            path,
            method: methods.is_empty() || methods.contains(method),
        }
    }
}

impl Fit {
    /// Whether the route is one that the request could take.
    pub fn is_whole(self) -> bool {
        self.host && self.path && self.method
    }
}

/// An IPv6 address in brackets as RFC 5952 has it, whichever of its many spellings `host` is; none
/// where it is no such address.
pub fn ipv6_host(host: &str) -> Option<String> {
    let address = host.strip_prefix('[')?.strip_suffix(']')?;
    Some(format!("[{}]", address.parse::<Ipv6Addr>().ok()?))
}
