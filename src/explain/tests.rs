//! What is told of typical requests, read as a user would.

use super::report::Explanation;
use super::request::RequestSpec;
use super::{Levels, by_rules, resolved};
use crate::decide::precheck;
use crate::limit::share::Share;
use crate::load::from_text;
use crate::policy::Policy;
use crate::store::limiter::{Source, Taken};
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
const ODD: &str = "sha256 = '6dafded03b659d185139ae5dd4bb7532d05f42c62629d1405880eb495160714c'";

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

fn with_headers(asked: RequestSpec, headers: &[(&str, &str)]) -> RequestSpec {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    RequestSpec { headers: headers.iter().map(pair).collect(), ..asked }
}

/// What is told after `before` requests like it, at one instant.
fn after(before: usize, asked: &RequestSpec) -> Explanation {
    let policy = policy();
    let store = MemoryStore::new(1_000, &policy.limits);
    let request = asked.request(&policy).unwrap();
    let precheck = precheck(&policy, &request.head());
    for _ in 0..before {
        store.take(&precheck.charges, 0, Share::WHOLE);
    }
    let answer = store.peek(&precheck.charges, 0, Share::WHOLE);
    let (charges, waived) = (precheck.charges.clone(), Vec::new());
    let taken = Taken { waived, ..Taken::all(charges, answer, Source::Local) };
    let levels = Levels::Known { taken: &taken, retry_after_us: 0 };
    resolved::explanation(&policy, &request, &precheck, levels)
}

fn by_the_file(asked: &RequestSpec) -> String {
    by_rules(&policy(), asked).unwrap().render(false)
}

fn json(explanation: &Explanation) -> String {
    serde_json::to_string_pretty(explanation).unwrap()
}

#[test]
fn a_known_key_by_the_file_alone() {
    let asked = with_key("/api/search?q=1", "acme");
    insta::assert_snapshot!(by_the_file(&asked));
    insta::assert_snapshot!("a_known_key_as_json", json(&by_rules(&policy(), &asked).unwrap()));
}

#[test]
fn a_request_that_passes() {
    insta::assert_snapshot!(after(1, &with_key("/api/search", "acme")).render(false));
}

#[test]
fn a_request_that_a_limit_refuses() {
    let explanation = after(11, &get("/api/x"));
    insta::assert_snapshot!(explanation.render(false));
    insta::assert_snapshot!("a_request_that_a_limit_refuses_as_json", json(&explanation));
}

#[test]
fn a_key_that_nobody_knows() {
    insta::assert_snapshot!(by_the_file(&with_key("/api/x", "guess")));
}

#[test]
fn a_route_that_is_missed() {
    let put = RequestSpec { method: "PUT".to_owned(), ..get("/users") };
    insta::assert_snapshot!(by_the_file(&put));
    insta::assert_snapshot!(
        "a_path_of_no_route",
        by_the_file(&RequestSpec { host: Some("[::1]:80".to_owned()), ..get("/nothing") })
    );
}

#[test]
fn a_path_that_can_be_read_in_two_ways() {
    insta::assert_snapshot!(by_the_file(&get("/api%2Fsearch")));
}

#[test]
fn an_address_behind_proxies() {
    let asked = RequestSpec { ip: "10.0.0.1".parse().ok(), ..get("/api/x") };
    let asked = with_headers(asked, &[("X-Forwarded-For", "junk, 2001:db8:1:2:3::4, 10.0.0.9")]);
    insta::assert_snapshot!(by_the_file(&asked));
}

#[test]
fn a_method_that_the_most_specific_route_does_not_take() {
    let asked = RequestSpec { method: "POST".to_owned(), ..with_key("/api/search", "monitor") };
    insta::assert_snapshot!(by_the_file(&with_headers(asked, &[("x-tenant", "hidden")])));
}

#[test]
fn two_keys_in_one_request() {
    let asked = with_headers(with_key("/api/x", "acme"), &[("authorization", "Bearer other")]);
    insta::assert_snapshot!(by_the_file(&asked));
}

#[test]
fn an_exempt_address_and_nothing_given() {
    let asked = RequestSpec { ip: "192.0.2.7".parse().ok(), ..with_key("/api/x", "acme") };
    insta::assert_snapshot!(by_the_file(&asked));
    let nothing = RequestSpec { path: "/api/x".to_owned(), ..RequestSpec::default() };
    insta::assert_snapshot!("nothing_given", by_the_file(&nothing));
}

#[test]
fn colours_change_nothing_but_colours() {
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

/// Wherever a key stands, and whatever becomes of it, it is not told.
#[test]
fn no_key_is_echoed() {
    let secret = "s3cr3t-of-somebody";
    let asked = [
        with_key("/api/x", secret),
        get(&format!("/api/x?api_key={secret}")),
        with_headers(get("/api/x"), &[("Authorization", &format!("Bearer {secret}"))]),
        with_headers(with_key("/api/x", "acme"), &[("x-api-key", secret)]),
        with_headers(get("/api/x"), &[("x-tenant", secret)]),
    ];
    for asked in &asked {
        let explanation = after(1, asked);
        let told = explanation.render(false) + &json(&explanation) + &by_the_file(asked);
        assert!(!told.contains(secret), "{told}");
    }
    for wrong in [format!("{secret}\n"), format!("\u{7f}{secret}")] {
        let error = with_key("/api/x", &wrong).request(&policy()).err().unwrap();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
}

#[test]
fn a_key_is_put_where_the_file_looks_first() {
    for place in ["header:x-key", "bearer", "query:k"] {
        let clients = format!("[clients]\napi_key = ['{place}']\n[keys.odd]\nplan = 'pro'\n");
        let text = FILE.replace("[plans.free]", &format!("{clients}{ODD}\n[plans.free]"));
        let policy = from_text("gateway.toml", &text).unwrap();
        let explanation = by_rules(&policy, &with_key("/api/x?a=b", "a key+&%")).unwrap();
        let client = explanation.client.unwrap();
        assert_eq!((client.key.as_deref(), client.key_from.as_deref()), (Some("odd"), Some(place)));
    }
}

#[test]
fn what_no_client_can_send_is_refused_by_name() {
    let table = [
        (
            RequestSpec { method: "GE T".to_owned(), ..get("/") },
            "`GE T` is not a method; write it like `GET`",
        ),
        (
            get("/a b"),
            "the path holds a space or a control character; write it encoded, such as `%20`",
        ),
        (with_headers(get("/"), &[("a b", "c")]), "`a b` is not the name of a header"),
        (
            with_headers(get("/"), &[("a", "c\0")]),
            "the value of the header `a` holds a control character",
        ),
        (
            with_headers(get("/"), &[("host", "a")]),
            "the host is given twice, by itself and as a header; give it once",
        ),
        (with_key("/", "a\nb"), "no client can send this key: HTTP carries no control characters"),
    ];
    for (asked, expected) in table {
        assert_eq!(by_rules(&policy(), &asked).unwrap_err().to_string(), expected);
    }
}
