//! The match conditions of one route.

use std::net::Ipv6Addr;

use http::{HeaderMap, Method};

use super::condition::{self, Condition, Outcome, Specificity};
use super::expression::Expression;
use super::hosts::Hosts;
use super::params::{self, Params, PathParams};
pub use crate::config::words::TrailingSlash;

/// Match conditions of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// Hosts that requests must have one of.
    pub hosts: Hosts,
    /// Path that requests must have, or prefix of their paths.
    pub path: PathPattern,
    /// Parameters in the path.
    pub params: PathParams,
    /// Whether a trailing slash makes a different path.
    pub trailing_slash: TrailingSlash,
    /// What requests must have beside a host and a path.
    pub conditions: Conditions,
}

/// What a route asks of requests beside their host and their path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Methods listed in the file; empty: all. See [`takes`].
    pub methods: Vec<Method>,
    /// Those on headers, query parameters and cookies, at most one for each, in the order of these.
    pub on_values: Box<[Condition]>,
}

/// See [`Conditions::rank`].
pub type ConditionsRank = (bool, Specificity, bool);

/// The parts of a request that [`Conditions`] are about.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// Request method, case-sensitive.
    pub method: &'a Method,
    /// Request headers, before any is removed for the upstream.
    pub headers: &'a HeaderMap,
    /// Query of the target, not decoded, without its `?`.
    pub query: Option<&'a str>,
}

/// Path condition of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// This path only; [`TrailingSlash`] says whether a final slash matters. A segment `{name}` is
    /// a parameter, see [`params`](super::params).
    Exact(String),
    /// Every path that begins with this text, which begins and ends with a slash. It may have
    /// parameters.
    Prefix(String),
    /// Every path that this expression matches: `path_regex`.
    Expression(Expression),
}

impl PathPattern {
    /// The path or the prefix; `None`: the paths are those of an expression.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Exact(text) | Self::Prefix(text) => Some(text),
            Self::Expression(_) => None,
        }
    }

    /// Whether it is `/`, and no path below it.
    pub fn is_root(&self) -> bool {
        matches!(self, Self::Exact(path) if path == "/")
    }

    /// Whether a reading of a path matches, except for a trailing slash that the route ignores.
    fn matches(&self, reading: &str, ignore_case: bool) -> bool {
        match self {
            Self::Exact(pattern) => params::matches(pattern, false, reading, ignore_case),
            Self::Prefix(pattern) => params::matches(pattern, true, reading, ignore_case),
            Self::Expression(expression) => expression.matches(reading),
        }
    }
}

impl std::fmt::Display for PathPattern {
    /// The syntax of the file; an expression after a `~`, as nginx has it.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(path) => formatter.write_str(path),
            Self::Prefix(prefix) => write!(formatter, "{prefix}*"),
            Self::Expression(expression) => write!(formatter, "~ {}", expression.text()),
        }
    }
}

/// Which parts of a request match a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedParts {
    pub host: bool,
    pub path: bool,
    pub conditions: bool,
}

impl Conditions {
    /// Whether a request meets all of them, to every server.
    pub fn hold(&self, request: RequestParts<'_>) -> bool {
        self.outcome(request) == Outcome::Yes
    }

    /// Whether a request meets all of them.
    pub fn outcome(&self, request: RequestParts<'_>) -> Outcome {
        if !takes(&self.methods, request.method) {
            return Outcome::No;
        }
        let each = self.on_values.iter().map(|condition| condition.outcome(request));
        each.min().unwrap_or(Outcome::Yes)
    }

    /// Whether they are those of any request: the route is for all that have its host and path.
    pub const fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.on_values.is_empty()
    }

    /// Each of them, in text. Texts of different conditions differ.
    pub fn words(&self) -> Vec<String> {
        let methods = self.methods.iter().map(ToString::to_string);
        methods.chain(self.value_words()).collect()
    }

    /// Those on headers, query parameters and cookies, in text.
    pub fn value_words(&self) -> Vec<String> {
        self.on_values.iter().map(ToString::to_string).collect()
    }

    /// Why a request does not meet them.
    pub fn why_not(&self, request: RequestParts<'_>) -> String {
        let method = request.method;
        if takes(&self.methods, method) {
            let why = self.on_values.iter().filter_map(|condition| condition.why_not(request));
            return why.collect::<Vec<_>>().join("; ");
        }
        if self.methods.is_empty() {
            return format!("matches {method} only if its `methods` list it");
        }
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        format!("only for {}, not for {method}", methods.join(", "))
    }

    /// Why those of one route take precedence over those of another with the same host and path.
    pub fn precedence_over(&self, other: &Self) -> &'static str {
        let (conditions, others) = (&self.on_values, &other.on_values);
        if self.methods.is_empty() != other.methods.is_empty() {
            "a route that lists the method takes precedence over one for all methods"
        } else if conditions.len() != others.len() {
            "the route with more conditions takes precedence"
        } else if condition::specificity(conditions) != condition::specificity(others) {
            "a whole value takes precedence over a prefix, and a longer prefix over a shorter one"
        } else {
            "a route that lists HEAD takes precedence over one that accepts it as GET"
        }
    }

    /// Sort key: of two routes for one path, those of the more specific one are less. A route that
    /// lists HEAD takes precedence over one that matches it as GET.
    pub fn rank(&self) -> ConditionsRank {
        let specificity = condition::specificity(&self.on_values);
        (self.methods.is_empty(), specificity, !self.methods.contains(&Method::HEAD))
    }

    /// Whether a request exists that meets both with equal precedence, if they are as specific as
    /// each other.
    pub fn conflict_with(&self, other: &Self) -> bool {
        let has_common_method = match (self.methods.is_empty(), other.methods.is_empty()) {
            (true, true) => true,
            (false, false) => self.methods.iter().any(|method| other.methods.contains(method)),
            _ => false,
        };
        has_common_method && condition::are_compatible(&self.on_values, &other.on_values)
    }

    /// Whether these are met by every request that meets two others, which conflict.
    pub fn cover_both(&self, first: &Self, second: &Self) -> bool {
        let mut common = first.methods.iter().filter(|method| second.methods.contains(method));
        let takes_all = if first.methods.is_empty() {
            self.methods.is_empty()
        } else {
            common.all(|method| takes(&self.methods, method))
        };
        let both = || condition::both(&first.on_values, &second.on_values);
        takes_all && condition::imply(&both(), &self.on_values)
    }
}

impl Matcher {
    /// Which parts of a request match: explains why the router does not choose this route.
    /// `reading` is one reading of the path, see [`path`](super::path).
    pub fn matched_parts(
        &self,
        host: &str,
        reading: &str,
        request: RequestParts<'_>,
        ignore_case: bool,
    ) -> MatchedParts {
        MatchedParts {
            host: self.hosts.fit(host).is_some(),
            path: self.path.matches(reading, ignore_case)
                || self.is_slash_variant(reading, ignore_case),
            conditions: self.conditions.hold(request),
        }
    }

    /// Whether a reading of the path matches only because the route ignores a trailing slash.
    pub fn is_slash_variant(&self, reading: &str, ignore_case: bool) -> bool {
        let is_other = |other: String| params::matches(&other, false, reading, ignore_case);
        self.slash_variant().is_some_and(is_other)
    }

    /// Whether a reading of the path is below the route's only path, so that a prefix would match
    /// it.
    pub fn is_above(&self, reading: &str, ignore_case: bool) -> bool {
        let PathPattern::Exact(path) = &self.path else { return false };
        let prefix = format!("{}/", path.trim_end_matches('/'));
        prefix != "/" && params::matches(&prefix, true, reading, ignore_case)
    }

    /// Names and values of the parameters, from the path of a request that matches, as it was sent:
    /// not decoded. The values have no slash in any reading of the path, and are not empty.
    pub fn params<'a>(&'a self, path: &'a str) -> Params<'a> {
        self.params.values(path)
    }

    /// The path that differs from the route's own by a trailing slash only and is the same path:
    /// `/api/` for `/api`; `/api` for `/api/` and for the prefix `/api/*`. `None` if a trailing
    /// slash makes a different path.
    pub fn slash_variant(&self) -> Option<String> {
        if self.trailing_slash == TrailingSlash::Distinct {
            return None;
        }
        let path = self.path.text()?;
        match path.strip_suffix('/') {
            Some("") => None,
            Some(bare) => Some(bare.to_owned()),
            None => Some(format!("{path}/")),
        }
    }
}

/// Whether a route with these `methods` (empty: all) matches `method`. Servers handle HEAD like
/// GET, so a route that lists GET also matches HEAD. TRACE matches only if it is listed: its
/// response echoes headers that scripts in a browser must not read.
pub fn takes(methods: &[Method], method: &Method) -> bool {
    let is_listed = methods.contains(method);
    match *method {
        Method::TRACE => is_listed,
        Method::HEAD => is_listed || methods.is_empty() || methods.contains(&Method::GET),
        _ => is_listed || methods.is_empty(),
    }
}

impl MatchedParts {
    /// Whether the route matches the request.
    pub fn all(self) -> bool {
        self.host && self.path && self.conditions
    }
}

/// Canonical text (RFC 5952) of an IPv6 address in brackets; `None` if `host` is not one.
pub fn ipv6_host(host: &str) -> Option<String> {
    let address = host.strip_prefix('[')?.strip_suffix(']')?;
    Some(format!("[{}]", address.parse::<Ipv6Addr>().ok()?))
}
