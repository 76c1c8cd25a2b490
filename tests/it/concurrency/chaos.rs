//! Many clients that end their requests in all ways at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::config;
use super::counting::Counting;
use super::gateways::assert_limit_of_20_holds;
use crate::support::{Gateway, TIMEOUT};

/// Clients, until they are stopped.
pub(super) struct Clients {
    runtime: tokio::runtime::Runtime,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    stops: Arc<AtomicBool>,
    /// Number of responses with 200 or 101, and with 429.
    counts: Arc<[AtomicUsize; 2]>,
    /// Other ends of requests whose clients wait for a response.
    failures: Arc<Mutex<Vec<String>>>,
}

impl Clients {
    /// Starts `count` clients of these listeners: of HTTP/1.1, and of HTTP/2.
    pub(super) fn start(count: usize, targets: &[(SocketAddr, SocketAddr)]) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let (stops, counts) = (Arc::<AtomicBool>::default(), Arc::<[AtomicUsize; 2]>::default());
        let failures = Arc::<Mutex<Vec<String>>>::default();
        let task = |number: usize| {
            let (http1, http2) = targets[number % targets.len()];
            let (stops, counts) = (Arc::clone(&stops), Arc::clone(&counts));
            let failures = Arc::clone(&failures);
            runtime.spawn(async move {
                let mut random = number as u64 + 1;
                while !stops.load(Ordering::SeqCst) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pause = Duration::from_millis((random >> 40) % 30);
                    let how = (random >> 33) % 8;
                    let response = timeout(TIMEOUT, request(http1, http2, how, pause)).await;
                    let status = response.as_ref().ok().copied().flatten();
                    match status {
                        Some(200 | 101) => drop(counts[0].fetch_add(1, Ordering::SeqCst)),
                        Some(429) => {
                            counts[1].fetch_add(1, Ordering::SeqCst);
                            // The refused clients ask for units a thousand times a second.
                            sleep(3 * pause).await;
                        }
                        None if [4, 5].contains(&how) => {}
                        _ => failures.lock().push(format!("request {how}: {response:?}")),
                    }
                }
            })
        };
        let tasks = (0..count).map(task).collect();
        Self { runtime, tasks, stops, counts, failures }
    }

    /// Stops them, and returns how many requests have passed and were refused. Asserts that no
    /// other request failed than those that clients gave up.
    #[track_caller]
    pub(super) fn stop(self) -> (usize, usize) {
        self.stops.store(true, Ordering::SeqCst);
        for task in self.tasks {
            self.runtime.block_on(task).unwrap();
        }
        let failures = self.failures.lock();
        let some = failures.iter().take(5).collect::<Vec<_>>();
        assert!(failures.is_empty(), "{} requests failed, such as {some:?}", failures.len());
        (self.counts[0].load(Ordering::SeqCst), self.counts[1].load(Ordering::SeqCst))
    }
}

/// Sends one request and ends it. Returns the status of the response, if there was one.
async fn request(http1: SocketAddr, http2: SocketAddr, how: u64, pause: Duration) -> Option<u16> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    match how {
        0 | 1 => send(http1, &get("/slow"), Duration::ZERO).await,
        2 => send(http1, &get("/"), Duration::ZERO).await,
        3 => send(http1, &get("/cut"), Duration::ZERO).await,
        // The client leaves: before there is a response, and while it sends its body.
        4 => timeout(pause, send(http1, &get("/hang"), Duration::ZERO)).await.ok().flatten(),
        5 => {
            let part = "POST /hang HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\npart";
            timeout(pause, send(http1, part, Duration::ZERO)).await.ok().flatten()
        }
        6 => {
            let upgrade =
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            send(http1, upgrade, pause).await
        }
        _ => reset(http2, pause).await,
    }
}

/// Sends bytes, reads the head of the response, and closes the connection after `pause`.
async fn send(address: SocketAddr, bytes: &str, pause: Duration) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(bytes.as_bytes()).await.ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.ok()?;
    sleep(pause).await;
    std::str::from_utf8(&head[9..]).ok()?.parse().ok()
}

/// Sends a request over HTTP/2 that hangs, and resets its stream after `pause`; then one that is
/// answered.
async fn reset(address: SocketAddr, pause: Duration) -> Option<u16> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (client, connection) = h2::client::handshake(stream).await.ok()?;
    let connection = tokio::spawn(connection);
    let request = |path: &str| Request::get(format!("http://a{path}")).body(()).unwrap();
    let mut client = client.ready().await.ok()?;
    let (response, mut sender) = client.send_request(request("/hang"), true).ok()?;
    let _ = timeout(pause, response).await;
    sender.send_reset(h2::Reason::CANCEL);
    let (response, _) = client.send_request(request("/slow"), true).ok()?;
    let response = response.await.ok()?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while body.data().await.is_some_and(|data| data.is_ok()) {}
    connection.abort();
    Some(status)
}

/// The addresses of a gateway whose second listener speaks HTTP/2.
pub(super) fn addresses(gateway: &Gateway) -> (SocketAddr, SocketAddr) {
    (gateway.address, gateway.listener(1))
}

pub(super) const HTTP2: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";

#[test]
fn limit_holds_for_64_clients_that_end_in_all_ways_and_nothing_leaks() {
    let upstream = Counting::start();
    let gateway = Gateway::start(&config(&upstream, HTTP2, "limit = 20"));
    assert_limit_of_20_holds(&[gateway], &upstream, Duration::from_secs(4));
}
