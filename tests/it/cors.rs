//! CORS: which responses pages of other sites can read, and what answers preflight requests
//! (`docs/cors.md`).

use crate::support::{
    ClosedPort, DEMO, Gateway, HTTP2_LISTENER, PeerServer, Request, Response, Upstream, curl, key,
    proxy_to,
};

const APP: &str = "https://app.test";
const CORS: &str = "[cors]\norigins = [\"https://app.test\", \"https://*.example.com\"]\n";

fn from(origin: &str, method: &str, path: &str) -> Request {
    Request::new(method, path).header("Origin", origin)
}

fn preflight(origin: &str, method: &str, path: &str) -> Request {
    from(origin, "OPTIONS", path).header("Access-Control-Request-Method", method)
}

/// Names and values of the CORS headers and of `Vary`.
fn cors_of(response: &Response) -> Vec<String> {
    let is_of = |name: &str| name.starts_with("access-control-") || name == "vary";
    let headers = response.headers.iter().map(|(name, value)| (name.to_lowercase(), value));
    let of_cors = headers.filter(|(name, _)| is_of(name));
    let mut lines: Vec<_> = of_cors.map(|(name, value)| format!("{name}: {value}")).collect();
    lines.sort();
    lines
}

/// Asserts that a page of [`APP`] can read the response, and that the response says so once.
#[track_caller]
fn assert_readable(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_eq!(response.header("access-control-allow-origin"), Some(APP), "{response:?}");
    let vary = response.header("vary").unwrap_or_default();
    assert!(vary.split(", ").any(|name| name == "Origin"), "{vary}");
    let exposed = response.header("access-control-expose-headers").unwrap_or_default();
    assert!(exposed.contains("Retry-After, X-RateLimit-Limit"), "{exposed}");
}

#[test]
fn preflight_is_answered_without_tokens_a_key_or_an_upstream() {
    let upstream = Upstream::echo();
    let clients = "[clients]\non_missing_key = \"deny\"\n";
    let rules = "[rules.ip]\nper = [\"ip\"]\nrate = \"2/d\"\n[rules.key]\nper = [\"key\"]\nrate = \"2/d\"\non_missing = \"deny\"\n";
    // Routes for OPTIONS, and exact ones, do not matter.
    let routes = "[routes.options]\npath = \"/*\"\nmethods = [\"OPTIONS\"]\n[routes.write]\npath = \"/v1/items\"\nmethods = [\"POST\"]\ncost = 2\n";
    let proxy = proxy_to(&[upstream.address]);
    let config = format!("{CORS}{clients}{proxy}{routes}{rules}{}", key("acme", "secret", "free"));
    let gateway = Gateway::start(&config);
    for _ in 0..20 {
        let asks = preflight(APP, "POST", "/v1/items")
            .header("Access-Control-Request-Headers", "content-type,x-api-key");
        let answer = gateway.send(&asks);
        assert_eq!((answer.status, answer.header("content-length")), (204, None));
        assert_eq!(
            cors_of(&answer),
            [
                "access-control-allow-headers: content-type, x-api-key",
                "access-control-allow-methods: POST",
                "access-control-allow-origin: https://app.test",
                "access-control-max-age: 600",
                "vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
            ]
        );
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
    let upper = preflight("https://a.b.EXAMPLE.com:443", "GET", "/other");
    assert_eq!(gateway.send(&upper).status, 204);
    assert!(upstream.requests().is_empty());
    // No token was taken.
    let first = gateway.send(&from(APP, "POST", "/v1/items").header("X-Api-Key", "secret"));
    assert_eq!((first.status, first.remaining()), (200, 0));
    let labels = [("route", "write"), ("status", "204")];
    gateway.wait_for_count("tollgate_requests_total", &labels, 20);
}

#[test]
fn preflight_that_is_not_allowed_is_refused_with_its_reason() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let log_file = format!("[access_log]\noutput = \"{}\"\n", log.path().display());
    let own = "cors = { origins = [\"https://app.test\"], methods = [\"PUT\"], headers = [\"content-type\"], max_age = \"5s\", credentials = true }\n";
    let gateway = Gateway::start(&format!("{DEMO}{own}{log_file}"));
    let refused = gateway.send(&preflight("https://evil.test", "PUT", "/"));
    assert_eq!((refused.status, cors_of(&refused)), (403, vec!["vary: Origin".to_owned()]));
    assert_eq!(refused.json()["detail"], "CORS: pages of this origin are not allowed here.");
    let refused = gateway.send(&preflight(APP, "DELETE", "/"));
    assert_readable(&refused, 403);
    assert_eq!(refused.json()["detail"], "CORS: pages are not allowed to use this method here.");
    let asks = preflight(APP, "PUT", "/").header("Access-Control-Request-Headers", "x-other");
    let allowed = gateway.send(&asks);
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-headers"), Some("content-type"));
    assert_eq!(allowed.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(allowed.header("access-control-max-age"), Some("5"));
    let lines = || {
        let text = std::fs::read_to_string(log.path()).ok().filter(|text| text.ends_with('\n'))?;
        let each = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let list: Vec<serde_json::Value> = each.collect();
        (list.len() == 3).then_some(list)
    };
    let lines = crate::support::eventually("three lines", lines);
    let mut reasons: Vec<_> = lines.iter().map(|line| line["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, [None, Some("cors_method"), Some("cors_origin")]);
}

#[test]
fn every_answer_of_the_gateway_can_be_read_by_allowed_pages() {
    let dead = ClosedPort::bind();
    let broken = Upstream::responding("not HTTP\r\n\r\n");
    // Accepts connections, and never sends a byte.
    let late = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let echo = Upstream::echo();
    let config = format!(
        "deny_ips = [\"192.0.2.7\"]\ntrusted_proxies = [\"127.0.0.1\"]\n{CORS}\
         [clients]\nlimits_path = \"/limits\"\non_unknown_key = \"deny\"\n\
         [upstreams.api]\nservers = [\"{}\"]\n\
         [upstreams.dead]\nservers = [\"{}\"]\n[upstreams.broken]\nservers = [\"{}\"]\n\
         [upstreams.late]\nservers = [\"{}\"]\nread_timeout = \"200ms\"\n\
         [routes.all]\npath = \"/v1/*\"\nupstream = \"api\"\nmax_body_bytes = 5\n\
         [routes.dead]\npath = \"/dead\"\nupstream = \"dead\"\n\
         [routes.broken]\npath = \"/broken\"\nupstream = \"broken\"\n\
         [routes.late]\npath = \"/late\"\nupstream = \"late\"\n\
         [routes.down]\npath = \"/down\"\nmaintenance = true\nupstream = \"api\"\n\
         [routes.gone]\npath = \"/gone\"\nrespond = {{ status = 410, body = \"gone\" }}\n\
         [routes.moved]\npath = \"/moved\"\nredirect = {{ to = \"/v1/\" }}\n\
         [rules.once]\nper = []\nroutes = [\"all\"]\nrate = \"2/d\"\n{}",
        echo.address,
        dead.address,
        broken.address,
        late.local_addr().unwrap(),
        key("acme", "secret", "default"),
    );
    let gateway = Gateway::start(&config);
    let get = |path: &str| gateway.send(&from(APP, "GET", path));
    let with =
        |name: &str, value: &str| gateway.send(&from(APP, "GET", "/v1/").header(name, value));
    assert_readable(&with("X-Api-Key", "guess"), 401);
    assert_readable(&with("Expect", "x"), 417);
    assert_readable(&with("X-Forwarded-For", "192.0.2.7"), 403);
    let two = from(APP, "GET", "/v1/").header("X-Api-Key", "a").header("X-Api-Key", "b");
    assert_readable(&gateway.send(&two), 400);
    assert_readable(&gateway.send(&from(APP, "POST", "/v1/").body("too long")), 413);
    let mut connection = gateway.connect();
    let head =
        "POST /v1/ HTTP/1.1\r\nHost: a\r\nOrigin: https://app.test\r\nTransfer-Encoding: chunked";
    connection.write(format!("{head}\r\n\r\n8\r\ntoo long\r\n0\r\n\r\n").as_bytes());
    assert_readable(&connection.read_response("POST"), 413);
    assert_readable(&get("/limits"), 200);
    assert_readable(&get("/none"), 404);
    assert_readable(&get("/v1/"), 200);
    assert_readable(&get("/v1/"), 429);
    assert_readable(&get("/dead"), 502);
    assert_readable(&get("/broken"), 502);
    assert_readable(&get("/late"), 504);
    assert_readable(&get("/down"), 503);
    assert_readable(&get("/gone"), 410);
    assert_readable(&get("/moved"), 308);
    assert_eq!(gateway.send(&preflight(APP, "GET", "/down")).status, 204);
    let denied = preflight(APP, "GET", "/v1/").header("X-Forwarded-For", "192.0.2.7");
    assert_readable(&gateway.send(&denied), 403);
    for path in ["/limits", "/none", "/v1/", "/gone"] {
        let answer = gateway.send(&from("https://evil.test", "GET", path));
        assert_eq!(cors_of(&answer), ["vary: Origin"], "{path}");
        assert_eq!(cors_of(&gateway.get(path)), ["vary: Origin"], "{path}");
    }
}

#[test]
fn headers_of_the_upstream_are_replaced() {
    let own = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nVary: Accept-Encoding\r\nVary: Accept\r\n\
               Access-Control-Allow-Origin: *\r\naccess-control-allow-origin: https://evil.test\r\n\
               Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: X-Secret\r\n\r\n";
    let upstream = Upstream::responding(own);
    let routes = "[routes.off]\npath = \"/off\"\ncors = false\n[routes.any]\npath = \"/any\"\ncors = { origins = [\"*\"], exposed_headers = [\"X-Total\"] }\n";
    let gateway = Gateway::start(&format!("{CORS}{}{routes}", proxy_to(&[upstream.address])));
    let vary = "vary: Accept-Encoding, Accept, Origin";
    let answer = gateway.send(&from(APP, "GET", "/"));
    assert_eq!(answer.header("access-control-allow-origin"), Some(APP));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert!(!answer.header("access-control-expose-headers").unwrap().contains("Secret"));
    assert_eq!(answer.header("vary"), Some("Accept-Encoding, Accept, Origin"));
    for origin in ["https://evil.test", "https://app.test.evil.test", "null", "*", ""] {
        assert_eq!(cors_of(&gateway.send(&from(origin, "GET", "/"))), [vary], "{origin}");
    }
    let two = from(APP, "GET", "/").header("Origin", APP);
    assert_eq!(cors_of(&gateway.send(&two)), [vary]);
    assert_eq!(cors_of(&gateway.get("/")), [vary]);
    let any = ["access-control-allow-origin: *", "access-control-expose-headers: x-total"];
    for request in [Request::get("/any"), from("https://evil.test", "GET", "/any")] {
        let lines = cors_of(&gateway.send(&request));
        assert_eq!(lines[..2], any, "{lines:?}");
    }
    // As the upstream has it.
    assert_eq!(cors_of(&gateway.send(&from(APP, "GET", "/off"))).len(), 6);
    // An OPTIONS request that is no preflight passes, as does one to a route without `cors`.
    let before = upstream.requests().len();
    let options = [from(APP, "OPTIONS", "/"), preflight(APP, "GET", "/off")];
    for request in &options {
        assert_eq!(gateway.send(request).status, 200);
    }
    assert_eq!(upstream.requests().len(), before + options.len());
}

#[test]
fn http2_has_the_same_headers_on_both_sides() {
    let server = PeerServer::node(None);
    let upstream = format!(
        "[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"h2c\"\n[routes.all]\n",
        server.address
    );
    let rule = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&format!("{CORS}{HTTP2_LISTENER}{upstream}{rule}"));
    let url = format!("http://{}/cors", gateway.listener(1));
    let run = |arguments: &[&str]| {
        let all = ["--http2-prior-knowledge", "--include", "-H", "Origin: https://app.test"];
        let text = curl(&[&all, arguments, &[&url]].concat()).text();
        let lines = text.lines().map(|line| line.trim().to_lowercase());
        let is_of = |line: &String| {
            line.starts_with("http/2")
                || line.starts_with("access-control-allow")
                || line.starts_with("vary")
                || line.starts_with("access-control-max")
        };
        lines.filter(is_of).collect::<Vec<_>>()
    };
    let origin = "access-control-allow-origin: https://app.test";
    assert_eq!(
        run(&[
            "-X",
            "OPTIONS",
            "-H",
            "Access-Control-Request-Method: PATCH",
            "-H",
            "Access-Control-Request-Headers: x-a"
        ]),
        [
            "http/2 204",
            origin,
            "access-control-allow-methods: patch",
            "access-control-allow-headers: x-a",
            "access-control-max-age: 600",
            "vary: origin, access-control-request-method, access-control-request-headers",
        ]
    );
    assert_eq!(run(&[]), ["http/2 200", "vary: accept-encoding, origin", origin]);
    assert_eq!(run(&[]), ["http/2 429", origin, "vary: origin"]);
    assert_eq!(server.count("request"), 1, "{}", server.log());
}

#[test]
fn outcome_of_a_grpc_web_call_can_be_read() {
    let rule = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&format!("{CORS}{DEMO}{rule}"));
    let call = || {
        let call = from(APP, "POST", "/test.Echo/Unary");
        gateway.send(&call.header("content-type", "application/grpc-web+proto").body("x"))
    };
    assert_readable(&call(), 200);
    let refused = call();
    assert_readable(&refused, 200);
    assert_eq!(refused.header("grpc-status"), Some("8"));
    let exposed = refused.header("access-control-expose-headers").unwrap();
    assert!(exposed.ends_with("Grpc-Status, Grpc-Message"), "{exposed}");
    let asks = preflight(APP, "POST", "/test.Echo/Unary")
        .header("Access-Control-Request-Headers", "content-type,x-grpc-web,grpc-timeout");
    let headers = gateway.send(&asks);
    assert_eq!(
        headers.header("access-control-allow-headers"),
        Some("content-type, x-grpc-web, grpc-timeout")
    );
}

#[test]
fn hostile_preflights_are_harmless() {
    let gateway = Gateway::start(&format!("{CORS}{DEMO}"));
    let long = "x".repeat(60_000);
    let names =
        |value: &str| preflight(APP, "GET", "/").header("Access-Control-Request-Headers", value);
    assert_eq!(gateway.send(&names(&long)).status, 431);
    let many = vec!["a"; 10_000].join(",");
    let answer = gateway.send(&names(&many));
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-headers").unwrap().len(), 29_998);
    for value in ["a\tb", "a: b", "\"", "a,b c", "\u{fc}"] {
        let answer = gateway.send(&names(value));
        let allowed = answer.header("access-control-allow-headers");
        assert_eq!((answer.status, allowed), (204, None), "{value}");
    }
    let bytes = Request::get("/").header("Origin", b"https://\xff.example.com");
    assert_eq!(cors_of(&gateway.send(&bytes)), ["vary: Origin"]);
    let split = "https://a.example.com\rSet-Cookie: a=b";
    let answer = gateway.connect().send(&from(split, "GET", "/"));
    assert!(answer.status == 400 && answer.header("set-cookie").is_none(), "{answer:?}");
    // A method that is no token makes it a request as any other.
    assert_eq!(gateway.send(&preflight(APP, "G T", "/")).status, 200);
    assert_eq!(gateway.send(&preflight(APP, "GET", "/a/%2e%2e/b")).status, 400);
}

#[test]
fn reload_changes_the_origins() {
    let gateway = Gateway::start(&format!("{CORS}{DEMO}"));
    let other = || gateway.send(&from("https://other.test", "GET", "/"));
    assert_eq!(other().header("access-control-allow-origin"), None);
    gateway.apply(&format!("[cors]\norigins = [\"https://other.test\"]\n{DEMO}"));
    assert_eq!(other().header("access-control-allow-origin"), Some("https://other.test"));
    gateway.apply(DEMO);
    assert_eq!(cors_of(&other()), Vec::<String>::new());
}
