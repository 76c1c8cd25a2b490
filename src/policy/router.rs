//! Finds the route of a request: the most specific wins, whatever the order in the file.

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

/// The index over all routes.
#[derive(Debug, Default)]
pub struct Router {}

impl Router {
    /// An index over `matchers`, whose positions are the routes' indexes.
    ///
    /// # Errors
    /// The pairs of routes that no request can tell apart, the earlier one first.
    pub fn new(matchers: &[Matcher], ignore_case: bool) -> Result<Self, Vec<(u32, u32)>> {
        let _ = (matchers, ignore_case);
        Ok(Self {})
    }
}
