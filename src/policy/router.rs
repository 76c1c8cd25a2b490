//! Finds the route of a request: the most specific one, whatever the order in the file.
//!
//! A route for the request's host takes precedence over one for all hosts below a name, the longer
//! name first, and that over one for all hosts. Then the paths are compared segment by segment: at
//! the first segment in which they differ, text takes precedence over a parameter, and both over
//! the `*` of a prefix; so an exact path takes precedence over a prefix, and a longer prefix over a
//! shorter one. After all of them come regular expressions, in the order of the file, and last
//! `/*`. Then a route that lists the method takes precedence over one for all methods, and one with
//! more conditions on headers, query parameters and cookies over one with fewer. Routes whose
//! method or conditions do not match are skipped.
//!
//! If a route ignores a trailing slash, its path with the slash added or removed also matches as an
//! exact path, which is less specific than a path in the file: `/api/` matches first the route
//! `/api/`, then `/api`, then `/api/*`. Likewise `/api` matches the prefix `/api/*` after both of
//! these.

mod build;
mod search;

use std::collections::HashMap;

use http::Method;

use super::condition::Outcome;
use super::expression::Expression;
use super::hosts::HostIndex;
use super::matcher::{self, Conditions, RequestParts};
use super::network_path::{self, NetworkPath};
use super::params::PathParams;
use super::path::{self, PathError, Readings};
use super::prefixes::Prefixes;
use super::request_values::SourceIndex;
use super::tree::Tree;
use build::Rank;
use search::Search;

/// The index over all routes.
#[derive(Debug, Default)]
pub struct Router {
    by_host: HostIndex<Paths>,
    ignore_case: bool,
    /// Length of the longest path of any route, in bytes. A path with parameters may have any
    /// length.
    longest: usize,
    /// Parameters of the routes that have some, by the index of the route.
    params: HashMap<u32, PathParams>,
    /// Whether a route is not for all hosts.
    has_hosts: bool,
    /// Whether all routes match by host, path and method only, and no path is an expression.
    is_plain: bool,
    /// Headers, query parameters and cookies in conditions.
    sources: SourceIndex,
}

/// The routes of one host.
#[derive(Debug, Default)]
struct Paths {
    /// The paths without parameters. Includes the slash variants of all routes.
    exact: HashMap<String, Vec<Candidate>>,
    /// Length of the longest of these, in bytes.
    longest_exact: usize,
    /// Prefixes of a host without parameters.
    prefixes: Prefixes<Vec<Candidate>>,
    /// Paths with parameters, and the prefixes of their host.
    tree: Option<Tree<Candidate>>,
    /// What comes after all of these; none without expressions.
    last: Option<Box<LastPaths>>,
}

/// The least specific routes of a host with expressions.
#[derive(Debug)]
struct LastPaths {
    /// The different expressions, in the order of the file.
    expressions: Vec<(Expression, Vec<Candidate>)>,
    /// The routes for all paths, which are among the prefixes of other hosts.
    all: Vec<Candidate>,
}

/// A route that matches a path. Lists of candidates are sorted, the most specific first.
#[derive(Debug)]
pub struct Candidate {
    /// Index of the route.
    pub route: u32,
    rank: Rank,
    conditions: Conditions,
    /// The numbers of the sources of [`Conditions::on_values`].
    sources: Box<[u32]>,
}

impl Router {
    /// Index of the route of a request, if one matches. `host` is in lower case, without port;
    /// `path` is the request's target, not decoded, without its query; `request` is the rest.
    ///
    /// # Errors
    /// The readings of the path or of the values of conditions match different routes or have
    /// different parameters, or the path is malformed.
    pub fn find(
        &self,
        host: &str,
        path: &str,
        request: RequestParts<'_>,
    ) -> Result<Option<u32>, PathError> {
        if self.is_plain {
            return self.find_by(host, path, |host, reading| {
                Ok(self.find_plain(host, reading, request.method))
            });
        }
        let search = Search::new(self, request);
        self.find_by(host, path, |host, reading| search.find(host, reading))
    }

    /// Index of the route for a preflight request, which a browser sends before the request that
    /// `request.method` is of: the most specific route whose host, path, method and query match.
    /// Conditions on headers and cookies are taken as met, since a preflight request has only the
    /// names of the headers to come, and no cookies; its own headers are not read.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_for_preflight(
        &self,
        host: &str,
        path: &str,
        request: RequestParts<'_>,
    ) -> Result<Option<u32>, PathError> {
        let search = Search::new(self, request).without_headers();
        self.find_by(host, path, |host, reading| search.find(host, reading))
    }

    /// The route of a request, if `find_reading` returns the same one for all hosts and readings of
    /// its path.
    fn find_by(
        &self,
        host: &str,
        path: &str,
        find_reading: impl Fn(&str, &str) -> Result<Option<u32>, PathError>,
    ) -> Result<Option<u32>, PathError> {
        let (readings, own) = path::readings_and_own(path, self.ignore_case, self.longest)?;
        let [first, others @ ..] = readings.as_slice() else { return Ok(None) };
        let route = find_reading(host, first)?;
        for reading in others {
            if find_reading(host, reading)? != route {
                return Err(PathError::Ambiguous);
            }
        }
        if !self.has_same_params(route, &readings) {
            return Err(PathError::Ambiguous);
        }
        // Servers that take the beginning of the path for a host must read the same route.
        if let Some((authority, _)) = network_path::split(path).filter(|_| self.has_hosts) {
            let Some(host) = network_path::host(authority) else {
                return Err(PathError::Ambiguous);
            };
            for reading in &own {
                if find_reading(&host, reading)? != route {
                    return Err(PathError::Ambiguous);
                }
            }
        }
        Ok(route)
    }

    /// Whether the parameters of a route that matches all readings have the same values in each:
    /// `a%2Fb` is `a` to some servers.
    fn has_same_params(&self, route: Option<u32>, readings: &Readings<'_>) -> bool {
        let [first, others @ ..] = readings.as_slice() else { return true };
        if others.is_empty() {
            return true;
        }
        let Some(params) = route.and_then(|route| self.params.get(&route)) else { return true };
        let values = params.values(first);
        others.iter().all(|other| params.values(other) == values)
    }

    /// The readings of a path with a host of its own; `None` if it has none, or if all routes are
    /// for all hosts.
    ///
    /// # Errors
    /// The path is malformed.
    pub fn network_path<'a>(&self, path: &'a str) -> Result<Option<NetworkPath<'a>>, PathError> {
        if !self.has_hosts {
            return Ok(None);
        }
        path::network_path(path, self.ignore_case, self.longest)
    }

    /// The readings of a path, see [`path`](super::path). Long ones are truncated beyond the length
    /// of any route's path.
    ///
    /// # Errors
    /// The path is malformed.
    pub fn readings<'a>(&self, path: &'a str) -> Result<Readings<'a>, PathError> {
        path::readings(path, self.ignore_case, self.longest)
    }

    /// Index of the route for one reading of the path, if one matches.
    ///
    /// # Errors
    /// The route depends on which value of a header, a query parameter or a cookie a server reads.
    pub fn find_reading(
        &self,
        host: &str,
        reading: &str,
        request: RequestParts<'_>,
    ) -> Result<Option<u32>, PathError> {
        Search::new(self, request).find(host, reading)
    }

    /// The same in a table in which all routes match by host, path and method.
    fn find_plain(&self, host: &str, reading: &str, method: &Method) -> Option<u32> {
        let mut candidates = self.by_host.of(host).flat_map(move |paths| paths.specific(reading));
        let first =
            candidates.find(|candidate| matcher::takes(&candidate.conditions.methods, method));
        first.map(|candidate| candidate.route)
    }

    /// The methods that the routes for a host and a path list, unsorted and with duplicates; `None`
    /// if one of the routes is for all methods.
    pub fn methods(&self, host: &str, path: &str) -> Option<Vec<Method>> {
        let readings = self.readings(path).unwrap_or_default();
        let candidates = readings.iter().flat_map(|reading| self.candidates(host, reading));
        let mut methods = Vec::new();
        for candidate in candidates {
            if candidate.conditions.methods.is_empty() {
                return None;
            }
            methods.extend_from_slice(&candidate.conditions.methods);
        }
        Some(methods)
    }

    /// The routes whose host and path match, the most specific first. The first of them whose
    /// conditions the request meets is the route. A route with several hosts may be there more than
    /// once.
    pub fn candidates<'a>(
        &'a self,
        host: &'a str,
        reading: &'a str,
    ) -> impl Iterator<Item = &'a Candidate> {
        let of_paths = move |paths: &'a Paths| {
            let last = paths.last.iter().flat_map(move |last| last.of(reading));
            paths.specific(reading).chain(last)
        };
        self.by_host.of(host).flat_map(of_paths)
    }
}

impl Paths {
    /// The routes whose paths match, except [`last`](Self::last).
    fn specific<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Candidate> {
        self.specific_lists(path).flatten()
    }

    /// The same, those of each path in a list of their own.
    fn specific_lists<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Vec<Candidate>> {
        let fits = path.len() <= self.longest_exact;
        let exact = fits.then(|| self.exact.get(path)).flatten();
        // Lazy: not searched if an exact path matches.
        let others = std::iter::once(()).flat_map(move |()| {
            let tree = self.tree.iter().flat_map(move |tree| tree.of(path));
            self.prefixes.of(path).chain(tree)
        });
        exact.into_iter().chain(others)
    }
}

impl LastPaths {
    fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Candidate> {
        let matching = self.expressions.iter().filter(|(expression, _)| expression.matches(path));
        let all = path.starts_with('/').then_some(&self.all);
        matching.flat_map(|(_, candidates)| candidates).chain(all.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::policy::condition::{Condition, Source, Test};
    use crate::policy::hosts::{HostPattern, Hosts};
    use crate::policy::matcher::{Matcher, PathPattern, TrailingSlash};

    fn of(method: &Method) -> RequestParts<'_> {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        RequestParts { method, headers: &NONE, query: None }
    }

    fn host_pattern(text: &str) -> HostPattern {
        match text.strip_prefix('*') {
            Some(suffix) => HostPattern::Below(suffix.to_owned()),
            None => HostPattern::Exact(text.to_owned()),
        }
    }

    fn matcher(host: Option<&str>, path: &str, methods: &[Method]) -> Matcher {
        let path = match path.strip_suffix('*') {
            Some(prefix) => PathPattern::Prefix(prefix.to_string()),
            None => PathPattern::Exact(path.to_string()),
        };
        Matcher {
            hosts: Hosts::new(host.into_iter().map(host_pattern).collect()),
            params: PathParams::of(&path.to_string()),
            path,
            trailing_slash: TrailingSlash::Same,
            conditions: Conditions { methods: methods.to_vec(), ..Conditions::default() },
        }
    }

    fn all() -> Vec<Matcher> {
        vec![
            matcher(None, "/*", &[]),
            matcher(None, "/api/*", &[]),
            matcher(None, "/api/search", &[Method::GET]),
            matcher(None, "/api/search", &[]),
            matcher(Some("a.example"), "/api/*", &[]),
            matcher(Some("a.example"), "/only", &[Method::POST]),
        ]
    }

    #[test]
    fn most_specific_route_wins_in_any_order() {
        let table = [
            ("x", "/", Method::GET, Some(0)),
            ("x", "/api", Method::GET, Some(1)),
            ("x", "/apis", Method::GET, Some(0)),
            ("x", "/api/", Method::GET, Some(1)),
            ("x", "/api/other/deep", Method::GET, Some(1)),
            ("x", "/api/search", Method::GET, Some(2)),
            ("x", "/api/search", Method::POST, Some(3)),
            ("x", "/api/search", Method::HEAD, Some(2)),
            ("x", "/api/search/", Method::GET, Some(2)),
            ("x", "/api/search/", Method::POST, Some(3)),
            ("x", "/api/search/x", Method::POST, Some(1)),
            ("x", "/api", Method::TRACE, None),
            ("a.example", "/api/search", Method::GET, Some(4)),
            ("a.example", "/only", Method::POST, Some(5)),
            ("a.example", "/only", Method::GET, Some(0)),
            ("x", "*", Method::OPTIONS, None),
        ];
        let forward = Router::new(&all(), false).unwrap();
        let mut reversed = all();
        reversed.reverse();
        let backward = Router::new(&reversed, false).unwrap();
        let last = u32::try_from(all().len()).unwrap() - 1;
        for (host, path, method, expected) in table {
            assert_eq!(
                forward.find(host, path, of(&method)),
                Ok(expected),
                "{method} {host}{path}"
            );
            let mirrored = expected.map(|route| last - route);
            assert_eq!(
                backward.find(host, path, of(&method)),
                Ok(mirrored),
                "{method} {host}{path}"
            );
        }
    }

    /// `explain` reports why a route does not match; that must agree with the index.
    #[test]
    fn matched_parts_agree_with_the_candidates_of_the_index() {
        let paths = [
            "/",
            "/api",
            "/api/",
            "/api/search",
            "/api/search/",
            "/API/search",
            "/API/search/",
            "/only",
            "/only/",
            "/Slash",
            "/slash/",
            "*",
            "/a/b/c",
            "/users/7",
            "/users/7/",
            "/users/me",
            "/users//",
            "/users/7/files/x",
            "/Users/me/files",
        ];
        for ignore_case in [false, true] {
            let router = Router::new(&spellings(), ignore_case).unwrap();
            for (host, path) in
                ["a.example", "x"].map(|host| paths.map(|path| (host, path))).concat()
            {
                for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::TRACE]
                {
                    let reading = &router.readings(path).unwrap()[0];
                    let candidates = router.candidates(host, reading);
                    let mut taken: Vec<u32> = candidates
                        .filter(|one| one.conditions.hold(of(&method)))
                        .map(|one| one.route)
                        .collect();
                    assert_eq!(
                        Ok(taken.first().copied()),
                        router.find_reading(host, reading, of(&method))
                    );
                    taken.sort_unstable();
                    let matches = |matcher: &Matcher| {
                        matcher.matched_parts(host, reading, of(&method), ignore_case).all()
                    };
                    let matching = (0..).zip(spellings()).filter(|(_, matcher)| matches(matcher));
                    let matching: Vec<u32> = matching.map(|(route, _)| route).collect();
                    assert_eq!(taken, matching, "{method} {host}{path}");
                }
            }
        }
    }

    /// [`all`], and routes that differ only by a trailing slash or by HEAD.
    fn spellings() -> Vec<Matcher> {
        let distinct = |path, methods: &[Method]| Matcher {
            trailing_slash: TrailingSlash::Distinct,
            ..matcher(None, path, methods)
        };
        let mut all = all();
        all.extend([
            matcher(None, "/slash", &[]),
            matcher(None, "/slash/", &[Method::GET]),
            matcher(None, "/slash/", &[Method::HEAD]),
            matcher(None, "/slash/*", &[]),
            distinct("/own", &[]),
            distinct("/own/*", &[]),
            matcher(None, "/traced", &[Method::TRACE]),
            matcher(None, "/users/{id}", &[]),
            matcher(None, "/users/me", &[]),
            matcher(None, "/users/{id}/", &[Method::PUT]),
            matcher(None, "/users/{id}/files/*", &[]),
            matcher(None, "/{kind}/me/*", &[]),
            distinct("/{kind}/7", &[]),
        ]);
        all
    }

    #[test]
    fn path_in_the_file_takes_precedence_over_a_slash_variant() {
        let first = u32::try_from(all().len()).unwrap();
        let [slash, with_slash, head, below, own, below_own, traced] =
            [0, 1, 2, 3, 4, 5, 6].map(|place| Some(first + place));
        let rest = Some(0);
        let table = [
            ("/slash", Method::GET, slash),
            ("/slash", Method::HEAD, slash),
            ("/slash/", Method::GET, with_slash),
            ("/slash/", Method::HEAD, head),
            ("/slash/", Method::PUT, slash),
            ("/slash/x", Method::GET, below),
            ("/own", Method::GET, own),
            ("/own/", Method::GET, below_own),
            ("/own/x/", Method::GET, below_own),
            ("/only/", Method::POST, rest),
            ("/traced", Method::TRACE, traced),
            ("/traced/", Method::TRACE, traced),
            ("/traced", Method::GET, rest),
        ];
        let router = Router::new(&spellings(), false).unwrap();
        for (path, method, expected) in table {
            assert_eq!(router.find("x", path, of(&method)), Ok(expected), "{method} {path}");
        }
        // Some servers treat `//` at the end like `/`, others do not.
        assert_eq!(router.find("x", "/slash//", of(&Method::GET)), Err(PathError::Ambiguous));
        let distinct = [matcher(None, "/*", &[]), matcher(None, "/own/*", &[])];
        let distinct =
            distinct.map(|one| Matcher { trailing_slash: TrailingSlash::Distinct, ..one });
        let router = Router::new(&distinct, false).unwrap();
        assert_eq!(router.find("x", "/own", of(&Method::GET)), Ok(rest));
    }

    #[test]
    fn ambiguous_routes_are_reported() {
        let table: [(&[Method], &[Method], bool); 4] = [
            (&[], &[], true),
            (&[Method::GET, Method::POST], &[Method::POST], true),
            (&[Method::GET], &[Method::POST], false),
            (&[Method::GET], &[], false),
        ];
        for (first, second, is_ambiguous) in table {
            let matchers = [matcher(None, "/a/*", first), matcher(None, "/a/*", second)];
            let found = Router::new(&matchers, false).err();
            assert_eq!(found, is_ambiguous.then(|| vec![(0, 1)]), "{first:?} and {second:?}");
        }
        let cases = [matcher(None, "/A", &[]), matcher(None, "/a", &[])];
        assert!(Router::new(&cases, false).is_ok());
        assert!(Router::new(&cases, true).is_err());
    }

    #[test]
    fn row_62_no_spelling_of_a_path_gets_another_route() {
        let router = Router::new(&all(), false).unwrap();
        let refused = [
            "/api%2fsearch",
            "/api//search",
            "/api\\search",
            "/api/search;x",
            "//api/search",
            "//x/api/search",
            "///x/api/search",
            "/\\x/api/search",
            "/api/%2Fsearch",
            "/x/../api/search",
            "/api/./search",
            "/%2e/api/search",
            "/api;x/search",
            "/api/%2e%2e/api/search",
        ];
        for path in refused {
            assert!(router.find("x", path, of(&Method::GET)).is_err(), "{path}");
        }
        // A path passes if all of its readings match the same route.
        assert_eq!(router.find("x", "/api/%73earch", of(&Method::GET)), Ok(Some(2)));
        assert_eq!(router.find("x", "/api/group%2Fproject", of(&Method::GET)), Ok(Some(1)));
        assert_eq!(router.find("x", "/files//a;b", of(&Method::GET)), Ok(Some(0)));
        assert_eq!(router.find("x", "/API/SEARCH", of(&Method::GET)), Ok(Some(0)));
        let ignoring_case = Router::new(&all(), true).unwrap();
        assert_eq!(ignoring_case.find("x", "/API/SEARCH", of(&Method::GET)), Ok(Some(2)));
    }

    #[test]
    fn path_with_a_host_of_its_own_is_also_matched_on_that_host() {
        let matchers = [matcher(None, "/*", &[]), matcher(Some("dear.test"), "/*", &[])];
        let router = Router::new(&matchers, false).unwrap();
        let find = |host, path| router.find(host, path, of(&Method::GET));
        for path in [
            "//dear.test/x",
            "/\\dear.test/x",
            "///u@DEAR.test.:80/x",
            "//de%61r.test/x",
            "/%2Fdear.test/x",
            "/%5c/dear.test%2Fx",
        ] {
            assert_eq!(find("cheap.test", path), Err(PathError::Ambiguous), "{path}");
        }
        assert_eq!(find("dear.test", "//dear.test/x"), Ok(Some(1)));
        assert_eq!(find("dear.test", "//cheap.test/x"), Err(PathError::Ambiguous));
        assert_eq!(find("cheap.test", "//other.test/x"), Ok(Some(0)));
        assert_eq!(find("cheap.test", "/%2Fother.test/x"), Ok(Some(0)));
        assert_eq!(find("dear.test", "/%2Fdear.test/x"), Ok(Some(1)));
        assert_eq!(find("cheap.test", "/a//dear.test/x"), Ok(Some(0)));
        // Without routes for hosts, the host makes no difference.
        let router = Router::new(&matchers[..1], false).unwrap();
        assert_eq!(router.find("cheap.test", "//de%61r.test/x", of(&Method::GET)), Ok(Some(0)));
    }

    #[test]
    fn parameters_match_one_segment_and_text_precedes_them() {
        let matchers = [
            matcher(None, "/*", &[]),
            matcher(None, "/v1/{tenant}/chat", &[]),
            matcher(None, "/v1/acme/chat", &[Method::GET]),
            matcher(None, "/v1/{tenant}/*", &[]),
            matcher(None, "/v1/acme/*", &[]),
            matcher(None, "/{version}/acme/chat", &[]),
        ];
        let table = [
            ("/v1/other/chat", Method::GET, Some(1)),
            ("/v1/other/chat/", Method::GET, Some(1)),
            ("/v1/acme/chat", Method::GET, Some(2)),
            // Text of the second segment precedes a parameter, also in a prefix.
            ("/v1/acme/chat", Method::POST, Some(4)),
            ("/v1/acme", Method::POST, Some(4)),
            ("/v1/other/x", Method::GET, Some(3)),
            ("/v1/other", Method::GET, Some(3)),
            ("/v1/", Method::GET, Some(0)),
            ("/v1", Method::GET, Some(0)),
            ("/v2/acme/chat", Method::GET, Some(5)),
            ("/v2/other/chat", Method::GET, Some(0)),
        ];
        let router = Router::new(&matchers, false).unwrap();
        for (path, method, expected) in table {
            assert_eq!(router.find("x", path, of(&method)), Ok(expected), "{method} {path}");
        }
    }

    #[test]
    fn no_spelling_of_a_parameter_gets_another_route() {
        let matchers = [
            matcher(None, "/*", &[]),
            matcher(None, "/v1/{tenant}/chat", &[]),
            matcher(None, "/files/{owner}/*", &[]),
        ];
        let router = Router::new(&matchers, false).unwrap();
        let find = |path| router.find("x", path, of(&Method::GET));
        for path in [
            "/v1/a%2Fb/chat",
            "/v1/a\\b/chat",
            "/v1/a%5cb/chat",
            "/v1/a/%2fchat",
            "/v1%2fa/chat",
            "/v1/a%2fchat",
            "/v1/a//chat",
            "//v1/a/chat",
            "/v1/;x/chat",
            // One route, but another value of the parameter.
            "/v1/a;x/chat",
            "/files/a%2Fb/c",
            "/files/a\\b/c",
        ] {
            assert_eq!(find(path), Err(PathError::Ambiguous), "{path}");
        }
        assert_eq!(find("/v1/%61%20b/chat"), Ok(Some(1)));
        assert_eq!(find("/v1//chat"), Ok(Some(0)));
        assert_eq!(find("/files/a/b%2Fc//d;e"), Ok(Some(2)));
        let long = format!("/v1/{}/chat", "%61".repeat(2_000));
        assert_eq!(find(&long), Ok(Some(1)));
    }

    #[test]
    fn paths_that_differ_in_the_names_of_parameters_are_ambiguous() {
        let conflicts = |first, second| {
            Router::new(&[matcher(None, first, &[]), matcher(None, second, &[])], false).err()
        };
        assert_eq!(conflicts("/a/{x}", "/a/{y}"), Some(vec![(0, 1)]));
        assert_eq!(conflicts("/{x}/*", "/{y}/*"), Some(vec![(0, 1)]));
        assert_eq!(conflicts("/{x}/b", "/a/{y}"), None);
        assert_eq!(conflicts("/{x}", "/{x}/"), None);
        assert_eq!(conflicts("/{x}", "/{x}/*"), None);
    }

    /// Three routes for one path, with all conditions that make a difference.
    #[test]
    fn routes_conflict_exactly_if_no_most_specific_one_matches_a_request() {
        let begins = Test::Begins("1".into());
        let tests = [Test::Present, Test::Absent, is("1"), is("12"), begins];
        let tests: Vec<Option<Test>> =
            std::iter::once(None).chain(tests.into_iter().map(Some)).collect();
        let lists: Vec<Vec<Condition>> = tests
            .iter()
            .flat_map(|a| tests.iter().map(move |b| conditions(a.as_ref(), b.as_ref())))
            .collect();
        let values = [None, Some("0"), Some("1"), Some("12"), Some("13")];
        let requests: Vec<HeaderMap> =
            values.iter().flat_map(|a| values.iter().map(move |b| headers(*a, *b))).collect();
        let lists = lists.as_slice();
        let tables = lists.iter().flat_map(|one| {
            lists.iter().flat_map(move |other| [6, 21, 28].map(|at| [one, other, &lists[at]]))
        });
        for table in tables {
            let matchers = table.map(|list| Matcher {
                conditions: Conditions { methods: vec![], on_values: list.clone().into() },
                ..matcher(None, "/a", &[])
            });
            let is_tie = requests.iter().any(|headers| {
                let request = RequestParts { method: &Method::GET, headers, query: None };
                let matching = matchers.iter().filter(|one| one.conditions.hold(request));
                let mut ranks: Vec<_> = matching.map(|one| one.conditions.rank()).collect();
                ranks.sort_unstable();
                matches!(ranks.as_slice(), [first, second, ..] if first == second)
            });
            assert_eq!(Router::new(&matchers, false).is_err(), is_tie, "{matchers:?}");
        }
    }

    fn is(text: &str) -> Test {
        Test::Is(text.into())
    }

    fn conditions(a: Option<&Test>, b: Option<&Test>) -> Vec<Condition> {
        let each = [("a", a), ("b", b)].into_iter().filter_map(|(name, test)| {
            let source = Source::Header(name.into());
            Some(Condition { source, test: test?.clone(), is_secret: false })
        });
        each.collect()
    }

    fn headers(a: Option<&'static str>, b: Option<&'static str>) -> HeaderMap {
        let each = [("a", a), ("b", b)].into_iter().filter_map(|(name, value)| {
            Some((http::HeaderName::from_static(name), HeaderValue::from_static(value?)))
        });
        each.collect()
    }

    #[test]
    fn preflight_request_gets_the_route_whatever_its_headers() {
        let with = |list: Vec<Condition>, methods: &[Method]| Matcher {
            conditions: Conditions { methods: methods.to_vec(), on_values: list.into() },
            ..matcher(None, "/a", &[])
        };
        let query = |test| Condition { source: Source::Query("q".into()), test, is_secret: false };
        let matchers = [
            with(vec![], &[]),
            with(conditions(Some(&is("1")), None), &[Method::PUT]),
            with(vec![query(Test::Is("1".into()))], &[Method::POST]),
        ];
        let router = Router::new(&matchers, false).unwrap();
        let find = |method, query| {
            let request = RequestParts { method: &method, headers: &HeaderMap::new(), query };
            router.find_for_preflight("x", "/a", request)
        };
        assert_eq!(find(Method::PUT, None), Ok(Some(1)));
        assert_eq!(find(Method::GET, None), Ok(Some(0)));
        assert_eq!(find(Method::POST, Some("q=1")), Ok(Some(2)));
        assert_eq!(find(Method::POST, Some("q=2")), Ok(Some(0)));
        assert_eq!(find(Method::POST, Some("q=1&q=2")), Err(PathError::DifferentValues));
    }

    #[test]
    fn expressions_come_before_the_route_for_all_paths_and_after_all_others() {
        let expression = |text: &str| Matcher {
            path: PathPattern::Expression(Expression::parse(text, false).unwrap()),
            ..matcher(None, "/*", &[])
        };
        let matchers = [
            matcher(None, "/*", &[]),
            expression("^/v[0-9]+/search$"),
            expression("search"),
            matcher(None, "/v2/*", &[]),
            matcher(Some("own.test"), "/*", &[]),
            Matcher {
                conditions: Conditions { methods: vec![Method::PUT], ..Conditions::default() },
                ..expression("^/v[0-9]+/search$")
            },
        ];
        let router = Router::new(&matchers, false).unwrap();
        let find = |host, path, method| router.find(host, path, of(&method));
        let get = Method::GET;
        assert_eq!(find("x", "/v1/search", get.clone()), Ok(Some(1)));
        assert_eq!(find("x", "/v%31/%73earch", get.clone()), Ok(Some(1)));
        assert_eq!(find("x", "/v1/search", Method::PUT), Ok(Some(5)));
        assert_eq!(find("x", "/v1/search/", get.clone()), Ok(Some(2)));
        assert_eq!(find("x", "/v2/search", get.clone()), Ok(Some(3)));
        assert_eq!(find("x", "/v1/other", get.clone()), Ok(Some(0)));
        assert_eq!(find("own.test", "/v1/search", get.clone()), Ok(Some(4)));
        assert_eq!(find("x", "*", Method::OPTIONS), Ok(None));
        for path in ["/v1//search", "/v1%2fsearch", "/v1/search;x"] {
            assert_eq!(find("x", path, get.clone()), Err(PathError::Ambiguous), "{path}");
        }
        let twice = [expression("a"), expression("b"), expression("a")];
        assert_eq!(Router::new(&twice, false).unwrap_err(), [(0, 2)]);
    }
}
