//! Generates configurations and requests, from ranges small enough that requests share buckets.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use crate::support::{Request, key};

/// The `[server]` table for a running gateway.
pub(crate) const ON_ANY_PORT: &str =
    "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nthreads = 2";

/// Address of all clients that connect to a gateway.
const PEER: &str = "127.0.0.1";

/// No two routes match the same request.
const ROUTES: [&str; 9] = [
    "path = '/api/search'\nmethods = ['GET']",
    "path = '/api/search'",
    "path = '/api/search/'\nmethods = ['HEAD', 'TRACE']",
    "path = '/files'\ntrailing_slash = 'distinct'",
    "path = '/files/1/*'\ntrailing_slash = 'same'",
    "path = '/api/*'",
    "path = '/api/*'\nhost = 'api.test'",
    "path = '/files/*'\nmethods = ['POST', 'PUT']",
    "path = '/*'",
];

const PER: [&str; 7] = ["ip", "key", "plan", "route", "method", "host", "header:x-tenant"];

/// Valid configurations. Rates are per day, so that no tokens refill during a test.
pub(crate) fn files() -> impl Strategy<Value = String> {
    let clients = (
        select(vec!["['header:x-api-key', 'bearer', 'query:api_key']", "['header:x-api-key']"]),
        select(vec!["anonymous", "anonymous", "deny"]),
        select(vec!["deny", "anonymous", "accept"]),
        select(vec!["deny", "first"]),
        select(vec!["[]", "['127.0.0.0/8', '10.0.0.0/8']"]),
    );
    let routes = subsequence((0..ROUTES.len()).collect::<Vec<_>>(), 1..=ROUTES.len());
    (clients, routes, 1..4_u64).prop_flat_map(|(clients, routes, cost)| {
        let names = routes.clone();
        let rules = prop::collection::vec(rule(names), 0..6);
        rules.prop_map(move |rules| file(clients, &routes, cost, &rules))
    })
}

fn file(
    (sources, missing, unknown, conflicting, trusted): (&str, &str, &str, &str, &str),
    routes: &[usize],
    cost: u64,
    rules: &[String],
) -> String {
    let mut file = format!(
        "[server]\ntrusted_proxies = {trusted}\n[clients]\napi_key = {sources}\n\
         on_missing_key = '{missing}'\non_unknown_key = '{unknown}'\n\
         on_conflicting_keys = '{conflicting}'\n[plans.free]\n[plans.pro]\n\
         [upstreams.api]\nservers = ['demo']\n{}{}",
        key("acme", "of-acme", "pro"),
        key("beta", "of-beta", "free"),
    );
    if !rules.is_empty() {
        file += "rules.r0 = { rate = '4/d' }\n";
    }
    for route in routes {
        writeln!(file, "[routes.n{route}]\n{}\ncost = {cost}", ROUTES[*route]).unwrap();
    }
    for (index, rule) in rules.iter().enumerate() {
        write!(file, "[rules.r{index}]\n{rule}").unwrap();
    }
    file
}

fn rule(routes: Vec<usize>) -> impl Strategy<Value = String> {
    let count = routes.len();
    let listed = subsequence(routes, 0..=count);
    let rates = prop_oneof![
        (3..12_u64).prop_map(|burst| format!("rate = '{burst}/d'\n")),
        (3..12_u64, 3..12_u64).prop_map(|(rate, burst)| {
            format!("rate = '{rate}/d'\nplans.pro = {{ rate = '1/d', burst = {burst} }}\n")
        }),
        (3..12_u64).prop_map(|burst| format!("plans.pro = {{ rate = '{burst}/d' }}\n")),
    ];
    let exempt = select(vec![
        "",
        "",
        "exempt = { ips = ['203.0.113.0/24'] }\n",
        "exempt = { keys = ['beta'] }\n",
    ]);
    let per = subsequence(PER.to_vec(), 0..=3);
    let on_missing = select(vec!["ip", "skip", "shared", "deny"]);
    let switches = (prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    (per, rates, listed, exempt, on_missing, switches).prop_map(
        |(per, rates, listed, exempt, on_missing, (shadow, disabled))| {
            let mut rule = format!("per = {per:?}\n{rates}{exempt}");
            if !listed.is_empty() {
                let names: Vec<_> = listed.iter().map(|route| format!("n{route}")).collect();
                writeln!(rule, "routes = {names:?}").unwrap();
            }
            if per.contains(&"key") {
                writeln!(rule, "on_missing = '{on_missing}'").unwrap();
            }
            rule += if shadow { "mode = 'shadow'\n" } else { "" };
            rule += if disabled { "enabled = false\n" } else { "" };
            rule
        },
    )
}

/// A request that is explained, and then sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    method: &'static str,
    target: &'static str,
    host: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

/// Requests that match the routes, keys and checks of [`files`].
pub(crate) fn requests() -> impl Strategy<Value = Sent> {
    let methods = select(vec!["GET", "GET", "GET", "HEAD", "POST", "TRACE", "get"]);
    let targets = select(vec![
        "/",
        "/api/search",
        "/api/search",
        "/api/search/",
        "/api",
        "/api/x?y=1",
        "/api/x?api_key=of-acme",
        "/api/x?api_key=of-beta&api_key=of-acme",
        "/files/1",
        "/files/1/",
        "/files",
        "/files/",
        "/api%2Fsearch",
        "/api//search",
        "/a/../b",
        "/a%zz",
        "/%61pi/search",
    ]);
    let hosts = select(vec!["api.test", "api.test", "API.test:80", "other.test", "a:b:c"]);
    let headers = subsequence(
        vec![
            ("x-api-key", "of-acme"),
            ("x-api-key", "of-beta"),
            ("x-api-key", "a-guess"),
            ("Authorization", "Bearer of-acme"),
            ("Authorization", "Basic of-acme"),
            ("X-Forwarded-For", "203.0.113.7"),
            ("X-Forwarded-For", "2001:db8:1:2:3::4, 10.0.0.9"),
            ("X-Forwarded-For", "somebody"),
            ("x-tenant", "a"),
            ("x-tenant", "b"),
        ],
        0..3,
    );
    (methods, targets, hosts, headers).prop_map(|(method, target, host, headers)| Sent {
        method,
        target,
        host,
        headers,
    })
}

impl Sent {
    /// The body for `POST /api/explain`.
    pub(crate) fn spec(&self) -> Value {
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            let values = headers.entry(*name).or_insert_with(|| json!([]));
            values.as_array_mut().unwrap().push(json!(value));
        }
        json!({
            "method": self.method,
            "path": self.target,
            "host": self.host,
            "headers": headers,
            "ip": PEER,
        })
    }

    /// The HTTP request.
    pub(crate) fn request(&self) -> Request {
        let request = Request::new(self.method, self.target).without("Host");
        let request = request.header("Host", self.host);
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }
}
