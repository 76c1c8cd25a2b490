//! Bearer tokens that their issuer is asked about (RFC 7662): which are accepted, how often it is
//! asked, and what happens while it is away.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::base::clock;

use crate::support::{DEMO, Gateway, PeerServer, Request, Upstream, key, proxy_to, timed_below};

/// An issuer of opaque tokens.
struct Issuer(PeerServer);

impl Issuer {
    fn start() -> Self {
        Self(PeerServer::token_provider())
    }

    fn table(&self, settings: &str) -> String {
        format!(
            "[clients.introspection]\nurl = \"http://{}/introspect\"\nclient_id = \"gate way\"\nclient_secret = \"s:e/c\"\n\
             default_plan = \"free\"\n{settings}\n",
            self.0.address
        )
    }

    /// A token with these members of its answer.
    fn token(&self, members: &Value) -> String {
        self.0.post("/opaque", members.to_string()).trim_matches('"').to_owned()
    }

    fn of(&self, sub: &str) -> String {
        self.token(&json!({ "active": true, "sub": sub, "exp": clock::unix_seconds() + 600 }))
    }

    fn questions(&self) -> usize {
        self.0.count("introspect")
    }
}

fn with(token: &str) -> Request {
    Request::get("/").header("Authorization", format!("Bearer {token}"))
}

fn statuses(gateway: &Gateway, request: &Request, count: usize) -> Vec<u16> {
    (0..count).map(|_| gateway.send(request).status).collect()
}

#[test]
fn answers_decide_which_tokens_are_accepted() {
    let issuer = Issuer::start();
    let settings = "audience = [\"api\"]\nscopes = [\"read\", \"write\"]";
    let gateway = Gateway::start(&format!("{DEMO}{}", issuer.table(settings)));
    let now = clock::unix_seconds();
    let good = json!({ "active": true, "sub": "ann", "aud": "api", "scope": "write read x", "exp": now + 600 });
    let with_member = |name: &str, value: Value| {
        let mut members = good.clone();
        members[name] = value;
        members
    };
    let cases = [
        (good.clone(), 200, ""),
        (with_member("active", json!(false)), 401, "is not active"),
        (with_member("exp", json!(now - 60)), 401, "has expired"),
        // Clocks differ, and the issuer says that it is active.
        (with_member("iat", json!(now + 10)), 200, ""),
        (with_member("iat", json!(now + 600)), 401, "is not valid yet"),
        (with_member("nbf", json!(now + 600)), 401, "is not valid yet"),
        (with_member("aud", json!(["other"])), 401, "is for another audience"),
        (with_member("scope", json!("read writer")), 401, "lacks a scope"),
        (with_member("sub", Value::Null), 401, "lacks a claim, or has one that cannot be used"),
        (with_member("active", json!("true")), 503, ""),
    ];
    for (members, status, why) in cases {
        let response = gateway.send(&with(&issuer.token(&members)));
        assert_eq!(response.status, status, "{members}");
        if status == 401 {
            let detail = format!("The token as a bearer token in Authorization {why}.");
            assert_eq!(response.json()["detail"], json!(detail));
            assert_eq!(response.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        }
    }
    let unknown = gateway.send(&with("never-issued&token=x"));
    assert_eq!(unknown.status, 401);
    assert!(!gateway.log().contains("never-issued") && !gateway.log().contains("s:e/c"));
}

#[test]
fn token_is_hidden_without_other_headers_for_the_upstream() {
    let issuer = Issuer::start();
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&format!(
        "{}{}",
        proxy_to(&[upstream.address]),
        issuer.table("hide_token = true")
    ));
    assert_eq!(statuses(&gateway, &with(&issuer.of("ann")), 1), [200]);
    assert_eq!(upstream.only_request().header("Authorization"), None);
}

#[test]
fn token_is_asked_about_once_and_has_limits_of_its_own() {
    let issuer = Issuer::start();
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let rule = "[rules.per-key]\nper = [\"key\"]\nrate = \"30/365d\"\n";
    let settings = "headers = { X-User = \"sub\" }\nhide_token = true\ncache = \"1h\"";
    let gateway = Gateway::start(&format!(
        "{}{rule}{}{}",
        proxy_to(&[upstream.address]),
        key("ann", "api-key", "free"),
        issuer.table(settings)
    ));
    let request = with(&issuer.of("ann")).header("X-User", "root");
    let concurrent = std::thread::scope(|scope| {
        let sent: Vec<_> = (0..20).map(|_| scope.spawn(|| gateway.send(&request).status)).collect();
        sent.into_iter().map(|sent| sent.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(concurrent, [200; 20]);
    assert_eq!(issuer.questions(), 1, "one question for all");
    assert_eq!(statuses(&gateway, &request, 11), [[200; 10].to_vec(), vec![429]].concat());
    assert_eq!(statuses(&gateway, &with(&issuer.of("bob")), 1), [200]);
    assert_eq!(
        statuses(&gateway, &with("api-key"), 1),
        [200],
        "a key of the file is none of its tokens"
    );
    assert_eq!(issuer.questions(), 2);
    for request in &upstream.requests()[..30] {
        assert_eq!(
            (request.values("X-User"), request.header("Authorization")),
            (vec!["ann"], None)
        );
    }
    // A token that is not active is asked about once, too.
    assert_eq!(statuses(&gateway, &with("revoked"), 5), [401; 5]);
    assert_eq!(issuer.questions(), 3);
}

#[test]
fn guesses_are_charged_to_their_address_and_then_not_asked_about() {
    let issuer = Issuer::start();
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"3/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}", issuer.table("")));
    let guessed: Vec<u16> =
        (0..6).map(|guess| gateway.send(&with(&format!("guess-{guess}"))).status).collect();
    assert_eq!(guessed, [401, 401, 401, 429, 429, 429]);
    assert_eq!(issuer.questions(), 3);
}

#[test]
fn row_218_issuer_that_is_away_refuses_no_known_token() {
    let issuer = Issuer::start();
    let settings = "timeout = \"3s\"\ncache = \"1h\"";
    let gateway = Gateway::start(&format!("{DEMO}{}", issuer.table(settings)));
    let known = with(&issuer.of("ann"));
    let new = with(&issuer.of("bob"));
    assert_eq!(statuses(&gateway, &known, 1), [200]);
    for mode in ["error", "garbage", "large", "hang"] {
        issuer.0.post("/mode", mode);
        let other = with(&format!("other-{mode}"));
        let refused = timed_below(Duration::from_secs(5), || gateway.send(&other));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{mode}");
        assert_eq!(statuses(&gateway, &known, 1), [200], "{mode}");
    }
    assert!(gateway.log().contains("no answer to a token introspection"), "{}", gateway.log());
    issuer.0.post("/mode", "ok");
    assert_eq!(statuses(&gateway, &new, 1), [200]);
    issuer.0.post("/mode", "error");
    gateway.apply(&format!("{DEMO}{}on_failure = \"anonymous\"\n", issuer.table(settings)));
    let anonymous = gateway.send(&with("another"));
    assert_eq!(anonymous.json()["client"], json!("anonymous"));
}
