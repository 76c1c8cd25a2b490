//! It answers that it will not.

use super::{FREELY, Scene, config, connected, get, heals, opens, survives};
use crate::support::{Gateway, Mode, Redis, eventually};

fn directly(redis: &Redis) -> Gateway {
    let gateway = Gateway::start(&config(&redis.table(), FREELY));
    connected(&gateway);
    gateway
}

#[test]
fn row_06_loading_redis_fails_no_request() {
    let mut redis = Redis::start();
    let gateway = directly(&redis);
    redis.come_up_slowly();
    opens(&gateway);
    heals(&gateway);
}

/// Rows 6, 10, 11, 12, 15, 16 and 21: the first such answer is enough.
#[test]
fn every_unavailable_reply_opens_the_breaker_at_once() {
    let scene = Scene::start(FREELY);
    for answer in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MISCONF Errors writing to the AOF file\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
        "-BUSY Redis is busy running a script.\r\n",
    ] {
        let opened = super::times_opened(&scene.gateway);
        scene.proxy.set(Mode::Canned(answer));
        assert_eq!(get(&scene.gateway), 200, "{answer}");
        assert_eq!(super::times_opened(&scene.gateway), opened + 1, "{answer}");
        scene.proxy.set(Mode::Pass);
        heals(&scene.gateway);
    }
}

#[test]
fn row_10_redis_out_of_memory_fails_no_request_and_writes_nothing() {
    let redis = Redis::start();
    let gateway = directly(&redis);
    let bucket = || {
        let keys: Vec<String> = redis.ask(&["KEYS", "tollgate:*:per-key"]);
        assert_eq!(keys.len(), 1);
        redis.ask::<Vec<u8>>(&["GET", &keys[0]])
    };
    redis.configure("maxmemory", "1");
    let before = bucket();
    opens(&gateway);
    assert_eq!(bucket(), before);
    redis.configure("maxmemory", "0");
    heals(&gateway);
}

#[test]
fn row_11_redis_without_replicas_fails_no_request() {
    let redis = Redis::start();
    let wanted = |replicas: &str| redis.configure("min-replicas-to-write", replicas);
    survives(&directly(&redis), || wanted("1"), || wanted("0"));
}

#[test]
fn row_11_redis_that_cannot_save_fails_no_request() {
    let redis = Redis::start();
    let gateway = directly(&redis);
    // A folder stands where the file should be.
    let dump = redis.folder().join("dump.rdb");
    std::fs::create_dir_all(dump.join("in_the_way")).unwrap();
    redis.configure("save", "3600 1000000");
    redis.ask::<String>(&["BGSAVE"]);
    opens(&gateway);
    redis.configure("save", "");
    heals(&gateway);
}

#[test]
fn row_12_redis_demoted_to_replica_fails_no_request() {
    let redis = Redis::start();
    let follow = |host: &str, port: &str| {
        redis.ask::<String>(&["REPLICAOF", host, port]);
    };
    survives(&directly(&redis), || follow("127.0.0.1", "1"), || follow("NO", "ONE"));
}

/// Without a right that checks need, Redis cannot decide: the breaker says so, and so does the log.
#[test]
fn row_16_missing_acl_right_opens_the_breaker_and_is_logged() {
    let redis = Redis::start();
    let right = |right: &str| redis.ask::<String>(&["ACL", "SETUSER", "default", right]);
    for missing in ["get", "set"] {
        right(&format!("-{missing}"));
        let gateway = Gateway::start(&config(&redis.table(), FREELY));
        eventually("a line that says what is missing", || {
            let log = gateway.log();
            let line = log.lines().find(|line| line.contains("can't run this command"))?;
            line.contains(&format!("+{missing}")).then_some(())
        });
        opens(&gateway);
        assert!(!gateway.log().contains("connected to Redis"), "{missing}");
        right(&format!("+{missing}"));
        heals(&gateway);
        survives(
            &gateway,
            || drop(right(&format!("-{missing}"))),
            || {
                right(&format!("+{missing}"));
            },
        );
    }
}
