//! Gateways that lose Redis while keys change, and processes that end.

use std::time::Duration;

use serde_json::{Value, json};

use super::{IN_REDIS, SOON, call, config, create, done, status, wait_for, with};
use crate::support::{
    CpuWaits, FaultProxy, Gateway, Mode, Redis, Stopwatch, eventually, inconclusive_if_stalled,
    timed_below,
};

/// Clients of which some are disabled in each outage.
const CLIENTS: usize = 15;

fn is_up(gateway: &Gateway) -> bool {
    gateway.count("tollgate_key_store_up", &[]) == 1
}

#[test]
fn row_209_partitioned_gateway_follows_the_changes_when_it_is_back() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let near = Gateway::start_full(&config(&redis.table(), IN_REDIS));
    let far = [Gateway::start_full(&config(&proxy.table("100ms"), IN_REDIS))];
    near.wait_for_redis();
    far[0].wait_for_redis();
    let ids: Vec<String> = (0..CLIENTS).map(|at| format!("c{at}")).collect();
    let secrets: Vec<String> =
        ids.iter().map(|id| create(&near, &json!({ "id": id, "plan": "pro" }))).collect();
    for secret in &secrets {
        wait_for(&far, secret, 200);
    }
    let mut enabled = CLIENTS;
    for mode in [Mode::Refuse, Mode::Hang, Mode::CutMidReply, Mode::Garble] {
        proxy.set(mode);
        eventually("the partition to be noticed", || (!is_up(&far[0])).then_some(()));
        let disabled = enabled - 3..enabled;
        for id in &ids[disabled.clone()] {
            done(&call(&near, "POST", &format!("/{id}/disable"), &Value::Null));
        }
        let of_near = std::slice::from_ref(&near);
        timed_below(SOON, || {
            secrets[disabled.clone()].iter().for_each(|secret| wait_for(of_near, secret, 401));
        });
        // It knows no better, and serves the others, too.
        for secret in &secrets[..enabled] {
            assert_eq!(status(&far[0], secret), 200, "{mode:?}");
        }
        proxy.set(Mode::Pass);
        eventually("the store to be read again", || is_up(&far[0]).then_some(()));
        timed_below(SOON, || {
            secrets[disabled.clone()].iter().for_each(|secret| wait_for(&far, secret, 401));
        });
        enabled -= 3;
        for secret in &secrets[..enabled] {
            assert_eq!(status(&far[0], secret), 200, "{mode:?}");
        }
    }
}

#[test]
fn row_209_redis_that_hangs_for_five_seconds_delays_no_known_client() {
    let redis = Redis::start();
    let all = [Gateway::start_full(&config(&redis.table(), IN_REDIS))];
    all[0].wait_for_redis();
    let secret = create(&all[0], &json!({ "id": "acme", "plan": "pro" }));
    wait_for(&all, &secret, 200);
    redis.pause();
    let (waits, hang) = (CpuWaits::now(), Stopwatch::start());
    let (mut requests, mut slow) = (0, 0);
    while hang.elapsed().as_secs() < 5 {
        let request = Stopwatch::start();
        assert_eq!(status(&all[0], &secret), 200);
        requests += 1;
        // The breaker opens after the first checks that Redis does not answer.
        slow += u32::from(request.elapsed().as_millis() > 200);
    }
    redis.resume();
    assert!(requests > 50, "{requests}");
    if slow > 5 {
        let found = format!("{slow} of {requests} requests took more than 200 ms");
        let least = Duration::from_millis(100) * (slow - 5);
        inconclusive_if_stalled(&found, waits.stall(), least);
    }
    eventually("the store to be read again", || is_up(&all[0]).then_some(()));
    done(&call(&all[0], "POST", "/acme/disable", &Value::Null));
    timed_below(SOON, || wait_for(&all, &secret, 401));
}

#[test]
fn row_209_keys_are_looked_up_while_the_process_drains() {
    let redis = Redis::start();
    let mut gateway = Gateway::start_full(&config(&redis.table(), IN_REDIS));
    gateway.wait_for_redis();
    let [first, second] =
        ["a", "b"].map(|id| create(&gateway, &json!({ "id": id, "plan": "pro" })));
    let mut connection = gateway.connect();
    assert_eq!(connection.send(&with(&first)).status, 200);
    let waits = CpuWaits::now();
    gateway.terminate();
    eventually("the drain", || gateway.log().contains("draining").then_some(()));
    // A connection waits for 500 ms for another request.
    let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {second}\r\n\r\n");
    connection.write(request.as_bytes());
    if let Some(answer) = connection.try_read_response("GET") {
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    } else {
        let finding = "the connection was closed without a response";
        inconclusive_if_stalled(finding, waits.stall(), Duration::from_millis(250));
    }
    assert_eq!(gateway.exit().0, Some(0));
}
