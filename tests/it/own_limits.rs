//! The limits path (`clients.limits_path`), where clients read their own limits.

use serde_json::{Value, json};

use crate::support::{
    DEMO, Gateway, Redis, Request, TIMEOUT, Upstream, eventually, key, timed, tollgate,
};

const PATH: &str = "/.well-known/ratelimit";

const RULES: &str = r#"
[routes.dear]
path = "/dear"
upstream = "api"
cost = 3

[rules.per-key]
description = "What a plan buys."
per = ["key"]
rate = "10/d"

[rules.per-ip]
per = ["ip"]
rate = "20/d"

[rules.dear]
per = ["key"]
routes = ["dear"]
rate = "5/d"
"#;

fn file(more: &str) -> String {
    let path = format!("[clients]\nlimits_path = \"{PATH}\"\n{more}\n");
    format!("{path}{DEMO}{RULES}{}", key("acme", "secret", "free"))
}

fn get_limits(gateway: &Gateway, key: Option<&str>) -> Value {
    let mut request = Request::get(PATH);
    if let Some(key) = key {
        request = request.header("X-Api-Key", key);
    }
    let answer = gateway.send(&request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn remaining(view: &Value, name: &str) -> Value {
    let rules = view["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == name).unwrap()["remaining"].clone()
}

#[test]
fn limits_path_lists_limits_and_takes_no_tokens() {
    let upstream = Upstream::echo();
    let servers = format!("[\"{}\"]", upstream.address);
    let config = file("").replace("[\"demo\"]", &servers);
    let gateway = Gateway::start(&config);
    let get = |path| gateway.send(&Request::get(path).header("X-Api-Key", "secret")).status;
    assert_eq!((get("/"), get("/dear")), (200, 200));
    let sent_on = upstream.requests().len();
    let before =
        gateway.admin("/api/clients/key/acme/buckets?ip=127.0.0.1").json()["rules"].clone();
    for _ in 0..100 {
        let view = get_limits(&gateway, Some("secret"));
        assert_eq!(view["client"]["id"], "acme");
        assert_eq!((&view["limited"], &view["approximate"]), (&json!(true), &json!(false)));
        assert_eq!(remaining(&view, "per-key"), 6);
        assert_eq!(remaining(&view, "per-ip"), 16);
        assert_eq!(remaining(&view, "dear"), 2);
        assert_eq!(
            view["rules"][2]["routes"],
            json!([{"name": "dear", "path": "/dear", "cost": 3}])
        );
        assert!(view["rules"][2]["retry_after_ms"].as_u64().unwrap() > 1_000);
    }
    let after = gateway.admin("/api/clients/key/acme/buckets?ip=127.0.0.1").json()["rules"].clone();
    let tokens = |rules: &Value| -> Vec<Value> {
        rules.as_array().unwrap().iter().map(|rule| rule["tokens"].clone()).collect()
    };
    assert_eq!(tokens(&before), tokens(&after));
    assert_eq!(upstream.requests().len(), sent_on);
    // A request is counted after its response, so the count may lag.
    gateway.wait_for_count("tollgate_requests_total", &[("route", ""), ("status", "200")], 100);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("rule", "per-key")]), 2);
}

#[test]
fn limits_path_answers_exhausted_clients() {
    let gateway = Gateway::start(&file(""));
    let passed = (0..15).filter(|_| gateway.get("/").status == 200).count();
    assert_eq!(passed, 10);
    let view = get_limits(&gateway, None);
    assert_eq!(
        view["client"],
        json!({
            "kind": "ip", "id": "127.0.0.1", "plan": "free", "counted_as": "127.0.0.1"
        })
    );
    let per_key = &view["rules"][0];
    assert_eq!((&per_key["remaining"], &per_key["limit"]), (&json!(0), &json!(10)));
    assert_eq!(per_key["description"], "What a plan buys.");
    let wait = per_key["retry_after_ms"].as_u64().unwrap();
    assert!((8_000_000..=8_640_000).contains(&wait), "{wait}");
    assert_eq!(remaining(&view, "per-ip"), 10, "a refusal takes nothing");
}

#[test]
fn limits_path_allows_only_get_head_and_options() {
    let gateway = Gateway::start(&file("on_missing_key = \"deny\""));
    let head = gateway.send(&Request::new("HEAD", PATH).header("X-Api-Key", "secret"));
    assert_eq!((head.status, head.text().as_str()), (200, ""));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    assert_eq!(head.header("content-type"), Some("application/json"));
    let options = gateway.send(&Request::new("OPTIONS", PATH));
    assert_eq!((options.status, options.header("allow")), (200, Some("GET, HEAD, OPTIONS")));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let other = gateway.send(&Request::new(method, PATH).body("x"));
        assert_eq!((other.status, other.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
        assert_eq!(other.json()["status"], 405);
    }
    assert_eq!(gateway.get(PATH).status, 401);
    // Any other spelling of the path is an ordinary request.
    for path in ["/.well-known/ratelimit/", "/.well-known/Ratelimit", "/.well-known/ratelimi%74"] {
        let answer = gateway.send(&Request::get(path).header("X-Api-Key", "secret"));
        assert_eq!(answer.json()["route"], "all", "{path}");
    }
}

/// Guessing keys is limited as everywhere else, with or without a route for the path.
#[test]
fn unknown_key_at_the_limits_path_is_401_and_counted_by_address() {
    for config in [file(""), file("").replace("path = \"/*\"", "path = \"/other\"")] {
        let gateway = Gateway::start(&config);
        let guess = || gateway.send(&Request::get(PATH).header("X-Api-Key", "guess")).status;
        let statuses: Vec<u16> = (0..9).map(|_| guess()).collect();
        // The smallest limit by address is that of `dear`; a wrong key takes one token from each
        // bucket.
        assert_eq!(statuses, [[401; 5].as_slice(), &[429; 4]].concat());
        let view = get_limits(&gateway, None);
        assert_eq!(
            (remaining(&view, "per-key"), remaining(&view, "per-ip")),
            (json!(5), json!(15))
        );
    }
}

/// A client that has exhausted its guesses does not learn which key is right, for every
/// `on_unknown_key`.
#[test]
fn wrong_key_at_the_limits_path_is_charged_to_its_address() {
    for (on_unknown_key, status) in [("deny", 401), ("accept", 200), ("anonymous", 200)] {
        let config = file(&format!("on_unknown_key = \"{on_unknown_key}\""));
        let gateway = Gateway::start(&config.replace("\"20/d\"", "\"4/d\""));
        let ask = |key: &str| gateway.send(&Request::get(PATH).header("X-Api-Key", key));
        let statuses: Vec<u16> = (0..6).map(|_| ask("guess").status).collect();
        assert_eq!(statuses, [[status; 4].as_slice(), &[429; 2]].concat(), "{on_unknown_key}");
        let right = ask("secret");
        assert_eq!((right.status, right.header("x-ratelimit-reason")), (429, Some("per-ip")));
        assert_eq!(right.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(gateway.send(&Request::get("/").header("X-Api-Key", "secret")).status, 429);
        // A request without a key is not a guess.
        assert_eq!(remaining(&get_limits(&gateway, None), "per-ip"), 0);
    }
}

/// A client that varies the header of its buckets does not cause more calls to Redis, and others do
/// not see an outage.
#[test]
fn limits_path_requested_too_often_answers_from_local_levels() {
    let redis = Redis::start();
    let tenants = "[rules.tenants]\nper = [\"ip\", \"header:x-tenant\"]\nrate = \"9/d\"\n";
    let strict = "[rules.strict]\nper = [\"key\"]\nrate = \"7/d\"\non_failure = \"deny\"\n";
    let config = format!("instances = 3\n{}{tenants}{strict}{}", file(""), redis.table());
    let gateway = Gateway::start(&config);
    let ask = |tenant: &str| gateway.send(&Request::get(PATH).header("X-Tenant", tenant)).json();
    let rule = |view: &Value, name: &str| {
        let rules = view["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["name"] == name).unwrap().clone()
    };
    let view = eventually("a second request at once", || {
        (ask("a")["approximate"] == false)
            .then(|| ask("b"))
            .filter(|view| view["approximate"] == true)
    });
    assert_eq!(rule(&view, "tenants")["remaining"], 9, "all of it: Redis decides");
    let strict = rule(&view, "strict");
    assert_eq!((&strict["remaining"], &strict["without_redis"]), (&json!(7), &Value::Null));
}

#[test]
fn limits_path_is_off_by_default_and_follows_reloads() {
    let gateway = Gateway::start(DEMO);
    assert_eq!(gateway.get(PATH).json()["route"], "all");
    gateway.apply(&file(""));
    assert_eq!(get_limits(&gateway, None)["rules"].as_array().unwrap().len(), 3);
    assert_eq!(gateway.admin("/api/policy").json()["clients"]["limits_path"], PATH);
    gateway.apply(&format!("[clients]\nlimits_path = \"/me\"\n{DEMO}"));
    assert_eq!(gateway.get(PATH).json()["route"], "all");
    let view = gateway.get("/me").json();
    assert_eq!((&view["limited"], &view["rules"]), (&json!(false), &json!([])));
}

#[test]
fn limits_path_is_the_same_on_all_gateways() {
    let mut redis = Redis::start();
    let config = format!("{}{}", file(""), redis.table());
    let gateways = [Gateway::start(&config), Gateway::start(&config)];
    for gateway in &gateways {
        eventually("Redis", || {
            let status = gateway.admin("/api/status").json();
            (status["redis"]["connected"] == true).then_some(())
        });
        assert_eq!(remaining(&get_limits(gateway, Some("secret")), "per-key"), 10);
    }
    for gateway in gateways.iter().cycle().take(4) {
        assert_eq!(gateway.send(&Request::get("/").header("X-Api-Key", "secret")).status, 200);
    }
    for gateway in &gateways {
        eventually("the other gateway's requests", || {
            let view = get_limits(gateway, Some("secret"));
            (view["approximate"] == false && remaining(&view, "per-key") == 6).then_some(())
        });
    }
    // Reading does not write: only requests have taken tokens.
    let calls = gateways[0].count("tollgate_redis_calls_total", &[]);
    for _ in 0..100 {
        assert_eq!(remaining(&get_limits(&gateways[0], Some("secret")), "per-key"), 6);
    }
    assert_eq!(gateways[0].count("tollgate_redis_calls_total", &[]), calls);
    redis.kill();
    eventually("an approximate response", || {
        let view = get_limits(&gateways[0], Some("secret"));
        (view["approximate"] == true).then_some(view)
    });
}

#[test]
fn limits_path_peeks_at_redis_at_most_every_200_ms() {
    let redis = Redis::start();
    let gateway = Gateway::start(&format!("{}{}", file(""), redis.table()));
    eventually("Redis", || {
        let status = gateway.admin("/api/status").json();
        (status["redis"]["connected"] == true).then_some(())
    });
    let mut connection = gateway.connect();
    let before = redis.calls("get");
    let ((), took) = timed(|| {
        for _ in 0..300 {
            assert_eq!(connection.send(&Request::get(PATH)).status, 200);
        }
    });
    let looks = (redis.calls("get") - before) / 3;
    let most = u64::try_from(took.as_millis()).unwrap() / 200 + 1;
    assert!((1..=most).contains(&looks), "{looks} looks in {took:?}");
}

/// While Redis hangs, a response takes at most the timeout of a check and is marked approximate.
#[test]
fn limits_path_does_not_wait_for_a_hanging_redis() {
    let redis = Redis::start();
    let gateway = Gateway::start(&format!("{}{}", file(""), redis.table_with_timeout("50ms")));
    eventually("Redis", || {
        let view = get_limits(&gateway, None);
        (view["approximate"] == false).then_some(())
    });
    redis.pause();
    eventually("a response without Redis", || {
        let view = get_limits(&gateway, None);
        (view["approximate"] == true).then_some(())
    });
    // Only peeks are sent: they do not affect the breaker, and each is as short.
    let (view, took) = timed(|| (0..20).map(|_| get_limits(&gateway, None)).collect::<Vec<_>>());
    assert!(view.iter().all(|view| view["approximate"] == true && remaining(view, "per-ip") == 20));
    assert!(took < TIMEOUT, "{took:?}");
    redis.resume();
    eventually("Redis to be used again", || {
        let view = get_limits(&gateway, None);
        (view["approximate"] == false).then_some(())
    });
}

#[test]
fn explain_covers_the_limits_path() {
    let gateway = Gateway::start(&file(""));
    let view = gateway.explain(format!(r#"{{"path": "{PATH}", "key": "secret"}}"#)).json();
    assert_eq!((&view["verdict"]["decision"], &view["levels"]), (&json!("allow"), &json!("none")));
    assert_eq!(view["rules"][0]["why_not"]["code"], "own_limits");
    let view = gateway.explain(format!(r#"{{"path": "{PATH}", "key": "guess"}}"#)).json();
    assert_eq!(view["verdict"]["status"], 401);
    assert_eq!(
        (&view["rules"][1]["applies"], &view["rules"][1]["cost"]),
        (&json!(true), &json!(1))
    );
    let config = gateway.file().to_str().unwrap();
    let text = tollgate(&["explain", "-c", config, "--path", PATH], "");
    assert!(text.stdout.contains("The gateway itself responds"), "{}", text.stdout);
}
