//! Redis responds with errors.

use super::{
    Fixture, HIGH_RATE, assert_survives, config, get, wait_until_closed, wait_until_connected,
    wait_until_open,
};
use crate::support::{Gateway, Mode, Redis, eventually};

fn directly(redis: &Redis) -> Gateway {
    let gateway = Gateway::start(&config(&redis.table(), HIGH_RATE));
    wait_until_connected(&gateway);
    gateway
}

#[test]
fn row_06_loading_redis_fails_no_request() {
    let mut redis = Redis::start();
    let gateway = directly(&redis);
    redis.restart_loading();
    wait_until_open(&gateway);
    wait_until_closed(&gateway);
}

/// Rows 6, 10, 11, 12, 15, 16 and 21: the first such reply opens the breaker.
#[test]
fn every_unavailable_reply_opens_the_breaker_at_once() {
    // A reply that is late on a busy machine would be a timeout, of which five open it.
    let fixture = Fixture::with_timeout("1s", HIGH_RATE);
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
        let opened = super::times_opened(&fixture.gateway);
        fixture.proxy.set(Mode::Canned(answer));
        assert_eq!(get(&fixture.gateway), 200, "{answer}");
        assert_eq!(super::times_opened(&fixture.gateway), opened + 1, "{answer}");
        fixture.proxy.set(Mode::Pass);
        wait_until_closed(&fixture.gateway);
    }
}

#[test]
fn row_10_redis_out_of_memory_fails_no_request_and_writes_nothing() {
    let redis = Redis::start();
    let gateway = directly(&redis);
    let bucket = || {
        let keys: Vec<String> = redis.query(&["KEYS", "tollgate:*:per-key"]);
        assert_eq!(keys.len(), 1);
        redis.query::<Vec<u8>>(&["GET", &keys[0]])
    };
    redis.configure("maxmemory", "1");
    let before = bucket();
    wait_until_open(&gateway);
    assert_eq!(bucket(), before);
    redis.configure("maxmemory", "0");
    wait_until_closed(&gateway);
}

#[test]
fn row_11_redis_without_replicas_fails_no_request() {
    let redis = Redis::start();
    let wanted = |replicas: &str| redis.configure("min-replicas-to-write", replicas);
    assert_survives(&directly(&redis), || wanted("1"), || wanted("0"));
}

#[test]
fn row_11_redis_that_cannot_save_fails_no_request() {
    let redis = Redis::start();
    let gateway = directly(&redis);
    // A folder has the name of the file.
    let dump = redis.folder().join("dump.rdb");
    std::fs::create_dir_all(dump.join("in_the_way")).unwrap();
    redis.configure("save", "3600 1000000");
    redis.query::<String>(&["BGSAVE"]);
    wait_until_open(&gateway);
    redis.configure("save", "");
    wait_until_closed(&gateway);
}

#[test]
fn row_12_redis_demoted_to_replica_fails_no_request() {
    let redis = Redis::start();
    let follow = |host: &str, port: &str| {
        redis.query::<String>(&["REPLICAOF", host, port]);
    };
    assert_survives(&directly(&redis), || follow("127.0.0.1", "1"), || follow("NO", "ONE"));
}

/// Without an ACL right that checks need, the breaker opens and the log names the right.
#[test]
fn row_16_missing_acl_right_opens_the_breaker_and_is_logged() {
    let redis = Redis::start();
    let right = |right: &str| redis.query::<String>(&["ACL", "SETUSER", "default", right]);
    for missing in ["get", "set"] {
        right(&format!("-{missing}"));
        let gateway = Gateway::start(&config(&redis.table(), HIGH_RATE));
        eventually("a line with the missing right", || {
            let log = gateway.log();
            let line = log.lines().find(|line| line.contains("can't run this command"))?;
            line.contains(&format!("+{missing}")).then_some(())
        });
        wait_until_open(&gateway);
        assert!(!gateway.log().contains("connected to Redis"), "{missing}");
        right(&format!("+{missing}"));
        wait_until_closed(&gateway);
        assert_survives(
            &gateway,
            || drop(right(&format!("-{missing}"))),
            || {
                right(&format!("+{missing}"));
            },
        );
    }
}
