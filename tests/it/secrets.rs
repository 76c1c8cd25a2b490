//! Row 40 of docs/faults.md: secrets must not be in any log, metric or message.

use crate::support::{
    ClosedPort, DEMO, Gateway, Request, Upstream, check, eventually, full_config, key, proxy_to,
};

/// A string that occurs nowhere else.
const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

/// Requests with the secret in every place where a key can be.
fn requests() -> Vec<Request> {
    let places = |path: &str| {
        [
            Request::get(path).header("X-Api-Key", SECRET),
            Request::get(path).header("Authorization", format!("Bearer {SECRET}")),
            Request::get(&format!("{path}?api_key={SECRET}")),
            Request::get(&format!("{path}?a=1&api%5fkey={SECRET}")),
        ]
    };
    let mut requests = Vec::new();
    // A valid path, a path without a route, and a rejected path.
    for path in ["/api/x", "/nowhere", "/api/../x", "/api/%zz"] {
        requests.extend(places(path));
    }
    let conflicting = |request: Request| request.header("X-Api-Key", "another");
    requests.extend(places("/api/x").map(conflicting));
    requests.push(Request::get("/api/x").header("X-Api-Key", SECRET.repeat(100)));
    requests.push(Request::get(&format!("/api/x?api_key={}", SECRET.repeat(100))));
    requests.push(Request::get(&format!("/api/x?api_key={SECRET}")).without("Host"));
    requests.push(Request::get(&format!("/api/x?api_key={SECRET}")).header("Bad", "\0"));
    requests
}

/// Sends all requests to a gateway with these routes and searches its output.
#[track_caller]
fn assert_kept_secret(config: &str, expected_status: u16) {
    assert_kept(&Gateway::start(&format!("{config}\n[access_log]\n")), expected_status);
}

#[track_caller]
fn assert_kept(gateway: &Gateway, expected_status: u16) {
    let mut statuses = Vec::new();
    for request in requests() {
        let answer = gateway.send(&request);
        statuses.push(answer.status);
        assert!(!answer.text().contains(SECRET), "in an answer: {answer:?}");
        let echoed = answer.headers.iter().any(|(_, value)| value.contains(SECRET));
        assert!(!echoed, "in a header: {answer:?}");
    }
    assert!(statuses.contains(&expected_status), "{statuses:?}");
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    gateway.get("/last");
    if gateway.config().contains("[access_log]") {
        let has_last = || gateway.log().contains("\"path\":\"/last\"").then_some(());
        eventually("the last line of the access log", has_last);
    }
    assert!(!gateway.metrics().contains(SECRET), "in a metric");
    assert!(!gateway.log().contains(SECRET), "in the log");
}

fn only_below_api(routes: &str) -> String {
    routes.replace("\"/*\"", "\"/api/*\"")
}

#[test]
fn row_40_no_secret_of_an_allowed_or_denied_request_is_logged() {
    let limit = "[rules.all]\nper = []\nrate = \"3/d\"\n";
    let config = format!("{}{}", only_below_api(DEMO), key("acme", SECRET, "free"));
    assert_kept_secret(&config, 200);
    assert_kept_secret(&format!("{config}{limit}"), 429);
    assert_kept_secret(&only_below_api(DEMO), 200);
    let denies = "[clients]\non_unknown_key = \"deny\"\n";
    assert_kept_secret(&format!("{}{denies}", only_below_api(DEMO)), 401);
}

#[test]
fn row_40_no_secret_of_a_failed_request_is_logged() {
    let known = key("acme", SECRET, "free");
    let closed = ClosedPort::bind();
    let unused_address = closed.address;
    let routes = only_below_api(&proxy_to(&[unused_address]));
    assert_kept_secret(&format!("{routes}{known}"), 502);

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let routes = only_below_api(&proxy_to(&[silent.local_addr().unwrap()]));
    let routes = routes.replace("[upstreams.api]", "[upstreams.api]\nread_timeout = \"50ms\"");
    assert_kept_secret(&format!("{routes}{known}"), 504);
}

#[test]
fn row_40_key_in_place_of_its_hash_is_not_printed() {
    for line in [
        format!("sha256 = \"{SECRET}\""),
        format!("sha265 = \"{SECRET}\""),
        format!("key = \"{SECRET}\""),
        format!("sha256 = \"{SECRET}"),
    ] {
        let outcome = check(format!("{DEMO}[keys.acme]\n{line}\nplan = \"free\"\n").as_bytes());
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(!outcome.stderr.contains(SECRET), "{}", outcome.stderr);
        assert!(!outcome.stdout.contains(SECRET), "{}", outcome.stdout);
    }
}

/// Pingora logs complete heads at the finest level.
#[test]
fn row_40_no_secret_is_logged_at_the_finest_level() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let routes = only_below_api(&proxy_to(&[upstream.address]));
    let config = full_config(&format!("{routes}{}", key("acme", SECRET, "free")));
    for wanted in ["trace", "debug", "pingora_core=trace,pingora_proxy=trace"] {
        let gateway = Gateway::start_logging(&config, &format!("info,{wanted}"));
        assert_kept(&gateway, 200);
    }
}

/// The admin port does not return the secret either.
#[test]
fn row_40_admin_api_returns_no_secret() {
    let accept = "[clients]\non_unknown_key = \"accept\"\n";
    let rules = "[rules.r]\nper = [\"key\", \"header:x-api-key\"]\nrate = \"9/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{accept}{}", key("acme", "other", "free")));
    for request in requests() {
        gateway.send(&request);
    }
    let paths = [
        "/api/status",
        "/api/policy",
        "/api/reloads",
        "/api/upstreams",
        "/api/audit",
        "/api/clients",
        "/api/clients?by=refused",
        "/api/clients/key/acme/buckets",
        "/api/clients/ip/127.0.0.1/buckets",
    ];
    for path in paths {
        let answer = gateway.admin(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text().contains(SECRET), "{path}: {}", answer.text());
    }
    let view = gateway.admin("/api/clients").json();
    assert_eq!(view["rules"][0]["clients"][0]["kind"], "unknown_key", "{view}");
    assert!(!gateway.log().contains(SECRET), "in the log");
}
