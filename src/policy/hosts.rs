//! Hosts of routes: `api.example.com`, or `*.example.com` for all names below one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use super::matcher::ipv6_host;
use crate::net::address::Authority;

/// The hosts of a route; empty: all hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Box<[HostPattern]>);

/// A host, or all hosts below a name. In lower case, without port and without a final dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host only.
    Exact(String),
    /// All hosts that end in this text, which begins with a dot, and have at least one character
    /// before it.
    Below(String),
}

/// How a host matches the hosts of a route, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostFit {
    /// The route has this host.
    Exact,
    /// The host is below a name of this length.
    Below(Reverse<usize>),
    /// The route is for all hosts.
    Any,
}

/// Values of hosts.
#[derive(Debug, Default)]
pub(super) struct HostIndex<T> {
    exact: HashMap<String, T>,
    below: HashMap<String, T>,
    /// Length of the longest key of `below`, in bytes.
    longest: usize,
    any: T,
}

/// The host of a `Host` header as routes compare it: in lower case, without port and without a
/// final dot. An IPv6 address in the form of [`ipv6_host`].
pub fn normalized(host: &str) -> Cow<'_, str> {
    let host = Authority::split(host).map_or(host, |authority| authority.host);
    if let Some(address) = ipv6_host(host) {
        return Cow::Owned(address);
    }
    let host = host.trim_end_matches('.');
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

// === impl Hosts ===

impl Hosts {
    /// The hosts of a route that is for these only; with none, the route is for all hosts.
    pub fn new(patterns: Vec<HostPattern>) -> Self {
        Self(patterns.into())
    }

    /// Whether the route is for all hosts.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Each host; none if the route is for all of them.
    pub(super) fn patterns(&self) -> &[HostPattern] {
        &self.0
    }

    /// The most specific way in which a host matches; `None`: it does not. `host` is in lower case,
    /// without port and without a final dot.
    pub fn fit(&self, host: &str) -> Option<HostFit> {
        if self.is_any() {
            return Some(HostFit::Any);
        }
        self.0.iter().filter_map(|pattern| pattern.fit(host)).min()
    }

    /// A host that both have, where two lists have one in common.
    pub fn common(&self, other: &Self) -> Option<String> {
        let common = self.0.iter().find(|pattern| other.0.contains(pattern))?;
        Some(match common {
            HostPattern::Exact(host) => host.clone(),
            HostPattern::Below(suffix) => format!("www{suffix}"),
        })
    }

    /// Text for people: the hosts, separated by commas. `None` if the route is for all hosts.
    pub fn text(&self) -> Option<String> {
        let each: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        (!each.is_empty()).then(|| each.join(", "))
    }
}

impl HostPattern {
    fn fit(&self, host: &str) -> Option<HostFit> {
        match self {
            Self::Exact(own) => (own == host).then_some(HostFit::Exact),
            Self::Below(own) => (host.len() > own.len() && host.ends_with(own.as_str()))
                .then_some(HostFit::Below(Reverse(own.len()))),
        }
    }
}

impl fmt::Display for HostPattern {
    /// The syntax of the file.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => formatter.write_str(host),
            Self::Below(suffix) => write!(formatter, "*{suffix}"),
        }
    }
}

// === impl HostIndex ===

impl<T: Default> HostIndex<T> {
    /// The values of each of the hosts, added where there is none.
    pub(super) fn for_each(&mut self, hosts: &Hosts, mut action: impl FnMut(&mut T)) {
        if hosts.is_any() {
            action(&mut self.any);
        }
        for pattern in hosts.patterns() {
            action(match pattern {
                HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
                HostPattern::Below(suffix) => {
                    self.longest = self.longest.max(suffix.len());
                    self.below.entry(suffix.clone()).or_default()
                }
            });
        }
    }
}

impl<T> HostIndex<T> {
    /// The index with other values.
    pub(super) fn map<U>(self, mut change: impl FnMut(T) -> U) -> HostIndex<U> {
        HostIndex {
            exact: self.exact.into_iter().map(|(host, value)| (host, change(value))).collect(),
            below: self.below.into_iter().map(|(host, value)| (host, change(value))).collect(),
            longest: self.longest,
            any: change(self.any),
        }
    }

    /// The values of a host, the most specific first: its own, those of the names that it is below
    /// from the longest to the shortest, and those of all hosts.
    pub(super) fn of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a T> {
        // The first character of a host is not part of a suffix.
        let from = host.len().saturating_sub(self.longest).max(1);
        let dots = host.bytes().enumerate().skip(from).filter(|(_, byte)| *byte == b'.');
        let below = dots.filter_map(|(dot, _)| self.below.get(host.get(dot..)?));
        self.exact.get(host).into_iter().chain(below).chain([&self.any])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        match text.strip_prefix('*') {
            Some(suffix) => HostPattern::Below(suffix.to_owned()),
            None => HostPattern::Exact(text.to_owned()),
        }
    }

    #[test]
    fn wildcard_matches_one_label_or_more() {
        let hosts = Hosts::new(vec![pattern("*.example.com")]);
        for (host, expected) in [
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("example.com", false),
            (".example.com", false),
            ("badexample.com", false),
            ("a.example.com.evil.test", false),
            ("", false),
        ] {
            assert_eq!(hosts.fit(host).is_some(), expected, "{host}");
        }
    }

    #[test]
    fn hosts_are_found_from_the_most_specific_to_all() {
        let lists = [
            vec![],
            vec!["*.example.com"],
            vec!["*.b.example.com"],
            vec!["a.b.example.com", "c.example.com"],
            vec!["*.com", "a.b.example.com"],
        ];
        let lists = lists.map(|list| Hosts::new(list.into_iter().map(pattern).collect::<Vec<_>>()));
        let mut index = HostIndex::<Vec<usize>>::default();
        for (number, hosts) in lists.iter().enumerate() {
            index.for_each(hosts, |list| list.push(number));
        }
        let found = |host: &str| index.of(host).flatten().copied().collect::<Vec<_>>();
        assert_eq!(found("a.b.example.com"), [3, 4, 2, 1, 4, 0]);
        assert_eq!(found("x.a.b.example.com"), [2, 1, 4, 0]);
        assert_eq!(found("c.example.com"), [3, 1, 4, 0]);
        assert_eq!(found("example.com"), [4, 0]);
        assert_eq!(found(".com"), [0]);
        assert_eq!(found("com"), [0]);
        assert_eq!(found(""), [0]);
        assert_eq!(found("ü.com"), [4, 0]);
        for host in ["a.b.example.com", "c.example.com", "x.example.com", "example.com", "x"] {
            let mut matching: Vec<_> = (0..)
                .zip(&lists)
                .filter_map(|(number, hosts)| Some((hosts.fit(host)?, number)))
                .collect();
            matching.sort_unstable();
            let mut first = found(host);
            let mut seen = std::collections::HashSet::new();
            first.retain(|number| seen.insert(*number));
            let matching: Vec<usize> = matching.into_iter().map(|(_, number)| number).collect();
            assert_eq!(first, matching, "{host}");
        }
    }
}
