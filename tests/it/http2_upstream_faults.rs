//! Upstreams over HTTP/2 that change, disappear or are slower or faster than their clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::http2_upstreams::{Exchange, over_http2, refusing_once, request, scripted};
use crate::support::{
    Authority, CpuWaits, Gateway, Issued, Request, Stopwatch, Upstream, eventually,
    inconclusive_if_waited, sleep_for, timed, timed_below, within,
};

/// One route for all paths to this server. `rest` continues the table of the upstream.
fn config(server: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{server:?}]\n{rest}\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

/// A server over TLS that speaks one version of HTTP, `h2` or `http/1.1`, and refuses handshakes
/// that do not offer it. Each change of the version closes all connections, as a restart does.
struct TlsServer {
    address: SocketAddr,
    version: watch::Sender<&'static str>,
    open: Arc<AtomicU64>,
}

impl TlsServer {
    async fn start(issued: &Issued, version: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (version, follower) = watch::channel(version);
        let (issued, open) = (issued.clone(), Arc::new(AtomicU64::new(0)));
        let connections = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connections = Arc::clone(&connections);
                connections.fetch_add(1, Ordering::SeqCst);
                let mut changes = follower.clone();
                let version = *changes.borrow_and_update();
                let acceptor = acceptor(&issued, version);
                tokio::spawn(async move {
                    let serve = async {
                        let Ok(stream) = acceptor.accept(stream).await else { return };
                        if version == "h2" { http2(stream).await } else { http1(stream).await }
                    };
                    tokio::select! {
                        () = serve => {}
                        _ = changes.changed() => {}
                    }
                    connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, version, open }
    }

    fn restart(&self, version: &'static str) {
        self.version.send_replace(version);
        let is_closed = || (self.open.load(Ordering::SeqCst) == 0).then_some(());
        eventually("the end of all connections", is_closed);
    }
}

fn acceptor(issued: &Issued, version: &str) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&issued.certificate).unwrap();
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&issued.key).unwrap();
    let builder = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![version.as_bytes().to_vec()];
    Arc::new(config).into()
}

/// Responds to requests without a body.
async fn http1(mut stream: TlsStream<TcpStream>) {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        head.extend_from_slice(&buffer[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n1.1";
            stream.write_all(response).await.unwrap();
        }
    }
}

async fn http2(stream: TlsStream<TcpStream>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        send.send_data(Bytes::from_static(b"2"), true).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_changes_its_version_of_http_loses_no_request() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let server = TlsServer::start(&issued, "http/1.1").await;
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let gateway = Gateway::start(&config(&format!("https://{}", server.address), &tls));
    let mut connection = gateway.connect();
    for version in ["http/1.1", "h2", "http/1.1", "h2"] {
        server.restart(version);
        for _ in 0..3 {
            let answer = connection.send(&Request::get("/"));
            assert_eq!(answer.status, 200, "{version}: {}", gateway.log());
            assert_eq!(format!("http/{}", answer.text()).replace("http/2", "h2"), version);
        }
    }
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "connect")]), 0);
}

/// A server that sends this many interim responses, as the path says, and then the final one.
async fn interim((request, mut respond): Exchange) {
    let path = request.uri().path().to_owned();
    let interim = |status: u16| {
        let head = http::Response::builder().status(status).header("link", "</a.css>; rel=preload");
        head.body(()).unwrap()
    };
    if path == "/continue" {
        respond.send_informational(interim(100)).unwrap();
    } else {
        for _ in 0..path[1..].parse().unwrap() {
            respond.send_informational(interim(103)).unwrap();
            // Sent one by one.
            tokio::task::yield_now().await;
        }
    }
    let mut send = respond.send_response(http::Response::new(()), false).unwrap();
    send.send_data(Bytes::from_static(b"ok"), true).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interim_responses_are_forwarded_to_clients_of_http1_up_to_the_maximum() {
    let (gateway, mut client) = over_http2(scripted(interim).await).await;
    for count in [0, 1, 32] {
        let mut connection = gateway.connect();
        let mut answer = connection.send(&Request::get(&format!("/{count}")));
        for _ in 0..count {
            assert_eq!(
                (answer.status, answer.header("link")),
                (103, Some("</a.css>; rel=preload"))
            );
            answer = connection.read_response("GET");
        }
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        assert_eq!(answer.header("link"), None);
    }
    // HTTP/1.0 has none, and the gateway itself sends the 100.
    let mut connection = gateway.connect();
    connection.write(b"GET /3 HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(connection.read_response("GET").status, 200);
    assert_eq!(gateway.get("/continue").status, 200);
    let mut connection = gateway.connect();
    let mut answer = connection.send(&Request::get("/33"));
    while answer.status == 103 {
        answer = connection.read_response("GET");
    }
    assert_eq!(answer.status, 502);
    // Pingora forwards none to clients of HTTP/2.
    let mut head = request("GET", "text/plain");
    *head.uri_mut() = "http://api.test/3".parse().unwrap();
    assert_eq!(client.send(head).await.unwrap().status(), 200);
}

/// Deadlines that clients choose.
#[test]
fn client_that_chooses_short_deadlines_does_not_flood_the_log() {
    // Accepts connections, and never sends a byte.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let gateway = Gateway::start(&config(&address, "protocol = \"h2c\""));
    let call = Request::new("POST", "/test.Echo/Unary")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "1n");
    let ((), took) = timed(|| {
        for _ in 0..100 {
            assert_eq!(gateway.send(&call).header("grpc-status"), Some("4"));
        }
    });
    let lines = || gateway.log().matches("the deadline of the call has passed").count();
    eventually("a line in the log", || (lines() > 0).then_some(()));
    let most = 2 + usize::try_from(took.as_secs() / 10).unwrap();
    assert!(lines() <= most, "{} lines in {took:?}:\n{}", lines(), gateway.log());
    // A failure of the server is logged at once, whatever clients have caused before.
    drop(server);
    assert_eq!(gateway.send(&Request::get("/")).status, 502);
    eventually("a line", || gateway.log().contains("status=502").then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_a_server_without_grpc_do_not_flood_the_log() {
    let server = Upstream::echo();
    let rest = config(&server.address.to_string(), "");
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    let gateway = Gateway::start(&format!("{listener}{rest}"));
    let ((), took) = timed(|| {
        let client = async {
            let mut client = crate::http2::Client::connect(gateway.listener(1)).await;
            for _ in 0..50 {
                let response = client.send(request("POST", "application/grpc")).await.unwrap();
                assert_eq!(response.headers()["grpc-status"], "14");
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(client));
    });
    let lines = || gateway.log().matches("which cannot carry gRPC").count();
    eventually("a line in the log", || (lines() > 0).then_some(()));
    let most = 2 + usize::try_from(took.as_secs() / 10).unwrap();
    assert!(lines() <= most, "{} lines in {took:?}", lines());
}

/// Streams that a client opens without reading them.
const STREAMS: u64 = 50;

/// What the gateway may hold of each: the window to the server (128 KiB), a part on its way (64
/// KiB), and the buffer to the client (64 KiB).
const STREAM_BYTES: u64 = 256 * 1024;

/// What the connections and the allocator may need besides.
const OTHER_BYTES: u64 = 12 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_bounded_if_a_client_does_not_read() {
    let total = Arc::new(AtomicU64::new(0));
    let server = scripted({
        let total = Arc::clone(&total);
        move |(_, mut respond)| {
            let total = Arc::clone(&total);
            async move {
                let mut send = respond.send_response(http::Response::new(()), false).unwrap();
                let part = Bytes::from(vec![b'x'; 16 * 1024]);
                loop {
                    send.reserve_capacity(part.len());
                    let capacity =
                        std::future::poll_fn(|context| send.poll_capacity(context)).await;
                    let Some(Ok(capacity)) = capacity else { return };
                    let part = part.slice(..capacity.min(part.len()));
                    total.fetch_add(part.len() as u64, Ordering::SeqCst);
                    if send.send_data(part, false).is_err() {
                        return;
                    }
                }
            }
        }
    })
    .await;
    let (gateway, mut warm) = over_http2(server).await;
    // Code and connections that every request needs.
    drop(warm.send(request("GET", "text/plain")).await.unwrap());
    let (before, _) = gateway.memory_bytes();
    total.store(0, Ordering::SeqCst);
    let stream = TcpStream::connect(gateway.listener(1)).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
    let (mut client, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let heads: Vec<_> = (0..STREAMS)
        .map(|_| client.send_request(request("GET", "text/plain"), true).unwrap())
        .collect();
    // Reads until all requests have been sent, and not again.
    let started = async {
        while total.load(Ordering::SeqCst) < STREAMS * 64 * 1024 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = &mut connection => panic!("{end:?}"),
        () = started => {}
    }
    // Until the server cannot send any more.
    let latest = Duration::from_secs(15);
    let (mut previous, mut equal) = (0, 0);
    let waits = CpuWaits::now();
    let stalled = within(latest, || {
        sleep_for(Duration::from_millis(250));
        let now = total.load(Ordering::SeqCst);
        equal = if std::mem::replace(&mut previous, now) == now { equal + 1 } else { 0 };
        (equal == 4).then_some(())
    });
    let (_, peak) = gateway.memory_bytes();
    if stalled.is_none() {
        inconclusive_if_waited("the server still sends", &waits, latest / 2);
    }
    let growth = peak.saturating_sub(before);
    println!("{growth} bytes for {STREAMS} streams; the server sent {previous} bytes");
    assert!(growth < STREAMS * STREAM_BYTES + OTHER_BYTES, "{growth} bytes");
    drop((heads, connection));
}

/// A TCP proxy whose open connections can be frozen: they stay open, and pass nothing on. New ones
/// work.
struct FreezingProxy {
    address: SocketAddr,
    frozen: watch::Sender<u64>,
}

impl FreezingProxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (frozen, follower) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut changes = follower.clone();
                changes.mark_unchanged();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
                        _ = changes.changed() => {}
                    }
                    // Keeps both ends open.
                    std::future::pending::<()>().await;
                    drop((client, server));
                });
            }
        });
        Self { address, frozen }
    }

    fn freeze(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_died_silently_is_closed_and_replaced() {
    let server = scripted(|(request, mut respond)| async move {
        if request.uri().path() == "/silent" {
            return std::future::pending().await;
        }
        let _ = respond.send_response(http::Response::new(()), true);
    });
    let proxy = FreezingProxy::start(server.await).await;
    let rest = "protocol = \"h2c\"\nread_timeout = \"2s\"";
    let gateway = Gateway::start(&config(&proxy.address.to_string(), rest));
    tokio::task::block_in_place(|| {
        assert_eq!(gateway.get("/").status, 200);
        proxy.freeze();
        let is_answered = || (gateway.get("/").status == 200).then_some(());
        let watch = Stopwatch::start();
        // Seventeen seconds, and the last request that waits for two.
        let found =
            timed_below(Duration::from_secs(20), || within(Duration::from_secs(40), is_answered));
        let took = watch.elapsed();
        assert!(found.is_some(), "still dead after {took:?}:\n{}", gateway.log());
        // A server may be silent for 15 s: five until it is asked, and ten for its answer.
        assert!(took >= Duration::from_secs(15), "given up after {took:?}");
        let line = "a server does not answer on an HTTP/2 connection, which is closed";
        eventually("the log line", || gateway.log().contains(line).then_some(()));
    });
}

/// The frames of HTTP/2 that gRPC needs, exactly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_follow_the_body_or_are_the_whole_response() {
    let server = scripted(|(request, mut respond)| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let status = |code| http::HeaderValue::from_static(code);
        if request.headers()["content-type"] == "application/grpc+only" {
            let head = http::Response::builder().header("grpc-status", "5");
            let head = head.header("grpc-message", "none").body(()).unwrap();
            respond.send_response(head, true).unwrap();
            return;
        }
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        send.send_data(Bytes::from_static(b"part"), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", status("13"));
        trailers.append("x-more", status("1"));
        trailers.append("x-more", status("2"));
        send.send_trailers(trailers).unwrap();
    });
    let (_gateway, mut client) = over_http2(server.await).await;
    let call = |kind: &str| {
        let mut call = request("POST", kind);
        call.headers_mut().insert("te", http::HeaderValue::from_static("trailers"));
        call
    };
    let mut body = client.send(call("application/grpc")).await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "part");
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "13");
    assert_eq!(trailers.get_all("x-more").iter().collect::<Vec<_>>(), ["1", "2"]);
    let only = client.send(call("application/grpc+only")).await.unwrap();
    assert_eq!(
        (only.status().as_u16(), &only.headers()["grpc-status"]),
        (200, &"5".parse().unwrap())
    );
    assert_eq!(only.headers()["grpc-message"], "none");
    assert!(only.body().is_end_stream());
}

/// The server does not want the rest of the request, and says so by a reset with NO_ERROR after its
/// response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_before_the_end_of_the_request_is_complete() {
    let server = scripted(|(request, mut respond)| async move {
        let is_empty = request.uri().path() == "/empty";
        let head = http::Response::builder().status(413).body(()).unwrap();
        let mut send = respond.send_response(head, is_empty).unwrap();
        if !is_empty {
            send.send_data(Bytes::from_static(b"too large"), true).unwrap();
        }
        // The library sends the reset when the body is dropped.
    });
    let (gateway, mut client) = over_http2(server.await).await;
    for path in ["/", "/empty"] {
        let expected = if path == "/" { "too large" } else { "" };
        for _ in 0..10 {
            let upload = Request::new("POST", path).body("x".repeat(300_000));
            let answer = gateway.send(&upload);
            assert_eq!((answer.status, answer.text().as_str()), (413, expected));
            let mut head = request("POST", "text/plain");
            *head.uri_mut() = format!("http://api.test{path}").parse().unwrap();
            let (response, mut upload) = client.send.send_request(head, false).unwrap();
            // An error means that the response has ended before.
            let _ = upload.send_data(Bytes::from(vec![b'x'; 60_000]), false);
            let mut body = response.await.unwrap().into_body();
            let mut text = Vec::new();
            while let Some(part) = body.data().await {
                match part {
                    Ok(part) => text.extend_from_slice(&part),
                    // The gateway, too, says so.
                    Err(error) => {
                        assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR));
                        break;
                    }
                }
            }
            assert_eq!(text, expected.as_bytes());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_before_the_end_of_a_response_to_a_whole_request_cuts_it_off() {
    for length in [Some("10"), None] {
        assert_reset_cuts_off(length).await;
    }
}

/// The server begins a response with this `Content-Length`, and resets the stream with NO_ERROR.
async fn assert_reset_cuts_off(length: Option<&'static str>) {
    let server = scripted(move |(_, mut respond)| async move {
        let mut head = http::Response::builder();
        if let Some(length) = length {
            head = head.header("content-length", length);
        }
        let head = head.body(()).unwrap();
        let mut send = respond.send_response(head, false).unwrap();
        send.send_data(Bytes::from_static(b"part"), false).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        send.send_reset(h2::Reason::NO_ERROR);
    });
    let (gateway, mut client) = over_http2(server.await).await;
    let answer = gateway.get("/");
    assert!(answer.status != 200 || !answer.complete, "{answer:?}");
    let mut body = client.send(request("GET", "text/plain")).await.unwrap().into_body();
    let mut received = Vec::new();
    // The part before the reset may get lost, but there is no clean end.
    let error = loop {
        match body.data().await {
            Some(Ok(part)) => received.extend_from_slice(&part),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(b"part".starts_with(&received), "{received:?}");
    assert!(error.is_some(), "{length:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_its_beginning_is_sent_to_no_server() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    tokio::spawn({
        let (issued, seen) = (issued.clone(), Arc::clone(&seen));
        async move {
            // Over HTTP/2 it refuses a request whose body has begun, and then it speaks HTTP/1.1
            // only.
            let stream = listener.accept().await.unwrap().0;
            let stream = acceptor(&issued, "h2").accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            tokio::spawn(async move {
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    tokio::spawn(async move {
                        let _ = request.into_body().data().await;
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                    });
                }
            });
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = acceptor(&issued, "http/1.1").accept(stream).await.unwrap();
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    seen.fetch_add(length as u64, Ordering::SeqCst);
                }
            }
        }
    });
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let gateway = Gateway::start(&config(&format!("https://{address}"), &tls));
    let answer = gateway.send(&Request::new("POST", "/").body("x".repeat(30_000)));
    assert_eq!(answer.status, 502, "{}", gateway.log());
    let cause = "the server changed to HTTP/1.1 after a part of the request was sent";
    eventually("the cause in the log", || gateway.log().contains(cause).then_some(()));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

/// The server does not read the body. The rest of it must not become a part of the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rest_of_an_unwanted_body_is_not_read_as_a_request() {
    let lines = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let server = scripted({
        let lines = Arc::clone(&lines);
        move |(request, mut respond)| {
            lines.lock().push(format!("{} {}", request.method(), request.uri().path()));
            async move {
                let mut send = respond.send_response(http::Response::new(()), false).unwrap();
                for _ in 0..20 {
                    send.send_data(Bytes::from_static(b"0123456789"), false).unwrap();
                    tokio::task::yield_now().await;
                }
                send.send_data(Bytes::new(), true).unwrap();
            }
        }
    });
    let gateway = Gateway::start(&config(&server.await.to_string(), "protocol = \"h2c\""));
    for number in 0..40 {
        let mut connection = gateway.connect();
        connection.write(b"POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
        connection.write(&vec![b'A'; 30_000]);
        // The rest arrives at different times after the reset.
        tokio::time::sleep(Duration::from_millis(number % 8)).await;
        connection.write(&vec![b'B'; 30_000]);
        connection.write(b"GET /two HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = connection.read_response("POST");
        assert_eq!((answer.complete, answer.body.len()), (true, 200));
        // Or the connection was closed.
        if let Some(answer) = connection.try_read_response("GET") {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let lines = lines.lock();
    assert!(lines.iter().all(|line| ["POST /one", "GET /two"].contains(&&**line)), "{lines:?}");
    assert!(lines.contains(&"GET /two".to_owned()));
}

/// Pipelined requests over an upstream of HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_get_their_own_responses() {
    let server = scripted(|(request, mut respond)| async move {
        let path = request.uri().path().to_owned();
        let mut body = request.into_body();
        let mut seen = path.into_bytes();
        while let Some(Ok(part)) = body.data().await {
            let _ = body.flow_control().release_capacity(part.len());
            seen.extend_from_slice(&part);
        }
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        send.send_data(Bytes::from(seen), true).unwrap();
    });
    let gateway = Gateway::start(&config(&server.await.to_string(), "protocol = \"h2c\""));
    let mut connection = gateway.connect();
    let requests = (0..10).map(|number| {
        format!(
            "GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n\
             POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz\
             PUT /{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nuv\r\n0\r\n\r\n"
        )
    });
    let all = requests.collect::<String>();
    connection.write(all.as_bytes());
    for number in 0..10 {
        assert_eq!(connection.read_response("GET").text(), format!("/{number}"));
        assert_eq!(connection.read_response("POST").text(), format!("/{number}xyz"));
        assert_eq!(connection.read_response("PUT").text(), format!("/{number}uv"));
    }
}

/// Whether a body ends with an error.
async fn is_cut(body: &mut h2::RecvStream) -> bool {
    while let Some(part) = body.data().await {
        if part.is_err() {
            return true;
        }
    }
    false
}

/// Where a server resets a stream.
const PHASES: [&str; 3] = ["request", "head", "body"];

const REASONS: [h2::Reason; 5] = [
    h2::Reason::NO_ERROR,
    h2::Reason::INTERNAL_ERROR,
    h2::Reason::CANCEL,
    h2::Reason::ENHANCE_YOUR_CALM,
    h2::Reason::REFUSED_STREAM,
];

/// Resets the stream as the path says: `/PHASE/REASON`.
async fn resetting((request, mut respond): Exchange) {
    let path = request.uri().path().to_owned();
    let (phase, reason) = path[1..].split_once('/').unwrap();
    let reason = h2::Reason::from(reason.parse::<u32>().unwrap());
    if phase == "request" {
        respond.send_reset(reason);
        return;
    }
    let head = http::Response::builder().header("content-length", "10").body(()).unwrap();
    let mut send = respond.send_response(head, false).unwrap();
    if phase == "body" {
        send.send_data(Bytes::from_static(b"part"), false).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    send.send_reset(reason);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_in_any_phase_is_no_complete_response_and_repeats_no_request() {
    let requests = Arc::new(AtomicU64::new(0));
    let server = scripted({
        let requests = Arc::clone(&requests);
        move |exchange| {
            requests.fetch_add(1, Ordering::SeqCst);
            resetting(exchange)
        }
    });
    let (_gateway, mut client) = over_http2(server.await).await;
    for phase in PHASES {
        for reason in REASONS {
            for method in ["POST", "GET"] {
                let case = format!("{method} {phase} {reason:?}");
                let mut head = request(method, "text/plain");
                let uri = format!("http://api.test/{phase}/{}", u32::from(reason));
                *head.uri_mut() = uri.parse().unwrap();
                requests.store(0, Ordering::SeqCst);
                let response = client.send(head).await.unwrap();
                // Only a request that the server says it has not processed is sent again, once.
                let is_refused = phase == "request" && reason == h2::Reason::REFUSED_STREAM;
                let sent = requests.load(Ordering::SeqCst);
                assert_eq!(sent, if is_refused { 2 } else { 1 }, "{case}");
                let status = if phase == "request" { 502 } else { 200 };
                assert_eq!(response.status(), status, "{case}");
                let mut body = response.into_body();
                let is_cut = is_cut(&mut body).await;
                assert_eq!(is_cut, phase != "request", "{case}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_sent_again_is_charged_once() {
    let address = refusing_once().await.to_string();
    let rule = "[rules.all]\nper = []\nrate = \"10/d\"\n";
    let gateway = Gateway::start(&format!("{}{rule}", config(&address, "protocol = \"h2c\"")));
    let answer = gateway.send(&Request::new("POST", "/").body("once"));
    assert_eq!((answer.status, answer.remaining()), (200, 9));
    assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 1);
}

/// Header lines of about 1 KB each.
fn large(lines: usize) -> http::HeaderMap {
    let value = http::HeaderValue::from_str(&"x".repeat(1_000)).unwrap();
    let name = |line| format!("x-line-{line}").parse::<http::HeaderName>().unwrap();
    (0..lines).map(|line| (name(line), value.clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_and_trailers_of_two_megabytes_fail_their_own_request_only() {
    let server = scripted(|(request, mut respond)| async move {
        let mut head = http::Response::new(());
        let path = request.uri().path().to_owned();
        if path == "/head" {
            *head.headers_mut() = large(2_000);
        }
        let Ok(mut send) = respond.send_response(head, false) else { return };
        let _ = send.send_data(Bytes::from_static(b"part"), false);
        let lines = if path == "/trailers" { 2_000 } else { 100 };
        let _ = send.send_trailers(large(lines));
    });
    let (gateway, mut client) = over_http2(server.await).await;
    let call = |path: &str| {
        let mut head = request("POST", "text/plain");
        *head.uri_mut() = format!("http://api.test{path}").parse().unwrap();
        head
    };
    for _ in 0..3 {
        assert_eq!(client.send(call("/head")).await.unwrap().status(), 502);
        assert_eq!(gateway.get("/head").status, 502);
        let mut body = client.send(call("/trailers")).await.unwrap().into_body();
        assert!(is_cut(&mut body).await || body.trailers().await.is_err());
        let mut body = client.send(call("/")).await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "part");
        assert!(body.data().await.is_none());
        assert_eq!(body.trailers().await.unwrap().unwrap().len(), 100);
        assert_eq!(gateway.get("/").text(), "part");
    }
}
