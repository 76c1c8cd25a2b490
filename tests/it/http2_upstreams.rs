//! Upstreams over HTTP/2, in clear and over TLS.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use crate::http2::Client;
use crate::support::{
    Authority, ClosedPort, Gateway, PeerServer, Request, Stopwatch, Upstream, eventually,
};

/// One route for all paths to this server. `rest` continues the table of the upstream.
fn config(server: &str, rest: &str) -> String {
    format!(
        "[upstreams.api]\nservers = [{server:?}]\n{rest}\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
    )
}

fn connections(gateway: &Gateway, reused: &str) -> u64 {
    gateway.count("tollgate_upstream_connections_total", &[("reused", reused)])
}

fn wait_for_log(gateway: &Gateway, words: &str) {
    eventually(words, || gateway.log().contains(words).then_some(()));
}

fn h2c() -> (PeerServer, Gateway) {
    let server = PeerServer::node(None);
    let gateway = Gateway::start(&config(&server.address.to_string(), "protocol = \"h2c\""));
    (server, gateway)
}

#[test]
fn requests_share_one_connection_in_clear() {
    let (server, gateway) = h2c();
    for number in 0..4 {
        let request = Request::new("POST", "/echo?a=b").without("Host").header("Host", "api.test");
        let answer = gateway.send(&request.body("x".repeat(number * 40_000)));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = answer.json();
        assert_eq!(seen["version"], "2.0");
        assert_eq!(seen["length"], number * 40_000);
        assert_eq!(seen["path"], "/echo?a=b");
        assert_eq!(seen["headers"][":authority"], "api.test");
        assert_eq!(seen["headers"][":scheme"], "http");
        assert_eq!(seen["headers"]["x-forwarded-proto"], "http");
        assert_eq!(seen["headers"]["connection"], serde_json::Value::Null);
    }
    assert_eq!(server.count("session"), 1, "{}", server.log());
    assert_eq!((connections(&gateway, "false"), connections(&gateway, "true")), (1, 3));
    assert_eq!(gateway.get("/large").body.len(), 1_000_000);
    assert_eq!(gateway.get("/trailers").status, 200);
    let head = gateway.send(&Request::new("HEAD", "/"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn burst_of_requests_opens_one_connection() {
    let (server, gateway) = h2c();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| assert_eq!(gateway.get("/").status, 200));
        }
    });
    assert_eq!(server.count("session"), 1, "{}", server.log());
    assert_eq!(server.count("request"), 40);
}

#[test]
fn connection_that_the_server_closes_loses_no_request() {
    let (server, gateway) = h2c();
    for _ in 0..20 {
        assert_eq!(gateway.get("/goaway").status, 200);
    }
    assert!(server.count("session") > 1, "{}", server.log());
}

#[test]
fn version_is_negotiated_over_tls_and_remembered() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let server = PeerServer::node(Some(&issued));
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let address = format!("https://{}", server.address);
    for (protocol, version) in [("auto", "2.0"), ("h2", "2.0"), ("http1", "1.1")] {
        let rest = format!("protocol = {protocol:?}\n{tls}");
        let gateway = Gateway::start(&config(&address, &rest));
        let mut connection = gateway.connect();
        for _ in 0..3 {
            let answer = connection.send(&Request::get("/"));
            assert_eq!(answer.json()["version"], version, "{protocol}");
        }
        assert_eq!((connections(&gateway, "false"), connections(&gateway, "true")), (1, 2));
    }
}

#[test]
fn server_over_tls_that_speaks_only_http1_is_used_with_auto_but_not_with_h2() {
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    // Speaks HTTP/1.1 only, and selects no protocol.
    let server = PeerServer::websocket(Some(&issued));
    let tls = format!("tls = {{ ca = {:?}, server_name = \"api.test\" }}", authority.ca());
    let address = format!("https://{}", server.address);
    let auto = Gateway::start(&config(&address, &tls));
    for _ in 0..3 {
        // It wants a WebSocket.
        assert_eq!(auto.get("/").status, 426);
    }
    let h2 = Gateway::start(&config(&address, &format!("protocol = \"h2\"\n{tls}")));
    assert_eq!(h2.get("/").status, 502);
}

#[test]
fn server_that_speaks_only_http1_is_a_502_with_h2c() {
    let server = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        false
    });
    let gateway = Gateway::start(&config(&server.address.to_string(), "protocol = \"h2c\""));
    assert_eq!(gateway.get("/").status, 502);
    let cause = "the server does not speak HTTP/2 correctly";
    eventually("the cause in the log", || gateway.log().contains(cause).then_some(()));
}

#[test]
fn server_that_cannot_be_connected_to_is_replaced_by_another() {
    let server = PeerServer::node(None);
    let closed = ClosedPort::bind();
    let config = format!(
        "[upstreams.api]\nservers = [{:?}, {:?}]\nprotocol = \"h2c\"\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n",
        closed.address.to_string(),
        server.address.to_string()
    );
    let gateway = Gateway::start(&config);
    for _ in 0..4 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "connect")]), 1);
}

#[test]
fn silent_server_is_a_504_after_the_read_timeout() {
    // Accepts connections, and never sends a byte.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let rest = "protocol = \"h2c\"\nread_timeout = \"300ms\"";
    let gateway = Gateway::start(&config(&address, rest));
    assert_eq!(gateway.get("/").status, 504);
    assert_eq!(gateway.send(&Request::new("POST", "/").body("x")).status, 504);
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "timeout")]), 2);
}

/// A request to a server, and the means to respond to it.
pub(crate) type Exchange = (http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>);

/// An HTTP/2 server in clear that responds by `script`.
pub(crate) async fn scripted<F>(
    script: impl Fn(Exchange) -> F + Send + Sync + 'static,
) -> std::net::SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok(exchange)) = connection.accept().await {
                    tokio::spawn(script(exchange));
                }
            });
        }
    });
    address
}

/// A server that refuses the first request (REFUSED_STREAM) and responds to others with their body.
pub(crate) async fn refusing_once() -> std::net::SocketAddr {
    let requests = Arc::new(AtomicUsize::new(0));
    scripted(move |(request, mut respond)| {
        let is_first = requests.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                return;
            }
            let mut body = request.into_body();
            let mut seen = Vec::new();
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                seen.extend_from_slice(&chunk);
            }
            let mut send = respond.send_response(http::Response::new(()), false).unwrap();
            send.send_data(Bytes::from(seen), true).unwrap();
        }
    })
    .await
}

/// A gateway with a second listener for HTTP/2 in clear, and a client of it.
pub(crate) async fn over_http2(server: std::net::SocketAddr) -> (Gateway, Client) {
    let config = config(&server.to_string(), "protocol = \"h2c\"");
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    let gateway = Gateway::start(&format!("{listener}{config}"));
    let client = Client::connect(gateway.listener(1)).await;
    (gateway, client)
}

pub(crate) fn request(method: &str, content_type: &str) -> http::Request<()> {
    let request = http::Request::builder().method(method).uri("http://api.test/");
    request.header("content-type", content_type).body(()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_fails_after_its_head_ends_with_its_status() {
    let server = scripted(|(_, mut respond)| async move {
        let mut send = respond.send_response(http::Response::new(()), false).unwrap();
        send.send_data(Bytes::from_static(b"part"), false).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        send.send_reset(h2::Reason::INTERNAL_ERROR);
    });
    let (gateway, mut client) = over_http2(server.await).await;
    let mut body = client.send(request("POST", "application/grpc")).await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "part");
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    let message = "The upstream could not be reached, or its response was invalid.";
    assert_eq!(trailers["grpc-message"], message);
    // Any other response is cut off.
    let mut body = client.send(request("POST", "text/plain")).await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "part");
    assert!(body.data().await.unwrap().is_err());
    wait_for_log(&gateway, "the server reset the HTTP/2 stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_after_a_head_without_a_body_is_discarded() {
    let server = scripted(|(request, mut respond)| async move {
        let status = if *request.method() == http::Method::HEAD { 200 } else { 204 };
        let head = http::Response::builder().status(status).body(()).unwrap();
        let mut send = respond.send_response(head, false).unwrap();
        let _ = send.send_data(Bytes::from_static(b"surplus"), true);
    });
    let (gateway, mut client) = over_http2(server.await).await;
    for method in ["HEAD", "GET", "HEAD", "GET"] {
        let response = client.send(request(method, "text/plain")).await.unwrap();
        let expected = if method == "HEAD" { 200 } else { 204 };
        assert_eq!(response.status(), expected);
        assert!(response.body().is_end_stream());
        let answer = gateway.send(&Request::new(method, "/"));
        assert_eq!((answer.status, answer.body.len()), (expected, 0));
    }
}

#[test]
fn deadline_that_passes_while_connecting_ejects_no_server() {
    let (_server, gateway) = h2c();
    let call = Request::new("POST", "/test.Echo/Unary").header("content-type", "application/grpc");
    let answer = gateway.send(&call.header("grpc-timeout", "1n").body("x"));
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("4")));
    wait_for_log(&gateway, "cause=\"the deadline of the call has passed\"");
    assert_eq!(gateway.count("tollgate_upstream_healthy", &[]), 1);
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "connect")]), 0);
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[("result", "timeout")]), 1);
}

/// The kernel finds a server that has disappeared: a timer of TCP keep-alive runs.
#[cfg(target_os = "linux")]
#[test]
fn idle_connections_have_tcp_keep_alive() {
    let (server, gateway) = h2c();
    assert_eq!(gateway.get("/").status, 200);
    let remote = format!("0100007F:{:04X}", server.address.port());
    eventually("the timer of TCP keep-alive", || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = sockets.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        // Also closed connections to an earlier server of this port are there. The kind of the
        // timer that runs: 02 is keep-alive.
        let is_kept = |row: Vec<&str>| {
            row.get(2) == Some(&&*remote)
                && row.get(5).is_some_and(|timer| timer.starts_with("02:"))
        };
        rows.any(is_kept).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_the_server_refuses_is_sent_again() {
    let address = refusing_once().await;
    let gateway = Gateway::start(&config(&address.to_string(), "protocol = \"h2c\""));
    let answer = gateway.send(&Request::new("POST", "/").body("sent again"));
    assert_eq!((answer.status, answer.text()), (200, "sent again".to_owned()));
    assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_of_a_grpc_call_is_its_only_time_limit() {
    // Accepts connections, and never sends a byte.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rest = "protocol = \"h2c\"\nread_timeout = \"100ms\"";
    let config = config(&server.local_addr().unwrap().to_string(), rest);
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    let gateway = Gateway::start(&format!("{listener}{config}"));
    let mut client = Client::connect(gateway.listener(1)).await;
    let mut call = request("POST", "application/grpc");
    call.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("900m"));
    let began = Stopwatch::start();
    let answer = client.send(call).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["grpc-status"] == "4"), (200, true));
    assert!(began.elapsed() >= Duration::from_millis(890), "{:?}", began.elapsed());
}

#[test]
fn refused_call_of_grpc_web_has_its_media_type_and_pushback() {
    let server = PeerServer::node(None);
    let config = config(&server.address.to_string(), "protocol = \"h2c\"");
    let gateway = Gateway::start(&format!("{config}[rules.all]\nper = []\nrate = \"1/d\"\n"));
    let call = || {
        let kind = "application/grpc-web+proto";
        gateway
            .send(&Request::new("POST", "/test.Echo/Unary").header("content-type", kind).body("x"))
    };
    assert_eq!(call().json()["headers"]["content-type"], "application/grpc-web+proto");
    let refused = call();
    assert_eq!((refused.status, refused.header("grpc-status")), (200, Some("8")));
    assert_eq!(refused.header("content-type"), Some("application/grpc-web"));
    let pushback: u64 = refused.header("grpc-retry-pushback-ms").unwrap().parse().unwrap();
    assert!((86_000_000..=86_400_000).contains(&pushback), "{pushback}");
}
