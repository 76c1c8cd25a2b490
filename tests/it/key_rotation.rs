//! Several API keys of a client: rotation under load, keys that begin and end, clients that are
//! disabled.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock;

use crate::support::{DEMO, Gateway, Request, Response, digest, eventually, sleep_for};

/// Number of connections that send requests.
const CONNECTIONS: usize = 16;

/// A client with these items of `secrets`.
fn client(settings: &str, secrets: &[(&str, &str, &str)]) -> String {
    let items = secrets.iter().map(|(name, secret, times)| {
        format!("{{ name = \"{name}\", sha256 = \"{}\"{times} }}", digest(secret))
    });
    let items: Vec<String> = items.collect();
    format!("\n[keys.acme]\nplan = \"free\"\nsecrets = [{}]\n{settings}\n", items.join(", "))
}

fn with(secret: &str) -> Request {
    Request::get("/").header("X-Api-Key", secret)
}

/// A time in seconds, as TOML has it.
fn utc(unix_s: u64) -> String {
    jiff::Timestamp::from_second(unix_s.cast_signed()).unwrap().to_string()
}

fn unix_now() -> Duration {
    Duration::from_micros(clock::unix_us())
}

/// The lines of the access log, once there are so many.
fn lines(folder: &TempDir, count: usize) -> Vec<Value> {
    let path = folder.path().join("access.log");
    eventually("lines of the access log", || {
        let text = std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))?;
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// A folder for the access log, and its table.
fn log() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let table = format!("[access_log]\noutput = \"{}\"\n", path.display());
    (folder, table)
}

#[test]
fn keys_of_a_client_share_its_buckets_and_are_named() {
    let rule = "[rules.hourly]\nper = [\"key\"]\nrate = \"5/d\"\n";
    let keys = client("", &[("2026", "old", ""), ("2027", "new", "")]);
    let (folder, log) = log();
    let gateway = Gateway::start(&format!("{DEMO}{rule}{keys}{log}"));
    let statuses: Vec<u16> = ["old", "old", "old", "new", "new", "new", "old"]
        .map(|secret| gateway.send(&with(secret)).status)
        .into();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    let lines = lines(&folder, 7);
    let key = |line: &Value| format!("{} {}", line["key"], line["key_name"]);
    let keys: BTreeSet<String> = lines.iter().map(key).collect();
    assert_eq!(Vec::from_iter(keys), [r#""acme" "2026""#, r#""acme" "2027""#]);
    let runs = gateway.admin("/api/audit?key=acme").json();
    let mut names: Vec<&str> = runs["refusal_runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["key_name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["2026", "2027"], "{runs}");
}

/// A request with an old key must not take tokens of the client whose key it was.
#[test]
fn refused_keys_are_401_and_charged_to_their_address() {
    let rules = "[rules.per-key]\nper = [\"key\"]\nrate = \"2/d\"\non_missing = \"skip\"\n\
                 [rules.per-ip]\nper = [\"ip\"]\nrate = \"6/d\"\n";
    let secrets = [
        ("past", "old", ", expires = 2020-01-01T00:00:00Z"),
        ("future", "early", ", not_before = \"2100-01-01T00:00:00+02:00\""),
        ("current", "new", ", not_before = 2020-01-01T00:00:00Z, expires = 2100-01-01T00:00:00Z"),
    ];
    let clients = "[clients]\non_unknown_key = \"anonymous\"\n";
    let (folder, log) = log();
    let config =
        |settings: &str| format!("{DEMO}{rules}{}{clients}{log}", client(settings, &secrets));
    let gateway = Gateway::start(&config(""));
    // Only the lines of one connection are in the order of its requests.
    let mut connection = gateway.connect();
    let detail = |answer: &Response| answer.json()["detail"].as_str().unwrap().to_owned();
    let expired = connection.send(&with("old"));
    assert_eq!((expired.status, expired.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(detail(&expired), "The API key in the header X-Api-Key has expired.");
    let bearer = Request::get("/").header("Authorization", "Bearer early");
    let early = connection.send(&bearer);
    assert_eq!(early.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
    assert_eq!(detail(&early), "The API key as a bearer token in Authorization is not valid yet.");
    assert_eq!(connection.send(&with("new")).status, 200);
    gateway.apply(&config("enabled = false"));
    let disabled = connection.send(&with("new"));
    assert_eq!(detail(&disabled), "The API key in the header X-Api-Key is disabled.");
    gateway.apply(&config(""));
    // Of the two tokens of the client, only the request that was allowed took one.
    assert_eq!(connection.send(&with("new")).status, 200);
    assert_eq!(connection.send(&with("new")).status, 429);
    assert_eq!(connection.send(&with("old")).status, 401);
    let limited = connection.send(&with("old"));
    assert_eq!(limited.status, 429, "{}", limited.text());
    let reasons: Vec<String> = lines(&folder, 8)
        .iter()
        .map(|line| {
            format!(
                "{} {}",
                line["reason"].as_str().unwrap_or("-"),
                line["key_name"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "expired_key past",
            "early_key future",
            "- current",
            "disabled_key current",
            "- current",
            "limited current",
            "expired_key past",
            "limited_refused_key past"
        ]
    );
    let log = gateway.log();
    for secret in secrets.map(|(_, secret, _)| digest(secret)) {
        assert!(!log.contains(&secret), "{log}");
    }
}

#[test]
fn limit_of_a_refused_key_is_that_of_the_plan_without_a_key() {
    let plans = "[plans.pro]\n[clients]\nanonymous_plan = \"free\"\n";
    let rule = "[rules.r]\nper = [\"key\"]\n\
                plans = { free = { rate = \"1/d\" }, pro = { rate = \"5/d\" } }\n";
    let digest = digest("old");
    let key = format!("[keys.acme]\nplan = \"pro\"\nenabled = false\nsha256 = \"{digest}\"\n");
    let gateway = Gateway::start(&format!("{DEMO}{plans}{rule}{key}"));
    assert_eq!(gateway.send(&with("old")).status, 401);
    let limited = gateway.send(&with("old"));
    assert_eq!(limited.status, 429, "{}", limited.text());
    assert!(limited.text().contains("(1/d, burst 1, plan free)"), "{}", limited.text());
}

#[test]
fn key_begins_and_ends_at_its_time() {
    let limits = "[server.limits]\nmax_requests_per_connection = 0\n";
    let config = |times: &str| format!("{DEMO}{limits}{}", client("", &[("short", "key", times)]));
    // A busy machine may take seconds to start it: the times begin afterwards.
    let gateway = Gateway::start(&config(", not_before = 2100-01-01T00:00:00Z"));
    let from = unix_now().as_secs() + 4;
    let until = from + 4;
    gateway.apply(&config(&format!(", not_before = {}, expires = {}", utc(from), utc(until))));
    // The gateway reads the wall clock once a second, so a correction of the clock counts late.
    let tolerance = Duration::from_millis(50);
    let (from, until) = (Duration::from_secs(from), Duration::from_secs(until));
    let mut client = gateway.connect();
    let mut counts = [0; 3];
    loop {
        sleep_for(Duration::from_millis(5));
        let sent = unix_now();
        let status = client.send(&with("key")).status;
        let received = unix_now();
        let (index, expected) = if received + tolerance < from {
            (0, 401)
        } else if sent > from + tolerance && received + tolerance < until {
            (1, 200)
        } else if sent > until + tolerance {
            (2, 401)
        } else {
            continue;
        };
        assert_eq!(status, expected, "sent at {sent:?}, of {from:?} to {until:?}");
        counts[index] += 1;
        if counts[2] >= 20 {
            break;
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// Requests of all connections use the old key, then the new one, while the file gets the new key
/// and then loses the old one.
#[test]
fn rotation_under_load_refuses_no_request_and_keeps_the_bucket() {
    let rule = "[rules.year]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"9000000/year\"\n";
    let config = |secrets: &[(&str, &str, &str)]| {
        let log = "[server.limits]\nmax_requests_per_connection = 0\n";
        format!("{DEMO}{rule}{log}{}", client("", secrets))
    };
    let (old, new) = (("2026", "old", ""), ("2027", "new", ""));
    let gateway = Gateway::start(&config(&[old]));
    let secret = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let served = [AtomicU64::new(0), AtomicU64::new(0)];
    let total = || served.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let more_than = |count: u64| eventually("requests", || (total() > count).then_some(()));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut client = gateway.connect();
                while !done.load(Ordering::Relaxed) {
                    let index = secret.load(Ordering::Acquire);
                    let answer = client.send(&with(["old", "new"][index]));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    served[index].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        more_than(500);
        gateway.apply(&config(&[old, new]));
        more_than(total() + 500);
        secret.store(1, Ordering::Release);
        // Requests with the old key that have been sent are answered before the key goes.
        more_than(total() + 500);
        eventually("no use of the old key", || {
            let before = served[0].load(Ordering::Relaxed);
            more_than(total() + 10 * CONNECTIONS as u64);
            (served[0].load(Ordering::Relaxed) == before).then_some(())
        });
        gateway.apply(&config(&[new]));
        more_than(total() + 500);
        done.store(true, Ordering::Relaxed);
    });
    let last = gateway.send(&with("new"));
    let remaining: u64 = last.header("x-ratelimit-remaining").unwrap().parse().unwrap();
    assert_eq!(remaining, 9_000_000 - total() - 1, "the keys have one bucket");
    assert_eq!(gateway.send(&with("old")).status, 401);
}

/// No request that is sent after the reload passes, on connections that were open before.
#[test]
fn disabled_client_is_refused_from_the_reload_on() {
    let config = |settings: &str| format!("{DEMO}{}", client(settings, &[("one", "key", "")]));
    let gateway = Gateway::start(&config(""));
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| gateway.connect()).collect();
    for connection in &mut connections {
        assert_eq!(connection.send(&with("key")).status, 200);
    }
    gateway.apply(&config("enabled = false"));
    for connection in &mut connections {
        assert_eq!(connection.send(&with("key")).status, 401);
    }
    let explained = gateway.explain(r#"{ "key_id": "acme" }"#).json();
    assert_eq!(explained["client"]["key_state"], "disabled", "{explained}");
    assert_eq!(explained["verdict"]["status"], 401, "{explained}");
    let keys = &gateway.admin("/api/policy").json()["keys"];
    assert_eq!(keys[0]["enabled"], false, "{keys}");
}
