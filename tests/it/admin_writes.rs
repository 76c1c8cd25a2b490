//! Write operations of the admin API: buckets and the breaker.

use serde_json::{Value, json};

use crate::support::{DEMO, Gateway, Redis, Request, Response, eventually, key};

/// The rates are per day, so that no tokens refill during a test.
fn file(more: &str) -> String {
    let rules = "[rules.per-key]\nper = [\"key\"]\nrate = \"5/d\"\n\
                 [rules.all]\nper = []\nrate = \"1000/d\"\n\
                 [rules.per-route]\nper = [\"key\", \"route\"]\nrate = \"100/d\"\n\
                 [routes.other]\npath = \"/other\"\nupstream = \"api\"\n";
    format!("{DEMO}{rules}{}{more}", key("acme", "the-key", "free"))
}

fn ask(gateway: &Gateway) -> Response {
    gateway.send(&Request::get("/").header("X-Api-Key", "the-key"))
}

fn post(gateway: &Gateway, path: &str, body: &str) -> Response {
    gateway.send_admin(&Request::new("POST", path).body(body))
}

/// Sends requests until two are denied, so that the denial is cached.
fn use_up(gateway: &Gateway) {
    eventually("a refusal", || (ask(gateway).status == 429).then_some(()));
    assert_eq!(ask(gateway).status, 429);
}

#[test]
fn reset_applies_at_once_and_in_all_gateways_within_a_second() {
    let redis = Redis::start();
    let gateways = [&file(&redis.table()), &file(&redis.table())].map(|file| Gateway::start(file));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let [one, two] = &gateways;
    use_up(one);
    use_up(two);
    let answer = post(one, "/api/clients/key/acme/reset", "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let view = answer.json();
    assert_eq!(
        (&view["levels"], &view["left_out"]),
        (&json!("redis"), &json!([{"rule": "per-route", "unknown": ["route"]}]))
    );
    let bucket = &view["buckets"][0];
    assert_eq!(
        (&bucket["rule"], &bucket["from"], &bucket["to"]),
        (&json!("per-key"), &json!(0), &json!(5))
    );
    assert_eq!(view["buckets"].as_array().unwrap().len(), 1, "not the bucket of all: {view}");
    assert_eq!((ask(one).status, ask(one).remaining()), (200, 3));
    eventually("the other gateway", || (ask(two).status == 200).then_some(()));
    let log = one.log();
    assert!(
        log.contains("POST /api/clients/{kind}/{id}/reset: key acme: per-key: 0 -> 5"),
        "{log}"
    );
}

#[test]
fn grant_adds_tokens_up_to_the_burst() {
    let redis = Redis::start();
    for more in [String::new(), redis.table()] {
        let gateway = Gateway::start(&file(&more));
        if !more.is_empty() {
            gateway.wait_for_redis();
        }
        use_up(&gateway);
        let grant = |body: &str| post(&gateway, "/api/clients/key/acme/grant", body);
        let view = grant("{\"rule\": \"per-key\", \"tokens\": 2}").json();
        assert_eq!(
            (&view["buckets"][0]["from"], &view["buckets"][0]["to"]),
            (&json!(0), &json!(2))
        );
        assert_eq!(
            (ask(&gateway).status, ask(&gateway).status, ask(&gateway).status),
            (200, 200, 429)
        );
        let view = grant("{\"tokens\": 9007199254740992}").json();
        assert_eq!(view["buckets"][0]["to"], 5, "{view}");
        // A shared bucket is reset only if its rule is named.
        let view = post(&gateway, "/api/clients/key/acme/reset", "{\"rule\": \"all\"}").json();
        assert_eq!(view["buckets"][0]["to"], 1000, "{view}");
        let view = post(&gateway, "/api/clients/key/acme/reset?route=other", "").json();
        assert_eq!((&view["left_out"], view["buckets"].as_array().unwrap().len()), (&json!([]), 2));
    }
}

#[test]
fn reset_of_an_address_fills_its_bucket() {
    let gateway = Gateway::start(&file(""));
    eventually("a refusal", || (gateway.get("/").status == 429).then_some(()));
    let view = post(&gateway, "/api/clients/ip/127.0.0.1/reset", "{}").json();
    assert_eq!(
        (&view["buckets"][0]["rule"], &view["client"]["kind"]),
        (&json!("per-key"), &json!("ip"))
    );
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn invalid_adjustments_are_refused() {
    let gateway = Gateway::start(&file(""));
    for (path, body, status) in [
        ("key/acme/grant", "", 400),
        ("key/acme/grant", "{\"tokens\": 0}", 400),
        ("key/acme/grant", "{\"tokens\": -1}", 400),
        ("key/acme/grant", "{\"tokens\": 1.5}", 400),
        ("key/acme/grant", "{\"tokens\": 9007199254740993}", 400),
        ("key/acme/grant", "{\"tokens\": 1, \"rule\": 5}", 400),
        ("key/acme/grant", "{\"tokens\": 1, \"rule\": \"none\"}", 400),
        ("key/acme/reset", "{\"tokens\": 1}", 400),
        ("key/acme/reset", "nonsense", 400),
        ("key/acme/reset", "[[[[", 400),
        ("key/missing/reset", "{}", 404),
        ("key/acme/reset", "{\"rule\": \"per-route\"}", 409),
    ] {
        let answer = post(&gateway, &format!("/api/clients/{path}"), body);
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(post(&gateway, "/api/breaker", "{\"state\": \"open\"}").status, 409);
    assert_eq!(gateway.admin("/api/breaker").status, 409);
}

#[test]
fn reset_without_redis_is_503_and_changes_nothing() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&file(&redis.table()));
    gateway.wait_for_redis();
    use_up(&gateway);
    redis.kill();
    eventually("no Redis", || {
        (gateway.admin("/api/status").json()["redis"]["connected"] == false).then_some(())
    });
    // The breaker opens just after the connection is lost.
    gateway.wait_for_count("tollgate_breaker_state", &[], 2);
    let answer = post(&gateway, "/api/clients/key/acme/reset", "");
    assert_eq!((answer.status, &answer.json()["done"]), (503, &json!("no")));
    assert_eq!(ask(&gateway).status, 429, "no local tokens were granted either");
    let view = gateway.admin("/api/clients/key/acme/buckets").json();
    assert_eq!(view["levels"], "local");
}

#[test]
fn reset_of_a_key_of_another_type_is_409() {
    let redis = Redis::start();
    let gateway = Gateway::start(&file(&redis.table()));
    gateway.wait_for_redis();
    let view = gateway.admin("/api/clients/key/acme/buckets").json();
    let bucket = view["rules"][0]["bucket"].as_str().unwrap().to_owned();
    redis.query::<i64>(&["LPUSH", &bucket, "x"]);
    let answer = post(&gateway, "/api/clients/key/acme/reset", "");
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert_eq!(redis.query::<String>(&["TYPE", &bucket]), "list");
}

#[test]
fn documented_acl_rights_suffice_for_a_reset() {
    let redis = Redis::start();
    let page = include_str!("../../docs/redis.md");
    let line = page.lines().find(|line| line.contains("ACL SETUSER")).unwrap().trim();
    let line = line.replace(">PASSWORD", ">pw");
    let words: Vec<&str> = line.split(' ').collect();
    redis.query::<String>(&words);
    let table = format!("{}username = \"tollgate\"\npassword = \"pw\"\n", redis.table());
    let gateway = Gateway::start(&file(&table));
    gateway.wait_for_redis();
    use_up(&gateway);
    assert_eq!(post(&gateway, "/api/clients/key/acme/reset", "").status, 200);
    assert_eq!(ask(&gateway).status, 200);
}

#[test]
fn operator_opens_and_closes_the_breaker() {
    let redis = Redis::start();
    let ramp = "breaker = { ramp = [50, 100], ramp_step = \"10ms\" }\n";
    let gateway = Gateway::start(&file(&format!("{}{ramp}", redis.table())));
    gateway.wait_for_redis();
    let state = |value: &Value| (value["state"].clone(), value["override"].clone());
    let set = |to: &str| post(&gateway, "/api/breaker", &format!("{{\"state\": \"{to}\"}}"));
    assert_eq!(state(&set("open").json()), (json!("open"), json!("open")));
    assert_eq!(gateway.count("tollgate_breaker_state", &[]), 2);
    assert_eq!(ask(&gateway).status, 200);
    assert_eq!(gateway.count("tollgate_decisions_total", &[("source", "redis")]), 0);
    assert!(gateway.count("tollgate_decisions_total", &[("source", "local")]) > 0);
    assert_eq!(post(&gateway, "/api/clients/key/acme/reset", "").status, 503);
    set("auto");
    eventually("closed", || {
        (state(&gateway.admin("/api/breaker").json()) == (json!("closed"), json!("auto")))
            .then_some(())
    });
    eventually("Redis to decide", || {
        ask(&gateway);
        (gateway.count("tollgate_decisions_total", &[("source", "redis")]) > 0).then_some(())
    });
    assert_eq!(state(&set("closed").json()), (json!("closed"), json!("closed")));
    assert_eq!(set("shut").status, 400);
    let log = gateway.log();
    assert!(log.contains("POST /api/breaker: closed (auto) -> open (open)"), "{log}");
}

/// A top-up: more than the limit of the current period.
#[test]
fn grant_above_the_limit_is_for_the_current_period() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().unwrap();
    let quota = "[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"10/year\"\n";
    let rules = quota.to_owned() + "[rules.rate]\nper = [\"key\"]\nrate = \"1000/365d\"\n";
    let usage = format!("[usage]\nfile = \"{}\"\n", folder.path().join("usage.redb").display());
    for more in [usage, redis.table()] {
        let is_shared = more.contains("[redis]");
        let file = format!("{DEMO}{rules}{}{more}", key("acme", "the-key", "free"));
        let mut gateway = Gateway::start(&file);
        if is_shared {
            gateway.wait_for_redis();
        }
        let grant =
            |gateway: &Gateway, body: &str| post(gateway, "/api/clients/key/acme/grant", body);
        (0..4).for_each(|_| assert_eq!(ask(&gateway).status, 200));
        let refused = grant(&gateway, "{\"rule\": \"rate\", \"tokens\": 5, \"above_limit\": true}");
        assert_eq!(refused.status, 409, "{}", refused.text());
        let refused = grant(&gateway, "{\"tokens\": 5, \"above_limit\": true}");
        assert_eq!(refused.status, 400, "{}", refused.text());
        let top_up = "{\"rule\": \"quota\", \"tokens\": 50, \"above_limit\": true, \
                       \"reason\": \"invoice 7\"}";
        let view = grant(&gateway, top_up).json();
        let bucket = &view["buckets"][0];
        assert_eq!((&bucket["from"], &bucket["to"]), (&json!(6), &json!(56)), "{view}");
        let log = gateway.log();
        assert!(log.contains("quota: 6 -> 56 (") && log.contains("invoice 7"), "{log}");
        // Neither takes anything away.
        let view = grant(&gateway, "{\"rule\": \"quota\", \"tokens\": 1}").json();
        assert_eq!(view["buckets"][0]["to"], 56, "{view}");
        let view = post(&gateway, "/api/clients/key/acme/reset", "{\"rule\": \"quota\"}").json();
        assert_eq!(view["buckets"][0]["to"], 56, "{view}");
        let used = |gateway: &Gateway, expected: f64| {
            eventually("the usage", || {
                let answer = gateway.admin("/api/usage?rule=quota&key=acme");
                let used = || answer.json()["entries"][0]["used"].as_f64();
                (answer.status == 200 && used() == Some(expected)).then_some(())
            });
        };
        used(&gateway, -46.0);
        if !is_shared {
            // The file keeps what is above the limit.
            gateway.terminate();
            assert_eq!(gateway.exit().0, Some(0));
            gateway = Gateway::start(&file);
        }
        let passed = (0..70).filter(|_| ask(&gateway).status == 200).count();
        assert_eq!(passed, 56);
        used(&gateway, 10.0);
    }
}
