//! All buckets of a key in one slot: `colocate = "key"`.

use std::collections::HashSet;

use super::{flood, gateways, wait_until_connected};
use crate::shared::is_decided_locally;
use crate::support::{CpuWaits, DEMO, Gateway, RedisCluster, Request, key};

const CLIENTS: usize = 20;

/// Four limits of a key, of different kinds and with different dimensions.
const RULES: &str = r#"
[rules.key]
per = ["key"]
rate = "300/365d"

[rules.key-route]
per = ["key", "route"]
kind = "fixed_window"
limit = "250/year"

[rules.key-host]
per = ["key", "host"]
kind = "sliding_window"
limit = "200/h"

[rules.key-method]
per = ["key", "method"]
rate = "100000/d"
"#;

fn config(redis: &RedisCluster, lines: &str) -> String {
    let keys: String =
        (0..CLIENTS).map(|n| key(&format!("k{n}"), format!("s{n}"), "free")).collect();
    let table = redis.table_with(&format!("timeout = \"1s\"\n{lines}"));
    format!("{DEMO}{table}{RULES}{keys}")
}

/// Calls that a gateway has made to Redis for requests.
fn calls(gateway: &Gateway) -> u64 {
    gateway.count("tollgate_redis_calls_total", &[])
}

/// Slots of the buckets with a prefix, by Redis, and their number. Records of usage, a second
/// later, are no buckets.
fn slots(redis: &RedisCluster, prefix: &str) -> (HashSet<u16>, usize) {
    let pattern = format!("{prefix}*:key*");
    let keys = |at: usize| redis.nodes[at].query::<Vec<String>>(&["KEYS", &pattern]);
    let is_bucket = |key: &String| !key.contains("usage:");
    let keys: Vec<String> = redis.masters().into_iter().flat_map(keys).filter(is_bucket).collect();
    let slot = |key: &String| redis.nodes[0].query(&["CLUSTER", "KEYSLOT", key]);
    (keys.iter().map(slot).collect(), keys.len())
}

#[test]
fn request_with_rules_per_key_only_is_one_call() {
    let redis = RedisCluster::steady(1);
    for (prefix, lines, parts) in [
        ("key-0:", "lanes = 0\ncolocate = \"key\"\n", 1..=1),
        ("key-64:", "lanes = 64\ncolocate = \"key\"\n", 1..=1),
        ("off-0:", "lanes = 0\n", 4..=4),
        // By chance, two buckets may be in one lane.
        ("off-64:", "lanes = 64\n", 3..=4),
    ] {
        let gateway = Gateway::start(&config(&redis, &format!("{lines}prefix = \"{prefix}\"\n")));
        wait_until_connected(&gateway);
        let waits = CpuWaits::now();
        let send = |client| {
            let request = Request::get("/").header("X-Api-Key", format!("s{client}"));
            assert_eq!(gateway.send(&request).status, 200);
        };
        (0..CLIENTS).for_each(send);
        // Every master has the script now.
        let before = calls(&gateway);
        (0..CLIENTS).for_each(send);
        if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
            return;
        }
        let of_each = (calls(&gateway) - before).div_ceil(CLIENTS as u64);
        assert!(parts.contains(&of_each), "{lines}: {of_each} calls for a request");
        let (slots, keys) = slots(&redis, prefix);
        assert_eq!(keys, 4 * CLIENTS, "{lines}");
        let most = if *parts.end() == 1 { CLIENTS } else { keys };
        assert!((CLIENTS / 2..=most).contains(&slots.len()), "{lines}: {} slots", slots.len());
    }
}

#[test]
fn colocated_limits_are_exact_over_three_gateways() {
    let redis = RedisCluster::steady(1);
    for lanes in [0, 6] {
        let lines = format!("lanes = {lanes}\ncolocate = \"key\"\nprefix = \"exact-{lanes}:\"\n");
        let gateways: [Gateway; 3] = gateways(&config(&redis, &lines));
        let waits = CpuWaits::now();
        let counts = flood(&gateways, &["s0", "s1", "s2"], 1_200);
        if is_decided_locally(&gateways, &waits) {
            return;
        }
        assert_eq!(counts, [(200, 600), (429, 600)].into(), "the sliding windows of three clients");
    }
}

/// `tollgate explain` names the keys that Redis has.
#[test]
fn explain_names_the_keys_in_redis() {
    let redis = RedisCluster::steady(0);
    for (prefix, lines) in [
        ("a:", "lanes = 0\ncolocate = \"key\"\n"),
        ("b:", "lanes = 6\ncolocate = \"key\"\n"),
        ("c:", "lanes = 6\n"),
    ] {
        let gateway = Gateway::start(&config(&redis, &format!("{lines}prefix = \"{prefix}\"\n")));
        wait_until_connected(&gateway);
        let request =
            Request::get("/").without("Host").header("Host", "a.example").header("X-Api-Key", "s0");
        assert_eq!(gateway.send(&request).status, 200);
        let body = r#"{"host": "a.example", "key": "s0"}"#;
        let explained = gateway.explain(body).text();
        let pattern = format!("{prefix}*:key*");
        let keys = |at: usize| redis.nodes[at].query::<Vec<String>>(&["KEYS", &pattern]);
        let is_bucket = |key: &String| !key.contains("usage:");
        let keys: Vec<String> =
            redis.masters().into_iter().flat_map(keys).filter(is_bucket).collect();
        assert_eq!(keys.len(), 4, "{keys:?}");
        assert!(keys.iter().all(|key| explained.contains(key)), "{keys:?} in {explained}");
    }
}
