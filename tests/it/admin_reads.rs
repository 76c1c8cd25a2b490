//! Read operations of the admin API.

use serde_json::{Value, json};

use crate::support::{
    ClosedPort, DEMO, Gateway, Redis, Request, Upstream, eventually, key, proxy_to,
};

/// Rules with every kind of bucket.
const RULES: &str = r#"
[routes.one]
path = "/one"
methods = ["GET"]
upstream = "api"
cost = 3

[rules.per-key]
per = ["key"]
rate = "10/d"

[rules.per-ip]
per = ["ip"]
rate = "20/d"

[rules.per-route]
per = ["key", "route"]
rate = "30/d"

[rules.only-one]
per = ["key", "route"]
routes = ["one"]
rate = "40/d"

[rules.request]
per = ["key", "header:x-tenant", "method", "host"]
rate = "50/d"

[rules.everyone]
per = []
rate = "1000/d"

[rules.off]
per = []
rate = "1/d"
enabled = false
"#;

fn file() -> String {
    format!("{DEMO}{RULES}{}", key("acme", "the-key", "free"))
}

fn rule<'a>(buckets: &'a Value, name: &str) -> &'a Value {
    let rules = buckets["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["rule"] == name).unwrap()
}

#[test]
fn status_response_without_redis() {
    let gateway = Gateway::start(DEMO);
    let status = gateway.admin("/api/status").json();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["draining"], &status["ready"]), (&json!(false), &json!(true)));
    assert_eq!(
        status["redis"],
        json!({"configured": false, "connected": false, "reached": false, "away": null, "masters": []})
    );
    assert_eq!((&status["breaker"], &status["gateways"]), (&Value::Null, &json!(1)));
    assert_eq!(
        status["buckets"],
        json!({"local": 0, "max": 1_000_000, "evictions": 0, "debts": 0})
    );
    gateway.apply(&format!("{DEMO}# another\n"));
    assert_eq!(gateway.admin("/api/status").json()["generation"], 2);
    assert_eq!(gateway.send_admin(&Request::new("HEAD", "/api/status")).status, 200);
}

#[test]
fn status_response_with_redis() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&format!("{DEMO}{}", redis.table()));
    let status = || gateway.admin("/api/status").json();
    eventually("Redis", || (status()["redis"]["connected"] == true).then_some(()));
    eventually("to be counted", || (status()["gateways"] == 1).then_some(()));
    assert_eq!(status()["breaker"]["state"], "closed");
    redis.kill();
    eventually("no Redis", || (status()["redis"]["connected"] == false).then_some(()));
    // The breaker opens just after the connection is lost.
    eventually("an open breaker", || (status()["breaker"]["state"] == "open").then_some(()));
    assert_eq!(status()["breaker"]["override"], "auto");
}

#[test]
fn row_71_policy_response_contains_no_secret() {
    let redis = "[redis]\nurl = \"redis://user:hunter2@127.0.0.1:1\"\n[admin]\ntoken = \"hunter2-hunter2-hunter2\"\n";
    let gateway = Gateway::start(&format!("{}{redis}", file()));
    let request =
        Request::get("/api/policy").header("Authorization", "Bearer hunter2-hunter2-hunter2");
    let answer = gateway.send_admin(&request);
    let policy = answer.json();
    assert_eq!(policy["redis"]["address"], "127.0.0.1:1");
    assert_eq!(policy["admin"]["token"], true);
    assert_eq!(policy["keys"], json!([{"id": "acme", "plan": "free", "enabled": true}]));
    let names: Vec<_> =
        policy["rules"].as_array().unwrap().iter().map(|rule| &rule["name"]).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let per_key = &policy["rules"][0];
    assert_eq!(
        per_key["limits"][0],
        json!({"plan": "free", "key": null, "rate": "10/d", "rate_is": "rate", "kind": "token_bucket", "burst": 10})
    );
    let one = policy["routes"].as_array().unwrap().iter().find(|one| one["name"] == "one").unwrap();
    assert_eq!((&one["path"], &one["cost"]), (&json!("/one"), &json!(3)));
    let hash = gateway_hash("the-key");
    for secret in ["hunter2", "the-key", &hash, "user"] {
        assert!(!answer.text().contains(secret), "{secret}: {}", answer.text());
    }
}

#[test]
fn policy_response_has_how_clients_are_identified_without_secrets() {
    let tables = r#"
[key_store]
url = "file:keys.redb"
self_rotation = true
[clients]
limits_path = "/limits"
[clients.jwt]
issuer = "https://id.test"
audience = "api"
secret = "hunter2-hunter2-hunter2-hunter2-hunter2"
default_plan = "free"
[clients.introspection]
url = "https://ask.test/hunter2"
client_id = "gateway"
client_secret = "hunter2"
default_plan = "free"
[clients.basic]
users = ["alice:$2y$04$4KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm"]
[forward_auth]
url = "https://auth.test/hunter2"
cache = "5s"
[cors]
origins = ["https://app.test"]
[errors.429]
"text/html" = "<p>slow</p>"
"#;
    let gateway = Gateway::start(&format!("{}{tables}", file()));
    let answer = gateway.admin("/api/policy");
    let policy = answer.json();
    let clients = &policy["clients"];
    assert_eq!(clients["jwt"][0]["issuer"], "https://id.test");
    assert_eq!(clients["jwt"][0]["keys"], "file");
    assert_eq!(clients["jwt"][0]["required_claims"], json!(["exp"]));
    assert_eq!(clients["introspection"]["server"], "https://ask.test:443");
    assert_eq!(clients["basic"], json!({"users": 1, "hide_password": true, "cache_s": 300}));
    let store = json!({"place": "file", "cache": 100_000, "max_stale_s": 3600, "on_store_failure": "deny", "self_rotation": true});
    assert_eq!(policy["key_store"], store);
    let asked = &policy["forward_auth"][0];
    assert_eq!((&asked["server"], &asked["cache_s"]), (&json!("https://auth.test:443"), &json!(5)));
    assert_eq!(asked["routes"], json!(["all", "one"]));
    assert_eq!(policy["cors"], "cors: https://app.test");
    assert_eq!(policy["errors"], json!(["429: text/html"]));
    for secret in ["hunter2", "$2y$"] {
        assert!(!answer.text().contains(secret), "{secret}: {}", answer.text());
    }
}

/// SHA-256 of a key, as in the file.
fn gateway_hash(key: &str) -> String {
    let line = crate::support::key("x", key, "free");
    let (_, rest) = line.split_once("sha256 = \"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn last_reloads_are_listed() {
    let gateway = Gateway::start(DEMO);
    assert_eq!(gateway.admin("/api/reloads").json(), json!({"generation": 1, "reloads": []}));
    gateway.apply(&format!("{DEMO}[rules.a]\nper = []\nrate = \"5/s\"\n"));
    gateway.save("listne = 5\n");
    assert_eq!(gateway.reload().status, 422);
    let view = gateway.admin("/api/reloads").json();
    let of = |result: &str| {
        let mut all = view["reloads"].as_array().unwrap().iter();
        all.find(|one| one["result"] == result).unwrap()
    };
    let (rejected, applied) = (&view["reloads"][0], of("applied"));
    assert_eq!((&rejected["result"], &rejected["generation"]), (&json!("rejected"), &json!(2)));
    assert!(rejected["errors"].to_string().contains("did you mean `listen`?"), "{view}");
    assert_eq!(applied["changes"][0], json!({"kind": "rule", "name": "a", "what": "added"}));
    assert!(applied["at"].as_str().unwrap().starts_with("20"), "{view}");
}

#[test]
fn upstreams_response_marks_ejected_addresses() {
    let upstream = Upstream::echo();
    let closed = ClosedPort::bind();
    let dead = closed.address;
    let gateway = Gateway::start(&proxy_to(&[upstream.address, dead]));
    for _ in 0..4 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let view = gateway.admin("/api/upstreams").json();
    let addresses = view["upstreams"][0]["addresses"].as_array().unwrap();
    let health = |address: std::net::SocketAddr| {
        let found = addresses.iter().find(|one| one["address"] == address.to_string());
        found.unwrap()["health"].clone()
    };
    assert_eq!((health(upstream.address), health(dead)), (json!("ok"), json!("down")));
    assert_eq!(view["upstreams"][0]["servers"].as_array().unwrap().len(), 2);
}

#[test]
fn buckets_response_equals_the_headers_of_the_next_response() {
    let redis = Redis::start();
    for more in [String::new(), redis.table()] {
        let gateway = Gateway::start(&format!("{}{more}", file()));
        if !more.is_empty() {
            gateway.wait_for_redis();
        }
        let ask = || gateway.send(&Request::get("/one").header("X-Api-Key", "the-key"));
        assert_eq!(ask().status, 200);
        let path = "/api/clients/key/acme/buckets";
        let query = "?path=/one&method=GET&host=api.test&header=x-tenant&ip=127.0.0.1";
        let view = gateway.admin(&format!("{path}{query}")).json();
        assert_eq!(view["levels"], if more.is_empty() { "local" } else { "redis" });
        for (name, tokens) in [
            ("per-key", 7),
            ("per-ip", 17),
            ("per-route", 27),
            ("only-one", 37),
            ("request", 47),
            ("everyone", 997),
        ] {
            let rule = rule(&view, name);
            assert_eq!(
                (&rule["tokens"], &rule["unknown"]),
                (&json!(tokens), &json!([])),
                "{rule:#}"
            );
            assert!(rule["full_after_ms"].as_u64().unwrap() > 0, "{rule:#}");
        }
        assert_eq!(rule(&view, "off")["why_not"]["code"], "disabled");

        let view = gateway.admin(path).json();
        assert_eq!(rule(&view, "per-key")["tokens"], 7);
        assert_eq!(rule(&view, "only-one")["tokens"], 37, "there is one route only");
        for (name, unknown) in [
            ("per-ip", json!(["ip"])),
            ("per-route", json!(["route"])),
            ("request", json!(["method", "host", "header:x-tenant"])),
        ] {
            let rule = rule(&view, name);
            assert_eq!((&rule["unknown"], &rule["bucket"]), (&unknown, &Value::Null), "{rule:#}");
        }
        let own = |name| rule(&view, name)["own"].clone();
        assert_eq!(
            (own("per-key"), own("per-ip"), own("everyone")),
            (json!(true), json!(false), json!(false))
        );

        // An address without a key has separate buckets.
        let view = gateway.admin("/api/clients/ip/127.0.0.1/buckets").json();
        assert_eq!(rule(&view, "per-key")["tokens"], 10);
        assert_eq!(rule(&view, "per-ip")["tokens"], 17);
        let view = gateway.admin("/api/clients/ip/127.0.0.1/buckets?key=acme").json();
        assert_eq!(rule(&view, "per-key")["tokens"], 7);
        // The calls took no tokens.
        assert_eq!(ask().remaining(), 4);
    }
}

#[test]
fn invalid_client_is_400_or_404() {
    let gateway = Gateway::start(&file());
    for (path, status) in [
        ("/api/clients/key/missing/buckets", 404),
        ("/api/clients/plan/free/buckets", 404),
        ("/api/clients/ip/here/buckets", 400),
        ("/api/clients/ip/2001:db8::%2F63/buckets", 400),
        ("/api/clients/ip/192.0.2.1%2F64/buckets", 400),
        ("/api/clients/ip/%zz/buckets", 404),
        ("/api/clients/key//buckets", 404),
        ("/api/clients/key/acme/buckets?pth=/", 400),
        ("/api/clients/key/acme/buckets?path=/&route=one", 400),
        ("/api/clients/key/acme/buckets?route=none", 404),
        ("/api/clients/key/acme/buckets?path=/../x", 400),
        ("/api/clients/key/acme/buckets?method=a%20b", 400),
        ("/api/clients/key/acme/buckets?header=a%20b", 400),
        ("/api/clients/key/acme/buckets?ip=x", 400),
        ("/api/clients/ip/::1/buckets?key=missing", 404),
        ("/api/clients/ip/::ffff:127.0.0.1/buckets?ip=::1", 400),
    ] {
        let answer = gateway.admin(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    let view = gateway.admin("/api/clients/ip/::ffff:192.0.2.1/buckets").json();
    assert_eq!(view["client"]["id"], "192.0.2.1");
    // A network, as `/api/clients` lists it.
    let view = gateway.admin("/api/clients/ip/2001:db8::%2F64/buckets").json();
    assert_eq!(view["client"]["counted_as"], "2001:db8::/64");
}

#[test]
fn clients_response_lists_most_requests_and_most_refusals() {
    let file = format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{DEMO}{}\
         [rules.per-key]\nper = [\"key\"]\nrate = \"5/d\"\n",
        key("acme", "the-key", "free")
    );
    let gateway = Gateway::start(&file);
    let from = |ip: &str, times: usize| {
        for _ in 0..times {
            gateway.send(&Request::get("/").header("X-Forwarded-For", ip));
        }
    };
    from("192.0.2.1", 9);
    from("192.0.2.2", 2);
    for _ in 0..4 {
        gateway.send(&Request::get("/").header("X-Api-Key", "the-key"));
    }
    let view = gateway.admin("/api/clients").json();
    let rule = &view["rules"][0];
    assert_eq!(
        (&rule["rule"], &view["counted"], &view["error_at_most"]),
        (&json!("per-key"), &json!(15), &json!(0))
    );
    let client = |kind: &str, id: &str, requests: u64, refused: u64| json!({"kind": kind, "id": id, "requests": requests, "refused": refused, "error": 0});
    let expected = [
        client("ip", "192.0.2.1", 9, 4),
        client("key", "acme", 4, 0),
        client("ip", "192.0.2.2", 2, 0),
    ];
    assert_eq!(rule["clients"], json!(expected));
    // A reload keeps the counts.
    gateway.apply(&format!("{file}# another\n"));
    let view = gateway.admin("/api/clients?by=refused&limit=1&rule=per-key").json();
    assert_eq!(view["rules"][0]["clients"], json!([expected[0]]));
    for wrong in ["by=x", "limit=0", "limit=101", "limit=x", "rule=none", "x=1"] {
        assert_eq!(gateway.admin(&format!("/api/clients?{wrong}")).status, 400, "{wrong}");
    }
}
