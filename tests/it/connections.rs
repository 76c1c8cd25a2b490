//! `max_connections` and `max_pending`: how many connections an upstream gets, and which requests
//! wait for one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::support::{
    ClosedPort, Connection, Gateway, Request, Upstream, is_closed_by_peer, proxy_to,
    send_concurrently, sleep_for, timed,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One route to these servers, with `settings` of the upstream.
fn config(servers: &[SocketAddr], settings: &str) -> String {
    proxy_to(servers).replace("[upstreams.api]", &format!("[upstreams.api]\n{settings}"))
}

/// The connections that a server has accepted and the gateway has not closed, and the most of them
/// at once.
///
/// The kernel is asked for those that the gateway has closed: the server's own reads notice it
/// late. `/proc/net/tcp` would list all sockets of the machine, which takes so long beside other
/// tests that connections wait to be accepted.
#[derive(Clone, Default)]
struct Open {
    connections: Arc<Mutex<Vec<TcpStream>>>,
    most: Arc<AtomicUsize>,
}

impl Open {
    fn add(&self, accepted: &TcpStream) {
        let mut connections = self.connections.lock();
        connections.push(accepted.try_clone().unwrap());
        // The end of a connection may arrive just after the one that was opened in its place.
        for _ in 0..3 {
            connections.retain(|connection| !is_closed_by_peer(connection));
        }
        self.most.fetch_max(connections.len(), Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// A server over HTTP/1.1 that takes a few milliseconds for each request without a body.
fn counting() -> (SocketAddr, Open) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let open = Open::default();
    let counted = open.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            counted.add(&stream);
            std::thread::spawn(move || serve(stream));
        }
    });
    (address, open)
}

fn serve(mut stream: TcpStream) {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        head.extend_from_slice(&buffer[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            sleep_for(Duration::from_millis(2));
            if stream.write_all(OK).is_err() {
                return;
            }
        }
    }
}

#[test]
fn row_154_upstream_gets_at_most_max_connections_from_64_clients() {
    let (address, open) = counting();
    let settings = "max_connections = 8\nconnect_timeout = \"10s\"";
    let gateway = Gateway::start(&config(&[address], settings));
    let url = gateway.url("/");
    let counts = send_concurrently(64, 2_000, |client, _| client.get(&url));
    assert_eq!(counts.get(&200), Some(&2_000), "{counts:?}");
    assert!((2..=8).contains(&open.most()), "{}", open.most());
    let gauge = |name| gateway.count(name, &[("upstream", "api")]);
    assert!((1..=8).contains(&gauge("tollgate_upstream_connections_open")));
    assert_eq!(gauge("tollgate_upstream_pending_requests"), 0);
}

#[test]
fn row_154_connections_to_several_servers_are_bounded_together() {
    let servers = [counting(), counting(), counting()];
    let addresses = servers.each_ref().map(|(address, _)| *address);
    let settings = "max_connections = 2\nconnect_timeout = \"10s\"";
    let gateway = Gateway::start(&config(&addresses, settings));
    let url = gateway.url("/");
    let counts = send_concurrently(16, 300, |client, _| client.get(&url));
    assert_eq!(counts.get(&200), Some(&300), "{counts:?}");
    assert!(servers.iter().all(|(_, open)| (1..=2).contains(&open.most())));
    // Idle connections to one server are closed for another: one at a time is enough.
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_154_connections_over_http2_are_bounded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Open::default();
    let counted = open.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = stream.into_std().unwrap();
            counted.add(&stream);
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.max_concurrent_streams(4);
                let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
                    return;
                };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        let _ = respond.send_response(http::Response::new(()), true);
                    });
                }
            });
        }
    });
    let settings = "protocol = \"h2c\"\nmax_connections = 3\nconnect_timeout = \"10s\"";
    let gateway = Gateway::start(&config(&[address], settings));
    let url = gateway.url("/");
    let sent = move || send_concurrently(64, 1_000, |client, _| client.get(&url));
    let counts = tokio::task::spawn_blocking(sent).await.unwrap();
    assert_eq!(counts.get(&200), Some(&1_000), "{counts:?}");
    assert!((1..=3).contains(&open.most()), "{}", open.most());
}

/// Sends a request that the server holds, on a connection of its own.
fn held(gateway: &Gateway, upstream: &Upstream) -> Connection {
    let mut connection = gateway.connect();
    connection.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_for_requests(1);
    connection
}

#[test]
fn row_155_request_without_a_free_connection_is_503_and_costs_nothing() {
    let (upstream, latch) = Upstream::holding();
    let settings = "max_connections = 1\nmax_pending = 1\nconnect_timeout = \"4s\"";
    let rule = "[rules.all]\nper = []\nrate = \"10/365d\"\n";
    let gateway = Gateway::start(&(config(&[upstream.address], settings) + rule));
    let mut first = held(&gateway, &upstream);
    let ((), took) = timed(|| {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| gateway.get("/"));
            gateway.wait_for_count("tollgate_upstream_pending_requests", &[("upstream", "api")], 1);
            // No other one may wait.
            let refused = gateway.get("/");
            assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
            assert_eq!(refused.json()["detail"], "All connections to the upstream are in use.");
            assert_eq!(waits.join().unwrap().status, 503);
        });
    });
    assert!(took >= Duration::from_millis(3_900), "{took:?}");
    gateway.wait_for_count("tollgate_rejections_total", &[("reason", "upstream_overflow")], 2);
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "overflow")]), 2);
    // The server is well, and is not ejected.
    assert_eq!(gateway.count("tollgate_upstream_healthy", &[]), 1);
    latch.open();
    assert_eq!(first.read_response("GET").status, 200);
    let last = gateway.get("/");
    assert_eq!((last.status, last.remaining()), (200, 8));
}

#[test]
fn request_waits_for_a_connection_within_its_own_time_limit() {
    let (upstream, latch) = Upstream::holding();
    let settings = "max_connections = 1\nconnect_timeout = \"20s\"";
    let quick = "[routes.quick]\npath = \"/quick\"\ntimeout = \"300ms\"\n";
    let gateway = Gateway::start(&(config(&[upstream.address], settings) + quick));
    let mut first = held(&gateway, &upstream);
    let (answer, took) = timed(|| gateway.get("/quick"));
    assert_eq!(answer.status, 504);
    assert!((280..10_000).contains(&took.as_millis()), "{took:?}");
    gateway.wait_for_count("tollgate_rejections_total", &[("reason", "request_timeout")], 1);
    latch.open();
    assert_eq!(first.read_response("GET").status, 200);
}

#[test]
fn row_155_client_that_leaves_and_server_that_fails_free_their_connection() {
    let (upstream, latch) = Upstream::holding();
    let settings = "max_connections = 1\nread_timeout = \"3s\"";
    let gateway = Gateway::start(&config(&[upstream.address], settings));
    for _ in 0..3 {
        let mut leaves = gateway.connect();
        leaves.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        sleep_for(Duration::from_millis(50));
        drop(leaves);
    }
    assert_eq!(gateway.get("/").status, 504);
    latch.open();
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let closed = ClosedPort::bind();
    let gateway = Gateway::start(&config(&[closed.address], "max_connections = 1"));
    for _ in 0..3 {
        assert_eq!(gateway.send(&Request::get("/")).status, 502);
    }
    assert_eq!(gateway.count("tollgate_upstream_connections_open", &[("upstream", "api")]), 0);
}
