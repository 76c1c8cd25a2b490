//! Tables of requests and the results of their precheck.

use std::fmt::Write as _;

use http::{Request, Version};
use sha2::{Digest as _, Sha256};

use super::{PEER, prechecked, request};
use crate::decide::guard::Malformed;
use crate::decide::raw_head::RawHead;
use crate::decide::{Head, Refusal, Rejection, Unauthenticated};
use crate::load::from_text;
use crate::policy::Policy;

/// One known key, `secret`, and rules per address, per key, and one that requires a key.
const RULES: &str = r#"
[upstreams.api]
servers = ["demo"]
[routes.all]
path = "/*"
cost = 2
[routes.keys]
path = "/keys"
[rules.per-ip]
per = ["ip"]
rate = "10/s"
[rules.per-key]
per = ["key"]
rate = "10/s"
on_missing = "skip"
[rules.demanding]
per = ["key"]
rate = "10/s"
routes = ["keys"]
on_missing = "deny"
[plans.free]
"#;

fn policy(clients: &str) -> Policy {
    policy_with(clients, "sha256 = '#'")
}

/// The same with these settings of the client; `#` is the hash of its key.
fn policy_with(clients: &str, key: &str) -> Policy {
    let digest = Sha256::digest(b"secret").iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let key = format!("[keys.acme]\nplan = \"free\"\n{key}\n").replace('#', &digest);
    let clients = format!("[clients]\nlimits_path = \"/limits\"\n{clients}\n");
    from_text("gateway.toml", &format!("{clients}{RULES}{key}")).unwrap()
}

/// The route or the refusal, the scope of the rules, and the charges.
fn outcome(policy: &Policy, method: &str, path: &str, key: Option<&str>) -> String {
    let key = key.map(|key| ("x-api-key", key));
    outcome_with(policy, method, path, key.as_slice())
}

/// The same for a request with these headers.
fn outcome_with(policy: &Policy, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let parts = request(method, path, headers);
    let checked =
        prechecked(policy, &Head::of(&parts, path.as_bytes(), Some(PEER), RawHead::Plain));
    let rule = |index: u32| policy.rules[index as usize].name.to_string();
    let charges = checked.charges.iter().map(|one| format!("{} {}", rule(one.rule), one.cost));
    let charges: Vec<String> = charges.collect();
    let to = match (checked.refused(), checked.is_own_limits, checked.route) {
        (Some(Refusal::Unauthenticated(Unauthenticated::KeyRequired(by))), ..) => {
            format!("KeyRequired by {}", rule(by.rule))
        }
        (Some(Refusal::Unauthenticated(reason)), ..) => format!("{reason:?}"),
        (Some(Refusal::Rejected(rejection)), ..) => format!("{rejection:?}"),
        (None, true, _) => "limits".to_string(),
        (None, false, route) => policy.routes[route.unwrap() as usize].name.to_string(),
    };
    format!("{to} {:?} [{}]", checked.scope, charges.join(", "))
}

#[test]
fn request_is_charged_by_the_rules_for_its_key() {
    let deny = "on_missing_key = \"deny\"\non_unknown_key = \"deny\"\n";
    let open = "on_missing_key = \"anonymous\"\non_unknown_key = \"accept\"\n";
    let table = [
        (deny, Some("secret"), "all All [per-ip 2, per-key 2]"),
        (deny, None, "KeyMissing Address [per-ip 2]"),
        (deny, Some("guess"), "KeyUnknown { source: 0 } Address [per-ip 2]"),
        (open, Some("secret"), "all All [per-ip 2, per-key 2]"),
        (open, None, "all All [per-ip 2]"),
        (open, Some("guess"), "all All [per-ip 2, per-key 2]"),
    ];
    for (clients, key, expected) in table {
        assert_eq!(outcome(&policy(clients), "GET", "/", key), expected, "{clients}, {key:?}");
    }
}

/// Also if unknown keys count as none: the operator knows these, and has ended them.
#[test]
fn key_that_cannot_be_used_is_charged_by_address() {
    let expired = "expires = 1970-01-01T00:00:00Z";
    let early = "not_before = 2027-01-01T00:00:00Z";
    let why = |why: &str| format!("KeyRefused {{ source: 0, why: {why} }} Address [per-ip 2]");
    let table = [
        (format!("secrets = [{{ sha256 = '#', {expired} }}]"), why("Expired")),
        (format!("secrets = [{{ sha256 = '#', {early} }}]"), why("NotYetValid")),
        ("sha256 = '#'\nenabled = false".to_owned(), why("Disabled")),
        ("sha256 = '#'\nenabled = true".to_owned(), "all All [per-ip 2, per-key 2]".to_owned()),
    ];
    for clients in ["", "on_unknown_key = \"accept\"", "on_unknown_key = \"anonymous\""] {
        for (key, expected) in &table {
            let found = outcome(&policy_with(clients, key), "GET", "/", Some("secret"));
            assert_eq!(found, *expected, "{clients} {key}");
        }
    }
}

#[test]
fn request_without_a_key_that_a_rule_requires_is_refused() {
    let policy = policy("on_missing_key = \"anonymous\"");
    let table = [
        (Some("secret"), "keys All [per-ip 1, per-key 1, demanding 1]"),
        (None, "KeyRequired by demanding Address [per-ip 1]"),
    ];
    for (key, expected) in table {
        assert_eq!(outcome(&policy, "GET", "/keys", key), expected, "{key:?}");
    }
}

#[test]
fn preflight_without_a_key_is_charged_as_anonymous_if_on_preflight_is() {
    /// Settings of clients, method, path, headers, and the outcome.
    type Row<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

    let origin = ("origin", "https://app.test");
    let asks = ("access-control-request-method", "PUT");
    let deny = "on_missing_key = \"deny\"\n";
    let open = "on_preflight = \"anonymous\"\n";
    let both = &format!("{deny}{open}");
    let table: [Row<'_>; 10] = [
        (deny, "OPTIONS", "/", &[origin, asks], "KeyMissing Address [per-ip 2]"),
        (both, "OPTIONS", "/", &[origin, asks], "all Preflight [per-ip 2]"),
        (both, "OPTIONS", "/", &[origin], "KeyMissing Address [per-ip 2]"),
        (both, "OPTIONS", "/", &[asks], "KeyMissing Address [per-ip 2]"),
        (both, "GET", "/", &[origin, asks], "KeyMissing Address [per-ip 2]"),
        (
            both,
            "OPTIONS",
            "/",
            &[origin, asks, ("x-api-key", "?")],
            "KeyUnknown { source: 0 } Address [per-ip 2]",
        ),
        (
            both,
            "OPTIONS",
            "/",
            &[origin, asks, ("x-api-key", "secret")],
            "all All [per-ip 2, per-key 2]",
        ),
        ("", "OPTIONS", "/keys", &[origin, asks], "KeyRequired by demanding Address [per-ip 1]"),
        // Counted by address, as with `on_missing = "ip"`.
        (open, "OPTIONS", "/keys", &[origin, asks], "keys Preflight [per-ip 1, demanding 1]"),
        (both, "OPTIONS", "/keys", &[origin, asks], "keys Preflight [per-ip 1, demanding 1]"),
    ];
    for (clients, method, path, headers, expected) in table {
        let found = outcome_with(&policy(clients), method, path, headers);
        assert_eq!(found, expected, "{clients}{method} {path} {headers:?}");
    }
}

#[test]
fn request_for_own_limits_is_charged_if_it_may_be_a_guess() {
    let deny = "on_missing_key = \"deny\"\non_unknown_key = \"deny\"\n";
    let open = "on_missing_key = \"anonymous\"\non_unknown_key = \"accept\"\n";
    let table = [
        (deny, "GET", Some("secret"), "limits All []"),
        (deny, "HEAD", Some("secret"), "limits All []"),
        (deny, "GET", None, "KeyMissing Address [per-ip 1]"),
        (deny, "GET", Some("guess"), "KeyUnknown { source: 0 } Address [per-ip 1]"),
        (deny, "OPTIONS", None, "limits All []"),
        (deny, "POST", Some("secret"), "OwnLimitsMethod All []"),
        (open, "GET", None, "limits All []"),
        (open, "GET", Some("guess"), "limits Address [per-ip 1]"),
    ];
    for (clients, method, key, expected) in table {
        let found = outcome(&policy(clients), method, "/limits", key);
        assert_eq!(found, expected, "{clients}, {method}, {key:?}");
    }
}

#[test]
fn client_with_a_known_key_only_can_ask_for_a_new_one() {
    let store = "[key_store]\nurl = 'file:keys.redb'\nself_rotation = true\n";
    let open = "on_missing_key = \"anonymous\"\non_unknown_key = \"accept\"\n";
    let policy = |rotation: bool| policy(&format!("{open}{}", if rotation { store } else { "" }));
    let table = [
        (true, "POST", Some("secret"), "limits All []"),
        (true, "POST", None, "KeyMissing Address [per-ip 1]"),
        (true, "POST", Some("guess"), "KeyUnknown { source: 0 } Address [per-ip 1]"),
        (true, "PUT", Some("secret"), "OwnLimitsMethod All []"),
        (false, "POST", Some("secret"), "OwnLimitsMethod All []"),
        (false, "POST", None, "OwnLimitsMethod All []"),
    ];
    for (rotation, method, key, expected) in table {
        let found = outcome(&policy(rotation), method, "/limits", key);
        assert_eq!(found, expected, "{rotation}, {method}, {key:?}");
    }
    for (name, value, expected) in [
        ("sec-fetch-site", "cross-site", "Rotation(CrossSite) All []"),
        ("sec-fetch-site", "same-site", "Rotation(CrossSite) All []"),
        ("sec-fetch-site", "same-origin", "limits All []"),
        ("origin", "https://page.test", "Rotation(CrossSite) All []"),
        ("origin", "null", "Rotation(CrossSite) All []"),
        ("origin", "https://api.test", "limits All []"),
    ] {
        let headers = [("x-api-key", "secret"), (name, value)];
        let found = outcome_with(&policy(true), "POST", "/limits", &headers);
        assert_eq!(found, expected, "{name} {value}");
        assert_eq!(outcome_with(&policy(true), "GET", "/limits", &headers), "limits All []");
    }
}

#[test]
fn host_is_in_lower_case_without_port_and_final_dot() {
    let table = [
        ("api.test", "api.test"),
        ("API.Test:8080", "api.test"),
        ("api.test.", "api.test"),
        ("api.test.:80", "api.test"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("[::1]", "[::1]"),
        ("[0:0::1]:80", "[::1]"),
        ("", ""),
    ];
    for (header, expected) in table {
        let headers = [(http::header::HOST, header.parse().unwrap())].into_iter().collect();
        assert_eq!(super::super::host(&headers), expected, "{header}");
    }
    assert_eq!(super::super::host(&http::HeaderMap::new()), "");
}

/// The fault of a valid request after `change`.
fn malformed(
    change: impl FnOnce(http::request::Builder) -> http::request::Builder,
    raw: RawHead,
) -> Option<Malformed> {
    let file = "[server]\nmax_uri_bytes = 128\nmax_header_bytes = 1024\n";
    let policy = from_text("gateway.toml", &format!("{file}{RULES}")).unwrap();
    let request = Request::builder().uri("/").header("host", "api.test");
    let parts = change(request).body(()).unwrap().into_parts().0;
    let target = parts.uri.to_string();
    let head = Head::of(&parts, target.as_bytes(), Some(PEER), raw);
    match prechecked(&policy, &head).refused() {
        Some(Refusal::Rejected(Rejection::Malformed(malformed))) => Some(malformed),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn malformed_as(malformed: Malformed) -> Refusal {
    Refusal::Rejected(Rejection::Malformed(malformed))
}

#[test]
fn malformed_request_is_rejected_with_its_fault() {
    // With its four bytes for a colon, a space and a line break, `host: api.test` takes 16.
    let filler = |size: usize| "x".repeat(size - 16 - "x-filler".len() - 4);
    let path = |size: usize| format!("/{}", "x".repeat(size - 1));
    assert_eq!(malformed(|request| request, RawHead::Plain), None);
    assert_eq!(
        malformed(|request| request, RawHead::ConflictingLengths),
        Some(Malformed::ConflictingLengths)
    );
    let line_feed = malformed(|request| request, RawHead::BareLineFeed);
    assert_eq!(line_feed, Some(Malformed::BareLineFeed));
    for (expectation, expected) in [
        ("100-continue", None),
        ("100-Continue", None),
        ("y 100-continue", Some(Malformed::UnsupportedExpectation)),
        ("", Some(Malformed::UnsupportedExpectation)),
    ] {
        let with = |request: http::request::Builder| request.header("expect", expectation);
        assert_eq!(malformed(with, RawHead::Plain), expected, "{expectation}");
    }
    assert_eq!(malformed(|request| request.uri(path(128)), RawHead::Plain), None);
    let too_long = malformed(|request| request.uri(path(129)), RawHead::Plain);
    assert_eq!(too_long, Some(Malformed::UriTooLong));
    assert_eq!(malformed(|request| request.header("x-filler", filler(1024)), RawHead::Plain), None);
    let too_large = malformed(|request| request.header("x-filler", filler(1025)), RawHead::Plain);
    assert_eq!(too_large, Some(Malformed::HeadersTooLarge));
    assert_eq!(
        malformed(|request| request.method("Get"), RawHead::Plain),
        Some(Malformed::LowercaseMethod)
    );
    for (coding, expected) in [
        (&["chunked"][..], None),
        (&["Chunked"], None),
        (&["gzip, chunked"], Some(Malformed::UnsupportedCoding)),
        (&["chunked", "chunked"], Some(Malformed::UnsupportedCoding)),
    ] {
        let with = |request| {
            coding.iter().fold(request, |request: http::request::Builder, coding| {
                request.header("transfer-encoding", *coding)
            })
        };
        assert_eq!(malformed(with, RawHead::Plain), expected, "{coding:?}");
    }
}

#[test]
fn http_1_1_and_a_url_require_a_host() {
    let file = from_text("gateway.toml", RULES).unwrap();
    let table = [
        (Version::HTTP_11, "/", Some(Malformed::NoHost)),
        (Version::HTTP_10, "/", None),
        (Version::HTTP_10, "http://api.test/", Some(Malformed::NoHost)),
    ];
    for (version, target, expected) in table {
        let request = Request::builder().version(version).uri(target);
        let parts = request.body(()).unwrap().into_parts().0;
        let checked =
            prechecked(&file, &Head::of(&parts, target.as_bytes(), Some(PEER), RawHead::Plain));
        assert_eq!(checked.refused(), expected.map(malformed_as), "{version:?} {target}");
    }
}

#[test]
fn invalid_host_is_rejected() {
    let file = from_text("gateway.toml", RULES).unwrap();
    for (host, expected) in
        [("api.test:80", None), ("api.test:80:80", Some(Malformed::InvalidHost))]
    {
        let parts =
            Request::builder().uri("/").header("host", host).body(()).unwrap().into_parts().0;
        let checked = prechecked(&file, &Head::of(&parts, b"/", Some(PEER), RawHead::Plain));
        assert_eq!(checked.refused(), expected.map(malformed_as), "{host}");
    }
}
