//! Tokens of an identity provider, which PyJWT signs: which are accepted, what they mean for limits
//! and upstreams, attacks, and keys that change or cannot be fetched.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::base::clock;

use crate::support::{
    Connection, DEMO, Gateway, PeerServer, Request, Response, Upstream, digest, eventually,
    proxy_to, replace_file, sleep_for, timed, timed_below,
};

/// A provider, and what its tokens are for.
struct Provider(PeerServer);

impl Provider {
    fn start() -> Self {
        Self(PeerServer::token_provider())
    }

    fn issuer(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// `[clients.jwt]` with discovered keys.
    fn table(&self, settings: &str) -> String {
        let issuer = self.issuer();
        format!(
            "[clients.jwt]\nissuer = \"{issuer}\"\naudience = \"api\"\ndefault_plan = \"free\"\n{settings}\n"
        )
    }

    fn claims(&self, more: &Value) -> Value {
        let now = clock::unix_seconds();
        let mut claims = json!({ "iss": self.issuer(), "aud": "api", "sub": "user-42", "iat": now, "exp": now + 600 });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    fn token(&self, algorithm: &str, more: &Value) -> String {
        let order = json!({ "alg": algorithm, "claims": self.claims(more) });
        self.0.post("/token", order.to_string()).trim_matches('"').to_owned()
    }

    fn forged(&self, kind: &str) -> String {
        let order = json!({ "kind": kind, "claims": self.claims(&json!({})) });
        self.0.post("/forge", order.to_string()).trim_matches('"').to_owned()
    }

    /// Requests for its keys so far.
    fn fetches(&self) -> usize {
        self.0.count("jwks")
    }
}

fn with(token: &str) -> Request {
    Request::get("/").header("Authorization", format!("Bearer {token}"))
}

/// Status and reason of a response, and the challenge of a 401.
fn refusal(response: &Response) -> (u16, String, Option<&str>) {
    let detail = response.json()["detail"].as_str().unwrap().to_owned();
    (response.status, detail, response.header("www-authenticate"))
}

/// Statuses of as many requests.
fn statuses(gateway: &Gateway, request: &Request, count: usize) -> Vec<u16> {
    (0..count).map(|_| gateway.send(request).status).collect()
}

#[test]
fn tokens_of_each_algorithm_identify_one_client() {
    let provider = Provider::start();
    let rule = "[rules.per-key]\nper = [\"key\"]\nrate = \"9/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}{}", provider.table("")));
    for algorithm in
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
    {
        let token = provider.token(algorithm, &json!({}));
        assert_eq!(gateway.send(&with(&token)).status, 200, "{algorithm}");
    }
    let again = provider.token("ES256", &json!({ "jti": "other" }));
    assert_eq!(gateway.send(&with(&again)).status, 429, "one bucket");
    let other = provider.token("ES256", &json!({ "sub": "user-43" }));
    assert_eq!(gateway.send(&with(&other)).status, 200);
    assert_eq!(provider.fetches(), 1);
    assert_eq!(gateway.count("tollgate_token_keys", &[("issuer", &provider.issuer())]), 4);
}

#[test]
fn forged_tokens_are_refused_and_charged_to_their_address() {
    let provider = Provider::start();
    let rules = "[rules.per-key]\nper = [\"key\"]\nrate = \"1/365d\"\non_missing = \"skip\"\n\
                 [rules.per-ip]\nper = [\"ip\"]\nrate = \"18/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}{}", provider.table("")));
    let kinds = [
        ("none", "has an algorithm that is not accepted"),
        ("hs256_with_public_key", "has an algorithm that is not accepted"),
        ("secret_of_hs256", "has an algorithm that is not accepted"),
        ("kid_of_a_file", "has an algorithm that is not accepted"),
        ("other_key", "has a wrong signature"),
        ("jwk_in_header", "has a wrong signature"),
        ("jku_in_header", "is signed with an unknown key"),
        ("zero_signature", "has a wrong signature"),
        ("no_signature", "has a wrong signature"),
        ("changed_claims", "has a wrong signature"),
        ("crit", "is malformed"),
        ("other_typ", "has a type that is not accepted"),
        ("nested", "is malformed"),
        ("trailing", "is malformed"),
        ("padded", "is malformed"),
        ("repeated_claim", "is malformed"),
    ];
    for (kind, why) in kinds {
        let response = gateway.send(&with(&provider.forged(kind)));
        let detail = format!("The token as a bearer token in Authorization {why}.");
        let expected = (401, detail, Some("Bearer error=\"invalid_token\""));
        assert_eq!(refusal(&response), expected, "{kind}");
    }
    // The client has its token, and the address has 2 of 18.
    let good = with(&provider.token("RS256", &json!({})));
    assert_eq!(statuses(&gateway, &good, 2), [200, 429]);
    let forged = with(&provider.forged("none"));
    assert_eq!(statuses(&gateway, &forged, 2), [401, 429]);
    assert!(!gateway.log().contains("eyJ"), "a token in the log");
}

/// The answer shows whether the signature of a token was checked.
#[test]
fn tokens_of_an_address_without_tokens_are_not_verified() {
    let provider = Provider::start();
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"3/365d\"\n";
    let server = "trusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&format!("{server}{DEMO}{rules}{}", provider.table("")));
    let from =
        |address: &str, token: &str| gateway.send(&with(token).header("X-Forwarded-For", address));
    let detail = |response: &Response| response.json()["detail"].as_str().unwrap().to_owned();
    let known = provider.token("RS256", &json!({}));
    assert_eq!(from("192.0.2.1", &known).status, 200);
    let forged = ["other_key", "zero_signature", "jwk_in_header"].map(|kind| provider.forged(kind));
    for token in &forged {
        assert_eq!(from("192.0.2.7", token).status, 401);
    }
    let text = "The API key as a bearer token in Authorization cannot be checked at the moment; retry \
                later. Attempts are limited: limit \"per-ip\"";
    for kind in ["changed_claims", "no_signature", "jku_in_header", "none", "nested"] {
        let refused = from("192.0.2.7", &provider.forged(kind));
        assert_eq!(refused.status, 429, "{kind}");
        assert!(detail(&refused).starts_with(text), "{kind}: {}", detail(&refused));
    }
    // The results of before are known.
    let again = from("192.0.2.7", &forged[0]);
    assert_eq!(again.status, 429);
    assert!(detail(&again).contains("has a wrong signature"), "{}", detail(&again));
    // Others are served, with known tokens and with new ones.
    let new = provider.token("RS256", &json!({ "sub": "user-43" }));
    assert_eq!([from("192.0.2.1", &known).status, from("192.0.2.1", &new).status], [200, 200]);
    assert_eq!(provider.fetches(), 1, "the unknown `kid` of a token that was not verified");
}

#[test]
fn claims_decide_whether_a_token_is_accepted() {
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let table = format!("[access_log]\noutput = \"{}\"\n", log.display());
    let gateway =
        Gateway::start(&format!("{DEMO}{table}{}", provider.table("clock_skew = \"10s\"")));
    let now = clock::unix_seconds();
    let cases = [
        (json!({ "exp": now - 5 }), 200, Value::Null),
        (json!({ "exp": now - 15 }), 401, json!("expired_token")),
        (json!({ "nbf": now + 5 }), 200, Value::Null),
        (json!({ "nbf": now + 3_600 }), 401, json!("early_token")),
        (json!({ "iat": now + 3_600 }), 401, json!("early_token")),
        (json!({ "aud": ["other", "api"] }), 200, Value::Null),
        (json!({ "aud": "other" }), 401, json!("token_audience")),
        (json!({ "iss": "https://evil.test" }), 401, json!("token_issuer")),
        (json!({ "sub": "x".repeat(300) }), 401, json!("token_claims")),
        (json!({ "sub": "root", "x": "y".repeat(17_000) }), 401, json!("token_too_long")),
    ];
    for (claims, status, _) in &cases {
        let token = provider.token("ES256", claims);
        assert_eq!(gateway.send(&with(&token)).status, *status, "{claims:.80}");
    }
    let lines = eventually("lines of the access log", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() == cases.len() && text.ends_with('\n')).then_some(text)
    });
    assert!(!lines.contains("eyJ"), "a token in the log: {lines}");
    let mut reasons: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["reason"].clone())
        .collect();
    let mut expected: Vec<Value> = cases.into_iter().map(|(_, _, reason)| reason).collect();
    for list in [&mut reasons, &mut expected] {
        list.sort_by_key(ToString::to_string);
    }
    assert_eq!(reasons, expected);
}

#[test]
fn upstream_gets_headers_of_claims_and_none_of_the_client() {
    let provider = Provider::start();
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let headers = "headers = { X-User = \"sub\", X-Roles = \"realm.roles\" }\nhide_token = true";
    let gateway =
        Gateway::start(&format!("{}{}", proxy_to(&[upstream.address]), provider.table(headers)));
    let claims = json!({ "realm": { "roles": ["a", "b"] } });
    let forged = |request: Request| {
        request.header("X-User", "root").header("x_user", "root").header("X_Roles", "admin")
    };
    let token = provider.token("RS256", &claims);
    assert_eq!(gateway.send(&forged(with(&token))).status, 200);
    assert_eq!(gateway.send(&forged(Request::get("/"))).status, 200);
    let [first, second] = &upstream.requests()[..] else { panic!() };
    assert_eq!((first.values("X-User"), first.values("X-Roles")), (vec!["user-42"], vec!["a,b"]));
    assert_eq!(first.header("Authorization"), None);
    for (request, name) in [(first, "x_user"), (first, "x_roles"), (second, "x-user")] {
        assert_eq!(request.values(name), Vec::<&str>::new(), "{name}");
    }
    assert_eq!(second.values("x_user").len() + second.values("X_Roles").len(), 0);
}

/// A token whose id is that of a client of the file has none of its rights, and another bucket.
#[test]
fn token_with_the_id_of_a_key_is_another_client() {
    let provider = Provider::start();
    let config = format!(
        "{DEMO}[plans.pro]\n[keys.acme]\nsha256 = \"{}\"\nplan = \"pro\"\n\
         [rules.r]\nper = [\"key\"]\nrate = \"1/365d\"\nexempt = {{ keys = [\"boss\"] }}\n\
         [keys.boss]\nsha256 = \"{}\"\nplan = \"pro\"\n[keys.acme.rules.r]\nrate = \"2/365d\"\n{}",
        digest("secret"),
        digest("boss"),
        provider.table("plan_claim = \"plan\"")
    );
    let gateway = Gateway::start(&config);
    let key = Request::get("/").header("X-Api-Key", "secret");
    let token = |id: &str| with(&provider.token("ES256", &json!({ "sub": id, "plan": "pro" })));
    assert_eq!(statuses(&gateway, &token("acme"), 2), [200, 429]);
    assert_eq!(statuses(&gateway, &key, 3), [200, 200, 429]);
    assert_eq!(statuses(&gateway, &token("boss"), 2), [200, 429]);
    let boss = Request::get("/").header("X-Api-Key", "boss");
    assert_eq!(statuses(&gateway, &boss, 3), [200; 3]);
    let opaque = gateway.send(&with("opaque"));
    assert_eq!(opaque.status, 401, "a bearer token without the form of a token is an API key");
    assert!(opaque.text().contains("is not an API key of this gateway"), "{}", opaque.text());
}

/// The same of a client of the key store; and a token costs no look-up.
#[test]
fn token_with_the_id_of_a_stored_client_is_another_client() {
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("[key_store]\nurl = \"file:{}\"\n", folder.path().join("k").display());
    let rule = "[rules.r]\nper = [\"key\"]\non_missing = \"skip\"\nrate = \"2/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}{store}{}", provider.table("")));
    let create = Request::new("POST", "/api/keys").body(r#"{"id": "user-42", "plan": "free"}"#);
    let created = gateway.send_admin(&create);
    assert_eq!(created.status, 201, "{}", created.text());
    let key = created.json()["key"].as_str().unwrap().to_owned();
    let look_ups = || {
        let results = ["found", "unknown", "cached", "cached_unknown", "failed"];
        results
            .map(|it| gateway.count("tollgate_key_lookups_total", &[("result", it)]))
            .iter()
            .sum::<u64>()
    };
    let token = with(&provider.token("ES256", &json!({})));
    assert_eq!(statuses(&gateway, &token, 3), [200, 200, 429]);
    assert_eq!(gateway.send(&with(&provider.forged("none"))).status, 401);
    assert_eq!(look_ups(), 0);
    // The key as a bearer token is no token of the provider.
    assert_eq!(statuses(&gateway, &with(&key), 3), [200, 200, 429]);
    assert_eq!(look_ups(), 3);
    assert_eq!(gateway.send(&with("opaque")).status, 401);
    let disable = Request::new("POST", "/api/keys/user-42/disable");
    assert_eq!(gateway.send_admin(&disable).status, 200);
    eventually("the change in force", || (gateway.send(&with(&key)).status == 401).then_some(()));
    assert_eq!(gateway.send(&token).status, 429, "the client of the token is not disabled");
}

#[test]
fn rule_counts_by_a_claim() {
    let provider = Provider::start();
    let rule = "[rules.org]\nper = [\"claim:org.id\"]\nrate = \"2/365d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}{}", provider.table("")));
    let token = |id: &str, org: u64| {
        with(&provider.token("ES256", &json!({ "sub": id, "org": { "id": org } })))
    };
    assert_eq!(gateway.send(&token("a", 1)).status, 200);
    assert_eq!(gateway.send(&token("b", 1)).status, 200);
    assert_eq!(gateway.send(&token("c", 1)).status, 429);
    assert_eq!(gateway.send(&token("c", 2)).status, 200);
}

/// The claim names a tenant, whose limit holds for all of its clients, with API keys or tokens.
#[test]
fn claim_names_the_tenant() {
    let provider = Provider::start();
    let rule = "[rules.tenant]\nper = [\"tenant\"]\nrate = \"3/365d\"\n";
    let key = format!(
        "[keys.k]\nsha256 = \"{}\"\nplan = \"free\"\ntenant = \"acme\"\n",
        digest("secret")
    );
    let gateway =
        Gateway::start(&format!("{DEMO}{rule}{key}{}", provider.table("tenant_claim = \"org\"")));
    let token = |id: &str| with(&provider.token("ES256", &json!({ "sub": id, "org": "acme" })));
    assert_eq!(gateway.send(&token("a")).status, 200);
    assert_eq!(gateway.send(&token("b")).status, 200);
    let key = Request::get("/").header("X-Api-Key", "secret");
    assert_eq!(statuses(&gateway, &key, 2), [200, 429]);
    assert_eq!(gateway.send(&token("c")).status, 429);
    let other = provider.token("ES256", &json!({ "org": "other" }));
    assert_eq!(gateway.send(&with(&other)).status, 200);
}

/// Tokens of new keys are accepted as soon as the keys have been fetched, and no token of a key
/// that stays is refused meanwhile.
#[test]
fn row_196_rotated_keys_are_fetched_on_demand_without_a_refusal_of_others() {
    let provider = Provider::start();
    let limits = "[server.limits]\nmax_requests_per_connection = 0\n";
    let gateway = Gateway::start(&format!("{DEMO}{limits}{}", provider.table("")));
    let old = with(&provider.token("ES256", &json!({})));
    assert_eq!(gateway.send(&old).status, 200);
    let (stopped, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = gateway.connect();
                while !stopped.load(Ordering::Relaxed) {
                    let status = connection.send(&old.at(gateway.address)).status;
                    sent.fetch_add(1, Ordering::Relaxed);
                    // From the rotation on, the old key is none of the provider's any more.
                    if status == 401 {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    sleep_for(Duration::from_millis(5));
                }
            });
        }
        eventually("requests", || (sent.load(Ordering::Relaxed) > 100).then_some(()));
        assert_eq!(refused.load(Ordering::Relaxed), 0);
        provider.0.post("/rotate", "");
        let new = with(&provider.token("ES256", &json!({})));
        let rsa = with(&provider.token("RS256", &json!({})));
        eventually("tokens of the new keys", || {
            (gateway.send(&new).status == 200 && gateway.send(&rsa).status == 200).then_some(())
        });
        stopped.store(true, Ordering::Relaxed);
    });
    assert_eq!(gateway.send(&old).status, 401, "a token of a key that is gone");
    assert_eq!(provider.fetches(), 2);
    // Made-up keys cause no more than one fetch in ten seconds.
    let ((), took) = timed(|| {
        for number in 0..200 {
            let kid = format!("x{number}");
            let order =
                json!({ "alg": "RS256", "kid": kid, "claims": provider.claims(&json!({})) });
            let token = provider.0.post("/token", order.to_string());
            assert_eq!(gateway.send(&with(token.trim_matches('"'))).status, 401);
        }
    });
    let most = 4 + usize::try_from(took.as_secs() / 10).unwrap();
    assert!(provider.fetches() <= most, "{} in {took:?}", provider.fetches());
}

#[test]
fn row_197_keys_are_kept_while_they_cannot_be_fetched() {
    std::thread::scope(|scope| {
        for mode in ["error", "garbage", "large"] {
            scope.spawn(move || keys_are_kept(mode));
        }
    });
}

/// The provider fails in this mode.
fn keys_are_kept(mode: &str) {
    let provider = Provider::start();
    let settings = provider.table("");
    let gateway = Gateway::start(&format!("{DEMO}{settings}"));
    let failed = [("issuer", &*provider.issuer()), ("result", "failed")];
    provider.0.post("/mode", mode);
    // Another place of the same keys, which are fetched at the reload.
    let jwks = format!("jwks = \"{}/jwks.json?other\"", provider.issuer());
    gateway.apply(&format!("{DEMO}{}", provider.table(&jwks)));
    let unavailable = gateway.send(&with(&provider.token("ES256", &json!({}))));
    assert_eq!(unavailable.status, 503, "{mode}: {}", unavailable.text());
    assert_eq!(unavailable.header("retry-after"), Some("1"));
    provider.0.post("/mode", "ok");
    let token = with(&provider.token("ES256", &json!({})));
    eventually("the keys", || (gateway.send(&token).status == 200).then_some(()));
    assert!(gateway.count("tollgate_token_key_fetches_total", &failed) >= 1, "{mode}");
    // A key that is not there demands a fetch, which fails. The keys of before are kept.
    provider.0.post("/mode", mode);
    let before = gateway.count("tollgate_token_key_fetches_total", &failed);
    // It begins ten seconds after the fetch before it.
    eventually("a failed fetch", || {
        sleep_for(Duration::from_millis(200));
        gateway.send(&with(&provider.forged("jku_in_header")));
        let failures = gateway.count("tollgate_token_key_fetches_total", &failed);
        (failures > before).then_some(())
    });
    assert_eq!(gateway.send(&token).status, 200, "{mode}");
    assert_eq!(gateway.send(&with(&provider.token("PS256", &json!({})))).status, 200);
}

/// No request waits for a provider that does not answer.
#[test]
fn row_198_provider_that_hangs_delays_no_request() {
    let provider = Provider::start();
    let jwks = format!("jwks = \"{}/jwks.json\"", provider.issuer());
    let gateway = Gateway::start(&format!("{DEMO}{}", provider.table("")));
    let token = with(&provider.token("ES256", &json!({})));
    assert_eq!(gateway.send(&token).status, 200);
    provider.0.post("/mode", "hang");
    // The reload waits for the keys of the new place for 5 s at most.
    gateway.apply(&format!("{DEMO}{}", provider.table(&jwks)));
    timed_below(Duration::from_secs(3), || {
        for _ in 0..20 {
            assert_eq!(gateway.send(&token).status, 503);
            assert_eq!(gateway.send(&Request::get("/")).status, 200);
        }
    });
    provider.0.post("/mode", "ok");
    eventually("the keys", || (gateway.send(&token).status == 200).then_some(()));
}

#[test]
fn keys_of_a_file_are_read_at_a_reload() {
    let provider = Provider::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    let jwks = |provider: &Provider| {
        let request = Request::get("/jwks.json");
        Connection::open(provider.0.address).send(&request).text()
    };
    std::fs::write(&file, jwks(&provider)).unwrap();
    let table = provider.table(&format!("jwks = \"file:{}\"", file.display()));
    let gateway = Gateway::start(&format!("{DEMO}{table}"));
    let old = with(&provider.token("ES256", &json!({})));
    assert_eq!(gateway.send(&old).status, 200);
    provider.0.post("/rotate", "");
    let new = with(&provider.token("ES256", &json!({})));
    assert_eq!(gateway.send(&new).status, 401);
    replace_file(&file, jwks(&provider));
    assert_eq!(gateway.reload().status, 200);
    assert_eq!((gateway.send(&new).status, gateway.send(&old).status), (200, 401));
}
