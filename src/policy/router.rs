//! Finds the route of a request: the most specific one, whatever the order in the file.
//!
//! A route for the request's host takes precedence over one for all hosts below a name, the longer
//! name first, and that over one for all hosts. Then the paths are compared segment by segment: at
//! the first segment in which they differ, text takes precedence over a parameter, and both over
//! the `*` of a prefix; so an exact path takes precedence over a prefix, and a longer prefix over a
//! shorter one. Then a route that lists the method takes precedence over one for all methods.
//! Routes whose method does not match are skipped.
//!
//! If a route ignores a trailing slash, its path with the slash added or removed also matches as an
//! exact path, which is less specific than a path in the file: `/api/` matches first the route
//! `/api/`, then `/api`, then `/api/*`. Likewise `/api` matches the prefix `/api/*` after both of
//! these.

use std::collections::{HashMap, HashSet};

use http::Method;

use super::hosts::HostIndex;
use super::matcher::{Conditions, ConditionsRank, Matcher, PathPattern, RequestParts};
use super::network_path::{self, NetworkPath};
use super::params::{PathParams, param_name, segments};
use super::path::{self, PathError, Readings};
use super::prefixes::Prefixes;
use super::tree::Tree;

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
}

/// The routes of one host while the index is built, by the paths in which parameters have no names.
#[derive(Debug, Default)]
struct PathsBuilder {
    exact: HashMap<String, Vec<Candidate>>,
    prefix: HashMap<String, Vec<Candidate>>,
}

/// A route that matches a path. Lists of candidates are sorted, the most specific first.
#[derive(Debug)]
pub struct Candidate {
    /// Index of the route.
    pub route: u32,
    spelling: MatchKind,
    conditions: Conditions,
}

/// How a candidate's path relates to the route's path in the file, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchKind {
    /// The path as the file has it.
    Written,
    /// An exact path with the trailing slash added or removed.
    SlashVariant,
    /// A prefix without its trailing slash.
    BarePrefix,
}

impl Router {
    /// Builds the index. `matchers[n]` belongs to the route with index `n`.
    ///
    /// # Errors
    /// The pairs of routes that match the same requests with equal precedence, the earlier one
    /// first.
    pub fn new(matchers: &[Matcher], ignore_case: bool) -> Result<Self, Vec<(u32, u32)>> {
        let mut by_host: HostIndex<PathsBuilder> = HostIndex::default();
        let mut longest = 0;
        let mut params = HashMap::new();
        let mut conflicts = Vec::new();
        for (route, matcher) in (0..).zip(matchers) {
            if !matcher.params.is_empty() {
                params.insert(route, matcher.params.clone());
                longest = usize::MAX;
            }
            let fold = |path: &str| shape(path, ignore_case);
            let candidate =
                |spelling| Candidate { route, spelling, conditions: matcher.conditions.clone() };
            let (PathPattern::Exact(path) | PathPattern::Prefix(path)) = &matcher.path;
            let path = fold(path);
            let variant = matcher.slash_variant().map(|path| fold(&path));
            longest = longest.max(path.len()).max(variant.as_ref().map_or(0, String::len));
            let mut conflicts_of_route = HashSet::new();
            by_host.for_each(&matcher.hosts, |builder| {
                let (own, kind) = match &matcher.path {
                    PathPattern::Exact(_) => (&mut builder.exact, MatchKind::SlashVariant),
                    PathPattern::Prefix(_) => (&mut builder.prefix, MatchKind::BarePrefix),
                };
                let own = own.entry(path.clone()).or_default();
                let written = candidate(MatchKind::Written);
                let conflict = own.iter().find(|other| other.conflicts_with(&written));
                let conflict = conflict.map(|other| (other.route, route));
                // Two routes may have several hosts in common.
                conflicts.extend(conflict.filter(|pair| conflicts_of_route.insert(pair.0)));
                own.push(written);
                if let Some(variant) = &variant {
                    builder.exact.entry(variant.clone()).or_default().push(candidate(kind));
                }
            });
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        let has_hosts = matchers.iter().any(|matcher| !matcher.hosts.is_any());
        Ok(Self { by_host: by_host.map(Paths::of), ignore_case, longest, params, has_hosts })
    }

    /// Index of the route of a request, if one matches. `host` is in lower case, without port;
    /// `path` is the request's target, not decoded, without its query; `request` is the rest.
    ///
    /// # Errors
    /// The readings of the path match different routes or have different parameters, or the path is
    /// malformed.
    pub fn find(
        &self,
        host: &str,
        path: &str,
        request: RequestParts<'_>,
    ) -> Result<Option<u32>, PathError> {
        let (readings, own) = path::readings_and_own(path, self.ignore_case, self.longest)?;
        let mut routes = readings.iter().map(|reading| self.find_reading(host, reading, request));
        let route = routes.next().flatten();
        let is_one = routes.all(|other| other == route)
            && self.has_same_params(route, &readings)
            && self.has_same_route_on_own_host(route, path, &own, request);
        if is_one { Ok(route) } else { Err(PathError::Ambiguous) }
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

    /// Whether servers that take the beginning of the path for a host read the same route.
    /// `readings` are those of the rest.
    fn has_same_route_on_own_host(
        &self,
        route: Option<u32>,
        path: &str,
        readings: &Readings<'_>,
        request: RequestParts<'_>,
    ) -> bool {
        let Some((authority, _)) = network_path::split(path).filter(|_| self.has_hosts) else {
            return true;
        };
        network_path::host(authority).is_some_and(|host| {
            readings.iter().all(|reading| self.find_reading(&host, reading, request) == route)
        })
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
    pub fn find_reading(
        &self,
        host: &str,
        reading: &str,
        request: RequestParts<'_>,
    ) -> Option<u32> {
        let mut candidates = self.candidates(host, reading);
        let first = candidates.find(|candidate| candidate.conditions.hold(request));
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
        self.by_host.of(host).flat_map(move |paths| paths.candidates(reading))
    }
}

impl Paths {
    fn of(mut builder: PathsBuilder) -> Self {
        for candidates in builder.exact.values_mut().chain(builder.prefix.values_mut()) {
            candidates.sort_by_key(Candidate::rank);
        }
        let has_params =
            |path: &String| segments(path).any(|segment| param_name(segment).is_some());
        let PathsBuilder { exact, prefix } = builder;
        let (with_params, exact): (HashMap<_, _>, HashMap<_, _>) =
            exact.into_iter().partition(|(path, _)| has_params(path));
        let longest_exact = exact.keys().map(String::len).max().unwrap_or_default();
        let (prefixes, tree) = if with_params.is_empty() && !prefix.keys().any(has_params) {
            (Prefixes::new(prefix), None)
        } else {
            let tree = Tree::new(with_params.into_iter(), prefix.into_iter());
            (Prefixes::default(), Some(tree))
        };
        Self { exact, longest_exact, prefixes, tree }
    }

    fn candidates<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Candidate> {
        let fits = path.len() <= self.longest_exact;
        let exact = fits.then(|| self.exact.get(path)).flatten();
        // Lazy: not searched if an exact path matches.
        let others = std::iter::once(()).flat_map(move |()| {
            let tree = self.tree.iter().flat_map(move |tree| tree.of(path));
            self.prefixes.of(path).chain(tree)
        });
        exact.into_iter().chain(others).flatten()
    }
}

impl Candidate {
    /// Sort key: the more specific of two candidates for one path is less.
    fn rank(&self) -> (MatchKind, ConditionsRank) {
        (self.spelling, self.conditions.rank())
    }

    /// Whether a request exists that both match with equal precedence.
    fn conflicts_with(&self, other: &Self) -> bool {
        self.spelling == other.spelling && self.conditions.conflict_with(&other.conditions)
    }
}

/// A path in which parameters have no names, so that all paths that match the same requests are
/// equal.
fn shape(path: &str, ignore_case: bool) -> String {
    let mut shape = String::with_capacity(path.len());
    for segment in segments(path) {
        shape.push('/');
        shape.push_str(if param_name(segment).is_some() { "{}" } else { segment });
    }
    if ignore_case {
        shape.make_ascii_lowercase();
    }
    shape
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use http::HeaderMap;

    use super::*;
    use crate::policy::hosts::{HostPattern, Hosts};
    use crate::policy::matcher::TrailingSlash;

    fn of(method: &Method) -> RequestParts<'_> {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        RequestParts { method, headers: &NONE }
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
            conditions: Conditions { methods: methods.to_vec() },
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
                        taken.first().copied(),
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
}
