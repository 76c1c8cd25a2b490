//! Random tables of routes with conditions, and random requests, compared with a search that is
//! slow and follows `docs/routes.md` word by word. `explain` decides by the code that decides on
//! real requests, so its routes are those of both.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::by_rules;
use super::request::RequestSpec;
use crate::base::cases::cases;
use crate::load::from_text;

/// 100,000 requests in a release build.
const TABLES: u32 = if cfg!(debug_assertions) { 40 } else { 400 };
const REQUESTS: usize = 250;

const PATHS: [&str; 9] = [
    "path = \"/*\"",
    "path = \"/a\"",
    "path = \"/a/\"",
    "path = \"/a/*\"",
    "path = \"/a/b\"",
    "path = \"/{p}\"",
    "path = \"/{p}/b\"",
    "path = \"/a/{p}\"",
    "path = \"/{p}/*\"",
];

/// Expressions, and the paths of [`REQUESTED`] that they match.
const EXPRESSIONS: [(&str, &[&str]); 4] = [
    ("^/v[0-9]+/search$", &["/v1/search", "/v12/search"]),
    ("b$", &["/a/b", "/b"]),
    ("^/[^/]+/[^/]+$", &["/a/b", "/v1/search", "/v12/search", "/v1/x"]),
    ("^/a", &["/a", "/a/", "/a/b", "/a/b/c"]),
];

const REQUESTED: [&str; 9] =
    ["/", "/a", "/a/", "/a/b", "/b", "/v1/search", "/v12/search", "/a/b/c", "/v1/x"];

/// Tables of conditions and names in them. The index is that of a request's values.
const SOURCES: [(&str, &str); 4] =
    [("headers", "x-a"), ("headers", "x-b"), ("query", "q"), ("cookies", "c")];

const VALUES: [&str; 4] = ["1", "12", "2", "a b"];

#[derive(Debug, Clone)]
struct Route {
    host: Option<&'static str>,
    /// Without its `path = `, for an expression its index.
    path: Result<&'static str, usize>,
    is_distinct: bool,
    methods: Vec<&'static str>,
    conditions: [Option<&'static str>; 4],
}

/// The values that one server reads.
type Read = [Option<&'static str>; 4];

struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn route(&mut self) -> Route {
        let mut conditions = [None; 4];
        for _ in 0..self.of(&[0, 0, 1, 1, 2, 3]) {
            let tests = ["1", "12", "2", "a b", "1*", "12*", "true", "false"];
            conditions[self.below(4)] = Some(self.of(&tests));
        }
        let path = if self.below(3) == 0 {
            Err(self.below(EXPRESSIONS.len()))
        } else {
            Ok(self.of(&PATHS).trim_start_matches("path = ").trim_matches('"'))
        };
        Route {
            host: self.of(&[None, None, Some("a.test"), Some("*.test")]),
            is_distinct: path.is_ok() && self.below(4) == 0,
            path,
            methods: self
                .of(&[&[][..], &[], &["GET"], &["POST"], &["GET", "POST"], &["HEAD"]])
                .to_vec(),
            conditions,
        }
    }
}

impl Route {
    fn write(&self, number: usize, file: &mut String) {
        writeln!(file, "[routes.r{number}]").unwrap();
        match self.path {
            Ok(path) => writeln!(file, "path = {path:?}").unwrap(),
            Err(index) => writeln!(file, "path_regex = '{}'", EXPRESSIONS[index].0).unwrap(),
        }
        if let Some(host) = self.host {
            writeln!(file, "host = {host:?}").unwrap();
        }
        if self.is_distinct {
            file.push_str("trailing_slash = \"distinct\"\n");
        }
        if !self.methods.is_empty() {
            writeln!(file, "methods = {:?}", self.methods).unwrap();
        }
        for ((table, name), value) in SOURCES.iter().zip(self.conditions) {
            match value {
                None => {}
                Some(word @ ("true" | "false")) => {
                    writeln!(file, "{table}.{name} = {word}").unwrap();
                }
                Some(text) => writeln!(file, "{table}.{name} = {text:?}").unwrap(),
            }
        }
    }

    /// How specifically the route matches: the least is the route of a request.
    /// `place` orders expressions.
    fn precedence(
        &self,
        place: usize,
        (host, path, method): (&str, &str, &str),
        read: Read,
    ) -> Option<impl Ord + std::fmt::Debug + use<>> {
        let host = match self.host {
            Some("*.test") => host.strip_suffix(".test").map(|_| 1)?,
            Some(own) => (own == host).then_some(0)?,
            None => 2,
        };
        let listed = self.methods.contains(&method);
        let is_head_of_get = method == "HEAD" && self.methods.contains(&"GET");
        (self.methods.is_empty() || listed || is_head_of_get).then_some(())?;
        let path = match self.path {
            Ok("/*") => (2, 0, Vec::new(), 0),
            Err(index) => EXPRESSIONS[index].1.contains(&path).then_some((1, place, vec![], 0))?,
            Ok(own) => {
                let (place, kind) = self.path_precedence(own, path)?;
                (0, 0, place, kind)
            }
        };
        let mut count = (0, 0, 0, 0);
        for (test, value) in self.conditions.iter().zip(read) {
            let Some(test) = test else { continue };
            let is_met = match (*test, value) {
                ("true", value) => value.is_some(),
                ("false", value) => value.is_none(),
                (_, None) => false,
                (test, Some(value)) => match test.strip_suffix('*') {
                    Some(prefix) => value.starts_with(prefix),
                    None => test == value,
                },
            };
            is_met.then_some(())?;
            count.0 += 1;
            match test.strip_suffix('*') {
                Some(prefix) => (count.2, count.3) = (count.2 + 1, count.3 + prefix.len()),
                None => count.1 += usize::from(!matches!(*test, "true" | "false")),
            }
        }
        let names_head = self.methods.contains(&"HEAD");
        Some((host, path, self.methods.is_empty(), Reverse(count), !names_head))
    }

    /// For each segment 0 for text, 1 for a parameter, 2 for the `*`; and whether the path is the
    /// written one, one with another slash, or that of a prefix without its slash.
    fn path_precedence(&self, own: &str, path: &str) -> Option<(Vec<u8>, u8)> {
        let other = match own.strip_suffix('*').unwrap_or(own).strip_suffix('/') {
            Some(bare) => bare.to_owned(),
            None => format!("{own}/"),
        };
        let kind = 1 + u8::from(own.ends_with("/*"));
        let forms = [(own.to_owned(), 0), (other, kind)];
        let each = forms.into_iter().take(if self.is_distinct { 1 } else { 2 });
        each.filter_map(|(form, kind)| Some((fit(&form, path)?, kind))).min()
    }
}

fn fit(own: &str, path: &str) -> Option<Vec<u8>> {
    let (own, path): (Vec<_>, Vec<_>) = (own.split('/').collect(), path.split('/').collect());
    let has_star = own.last() == Some(&"*");
    let matches_length = if has_star { path.len() >= own.len() } else { path.len() == own.len() };
    matches_length.then_some(())?;
    let each = own.iter().zip(path).map(|(own, segment)| match *own {
        "*" => Some(2),
        "{p}" => (!segment.is_empty()).then_some(1),
        own => (own == segment).then_some(0),
    });
    each.collect()
}

/// A table without routes of which neither takes precedence.
fn table(random: &mut Random) -> (Vec<Route>, String) {
    let mut routes: Vec<Route> = (0..2 + random.below(12)).map(|_| random.route()).collect();
    loop {
        let mut file = "[upstreams.api]\nservers = [\"demo\"]\n".to_owned();
        routes.iter().enumerate().for_each(|(number, route)| route.write(number, &mut file));
        let Err(error) = from_text("gateway.toml", &file) else { return (routes, file) };
        let error = error.to_string();
        let second = error.split("` and `r").nth(1).unwrap_or_else(|| panic!("{error}\n{file}"));
        let second: usize = second.split('`').next().unwrap().parse().unwrap();
        routes.remove(second);
    }
}

/// The route of a request to a server that reads these values. Two are never of equal precedence.
fn slow_route(routes: &[Route], host: &str, path: &str, method: &str, read: Read) -> Option<usize> {
    let each = routes.iter().enumerate().filter_map(|(number, route)| {
        // That of the first route with this expression.
        let same = |other: &Route| (other.host, other.path) == (route.host, route.path);
        let place = routes.iter().position(same)?;
        Some((route.precedence(place, (host, path, method), read)?, number))
    });
    let mut matching: Vec<_> = each.collect();
    matching.sort();
    if let [(first, _), (second, _), ..] = matching.as_slice() {
        assert!(first < second, "{matching:?}");
    }
    matching.first().map(|(_, number)| *number)
}

/// What all servers may read of a request's values.
fn reads(values: &[Vec<&'static str>; 4]) -> Vec<Read> {
    let mut reads = vec![[None; 4]];
    for (source, values) in values.iter().enumerate() {
        let each = reads.iter().flat_map(|read| {
            let options: Vec<Option<&str>> = match values.as_slice() {
                [] => vec![None],
                values => values.iter().map(|value| Some(*value)).collect(),
            };
            options.into_iter().map(move |value| {
                let mut read = *read;
                read[source] = value;
                read
            })
        });
        reads = each.collect();
    }
    reads
}

/// A request with these values.
fn spec(random: &mut Random, path: &str, values: &[Vec<&'static str>; 4]) -> RequestSpec {
    let mut headers = Vec::new();
    for (name, values) in [("X-A", &values[0]), ("x-b", &values[1])] {
        headers.extend(values.iter().map(|value| (name.to_owned(), (*value).to_owned())));
    }
    let spaces = ["+", "%20"];
    let parameters = values[2].iter().map(|value| {
        let name = random.of(&["q", "%71"]);
        let value = value.replace('2', random.of(&["2", "%32"])).replace(' ', random.of(&spaces));
        format!("{name}={value}")
    });
    let query = parameters.collect::<Vec<_>>().join("&");
    let cookies: Vec<String> = values[3].iter().map(|value| format!("c={value}")).collect();
    if random.below(2) == 0 {
        headers.extend(cookies.iter().map(|pair| ("cookie".to_owned(), pair.clone())));
    } else if !cookies.is_empty() {
        headers.push(("Cookie".to_owned(), format!("other=1; {}", cookies.join(";"))));
    }
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    RequestSpec { path, headers, ..RequestSpec::default() }
}

#[test]
fn routes_of_random_requests_are_those_of_a_slow_search() {
    let mut random = Random(7);
    let (mut found, mut ambiguous, mut none) = (0, 0, 0);
    let tables = cases(TABLES);
    for _ in 0..tables {
        let (routes, file) = table(&mut random);
        let policy = from_text("gateway.toml", &file).unwrap();
        for _ in 0..REQUESTS {
            let host = random.of(&["a.test", "b.test", "other"]);
            let method = random.of(&["GET", "POST", "HEAD"]);
            let path = random.of(&REQUESTED);
            let values = [0; 4].map(|_| {
                let count = random.of(&[0, 0, 1, 1, 1, 1, 2]);
                (0..count).map(|_| random.of(&VALUES)).collect::<Vec<_>>()
            });
            let spec = spec(&mut random, path, &values);
            let spec =
                RequestSpec { method: method.to_owned(), host: Some(host.to_owned()), ..spec };
            let mut slow: Vec<Option<usize>> = reads(&values)
                .into_iter()
                .map(|read| slow_route(&routes, host, path, method, read))
                .collect();
            slow.dedup();
            let explained = by_rules(&policy, &spec).unwrap();
            let name = explained.route.name.as_deref();
            let status = explained.verdict.status;
            let shown = || format!("{method} {host} {} {values:?}\n{file}", spec.path);
            match slow.as_slice() {
                [None] => {
                    assert_eq!((name, status), (None, Some(404)), "{}", shown());
                    none += 1;
                }
                [Some(number)] => {
                    assert_eq!(name, Some(&*format!("r{number}")), "{}", shown());
                    let wins = explained.route.candidates.iter().filter(|one| one.wins);
                    assert_eq!(wins.count(), 1, "{}", shown());
                    found += 1;
                }
                _ => {
                    assert_eq!((name, status), (None, Some(400)), "{}", shown());
                    ambiguous += 1;
                }
            }
        }
    }
    let enough = tables as usize * REQUESTS / 100;
    assert!(found > enough && ambiguous > enough && none > enough, "{found} {ambiguous} {none}");
}
