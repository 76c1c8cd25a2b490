//! Answers of routes without an upstream, redirects and maintenance (`docs/fixed-answers.md`).

use serde_json::json;

use crate::support::{Gateway, HTTP2_LISTENER, Request, Upstream, curl, key, proxy_to};

#[test]
fn fixed_answer_is_written_and_charged() {
    let route = "[routes.a]\npath = \"/a\"\nrespond = { status = 410, body = \"gone\\n\", headers = { X-Path = \"{path}\" } }\n";
    let rule = "[rules.r]\nper = []\nrate = \"3/d\"\n";
    let gateway = Gateway::start(&format!("{route}{rule}{HTTP2_LISTENER}"));
    let answer = gateway.get("/a");
    assert_eq!((answer.status, answer.text().as_str()), (410, "gone\n"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.header("x-path"), Some("/a"));
    assert_eq!(answer.remaining(), 2);
    let head = gateway.send(&Request::new("HEAD", "/a"));
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (410, Some("5"), 0));
    let url = format!("http://{}/a", gateway.listener(1));
    let answer = curl(&["--http2-prior-knowledge", "--include", "--data", "body", &url]).text();
    assert!(answer.starts_with("HTTP/2 410") && answer.ends_with("gone\n"), "{answer}");
    assert_eq!(gateway.get("/a").status, 429);
}

#[test]
fn connection_stays_usable_after_an_answer_without_body() {
    let route = "[routes.a]\nrespond = { status = 204 }\n";
    let gateway = Gateway::start(route);
    let mut connection = gateway.connect();
    for _ in 0..3 {
        let answer = connection.send(&Request::new("POST", "/a").body("x"));
        assert_eq!((answer.status, answer.header("content-length")), (204, None));
    }
}

/// The status and the location of the answer to this target.
fn redirected(redirect: &str, target: &str) -> (u16, Option<String>) {
    let gateway = Gateway::start(&format!("[routes.a]\nredirect = {redirect}\n"));
    let answer = gateway.send(&Request::get(target));
    (answer.status, answer.header("location").map(str::to_owned))
}

#[test]
fn redirect_has_values_of_the_request() {
    let to = "{ to = \"https://new.example{path}{query}\" }";
    let at = |url: &str| (308, Some(url.to_owned()));
    assert_eq!(redirected(to, "/a%20b/?c=d&e"), at("https://new.example/a%20b/?c=d&e"));
    assert_eq!(redirected(to, "/"), at("https://new.example/"));
    assert_eq!(redirected(to, "//evil.test/x"), at("https://new.example//evil.test/x"));
    assert_eq!(redirected(to, "/@evil.test"), at("https://new.example/@evil.test"));
    let host = "{ to = \"https://{host}{path}\", status = 301 }";
    assert_eq!(redirected(host, "/a"), (301, Some("https://api.test/a".to_owned())));
}

/// A redirect to the area of the client: a client without a key has none.
#[test]
fn redirect_without_a_value_is_refused_before_a_token_is_taken() {
    let rule = "[rules.ip]\nper = [\"ip\"]\nrate = \"3/365d\"\n";
    let clients = "[clients]\non_unknown_key = \"anonymous\"\n";
    let redirect = "[routes.a]\nredirect = { to = \"https://new.example/{client.id}{path}\" }\n";
    let gateway =
        Gateway::start(&format!("{redirect}{rule}{clients}{}", key("acme", "secret", "default")));
    let get = || Request::get("/x");
    for _ in 0..5 {
        let answer = gateway.send(&get());
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        let detail = "The redirect here needs a known API key, which the request does not have.";
        assert_eq!(answer.json()["detail"], detail);
    }
    let explained = gateway.explain(r#"{"path": "/x"}"#).json();
    assert_eq!(
        (&explained["verdict"]["decision"], &explained["verdict"]["status"]),
        (&json!("deny"), &json!(400))
    );
    // Guesses at keys are counted.
    let with_key = |key: &str| gateway.send(&get().header("X-Api-Key", key));
    assert_eq!(with_key("guess").status, 400);
    let known = with_key("secret");
    assert_eq!((known.status, known.header("location")), (308, Some("https://new.example/acme/x")));
    assert_eq!(known.remaining(), 1);
    assert_eq!(with_key("guess").status, 400);
    assert_eq!(with_key("guess").status, 429);
}

#[test]
fn redirect_cannot_be_split_or_lead_to_another_host() {
    let to = "{ to = \"/new{path}{query}\", status = 302 }";
    for target in ["/a%0d%0aSet-Cookie:%20b", "/%0d%0a%0d%0a%3Cscript%3E", "/a?b=%0aX:y", "/\u{e9}"]
    {
        let (status, location) = redirected(to, target);
        assert_eq!(status, 302);
        let location = location.unwrap();
        assert!(location.starts_with("/new/") && location.is_ascii(), "{location}");
    }
}

#[test]
fn curl_follows_a_redirect() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let old = "[routes.old]\npath = \"/old/*\"\nredirect = { to = \"/new{path}{query}\" }\n";
    let gateway = Gateway::start(&format!("{}{old}", proxy_to(&[upstream.address])));
    let url = format!("http://{}/old/x?y=z", gateway.address);
    let body = curl(&["--location", &url]).text();
    assert_eq!(body, "ok");
    assert_eq!(upstream.only_request().line(), "GET /new/old/x?y=z HTTP/1.1");
}

#[test]
fn maintenance_is_answered_503_and_takes_no_tokens() {
    let rule = "[rules.r]\nper = []\nrate = \"2/d\"\n";
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let routes = proxy_to(&[upstream.address]);
    let on = |setting: &str| format!("{routes}maintenance = {setting}\n{rule}");
    let gateway = Gateway::start(&on("{ retry_after = \"10m\" }"));
    for _ in 0..5 {
        let answer = gateway.get("/");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("600")));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    assert!(upstream.requests().is_empty());
    // Nothing was charged.
    gateway.apply(&on("{ allow_ips = [\"127.0.0.0/8\"] }"));
    assert_eq!(gateway.get("/").remaining(), 1);
    gateway.apply(&on("{ allow_ips = [\"10.0.0.0/8\"] }"));
    assert_eq!(gateway.get("/").status, 503);
    gateway.apply(&on("false"));
    assert_eq!(gateway.get("/").remaining(), 0);
}

#[test]
fn maintenance_of_the_server_is_that_of_all_routes_but_those_with_their_own() {
    let routes = format!(
        "{}\n[routes.up]\npath = \"/up\"\nmaintenance = false\nupstream = \"api\"\n",
        crate::support::DEMO
    );
    let gateway = Gateway::start(&format!("maintenance = true\n{routes}"));
    let answer = gateway.get("/");
    assert_eq!((answer.status, answer.header("retry-after")), (503, None));
    assert_eq!(gateway.get("/up").status, 200);
    let body = "{\"path\": \"/\"}";
    let explained = gateway.send_admin(&Request::new("POST", "/api/explain").body(body)).json();
    assert_eq!(explained["verdict"]["status"], 503);
    assert_eq!(explained["route"]["handling"][0], "maintenance: answers 503");
}
