//! The stream of refusal runs in Redis: its records, when they are written, and that requests do not depend
//! on it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{DEMO, Gateway, Redis, Request, eventually, key};

const SECRET: &str = "s3cr3t-7h4t-nob0dy-m4y-r34d";

/// One request per hour and client.
const RULE: &str = "[rules.hourly]\nper = [\"key\"]\nrate = \"1/h\"\n";

const STREAM: &str = "[audit]\nstream = true\n";

fn file(redis: &Redis, more: &str) -> String {
    format!("{DEMO}{RULE}{}{}{more}", redis.table(), key("acme", SECRET, "free"))
}

/// Starts a gateway and waits for its connection to Redis.
fn start(config: &str) -> Gateway {
    let gateway = Gateway::start(config);
    eventually("Redis", || {
        (gateway.admin("/api/status").json()["redis"]["connected"] == true).then_some(())
    });
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

fn end(mut gateway: Gateway) -> Duration {
    gateway.terminate();
    let (code, took) = gateway.exit();
    assert_eq!(code, Some(0));
    took
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
fn documented_acl_rights_and_xadd_suffice_for_the_stream() {
    let redis = Redis::start();
    let page = include_str!("../../docs/redis.md");
    assert!(page.contains("`+xadd`"));
    let line = page.lines().find(|line| line.contains("ACL SETUSER")).unwrap().trim();
    let words: Vec<&str> = line.split(' ').chain(["+xadd"]).collect();
    redis.query::<()>(&words);
    let login = "username = \"tollgate\"\npassword = \"PASSWORD\"\n";
    let acme = key("acme", SECRET, "free");
    let gateway = start(&format!("{DEMO}{RULE}{}{login}{acme}{STREAM}", redis.table()));
    refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
    end(gateway);
    assert_eq!(records(&redis, "tollgate:audit").len(), 1);
}

#[test]
fn stream_without_redis_delays_neither_requests_nor_shutdown() {
    let mut redis = Redis::start();
    let gateway = start(&file(&redis, STREAM));
    redis.kill();
    refuse(&gateway, 2, &Request::get("/").header("X-Api-Key", SECRET));
    let took = end(gateway);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
