//! Rewrites of paths and hosts by routes (`docs/rewrite.md`).

use crate::support::{Gateway, PeerServer, ReceivedRequest, Request, Upstream};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A route for `/v1/*` to this server with these settings.
fn config(server: &str, settings: &str) -> String {
    format!("[upstreams.api]\n{server}\n[routes.all]\npath = \"/v1/*\"\n{settings}\n")
}

/// Sends each request through one route with these settings. Returns what arrived.
fn arrive(settings: &str, requests: &[Request]) -> Vec<ReceivedRequest> {
    let upstream = Upstream::responding(ANSWER);
    let server = format!("servers = [\"{}\"]", upstream.address);
    let gateway = Gateway::start(&config(&server, settings));
    for request in requests {
        assert_eq!(gateway.send(request).status, 200, "{request:?}");
    }
    upstream.requests()
}

/// The request lines that arrive of these targets, without method and version.
fn targets(settings: &str, targets: &[&str]) -> Vec<String> {
    let requests: Vec<Request> = targets.iter().map(|target| Request::get(target)).collect();
    let line = |seen: &ReceivedRequest| seen.line().split(' ').nth(1).unwrap().to_owned();
    arrive(settings, &requests).iter().map(line).collect()
}

#[test]
fn prefix_is_stripped_and_the_rest_stays_to_the_byte() {
    let sent = ["/v1/a%20%c3%a9//b?c=/v1/%2F&d", "/v1", "/v1/", "/v1?x", "http://api.test/v1/z?y"];
    let seen = targets("strip_prefix = \"/v1\"", &sent);
    assert_eq!(seen, ["/a%20%c3%a9//b?c=/v1/%2F&d", "/", "/", "/?x", "/z?y"]);
}

#[test]
fn prefix_is_replaced_or_added() {
    let sent = ["/v1/a?b", "/v1"];
    assert_eq!(targets("replace_prefix = { \"/v1\" = \"/api\" }", &sent), ["/api/a?b", "/api"]);
    assert_eq!(targets("add_prefix = \"/api\"", &sent), ["/api/v1/a?b", "/api/v1"]);
    let both = "strip_prefix = \"/v1\"\nadd_prefix = \"/api\"";
    assert_eq!(targets(both, &sent), ["/api/a?b", "/api"]);
}

#[test]
fn stripped_prefix_is_announced() {
    let forged = Request::get("/v1/a").header("X-Forwarded-Prefix", "/forged");
    let settings = "strip_prefix = \"/v1\"\nrequest_headers = { set = { X-Path = \"{path}\" } }";
    let seen = arrive(settings, &[forged]).remove(0);
    assert_eq!(seen.values("x-forwarded-prefix"), ["/v1"]);
    // The path of the client's request.
    assert_eq!(seen.header("x-path"), Some("/v1/a"));
    let upstream = Upstream::responding(ANSWER);
    let server = format!("servers = [\"{}\"]", upstream.address);
    let route = config(&server, settings);
    let gateway = Gateway::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{route}"));
    for (outer, prefix) in [("/app/", "/app/v1"), ("http://evil", "/v1")] {
        let request = Request::get("/v1/a").header("X-Forwarded-Prefix", outer);
        assert_eq!(gateway.send(&request).status, 200);
        let seen = upstream.requests();
        assert_eq!(seen.last().unwrap().values("x-forwarded-prefix"), [prefix]);
    }
}

/// Each of these paths matches the route, in all of its readings, but does not begin with the
/// prefix to the byte, or would begin with two slashes without it.
#[test]
fn path_in_another_spelling_is_refused_and_takes_no_tokens() {
    let upstream = Upstream::responding(ANSWER);
    let server = format!("servers = [\"{}\"]", upstream.address);
    let rule = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    let all = "[routes.any]\npath = \"/*\"\nadd_prefix = \"/x\"\n";
    let settings = format!("strip_prefix = \"/v1\"\n{rule}");
    let gateway = Gateway::start(&config(&server, &settings));
    let paths = [
        "/%761/a",
        "/v%31/a",
        "/v1//evil.test/a",
        "/v1/%2Fevil.test",
        "/v1/%5cevil.test",
        "/v1/\\evil.test",
        "/v1;a/b",
        "/v1/../x",
        "/v1/%2e%2e/x",
        "/v1/..%2fx",
    ];
    for path in paths {
        let answer = gateway.get(path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.text());
        assert!(upstream.requests().is_empty(), "{path}");
    }
    let refused = gateway.get("/%761/a");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("cannot be rewritten"), "{}", refused.text());
    assert_eq!(gateway.get("/v1/a").status, 200);
    // A prefix that is added cannot be left by dots.
    gateway.apply(&config(&server, &format!("strip_prefix = \"/v1\"\n{all}")));
    for path in ["/../a", "/a/%2e%2e/../b", "/..%5ca"] {
        assert_eq!(gateway.get(path).status, 400, "{path}");
    }
}

#[test]
fn host_is_that_of_the_route_or_of_the_server() {
    let seen = arrive("upstream_host = \"b.internal\"", &[Request::get("/v1/a")]).remove(0);
    assert_eq!(seen.values("host"), ["b.internal"]);
    assert_eq!(seen.header("x-forwarded-host"), Some("api.test"));
    let upstream = Upstream::responding(ANSWER);
    let port = upstream.address.port();
    let server = format!("servers = [\"localhost:{port}\"]");
    let gateway = Gateway::start(&config(&server, "upstream_host = \"{upstream}\""));
    assert_eq!(gateway.get("/v1/a").status, 200);
    assert_eq!(upstream.only_request().values("host"), [format!("localhost:{port}")]);
}

#[test]
fn upstreams_over_http2_get_the_same() {
    let server = PeerServer::node(None);
    let settings = "strip_prefix = \"/v1\"\nadd_prefix = \"/x\"\nupstream_host = \"b.internal\"";
    let upstream = format!("servers = [\"{}\"]\nprotocol = \"h2c\"", server.address);
    let gateway = Gateway::start(&config(&upstream, settings));
    let seen = gateway.get("/v1/a%20b?c=d").json();
    assert_eq!(seen["path"], "/x/a%20b?c=d");
    assert_eq!(seen["headers"][":authority"], "b.internal");
    assert_eq!(seen["headers"]["x-forwarded-prefix"], "/v1");
    assert_eq!(seen["headers"]["x-forwarded-host"], "api.test");
}

#[test]
fn explanation_has_the_rewritten_path() {
    let gateway = Gateway::start(&config("servers = [\"demo\"]", "strip_prefix = \"/v1\""));
    let body = "{\"path\": \"/v1/a%20b\"}";
    let answer = gateway.send_admin(&Request::new("POST", "/api/explain").body(body)).json();
    assert_eq!(answer["route"]["upstream_path"], "/a%20b");
    assert_eq!(answer["route"]["handling"][0], "path: strip /v1");
}

/// Values of clients are one segment of the path, or the request gets 400 and takes no tokens.
#[test]
fn whole_path_has_values_of_the_request() {
    let upstream = Upstream::responding(ANSWER);
    let config = format!(
        "[upstreams.api]\nservers = [\"{}\"]\n[routes.all]\npath = \"/v1/{{id}}/*\"\n\
         replace_path = \"/t/{{header:x-tenant}}/u-{{param:id}}/{{query:page}}\"\n\
         [rules.r]\nper = []\nrate = \"4/d\"\n",
        upstream.address
    );
    let gateway = Gateway::start(&config);
    let send = |target: &str, tenants: &[&str]| {
        let request = tenants
            .iter()
            .fold(Request::get(target), |request, tenant| request.header("X-Tenant", tenant));
        gateway.send(&request)
    };
    let accepted = [
        ("/v1/a%20b/x?page=2&b", "acme", "/t/acme/u-a%20b/2?page=2&b"),
        ("/v1/7/x/y?page=%61", "a?b", "/t/a%3Fb/u-7/a?page=%61"),
        ("/v1/7/?page=1&page=1", "ü", "/t/%C3%BC/u-7/1?page=1&page=1"),
    ];
    for (target, tenant, expected) in accepted {
        assert_eq!(send(target, &[tenant]).status, 200, "{target}");
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.line().split(' ').nth(1), Some(expected));
        assert_eq!(seen.header("x-forwarded-prefix"), None);
    }
    let refused: [(&str, &[&str]); 12] = [
        ("/v1/7/x?page=2", &[]),
        ("/v1/7/x?page=2", &[""]),
        ("/v1/7/x?page=2", &["a", "b"]),
        ("/v1/7/x?page=2", &["a/b"]),
        ("/v1/7/x?page=2", &["a\\b"]),
        ("/v1/7/x?page=2", &[".."]),
        ("/v1/7/x?page=2", &["..;a"]),
        ("/v1/7/x", &["a"]),
        ("/v1/7/x?page=", &["a"]),
        ("/v1/7/x?page=1&page=2", &["a"]),
        ("/v1/7/x?page=%2e%2E", &["a"]),
        ("/v1/7/x?page=a%2Fb", &["a"]),
    ];
    let before = upstream.requests().len();
    for (target, tenants) in refused {
        let answer = send(target, tenants);
        assert_eq!(answer.status, 400, "{target} {tenants:?}: {}", answer.text());
        assert!(answer.text().contains("does not have exactly once"), "{}", answer.text());
    }
    assert_eq!(upstream.requests().len(), before);
    assert_eq!(send("/v1/7/x?page=2", &["a"]).status, 200, "no refused request took a token");
    assert_eq!(send("/v1/7/x?page=2", &["a"]).status, 429);
    let body = r#"{ "path": "/v1/7/x?page=2", "headers": { "x-tenant": "acme" } }"#;
    let explained = gateway.explain(body).json();
    assert_eq!(explained["route"]["upstream_path"], "/t/acme/u-7/2", "{explained}");
    let words = "path: /t/{header:x-tenant}/u-{param:id}/{query:page}";
    assert_eq!(explained["route"]["handling"][0], words, "{explained}");
}
