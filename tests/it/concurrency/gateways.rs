//! Gateways that share a limit on requests in flight in one Redis: one that dies, and outages of
//! Redis.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::chaos::{Clients, HTTP2, addresses};
use super::counting::Counting;
use super::{config, fill, hang, held};
use crate::shared::Phase;
use crate::support::{
    Connection, CpuWaits, FaultProxy, Gateway, Mode, Redis, Stopwatch, eventually,
    inconclusive_if_waited, sleep_for, timed, timed_below, within,
};

/// Time until the units of a dead gateway are free.
const LEASE: Duration = Duration::from_secs(15);

/// Time in which units are free that a gateway has released. The end of a lease is later.
pub(super) const RELEASED: Duration = Duration::from_secs(10);

/// A breaker that looks for Redis often.
const BREAKER: &str = "[redis.breaker]\nopen_max = \"3s\"\n";

/// Time after its return in which a gateway keeps to its share: `open_max` and two seconds.
const SETTLING: Duration = Duration::from_secs(5);

/// A Redis, an upstream, and two gateways that share a limit of 20.
fn start_two(more: &str) -> (Redis, Counting, [Gateway; 2]) {
    let (redis, upstream) = (Redis::start(), Counting::start());
    let text = config(&upstream, &format!("{more}{}", redis.table()), "limit = 20");
    let gateways = gateways(&text);
    (redis, upstream, gateways)
}

fn gateways(text: &str) -> [Gateway; 2] {
    let gateways = std::array::from_fn(|_| Gateway::start(text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    gateways
}

/// Waits until a gateway can hold exactly `count` units, or until the timeout is over. Returns how
/// many it can.
pub(super) fn usable(
    gateway: &Gateway,
    upstream: &Counting,
    count: usize,
    timeout: Duration,
) -> usize {
    let mut last = 0;
    within(timeout, || {
        if last > 0 {
            sleep_for(Duration::from_millis(100));
        }
        let before = upstream.now();
        let hanging = fill(gateway, upstream);
        last = hanging.len();
        drop(hanging);
        eventually("them to end", || (upstream.now() <= before).then_some(()));
        (last == count).then_some(())
    });
    last
}

/// Asserts that 64 clients that send, abort and hang for this time never hold more than the 20
/// units that the gateways share, and that all are free afterwards.
pub(super) fn assert_limit_of_20_holds(gateways: &[Gateway], upstream: &Counting, time: Duration) {
    let is_shared = gateways.iter().all(|gateway| gateway.config().contains("[redis]"));
    let mut phase = Phase::begin(gateways);
    // A gateway decides a check that Redis has not decided in a second by its share, which comes on
    // top of what Redis has granted.
    let is_local = |phase: &Phase| is_shared && phase.is_decided_locally(gateways);
    let addresses: Vec<_> = gateways.iter().map(addresses).collect();
    let waits = CpuWaits::now();
    let clients = Clients::start(64, &addresses);
    sleep_for(time);
    let (passed, refused) = clients.stop();
    eprintln!("{passed} passed, {refused} refused, at most {} in flight", upstream.peak());
    if upstream.peak() > 20 && is_local(&phase) {
        return;
    }
    assert!(upstream.peak() <= 20, "{} in flight", upstream.peak());
    // That all of the limit can be used is judged below; here, whether the load was strong enough
    // to exceed it. Clients that wait for a gateway make it weak, too.
    assert!(passed > 0 && refused > 0, "{passed} passed, {refused} refused");
    if passed < 100 || refused < 100 || upstream.peak() < 10 {
        let found = format!("{passed} passed, {refused} refused, {} in flight", upstream.peak());
        inconclusive_if_waited(&found, &waits, time);
    }
    let free = || gateways.iter().all(|gateway| held(gateway) == 0).then_some(());
    for gateway in gateways {
        // What the other gateways have released is free in Redis within milliseconds.
        eventually("all units to be free", free);
        phase.next_part();
        let most = usable(gateway, upstream, 20, RELEASED);
        if (most, upstream.peak()) != (20, 20) && is_local(&phase) {
            return;
        }
        assert_eq!((most, upstream.peak()), (20, 20));
    }
}

#[test]
fn limit_holds_over_two_gateways_and_nothing_leaks() {
    let (_redis, upstream, gateways) = start_two(HTTP2);
    assert_limit_of_20_holds(&gateways, &upstream, Duration::from_secs(4));
}

#[test]
fn row_122_units_of_a_killed_gateway_are_free_after_its_lease() {
    let (_redis, upstream, [first, second]) = start_two("");
    // Longer than a lease: they are renewed.
    let hanging: Vec<Connection> = (0..10).map(|_| hang(&second, &upstream)).collect();
    sleep_for(LEASE + Duration::from_secs(2));
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (10, 20));
    drop(own);
    eventually("ten to be left", || (upstream.now() == 10).then_some(()));
    let until_free = || {
        kill(Pid::from_raw(second.pid().try_into().unwrap()), Signal::SIGKILL).unwrap();
        eventually("its connections to be closed", || (upstream.now() == 0).then_some(()));
        // Its units are taken until its lease ends: nothing renews it.
        usable(&first, &upstream, 20, LEASE + Duration::from_secs(5))
    };
    let (most, took) = timed_below(LEASE + Duration::from_secs(2), || timed(until_free));
    assert_eq!(most, 20);
    eprintln!("free after {took:?}");
    assert!(took >= LEASE / 2, "{took:?}");
    assert_eq!(upstream.peak(), 20);
    drop(hanging);
}

#[test]
fn redis_that_has_lost_everything_gets_what_is_held() {
    let (redis, upstream, [first, second]) = start_two("");
    let hanging: Vec<Connection> = (0..10).map(|_| hang(&second, &upstream)).collect();
    redis.query::<String>(&["FLUSHALL"]);
    // A third of a lease, and the time between two looks.
    let in_time = LEASE / 3 + Duration::from_secs(5);
    let is_stated = || (stored(&redis) == 10_000).then_some(());
    assert!(within(in_time, is_stated).is_some(), "{} thousandths in Redis", stored(&redis));
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (10, 20));
    drop(hanging);
    drop(own);
}

/// Thousandths of units that gateways hold by what is stored in Redis, whether their leases have
/// ended or not.
fn stored(redis: &Redis) -> u64 {
    let keys: Vec<String> = redis.query(&["KEYS", "*:in-flight"]);
    let units = |key: &String| -> u64 {
        let value: Option<Vec<u8>> = redis.query(&["GET", key]);
        let value = value.unwrap_or_default();
        let entries = value.strip_prefix(b"cc1").unwrap_or_default().chunks_exact(24);
        entries.map(|entry| u64::from(u32::from_le_bytes(entry[8..12].try_into().unwrap()))).sum()
    };
    keys.iter().map(units).sum()
}

#[test]
fn row_123_lost_replies_and_cut_connections_leave_nothing_in_redis() {
    let (redis, upstream) = (Redis::start(), Counting::start());
    let proxy = FaultProxy::start(&redis);
    let table = proxy.table("100ms") + BREAKER;
    let text = config(&upstream, &format!("{HTTP2}{table}"), "limit = 20");
    let gateways = gateways(&format!("instances = 2\n{text}"));
    let (began, waits) = (Stopwatch::start(), CpuWaits::now());
    let clients = Clients::start(64, &gateways.each_ref().map(addresses));
    let late = Duration::from_millis(150);
    for _ in 0..3 {
        for mode in [Mode::DelayAlternate(late), Mode::CutMidReply, Mode::Delay(late), Mode::Hang] {
            proxy.set(mode);
            sleep_for(Duration::from_millis(300));
            proxy.set(Mode::Pass);
            sleep_for(Duration::from_millis(300));
        }
    }
    let (passed, refused) = clients.stop();
    eprintln!("{passed} passed, {refused} refused, at most {} in flight", upstream.peak());
    assert!(passed > 0 && refused > 0, "{passed} passed, {refused} refused");
    if passed <= 100 || refused <= 100 {
        let found = format!("a weak load: {passed} passed, {refused} refused");
        inconclusive_if_waited(&found, &waits, began.elapsed());
    }
    // Each gateway's share comes on top while it decides locally beside Redis.
    assert!(upstream.peak() <= 40, "{} in flight", upstream.peak());
    for gateway in &gateways {
        eventually("all units to be free", || (held(gateway) == 0).then_some(()));
        gateway.wait_for_count("tollgate_breaker_state", &[], 0);
    }
    // By statements, not by the end of the leases.
    let is_free = || (stored(&redis) == 0).then_some(());
    assert!(within(Duration::from_secs(3), is_free).is_some(), "{}", stored(&redis));
}

#[test]
fn upgrade_and_shutdown_keep_the_limit_and_free_units_at_once() {
    let (redis, upstream, [first, mut second]) = start_two("");
    let hanging: Vec<Connection> = (0..5).map(|_| hang(&first, &upstream)).collect();
    let answer = first.send_admin(&crate::support::Request::new("POST", "/api/upgrade"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    // The new process and the other gateway have what the old process does not hold.
    let own = fill(&first, &upstream);
    assert_eq!((own.len(), upstream.peak()), (15, 20));
    drop(own);
    eventually("five to be left", || (upstream.now() == 5).then_some(()));
    assert_eq!(usable(&second, &upstream, 15, RELEASED), 15);
    drop(hanging);
    assert_eq!(usable(&second, &upstream, 20, RELEASED), 20);
    second.terminate();
    assert_eq!(second.exit().0, Some(0));
    eventually("Redis to have no units", || (stored(&redis) == 0).then_some(()));
    assert_eq!(usable(&first, &upstream, 20, RELEASED), 20);
    assert_eq!(upstream.peak(), 20);
}

#[test]
fn gateway_that_returns_first_keeps_to_its_share_until_the_others_have_stated() {
    let (redis, upstream) = (Redis::start(), Counting::start());
    let proxies = [(); 2].map(|()| FaultProxy::start(&redis));
    let start = |proxy: &FaultProxy| {
        let table = proxy.table("200ms") + BREAKER;
        let text = config(&upstream, &table, "limit = 20");
        let gateway = Gateway::start(&format!("instances = 2\n{text}"));
        eventually("Redis", || (gateway.admin("/ready").status == 200).then_some(()));
        gateway
    };
    let [first, second] = proxies.each_ref().map(start);
    let breaker = |gateway: &Gateway, expected: u64| {
        gateway.wait_for_count("tollgate_breaker_state", &[], expected);
    };
    for (proxy, gateway) in proxies.iter().zip([&first, &second]) {
        proxy.set(Mode::Refuse);
        breaker(gateway, 2);
    }
    let hanging = fill(&second, &upstream);
    assert_eq!(hanging.len(), 10);
    // Redis knows nothing of these ten.
    proxies[0].set(Mode::Pass);
    breaker(&first, 0);
    let returned = Stopwatch::start();
    assert_eq!(usable(&first, &upstream, 10, Duration::from_secs(2)), 10);
    proxies[1].set(Mode::Pass);
    breaker(&second, 0);
    // Now it does. Its own share no longer bounds the first one.
    let rest = (SETTLING + Duration::from_secs(1)).saturating_sub(returned.elapsed());
    sleep_for(rest);
    assert_eq!(usable(&first, &upstream, 10, RELEASED), 10);
    drop(hanging);
    eventually("the second one to hold nothing", || (held(&second) == 0).then_some(()));
    assert_eq!(usable(&first, &upstream, 20, RELEASED), 20);
    assert_eq!(upstream.peak(), 20);
}
