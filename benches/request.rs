//! Benchmarks of the steps of a request without its buckets: identity, routing, charges, and
//! headers of the response.
//!
//! ```sh
//! cargo bench --bench request
//! ```

#![allow(clippy::unwrap_used, reason = "a benchmark speaks by its output")]

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use divan::{Bencher, black_box};
use http::{HeaderMap, HeaderValue, Method, Request, request};
use pingora::prelude::ResponseHeader;
use prometheus::IntGauge;
use sha2::{Digest as _, Sha256};
use tollgate::client::credential::{Credential, IdentityError};
use tollgate::client::identity::{self as client, Identity, Peer};
use tollgate::decide::decision::{Decision, LimitCheck};
use tollgate::decide::raw_head::RawHead;
use tollgate::decide::{self, Head, Precheck};
use tollgate::gateway::exchange::Exchange;
use tollgate::gateway::judge::Judged;
use tollgate::gateway::limit_headers;
use tollgate::limit::share::Share;
use tollgate::load;
use tollgate::policy::Policy;
use tollgate::policy::matcher::RequestParts;
use tollgate::runtime::Snapshot;
use tollgate::store::limiter::{Source, Taken};
use tollgate::store::memory::MemoryStore;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

/// The other end of its connection.
const CLIENT: Peer = Peer { address: Some(PEER), is_relay: false };
const PATH: &str = "/api/items/4711/orders";
/// A key of 32 characters.
const KEY: &str = "tg_bmV2ZXItZ29pbmctdG8tZ2l2ZS11cA";

const RULES: &str = r#"
[rules.ip]
per = ["ip"]
rate = "1000000/s"
[rules.key]
per = ["key"]
rate = "1000000/s"
[rules.route]
per = ["route"]
rate = "1000000/s"
[rules.everyone]
per = []
rate = "1000000/s"
"#;

fn main() {
    divan::main();
}

/// A policy with four limits and these numbers of sibling routes and of keys, of which the last is
/// [`KEY`]. `more` can add trusted proxies.
fn policy(routes: usize, keys: usize, more: &str) -> Policy {
    let mut text = format!("{more}\n[plans.free]\n[upstreams.api]\nservers = [\"demo\"]\n");
    for route in 0..routes {
        let path = if route == 0 { "/*".to_string() } else { format!("/service-{route}/*") };
        writeln!(text, "[routes.r{route}]\npath = \"{path}\"").unwrap();
    }
    for key in 1..=keys {
        let secret = if key == keys { KEY.to_string() } else { format!("key-{key}") };
        write!(text, "[keys.k{key}]\nplan = \"free\"\nsha256 = \"").unwrap();
        Sha256::digest(secret).iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push_str("\"\n");
    }
    load::from_text("bench", &(text + RULES)).unwrap()
}

fn identify(
    policy: &Policy,
    peer: Peer,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Identity, IdentityError> {
    let found =
        policy.keys.look_up(Credential::of(&policy.clients, headers, query)?.as_ref(), || 0);
    let trusted = &policy.server.trusted_proxies;
    Ok(client::identify(&policy.clients, trusted, peer, headers, None, found))
}

fn prechecked<'a>(policy: &Policy, head: &Head<'a>) -> Precheck<'a> {
    let credential = decide::credential(policy, head);
    decide::precheck(
        policy,
        head,
        credential.map(|credential| policy.keys.look_up(credential.as_ref(), || 0)),
    )
}

fn request_with(path: &str, headers: &[(&'static str, &'static str)]) -> request::Parts {
    let mut request = Request::builder().uri(path).header("host", "api.example.com");
    // Usual headers of clients.
    for (name, value) in [("user-agent", "curl/8.5.0"), ("accept", "*/*")].iter().chain(headers) {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

mod identity {
    use super::*;

    fn run(bencher: Bencher, policy: &Policy, headers: &HeaderMap, query: Option<&str>) {
        assert!(identify(policy, CLIENT, headers, query).is_ok());
        bencher.bench_local(|| {
            identify(black_box(policy), black_box(CLIENT), black_box(headers), query)
        });
    }

    #[divan::bench]
    fn by_address(bencher: Bencher) {
        run(bencher, &policy(1, 1, ""), &request_with(PATH, &[]).headers, None);
    }

    #[divan::bench(args = [1, 1_000])]
    fn by_key_in_header(bencher: Bencher, keys: usize) {
        run(
            bencher,
            &policy(1, keys, ""),
            &request_with(PATH, &[("x-api-key", KEY)]).headers,
            None,
        );
    }

    #[divan::bench]
    fn by_key_in_query(bencher: Bencher) {
        let query = format!("page=2&api_key={KEY}");
        run(bencher, &policy(1, 1, ""), &request_with(PATH, &[]).headers, Some(&query));
    }

    #[divan::bench]
    fn by_address_behind_a_proxy(bencher: Bencher) {
        let policy = policy(1, 1, "[server]\ntrusted_proxies = [\"203.0.113.0/24\"]");
        let forwarded = ("x-forwarded-for", "198.51.100.3, 203.0.113.9");
        run(bencher, &policy, &request_with(PATH, &[forwarded]).headers, None);
    }
}

mod route {
    use super::*;

    fn get(headers: &HeaderMap) -> RequestParts<'_> {
        RequestParts { method: &Method::GET, headers, query: None }
    }

    #[divan::bench(args = [1, 20, 1_000])]
    fn the_last_prefix(bencher: Bencher, routes: usize) {
        let headers = HeaderMap::new();
        let policy = policy(routes, 1, "");
        let path = format!("/service-{}/items/4711/orders", routes - 1);
        assert!(policy.router.find("api.example.com", &path, get(&headers)).unwrap().is_some());
        bencher.bench_local(|| {
            policy.router.find(black_box("api.example.com"), black_box(&path), get(&headers))
        });
    }

    #[divan::bench]
    fn an_encoded_path(bencher: Bencher) {
        let headers = HeaderMap::new();
        let policy = policy(20, 1, "");
        let path = "/service-3/items/a%20b%2Fc";
        assert!(policy.router.find("api.example.com", path, get(&headers)).unwrap().is_some());
        bencher.bench_local(|| {
            policy.router.find(black_box("api.example.com"), black_box(path), get(&headers))
        });
    }
}

/// 10,000 routes, of which two thirds have conditions, and 100 expressions. A third of the routes
/// is for one path and each for another tenant, and a third has one of three conditions for each
/// path.
mod conditions {
    use super::*;

    const LONGEST: usize = 8_000;

    fn file() -> String {
        let mut text = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n".to_owned();
        for number in 0..3_333 {
            let path = number / 3;
            write!(
                text,
                "[routes.t{number}]\npath = \"/tenants/*\"\nheaders.x-tenant = \"t{number}\"\n\
                 [routes.p{number}]\npath = \"/p{number}/{{id}}\"\n"
            )
            .unwrap();
            let condition = match number % 3 {
                0 => "query.version = \"2\"",
                1 => "cookies.beta = \"1*\"\nheaders.x-version = true",
                _ => "methods = [\"PUT\"]\nheaders.x-version = \"2\"",
            };
            writeln!(text, "[routes.c{number}]\npath = \"/c{path}/*\"\n{condition}").unwrap();
        }
        for number in 0..100 {
            let expression = match number % 4 {
                0 => format!("^/v[0-9]+/e{number}$"),
                1 => format!("/(a|b)+/e{number}/[^/]+$"),
                2 => format!("^/([a-z]+-)*e{number}"),
                _ => format!("e{number}[0-9]{{2,8}}$"),
            };
            writeln!(text, "[routes.e{number}]\npath_regex = '{expression}'").unwrap();
        }
        text
    }

    /// Reads the file and builds the policy, as a reload does.
    #[divan::bench(max_time = 10)]
    fn reload(bencher: Bencher) {
        let file = file();
        bencher.bench_local(|| load::from_text("bench", black_box(&file)).unwrap());
    }

    /// Headers as a header line each; the query after the path.
    fn find(
        bencher: Bencher,
        target: &str,
        headers: &[(&'static str, &str)],
        expected: Option<&str>,
    ) {
        let policy = load::from_text("bench", &file()).unwrap();
        let mut map = request_with("/", &[]).headers;
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let (path, query) = target.split_once('?').unzip();
        let path = path.unwrap_or(target);
        let request = RequestParts { method: &Method::GET, headers: &map, query };
        let found = policy.router.find("api.example.com", path, request);
        let name = found.ok().flatten().map(|route| &*policy.routes[route as usize].name);
        assert_eq!(name, expected, "{found:?}");
        bencher.bench_local(|| {
            policy.router.find(black_box("api.example.com"), black_box(path), black_box(request))
        });
    }

    #[divan::bench]
    fn route_without_conditions(bencher: Bencher) {
        find(bencher, "/p3000/4711", &[], Some("p3000"));
    }

    #[divan::bench]
    fn one_of_three_routes_of_a_path(bencher: Bencher) {
        find(bencher, "/c1000/x?a=1&version=2", &[("x-version", "1")], Some("c3000"));
    }

    #[divan::bench]
    fn one_of_3333_tenants(bencher: Bencher) {
        find(bencher, "/tenants/x", &[("x-tenant", "t3000")], Some("t3000"));
    }

    #[divan::bench]
    fn no_tenant(bencher: Bencher) {
        find(bencher, "/tenants/x", &[("x-tenant", "none")], Some("all"));
    }

    #[divan::bench]
    fn the_last_expression(bencher: Bencher) {
        find(bencher, "/x/orders/e9912", &[], Some("e99"));
    }

    #[divan::bench]
    fn no_expression(bencher: Bencher) {
        find(bencher, "/x/orders/4711", &[], Some("all"));
    }

    #[divan::bench]
    fn a_path_of_8_kb_in_32_readings(bencher: Bencher) {
        let path = format!("//x/b%2fc\\d;e//{}", "/%2f\\;a".repeat(LONGEST / 7));
        find(bencher, &path, &[], None);
    }

    #[divan::bench]
    fn a_path_of_8_kb(bencher: Bencher) {
        find(bencher, &format!("/{}", "a/b-".repeat(LONGEST / 4)), &[], None);
    }

    #[divan::bench]
    fn a_query_of_8_kb(bencher: Bencher) {
        let query = "version&".repeat(LONGEST / 8);
        find(bencher, &format!("/c1000/x?{query}"), &[], Some("all"));
    }

    #[divan::bench]
    fn a_query_of_8_kb_with_semicolons(bencher: Bencher) {
        let query = "a%;".repeat(LONGEST / 3);
        find(bencher, &format!("/c1000/x?{query}"), &[], Some("all"));
    }

    #[divan::bench]
    fn cookies_of_8_kb(bencher: Bencher) {
        let cookies = "beta=%;".repeat(LONGEST / 7);
        find(bencher, "/c1000/x", &[("cookie", &cookies), ("x-version", "1")], Some("all"));
    }

    #[divan::bench]
    fn connection_of_8_kb_and_90_tenants(bencher: Bencher) {
        let options = "a,".repeat(LONGEST / 2);
        let tenants: Vec<String> = (0..90).map(|number| format!("t{number}x")).collect();
        let mut headers: Vec<(&'static str, &str)> = vec![("connection", &options)];
        headers.extend(tenants.iter().map(|tenant| ("x-tenant", tenant.as_str())));
        find(bencher, "/tenants/x", &headers, None);
    }
}

/// Everything before the buckets: checks of the head, client, route, charges of four limits.
#[divan::bench]
fn decide_under_four_limits(bencher: Bencher) {
    let policy = policy(20, 1_000, "");
    let request = request_with(PATH, &[("x-api-key", KEY)]);
    let head = Head::of(&request, PATH.as_bytes(), Some(PEER), RawHead::Plain);
    assert_eq!(prechecked(&policy, &head).charges.len(), 4);
    bencher.bench_local(|| prechecked(black_box(&policy), black_box(&head)).charges.len());
}

/// Writes the headers of four limits into a response, in each style.
#[divan::bench(args = ["none", "x", "draft", "both"])]
fn headers(bencher: Bencher, style: &str) {
    let exchange = checked_exchange(policy(1, 1, &format!("[headers]\nstyle = \"{style}\"")));
    let mut answer = ResponseHeader::build(200, Some(16)).unwrap();
    answer.insert_header("content-type", HeaderValue::from_static("application/json")).unwrap();
    bencher.with_inputs(|| answer.clone()).bench_local_values(|mut answer| {
        limit_headers::insert(&mut answer, black_box(&exchange)).unwrap();
        answer
    });
}

/// An allowed request.
fn checked_exchange(policy: Policy) -> Exchange {
    let request = request_with(PATH, &[("x-api-key", KEY)]);
    let head = Head::of(&request, PATH.as_bytes(), Some(PEER), RawHead::Plain);
    let charges = prechecked(&policy, &head).charges;
    let store = MemoryStore::new(1_000, &policy.limits);
    let answer = store.take(&charges, 0, Share::WHOLE);
    let in_flight = IntGauge::new("in_flight", "requests").unwrap();
    let snapshot = Arc::new(Snapshot::new(policy, Vec::new()));
    let mut exchange = Exchange::new(snapshot, Arc::default(), in_flight, 0);
    let taken = Taken::all(charges, answer, Source::Local);
    let check = Some(LimitCheck::of(taken));
    let decision = Decision::Allowed { check, shadow_key_rules: Vec::new() };
    exchange.judged = Some(Judged::of(decision));
    exchange
}
