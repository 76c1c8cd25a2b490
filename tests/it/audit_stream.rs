//! The stream of refusal runs in Redis: its records, when they are written, and that requests do
//! not depend on it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{DEMO, Gateway, Redis, Request, eventually, key, timed_below};

const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

/// One request per hour and client.
const RULE: &str = "[rules.hourly]\nper = [\"key\"]\nrate = \"1/h\"\n";

const STREAM: &str = "[audit]\nstream = true\n";

fn file(redis: &Redis, more: &str) -> String {
    format!("{DEMO}{RULE}{}{}{more}", redis.table(), key("acme", SECRET, "free"))
}

/// Starts a gateway and waits until Redis decides.
fn start(config: &str) -> Gateway {
    let gateway = Gateway::start(config);
    gateway.wait_for_redis();
    gateway
}

/// Sends requests until `count` are denied, and waits until all are recorded.
fn refuse(gateway: &Gateway, count: usize, request: &Request) {
    let mut client = gateway.connect();
    for _ in 0..=count {
        client.send(request);
    }
    eventually("all to be noted", || {
        let view = gateway.admin("/api/audit").json();
        (view["refusal_runs"][0]["count"] == count).then_some(())
    });
}

fn end(mut gateway: Gateway) {
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
}

/// The records in the stream.
fn records(redis: &Redis, key: &str) -> Vec<BTreeMap<String, String>> {
    let entries: Vec<(String, BTreeMap<String, String>)> = redis.query(&["XRANGE", key, "-", "+"]);
    entries.into_iter().map(|(_, fields)| fields).collect()
}

#[test]
fn refusal_run_is_in_the_stream_without_secrets() {
    let redis = Redis::start();
    for (client_ip, prefix) in [("plain", "tollgate:"), ("hashed", "a:"), ("off", "b:")] {
        let table = format!("{}prefix = \"{prefix}\"\n", redis.table());
        let log = format!("[access_log]\noutput = \"off\"\nclient_ip = \"{client_ip}\"\n");
        let acme = key("acme", SECRET, "free");
        let gateway = start(&format!("{DEMO}{RULE}{table}{acme}{STREAM}{log}"));
        refuse(&gateway, 7, &Request::get("/").header("X-Api-Key", SECRET));
        end(gateway);
        let [record] = &records(&redis, &format!("{prefix}audit"))[..] else {
            panic!("{:?}", records(&redis, &format!("{prefix}audit")))
        };
        let field = |name: &str| record.get(name).map(String::as_str);
        assert_eq!((field("key"), field("count")), (Some("acme"), Some("7")), "{record:?}");
        assert_eq!((field("rule"), field("plan")), (Some("hourly"), Some("free")), "{record:?}");
        assert_eq!((field("tokens"), field("gateway").unwrap().len()), (Some("0"), 16));
        assert!(field("first") < field("last"), "{record:?}");
        match client_ip {
            "plain" => assert_eq!(field("ip"), Some("127.0.0.1")),
            "hashed" => assert!(field("ip").unwrap().starts_with("h:"), "{record:?}"),
            _ => assert_eq!(field("ip"), None),
        }
        assert!(!format!("{record:?}").contains(SECRET), "{record:?}");
    }
}

#[test]
fn stream_is_off_by_default_and_follows_reloads() {
    let redis = Redis::start();
    let (off, on) = (file(&redis, ""), file(&redis, STREAM));
    for (before, after, expected) in [(&off, &off, 0), (&on, &off, 0), (&off, &on, 1)] {
        let gateway = start(before);
        refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
        gateway.apply(&format!("{after}# another\n"));
        assert_eq!(gateway.count("tollgate_audit_dropped_total", &[]), 0);
        end(gateway);
        assert_eq!(records(&redis, "tollgate:audit").len(), expected, "{before} -> {after}");
        redis.query::<()>(&["FLUSHALL"]);
    }
}

#[test]
fn missing_right_to_search_the_stream_is_named() {
    let redis = Redis::start();
    let page = include_str!("../../docs/redis.md");
    let line = page.lines().find(|line| line.contains("ACL SETUSER")).unwrap().trim();
    let words: Vec<&str> = line.split(' ').chain(["-xrevrange"]).collect();
    redis.query::<()>(&words);
    let login = "username = \"tollgate\"\npassword = \"PASSWORD\"\n";
    let acme = key("acme", SECRET, "free");
    let gateway = start(&format!("{DEMO}{RULE}{}{login}{acme}{STREAM}", redis.table()));
    refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
    let search = || gateway.admin("/api/audit?all=true").json();
    let lacking = search();
    assert!(lacking["incomplete"].as_str().unwrap().contains("it needs `+xrevrange`"), "{lacking}");
    assert_eq!(lacking["refusal_runs"].as_array().unwrap().len(), 1, "{lacking}");
    assert!(page.contains("`+xrevrange`"));
    redis.query::<()>(&["ACL", "SETUSER", "tollgate", "+xrevrange"]);
    let found = search();
    assert!(found["incomplete"].is_null(), "{found}");
    end(gateway);
    assert_eq!(records(&redis, "tollgate:audit").len(), 1);
}

#[test]
fn stream_without_redis_delays_neither_requests_nor_shutdown() {
    let mut redis = Redis::start();
    let gateway = start(&file(&redis, STREAM));
    redis.kill();
    refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
    timed_below(Duration::from_secs(5), || end(gateway));
}

/// The question is put to a gateway that refused nothing.
#[test]
fn refusals_of_all_gateways_are_found_on_each() {
    let redis = Redis::start();
    let config = file(&redis, STREAM);
    let (first, second) = (start(&config), start(&config));
    let acme = Request::get("/").header("X-Api-Key", SECRET);
    refuse(&first, 7, &acme);
    let ask = |gateway: &Gateway, query: &str| {
        let answer = gateway.admin(&format!("/api/audit{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let counts = |view: &serde_json::Value| -> Vec<u64> {
        let runs = view["refusal_runs"].as_array().unwrap().iter();
        runs.map(|run| run["count"].as_u64().unwrap()).collect()
    };
    assert_eq!(counts(&ask(&second, "?key=acme")), [0; 0]);
    let name = ask(&first, "")["gateway"].as_str().unwrap().to_owned();
    // The record is in the stream when the run is over.
    end(first);
    let view = ask(&second, "?key=acme&since=5m&until=0s&all=true");
    assert_eq!(counts(&view), [7], "{view}");
    let run = &view["refusal_runs"][0];
    assert_eq!((&run["gateway"], &run["route"]), (&name.into(), &"all".into()), "{view}");
    assert_eq!((&run["open"], &view["incomplete"]), (&false.into(), &serde_json::Value::Null));
    // Runs of this gateway are listed once, whether they are in the stream or not.
    assert_eq!(second.send(&acme).status, 429, "the gateways share the bucket");
    let all = || ask(&second, "?key=acme&all=true");
    eventually("both runs", || (counts(&all()).len() == 2).then_some(()));
    eventually("the second record", || {
        (records(&redis, "tollgate:audit").len() == 2).then_some(())
    });
    assert_eq!(counts(&all()).len(), 2, "{}", all());
    for query in ["?key=acme&all=true&until=1h", "?rule=hourly&kind=shadow&all=true"] {
        assert_eq!(counts(&ask(&second, query)), [0; 0], "{query}");
    }
    assert_eq!(ask(&second, "?all=true&limit=1")["more"], 1);
    refuse(&second, 2, &Request::get("/"));
    eventually("the third record", || (records(&redis, "tollgate:audit").len() == 3).then_some(()));
    assert_eq!(ask(&second, "?all=true&limit=1")["more"], 2);
}

#[test]
fn search_of_all_gateways_without_a_stream_says_what_is_missing() {
    let mut redis = Redis::start();
    let refused = |gateway: &Gateway| {
        let answer = gateway.admin("/api/audit?all=true");
        (answer.status, answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    let (status, detail) = refused(&Gateway::start(&format!("{DEMO}{RULE}")));
    assert!(status == 409 && detail.contains("no [redis]"), "{status} {detail}");
    let (status, detail) = refused(&start(&file(&redis, "")));
    assert!(status == 409 && detail.contains("`stream = true` under [audit]"), "{status} {detail}");
    // Without Redis, the gateway's own runs are found, and the response says that others are
    // missing.
    let gateway = start(&file(&redis, STREAM));
    redis.kill();
    refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
    let view = gateway.admin("/api/audit?all=true").json();
    assert_eq!(view["refusal_runs"][0]["count"], 2, "{view}");
    let incomplete = view["incomplete"].as_str().unwrap();
    assert!(incomplete.starts_with("Redis cannot be reached"), "{incomplete}");
}

/// A key that was revoked, and a rule that was renamed, after the gateway that refused them has
/// ended.
#[test]
fn refusals_of_other_gateways_are_found_by_names_that_the_file_no_longer_has() {
    let redis = Redis::start();
    let first = start(&file(&redis, STREAM));
    refuse(&first, 7, &Request::get("/").header("X-Api-Key", SECRET));
    end(first);
    let renamed = file(&redis, STREAM).replace("hourly", "per-hour").replace("keys.acme", "keys.b");
    let second = start(&renamed);
    for query in ["key=acme", "rule=hourly", "key=acme&rule=hourly"] {
        let answer = second.admin(&format!("/api/audit?{query}&all=true"));
        assert_eq!(answer.json()["refusal_runs"][0]["count"], 7, "{query}: {}", answer.text());
        // This gateway does not know the name.
        assert_eq!(second.admin(&format!("/api/audit?{query}")).status, 400, "{query}");
    }
    for query in ["key=acne", "rule=daily"] {
        assert_eq!(second.admin(&format!("/api/audit?{query}&all=true")).status, 400, "{query}");
    }
}

#[test]
fn row_67_refusals_before_and_after_an_upgrade_are_in_the_stream() {
    let redis = Redis::start();
    let mut gateway = start(&file(&redis, STREAM));
    let request = Request::get("/").header("X-Api-Key", SECRET);
    assert_eq!(gateway.send(&request).status, 200);
    for _ in 0..5 {
        assert_eq!(gateway.send(&request).status, 429);
    }
    let answer = gateway.send_admin(&Request::new("POST", "/api/upgrade"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.exit().0, Some(0));
    for _ in 0..3 {
        assert_eq!(gateway.send(&request).status, 429);
    }
    let successor = nix::unistd::Pid::from_raw(gateway.successors()[0].try_into().unwrap());
    nix::sys::signal::kill(successor, nix::sys::signal::Signal::SIGTERM).unwrap();
    let count = || -> u64 {
        let records = records(&redis, "tollgate:audit");
        records.iter().map(|record| record["count"].parse::<u64>().unwrap()).sum()
    };
    eventually("all refusals", || (count() == 8).then_some(()));
}

#[test]
fn own_runs_that_are_also_in_the_stream_are_counted_once() {
    let redis = Redis::start();
    let rules = RULE.replace("[\"key\"]", "[\"key\", \"route\"]");
    let routes = "[routes.a]\npath = \"/a\"\n[routes.b]\npath = \"/b\"\n";
    let rules: String = ["a", "b", "c"].map(|name| rules.replace("hourly", name)).concat();
    let rules = rules.replace("rate = \"1/h\"\n", "rate = \"1/h\"\nmode = \"shadow\"\n");
    let acme = key("acme", SECRET, "free");
    let gateway = start(&format!("{DEMO}{routes}{rules}{}{acme}{STREAM}", redis.table()));
    for _ in 0..2 {
        gateway.send(&Request::get("/a").header("X-Api-Key", SECRET));
    }
    eventually("the records", || {
        (records(&redis, "tollgate:audit:shadow").len() == 3).then_some(())
    });
    for (limit, more) in [(1, 2), (2, 1), (3, 0)] {
        let view = gateway.admin(&format!("/api/audit?all=true&limit={limit}")).json();
        assert_eq!(view["more"], more, "{view}");
    }
}

/// Records that another program has written.
#[test]
fn hostile_records_of_the_stream_are_harmless() {
    let redis = Redis::start();
    let gateway = start(&file(&redis, STREAM));
    let time = "2026-11-21T16:34:01.000250Z";
    let long = "x".repeat(1_000);
    for (rule, last) in [("<script>\u{1b}[31m\n", time), (&*long, time), ("r", "never")] {
        let fields = ["first", time, "last", last, "count", "1", "rule", rule, "key", "acme"];
        let command: Vec<&str> =
            ["XADD", "tollgate:audit", "*"].into_iter().chain(fields).collect();
        redis.query::<String>(&command);
    }
    let answer = gateway.admin("/api/audit?all=true");
    let view = answer.json();
    assert_eq!(view["refusal_runs"].as_array().unwrap().len(), 2, "{view}");
    assert!(answer.text().len() < 3_000 && !answer.text().contains('\u{1b}'), "{}", answer.text());
    // A key of another type.
    redis.query::<()>(&["SET", "tollgate:audit:shadow", "x"]);
    let view = gateway.admin("/api/audit?all=true").json();
    assert!(view["incomplete"].as_str().unwrap().contains("WRONGTYPE"), "{view}");
}
