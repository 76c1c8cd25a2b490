//! Requests as the upstream receives them, and responses as the client receives them.

use std::io::Write as _;

use crate::support::{DEMO, Gateway, ReceivedRequest, Request, Upstream, key, proxy_to};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Sends a request through a gateway with these lines in `[server]` and `[clients]`, and returns
/// what the upstream received.
fn arrives(server: &str, clients: &str, request: &Request) -> ReceivedRequest {
    let upstream = Upstream::responding(ANSWER);
    let routes = proxy_to(&[upstream.address]);
    let key = key("acme", "secret key", "free");
    let gateway = Gateway::start(&format!("{server}\n{routes}{key}\n[clients]\n{clients}\n"));
    assert_eq!(gateway.send(request).status, 200, "{request:?}");
    upstream.only_request()
}

#[test]
fn upstream_gets_forwarded_headers() {
    let seen = arrives("", "", &Request::get("/path?a=1&b=%20"));
    assert_eq!(seen.line(), "GET /path?a=1&b=%20 HTTP/1.1");
    assert_eq!(seen.header("host"), Some("api.test"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("api.test"));
    let id = seen.header("x-request-id").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
}

/// Forged headers, under every name and spelling that an upstream might trust.
fn forged() -> Request {
    Request::get("/")
        .header("X-Forwarded-For", "6.6.6.6")
        .header("x-forwarded-for", "7.7.7.7, 8.8.8.8")
        .header("X_Forwarded_For", "6.6.6.6")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "evil.test")
        .header("Forwarded", "for=6.6.6.6")
        .header("X-Real-IP", "6.6.6.6")
        .header("X-Request-Id", "mine")
        .header("X_Request_Id", "mine")
}

#[test]
fn row_34_forwarded_headers_of_clients_are_dropped() {
    let seen = arrives("", "", &forged());
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-host"), Some("api.test"));
    assert_ne!(seen.header("x-request-id"), Some("mine"));
    for name in ["forwarded", "x-real-ip", "x_forwarded_for", "x_request_id"] {
        assert_eq!(seen.header(name), None);
    }
    assert!(!seen.head.contains("6.6.6.6"), "{}", seen.head);
}

/// Headers that proxies set, and that upstreams trust.
const TRUSTED: [&str; 14] = [
    "Forwarded",
    "X-Forwarded",
    "X-Forwarded-By",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-User",
    "X-Real-IP",
    "X-Request-Id",
];

/// A request with these headers, each in the spellings that `spell` returns.
fn spoofed(spell: impl Fn(&str) -> Vec<String>) -> Request {
    let names = TRUSTED.iter().flat_map(|name| spell(name));
    names.fold(Request::get("/"), |request, name| request.header(&name, "203.0.113.66"))
}

#[test]
fn row_34_no_spelling_of_a_trusted_header_passes_from_a_client() {
    let spell = |name: &str| {
        vec![
            name.to_owned(),
            name.to_lowercase(),
            name.to_uppercase(),
            name.replace('-', "_"),
            name.replacen('-', "_", 1),
            name.to_lowercase().replace('-', "_"),
        ]
    };
    let seen = arrives("", "", &spoofed(spell).header("Proxy", "203.0.113.66"));
    assert!(!seen.head.contains("203.0.113.66"), "{}", seen.head);
    // A trusted proxy passes on what its client sent under names that it does not know.
    let trusted = "trusted_proxies = [\"127.0.0.1\"]";
    let underscores = |name: &str| match name.replace('-', "_") {
        alias if alias == name => Vec::new(),
        alias => vec![alias],
    };
    let seen = arrives(trusted, "", &spoofed(underscores).header("Proxy", "203.0.113.66"));
    assert!(!seen.head.contains("203.0.113.66"), "{}", seen.head);
    let seen = arrives(trusted, "", &Request::get("/").header("X-Forwarded-Port", "8443"));
    assert_eq!(seen.header("x-forwarded-port"), Some("8443"));
}

/// Some servers would read the next request as the body of this one.
#[test]
fn row_58_aliases_of_framing_headers_are_not_forwarded() {
    for name in ["Content_Length", "content_length", "Transfer_Encoding", "TRANSFER_ENCODING"] {
        let seen = arrives("", "", &Request::get("/").header(name, "50"));
        assert_eq!((seen.header(name), seen.header("content-length")), (None, None), "{name}");
    }
}

/// The upstream gets HTTP/1.1, which requires a host.
#[test]
fn request_without_a_host_is_forwarded_with_an_empty_one() {
    let upstream = Upstream::responding(ANSWER);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.read_response("GET").status, 200);
    assert_eq!(upstream.only_request().values("host"), [""]);
}

#[test]
fn forwarded_headers_of_trusted_proxies_are_kept() {
    let request = forged().without("X_Forwarded_For").without("X_Request_Id");
    let seen = arrives("trusted_proxies = [\"127.0.0.0/8\"]", "", &request);
    assert_eq!(seen.header("x-forwarded-for"), Some("6.6.6.6, 7.7.7.7, 8.8.8.8, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some("evil.test"));
    assert_eq!(seen.header("x-request-id"), Some("mine"));
}

/// The three places of an API key.
fn keyed() -> [Request; 3] {
    [
        Request::get("/").header("X-Api-Key", "secret key"),
        Request::get("/").header("Authorization", "Bearer secret key"),
        Request::get("/?a=1&api_key=secret+key&b=%20"),
    ]
}

#[test]
fn api_key_is_forwarded() {
    let [header, bearer, query] = keyed().map(|request| arrives("", "", &request));
    assert_eq!(header.header("x-api-key"), Some("secret key"));
    assert_eq!(bearer.header("authorization"), Some("Bearer secret key"));
    assert_eq!(query.line(), "GET /?a=1&api_key=secret+key&b=%20 HTTP/1.1");
}

#[test]
fn hide_key_removes_the_api_key() {
    let [header, bearer, query] = keyed().map(|request| arrives("", "hide_key = true", &request));
    assert_eq!(header.header("x-api-key"), None);
    assert_eq!(bearer.header("authorization"), None);
    assert_eq!(query.line(), "GET /?a=1&b=%20 HTTP/1.1");
    let alone = arrives("", "hide_key = true", &Request::get("/path?api%5fkey=secret%20key"));
    assert_eq!(alone.line(), "GET /path HTTP/1.1");
    // Another scheme is not an API key, and the upstream may need it.
    let basic = Request::get("/").header("Authorization", "Basic YTpi");
    let seen = arrives("", "hide_key = true", &basic);
    assert_eq!(seen.header("authorization"), Some("Basic YTpi"));
    for bearer in ["Bearer secret key", "Bearer\tsecret key"] {
        let both =
            Request::get("/").header("Authorization", "Basic YTpi").header("Authorization", bearer);
        let seen = arrives("", "hide_key = true", &both);
        assert_eq!(seen.values("authorization"), ["Basic YTpi"], "{bearer:?}");
    }
}

#[test]
fn api_key_in_a_header_with_an_underscore_is_forwarded() {
    let request = Request::get("/").header("X_Api_Key", "secret key").header("x_api-key", "forged");
    let seen = arrives("", "api_key = [\"header:x_api_key\"]", &request);
    assert_eq!(seen.header("x_api_key"), Some("secret key"));
}

#[test]
fn row_32_alias_of_the_key_header_is_not_forwarded() {
    let request = Request::get("/")
        .header("x_api_key", "forged")
        .header("X-Api_Key", "forged")
        .header("X-Api-Key", "secret key")
        .header("x_other", "kept");
    let seen = arrives("", "", &request);
    assert!(!seen.head.contains("forged"), "{}", seen.head);
    assert_eq!(seen.header("x-api-key"), Some("secret key"));
    assert_eq!(seen.header("x_other"), Some("kept"));
}

#[test]
fn alias_of_a_counted_header_is_neither_counted_nor_forwarded() {
    let rule = "[rules.tenant]\nper = [\"header:x-tenant\"]\nrate = \"1/d\"\n";
    let alias = Request::get("/").header("X_Tenant", "forged").header("x-te_nant", "kept");
    let seen = arrives("", rule, &alias);
    assert!(!seen.head.contains("forged"), "{}", seen.head);
    assert_eq!(seen.header("x-te_nant"), Some("kept"));
    let both = alias.clone().header("X-Tenant", "a");
    let seen = arrives("", rule, &both);
    assert!(!seen.head.contains("forged"), "{}", seen.head);
    assert_eq!(seen.values("x-tenant"), ["a"]);
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    let statuses = [both.clone(), both, alias.clone(), alias].map(|one| gateway.send(&one).status);
    assert_eq!(statuses, [200, 429, 200, 429]);
}

/// Servers differ in which of two values they use.
#[test]
fn two_values_of_a_counted_header_are_400() {
    let rule = "[rules.tenant]\nper = [\"header:x-tenant\"]\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    let tenant = |value: &str| Request::get("/").header("X-Tenant", value);
    let refused = gateway.send(&tenant("a").header("x-tenant", "b"));
    assert_eq!(refused.status, 400);
    let detail =
        "A limit counts by the header x-tenant, which has several different values; send one.";
    assert_eq!(refused.json()["detail"], detail);
    let hidden = gateway.send(&tenant("a").header("Connection", "x-tenant"));
    assert_eq!(hidden.status, 400);
    // Neither request was counted; equal values count as one.
    assert_eq!(gateway.send(&tenant("a").header("x-tenant", "a")).status, 200);
    assert_eq!(gateway.send(&tenant("a")).status, 429);
}

#[test]
fn hop_by_hop_headers_are_not_forwarded() {
    let request = Request::get("/")
        .header("Connection", "keep-alive, X-Hop")
        .header("Keep-Alive", "timeout=5")
        .header("X-Hop", "mine")
        .header("TE", "trailers")
        .header("Proxy-Authorization", "Basic YTpi");
    let seen = arrives("", "", &request);
    for name in ["x-hop", "keep-alive", "te", "proxy-authorization"] {
        assert_eq!(seen.header(name), None, "{}", seen.head);
    }
}

/// A client that uses the gateway as a proxy sends a URL; the upstream gets a path.
#[test]
fn absolute_form_is_forwarded_as_origin_form() {
    let upstream = Upstream::responding(ANSWER);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for target in ["http://api.test/a%20b?c=%41&d", "http://api.test", "HTTP://api.test?x"] {
        let mut client = gateway.connect();
        client.write(format!("GET {target} HTTP/1.1\r\nHost: api.test\r\n\r\n").as_bytes());
        assert_eq!(client.read_response("GET").status, 200, "{target}");
    }
    let lines: Vec<String> =
        upstream.requests().iter().map(|seen| seen.line().to_owned()).collect();
    let expected = ["/a%20b?c=%41&d", "/", "/?x"].map(|path| format!("GET {path} HTTP/1.1"));
    assert_eq!(lines, expected);
}

/// The host of a URL may be written in another case than `Host`, and with the default port.
#[test]
fn absolute_form_has_the_host_of_the_request_in_any_spelling() {
    let upstream = Upstream::responding(ANSWER);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for target in ["http://API.test/x", "http://api.test:80/x", "HTTPS://Api.Test:443/x"] {
        let mut client = gateway.connect();
        // The first bytes need not have all of the head.
        client.write(format!("GET {target} HTTP/1.1\r\nX: y\r\n").as_bytes());
        client.write(b"Host: api.test\r\n\r\n");
        assert_eq!(client.read_response("GET").status, 200, "{target}");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!((seen.line(), seen.header("host")), ("GET /x HTTP/1.1", Some("api.test")));
        let explained = gateway.explain(format!(r#"{{"path": "{target}", "host": "api.test"}}"#));
        assert_eq!(explained.json()["verdict"]["decision"], "allow", "{target}");
    }
    for target in ["http://other.test/x", "http://api.test:8080/x", "http://u@api.test/x"] {
        let mut client = gateway.connect();
        client.write(format!("GET {target} HTTP/1.1\r\nHost: api.test\r\n\r\n").as_bytes());
        assert_eq!(client.read_response("GET").status, 400, "{target}");
        let explained = gateway.explain(format!(r#"{{"path": "{target}", "host": "api.test"}}"#));
        assert_eq!(explained.json()["verdict"]["status"], 400, "{target}");
    }
}

/// Responses of the upstream, and the headers that the client gets. All use one connection.
#[test]
fn hop_by_hop_headers_of_responses_are_not_forwarded() {
    type Gone = &'static [(&'static str, Option<&'static str>)];
    let table: [(&str, &str, Gone); 6] = [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            &[("content-length", Some("2"))],
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
            "ok",
            &[("content-length", Some("2"))],
        ),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            "",
            &[("content-length", None), ("transfer-encoding", None)],
        ),
        (
            "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "",
            &[("content-length", None), ("transfer-encoding", None)],
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive, content-length\r\nX-Hop: 1\r\nX-Own: 2\r\n\
             Keep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            &[
                ("x-hop", None),
                ("keep-alive", None),
                ("x-own", Some("2")),
                ("content-length", Some("2")),
            ],
        ),
        (
            "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "ok",
            &[("keep-alive", None)],
        ),
    ];
    for (answer, body, expected) in table {
        let upstream = Upstream::responding(answer);
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        let mut client = gateway.connect();
        for _ in 0..2 {
            let got = client.send(&Request::get("/"));
            assert_eq!(got.text(), body, "{answer}");
            for (name, value) in expected {
                assert_eq!(got.header(name), *value, "{name} of {answer}");
            }
            assert_eq!(got.header("connection"), Some("keep-alive"), "{answer}");
        }
    }
}

/// The gateway responds with its own HTTP version.
#[test]
fn http_1_0_upstream_response_is_sent_as_http_1_1() {
    for (head, length) in [("", None), ("Content-Length: 2\r\n", Some("2"))] {
        let upstream = Upstream::start(move |_, stream| {
            let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n{head}\r\nok").as_bytes());
            false
        });
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        let mut client = gateway.connect();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let line = client.read_bytes(15);
        assert_eq!(String::from_utf8_lossy(&line), "HTTP/1.1 200 OK");
        let got = gateway.get("/");
        assert_eq!((got.text().as_str(), got.header("content-length")), ("ok", length));
    }
}

#[test]
fn interim_responses_carry_no_limits() {
    let upstream = Upstream::start(|seen, stream| {
        let interim = match seen.header("expect") {
            Some(_) => "HTTP/1.1 100 Continue\r\nX-RateLimit-Limit: 7\r\n\r\n",
            None => "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nRateLimit: \"a\";r=7\r\n\r\n",
        };
        stream.write_all(format!("{interim}{ANSWER}").as_bytes()).is_ok()
    });
    let rule = "[rules.all]\nper = []\nrate = \"100/d\"\n";
    let gateway = Gateway::start(&format!("{}{rule}", proxy_to(&[upstream.address])));
    let expecting = Request::new("POST", "/").header("Expect", "100-continue").body("x");
    for (request, status) in [(Request::get("/"), 103), (expecting, 100)] {
        let mut client = gateway.connect();
        let interim = client.send(&request);
        assert_eq!(interim.status, status);
        let of_limits = |(name, _): &&(String, String)| name.to_lowercase().contains("ratelimit");
        let view: Vec<_> = interim.headers.iter().filter(of_limits).collect();
        assert!(view.is_empty(), "{view:?}");
        let answer = client.read_response("GET");
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, Some("100")));
    }
}
