//! Addresses of upstream servers by DNS: times to live, SRV records, and failures of name servers.
//! Most tests use dnsmasq.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{
    DEMO, Dnsmasq, Gateway, Names, PeerServer, Request, SilentPort, Upstream, eventually,
    proxy_with, send_concurrently, send_many, sleep_for, timed_below,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How soon a change of a record with a time to live of 1 s is in use, at the latest.
const SOON: Duration = Duration::from_secs(4);

const SERVICE: &str = "_http._tcp.api.test";

/// A file with these name servers and this server; `text` continues the table of the upstream.
fn config(setting: &str, server: &str, text: &str) -> String {
    let servers = format!("servers = [{server}]\n{text}");
    format!("{setting}{}", DEMO.replace("servers = [\"demo\"]", &servers))
}

/// The same, for SRV records.
fn service_config(setting: &str) -> String {
    config(setting, &format!("\"{SERVICE}\""), "resolve = \"srv\"")
}

fn addresses(gateway: &Gateway) -> BTreeSet<String> {
    let endpoints = gateway.endpoints();
    endpoints.iter().map(|it| it["address"].as_str().unwrap().to_owned()).collect()
}

/// Waits until these are the endpoints.
#[track_caller]
fn wait_for(gateway: &Gateway, expected: &[SocketAddr]) {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    eventually(&format!("{expected:?}"), || (addresses(gateway) == expected).then_some(()));
}

#[track_caller]
fn serves(gateway: &Gateway) {
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200, "{}", gateway.log());
    }
}

/// Lines of dnsmasq for SRV records of a host on 127.0.0.1: port, priority and weight.
fn services(records: &[(&Upstream, u16, u16)]) -> String {
    let mut text = "host-record=a.test,127.0.0.1\n".to_owned();
    for (server, priority, weight) in records {
        let port = server.address.port();
        let _ = writeln!(text, "srv-host={SERVICE},a.test,{port},{priority},{weight}");
    }
    text
}

#[test]
fn changed_record_is_in_use_within_its_time_to_live() {
    let mut names = Dnsmasq::start(1, "host-record=api.test,127.0.0.1");
    let gateway = Gateway::start(&config(&names.setting(), "\"api.test:81\"", ""));
    assert_eq!(addresses(&gateway), ["127.0.0.1:81".to_owned()].into());
    names.restart(1, "host-record=api.test,127.0.0.2,::1");
    timed_below(SOON, || {
        wait_for(&gateway, &["127.0.0.2:81".parse().unwrap(), "[::1]:81".parse().unwrap()]);
    });
}

#[test]
fn record_with_a_long_time_to_live_is_not_looked_up_again() {
    let mut names = Dnsmasq::start(60, "host-record=api.test,127.0.0.1");
    let gateway = Gateway::start(&config(&names.setting(), "\"api.test:81\"", ""));
    names.restart(60, "host-record=api.test,127.0.0.2");
    sleep_for(SOON);
    assert_eq!(addresses(&gateway), ["127.0.0.1:81".to_owned()].into());
}

#[test]
fn requests_follow_the_weights_of_srv_records() {
    let servers: [Upstream; 3] = std::array::from_fn(|_| Upstream::responding(OK));
    let [a, b, c] = &servers;
    let names = Dnsmasq::start(1, &services(&[(a, 5, 10), (b, 5, 20), (c, 5, 50)]));
    let gateway = Gateway::start(&service_config(&names.setting()));
    let url = gateway.url("/");
    assert_eq!(send_many(800, |client, _| client.get(&url)).get(&200), Some(&800));
    let counts = [a, b, c].map(|server| server.requests().len());
    for (count, expected) in counts.into_iter().zip([100_usize, 200, 500]) {
        assert!(count.abs_diff(expected) <= 16, "{counts:?}");
    }
}

#[test]
fn srv_records_of_a_higher_priority_take_over_when_the_first_are_down() {
    let first = Upstream::responding(OK);
    let backup = Upstream::responding(OK);
    let names = Dnsmasq::start(1, &services(&[(&backup, 20, 0), (&first, 10, 0)]));
    let gateway = Gateway::start(&service_config(&names.setting()));
    serves(&gateway);
    assert_eq!((first.requests().len(), backup.requests().len()), (10, 0));
    drop(first);
    serves(&gateway);
    assert_eq!(backup.requests().len(), 10);
    let priorities: BTreeSet<u64> =
        gateway.endpoints().iter().map(|it| it["priority"].as_u64().unwrap()).collect();
    assert_eq!(priorities, [0, 1].into());
}

#[test]
fn endpoints_of_srv_records_come_and_go_without_a_failed_request() {
    let (leaving, latch) = Upstream::holding();
    let [staying, coming]: [Upstream; 2] = std::array::from_fn(|_| Upstream::responding(OK));
    let mut names = Dnsmasq::start(1, &services(&[(&leaving, 1, 1), (&staying, 1, 1)]));
    let gateway = Gateway::start(&service_config(&names.setting()));
    let path = format!("/api/upstreams/api/{}/drain", staying.address);
    assert_eq!(gateway.send_admin(&Request::new("POST", &path)).status, 200);
    std::thread::scope(|scope| {
        let held = scope.spawn(|| gateway.get("/held"));
        leaving.wait_for_requests(1);
        names.restart(1, &services(&[(&staying, 1, 1), (&coming, 1, 1)]));
        wait_for(&gateway, &[staying.address, coming.address]);
        serves(&gateway);
        latch.open();
        assert_eq!(held.join().unwrap().status, 200);
    });
    // The order of the operator is kept.
    assert_eq!((leaving.requests().len(), staying.requests().len()), (1, 0));
    assert_eq!(coming.requests().len(), 10);
}

#[test]
fn name_with_fifty_addresses_has_fifty_endpoints() {
    let expected: Vec<SocketAddr> =
        (1..=50).map(|last| SocketAddr::from(([127, 0, 0, last], 81))).collect();
    let records = expected.iter().fold(String::new(), |mut text, address| {
        let _ = writeln!(text, "host-record=api.test,{}", address.ip());
        text
    });
    let names = Dnsmasq::start(1, &records);
    let gateway = Gateway::start(&config(&names.setting(), "\"api.test:81\"", ""));
    wait_for(&gateway, &expected);
}

#[test]
fn row_185_name_server_that_is_killed_or_hangs_changes_no_endpoint() {
    let upstream = Upstream::responding(OK);
    let records = services(&[(&upstream, 1, 1)]);
    let mut names = Dnsmasq::start(1, &records);
    let gateway = Gateway::start(&service_config(&names.setting()));
    serves(&gateway);
    let failing = || {
        let all = gateway.admin("/api/upstreams").json();
        let lookup = &all["upstreams"][0]["lookups"][0];
        (lookup["state"] == "failed").then(|| lookup["reason"].as_str().unwrap().to_owned())
    };
    names.stop();
    let reason = eventually("a failed look-up", failing);
    assert!(!reason.is_empty());
    let state = |state| {
        let labels = [("upstream", "api"), ("server", SERVICE), ("state", state)];
        gateway.count("tollgate_upstream_lookup_state", &labels)
    };
    assert_eq!((state("failed"), state("ok")), (1, 0));
    let explained = gateway.explain(r#"{"method": "GET", "path": "/"}"#).json();
    let failing_names = explained["route"]["lookups_failing"][0].as_str().unwrap();
    assert_eq!(failing_names, format!("{SERVICE} failed: {reason}"));
    serves(&gateway);
    assert_eq!(gateway.endpoints()[0]["state"], "up");
    let other = Upstream::responding(OK);
    names.restart(1, &services(&[(&other, 1, 1)]));
    wait_for(&gateway, &[other.address]);
    assert!(failing().is_none());
    serves(&gateway);
    names.suspend();
    eventually("a look-up without an answer", failing);
    serves(&gateway);
    names.resume();
    eventually("a look-up that works again", || failing().is_none().then_some(()));
    assert!(gateway.log().contains("name look-up works again"), "{}", gateway.log());
}

#[test]
fn row_186_name_that_is_removed_gets_requests_only_without_others() {
    let names = Names::new();
    let [removed, other]: [Upstream; 2] = std::array::from_fn(|_| Upstream::responding(OK));
    let services = [("a.test", removed.address.port(), 1, 1)];
    names.set("a.test", removed.address.ip());
    names.set_services(SERVICE, &services);
    let servers = format!("\"{SERVICE}\", \"_more._tcp.api.test\"");
    let gateway = Gateway::start(&config(&names.setting(), &servers, "resolve = \"srv\""));
    serves(&gateway);
    names.remove(SERVICE);
    let state = || gateway.endpoints().first().map(|it| it["state"].clone());
    eventually("the state", || (state()? == "unresolved").then_some(()));
    let reason = gateway.endpoints()[0]["reason"].clone();
    assert_eq!(reason, "look-up: the name does not exist (NXDOMAIN)");
    // A wrong answer stops no traffic.
    serves(&gateway);
    names.set_services("_more._tcp.api.test", &[("a.test", other.address.port(), 1, 1)]);
    eventually("the other one", || (gateway.endpoints().len() == 2).then_some(()));
    serves(&gateway);
    assert_eq!((removed.requests().len(), other.requests().len()), (20, 10));
    names.set_services(SERVICE, &services);
    eventually("the name", || (state()? == "up").then_some(()));
}

#[test]
fn row_186_service_that_is_not_available_has_no_endpoints() {
    let names = Names::new();
    let upstream = Upstream::responding(OK);
    names.set("a.test", upstream.address.ip());
    names.set_services(SERVICE, &[("a.test", upstream.address.port(), 1, 1)]);
    let gateway = Gateway::start(&service_config(&names.setting()));
    serves(&gateway);
    names.set_services(SERVICE, &[(".", 0, 0, 0)]);
    wait_for(&gateway, &[]);
    assert_eq!(gateway.get("/").status, 502);
    // Further look-ups find the same, and log nothing.
    let answered = || {
        let all = gateway.admin("/api/upstreams").json();
        all["upstreams"][0]["lookups"][0]["answered"].as_str().unwrap().to_owned()
    };
    for _ in 0..2 {
        let before = answered();
        eventually("a look-up", || (answered() != before).then_some(()));
    }
    let lines = gateway.log().matches("no server of the upstream has a known address").count();
    assert_eq!(lines, 1, "{}", gateway.log());
}

#[test]
fn row_185_failure_of_one_record_keeps_what_was_known_of_it() {
    let names = Names::new();
    let [a, b, c]: [Upstream; 3] = std::array::from_fn(|_| Upstream::responding(OK));
    for host in ["a.test", "b.test"] {
        names.set(host, a.address.ip());
    }
    let of = |server: &Upstream, host| (host, server.address.port(), 1, 1);
    names.set_services(SERVICE, &[of(&a, "a.test"), of(&b, "b.test")]);
    let gateway = Gateway::start(&service_config(&names.setting()));
    wait_for(&gateway, &[a.address, b.address]);
    names.fail("a.test");
    names.set_services(SERVICE, &[of(&a, "a.test"), of(&c, "b.test")]);
    wait_for(&gateway, &[a.address, c.address]);
    let all = gateway.admin("/api/upstreams").json();
    let reason = all["upstreams"][0]["lookups"][0]["reason"].clone();
    assert_eq!(reason, "a.test: the name server failed (SERVFAIL)");
}

/// A name with an IPv6 address that ignores connections, and this IPv4 address.
fn half_dead(names: &Names, alive: SocketAddr) -> SilentPort {
    let dead = SilentPort::bind_at(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], alive.port())));
    names.set_all("api.test", &[dead.address.ip(), alive.ip()]);
    dead
}

/// Longest time of a request whose first address ignores connections: the attempt delay is 250 ms.
const DELAYED: Duration = Duration::from_secs(1);

#[test]
fn row_187_dead_family_delays_a_request_by_the_attempt_delay_only() {
    let names = Names::new();
    let upstream = Upstream::responding(OK);
    let dead = half_dead(&names, upstream.address);
    let server = format!("\"api.test:{}\"", dead.address.port());
    for more in ["", "max_connections = 5\n"] {
        let text = format!("connect_timeout = \"10s\"\nretries = {{ count = 0 }}\n{more}");
        let gateway = Gateway::start(&config(&names.setting(), &server, &text));
        for _ in 0..6 {
            let request = Request::get("/").header("Connection", "close");
            let answer = timed_below(DELAYED, || gateway.send(&request));
            assert_eq!(answer.status, 200, "{}", gateway.log());
        }
        let state = |address: SocketAddr| {
            let endpoints = gateway.endpoints();
            let own = endpoints.iter().find(|it| it["address"] == address.to_string());
            own.unwrap()["state"].as_str().unwrap().to_owned()
        };
        assert_eq!((&*state(dead.address), &*state(upstream.address)), ("unreachable", "up"));
        assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 0);
        assert!(gateway.endpoints().iter().all(|it| it["in_flight"] == 0));
    }
    assert_eq!(upstream.requests().len(), 12);
}

#[test]
fn row_187_dead_family_delays_a_call_over_http2_too() {
    let names = Names::new();
    let server = PeerServer::node(None);
    let dead = half_dead(&names, server.address);
    let written = format!("\"api.test:{}\"", dead.address.port());
    let text = "protocol = \"h2c\"\nconnect_timeout = \"10s\"\nretries = { count = 0 }";
    let gateway = Gateway::start(&config(&names.setting(), &written, text));
    for _ in 0..6 {
        let answer = timed_below(DELAYED, || gateway.get("/"));
        assert_eq!(answer.status, 200, "{}", gateway.log());
    }
    // The connection to the other address is shared by later requests to that.
    let opened = gateway.count("tollgate_upstream_connections_total", &[("reused", "false")]);
    assert!(opened <= 2, "{opened}");
    assert!(gateway.endpoints().iter().all(|it| it["in_flight"] == 0));
}

/// They do not connect to the dead family one after another.
#[test]
fn row_187_dead_family_delays_calls_at_a_time_over_http2_once() {
    let names = Names::new();
    let server = PeerServer::node(None);
    let dead = half_dead(&names, server.address);
    let written = format!("\"api.test:{}\"", dead.address.port());
    for more in ["", "max_connections = 5\n"] {
        let text = format!(
            "protocol = \"h2c\"\nconnect_timeout = \"10s\"\nretries = {{ count = 0 }}\n{more}"
        );
        let gateway = Gateway::start(&config(&names.setting(), &written, &text));
        // One after another, 25 of them would take six seconds.
        let within = Duration::from_secs(5);
        let counts = timed_below(within, || {
            send_concurrently(50, 50, |client, _| client.get(gateway.url("/")))
        });
        assert_eq!(counts.get(&200), Some(&50), "{counts:?} {}", gateway.log());
        let opened = gateway.count("tollgate_upstream_connections_total", &[("reused", "false")]);
        assert!(opened <= 3, "{opened}");
        assert!(gateway.endpoints().iter().all(|it| it["in_flight"] == 0));
    }
}

/// One copy after another: the first or the second one begins at the dead family.
#[test]
fn row_187_copies_are_sent_to_the_other_family_too() {
    let (node, upstream) = (PeerServer::node(None), Upstream::responding(OK));
    for (protocol, alive) in [("h2c", node.address), ("http1", upstream.address)] {
        let names = Names::new();
        let api = Upstream::responding(OK);
        let dead = half_dead(&names, alive);
        let gateway = Gateway::start(&format!(
            "{}{}[upstreams.shadow]\nservers = [\"api.test:{}\"]\nprotocol = \"{protocol}\"\n\
             connect_timeout = \"10s\"\n",
            names.setting(),
            proxy_with(&[api.address], "mirror = { to = \"shadow\" }"),
            dead.address.port(),
        ));
        let copies = "tollgate_mirrored_requests_total";
        for count in 1..=6 {
            assert_eq!(gateway.get("/").status, 200);
            let labels = [("upstream", "shadow"), ("result", "2xx")];
            timed_below(DELAYED, || gateway.wait_for_count(copies, &labels, count));
        }
        let states = || -> BTreeSet<_> {
            let endpoints = gateway.endpoints_of("shadow");
            endpoints.iter().map(|it| (it["state"].to_string(), it["in_flight"].as_u64())).collect()
        };
        let expected = ["\"unreachable\"", "\"up\""].map(|state| (state.to_owned(), Some(0)));
        eventually("the end of the copies", || {
            (states() == BTreeSet::from(expected.clone())).then_some(())
        });
    }
}

#[test]
fn row_187_address_that_refuses_connections_is_followed_by_the_other_family_at_once() {
    let names = Names::new();
    let upstream = Upstream::responding(OK);
    names.set_all("api.test", &["::1".parse().unwrap(), upstream.address.ip()]);
    let server = format!("\"api.test:{}\"", upstream.address.port());
    let text = "retries = { count = 0 }";
    let gateway = Gateway::start(&config(&names.setting(), &server, text));
    serves(&gateway);
    assert_eq!(upstream.requests().len(), 10);
}
