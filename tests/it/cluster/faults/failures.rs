//! Masters fail, hang, or are cut off.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{FAST_BREAKER, LONG_TIMEOUT, allowed, config, send, send_until};
use crate::cluster::gateways;
use crate::outages::latency::LoadTest;
use crate::shared::decided_by;
use crate::support::{
    ClusterNode, FaultProxy, Gateway, Mode, RedisCluster, eventually, sleep_for, tollgate,
};

const CLIENTS: usize = 20;

/// Requests of each client in a day.
const EACH: usize = 40;

const HIGH_RATE: &str = "[rules.client]\nper = [\"key\"]\nrate = \"1000000/s\"\n";

fn limited() -> String {
    format!("[rules.client]\nper = [\"key\"]\nrate = \"{EACH}/d\"\n")
}

/// Waits until Redis decides on every request.
fn wait_until_whole(gateways: &[Gateway]) {
    eventually("Redis to decide on every request", || {
        let before = decided_by(gateways, "local");
        assert_eq!(allowed(&send(gateways, 0..CLIENTS, 500)), 500);
        (decided_by(gateways, "local") == before).then_some(())
    });
}

/// State of the breaker of a node: 0 closed, 1 half open, 2 open.
fn breaker(gateway: &Gateway, node: &str) -> u64 {
    gateway.count("tollgate_redis_node_breaker_state", &[("node", node)])
}

/// The clients of the shard have at most two bursts, as docs/outages.md says; those of the others
/// have one.
#[test]
fn killed_shard_is_local_within_the_bound_and_the_others_stay_exact() {
    let mut redis = RedisCluster::steady(1);
    let text = format!("instances = 2\n{}", config(&redis, LONG_TIMEOUT, &limited(), CLIENTS));
    let gateways: [Gateway; 2] = gateways(&text);
    let burst = |client: usize, count| allowed(&send(&gateways, client..client + 1, count));
    let mut passed: Vec<usize> = (0..CLIENTS).map(|client| burst(client, EACH * 3 / 10)).collect();
    assert_eq!(passed, [EACH * 3 / 10; CLIENTS]);
    let (replica, node) = (redis.replica_of(0), redis.nodes[0].address.to_string());
    redis.nodes[replica].kill();
    redis.nodes[0].kill();
    let mut is_local = [false; CLIENTS];
    for client in 0..CLIENTS {
        let before = decided_by(&gateways, "local");
        passed[client] += burst(client, 4 * EACH);
        is_local[client] = decided_by(&gateways, "local") > before;
    }
    eprintln!("{passed:?} passed, local: {is_local:?}");
    assert!(gateways.iter().all(|gateway| breaker(gateway, &node) == 2));
    let locals = is_local.iter().filter(|local| **local).count();
    assert!((1..CLIENTS).contains(&locals), "{locals} clients in the shard");
    for (passed, is_local) in passed.iter().zip(is_local) {
        let most = if is_local { 2 * EACH } else { EACH };
        assert!((EACH / 2..=most).contains(passed), "{passed} passed, local: {is_local}");
        assert!(is_local || *passed == EACH, "{passed} passed");
    }
}

/// `/ready`, the status, the metric, the log and `tollgate top` say which master is away, and that
/// the others decide.
#[test]
fn killed_master_is_named_and_the_gateway_stays_ready() {
    let mut redis = RedisCluster::steady(0);
    let text = config(&redis, LONG_TIMEOUT, &limited(), CLIENTS);
    let text = text.replace("[redis]\n", "[redis]\nready = \"connected\"\n");
    let [gateway]: [Gateway; 1] = gateways(&text);
    assert_eq!(gateway.admin("/ready").text(), "ready\n");
    let node = redis.nodes[2].address.to_string();
    redis.nodes[2].kill();
    eventually("the breaker of the master to open", || {
        (breaker(&gateway, &node) == 2).then_some(())
    });
    let away = format!("1 of 3 masters is away ({node}); limits in its slots are decided locally");
    let ready = gateway.admin("/ready");
    assert_eq!((ready.status, ready.text()), (200, format!("ready\n{away}\n")));
    let health = tollgate(&["health", "--admin", &gateway.admin.to_string()], "");
    assert_eq!(health.code, Some(0), "{health:?}");
    let status = gateway.admin("/api/status").json();
    assert_eq!(status["ready"], true, "{status}");
    assert_eq!(
        (&status["redis"]["connected"], &status["redis"]["away"]),
        (&true.into(), &away.as_str().into())
    );
    let masters = status["redis"]["masters"].as_array().unwrap();
    let connected = masters.iter().filter(|master| master["connected"] == true);
    assert_eq!((masters.len(), connected.count()), (3, 2), "{status}");
    let breaker = &status["breaker"];
    let percent = breaker["admits_percent"].as_u64().unwrap();
    assert!((60..=70).contains(&percent) && breaker["state"] == "half_open", "{status}");
    gateway.wait_for_count("tollgate_breaker_state", &[], 1);
    eventually("the log line", || gateway.log().contains(&away).then_some(()));
    let opened = format!("breaker of the master {node} open: ");
    assert!(gateway.log().contains(&opened), "{}", gateway.log());
    assert!(!gateway.log().contains("until Redis is back"), "{}", gateway.log());
    let page = tollgate(&["top", "--once", "--admin", &gateway.admin.to_string()], "").stdout;
    assert!(page.contains("connected, breaker half_open") && page.contains(&away), "{page}");

    redis.nodes[2].launch();
    eventually("the line of the end", || {
        gateway.log().contains("all masters of the cluster can be called again").then_some(())
    });
    (0..2).for_each(|node| redis.nodes[node].kill());
    redis.nodes[2].kill();
    eventually("no master to be left", || (gateway.admin("/ready").status == 503).then_some(()));
    gateway.wait_for_count("tollgate_breaker_state", &[], 2);
}

/// A cluster whose first master is behind a proxy, which the cluster names instead of its port. The
/// nodes themselves use another one.
fn behind_proxy() -> (RedisCluster, FaultProxy) {
    let redis = RedisCluster::steady(1);
    let node = &redis.nodes[0];
    let proxy = FaultProxy::to(node.address);
    let port = proxy.address.port();
    let set_timeout = |milliseconds: &str| {
        node.query::<()>(&["CONFIG", "SET", "cluster-node-timeout", milliseconds]);
    };
    // Meanwhile it pings the others twice a second, and they learn the port from that. Alone, it
    // cannot declare that another master has failed.
    set_timeout("1000");
    node.query::<()>(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
    eventually("all to know the port", || {
        let knows = |node: &crate::support::ClusterNode| {
            node.query::<String>(&["CLUSTER", "NODES"]).contains(&format!("127.0.0.1:{port}@"))
        };
        redis.nodes.iter().all(knows).then_some(())
    });
    set_timeout("15000");
    (redis, proxy)
}

#[test]
fn master_cut_off_from_the_gateways_is_local_until_it_is_reachable() {
    let (redis, proxy) = behind_proxy();
    let gateways: [Gateway; 2] =
        gateways(&config(&redis, "timeout = \"1s\"\n", HIGH_RATE, CLIENTS));
    wait_until_whole(&gateways);
    let at = proxy.address.to_string();
    for mode in [Mode::Hang, Mode::Refuse, Mode::Freeze] {
        let before = decided_by(&gateways, "local");
        proxy.set(mode);
        let seen = || gateways.iter().all(|gateway| breaker(gateway, &at) == 2);
        let noticed = mode == Mode::Freeze;
        let counts = send_until(&gateways, 0..CLIENTS, || {
            noticed && decided_by(&gateways, "local") > before || seen()
        });
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&200], "{counts:?}");
        let in_redis = decided_by(&gateways, "redis");
        assert_eq!(allowed(&send(&gateways, 0..CLIENTS, 500)), 500);
        assert!(decided_by(&gateways, "redis") > in_redis, "the other masters go on");
        proxy.set(Mode::Pass);
        wait_until_whole(&gateways);
    }
    assert!(redis.nodes[0].is_master(), "no replica has taken over");
}

/// The clients of the master have at most two bursts, also after it is reachable again, because
/// what passed meanwhile is a debt; those of the others have one.
#[test]
fn master_cut_off_from_the_gateways_keeps_the_bound_until_after_its_return() {
    let (redis, proxy) = behind_proxy();
    let text = format!("instances = 2\n{}", config(&redis, LONG_TIMEOUT, &limited(), CLIENTS));
    let gateways: [Gateway; 2] = gateways(&text);
    let at = proxy.address.to_string();
    let burst = |client: usize, count| allowed(&send(&gateways, client..client + 1, count));
    let mut passed: Vec<usize> = (0..CLIENTS).map(|client| burst(client, EACH * 3 / 10)).collect();
    assert_eq!(passed, [EACH * 3 / 10; CLIENTS]);
    proxy.set(Mode::Refuse);
    let mut is_local = [false; CLIENTS];
    for client in 0..CLIENTS {
        let before = decided_by(&gateways, "local");
        passed[client] += burst(client, 4 * EACH);
        is_local[client] = decided_by(&gateways, "local") > before;
    }
    assert!(gateways.iter().all(|gateway| breaker(gateway, &at) == 2));
    let in_outage = passed.clone();
    proxy.set(Mode::Pass);
    for gateway in &gateways {
        gateway.wait_for_count("tollgate_redis_node_breaker_state", &[("node", &at)], 0);
    }
    for (client, passed) in passed.iter_mut().enumerate() {
        *passed += burst(client, 2 * EACH);
    }
    eprintln!("{in_outage:?} in the outage, {passed:?} passed, local: {is_local:?}");
    let locals = is_local.iter().filter(|local| **local).count();
    assert!((1..CLIENTS).contains(&locals), "{locals} clients of the master");
    for (passed, is_local) in passed.iter().zip(is_local) {
        let most = if is_local { 2 * EACH } else { EACH };
        assert!((EACH..=most).contains(passed), "{passed} passed, local: {is_local}");
    }
}

/// Servers without persistence start with full buckets, so each client has one burst more than in
/// an outage that keeps the counts.
#[test]
fn cold_start_of_all_nodes_keeps_the_bound_for_lost_counts() {
    let mut redis = RedisCluster::start(1);
    let text = format!("instances = 2\n{}", config(&redis, LONG_TIMEOUT, &limited(), CLIENTS));
    let gateways: [Gateway; 2] = gateways(&text);
    let burst = |client: usize, count| allowed(&send(&gateways, client..client + 1, count));
    let mut passed: Vec<usize> = (0..CLIENTS).map(|client| burst(client, EACH * 3 / 10)).collect();
    assert_eq!(passed, [EACH * 3 / 10; CLIENTS]);
    redis.nodes.iter_mut().for_each(ClusterNode::kill);
    for (client, passed) in passed.iter_mut().enumerate() {
        *passed += burst(client, 4 * EACH);
    }
    assert!(passed.iter().all(|passed| *passed <= 2 * EACH), "{passed:?} passed in the outage");
    redis.nodes.iter_mut().for_each(ClusterNode::launch);
    redis.wait_until_ok();
    for gateway in &gateways {
        gateway.wait_for_count("tollgate_breaker_state", &[], 0);
    }
    for (client, passed) in passed.iter_mut().enumerate() {
        *passed += burst(client, 3 * EACH);
    }
    eprintln!("{passed:?} passed");
    for passed in passed {
        assert!((EACH..=3 * EACH).contains(&passed), "{passed} passed");
    }
}

/// Index of the master that has the bucket of a rule.
fn master_with(redis: &RedisCluster, rule: &str) -> usize {
    let pattern = format!("*{rule}");
    let has = |at: &usize| {
        let keys: Vec<String> = redis.nodes[*at].query(&["KEYS", &pattern]);
        !keys.is_empty()
    };
    redis.masters().into_iter().find(has).unwrap()
}

/// Asserts that no request waits longer than the budget of a check when this happens to the master
/// of its bucket, until its replica has taken over.
fn assert_no_delay(fault: impl FnOnce(&mut ClusterNode)) {
    let mut redis = RedisCluster::start(1);
    let table = format!("{}{FAST_BREAKER}", redis.table_with("timeout = \"10ms\"\n"));
    let test = LoadTest::open(&table);
    if !test.is_closed() {
        return test.give_up();
    }
    let master = master_with(&redis, ":per-key");
    let replica = redis.replica_of(master);
    let begun = test.load.elapsed();
    fault(&mut redis.nodes[master]);
    eventually("the replica to take over", || redis.nodes[replica].is_master().then_some(()));
    sleep_for(Duration::from_millis(500));
    let end = test.load.elapsed();
    let report = test.close();
    report.were_not_held_up(&(begun..end));
    report.were_not_held_up(&(begun..begun + Duration::from_millis(500)));
}

#[test]
fn killed_master_delays_no_request() {
    assert_no_delay(ClusterNode::kill);
}

#[test]
fn hung_master_delays_no_request() {
    assert_no_delay(|node| node.signal(Signal::SIGSTOP));
}
