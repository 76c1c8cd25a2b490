//! Three sentinels, a master and a replica.

use std::fs;
use std::time::Duration;

use super::fixture::{Running, Server, eventually, free_port, refusal};
use crate::store::redis::fixture::Timer;

/// The master is killed, and the gateway connects to the promoted replica.
#[tokio::test]
async fn row_07_gateway_connects_to_the_promoted_master() {
    let (master_port, replica_port) = (free_port().to_string(), free_port().to_string());
    let mut master = Server::start(&["--port", &master_port]).await;
    let replica = Server::start(&[
        "--port",
        &replica_port,
        "--replicaof",
        "127.0.0.1",
        &master_port,
        "--repl-diskless-sync-delay",
        "0",
    ])
    .await;
    let ports = [free_port(), free_port(), free_port()];
    let mut sentinels = Vec::new();
    for port in ports {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let lines = format!(
            "port {port}\nunixsocket redis.sock\nsentinel monitor main 127.0.0.1 {master_port} 2\n\
             sentinel down-after-milliseconds main 10000\nsentinel failover-timeout main 3000\n"
        );
        fs::write(&file, lines).unwrap();
        let file = file.display().to_string();
        sentinels.push(Server::start_sentinel(folder, &file).await);
    }
    let [first, second, third] = ports;
    let hosts = format!("127.0.0.1:{first},127.0.0.1:{second},127.0.0.1:{third}");
    let unknown = refusal(&format!("url = 'redis+sentinel://{hosts}/other'")).await;
    assert!(unknown.contains("knows no master `other`"), "{unknown}");

    let running = Running::start(&format!("url = 'redis+sentinel://{hosts}/main'"));
    running.until_writes().await;
    for sentinel in &sentinels {
        eventually("the sentinels know each other and the replica", async || {
            let known = sentinel.ask("SENTINEL MASTER main").replace('\n', " ");
            known.contains("num-other-sentinels 2") && known.contains("num-slaves 1")
        })
        .await;
    }
    eventually("the replica is in step", async || {
        replica.ask("INFO replication").contains("master_link_status:up")
    })
    .await;
    // One of the sentinels is gone, too: the others are queried.
    sentinels.remove(0);
    // Not before: a master that waits for a CPU meanwhile is not down.
    for sentinel in &sentinels {
        assert_eq!(sentinel.ask("SENTINEL SET main down-after-milliseconds 500"), "OK");
    }
    master.kill();
    running.until_down().await;
    eventually("the replica is promoted", async || {
        replica.ask("INFO replication").contains("role:master")
    })
    .await;
    // Sentinels learn of it from each other, and ask the replica only once a second.
    for sentinel in &sentinels {
        eventually("the sentinels name the promoted master", async || {
            sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME main").contains(&replica_port)
        })
        .await;
    }
    let timer = Timer::start();
    running.until_writes().await;
    timer.assert_below(Duration::from_secs(2));
    assert_eq!(replica.ask("GET tollgate:x"), "1");
}
