//! Explanations of typical requests, as a user reads them.

use std::sync::Arc;

use super::report::Explanation;
use super::request::RequestSpec;
use super::{Explainer, PeekResult, by_rules, prechecked, resolved};
use crate::limit::share::Share;
use crate::load::from_text;
use crate::policy::Policy;
use crate::runtime::{CurrentSnapshot, Snapshot};
use crate::store::limiter::{Limiter, Source, Taken};
use crate::store::memory::MemoryStore;

/// The keys of `acme` and of `monitor` are their names.
const FILE: &str = r#"
[server]
trusted_proxies = ["10.0.0.0/8"]

[plans.free]
[plans.pro]

[keys.acme]
sha256 = "822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757"
plan = "pro"
rules.per-ip = { rate = "500/d" }
[keys.monitor]
sha256 = "7de97367c9cdc3c6db31aa114057b65cea1a7bafc71cf0595a2931011526a0a3"
plan = "free"

[upstreams.api]
servers = ["demo"]
[upstreams.admin]
servers = ["demo"]

[routes.search]
path = "/api/search"
methods = ["GET"]
upstream = "api"
cost = 5
[routes.api]
path = "/api/*"
upstream = "api"
[routes.admin]
host = "admin.example.com"
path = "/*"
upstream = "admin"

[rules.per-key]
per = ["key"]
plans.free = { rate = "10/d" }
plans.pro = { rate = "100/d", burst = 500 }
[rules.per-ip]
per = ["ip"]
rate = "50/d"
exempt = { ips = ["192.0.2.0/24"], keys = ["monitor"] }
[rules.search]
per = ["key", "route"]
routes = ["search"]
on_missing = "skip"
plans.pro = { rate = "20/d" }
on_failure = "deny"
[rules.tenants]
per = ["header:x-tenant", "method"]
rate = "9/d"
mode = "shadow"
[rules.keys-only]
per = ["key"]
on_missing = "deny"
rate = "5/d"
mode = "shadow"
[rules.off]
per = []
rate = "1/d"
enabled = false
"#;

/// The digest of `a key+&%`.
const SPECIAL_KEY: &str =
    "sha256 = '6dafded03b659d185139ae5dd4bb7532d05f42c62629d1405880eb495160714c'";

fn policy() -> Policy {
    from_text("gateway.toml", FILE).unwrap()
}

fn get(path: &str) -> RequestSpec {
    RequestSpec {
        path: path.to_owned(),
        host: Some("api.example.com".to_owned()),
        ip: "203.0.113.7".parse().ok(),
        ..RequestSpec::default()
    }
}

fn with_key(path: &str, key: &str) -> RequestSpec {
    RequestSpec { key: Some(key.to_owned()), ..get(path) }
}

fn with_headers(spec: RequestSpec, headers: &[(&str, &str)]) -> RequestSpec {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    RequestSpec { headers: headers.iter().map(pair).collect(), ..spec }
}

/// The explanation after `before` requests like it, at one instant.
fn after(before: usize, spec: &RequestSpec) -> Explanation {
    let policy = policy();
    let store = MemoryStore::new(1_000, &policy.limits);
    let request = spec.request(&policy).unwrap();
    let tokens = crate::tokens::Tokens::new(&policy.clients, None);
    let precheck = prechecked(&policy, &tokens, &request);
    for _ in 0..before {
        store.take(&precheck.charges, 0, Share::WHOLE);
    }
    let answer = store.peek(&precheck.charges, 0, Share::WHOLE);
    let (charges, waived) = (precheck.charges.clone(), Vec::new());
    let taken = Taken { waived, ..Taken::all(charges, answer, Source::Local) };
    let levels = PeekResult::Read { taken: &taken, retry_after_us: 0 };
    resolved::explanation(&policy, &request, &precheck, levels)
}

fn without_levels(spec: &RequestSpec) -> String {
    by_rules(&policy(), spec).unwrap().render(false)
}

fn json(explanation: &Explanation) -> String {
    serde_json::to_string_pretty(explanation).unwrap()
}

/// Passwords are verified one at a time, and an explanation does not wait for that without end.
#[tokio::test(start_paused = true)]
async fn password_is_verified_when_its_turn_comes_within_the_limit() {
    let users = "[clients.basic]\nusers = ['alice:$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm']\n";
    let policy = from_text("gateway.toml", &format!("{FILE}{users}")).unwrap();
    let current = CurrentSnapshot::from_pointee(Snapshot::new(policy, Vec::new()));
    let limiter = Limiter::local(Arc::new(MemoryStore::new(100, &[])));
    let explainer = Explainer::new(Arc::new(current), Arc::new(limiter));
    // `alice:secret`.
    let with_login = with_headers(get("/api/x"), &[("authorization", "Basic YWxpY2U6c2VjcmV0")]);
    let key_state =
        async |spec: &RequestSpec| explainer.explain(spec).await.unwrap().client.unwrap().key_state;
    assert_eq!(key_state(&with_login).await, "known");
    let turn = Arc::clone(&explainer.verification).acquire_owned().await.unwrap();
    assert_eq!(key_state(&with_login).await, "unverified");
    assert_eq!(key_state(&get("/api/x")).await, "none", "it needs no turn");
    drop(turn);
    assert_eq!(key_state(&with_login).await, "known");
}

#[test]
fn known_key_without_levels() {
    let spec = with_key("/api/search?q=1", "acme");
    insta::assert_snapshot!(without_levels(&spec));
    insta::assert_snapshot!("known_key_as_json", json(&by_rules(&policy(), &spec).unwrap()));
}

fn with_key_id(path: &str, id: &str) -> RequestSpec {
    RequestSpec { key_id: Some(id.to_owned()), ..get(path) }
}

/// An operator has only the ids of keys.
#[test]
fn key_id_explains_the_same_as_the_key() {
    for id in ["acme", "monitor"] {
        for path in ["/api/search?q=1", "/api/x", "/nothing"] {
            let by_key = by_rules(&policy(), &with_key(path, id)).unwrap();
            let by_id = by_rules(&policy(), &with_key_id(path, id)).unwrap();
            assert_eq!(by_id, by_key, "{id} {path}");
        }
    }
    let error = |spec: &RequestSpec| by_rules(&policy(), spec).unwrap_err().to_string();
    assert_eq!(
        error(&with_key_id("/", "acmee")),
        "the file has no key `acmee`: did you mean `acme`?"
    );
    let both = "the request has a key and the id of a key; give one of them";
    let key = Some("acme".to_owned());
    assert_eq!(error(&RequestSpec { key, ..with_key_id("/", "acme") }), both);
    for header in [("x-api-key", "secret"), ("authorization", "Bearer secret")] {
        assert_eq!(error(&with_headers(with_key_id("/", "acme"), &[header])), both);
    }
    assert_eq!(error(&with_key_id("/?api_key=secret", "acme")), both);
}

/// Two shadow rules, of which one demands a key, would refuse the allowed request.
#[test]
fn allowed_request_names_the_shadow_rules_that_would_refuse_it() {
    insta::assert_snapshot!(after(9, &get("/api/x")).render(false));
}

#[test]
fn allowed_request() {
    insta::assert_snapshot!(after(1, &with_key("/api/search", "acme")).render(false));
}

#[test]
fn request_denied_by_a_limit() {
    let explanation = after(11, &get("/api/x"));
    insta::assert_snapshot!(explanation.render(false));
    insta::assert_snapshot!("request_denied_by_a_limit_as_json", json(&explanation));
}

#[test]
fn unknown_key() {
    insta::assert_snapshot!(without_levels(&with_key("/api/x", "guess")));
}

#[test]
fn route_that_differs_in_one_criterion() {
    let put = RequestSpec { method: "PUT".to_owned(), ..get("/users") };
    insta::assert_snapshot!(without_levels(&put));
    insta::assert_snapshot!(
        "path_without_a_route",
        without_levels(&RequestSpec { host: Some("[::1]:80".to_owned()), ..get("/nothing") })
    );
}

/// Each route that matches says why it is the one, or why it is not.
#[test]
fn parameters_and_precedence() {
    let routes = "[routes.chat]\npath = '/v1/{tenant}/chat'\n[routes.tenant]\npath = '/v1/{tenant}/*'\n\
        [routes.acme]\npath = '/v1/acme/*'\nmethods = ['GET']\n[routes.version]\npath = '/{version}/acme/chat'\n\
        [routes.rest]\n";
    let policy =
        from_text("gateway.toml", &format!("[upstreams.api]\nservers = ['demo']\n{routes}"));
    let policy = policy.unwrap();
    let of = |path: &str| by_rules(&policy, &get(path)).unwrap();
    insta::assert_snapshot!(of("/v1/acme/chat").render(false));
    insta::assert_snapshot!(
        "parameters_and_precedence_of_text",
        of("/v1/a%20b/chat/").render(false)
    );
    let params = serde_json::to_value(of("/v1/a%20b/x").route).unwrap()["params"].take();
    assert_eq!(params, serde_json::json!([{ "name": "tenant", "value": "a%20b" }]));
}

#[test]
fn ambiguous_path() {
    insta::assert_snapshot!(without_levels(&get("/api%2Fsearch")));
}

#[test]
fn address_from_x_forwarded_for() {
    let spec = RequestSpec { ip: "10.0.0.1".parse().ok(), ..get("/api/x") };
    let spec = with_headers(spec, &[("X-Forwarded-For", "junk, 2001:db8:1:2:3::4, 10.0.0.9")]);
    insta::assert_snapshot!(without_levels(&spec));
}

#[test]
fn method_that_the_most_specific_route_does_not_list() {
    let spec = RequestSpec { method: "POST".to_owned(), ..with_key("/api/search", "monitor") };
    insta::assert_snapshot!(without_levels(&with_headers(spec, &[("x-tenant", "hidden")])));
}

#[test]
fn conflicting_keys() {
    let spec = with_headers(with_key("/api/x", "acme"), &[("authorization", "Bearer other")]);
    insta::assert_snapshot!(without_levels(&spec));
}

#[test]
fn keys_that_cannot_be_used_name_where_they_were() {
    let twice = with_headers(with_key("/api/x", "acme"), &[("x-api-key", "other")]);
    let shown = without_levels(&twice);
    assert!(
        shown.contains("has two different API keys in the header X-Api-Key; send one."),
        "{shown}"
    );
    let token = format!("Bearer {}", "x".repeat(1025));
    let path = RequestSpec { path: "/api/x".to_owned(), ..RequestSpec::default() };
    let shown = without_levels(&with_headers(path, &[("authorization", &token)]));
    let detail = "The API key as a bearer token in Authorization is longer than 1024 bytes.";
    assert!(shown.contains(detail), "{shown}");
}

#[test]
fn exempt_address() {
    let spec = RequestSpec { ip: "192.0.2.7".parse().ok(), ..with_key("/api/x", "acme") };
    insta::assert_snapshot!(without_levels(&spec));
    let nothing = RequestSpec { path: "/api/x".to_owned(), ..RequestSpec::default() };
    insta::assert_snapshot!("no_part_given", without_levels(&nothing));
}

#[test]
fn colours_do_not_change_the_text() {
    let explanation = after(11, &get("/api/x"));
    let colored = explanation.render(true);
    let mut plain = String::new();
    for part in colored.split('\u{1b}') {
        let escaped = part.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        plain.push_str(escaped.map_or(part, |(_, text)| text));
    }
    assert!(colored.contains("\u{1b}[31m"), "{colored:?}");
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&plain), trimmed(&explanation.render(false)));
}

/// Wherever a key is sent, and whether it is valid or not, it is not shown.
#[test]
fn key_is_never_shown() {
    let secret = "s3cr3t-of-a-client";
    let spec = [
        with_key("/api/x", secret),
        get(&format!("/api/x?api_key={secret}")),
        with_headers(get("/api/x"), &[("Authorization", &format!("Bearer {secret}"))]),
        with_headers(with_key("/api/x", "acme"), &[("x-api-key", secret)]),
        with_headers(get("/api/x"), &[("x-tenant", secret)]),
    ];
    for spec in &spec {
        let explanation = after(1, spec);
        let shown = explanation.render(false) + &json(&explanation) + &without_levels(spec);
        assert!(!shown.contains(secret), "{shown}");
    }
    for wrong in [format!("{secret}\n"), format!("\u{7f}{secret}")] {
        let error = with_key("/api/x", &wrong).request(&policy()).err().unwrap();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
}

#[test]
fn key_is_sent_in_the_first_configured_place() {
    for place in ["header:x-key", "bearer", "query:k"] {
        let clients = format!("[clients]\napi_key = ['{place}']\n[keys.odd]\nplan = 'pro'\n");
        let text = FILE.replace("[plans.free]", &format!("{clients}{SPECIAL_KEY}\n[plans.free]"));
        let policy = from_text("gateway.toml", &text).unwrap();
        let explanation = by_rules(&policy, &with_key("/api/x?a=b", "a key+&%")).unwrap();
        let client = explanation.client.unwrap();
        assert_eq!((client.key.as_deref(), client.key_from.as_deref()), (Some("odd"), Some(place)));
    }
}

#[test]
fn invalid_request_is_an_error_with_the_part() {
    let table = [
        (
            RequestSpec { method: "GE T".to_owned(), ..get("/") },
            "`GE T` is not a method; write it like `GET`",
        ),
        (
            get("/a b"),
            "the path contains a space or a control character; percent-encode it, such as `%20`",
        ),
        (with_headers(get("/"), &[("a b", "c")]), "`a b` is not the name of a header"),
        (
            with_headers(get("/"), &[("a", "c\0")]),
            "the value of the header `a` contains a control character",
        ),
        (
            with_headers(get("/"), &[("host", "a")]),
            "the host is given twice, as a host and as a header; give it once",
        ),
        (with_key("/", "a\nb"), "no client can send this key: it contains a control character"),
    ];
    for (spec, expected) in table {
        assert_eq!(by_rules(&policy(), &spec).unwrap_err().to_string(), expected);
    }
}

#[test]
fn preflight_without_a_key_is_explained_by_on_preflight() {
    let required =
        FILE.replace("[plans.free]", "[clients]\non_missing_key = \"deny\"\n@\n[plans.free]");
    let spec = RequestSpec { method: "OPTIONS".to_owned(), ..get("/api/x") };
    let headers = [("Origin", "https://app.test"), ("Access-Control-Request-Method", "PUT")];
    let spec = with_headers(spec, &headers);
    let explained = |setting: &str| {
        let policy = from_text("gateway.toml", &required.replace('@', setting)).unwrap();
        by_rules(&policy, &spec).unwrap().render(false)
    };
    let open = explained("on_preflight = \"anonymous\"");
    assert!(open.contains("client   no key: a CORS preflight request needs none"), "{open}");
    assert!(!open.contains("401"), "{open}");
    let closed = explained("");
    assert!(closed.contains("401"), "{closed}");
}

#[test]
fn route_with_a_path_above_that_of_the_request_is_a_near_miss() {
    let file = "[upstreams.api]\nservers = ['demo']\n[routes.api]\npath = '/api/'\nmethods = ['GET']\n\
        [routes.user]\npath = '/users/{id}'\n[routes.root]\npath = '/'\n";
    let policy = from_text("gateway.toml", file).unwrap();
    let explained = |path: &str, method: &str| {
        let spec = RequestSpec { method: method.to_owned(), ..get(path) };
        by_rules(&policy, &spec).unwrap().render(false)
    };
    let found = explained("/api/v1/items", "GET");
    let expected = "none: no route matches; these differ in one criterion\n           \
        api  /api/  only for this path: the prefix is `/api/*`\n";
    assert!(found.contains(expected), "{found}");
    let found = explained("/users/7/files", "GET");
    assert!(found.contains("only for this path: the prefix is `/users/{id}/*`"), "{found}");
    for (path, method) in [("/api/v1/items", "POST"), ("/apis", "GET"), ("/other", "GET")] {
        let found = explained(path, method);
        assert!(found.contains("none: no route has such a host and path"), "{found}");
    }
    let file = "[upstreams.api]\nservers = ['demo']\n[routes.root]\npath = '/'\n";
    let policy = from_text("gateway.toml", file).unwrap();
    let found = by_rules(&policy, &get("/other")).unwrap().render(false);
    assert!(found.contains("only for this path: the prefix is `/*`"), "{found}");
}

#[test]
fn hosts_are_explained_from_the_most_to_the_least_specific() {
    let file = "[upstreams.api]\nservers = ['demo']\n\
        [routes.own]\nhost = ['a.b.example', '*.c.example', '*.b.example']\n\
        [routes.below]\nhost = '*.example'\n[routes.all]\nmethods = ['GET']\n";
    let policy = from_text("gateway.toml", file).unwrap();
    let explained = |host: &str, method: &str| {
        let host = Some(host.to_owned());
        let spec = RequestSpec { host, method: method.to_owned(), ..get("/") };
        let text = by_rules(&policy, &spec).unwrap().render(false);
        let lines = text.lines().skip_while(|line| !line.starts_with("route"));
        let route: Vec<&str> = lines.take_while(|line| !line.starts_with("rules")).collect();
        route.join("\n")
    };
    insta::assert_snapshot!(explained("A.b.example:80", "GET"), @r"
    route    own, to the upstream api, for 1 token
             + own    a.b.example, *.c.example, *.b.example/*  an exact host takes precedence over a wildcard
               below  *.example/*                              matches too, but an exact host takes precedence over a wildcard
               all    /*                                       matches too, but a route for the request's host takes precedence over one for all hosts
    ");
    insta::assert_snapshot!(explained("x.c.example", "GET"), @r"
    route    own, to the upstream api, for 1 token
             + own    a.b.example, *.c.example, *.b.example/*  the longer wildcard of a host takes precedence
               below  *.example/*                              matches too, but the longer wildcard of a host takes precedence
               all    /*                                       matches too, but a route for the request's host takes precedence over one for all hosts
    ");
    insta::assert_snapshot!(explained("c.example", "GET"), @r"
    route    below, to the upstream api, for 1 token
             + below  *.example/*  a route for the request's host takes precedence over one for all hosts
               all    /*           matches too, but a route for the request's host takes precedence over one for all hosts
    ");
    insta::assert_snapshot!(explained("other.test", "POST"), @r"
    route    none: no route matches; these differ in one criterion
               own    a.b.example, *.c.example, *.b.example/*  only for the host a.b.example, *.c.example, *.b.example, not for other.test
               below  *.example/*                              only for the host *.example, not for other.test
               all    /*                                       only for GET, not for POST
    ");
}

#[test]
fn media_type_of_an_error_is_explained() {
    let file = "[errors.429]\n'text/html' = 'a'\n[errors.404]\n'text/plain' = 'a'\n[upstreams.api]\n\
        servers = ['demo']\n[routes.all]\npath = '/a'\n[rules.all]\nper = []\nrate = '1/s'\n";
    let policy = from_text("gateway.toml", file).unwrap();
    let answer = |path: &str, accept: &str, content_type: &str| {
        let headers = [("Accept", accept), ("Content-Type", content_type)];
        let text = by_rules(&policy, &with_headers(get(path), &headers)).unwrap().render(false);
        let lines = text.lines().skip_while(|line| !line.starts_with("answer")).skip(1);
        lines.take_while(|line| line.starts_with(' ')).map(str::trim).collect::<String>()
    };
    let table = [
        ("/a", "text/html", "text/plain", "body of a 429: text/html, by [errors]"),
        ("/a", "*/*", "text/plain", "body of a 429: application/problem+json, by [errors]"),
        ("/b", "text/plain", "text/plain", "body text/plain, by [errors]"),
        ("/b", "text/plain", "application/grpc", ""),
        ("/b", "text/plain", "application/grpcx", "body text/plain, by [errors]"),
    ];
    for (path, accept, content_type, expected) in table {
        assert_eq!(answer(path, accept, content_type), expected, "{path} {accept}");
    }
    let other = from_text("gateway.toml", &file.replace("429", "5xx")).unwrap();
    assert!(!by_rules(&other, &get("/a")).unwrap().render(false).contains("body"));
}

#[test]
fn cors_is_explained_with_the_headers_of_the_response() {
    let file = "[cors]\norigins = ['https://app.test', 'https://*.example.com']\ncredentials = true\n\
        headers = ['content-type']\n[headers]\nstyle = 'none'\n[upstreams.api]\nservers = ['demo']\n\
        [routes.read]\nmethods = ['GET']\n[routes.write]\nmethods = ['PUT']\ncors = { origins = ['*'], methods = ['PUT'] }\n\
        [routes.own]\npath = '/own'\ncors = false\n[rules.all]\nper = []\nrate = '1/s'\n";
    let policy = from_text("gateway.toml", file).unwrap();
    let explained = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let spec = RequestSpec { method: method.to_owned(), ..get(path) };
        let text = by_rules(&policy, &with_headers(spec, headers)).unwrap().render(false);
        let lines = text.lines().skip_while(|line| !line.starts_with("route"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let origin = |origin| ("Origin", origin);
    let asks = |method| ("Access-Control-Request-Method", method);
    insta::assert_snapshot!(explained("GET", "/", &[origin("https://app.test")]));
    insta::assert_snapshot!(explained("GET", "/", &[origin("https://evil.test")]));
    insta::assert_snapshot!(explained("GET", "/", &[]));
    insta::assert_snapshot!(explained(
        "OPTIONS",
        "/",
        &[origin("https://a.example.com"), asks("GET")]
    ));
    insta::assert_snapshot!(explained("OPTIONS", "/", &[origin("https://evil.test"), asks("GET")]));
    insta::assert_snapshot!(explained("OPTIONS", "/", &[origin("https://app.test"), asks("PUT")]));
    insta::assert_snapshot!(explained(
        "OPTIONS",
        "/none",
        &[origin("https://app.test"), asks("DELETE")]
    ));
    insta::assert_snapshot!(explained(
        "OPTIONS",
        "/own",
        &[origin("https://app.test"), asks("GET")]
    ));
}

#[test]
fn explanation_names_the_command_that_lists_top_ups_of_quotas() {
    let quota = "[rules.quota]\nper = ['key']\nkind = 'fixed_window'\nlimit = '9/month'\n";
    let policy = from_text("gateway.toml", &format!("{FILE}{quota}")).unwrap();
    let line = |policy: &Policy, spec: &RequestSpec| {
        let text = by_rules(policy, spec).unwrap().render(false);
        let line = text.lines().find_map(|line| line.strip_prefix("top-ups  "));
        line.unwrap_or_default().to_owned()
    };
    let known = with_key("/api/x", "acme");
    let of = |client| {
        format!("not read; `tollgate top-ups list {client}` asks a running gateway for them")
    };
    assert_eq!(line(&policy, &known), of("--key-id acme"));
    assert_eq!(line(&policy, &get("/api/x")), of("--ip 203.0.113.7"));
    assert_eq!(line(&self::policy(), &known), "", "without a quota");
}
