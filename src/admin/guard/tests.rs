use http::{HeaderName, HeaderValue};

use super::*;
use crate::client::principal::Validity;
use crate::config::words::Word as _;
use crate::policy::redis::Secret;
use crate::policy::settings::AdminToken;

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    list.iter().map(pair).collect()
}

fn checked(path: &str, token: Option<&str>, list: &[(&'static str, &str)]) -> Result<(), Refusal> {
    let headers = headers(list);
    let request = GuardedRequest { peer: None, path, headers: &headers, target_host: None };
    check_request(request, &settings(token), 0).map(drop)
}

fn settings(token: Option<&str>) -> Admin {
    let token = token.map(|token| Secret::new(token.to_owned()));
    Admin { token, ..Admin::default() }
}

const TOKEN: &str = "0123456789abcdef";

#[test]
fn only_the_api_requires_the_token() {
    let checked = |path, value| match value {
        Some(value) => checked(path, Some(TOKEN), &[("authorization", value)]),
        None => checked(path, Some(TOKEN), &[]),
    };
    for path in ["/live", "/ready", "/metrics", "/"] {
        assert_eq!(checked(path, None), Ok(()), "{path}");
    }
    for path in ["/api/status", "/api/", "/api/nowhere"] {
        assert_eq!(checked(path, None), Err(Refusal::NoToken), "{path}");
        assert_eq!(checked(path, Some("Bearer 0123456789abcdef")), Ok(()), "{path}");
        assert_eq!(checked(path, Some("bearer  0123456789abcdef ")), Ok(()), "{path}");
        assert_eq!(checked(path, Some("Basic 0123456789abcdef")), Err(Refusal::NoToken));
        for wrong in ["Bearer ", "Bearer x", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0"] {
            assert_eq!(checked(path, Some(wrong)), Err(Refusal::WrongToken), "{wrong}");
        }
    }
}

#[test]
fn without_a_token_the_api_needs_an_ip_address_or_localhost_as_host() {
    let checked = |host| checked("/api/status", None, &[("host", host)]);
    for host in
        ["127.0.0.1:9090", "127.0.0.1", "[::1]:9090", "LocalHost:1", "a.localhost", "10.0.0.1"]
    {
        assert_eq!(checked(host), Ok(()), "{host}");
    }
    for host in ["evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.nip.io"]
    {
        assert_eq!(checked(host), Err(Refusal::ForeignHost), "{host}");
    }
    for host in ["", "a b", "127.0.0.1,evil", "user@evil.example"] {
        assert_eq!(checked(host), Err(Refusal::ForeignHost), "{host}");
    }
    let host = headers(&[("host", "127.0.0.1")]);
    let with_target = |target_host| {
        let request = GuardedRequest { peer: None, path: "/api/", headers: &host, target_host };
        check_request(request, &Admin::default(), 0).map(drop)
    };
    assert_eq!(with_target(Some("evil.example")), Err(Refusal::ForeignHost));
    assert_eq!(with_target(Some("127.0.0.1")), Ok(()));
}

#[test]
fn cross_site_requests_are_refused_with_and_without_a_token() {
    let own = ("host", "127.0.0.1:9090");
    let bearer = ("authorization", "Bearer 0123456789abcdef");
    let cross = ("origin", "https://evil.example");
    let both = |more: &[(&'static str, &str)]| {
        let without = checked("/api/status", None, &[&[own], more].concat());
        let with = checked("/api/status", Some(TOKEN), &[&[own, bearer], more].concat());
        assert_eq!(without, with, "{more:?}");
        without
    };
    assert_eq!(both(&[]), Ok(()), "not from a browser");
    assert_eq!(both(&[("origin", "http://127.0.0.1:9090")]), Ok(()));
    assert_eq!(both(&[("sec-fetch-site", "same-origin"), cross]), Ok(()));
    assert_eq!(both(&[("sec-fetch-site", "none")]), Ok(()));
    for more in [
        &[cross][..],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:9091")],
        &[("origin", "http://localhost:9090")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "")],
        &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
    ] {
        assert_eq!(both(more), Err(Refusal::CrossSite), "{more:?}");
    }
    let by_alias = [("host", "a7.localhost:9090"), ("sec-fetch-site", "cross-site")];
    assert_eq!(checked("/api/events", None, &by_alias), Err(Refusal::CrossSite));
    assert_eq!(checked("/metrics", None, &by_alias), Ok(()));
}

#[test]
fn refusals_are_logged_once_a_second() {
    let guard = Guard::default();
    let none = HeaderMap::new();
    let request = GuardedRequest { peer: None, path: "/api/", headers: &none, target_host: None };
    let settings = settings(Some(TOKEN));
    for now in [0, 1, 2, LOG_INTERVAL_US - 1] {
        let answer = guard.check(request, &settings, now).unwrap_err();
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(guard.log.lock().suppressed, 3);
    let _ = guard.check(request, &settings, LOG_INTERVAL_US);
    assert_eq!(guard.log.lock().suppressed, 0);
}

fn named(name: &str, roles: &[AdminRole], validity: Validity) -> AdminToken {
    let digest = Sha256::digest(format!("secret-of-{name}")).into();
    AdminToken { name: name.into(), digest, roles: roles.to_vec(), tenant: None, validity }
}

#[test]
fn each_token_is_known_by_its_name_and_valid_in_its_time_only() {
    let from_10 = Validity { not_before_us: 10, ..Validity::ALWAYS };
    let until_10 = Validity { expires_us: 10, ..Validity::ALWAYS };
    let tokens = vec![
        named("reader", &[AdminRole::Read], Validity::ALWAYS),
        named("early", &[AdminRole::Read], from_10),
        named("old", &[AdminRole::Read], until_10),
    ];
    let settings = Admin { tokens, ..settings(Some(TOKEN)) };
    let caller = |secret: &str, unix_us| {
        let value = format!("Bearer {secret}");
        let headers = headers(&[("authorization", &value)]);
        let request =
            GuardedRequest { peer: None, path: "/api/", headers: &headers, target_host: None };
        check_request(request, &settings, unix_us).map(|caller| caller.name().to_owned())
    };
    assert_eq!(caller(TOKEN, 0).as_deref(), Ok("token"));
    assert_eq!(caller("secret-of-reader", 0).as_deref(), Ok("reader"));
    assert_eq!(caller("secret-of-nobody", 0), Err(Refusal::WrongToken));
    let invalid = |refusal| Err(Refusal::InvalidToken(refusal));
    assert_eq!(caller("secret-of-early", 9), invalid(KeyRefusal::NotYetValid));
    assert_eq!(caller("secret-of-early", 10).as_deref(), Ok("early"));
    assert_eq!(caller("secret-of-old", 9).as_deref(), Ok("old"));
    assert_eq!(caller("secret-of-old", 10), invalid(KeyRefusal::Expired));
    // With tokens alone, one is needed on loopback too.
    let only = Admin { token: None, ..settings.clone() };
    let host = headers(&[("host", "127.0.0.1")]);
    let request = GuardedRequest { peer: None, path: "/api/", headers: &host, target_host: None };
    assert_eq!(check_request(request, &only, 0).map(drop), Err(Refusal::NoToken));
}

#[test]
fn role_to_operate_includes_that_to_read() {
    let caller = |roles: &[AdminRole]| Caller::Token {
        name: "x".into(),
        roles: roles.to_vec(),
        tenant: None,
    };
    let of = |roles: &[AdminRole]| {
        AdminRole::ALL.iter().map(|role| caller(roles).has(*role)).collect::<Vec<_>>()
    };
    assert_eq!(of(&[AdminRole::Read]), [true, false, false]);
    assert_eq!(of(&[AdminRole::Operate]), [true, true, false]);
    assert_eq!(of(&[AdminRole::Keys]), [false, false, true]);
    assert_eq!(of(&[]), [false, false, false]);
}
