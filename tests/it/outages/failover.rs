//! Another server takes over.

use std::time::Duration;

use super::{
    HIGH_RATE, config_with, decided_by, get, wait_until_closed, wait_until_connected,
    wait_until_open,
};
use crate::support::{Gateway, Redis, Request, eventually, free_port, timed_below};

fn start(arguments: &[&str]) -> Redis {
    let mut redis = Redis::stopped();
    redis.launch_with(|command| {
        command.args(arguments);
    });
    redis
}

/// A master, its replica, and three sentinels.
struct Monitored {
    master: Redis,
    replica: Redis,
    _sentinels: [Redis; 3],
    /// The sentinels, for a URL.
    hosts: String,
}

impl Monitored {
    /// Starts them, and waits until the replica is in step.
    fn start() -> Self {
        let ports: [String; 5] = std::array::from_fn(|_| free_port().to_string());
        let [master_port, replica_port, sentinel_ports @ ..] = &ports;
        let master = start(&["--port", master_port]);
        let of_master =
            ["--replicaof", "127.0.0.1", master_port, "--repl-diskless-sync-delay", "0"];
        let replica = start(&[&["--port", replica_port][..], &of_master].concat());
        let sentinels = sentinel_ports.each_ref().map(|port| {
            Redis::start_sentinel(&format!(
                "port {port}\nsentinel monitor main 127.0.0.1 {master_port} 2\n\
                 sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
            ))
        });
        let known = |name: &str| {
            let known: Vec<String> = sentinels[0].query(&["SENTINEL", "MASTER", "main"]);
            let at = known.iter().position(|field| field == name).unwrap();
            known[at + 1].clone()
        };
        eventually("the sentinels to know all servers", || {
            (known("num-other-sentinels") == "2" && known("num-slaves") == "1").then_some(())
        });
        let hosts = sentinel_ports.each_ref().map(|port| format!("127.0.0.1:{port}")).join(",");
        let all = Self { master, replica, _sentinels: sentinels, hosts };
        eventually("the replica to be in step", || {
            all.replica_says("master_link_status:up").then_some(())
        });
        all
    }

    /// What the replica says of its replication. Sentinels close all connections of a server whose
    /// role they change.
    fn replica_says(&self, text: &str) -> bool {
        let view = self.replica.try_query::<String>(&["INFO", "replication"]);
        view.is_ok_and(|view| view.contains(text))
    }

    /// The `[redis]` table.
    fn table(&self) -> String {
        format!("\n[redis]\nurl = \"redis+sentinel://{}/main\"\ntimeout = \"1s\"\n", self.hosts)
    }
}

#[test]
fn row_07_gateway_follows_a_sentinel_failover() {
    let mut redis = Monitored::start();
    let gateway = Gateway::start(&config_with("", &redis.table(), HIGH_RATE));
    wait_until_connected(&gateway);
    redis.master.kill();
    wait_until_open(&gateway);
    eventually("a new master", || {
        assert_eq!(get(&gateway), 200);
        redis.replica_says("role:master").then_some(())
    });
    let before = decided_by(&gateway, "redis");
    let is_back = || {
        assert_eq!(get(&gateway), 200);
        (decided_by(&gateway, "redis") > before).then_some(())
    };
    timed_below(Duration::from_secs(2), || eventually("Redis to decide", is_back));
    wait_until_closed(&gateway);
}

/// Number of requests that pass after a replica that lacks 100 of them has taken over, of a limit
/// of 100.
fn allowed_after_a_lossy_failover(repair: bool) -> usize {
    let mut redis = Monitored::start();
    let table = format!("{}repair = {repair}\n", redis.table());
    let breaker = "[redis.breaker]\nopen = \"100ms\"\nopen_max = \"200ms\"\nramp = [100]\n";
    let gateway = Gateway::start(&config_with(breaker, &table, "rate = \"100/d\""));
    gateway.wait_for_redis();
    // The replica no longer reaches its master.
    redis.replica.query::<String>(&["CONFIG", "SET", "masterauth", "wrong"]);
    redis.replica.query::<u64>(&["CLIENT", "KILL", "TYPE", "master"]);
    let allowed = |count: usize| (0..count).filter(|_| get(&gateway) == 200).count();
    assert_eq!(allowed(120), 100);
    let connections = || gateway.log().matches("connected to Redis").count();
    // More than one if a busy machine let the first connection time out.
    let before = connections();
    redis.master.kill();
    eventually("a new master", || redis.replica_says("role:master").then_some(()));
    eventually("a connection to it", || {
        (connections() > before && breaker_is_closed(&gateway)).then_some(())
    });
    let local = decided_by(&gateway, "local");
    let again = allowed(120);
    assert_eq!(decided_by(&gateway, "local"), local, "Redis decides");
    again
}

fn breaker_is_closed(gateway: &Gateway) -> bool {
    gateway.count("tollgate_breaker_state", &[]) == 0
}

#[test]
fn what_a_gateway_saw_is_not_granted_again_after_a_sentinel_failover() {
    assert_eq!(allowed_after_a_lossy_failover(true), 0);
}

#[test]
fn without_repair_a_sentinel_failover_grants_what_was_lost_again() {
    assert_eq!(allowed_after_a_lossy_failover(false), 100);
}

#[test]
fn row_210_key_store_follows_a_sentinel_failover() {
    let mut redis = Monitored::start();
    let store = "[key_store]\nurl = \"redis\"\n";
    let gateway = Gateway::start(&config_with(store, &redis.table(), HIGH_RATE));
    gateway.wait_for_redis();
    let call = |method: &str, path: &str, body: &str| {
        gateway.send_admin(&Request::new(method, &format!("/api/keys{path}")).body(body))
    };
    let create = |id: &str| {
        let body = format!("{{\"id\": \"{id}\", \"plan\": \"free\"}}");
        let created = call("POST", "", &body);
        assert_eq!(created.status, 201, "{}", created.text());
        created.json()["key"].as_str().unwrap().to_owned()
    };
    let status = |key: &str| gateway.send(&Request::get("/").header("X-Api-Key", key)).status;
    let (used, unused) = (create("used"), create("unused"));
    eventually("the key", || (status(&used) == 200).then_some(()));
    redis.master.session().replicate();
    redis.master.kill();
    eventually("a new master", || {
        assert_eq!(status(&used), 200);
        redis.replica_says("role:master").then_some(())
    });
    let is_up = || (gateway.count("tollgate_key_store_up", &[]) == 1).then_some(());
    eventually("the store to be read again", is_up);
    eventually("a key that was never looked up", || (status(&unused) == 200).then_some(()));
    eventually("a change", || (call("POST", "/used/disable", "").status == 200).then_some(()));
    timed_below(Duration::from_secs(1), || {
        eventually("the change in force", || (status(&used) == 401).then_some(()));
    });
}
