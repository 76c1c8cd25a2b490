//! The cost of the precheck of the worst heads that a client can send; routes and statuses of
//! requests.

mod decisions;
mod outcomes;
mod preflights;
mod steps;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::*;
use crate::load::from_text;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The head of a request for this path, with these headers.
fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> http::request::Parts {
    let request = Request::builder().method(method).uri(path).header("host", "api.test");
    let with = |request: http::request::Builder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    headers.iter().fold(request, with).body(()).unwrap().into_parts().0
}

fn prechecked<'a>(policy: &Policy, head: &Head<'a>) -> Precheck<'a> {
    let credential = credential(policy, head);
    precheck(
        policy,
        head,
        credential.map(|credential| policy.keys.look_up(credential.as_ref(), || 0)),
    )
}

/// Routes with and without a host, keys in a header, as a bearer token and in the query, limits by
/// header and host, and a peer whose `X-Forwarded-For` is believed.
const FILE: &str = r#"
[clients]
api_key = ["header:x-api-key", "bearer", "query:k"]
on_unknown_key = "accept"
limits_path = "/limits"
[upstreams.api]
servers = ["demo"]
[routes.search]
path = "/api/search"
[routes.api]
path = "/api/*"
[routes.deep]
path = "/a/b/c/d/e/f/*"
[routes.of-host]
host = "api.test"
path = "/api/*"
[routes.rest]
[rules.tenant]
per = ["header:x-tenant", "host"]
rate = "1000/s"
[rules.key]
per = ["ip", "key"]
rate = "1000/s"
"#;

fn policy(path_case: &str) -> Policy {
    let server = "[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\nmax_uri_bytes = 65536\n\
                  max_header_bytes = 1048576\n";
    from_text("gateway.toml", &format!("{server}path_case = \"{path_case}\"\n{FILE}")).unwrap()
}

/// A request of a client.
struct Sent {
    name: &'static str,
    target: String,
    headers: HeaderMap,
}

impl Sent {
    fn target(name: &'static str, target: String) -> Self {
        let host = (http::header::HOST, HeaderValue::from_static("api.test"));
        Self { name, target, headers: HeaderMap::from_iter([host]) }
    }

    fn headers(
        name: &'static str,
        lines: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        let mut sent = Self::target(name, "/api/search".to_owned());
        for (header, value) in lines {
            let value = HeaderValue::from_str(&value).unwrap();
            sent.headers.append(HeaderName::from_static(header), value);
        }
        sent
    }

    fn host(name: &'static str, host: &str) -> Self {
        let mut sent = Self::target(name, "/api/search".to_owned());
        sent.headers.insert(http::header::HOST, HeaderValue::from_str(host).unwrap());
        sent
    }

    /// Minimum duration of several prechecks.
    #[allow(clippy::disallowed_methods, reason = "how long a decision takes decides nothing")]
    fn cost(&self, policy: &Policy) -> Duration {
        let request = Request::builder().uri(&self.target).body(()).unwrap();
        let mut parts = request.into_parts().0;
        parts.headers.clone_from(&self.headers);
        let head = Head::of(&parts, self.target.as_bytes(), Some(PEER), RawHead::Plain);
        let once = || {
            let started = Instant::now();
            std::hint::black_box(prechecked(policy, &head));
            started.elapsed()
        };
        (0..7).map(|_| once()).min().unwrap_or_default()
    }
}

/// Heads of about `size` bytes, in every shape that some step of the precheck loops over.
fn heads(size: usize) -> Vec<Sent> {
    let fill = |part: &str| part.repeat(size / part.len());
    let lines = |header: &'static str, value: &str| {
        vec![(header, value.to_owned()); size / (header.len() + value.len() + 4)]
    };
    let many_names = (0..size / 10).map(|number| format!("x_{number:x}"));
    let mut names = Sent::headers("many names", []);
    for name in many_names {
        names.headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("1"));
    }
    vec![
        Sent::target("slashes", fill("/")),
        Sent::target("slashes in all readings", format!("//x/b%2fc\\d;e//{}", fill("/"))),
        Sent::target("segments", fill("/a")),
        Sent::target("segments in all readings", format!("//x/b%2fc\\d;e//{}", fill("/a"))),
        Sent::target("encoded slashes", format!("//x{}", fill("/%2f\\;e"))),
        Sent::target("one parameter", format!("//x/%2f\\/a;{}", fill("e"))),
        Sent::target("encoded letters", format!("/%2f{}", fill("%41"))),
        Sent::target("dots", format!("/%2f{}", fill("..."))),
        Sent::target("below a route", format!("/a/b/c/d/e/f/{}", fill("g%2f"))),
        Sent::target("ampersands", format!("/?{}", fill("&"))),
        Sent::target("parameters", format!("/?{}", fill("a=b&"))),
        Sent::target("encoded parameters", format!("/?{}", fill("%61&"))),
        Sent::target("one key many times", format!("/?{}", fill("k=a&"))),
        Sent::target("one encoded key many times", format!("/?{}", fill("%6b=%61&"))),
        Sent::headers("keys", lines("x-api-key", "a")),
        Sent::headers("bearers", lines("authorization", "Bearer a")),
        Sent::headers("authorizations", lines("authorization", "Basic a")),
        Sent::headers("tenants", lines("x-tenant", "a")),
        Sent::headers("one tenant", [("x-tenant", fill("a"))]),
        Sent::headers("hops", lines("x-forwarded-for", "127.0.0.1")),
        Sent::headers("hops in one line", [("x-forwarded-for", fill("127.0.0.1, "))]),
        Sent::headers("empty hops", [("x-forwarded-for", fill(", "))]),
        Sent::headers("one long hop", [("x-forwarded-for", fill("1"))]),
        Sent::headers("codings", lines("transfer-encoding", "chunked")),
        names,
        Sent::host("a long host", &fill("a")),
        Sent::host("dots in the host", &format!("a{}", fill("."))),
        Sent::host("capitals in the host", &fill("A.")),
    ]
}

/// Eight times the bytes take eight times as long in linear time, and up to 64 times in quadratic
/// time.
#[test]
fn precheck_is_linear_in_the_size_of_the_head() {
    for path_case in ["sensitive", "insensitive"] {
        let policy = policy(path_case);
        for (small, large) in heads(1_000).into_iter().zip(heads(8_000)) {
            // A disturbance does not spoil all measurements.
            let is_linear = || large.cost(&policy) < 24 * small.cost(&policy);
            let found = (0..5).any(|_| is_linear());
            let (small_cost, large_cost) = (small.cost(&policy), large.cost(&policy));
            assert!(found, "{}: {small_cost:?}, then {large_cost:?}", small.name);
        }
    }
}

/// An expensive route and a catch-all route. Other spellings of the expensive path must not match
/// the catch-all.
const COSTS: &str = r#"
[upstreams.api]
servers = ["demo"]
[routes.expensive]
path = "/api/search"
methods = ["GET"]
cost = 5
[routes.below]
path = "/files/*"
cost = 3
[routes.rest]
[rules.tenant]
per = ["header:x-tenant"]
rate = "1000/s"
[rules.trial]
per = ["header:x-trial"]
rate = "1000/s"
mode = "shadow"
"#;

/// The route of a request and what it takes from the first bucket, or the status of its refusal.
fn outcome(
    policy: &Policy,
    method: &str,
    path: &str,
    headers: &[(&'static str, &'static str)],
) -> String {
    let parts = request(method, path, headers);
    let checked =
        prechecked(policy, &Head::of(&parts, path.as_bytes(), Some(PEER), RawHead::Plain));
    match (checked.refused(), checked.route) {
        (Some(refusal), _) => {
            assert!(checked.charges.is_empty(), "a refusal that takes tokens");
            problem::refused(policy, refusal).0.as_str().to_owned()
        }
        (None, route) => {
            let route = &policy.routes[route.unwrap_or_default() as usize];
            format!("{} {}", route.name, checked.charges[0].cost)
        }
    }
}

#[test]
fn trailing_slash_and_head_take_the_route_of_the_path_and_get() {
    let policy = from_text("gateway.toml", COSTS).unwrap();
    let table = [
        ("GET", "/api/search", "expensive 5"),
        ("GET", "/api/search/", "expensive 5"),
        ("HEAD", "/api/search", "expensive 5"),
        ("HEAD", "/api/search/", "expensive 5"),
        ("POST", "/api/search", "rest 1"),
        ("GET", "/api/%73earch/", "expensive 5"),
        ("GET", "/files/", "below 3"),
        ("GET", "/files", "below 3"),
        ("GET", "/filesystem", "rest 1"),
        ("GET", "/", "rest 1"),
    ];
    for (method, path, expected) in table {
        assert_eq!(outcome(&policy, method, path, &[]), expected, "{method} {path}");
    }
}

#[test]
fn different_values_of_a_counted_header_are_refused() {
    let policy = from_text("gateway.toml", COSTS).unwrap();
    let table: [(&[(&str, &str)], &str); 9] = [
        (&[], "rest 1"),
        (&[("x-tenant", "a")], "rest 1"),
        (&[("x-tenant", "a"), ("X-Tenant", "a")], "rest 1"),
        (&[("x-tenant", "a"), ("x-tenant", "b")], "400"),
        (&[("x-tenant", "a"), ("x-tenant", "a"), ("X-Tenant", "")], "400"),
        // The upstream would not receive the value that was counted.
        (&[("x-tenant", "a"), ("connection", "keep-alive, X-Tenant")], "400"),
        (&[("x-tenant", "a"), ("connection", "keep-alive, x-other")], "rest 1"),
        // No enforced limit counts by these.
        (&[("x-other", "a"), ("x-other", "b")], "rest 1"),
        (&[("x-trial", "a"), ("x-trial", "b")], "rest 1"),
    ];
    for (headers, expected) in table {
        assert_eq!(outcome(&policy, "GET", "/", headers), expected, "{headers:?}");
    }
}

#[test]
fn trace_is_refused_unless_a_route_names_it() {
    let policy = from_text("gateway.toml", COSTS).unwrap();
    assert_eq!(outcome(&policy, "TRACE", "/", &[]), "405");
    assert_eq!(outcome(&policy, "TRACE", "/api/search", &[]), "405");
    let named = COSTS.replace("[routes.rest]", "[routes.rest]\nmethods = ['GET', 'TRACE']");
    let policy = from_text("gateway.toml", &named).unwrap();
    assert_eq!(outcome(&policy, "TRACE", "/", &[]), "rest 1");
}
