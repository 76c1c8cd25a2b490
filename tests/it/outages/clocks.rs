//! Clock jumps of the gateway, which have no effect, and of Redis, which refills buckets by its
//! clock.

use super::{config, get, request, wait_until_connected};
use crate::shared::is_decided_locally;
use crate::support::{CpuWaits, Gateway, Redis, Request, WallClock, eventually, full_config};

const HOUR: i64 = 3_600;

/// Day and hour of the `Date` header, of a response to a request that no rule counts.
fn hour(gateway: &Gateway) -> String {
    let answer = gateway.send(&Request::new("TRACE", "/"));
    assert_eq!(answer.status, 405, "{answer:?}");
    let date = answer.header("date").unwrap();
    date.split(':').next().unwrap().to_owned()
}

/// A jump of an hour would refill tokens, if it counted.
#[test]
fn row_25_wall_clock_of_the_gateway_changes_no_decision() {
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let clock = WallClock::new();
        let text = full_config(&config(&table, "rate = \"20/h\""));
        let gateway = Gateway::start_with(&text, |command| clock.apply_to(command));
        if !table.is_empty() {
            wait_until_connected(&gateway);
        }
        let mut left = gateway.send(&request()).remaining();
        for seconds_off in [HOUR, -HOUR, 0, 24 * HOUR] {
            let before = hour(&gateway);
            clock.set(seconds_off);
            // The `Date` header is cached for up to a second.
            eventually("the jump to be seen", || (hour(&gateway) != before).then_some(()));
            let answer = gateway.send(&request());
            left -= 1;
            assert_eq!((answer.status, answer.remaining()), (200, left), "{seconds_off} s off");
        }
    }
}

/// A forward jump refills at most a full bucket; a backward jump locks no client out.
#[test]
fn row_24_clock_jump_of_redis_is_bounded() {
    let clock = WallClock::new();
    let mut redis = Redis::stopped();
    redis.launch_with(|command| clock.apply_to(command));
    let gateway = Gateway::start(&config(&redis.table(), "rate = \"10/s\"\nburst = 100"));
    wait_until_connected(&gateway);
    let waits = CpuWaits::now();
    let drain = || (0..10_000).take_while(|_| get(&gateway) == 200).count();
    drain();
    clock.set(HOUR);
    // A cached denial is valid for at most a second.
    eventually("the jump to be seen", || (get(&gateway) == 200).then_some(()));
    let answer = gateway.send(&request());
    if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
        return;
    }
    assert!(answer.remaining() <= 98, "{answer:?}");
    let waits = CpuWaits::now();
    drain();
    for seconds_off in [0, -HOUR] {
        clock.set(seconds_off);
        for _ in 0..3 {
            eventually("tokens by the new clock", || (get(&gateway) == 200).then_some(()));
        }
    }
    is_decided_locally(std::slice::from_ref(&gateway), &waits);
}
