//! More connections than the limits allow, and a process without file descriptors or memory.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http2::Client;
use crate::support::{
    Authority, Connection, DEMO, Gateway, MemoryCgroup, Request, Stopwatch, TIMEOUT, Upstream,
    eventually, full_config, inconclusive, proxy_to, sleep_for, timed_below, within,
};

/// A client that sends one request after the other on one connection.
struct BusyClient {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl BusyClient {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // For the gateway, the connection is idle from its response on, which this thread may
            // read late: measured from before the request.
            let mut sent = Stopwatch::start();
            let mut connection = Connection::open(address);
            let mut served = 0;
            while !stopped.load(Ordering::Relaxed) {
                sleep_for(Duration::from_millis(20));
                let next = Stopwatch::start();
                connection.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                let idle = std::mem::replace(&mut sent, next).elapsed();
                match connection.try_read_response("GET") {
                    Some(answer) => assert_eq!(answer.status, 200),
                    // The machine was so busy that the connection was idle for long enough to be
                    // closed.
                    None if idle > Duration::from_millis(500) => {
                        sent = Stopwatch::start();
                        connection = Connection::open(address);
                    }
                    None => panic!("a busy connection was closed after {idle:?}"),
                }
                served += 1;
            }
            served
        });
        Self { stop, thread }
    }

    /// Ends the client. Returns the number of its requests, all of which were served.
    fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Configuration whose `[server.limits]` has these settings, for a listener that also accepts
/// HTTP/2, then `rest`.
fn config(limits: &str, rest: &str) -> String {
    format!(
        "[server.limits]\n{limits}\n[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n{rest}\n{DEMO}"
    )
}

fn status(gateway: &Gateway) -> Value {
    gateway.admin("/api/status").json()
}

/// Whether the gateway has closed this silent connection. Waits for the answer to a request if it
/// has not.
fn is_refused(mut connection: Connection) -> bool {
    connection.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.try_read_response("GET").is_none()
}

fn rejected(gateway: &Gateway, reason: &str) -> u64 {
    gateway.count("tollgate_connections_rejected_total", &[("reason", reason)])
}

fn is_overloaded(gateway: &Gateway, resource: &str) -> bool {
    gateway.count("tollgate_overloaded", &[("resource", resource)]) == 1
}

/// A connection that is sending the body of a request, so it is not idle.
fn half_a_request(gateway: &Gateway) -> Connection {
    let mut connection = gateway.connect();
    connection.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
    connection
}

/// The same configuration, in which clients on this machine may open any number of connections.
fn trusting(config: &str) -> String {
    format!("trusted_proxies = [\"127.0.0.1\"]\n{config}")
}

#[test]
fn connection_above_the_limit_is_closed_at_once_and_counted() {
    let gateway = Gateway::start(&trusting(&config("max_connections = 10", "")));
    let mut open: Vec<_> = (0..10).map(|_| half_a_request(&gateway)).collect();
    eventually("all connections to be open", || {
        (status(&gateway)["connections"]["open"] == 10).then_some(())
    });
    assert_eq!(status(&gateway)["connections"]["max"], 10);
    for _ in 0..3 {
        assert!(gateway.connect().is_closed_by_server());
    }
    assert_eq!(rejected(&gateway, "max_connections"), 3);
    let line =
        "client connections were closed reason=\"max_connections\" count=1 last_peer=\"127.0.0.1\"";
    eventually(line, || gateway.log().contains(line).then_some(()));
    open[3].write(b"x");
    assert_eq!(open[3].read_response("POST").status, 200);
    open.pop();
    eventually("a free place", || (!is_refused(gateway.connect())).then_some(()));
}

#[test]
fn idle_connections_are_closed_when_few_are_left() {
    let gateway = Gateway::start(&trusting(&config("max_connections = 64", "")));
    let busy = BusyClient::start(gateway.address);
    // A sixteenth of 64 is to stay free.
    let mut idle: Vec<_> = (0..59).map(|_| gateway.connect()).collect();
    assert_eq!(idle[0].send(&Request::get("/")).status, 200);
    // Each new client is served, since the gateway closes those that have been idle for more than a
    // second.
    eventually("more clients than there are places", || {
        let mut client = gateway.connect();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_served = client.try_read_response("GET").is_some();
        idle.extend(is_served.then_some(client));
        (idle.len() > 80).then_some(())
    });
    assert!(rejected(&gateway, "shed") > 0);
    assert!(busy.stop() > 0);
}

#[test]
fn flood_of_one_address_does_not_keep_another_out() {
    let gateway = Gateway::start(&config("max_connections_per_ip = 100", ""));
    let [attacker, other] = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let flood: Vec<_> =
        (0..3000).map(|_| Connection::open_from(attacker, gateway.address)).collect();
    let send = || Connection::open_from(other, gateway.address).send(&Request::get("/"));
    assert_eq!(timed_below(Duration::from_secs(5), send).status, 200);
    let reason = "max_connections_per_ip";
    eventually("the flood to be closed", || (rejected(&gateway, reason) == 2900).then_some(()));
    assert!(status(&gateway)["connections"]["open"].as_u64().unwrap() <= 102);
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(reason)).collect();
    assert!((1..=4).contains(&lines.len()), "{lines:#?}");
    assert!(lines[0].contains("last_peer=\"127.0.0.2\""), "{lines:#?}");
    drop(flood);
    eventually("the counts to fall", || {
        (status(&gateway)["connections"]["open"].as_u64().unwrap() <= 1).then_some(())
    });
    assert!(!is_refused(Connection::open_from(attacker, gateway.address)));
}

#[test]
fn row_69_one_address_gets_half_of_the_connections_that_few_descriptors_allow() {
    let gateway =
        Gateway::start_with(&full_config(&config("head_timeout = \"10m\"", "")), |command| {
            let mut limited = Command::new("prlimit");
            limited.arg("--nofile=256:256").arg(command.get_program()).args(command.get_args());
            *command = limited;
        });
    let [attacker, other] = [2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let half = |_| {
        let mut connection = Connection::open_from(attacker, gateway.address);
        connection.write(b"GET / HTTP/1.1\r\n");
        connection
    };
    let _flood: Vec<_> = (0..200).map(half).collect();
    let reason = "max_connections_per_ip";
    eventually("the flood to be closed", || (rejected(&gateway, reason) == 104).then_some(()));
    for _ in 0..20 {
        let send = || Connection::open_from(other, gateway.address).send(&Request::get("/"));
        assert_eq!(timed_below(Duration::from_secs(5), send).status, 200);
    }
    assert_eq!(rejected(&gateway, "max_connections"), 0);
    let connections = &status(&gateway)["connections"];
    assert_eq!((&connections["max"], &connections["max_per_ip"]), (&json!(192), &json!(96)));
    gateway.wait_for_count("tollgate_client_connections_per_ip_max", &[], 96);
}

/// Connections without a request, whatever has arrived of it, from several addresses.
#[test]
fn row_69_half_requests_and_half_handshakes_are_closed_when_few_connections_are_left() {
    let authority = Authority::new();
    let certificate = authority.issue("api", &["api.test"]).entry();
    let rest =
        format!("[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{certificate}]\n");
    let limits = "max_connections = 64\nhead_timeout = \"10m\"\nhandshake_timeout = \"1m\"";
    // By the number of the listener: over TLS; of HTTP/1.1; of HTTP/1.1 or HTTP/2.
    let parts: [(usize, &[u8]); 3] =
        [(2, b"\x16\x03\x01"), (0, b"GET / HTTP/1.1\r\n"), (1, b"PRI * HT")];
    for (listener, part) in parts {
        let gateway = Gateway::start(&config(limits, &rest));
        let mut flood = Vec::new();
        for source in 2..5 {
            for _ in 0..22 {
                let source = Ipv4Addr::new(127, 0, 0, source);
                let mut half = Connection::open_from(source, gateway.listener(listener));
                half.write(part);
                flood.push(half);
            }
        }
        // On a busy machine, the first ones are idle for long enough before the last one comes.
        eventually("all places to be taken", || {
            let full = rejected(&gateway, "max_connections") + rejected(&gateway, "shed");
            (full > 0).then_some(())
        });
        eventually("another client to be served", || {
            let mut client = Connection::open_from(Ipv4Addr::new(127, 0, 0, 9), gateway.address);
            client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.try_read_response("GET").filter(|answer| answer.status == 200)
        });
        eventually("the closed ones to be counted", || {
            (rejected(&gateway, "shed") > 0).then_some(())
        });
    }
}

#[test]
fn limit_of_an_address_is_that_of_the_proxy_header_and_exempts_trusted_proxies() {
    let rest = "[[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n";
    let config = config("max_connections_per_ip = 2\nhead_timeout = \"10m\"", rest);
    let gateway = Gateway::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{config}"));
    let proxied = |client: &str| {
        let mut connection = Connection::open(gateway.listener(2));
        let header = format!("PROXY TCP4 {client} 192.0.2.1 4000 443\r\nGET / HTTP/1.1\r\n");
        connection.write(header.as_bytes());
        connection
    };
    // A connection is counted for its address once its header is read: before its first response.
    let counted = |_| {
        let mut connection = proxied("203.0.113.1");
        connection.write(b"Host: a\r\n\r\n");
        assert_eq!(connection.read_response("GET").status, 200);
        connection.write(b"GET / HTTP/1.1\r\n");
        connection
    };
    let mut first: Vec<_> = (0..2).map(counted).collect();
    eventually("two connections", || (status(&gateway)["connections"]["open"] == 2).then_some(()));
    assert!(proxied("203.0.113.1").is_closed_by_server());
    // The client can see the end before it is counted.
    let reason = [("reason", "max_connections_per_ip")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &reason, 1);
    for connection in first.iter_mut().chain([&mut proxied("203.0.113.2")]) {
        connection.write(b"Host: a\r\n\r\n");
        assert_eq!(connection.read_response("GET").status, 200);
    }
    // The proxy itself, on a listener without the header.
    let mut own: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    for connection in &mut own {
        assert_eq!(connection.send(&Request::get("/")).status, 200);
    }
    let mut strangers: Vec<_> = (0..3)
        .map(|_| Connection::open_from(Ipv4Addr::new(127, 0, 0, 2), gateway.address))
        .collect();
    assert!(strangers[2].is_closed_by_server());
}

#[test]
fn row_69_without_descriptors_idle_connections_are_closed_and_others_are_served() {
    let gateway = Gateway::start(&config("", ""));
    let busy = BusyClient::start(gateway.address);
    // By then, the gateway has opened everything that it needs itself.
    eventually("the busy client", || {
        (gateway.count("tollgate_client_connections_held", &[]) == 1).then_some(())
    });
    gateway.limit_more_files(10);
    let idle: Vec<_> = (0..40).map(|index| Connection::open(gateway.listener(index % 2))).collect();
    let line = "connections cannot be accepted detail=\"too many open files\"";
    eventually(line, || gateway.log().contains(line).then_some(()));
    // It waits until those before it have been accepted, and closed because they are idle.
    assert_eq!(gateway.get("/").status, 200);
    assert!(busy.stop() > 0);
    drop(idle);
    let recovered = "file descriptors are available again";
    eventually(recovered, || gateway.log().contains(recovered).then_some(()));
    assert!(gateway.log().contains("few or no file descriptors are left"), "{}", gateway.log());
    assert!(rejected(&gateway, "no_descriptors") > 0);
    let failures = gateway.count("tollgate_accept_failures_total", &[("reason", "no_descriptors")]);
    let lines = gateway.log_times(line).len();
    assert!(failures > 0 && lines <= 4, "{failures} {lines}");
    assert!(!is_overloaded(&gateway, "descriptors"));
    assert_eq!(status(&gateway)["overloaded"]["descriptors"], false);
}

#[test]
fn row_69_idle_connections_are_closed_before_upstreams_get_no_descriptors() {
    if std::fs::metadata("/proc/self/fd").unwrap().len() == 0 {
        return inconclusive("this kernel does not say how many descriptors are open");
    }
    let gateway = Gateway::start(&config("", ""));
    let _idle: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    eventually("all connections to be open", || {
        (status(&gateway)["connections"]["open"] == 100).then_some(())
    });
    // Connections that have been idle for less than a second stay open: the first look must not
    // find only some older.
    sleep_for(Duration::from_millis(1_100));
    // Less than 1/32 of more than 100.
    gateway.limit_more_files(2);
    // That many at once; then enough descriptors are free.
    eventually("64 connections to be closed", || {
        (rejected(&gateway, "no_descriptors") == 64).then_some(())
    });
    assert_eq!(gateway.count("tollgate_accept_failures_total", &[]), 0);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_69_too_low_a_limit_of_open_files_is_an_error_of_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, full_config(&config("", ""))).unwrap();
    for limit in ["24", "48", "127"] {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).arg(env!("CARGO_BIN_EXE_tollgate"));
        let output = limited.arg("run").arg(&path).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        let message = format!("cannot start: the limit of {limit} open files is too low");
        assert!(log.contains(&message) && !log.contains("bug"), "{log}");
        assert_eq!(output.status.code(), Some(1), "{log}");
    }
}

#[test]
fn row_69_low_limit_of_open_files_bounds_the_connections() {
    let limits = "max_connections = 5000\nmax_connections_per_ip = 5000";
    let gateway = Gateway::start_with(&full_config(&config(limits, "")), |command| {
        let mut limited = Command::new("prlimit");
        limited.arg("--nofile=100:160").arg(command.get_program()).args(command.get_args());
        limited.env_remove("TOLLGATE_LOG").env("NO_COLOR", "1");
        *command = limited;
    });
    let warning =
        "server.limits.max_connections is 5000, but the limit of 160 open files allows 96";
    eventually(warning, || gateway.log().contains(warning).then_some(()));
    let clients: Vec<_> = (0..8).map(|_| BusyClient::start(gateway.address)).collect();
    eventually("eight clients", || (status(&gateway)["connections"]["open"] == 8).then_some(()));
    for _ in 0..3 {
        let flood: Vec<_> = (0..300).map(|_| gateway.connect()).collect();
        assert!(status(&gateway)["connections"]["open"].as_u64().unwrap() <= 96);
        drop(flood);
    }
    assert_eq!(status(&gateway)["connections"]["max"], 96);
    eventually("a new client to be served", || (!is_refused(gateway.connect())).then_some(()));
    for client in clients {
        assert!(client.stop() > 0);
    }
    // The limit kept descriptors free for everything else.
    assert_eq!(gateway.count("tollgate_accept_failures_total", &[]), 0);
}

/// The settings of a gateway that is over its memory limit from the start: no gateway is smaller.
const TINY: &str = "[memory]\nmax_bytes = 16777216\n";

/// The same without a limit.
const UNLIMITED: &str = "[memory]\nmax_bytes = 0\n";

#[tokio::test(flavor = "multi_thread")]
async fn row_100_over_the_memory_limit_idle_connections_are_closed_and_requests_are_served() {
    let limits = "max_connections_per_ip = 5000";
    let gateway = Gateway::start(&config(limits, UNLIMITED));
    let busy = BusyClient::start(gateway.address);
    let mut idle: Vec<_> =
        (0..200).map(|index| Connection::open(gateway.listener(index % 2))).collect();
    assert_eq!(idle[0].send(&Request::get("/")).status, 200);
    let mut http2 = Client::connect(gateway.listener(1)).await;
    let request = http::Request::get("http://api.test/").version(http::Version::HTTP_2).body(());
    assert_eq!(http2.send(request.unwrap()).await.unwrap().status(), 200);
    assert!(!is_overloaded(&gateway, "memory"));

    gateway.apply(&config(limits, TINY));
    eventually("the overload", || is_overloaded(&gateway, "memory").then_some(()));
    assert_eq!(status(&gateway)["overloaded"]["memory"], true);
    // It gets a GOAWAY: a connection that breaks off is an error.
    http2.closed().await.unwrap();
    eventually("idle connections to be closed", || {
        // The busy one, too, if a busy machine lets it be idle.
        (rejected(&gateway, "memory") >= 201).then_some(())
    });
    assert!(idle.iter_mut().all(Connection::is_closed_by_server));
    // Few connections are served in any case.
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.admin("/ready").status, 200);
    assert!(busy.stop() > 0);

    gateway.apply(&config(limits, UNLIMITED));
    eventually("the end of the overload", || (!is_overloaded(&gateway, "memory")).then_some(()));
    let log = gateway.log();
    assert!(log.contains("memory is over its limit; no connections are accepted"), "{log}");
    assert!(log.contains("memory is below its limit again"), "{log}");
}

/// Reads HTTP/2 frames up to one of this type. Returns its payload.
fn read_frame(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).unwrap();
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        stream.read_exact(&mut payload).unwrap();
        if header[3] == kind {
            return payload;
        }
    }
}

#[test]
fn request_that_crosses_the_end_of_its_idle_connection_is_served() {
    let upstream = Upstream::start(|_, stream| {
        sleep_for(Duration::from_secs(3));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let file = |memory| config("", memory).replace(DEMO, &proxy_to(&[upstream.address]));
    let gateway = Gateway::start(&file(UNLIMITED));
    let mut client = TcpStream::connect(gateway.listener(1)).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    gateway.apply(&file(TINY));
    // GOAWAY, and a PING that is not answered: the client has not seen them when it sends `GET /`.
    read_frame(&mut client, 7);
    client.write_all(b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a").unwrap();
    // Status 200 is entry 8 of the static table.
    assert_eq!(read_frame(&mut client, 1)[0], 0x88);
    assert_eq!(read_frame(&mut client, 0), b"ok");
}

#[test]
fn few_connections_are_accepted_over_the_memory_limit_however_fast_they_come() {
    let gateway = Gateway::start(&config("head_timeout = \"10m\"", TINY));
    eventually("the overload", || is_overloaded(&gateway, "memory").then_some(()));
    let clients: Vec<_> = (0..300).map(|_| half_a_request(&gateway)).collect();
    let open = || status(&gateway)["connections"]["open"].as_u64().unwrap();
    eventually("the connections that are served", || (open() > 64).then_some(()));
    // Each of two listeners already waits for one more.
    let grown = within(Duration::from_secs(2), || (open() > 67).then_some(()));
    assert_eq!(grown, None);
    drop(clients);
    eventually("the end of all", || (open() == 0).then_some(()));
}

#[test]
fn row_100_over_the_memory_limit_new_connections_wait() {
    let limits = "max_connections_per_ip = 5000\nhead_timeout = \"10m\"";
    let gateway = Gateway::start(&config(limits, UNLIMITED));
    let mut busy: Vec<_> = (0..100).map(|_| half_a_request(&gateway)).collect();
    eventually("the connections to be open", || {
        (status(&gateway)["connections"]["open"] == 100).then_some(())
    });
    gateway.apply(&config(limits, TINY));
    eventually("the overload", || is_overloaded(&gateway, "memory").then_some(()));
    // A listener that already waits accepts one more.
    let waiting: Vec<_> = (0..4).map(|_| half_a_request(&gateway)).collect();
    let open = || status(&gateway)["connections"]["open"].as_u64().unwrap();
    eventually("the listeners to pause", || {
        (status(&gateway)["overloaded"]["paused"] == true).then_some(())
    });
    let grown = within(Duration::from_secs(2), || (open() > 102).then_some(()));
    assert_eq!(grown, None);
    // Connections with a request are not closed.
    busy[99].write(b"x");
    assert_eq!(busy[99].read_response("POST").status, 200);
    busy.truncate(50);
    eventually("those that waited", || (open() == 54).then_some(()));
    drop(waiting);
}

#[test]
fn ready_is_503_in_an_overload_only_if_the_file_says_so() {
    let gateway = Gateway::start(&config("", TINY));
    eventually("the overload", || is_overloaded(&gateway, "memory").then_some(()));
    assert_eq!(gateway.admin("/ready").status, 200);
    gateway.apply(&config("unready_on_overload = true", TINY));
    let answer = gateway.admin("/ready");
    assert_eq!((answer.status, answer.text().as_str()), (503, "memory is over its limit\n"));
    assert_eq!(status(&gateway)["ready"], false);
    assert_eq!(gateway.get("/").status, 200);
    gateway.apply(&config("unready_on_overload = true", UNLIMITED));
    eventually("the end", || (gateway.admin("/ready").status == 200).then_some(()));
}

/// Starts a gateway that sees this memory limit, in bytes, of its cgroup, as in a container of
/// either version. `None`: this user cannot create a mount namespace. The kernel does not enforce
/// the limit.
fn start_in_cgroup(max_bytes: u64, config: &str) -> Option<Gateway> {
    let setup = format!(
        "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory && \
         echo {max_bytes} | tee /sys/fs/cgroup/memory.max > /sys/fs/cgroup/memory/memory.limit_in_bytes"
    );
    Gateway::start_in_namespace(&setup, &full_config(config))
}

#[test]
fn row_100_default_limit_is_nine_tenths_of_that_of_the_cgroup() {
    const GIB: u64 = 1 << 30;
    let Some(gateway) = start_in_cgroup(GIB, &config("", "")) else {
        return inconclusive("this user cannot create a mount namespace");
    };
    let memory = eventually("the memory", || {
        Some(status(&gateway)["memory"].clone()).filter(|memory| memory["resident_bytes"] != 0)
    });
    assert_eq!(memory["max_bytes"], GIB / 10 * 9);
    assert!(memory["resident_bytes"].as_u64().unwrap() > 1 << 20, "{memory}");
    assert_eq!(gateway.count("tollgate_memory_max_bytes", &[]), GIB / 10 * 9);
    assert!(!is_overloaded(&gateway, "memory"));
    // No gateway is smaller.
    let small = start_in_cgroup(16 << 20, &config("", "")).unwrap();
    eventually("the overload", || is_overloaded(&small, "memory").then_some(()));
    small.apply(&config("", UNLIMITED));
    eventually("the end of the overload", || (!is_overloaded(&small, "memory")).then_some(()));
    assert_eq!(status(&small)["memory"]["max_bytes"], Value::Null);
}

#[test]
fn row_100_flood_does_not_reach_the_limit_of_a_real_cgroup() {
    const MIB: u64 = 1 << 20;
    let limits = "max_connections = 15000\nmax_connections_per_ip = 15000";
    let resident = |gateway: &Gateway| {
        let memory = || status(gateway)["memory"]["resident_bytes"].as_u64();
        eventually("the memory", || memory().filter(|bytes| *bytes != 0))
    };
    let first = resident(&Gateway::start(&config(limits, "")));
    let Some(cgroup) = MemoryCgroup::create(first + 32 * MIB) else {
        return inconclusive("this user cannot create a memory cgroup");
    };
    let gateway = Gateway::start_with(&full_config(&config(limits, "")), |command| {
        let mut inside = cgroup.run(command);
        inside.env_remove("TOLLGATE_LOG").env("NO_COLOR", "1");
        *command = inside;
    });
    let busy = BusyClient::start(gateway.address);
    let mut open = Vec::new();
    // Idle connections of HTTP/2, which need most memory.
    let overloaded = (0..6_000).find(|number| {
        // Once the gateway accepts none, the kernel has room for few.
        let client = TcpStream::connect_timeout(&gateway.listener(1), Duration::from_millis(200));
        let is_open = client.is_ok();
        if let Ok(mut client) = client {
            client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").ok();
            open.push(client);
        }
        (!is_open || number % 100 == 0) && rejected(&gateway, "memory") > 0
    });
    assert!(overloaded.is_some(), "{} bytes of {first} at first", resident(&gateway));
    assert_eq!(gateway.get("/").status, 200);
    assert!(busy.stop() > 0);
    drop(open);
    eventually("the end of the overload", || (!is_overloaded(&gateway, "memory")).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(cgroup.killed(), 0);
    drop(gateway);
}

#[test]
fn status_has_the_rejections_of_the_last_minute_by_reason() {
    let gateway = Gateway::start(&config("max_connections_per_ip = 2\nhead_timeout = \"10m\"", ""));
    let rejected = || status(&gateway)["connections"]["rejected_last_minute"].clone();
    assert_eq!(rejected(), json!({}));
    let _open: Vec<_> = (0..2).map(|_| half_a_request(&gateway)).collect();
    eventually("both connections to be open", || {
        (status(&gateway)["connections"]["open"] == 2).then_some(())
    });
    for _ in 0..3 {
        assert!(gateway.connect().is_closed_by_server());
    }
    // It is sampled once a second.
    eventually("the rejections", || {
        (rejected() == json!({"max_connections_per_ip": 3})).then_some(())
    });
    let overloaded = json!({"descriptors": false, "memory": false, "paused": false});
    assert_eq!(status(&gateway)["overloaded"], overloaded);
    let top =
        crate::support::tollgate(&["top", "--once", "--admin", &gateway.admin.to_string()], "");
    let line = "closed     last minute: 3 max_connections_per_ip\n";
    assert!(top.stdout.contains(line), "{}", top.stdout);
}
