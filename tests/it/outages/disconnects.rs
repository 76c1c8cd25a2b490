//! Redis is killed or unreachable, or has no room for clients.

use std::time::Duration;

use super::{
    Fixture, HIGH_RATE, config, config_with, get, wait_until_closed, wait_until_connected,
    wait_until_open,
};
use crate::support::{
    CpuWaits, FaultProxy, Gateway, Mode, Redis, eventually, inconclusive_if_stalled,
};

#[test]
fn row_01_gateway_reconnects_after_each_kill_of_redis() {
    let mut redis = Redis::start();
    let gateway = Gateway::start(&config(&redis.table(), HIGH_RATE));
    wait_until_connected(&gateway);
    for _ in 0..2 {
        redis.kill();
        wait_until_open(&gateway);
        redis.launch();
        wait_until_closed(&gateway);
    }
}

#[test]
fn row_01_reset_or_refused_connections_fail_no_request() {
    Fixture::start(HIGH_RATE).assert_survives(Mode::Refuse);
}

/// The peer sends no FIN: only unanswered calls show that the connection is dead.
#[test]
fn row_18_half_open_connection_is_replaced() {
    let fixture = Fixture::start(HIGH_RATE);
    fixture.proxy.set(Mode::Freeze);
    eventually("the breaker to open", || {
        assert_eq!(get(&fixture.gateway), 200);
        (super::times_opened(&fixture.gateway) > 0).then_some(())
    });
    wait_until_closed(&fixture.gateway);
    assert!(fixture.proxy.arrivals().len() > 1, "another connection");
}

#[test]
fn row_26_redis_at_maxclients_fails_no_request() {
    let redis = Redis::start();
    let gateway = Gateway::start(&config(&redis.table(), HIGH_RATE));
    wait_until_connected(&gateway);
    let guest = redis.session();
    guest.execute(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
    guest.execute(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    wait_until_open(&gateway);
    guest.execute(&["CONFIG", "SET", "maxclients", "100"]).unwrap();
    wait_until_closed(&gateway);
}

/// Twenty gateways lose Redis at the same time. At most half of them may reconnect within any 250
/// ms.
#[test]
fn row_27_reconnects_of_many_gateways_are_spread() {
    const GATEWAYS: usize = 20;
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let text = config_with("", &proxy.table(super::LONG_TIMEOUT), HIGH_RATE);
    let gateways: Vec<Gateway> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..GATEWAYS).map(|_| scope.spawn(|| Gateway::start(&text))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    gateways.iter().for_each(wait_until_connected);
    proxy.set(Mode::Refuse);
    super::sleep_for(Duration::from_secs(4));
    let (waits, returned) = (CpuWaits::now(), proxy.elapsed());
    proxy.set(Mode::Pass);
    gateways.iter().for_each(wait_until_closed);
    let mut back: Vec<Duration> = proxy.arrivals();
    back.retain(|at| *at >= returned);
    assert!(back.len() >= GATEWAYS, "{back:?}");
    let slot = Duration::from_millis(250);
    let crowd =
        |from: &Duration| back.iter().filter(|&&at| *from <= at && at < *from + slot).count();
    let most = back.iter().map(crowd).max().unwrap();
    // After a wait for a CPU, those arrive together that would have arrived during it.
    if most > GATEWAYS / 2 {
        let found = format!("{most} within {slot:?}: {back:?}");
        inconclusive_if_stalled(&found, waits.stall(), slot);
    }
    let spread = back[GATEWAYS - 1].saturating_sub(back[0]);
    assert!(spread >= Duration::from_secs(1), "all of them within {spread:?}: {back:?}");
    assert_eq!(gateways.iter().map(get).collect::<Vec<_>>(), [200; GATEWAYS]);
}
