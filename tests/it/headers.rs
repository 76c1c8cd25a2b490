//! Changes of headers by routes (`docs/headers.md`).

use crate::support::{
    Gateway, PeerServer, ReceivedRequest, Request, Upstream, curl, full_config, key, proxy_to,
};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: upstream\r\nX-Powered-By: a\r\nx-powered-by: b\r\n\r\n";

/// A route to these servers with these settings, and a key.
fn config(servers: &str, settings: &str) -> String {
    let key = key("acme", "secret key", "pro");
    format!(
        "[plans.free]\n[plans.pro]\n[upstreams.api]\n{servers}\n[routes.all]\n{settings}\n{key}"
    )
}

/// Sends a request to a route with these settings, and returns what the upstream received.
fn arrives(settings: &str, request: &Request) -> ReceivedRequest {
    let upstream = Upstream::responding(ANSWER);
    let servers = format!("servers = [\"{}\"]", upstream.address);
    let gateway = Gateway::start(&config(&servers, settings));
    assert_eq!(gateway.send(request).status, 200, "{request:?}");
    upstream.only_request()
}

const ALL: &str = "request_headers = { set = { X-All = \"{client.id}|{client.plan}|{client.ip}|{route}|{host}|{method}|{path}|{{}}\", X-Id = \"{request.id}\" } }";

#[test]
fn variables_have_the_values_of_the_request() {
    let request = Request::get("/a%20b//c?key=1").header("X-Api-Key", "secret key");
    let seen = arrives(ALL, &request);
    let expected = "acme|pro|127.0.0.1|all|api.test|GET|/a%20b//c|{}";
    assert_eq!(seen.header("x-all"), Some(expected));
    assert_eq!(seen.header("x-id"), seen.header("x-request-id"));
    assert!(seen.head.contains("\r\nX-All: "), "{}", seen.head);
}

#[test]
fn header_without_a_value_is_left_out() {
    // The client has no key, and its own header does not pass.
    let seen = arrives(ALL, &Request::get("/").header("X-All", "forged").header("x_all", "forged"));
    assert_eq!((seen.header("x-all"), seen.header("x_all")), (None, None));
}

#[test]
fn set_replaces_every_spelling_and_remove_removes_it() {
    let settings = "request_headers = { set = { X-Client = \"gateway\" }, add = { Via = \"1.1 gateway\" }, remove = [\"Cookie\", \"X-Debug\"] }";
    let request = Request::get("/")
        .header("x-client", "forged")
        .header("X-Client", "forged")
        .header("X_Client", "forged")
        .header("X_CLIENT", "forged")
        .header("Cookie", "a=b")
        .header("cookie", "c=d")
        .header("X_Debug", "1")
        .header("Via", "1.0 client")
        .header("X_Other", "kept");
    let seen = arrives(settings, &request);
    assert_eq!(seen.values("x-client"), ["gateway"]);
    assert!(!seen.head.contains("forged"), "{}", seen.head);
    assert_eq!((seen.header("cookie"), seen.header("x_debug")), (None, None));
    assert_eq!(seen.values("via"), ["1.0 client", "1.1 gateway"]);
    assert_eq!(seen.header("x_other"), Some("kept"));
}

/// A client names a header in `Connection`, so that the next hop removes it.
#[test]
fn client_cannot_remove_a_header_of_the_gateway() {
    let settings = "request_headers = { set = { X-Client = \"gateway\" } }";
    let request = Request::get("/").header("Connection", "close, x-client, x_client");
    assert_eq!(arrives(settings, &request).values("x-client"), ["gateway"]);
}

#[test]
fn secret_of_the_environment_is_sent_and_not_shown() {
    let upstream = Upstream::responding(ANSWER);
    let servers = format!("servers = [\"{}\"]", upstream.address);
    let settings = "request_headers = { set = { Authorization = \"Bearer ${UPSTREAM_TOKEN}\" } }";
    let file = full_config(&config(&servers, settings));
    let gateway = Gateway::start_with(&file, |command| {
        command.env("UPSTREAM_TOKEN", "{host}secret");
    });
    assert_eq!(gateway.send(&Request::get("/")).status, 200);
    assert_eq!(upstream.only_request().header("authorization"), Some("Bearer {host}secret"));
    let policy = gateway.send_admin(&Request::get("/api/policy")).text();
    assert!(policy.contains("request headers: set Authorization"), "{policy}");
    assert!(!policy.contains("{host}secret"), "{policy}");
}

const RESPONSE: &str = "response_headers = { set = { Server = \"api\", X-Route = \"{route} {path}\" }, add = { X-Frame-Options = \"DENY\" }, remove = [\"X-Powered-By\"] }";

#[test]
fn headers_of_responses_are_changed() {
    let upstream = Upstream::responding(ANSWER);
    let servers = format!("servers = [\"{}\"]", upstream.address);
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    let gateway = Gateway::start(&config(&servers, &format!("{RESPONSE}\n{listener}")));
    let answer = gateway.get("/a");
    assert_eq!(answer.header("server"), Some("api"));
    assert_eq!(answer.header("x-route"), Some("all /a"));
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    assert_eq!(answer.header("x-powered-by"), None);
    // The same over HTTP/2 to the client.
    let url = format!("http://{}/b", gateway.listener(1));
    let answer = curl(&["--http2-prior-knowledge", "--include", &url]).text();
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
    assert!(answer.contains("x-route: all /b"), "{answer}");
    assert!(!answer.contains("x-powered-by"), "{answer}");
}

#[test]
fn responses_of_the_gateway_have_the_headers_too() {
    let limit = "[rules.r]\nper = []\nrate = \"1/d\"\n";
    let settings = "path = \"/a/*\"\nresponse_headers = { set = { X-Frame-Options = \"DENY\", Cache-Control = \"public\", Content-Type = \"text/html\" } }";
    let gateway = Gateway::start(&config("servers = [\"demo\"]", &format!("{settings}\n{limit}")));
    assert_eq!(gateway.get("/a/").header("cache-control"), Some("public"));
    let refused = gateway.get("/a/");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-frame-options"), Some("DENY"));
    // They describe the body of the gateway.
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.header("retry-after").is_some());
    // Without a route, there are no changes.
    assert_eq!(gateway.get("/b").header("x-frame-options"), None);
}

#[test]
fn upstreams_over_http2_get_the_same() {
    let server = PeerServer::node(None);
    let settings =
        "request_headers = { set = { X-Client = \"{client.id} {path}\" }, remove = [\"Cookie\"] }";
    let servers = format!("servers = [\"{}\"]\nprotocol = \"h2c\"", server.address);
    let gateway = Gateway::start(&config(&servers, &format!("{settings}\n{RESPONSE}")));
    let request = Request::get("/x?y=z").header("X-Api-Key", "secret key");
    let answer = gateway.send(&request.header("Cookie", "a=b").header("X_Client", "forged"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = answer.json();
    assert_eq!(seen["headers"]["x-client"], "acme /x");
    assert_eq!(seen["headers"]["cookie"], serde_json::Value::Null);
    assert_eq!(seen["headers"]["x_client"], serde_json::Value::Null);
    assert_eq!(answer.header("x-route"), Some("all /x"));
    assert_eq!(answer.header("server"), Some("api"));
}

#[test]
fn reload_changes_headers() {
    let upstream = Upstream::responding(ANSWER);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    assert_eq!(gateway.get("/").header("x-a"), None);
    let with = format!(
        "{}response_headers = {{ set = {{ X-A = \"b\" }} }}\n",
        proxy_to(&[upstream.address])
    );
    gateway.apply(&with);
    assert_eq!(gateway.get("/").header("x-a"), Some("b"));
}
