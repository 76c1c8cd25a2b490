//! Memory of idle connections. The bounds are 1.6 times what was measured: a connection cannot grow
//! unseen.

use std::time::Duration;

use crate::support::{
    Authority, ClientGroup, CpuWaits, DEMO, Gateway, IdleClients, IdleKind, Load, Request,
    Upstream, eventually, inconclusive_if_stalled, proxy_to, sleep_for,
};

/// Connections of a measurement.
const COUNT: usize = 1_000;

/// Connections before it, so that what the gateway allocates once does not count.
const WARM_UP: usize = 100;

/// A gateway with a listener in clear and one with TLS, both for HTTP/1.1 and HTTP/2.
fn gateway(upstream: &Upstream, authority: &Authority) -> Gateway {
    let certificate = authority.issue("server", &["localhost"]).entry();
    Gateway::start_full(&format!(
        "[server]\nadmin = \"127.0.0.1:0\"\nthreads = 2\nlimits.max_connections_per_ip = 20000\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{certificate}]\n{}",
        proxy_to(&[upstream.address])
    ))
}

/// Resident bytes that each of `COUNT` idle connections takes.
fn bytes_of_each(kind: IdleKind) -> usize {
    let (upstream, authority) = (Upstream::echo(), Authority::new());
    let gateway = gateway(&upstream, &authority);
    let listener = usize::from(matches!(kind, IdleKind::Http1Tls | IdleKind::Http2Tls));
    let address = gateway.listener(listener);
    let _first = IdleClients::open(kind, address, WARM_UP);
    let (before, _) = gateway.memory_bytes();
    let _rest = IdleClients::open(kind, address, COUNT);
    let (after, _) = gateway.memory_bytes();
    let bytes = usize::try_from(after.saturating_sub(before)).unwrap() / COUNT;
    println!("{kind:?}: {bytes} bytes");
    bytes
}

#[test]
fn idle_connection_without_a_request_takes_at_most_6_kib() {
    assert!(bytes_of_each(IdleKind::Silent) < 6 * 1024);
}

#[test]
fn idle_http1_connection_takes_at_most_6_kib() {
    assert!(bytes_of_each(IdleKind::Http1) < 6 * 1024);
}

#[test]
fn idle_http1_connection_over_tls_takes_at_most_18_kib() {
    assert!(bytes_of_each(IdleKind::Http1Tls) < 18 * 1024);
}

#[test]
fn idle_http2_connection_takes_at_most_36_kib() {
    assert!(bytes_of_each(IdleKind::Http2) < 36 * 1024);
}

#[test]
fn idle_http2_connection_over_tls_takes_at_most_48_kib() {
    assert!(bytes_of_each(IdleKind::Http2Tls) < 48 * 1024);
}

#[test]
fn memory_of_closed_connections_returns_to_the_system() {
    let (upstream, authority) = (Upstream::echo(), Authority::new());
    let gateway = gateway(&upstream, &authority);
    let _first = IdleClients::open(IdleKind::Http2, gateway.listener(0), WARM_UP);
    let (before, _) = gateway.memory_bytes();
    let rest = IdleClients::open(IdleKind::Http2, gateway.listener(0), COUNT);
    let (open, _) = gateway.memory_bytes();
    drop(rest);
    // The allocator returns memory while it is used.
    eventually("the memory of closed connections to return", || {
        for _ in 0..10 {
            assert_eq!(gateway.get("/").status, 200);
        }
        let (after, _) = gateway.memory_bytes();
        (after.saturating_sub(before) < open.saturating_sub(before) / 2).then_some(())
    });
}

/// Descriptors that a process can open.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The load of an idle gateway at the same time shows what the machine adds.
#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn thousands_of_idle_connections_do_not_slow_requests_down() {
    const PROCESSES: usize = 3;
    // Nine tenths of the descriptors are for clients. Of those, a sixteenth stays free of idle
    // connections.
    let count = (descriptors() * 8 / 10).min(18_000);
    let config = format!("limits.max_connections_per_ip = 20000\n{DEMO}");
    let (full, empty) = (Gateway::start(&config), Gateway::start(&config));
    let group = |gateway: &Gateway| {
        ClientGroup::new(gateway, &Request::get("/"), 8, Duration::from_millis(40))
    };
    let load = Load::start(vec![group(&full), group(&empty)]);
    let (before, _) = full.memory_bytes();
    let begin = |_| IdleClients::begin(IdleKind::Http1, full.address, count / PROCESSES);
    let opening: Vec<IdleClients> = (0..PROCESSES).map(begin).collect();
    let _idle: Vec<IdleClients> = opening.into_iter().map(IdleClients::opened).collect();
    let (after, _) = full.memory_bytes();
    let (waits, start) = (CpuWaits::now(), load.elapsed());
    sleep_for(Duration::from_secs(10));
    let span = start..load.elapsed();
    let reports = load.stop();
    let [with, without] = reports.as_slice() else { unreachable!() };
    assert_eq!((with.broken(), without.broken()), (0, 0));
    let p99 = |report: &crate::support::Report| report.during(&span).quantile(990);
    let (with, without) = (p99(with), p99(without));
    let each = usize::try_from(after - before).unwrap() / count;
    println!("{count} idle connections, {each} bytes each: p99 {with:?}, without them {without:?}");
    assert!(each < 6 * 1024, "{each} bytes");
    let slow = Duration::from_millis(50);
    if without > slow {
        let found = format!("p99 without idle connections is {without:?}");
        inconclusive_if_stalled(&found, waits.stall(), slow);
    } else {
        assert!(with <= without * 2 + Duration::from_millis(10), "{with:?}, {without:?}");
    }
}
