//! Another server takes over.

use std::time::Duration;

use super::{
    HIGH_RATE, config_with, decided_by, get, wait_until_closed, wait_until_connected,
    wait_until_open,
};
use crate::support::{Gateway, Redis, eventually, free_port, timed_below};

fn start(arguments: &[&str]) -> Redis {
    let mut redis = Redis::stopped();
    redis.launch_with(|command| {
        command.args(arguments);
    });
    redis
}

#[test]
fn row_07_gateway_follows_a_sentinel_failover() {
    let ports: [String; 5] = std::array::from_fn(|_| free_port().to_string());
    let [master_port, replica_port, sentinel_ports @ ..] = &ports;
    let mut master = start(&["--port", master_port]);
    let of_master = ["--replicaof", "127.0.0.1", master_port, "--repl-diskless-sync-delay", "0"];
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
    // Sentinels close all connections of a server whose role they change.
    let says = |text: &str| {
        let view = replica.try_query::<String>(&["INFO", "replication"]);
        view.is_ok_and(|view| view.contains(text))
    };
    eventually("the replica to be in step", || says("master_link_status:up").then_some(()));

    let hosts = sentinel_ports.each_ref().map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("redis+sentinel://{hosts}/main");
    let table = format!("\n[redis]\nurl = \"{url}\"\ntimeout = \"1s\"\n");
    let gateway = Gateway::start(&config_with("", &table, HIGH_RATE));
    wait_until_connected(&gateway);
    master.kill();
    wait_until_open(&gateway);
    eventually("a new master", || {
        assert_eq!(get(&gateway), 200);
        says("role:master").then_some(())
    });
    let before = decided_by(&gateway, "redis");
    let is_back = || {
        assert_eq!(get(&gateway), 200);
        (decided_by(&gateway, "redis") > before).then_some(())
    };
    timed_below(Duration::from_secs(2), || eventually("Redis to decide", is_back));
    wait_until_closed(&gateway);
}
