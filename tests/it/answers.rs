//! Responses of the gateway itself, byte for byte: status codes, headers, problem documents.

use std::fmt::Write as _;

use insta::assert_snapshot;

use crate::support::{ClosedPort, DEMO, Gateway, Request, Upstream, key, proxy_to};

const ONE_A_DAY: &str = "[rules.per-key]\nper = [\"key\"]\nrate = \"1/d\"\n";

/// A gateway without tokens left; `more` is added to its configuration.
fn exhausted(more: &str) -> Gateway {
    let gateway = Gateway::start(&format!("{DEMO}{ONE_A_DAY}{more}"));
    assert_eq!(gateway.get("/").status, 200);
    gateway
}

#[test]
fn denied_response_names_the_rule_and_the_time() {
    assert_snapshot!(exhausted("").get("/").snapshot());
}

#[test]
fn allowed_response_has_the_remaining_tokens() {
    let rules =
        "[rules.wide]\nper = []\nrate = \"50/d\"\n[rules.narrow]\nper = [\"ip\"]\nrate = \"3/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}"));
    // The headers show the rule with the fewest tokens left, which will deny first.
    assert_snapshot!(gateway.get("/").snapshot());
}

#[test]
fn denied_response_names_every_rule_that_denied() {
    let rules = r#"
[rules.passes]
per = []
rate = "50/d"

[rules.short]
per = []
rate = "2/h"

[rules.long]
per = ["ip"]
rate = "2/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{rules}[headers]\npolicies = \"all\"\n"));
    let _ = [gateway.get("/"), gateway.get("/")];
    let refused = gateway.get("/");
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["short", "long"]));
    // The headers show the rule with the longest retry-after time.
    assert_eq!(refused.header("x-ratelimit-reason"), Some("long"));
    let named = |header: &str| refused.header(header).unwrap().matches('"').count() / 2;
    assert_eq!([named("ratelimit"), named("ratelimit-policy")], [3, 3]);
}

#[test]
fn denied_response_names_the_cost_of_the_route() {
    let route = "[routes.dear]\npath = \"/dear\"\nupstream = \"api\"\ncost = 3\n";
    let rule = "[rules.all]\nper = []\nrate = \"4/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{route}{rule}"));
    assert_eq!(gateway.get("/dear").status, 200);
    let detail = gateway.get("/dear").json()["detail"].to_string();
    assert!(detail.contains("lacks the 3 tokens that this request takes"), "{detail}");
}

#[test]
fn headers_follow_the_headers_settings() {
    let mut all = String::new();
    for setting in [
        "style = \"x\"",
        "style = \"draft\"",
        "style = \"none\"",
        "reset = \"delta\"",
        "policies = \"all\"",
    ] {
        let config =
            format!("[rules.first]\nper = []\nrate = \"1/d\"\nburst = 5\n[headers]\n{setting}\n");
        let gateway = exhausted(&config);
        // HEAD, because only the headers matter.
        let refused = gateway.send(&Request::new("HEAD", "/")).snapshot();
        let _ = writeln!(all, "## {setting}\n{refused}");
    }
    assert_snapshot!(all);
}

#[test]
fn row_55_rate_limit_headers_of_the_upstream_are_replaced() {
    let upstream = Upstream::responding(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-RateLimit-Limit: 9\r\nX-RateLimit-Limit: 10\r\n\
         X-RateLimit-Used: 3\r\nRateLimit-Remaining: 7\r\nRateLimit: \"theirs\";r=7\r\n\
         X-RateLimit-Reason: theirs\r\nRetry-After: 120\r\n\r\n",
    );
    let theirs = |answer: &crate::support::Response| {
        let names = answer.headers.iter().map(|(name, _)| name.to_ascii_lowercase());
        names.filter(|name| name.contains("ratelimit")).collect::<Vec<_>>()
    };
    let routes = proxy_to(&[upstream.address]);
    let gateway = Gateway::start(&format!("{routes}{ONE_A_DAY}"));
    let answer = gateway.get("/");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(theirs(&answer).len(), 5, "{answer:?}");
    assert!(!answer.header("ratelimit").unwrap().contains("theirs"));
    // The upstream's `Retry-After` is kept.
    assert_eq!(answer.header("retry-after"), Some("120"));

    // If the gateway sends no rate-limit headers, those of the upstream are kept.
    let gateway = Gateway::start(&format!("{routes}{ONE_A_DAY}[headers]\nstyle = \"none\"\n"));
    assert_eq!(theirs(&gateway.get("/")).len(), 6);
}

#[test]
fn grpc_requests_are_denied_with_a_grpc_status() {
    let gateway = exhausted("");
    let call = || {
        Request::new("POST", "/service/Method")
            .header("Content-Type", "application/grpc+proto")
            .header("TE", "trailers")
            .body("\0\0\0\0\0")
    };
    assert_snapshot!("grpc_limited", gateway.send(&call()).snapshot());
    let denies = format!("{DEMO}[clients]\non_unknown_key = \"deny\"\n");
    let unknown = Gateway::start(&denies).send(&call().header("X-Api-Key", "unknown"));
    assert_snapshot!("grpc_unknown_key", unknown.snapshot());
}

#[test]
fn rejected_requests_get_problem_documents() {
    let config = format!(
        "max_uri_bytes = 200\nmax_header_bytes = 2000\n[clients]\non_missing_key = \"deny\"\n{}\n\
         [plans.free]\n[upstreams.api]\nservers = [\"demo\"]\n\
         [routes.api]\npath = \"/api/*\"\nupstream = \"api\"\n",
        key("one", "1", "free"),
    );
    let gateway = Gateway::start(&config);
    let known = || Request::get("/api/").header("X-Api-Key", "1");
    let requests = [
        ("missing key", Request::get("/api/")),
        ("unknown key", Request::get("/api/").header("X-Api-Key", "2")),
        ("two keys", known().header("Authorization", "Bearer 2")),
        ("a huge key", Request::get("/api/").header("X-Api-Key", "x".repeat(1_025))),
        ("no route", Request::get("/other").header("X-Api-Key", "1")),
        ("no host", known().without("Host")),
        ("a dot segment", Request::get("/api/../other").header("X-Api-Key", "1")),
        ("a broken escape", Request::get("/api/%zz").header("X-Api-Key", "1")),
        ("two readings", Request::get("/api%2fother").header("X-Api-Key", "1")),
        ("a long target", Request::get(&format!("/{}", "a".repeat(200))).header("X-Api-Key", "1")),
        ("large headers", known().header("X-Filler", "a".repeat(2_000))),
    ];
    let mut all = String::new();
    for (what, request) in requests {
        let _ = writeln!(all, "## {what}\n{}", gateway.send(&request).snapshot());
    }
    assert_snapshot!(all);
}

#[test]
fn upstream_failures_get_problem_documents() {
    let closed = ClosedPort::bind();
    let refused = Gateway::start(&proxy_to(&[closed.address])).get("/");
    let invalid = Upstream::responding("what?\r\n\r\n");
    let invalid = Gateway::start(&proxy_to(&[invalid.address])).get("/");
    // Accepts connections and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let impatient = proxy_to(&[silent.local_addr().unwrap()])
        .replace("[upstreams.api]", "[upstreams.api]\nread_timeout = \"300ms\"");
    let late = Gateway::start(&impatient).get("/");
    let answers = [refused, invalid, late].map(|answer| answer.snapshot()).join("\n\n");
    assert_snapshot!(answers);
}

#[test]
fn unauthenticated_response_says_where_the_key_was_and_never_the_key() {
    let per_ip = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"4/d\"\n";
    let clients = "[clients]\napi_key = [\"header:x-api-key\", \"bearer\", \"query:api_key\"]\n\
                   on_unknown_key = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{per_ip}{clients}"));
    let header = Request::get("/").header("X-Api-Key", "guessed");
    let requests = [
        (header.clone(), "The API key in the header X-Api-Key is unknown.", "Bearer"),
        (
            Request::get("/").header("Authorization", "Bearer guessed"),
            "The bearer token in Authorization is not an API key of this gateway.",
            "Bearer error=\"invalid_token\"",
        ),
        (
            Request::get("/?api_key=guessed"),
            "The API key in the query parameter api_key is unknown.",
            "Bearer",
        ),
    ];
    for (request, detail, challenge) in requests {
        let answer = gateway.send(&request);
        assert_eq!((answer.status, answer.json()["detail"].as_str()), (401, Some(detail)));
        assert_eq!(answer.header("www-authenticate"), Some(challenge), "{detail}");
        assert!(!answer.text().contains("guessed"), "{}", answer.text());
    }
    gateway.send(&header);
    let limited = gateway.send(&header);
    assert_eq!((limited.status, limited.header("retry-after").is_some()), (429, true));
    assert_eq!(limited.header("x-ratelimit-reason"), Some("per-ip"));
    let limited = limited.json();
    let detail = limited["detail"].as_str().unwrap();
    let begin = "The API key in the header X-Api-Key is unknown. Attempts are limited: limit \
                 \"per-ip\" (4/d, burst 4, plan free) is exhausted; retry in ";
    assert!(detail.starts_with(begin), "{detail}");
}

#[test]
fn challenge_offers_bearer_only_where_it_is_accepted() {
    let clients = "[clients]\napi_key = [\"header:x-api-key\"]\non_missing_key = \"deny\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{clients}"));
    let answer = gateway.get("/");
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("ApiKey")));
    let answer = answer.json();
    let detail = "This request requires an API key in the header X-Api-Key.";
    assert_eq!(answer["detail"], detail);
}
