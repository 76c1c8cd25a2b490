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
    /// Whether a path with a trailing slash is another path.
    pub trailing_slash: TrailingSlash,
    /// The methods that the file names; empty: all. [`takes`] says what that means.
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

/// Whether a path with a trailing slash is another path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// Many servers answer `/api` and `/api/` by the same code, so they are one path.
    #[default]
    Same,
    /// They are two paths.
    Distinct,
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
        let other = self.other_spelling().is_some_and(|other| part(&other, Some(reading)));
        Fit {
            host: self.host.as_ref().is_none_or(|own| own == host),
            path: path || other,
            method: takes(&self.methods, method),
        }
    }

    /// The path that a trailing slash does not tell from the route's own: of `/api` `/api/`, of
    /// `/api/` and of the prefix `/api/*` `/api`. None where a slash makes another path.
    pub fn other_spelling(&self) -> Option<String> {
        if self.trailing_slash == TrailingSlash::Distinct {
            return None;
        }
        let (PathPattern::Exact(path) | PathPattern::Prefix(path)) = &self.path;
        match path.strip_suffix('/') {
            Some("") => None,
            Some(bare) => Some(bare.to_owned()),
            None => Some(format!("{path}/")),
        }
    }
}

/// Whether a route that names `methods`, or none of them for all, takes requests of `method`. Servers
/// answer HEAD by the code for GET, so a route that names GET takes HEAD, too. TRACE is taken only
/// if it is named: its response echoes headers that a page in a browser may not read.
pub fn takes(methods: &[Method], method: &Method) -> bool {
    let named = methods.contains(method);
    match *method {
        Method::TRACE => named,
        Method::HEAD => named || methods.is_empty() || methods.contains(&Method::GET),
        _ => named || methods.is_empty(),
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
