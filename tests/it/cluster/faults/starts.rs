//! What a gateway finds when it starts.

use super::{FAST_BREAKER, LONG_TIMEOUT, allowed, clients, config, send};
use crate::cluster::{gateways, wait_until_connected};
use crate::shared::decided_by;
use crate::support::{ClosedPort, ClusterNode, DEMO, Gateway, Redis, RedisCluster, eventually};

const RULES: &str = "[rules.client]\nper = [\"key\"]\nrate = \"1000000/s\"\n";

/// Waits until Redis decides on every request.
fn wait_until_whole(gateways: &[Gateway]) {
    eventually("Redis to decide on every request", || {
        let before = decided_by(gateways, "local");
        assert_eq!(allowed(&send(gateways, 0..20, 500)), 500);
        (decided_by(gateways, "local") == before).then_some(())
    });
}

#[test]
fn gateway_finds_the_masters_by_any_seed() {
    let redis = RedisCluster::start(1);
    let mut left = RedisCluster::nodes(1);
    // A node that was a member, and was removed.
    let member = &left.nodes[0];
    RedisCluster::cli(&[
        "--cluster".to_owned(),
        "add-node".to_owned(),
        member.address.to_string(),
        redis.nodes[0].address.to_string(),
    ]);
    let id: String = member.query(&["CLUSTER", "MYID"]);
    eventually("the node to know all masters", || {
        let slots: redis::Value = member.query(&["CLUSTER", "SLOTS"]);
        matches!(slots, redis::Value::Array(slots) if slots.len() == 3).then_some(())
    });
    eventually("all to know the node", || {
        let knows = |node: &ClusterNode| node.query::<String>(&["CLUSTER", "NODES"]).contains(&id);
        redis.nodes.iter().all(knows).then_some(())
    });
    // The others forget it, and it keeps its view of the cluster.
    for node in &redis.nodes {
        node.query::<()>(&["CLUSTER", "FORGET", &id]);
    }
    let down = ClosedPort::bind();
    let replicas: Vec<String> =
        (0..3).map(|at| redis.nodes[redis.replica_of(at)].address.to_string()).collect();
    let (first, gone) = (redis.nodes[0].address.to_string(), member.address.to_string());
    let table =
        [vec![down.address.to_string(), first.clone()], vec![gone.clone(), first], replicas];
    for seeds in table {
        let table = RedisCluster::table_of(&seeds, LONG_TIMEOUT);
        let gateway = Gateway::start(&format!("{DEMO}{table}{FAST_BREAKER}{RULES}{}", clients(20)));
        wait_until_connected(&gateway);
        wait_until_whole(&[gateway]);
    }
    left.nodes[0].kill();
}

#[test]
fn gateway_waits_for_a_cluster_that_is_not_created_yet() {
    let redis = RedisCluster::nodes(6);
    let gateway = Gateway::start(&config(&redis, LONG_TIMEOUT, RULES, 20));
    assert_eq!(gateway.get("/").status, 200);
    let says = "was it created with `redis-cli --cluster create`?";
    eventually("the reason in the log", || gateway.log().contains(says).then_some(()));
    redis.create(1);
    wait_until_connected(&gateway);
    wait_until_whole(&[gateway]);
}

#[test]
fn all_nodes_killed_and_restarted_are_used_again() {
    let mut redis = RedisCluster::start(1);
    let gateways: [Gateway; 2] = gateways(&config(&redis, LONG_TIMEOUT, RULES, 20));
    redis.nodes.iter_mut().for_each(ClusterNode::kill);
    assert_eq!(allowed(&send(&gateways, 0..20, 500)), 500);
    redis.nodes.iter_mut().for_each(ClusterNode::launch);
    redis.wait_until_ok();
    wait_until_whole(&gateways);
    for gateway in &gateways {
        gateway.wait_for_count("tollgate_breaker_state", &[], 0);
        assert_eq!(gateway.admin("/api/status").json()["redis"]["connected"], true);
    }
}

/// The log says which scheme the URL needs.
#[test]
fn wrong_scheme_is_named_in_the_log() {
    let cluster = RedisCluster::start(0);
    let server = Redis::start();
    let tcp = crate::support::FaultProxy::start(&server);
    let table = [
        (format!("redis://{}", cluster.nodes[0].address), "use `redis+cluster://`"),
        (format!("redis+cluster://{}", tcp.address), "use `redis://`"),
    ];
    for (url, says) in table {
        let rules = format!("[redis]\nurl = \"{url}\"\n{LONG_TIMEOUT}{RULES}{}", clients(20));
        let gateway = Gateway::start(&format!("{DEMO}{rules}"));
        eventually("the reason in the log", || {
            assert_eq!(allowed(&send(std::slice::from_ref(&gateway), 0..20, 20)), 20);
            gateway.log().contains(says).then_some(())
        });
    }
}
