//! Top-ups: tokens beyond a quota until a time, over all gateways with the same Redis, and without
//! Redis.

use serde_json::{Value, json};

use crate::cluster::wait_until_connected;
use crate::shared::is_decided_locally;
use crate::support::{
    CpuWaits, DEMO, FaultProxy, Gateway, Mode, Redis, RedisCluster, Request, Response,
    StatusCounts, Upstream, eventually, key, proxy_to, send_many, tollgate,
};
use crate::upgrade::upgraded;

/// Two quotas, so that a top-up of one does not help the other. A year does not end during a test.
fn file(more: &str) -> String {
    let rules = "[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"4/year\"\n\
                 [rules.daily]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"1000/year\"\n\
                 [rules.rate]\nper = [\"key\"]\nrate = \"1000/365d\"\n";
    format!("{DEMO}{rules}{}{more}", key("acme", "the-key", "free"))
}

fn ask(gateway: &Gateway) -> Response {
    gateway.send(&Request::get("/").header("X-Api-Key", "the-key"))
}

fn grant(gateway: &Gateway, body: &Value) -> Response {
    let path = "/api/clients/key/acme/grant";
    gateway.send_admin(&Request::new("POST", path).body(body.to_string()))
}

fn list(gateway: &Gateway) -> Value {
    gateway.admin("/api/clients/key/acme/top-ups").json()["top_ups"].clone()
}

/// Sends requests through all gateways in turn until each has refused two. Returns how many passed.
fn use_up(gateways: &[&Gateway]) -> usize {
    let (mut passed, mut refused) = (0, 0);
    for gateway in gateways.iter().cycle() {
        match ask(gateway).status {
            200 => (passed, refused) = (passed + 1, 0),
            429 => refused += 1,
            other => panic!("{other}"),
        }
        if refused == 2 * gateways.len() {
            break;
        }
    }
    passed
}

#[test]
fn row_232_top_up_is_used_once_over_all_gateways_after_the_quota() {
    let redis = Redis::start();
    let all = [(); 2].map(|()| Gateway::start(&file(&redis.table())));
    all.iter().for_each(Gateway::wait_for_redis);
    let [one, two] = &all;
    assert_eq!(use_up(&[one, two]), 4);
    let later = json!({"rule": "quota", "tokens": 5, "expires": "2h", "reason": "invoice 4711"});
    let granted = grant(one, &later);
    assert_eq!(granted.status, 200, "{}", granted.text());
    let view = granted.json();
    assert_eq!((&view["buckets"][0]["from"], &view["buckets"][0]["to"]), (&json!(0), &json!(5)));
    // The other gateway knows its refusal for a second.
    eventually("the other gateway", || (ask(two).status == 200).then_some(()));
    let sooner = json!({"rule": "quota", "tokens": 3, "expires": "1h"});
    assert_eq!(grant(two, &sooner).status, 200);
    let shown = list(one);
    // What was used before counts to the one that expires first.
    let lefts = |shown: &Value| -> Vec<(u64, f64)> {
        let each = shown.as_array().unwrap().iter();
        each.map(|it| (it["tokens"].as_u64().unwrap(), it["left"].as_f64().unwrap())).collect()
    };
    assert_eq!(lefts(&shown), [(3, 2.0), (5, 5.0)], "{shown}");
    assert_eq!(shown[1]["reason"], "invoice 4711", "{shown}");
    assert_eq!(view["top_up"], shown[1]["id"], "{view}");
    eventually("both gateways", || (ask(one).status == 200).then_some(()));
    assert_eq!(list(two), list(one));
    assert_eq!(use_up(&[two, one]), 6);
    assert_eq!(lefts(&list(one)), [(3, 0.0), (5, 0.0)]);
}

/// Redis is stopped while it has the call: the gateway cannot say whether the top-up was added.
#[test]
fn row_233_repeated_grant_adds_a_top_up_once() {
    let redis = Redis::start();
    let all = [(); 2].map(|()| Gateway::start(&file(&redis.table())));
    all.iter().for_each(Gateway::wait_for_redis);
    let [one, two] = &all;
    let wanted = json!({"rule": "quota", "tokens": 5, "expires": "90d", "id": "invoice-4711"});
    redis.pause();
    let open = grant(one, &wanted);
    redis.resume();
    assert_eq!(open.status, 503, "{}", open.text());
    assert_eq!(open.json()["done"], "unknown", "{}", open.text());
    let mut repetitions = 0;
    for gateway in [one, two] {
        gateway.wait_for_redis();
        let repeated = eventually("an answer of Redis", || {
            let repeated = grant(gateway, &wanted);
            (repeated.status != 503).then_some(repeated)
        });
        assert_eq!(repeated.status, 200, "{}", repeated.text());
        assert_eq!(repeated.json()["top_up"], "invoice-4711");
        repetitions += usize::from(repeated.json()["repeated"] == true);
    }
    assert!(repetitions >= 1, "the call that was repeated has added it");
    let listed = list(two);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!("invoice-4711")));
    assert_eq!(use_up(&[one, two]), 9);
    let again = grant(two, &wanted).json();
    assert_eq!(
        (&again["repeated"], &again["buckets"][0]["to"]),
        (&json!(true), &json!(0)),
        "used up, but not expired: {again}"
    );
}

/// The connection of the gateway is dead: the call is lost.
#[test]
fn row_233_grant_that_did_not_reach_redis_is_added_by_its_repetition() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    // A grant that a busy machine delays beyond the timeout may have been added.
    let gateway = Gateway::start(&file(&proxy.table("500ms")));
    gateway.wait_for_redis();
    let wanted = json!({"rule": "quota", "tokens": 5, "expires": "90d", "id": "invoice-4711"});
    proxy.set(Mode::Freeze);
    let open = grant(&gateway, &wanted);
    assert_eq!((open.status, &open.json()["done"]), (503, &json!("unknown")), "{}", open.text());
    let repeated = eventually("a new connection", || {
        let repeated = grant(&gateway, &wanted);
        (repeated.status != 503).then_some(repeated)
    });
    assert_eq!((repeated.status, repeated.json().get("repeated")), (200, None));
    assert_eq!(grant(&gateway, &wanted).json()["repeated"], true);
    assert_eq!(list(&gateway).as_array().unwrap().len(), 1);
    assert_eq!(use_up(&[&gateway]), 9);
}

#[test]
fn id_of_a_top_up_is_that_of_one_call() {
    let redis = Redis::start();
    for more in [redis.table(), String::new()] {
        let gateway = Gateway::start(&file(&more));
        if !more.is_empty() {
            gateway.wait_for_redis();
        }
        let wanted = |id: &str, tokens: u64, rule: &str| {
            let body = json!({"rule": rule, "tokens": tokens, "expires": "90d", "id": id});
            grant(&gateway, &body)
        };
        assert_eq!(wanted("i-1", 5, "quota").json().get("repeated"), None);
        assert_eq!(wanted("i-1", 5, "quota").json()["repeated"], true);
        let other = wanted("i-1", 6, "quota");
        assert_eq!((other.status, other.text().contains("other values")), (409, true));
        assert_eq!(wanted("..", 6, "quota").status, 400);
        assert_eq!(list(&gateway)[0]["left"], 5.0);
        // The same invoice under another quota is another top-up.
        assert_eq!(wanted("i-1", 7, "daily").json().get("repeated"), None);
        let path = "/api/clients/key/acme/top-ups/i-1";
        let revoke = |query: &str| {
            gateway.send_admin(&Request::new("DELETE", &format!("{path}{query}"))).status
        };
        assert_eq!((revoke(""), revoke("?rule=quota"), revoke("?rule=quota")), (409, 200, 404));
        assert_eq!(wanted("i-1", 5, "quota").json()["repeated"], true, "also if it is revoked");
        assert_eq!((revoke(""), list(&gateway)), (200, json!([])));
        let changes = gateway.admin("/api/audit?kind=change&key=acme").text();
        assert!(changes.contains("top-up i-1 was granted before"), "{changes}");
    }
}

#[test]
fn client_reads_what_is_left_of_its_top_ups() {
    let redis = Redis::start();
    let limits_path = "[clients]\nlimits_path = \"/limits\"\n";
    for more in [format!("{limits_path}{}", redis.table()), limits_path.to_owned()] {
        let gateway = Gateway::start(&file(&more));
        if more != limits_path {
            gateway.wait_for_redis();
        }
        let quota = || {
            let shown = gateway.send(&Request::get("/limits").header("X-Api-Key", "the-key"));
            let rules = shown.json()["rules"].clone();
            let quota = rules.as_array().unwrap().iter().find(|rule| rule["name"] == "quota");
            quota.unwrap().clone()
        };
        assert_eq!(quota().get("top_ups"), None);
        for (tokens, expires) in [(5, "2033-01-01T00:00:00Z"), (3, "2032-01-01T00:00:00Z")] {
            let body = json!({"rule": "quota", "tokens": tokens, "expires": expires});
            assert_eq!(grant(&gateway, &body).status, 200);
        }
        (0..6).for_each(|_| assert_eq!(ask(&gateway).status, 200));
        // A client reads Redis at most five times a second.
        let top_ups = json!({"remaining": 6, "next_expires": "2032-01-01T00:00:00.000000Z"});
        eventually("what is left", || (quota()["top_ups"] == top_ups).then_some(()));
        assert_eq!(quota()["remaining"], 6);
    }
}

#[test]
fn upgrade_without_redis_keeps_top_ups_and_their_ids() {
    let gateway = Gateway::start(&file(""));
    let body = json!({"rule": "quota", "tokens": 5, "expires": "90d", "id": "i-1"});
    assert_eq!(grant(&gateway, &body).status, 200);
    (0..6).for_each(|_| assert_eq!(ask(&gateway).status, 200));
    let before = list(&gateway);
    upgraded(&gateway);
    assert_eq!((list(&gateway), &before[0]["left"]), (before.clone(), &json!(3.0)));
    assert_eq!(grant(&gateway, &body).json()["repeated"], true);
    assert_eq!(use_up(&[&gateway]), 3);
}

#[test]
fn command_names_the_id_with_which_it_can_be_repeated() {
    let gateway = Gateway::start(&file(""));
    let run = |admin: &str, more: &[&str]| {
        let add = [
            "top-ups",
            "add",
            "--rule",
            "quota",
            "--tokens",
            "7",
            "--expires",
            "90d",
            "--key-id",
            "acme",
            "--admin",
            admin,
        ];
        tollgate(&[&add[..], more].concat(), "")
    };
    let admin = format!("http://{}", gateway.admin);
    assert_eq!(run(&admin, &["--id", "i-1"]).stdout, "quota: 4 -> 11 tokens, top-up i-1\n");
    assert_eq!(
        run(&admin, &["--id", "i-1"]).stdout,
        "quota: 11 -> 11 tokens, top-up i-1 was granted before\n"
    );
    drop(gateway);
    let away = run(&admin, &[]);
    assert!(away.stderr.contains("with `--id "), "{away:?}");
}

#[test]
fn command_names_the_random_id_that_it_has_sent_after_an_open_answer() {
    let open = r#"{"status": 503, "detail": "no answer", "done": "unknown"}"#;
    for (status, body) in [("503 Service Unavailable", open), ("504 Gateway Timeout", "a proxy")] {
        let length = body.len();
        let admin = Upstream::responding(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let url = format!("http://{}", admin.address);
        let add = ["--rule", "quota", "--tokens", "7", "--expires", "90d", "--key-id", "acme"];
        let failed = tollgate(&[&["top-ups", "add", "--admin", &url], &add[..]].concat(), "");
        let sent: Value = serde_json::from_slice(&admin.only_request().body).unwrap();
        let note = format!("with `--id {}` adds", sent["id"].as_str().unwrap());
        assert!(failed.stderr.contains(&note), "{sent}: {failed:?}");
    }
}

#[test]
fn top_up_is_revoked_by_its_id_and_is_in_the_audit() {
    let redis = Redis::start();
    for more in [redis.table(), String::new()] {
        let gateway = Gateway::start(&file(&more));
        if !more.is_empty() {
            gateway.wait_for_redis();
        }
        let admin = format!("http://{}", gateway.admin);
        let run = |arguments: &[&str]| {
            tollgate(
                &[&["top-ups"], arguments, &["--key-id", "acme", "--admin", &admin]].concat(),
                "",
            )
        };
        let added = run(&[
            "add",
            "--rule",
            "quota",
            "--tokens",
            "7",
            "--expires",
            "90d",
            "--reason",
            "gift",
        ]);
        assert!(added.stdout.starts_with("quota: 4 -> 11 tokens, top-up "), "{added:?}");
        let id = added.stdout.trim().rsplit(' ').next().unwrap();
        assert_eq!(ask(&gateway).remaining(), 10);
        let shown = run(&["list"]).stdout;
        assert!(shown.contains(id) && shown.contains("gift"), "{shown}");
        let revoked = run(&["revoke", id]);
        assert_eq!(revoked.stdout, "quota: 10 -> 3 tokens\n", "{revoked:?}");
        assert_eq!(run(&["list"]).stdout, "acme has no top-ups\n");
        assert_eq!(run(&["revoke", id]).code, Some(64));
        assert_eq!(use_up(&[&gateway]), 3);
        let changes = gateway.admin("/api/audit?kind=change&key=acme").text();
        assert!(changes.contains("quota: 4 -> 11 until ") && changes.contains("gift"), "{changes}");
        assert!(changes.contains("of 7 tokens revoked"), "{changes}");
    }
}

#[test]
fn top_up_needs_a_quota_and_a_time_to_come() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&file(""));
    for (body, status, expected) in [
        (json!({"rule": "rate", "tokens": 5, "expires": "1h"}), 409, "fixed_window"),
        (json!({"tokens": 5, "expires": "1h"}), 400, "need the name of a `rule`"),
        (
            json!({"rule": "quota", "tokens": 5, "expires": "2020-01-01T00:00:00Z"}),
            400,
            "`expires` must be",
        ),
        (json!({"rule": "quota", "tokens": 5, "expires": 7}), 400, "`expires` must be"),
        (
            json!({"rule": "quota", "tokens": 9_007_199_254_740_992_u64, "expires": "1h"}),
            409,
            "too large",
        ),
        (
            json!({"rule": "quota", "tokens": 5, "expires": "1h", "above_limit": false}),
            400,
            "above_limit",
        ),
    ] {
        let refused = grant(&gateway, &body);
        assert_eq!(refused.status, status, "{body}: {}", refused.text());
        assert!(refused.text().contains(expected), "{body}: {}", refused.text());
    }
    let path = folder.path().join("usage.redb");
    let with_file = file(&format!("[usage]\nfile = \"{}\"\n", path.display()));
    let gateway = Gateway::start(&with_file);
    let refused = grant(&gateway, &json!({"rule": "quota", "tokens": 5, "expires": "1h"}));
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("needs [redis]"), "{}", refused.text());
}

/// The buckets of the clients are at several masters. What passes is what the upstream counts.
#[test]
fn top_ups_are_exact_in_a_cluster_over_two_gateways() {
    const CLIENTS: usize = 6;
    let redis = RedisCluster::steady(0);
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let rules = "[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"20/year\"\n\
                 [rules.address]\nper = [\"ip\"]\nrate = \"1000/365d\"\n";
    let keys: String =
        (0..CLIENTS).map(|n| key(&format!("k{n}"), format!("s{n}"), "free")).collect();
    let text = format!("{}{}{rules}{keys}", proxy_to(&[upstream.address]), redis.table());
    let all: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    all.iter().for_each(wait_until_connected);
    let client = |number: usize| format!("/api/clients/key/k{number}");
    for number in 0..CLIENTS {
        for (id, tokens) in [("a", 30), ("b", 15)] {
            let body = json!({"rule": "quota", "tokens": tokens, "expires": "90d", "id": id});
            for (is_repeated, gateway) in all.iter().cycle().skip(number).take(2).enumerate() {
                let path = format!("{}/grant", client(number));
                let granted =
                    gateway.send_admin(&Request::new("POST", &path).body(body.to_string()));
                assert_eq!(granted.status, 200, "{}", granted.text());
                assert_eq!(granted.json().get("repeated").is_some(), is_repeated == 1);
            }
        }
    }
    let urls: Vec<String> = all.iter().map(|gateway| gateway.url("/")).collect();
    let waits = CpuWaits::now();
    let counts: StatusCounts = send_many(CLIENTS * 100, |http, number| {
        let secret = format!("s{}", number % CLIENTS);
        http.get(&urls[number / CLIENTS % urls.len()]).header("X-Api-Key", secret)
    });
    if is_decided_locally(&all, &waits) {
        return;
    }
    assert_eq!(counts, [(200, CLIENTS * 65), (429, CLIENTS * 35)].into());
    assert_eq!(upstream.requests().len(), CLIENTS * 65);
    for number in 0..CLIENTS {
        let shown = all[number % 2].admin(&format!("{}/top-ups", client(number))).json();
        let lefts = shown["top_ups"].as_array().unwrap().iter().map(|one| one["left"].as_f64());
        assert_eq!(lefts.collect::<Vec<_>>(), [Some(0.0); 2], "{shown}");
    }
}
