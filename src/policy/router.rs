//! Finds the route of a request: the most specific wins, whatever the order in the file.
//!
//! A route for the request's host goes before one for all hosts; then an exact path before a
//! prefix, a longer prefix before a shorter; then a route that names the method before one for all
//! methods. A route whose method does not match is passed over.
//!
//! Where a trailing slash makes no difference to a route, its other spelling is an exact path, too,
//! less specific than one that is written in the file: `/api/` is first the route `/api/`, then
//! `/api`, then `/api/*`. So is `/api` for the prefix `/api/*`, behind both.

use std::collections::HashMap;

use http::Method;

use super::matcher::{Matcher, PathPattern, takes};
use super::path::{self, PathError, Readings};
use super::prefixes::Prefixes;

/// The index over all routes.
#[derive(Debug, Default)]
pub struct Router {
    by_host: HashMap<String, Paths>,
    any_host: Paths,
    ignore_case: bool,
    /// Bytes of the longest path that a route has.
    longest: usize,
}

/// The routes of one host.
#[derive(Debug, Default)]
struct Paths {
    /// With the other spellings of all routes.
    exact: HashMap<String, Vec<Candidate>>,
    /// Bytes of the longest exact path.
    longest_exact: usize,
    prefixes: Prefixes<Vec<Candidate>>,
}

/// The routes of one host while they are collected.
#[derive(Debug, Default)]
struct Draft {
    exact: HashMap<String, Vec<Candidate>>,
    prefix: HashMap<String, Vec<Candidate>>,
}

/// A route under a path. A list of them is sorted, the most specific first.
#[derive(Debug)]
pub struct Candidate {
    /// Index of the route.
    pub route: u32,
    spelling: Spelling,
    methods: Vec<Method>,
}

/// How a path stands to the one that a route has in the file. The most specific is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spelling {
    /// It is the same.
    Written,
    /// It is that of an exact path with a trailing slash more or less.
    OtherSlash,
    /// It is that of a prefix without its slash.
    BarePrefix,
}

impl Router {
    /// An index over `matchers`, whose positions are the routes' indexes.
    ///
    /// # Errors
    /// The pairs of routes that no request can tell apart, the earlier one first.
    pub fn new(matchers: &[Matcher], ignore_case: bool) -> Result<Self, Vec<(u32, u32)>> {
        let mut by_host: HashMap<String, Draft> = HashMap::new();
        let mut any_host = Draft::default();
        let mut longest = 0;
        let mut twins = Vec::new();
        for (route, matcher) in (0..).zip(matchers) {
            let draft = match &matcher.host {
                Some(host) => by_host.entry(host.clone()).or_default(),
                None => &mut any_host,
            };
            let fold = |path: &str| {
                if ignore_case { path.to_ascii_lowercase() } else { path.to_owned() }
            };
            let candidate =
                |spelling| Candidate { route, spelling, methods: matcher.methods.clone() };
            let (own, other) = match &matcher.path {
                PathPattern::Exact(path) => (draft.exact.entry(fold(path)), Spelling::OtherSlash),
                PathPattern::Prefix(path) => (draft.prefix.entry(fold(path)), Spelling::BarePrefix),
            };
            longest = longest.max(own.key().len());
            let own = own.or_default();
            let written = candidate(Spelling::Written);
            let twin = own.iter().find(|other| other.conflicts_with(&written));
            twins.extend(twin.map(|other| (other.route, route)));
            own.push(written);
            if let Some(path) = matcher.other_spelling() {
                longest = longest.max(path.len());
                draft.exact.entry(fold(&path)).or_default().push(candidate(other));
            }
        }
        if !twins.is_empty() {
            return Err(twins);
        }
        let by_host = by_host.into_iter().map(|(host, draft)| (host, Paths::of(draft))).collect();
        Ok(Self { by_host, any_host: Paths::of(any_host), ignore_case, longest })
    }

    /// The route of a request, where it has one. `host` is in lower case, without port; `path`
    /// is the request's target as it came, without its query.
    ///
    /// # Errors
    /// A path that could be read as another route, or as no path at all.
    pub fn find(&self, host: &str, path: &str, method: &Method) -> Result<Option<u32>, PathError> {
        let readings = self.readings(path)?;
        let mut routes = readings.iter().map(|reading| self.find_reading(host, reading, method));
        let route = routes.next().flatten();
        if routes.all(|other| other == route) { Ok(route) } else { Err(PathError::Ambiguous) }
    }

    /// The ways in which a path may be read; routes are looked for by each of them. A long one may
    /// be cut beyond what any route can match.
    ///
    /// # Errors
    /// A path that has no reading.
    pub fn readings<'a>(&self, path: &'a str) -> Result<Readings<'a>, PathError> {
        path::readings(path, self.ignore_case, self.longest)
    }

    /// The route of a request whose path is read as `reading`.
    pub fn find_reading(&self, host: &str, reading: &str, method: &Method) -> Option<u32> {
        let mut candidates = self.candidates(host, reading);
        candidates.find(|candidate| candidate.takes(method)).map(|candidate| candidate.route)
    }

    /// The methods that routes take for a host and a path, in no order and some perhaps twice; none
    /// where a route takes all.
    pub fn methods(&self, host: &str, path: &str) -> Option<Vec<Method>> {
        let readings = self.readings(path).unwrap_or_default();
        let candidates = readings.iter().flat_map(|reading| self.candidates(host, reading));
        let mut methods = Vec::new();
        for candidate in candidates {
            if candidate.methods.is_empty() {
                return None;
            }
            methods.extend_from_slice(&candidate.methods);
        }
        Some(methods)
    }

    /// The routes whose host and path match, the most specific first. Of those, the first that
    /// takes the request's method is its route.
    pub fn candidates<'a>(
        &'a self,
        host: &str,
        reading: &'a str,
    ) -> impl Iterator<Item = &'a Candidate> {
        let of_host = self.by_host.get(host).into_iter().chain([&self.any_host]);
        of_host.flat_map(move |paths| paths.candidates(reading))
    }
}

impl Paths {
    fn of(mut draft: Draft) -> Self {
        for candidates in draft.exact.values_mut().chain(draft.prefix.values_mut()) {
            candidates.sort_by_key(Candidate::rank);
        }
        let longest_exact = draft.exact.keys().map(String::len).max().unwrap_or_default();
        Self { exact: draft.exact, longest_exact, prefixes: Prefixes::new(draft.prefix) }
    }

    fn candidates<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Candidate> {
        let fits = path.len() <= self.longest_exact;
        let exact = fits.then(|| self.exact.get(path)).flatten();
        // Looked for only where no exact path is taken, as in most requests that have one.
        let prefixes = std::iter::once(()).flat_map(move |()| self.prefixes.of(path));
        exact.into_iter().chain(prefixes).flatten()
    }
}

impl Candidate {
    /// Whether the route is for such requests.
    pub fn takes(&self, method: &Method) -> bool {
        takes(&self.methods, method)
    }

    /// What the more specific of two routes under one path has less of. One that names HEAD goes
    /// before one that takes it as GET.
    fn rank(&self) -> (Spelling, bool, bool) {
        (self.spelling, self.methods.is_empty(), !self.methods.contains(&Method::HEAD))
    }

    /// Whether a request exists that neither of the two is more specific for.
    fn conflicts_with(&self, other: &Self) -> bool {
        if self.spelling != other.spelling {
            return false;
        }
        match (self.methods.is_empty(), other.methods.is_empty()) {
            (true, true) => true,
            (false, false) => self.methods.iter().any(|method| other.methods.contains(method)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::matcher::TrailingSlash;

    fn matcher(host: Option<&str>, path: &str, methods: &[Method]) -> Matcher {
        let path = match path.strip_suffix('*') {
            Some(prefix) => PathPattern::Prefix(prefix.to_string()),
            None => PathPattern::Exact(path.to_string()),
        };
        let trailing_slash = TrailingSlash::Same;
        Matcher { host: host.map(str::to_string), path, trailing_slash, methods: methods.to_vec() }
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
    fn the_most_specific_route_wins_whatever_the_order() {
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
            assert_eq!(forward.find(host, path, &method), Ok(expected), "{method} {host}{path}");
            let mirrored = expected.map(|route| last - route);
            assert_eq!(backward.find(host, path, &method), Ok(mirrored), "{method} {host}{path}");
        }
    }

    /// What is told of routes that were passed over is what the index did.
    #[test]
    fn a_route_fits_where_the_index_has_it_among_the_candidates() {
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
                    let mut taken: Vec<u32> =
                        candidates.filter(|one| one.takes(&method)).map(|one| one.route).collect();
                    assert_eq!(taken.first().copied(), router.find_reading(host, reading, &method));
                    taken.sort_unstable();
                    let fits = |matcher: &Matcher| {
                        matcher.fit(host, reading, &method, ignore_case).is_whole()
                    };
                    let fitting = (0..).zip(spellings()).filter(|(_, matcher)| fits(matcher));
                    let fitting: Vec<u32> = fitting.map(|(route, _)| route).collect();
                    assert_eq!(taken, fitting, "{method} {host}{path}");
                }
            }
        }
    }

    /// [`all`], and routes that only a trailing slash or HEAD tells apart.
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
        ]);
        all
    }

    #[test]
    fn a_path_as_the_file_writes_it_goes_before_its_other_spelling() {
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
            assert_eq!(router.find("x", path, &method), Ok(expected), "{method} {path}");
        }
        // `//` at the end is the route's other spelling to some servers, and another path to others.
        assert_eq!(router.find("x", "/slash//", &Method::GET), Err(PathError::Ambiguous));
        let alone = [matcher(None, "/*", &[]), matcher(None, "/own/*", &[])];
        let alone = alone.map(|one| Matcher { trailing_slash: TrailingSlash::Distinct, ..one });
        let router = Router::new(&alone, false).unwrap();
        assert_eq!(router.find("x", "/own", &Method::GET), Ok(rest));
    }

    #[test]
    fn routes_that_no_request_tells_apart_are_reported() {
        let table: [(&[Method], &[Method], bool); 4] = [
            (&[], &[], true),
            (&[Method::GET, Method::POST], &[Method::POST], true),
            (&[Method::GET], &[Method::POST], false),
            (&[Method::GET], &[], false),
        ];
        for (first, second, twins) in table {
            let matchers = [matcher(None, "/a/*", first), matcher(None, "/a/*", second)];
            let found = Router::new(&matchers, false).err();
            assert_eq!(found, twins.then(|| vec![(0, 1)]), "{first:?} and {second:?}");
        }
        let cases = [matcher(None, "/A", &[]), matcher(None, "/a", &[])];
        assert!(Router::new(&cases, false).is_ok());
        assert!(Router::new(&cases, true).is_err());
    }

    /// Row 62 of the fault table: no spelling of a path gets another route than the path itself.
    #[test]
    fn row_62_no_spelling_dodges_a_route() {
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
            assert!(router.find("x", path, &Method::GET).is_err(), "{path}");
        }
        // Where every reading leads to the same route, the path passes.
        assert_eq!(router.find("x", "/api/%73earch", &Method::GET), Ok(Some(2)));
        assert_eq!(router.find("x", "/api/group%2Fproject", &Method::GET), Ok(Some(1)));
        assert_eq!(router.find("x", "/files//a;b", &Method::GET), Ok(Some(0)));
        assert_eq!(router.find("x", "/API/SEARCH", &Method::GET), Ok(Some(0)));
        let ignoring_case = Router::new(&all(), true).unwrap();
        assert_eq!(ignoring_case.find("x", "/API/SEARCH", &Method::GET), Ok(Some(2)));
    }
}
