//! Repair after a replica has taken over that lacks writes: which calls carry what gateways saw,
//! and what is newer than that.

use super::gateways;
use crate::shared::{Phase, decided_by, is_decided_locally};
use crate::support::{
    CpuWaits, DEMO, Gateway, RedisCluster, Request, StatusCounts, eventually, key,
    send_concurrently, sleep_for,
};

/// A bucket and a quota of the client, 100 requests each, both in one lane.
fn config(redis: &RedisCluster) -> String {
    let table = redis.table_with("timeout = \"1s\"\nlanes = 1\n");
    let breaker = "[redis.breaker]\nopen = \"100ms\"\nopen_max = \"200ms\"\nramp = [100]\n";
    let rules = "[rules.client]\nper = [\"key\"]\nrate = \"100/365d\"\n\
        [rules.year]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"100/year\"\n";
    format!("{DEMO}{table}{breaker}{rules}{}", key("a", "a", "free"))
}

/// Sends requests of the client from two connections, in turn to each gateway.
fn send(gateways: &[Gateway], count: usize) -> StatusCounts {
    let urls: Vec<String> = gateways.iter().map(|gateway| gateway.url("/")).collect();
    send_concurrently(2, count, |client, number| {
        client.get(&urls[number % urls.len()]).header("X-Api-Key", "a")
    })
}

/// The replica loses its master, which goes on.
fn cut_off(redis: &RedisCluster, replica: usize) {
    redis.nodes[replica].query::<String>(&["CONFIG", "SET", "masterauth", "wrong"]);
    redis.nodes[replica].query::<u64>(&["CLIENT", "KILL", "TYPE", "master"]);
}

/// The old master lives, and redirects calls to the replica: the first one that is redirected
/// repairs, too.
#[test]
fn redirected_call_repairs_the_replica_that_took_over() {
    let redis = RedisCluster::steady(1);
    let gateways: [Gateway; 1] = gateways(&config(&redis));
    let master = redis.master_of_tag("0.0");
    let replica = redis.replica_of(master);
    cut_off(&redis, replica);
    let waits = CpuWaits::now();
    assert_eq!(send(&gateways, 60), [(200, 60)].into());
    redis.nodes[replica].query::<String>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    eventually("the old master to follow", || (!redis.nodes[master].is_master()).then_some(()));
    let counts = send(&gateways, 100);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts, [(200, 40), (429, 60)].into());
}

/// A gateway that saw the bucket empty must not take back what an operator gave at another gateway.
#[test]
fn repair_keeps_the_reset_of_an_operator() {
    let mut redis = RedisCluster::start(1);
    let gateways: [Gateway; 2] = gateways(&config(&redis));
    let master = redis.master_of_tag("0.0");
    let replica = redis.replica_of(master);
    let waits = CpuWaits::now();
    let counts = send(&gateways, 150);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts, [(200, 100), (429, 50)].into());
    let reset = Request::new("POST", "/api/clients/key/a/reset").body("");
    assert_eq!(gateways[0].send_admin(&reset).status, 200);
    // Of the deny cache of the other gateway.
    sleep_for(std::time::Duration::from_millis(1_100));
    redis.wait_until_replicated(master, replica);
    redis.nodes[master].kill();
    eventually("the replica to take over", || redis.nodes[replica].is_master().then_some(()));
    let at = format!("connected to Redis at {}", redis.nodes[replica].address);
    for gateway in &gateways {
        eventually("a connection to the replica", || gateway.log().contains(&at).then_some(()));
    }
    let node = redis.nodes[replica].address.to_string();
    eventually("closed breakers", || {
        let labels = [("node", node.as_str())];
        let state =
            |gateway: &Gateway| gateway.existing("tollgate_redis_node_breaker_state", &labels);
        gateways.iter().all(|gateway| state(gateway) == Some(0)).then_some(())
    });
    // The first calls of a breaker that was open are local on a busy machine: clients without a
    // key, in the same lane.
    for gateway in &gateways {
        let decided = || decided_by(std::slice::from_ref(gateway), "redis");
        let before = decided();
        eventually("a decision by Redis", || {
            gateway.get("/");
            (decided() > before).then_some(())
        });
    }
    let phase = Phase::begin(&gateways);
    let counts = send(&gateways[1..], 150);
    if phase.is_decided_locally(&gateways) {
        return;
    }
    assert_eq!(counts, [(200, 100), (429, 50)].into());
}

/// The replica lacks what was taken of tokens above the limit.
#[test]
fn tokens_above_the_limit_are_not_granted_again() {
    let redis = RedisCluster::steady(1);
    let table = redis.table_with("timeout = \"1s\"\nlanes = 1\n");
    let rule = "[rules.year]\nper = [\"key\"]\nkind = \"fixed_window\"\nlimit = \"10/year\"\n";
    let key = key("a", "a", "free");
    let gateways: [Gateway; 1] = gateways(&format!("{DEMO}{table}{rule}{key}"));
    let master = redis.master_of_tag("0.0");
    let replica = redis.replica_of(master);
    let grant = r#"{"rule": "year", "tokens": 90, "above_limit": true}"#;
    let grant = Request::new("POST", "/api/clients/key/a/grant").body(grant);
    assert_eq!(gateways[0].send_admin(&grant).status, 200);
    redis.wait_until_replicated(master, replica);
    cut_off(&redis, replica);
    let waits = CpuWaits::now();
    let counts = send(&gateways, 60);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts, [(200, 60)].into());
    let waits = CpuWaits::now();
    redis.nodes[replica].query::<String>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    eventually("the old master to follow", || (!redis.nodes[master].is_master()).then_some(()));
    let counts = send(&gateways, 100);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts, [(200, 40), (429, 60)].into());
}
