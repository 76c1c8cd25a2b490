//! Limits on the size and number of requests: `max_body_bytes`, `max_headers` and
//! `max_requests_per_connection`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use http::Method;

use crate::http2::Client;
use crate::support::{DEMO, Gateway, PeerServer, Request, TIMEOUT, Upstream, proxy_to};

/// A rule whose tokens are not refilled during a test.
const RULE: &str = "[rules.all]\nper = []\nrate = \"100/d\"\n";

/// `limits` continues the `[server]` table; routes to `upstream`.
fn with_limits(limits: &str, upstream: SocketAddr) -> String {
    format!("[server.limits]\n{limits}\n{}{RULE}", proxy_to(&[upstream]))
}

/// An upstream that responds to nothing. The channel returns all bytes of a connection, at its end.
fn recorder() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (send, received) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut bytes = Vec::new();
            let mut part = [0; 4096];
            // A reset also ends the bytes.
            while let Ok(count @ 1..) = stream.read(&mut part) {
                bytes.extend_from_slice(&part[..count]);
            }
            if send.send(bytes).is_err() {
                return;
            }
        }
    });
    (address, received)
}

#[test]
fn body_with_a_length_over_the_limit_is_413_without_the_upstream_and_without_tokens() {
    let upstream = Upstream::echo();
    let config = with_limits("max_body_bytes = 10", upstream.address);
    let gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    let post = |len: usize| Request::new("POST", "/").body("x".repeat(len));
    let refused = client.send(&post(11));
    assert_eq!(refused.status, 413);
    assert_eq!(refused.json()["detail"], "The body is larger than 10 bytes.");
    // The rest of a short body is read, so that the connection can be kept.
    assert_eq!(client.send(&post(10)).remaining(), 99);
    assert_eq!(upstream.requests().len(), 1);
    // 100 MiB plus a byte: the body is not awaited.
    let huge = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857601\r\n\r\n";
    client.write(huge);
    assert_eq!(client.read_response("POST").status, 413);
    assert!(client.is_closed_by_server());
    assert_eq!((upstream.requests().len(), gateway.get("/").remaining()), (1, 98));
}

#[test]
fn limit_of_a_route_replaces_that_of_the_server() {
    let upstream = Upstream::echo();
    let routes = "[routes.any]\npath = \"/any\"\nmax_body_bytes = 0\n\
                  [routes.more]\npath = \"/more\"\nmax_body_bytes = 20\n\
                  [routes.less]\npath = \"/less\"\nmax_body_bytes = 5\n";
    let config = format!("{}{routes}", with_limits("max_body_bytes = 10", upstream.address));
    let gateway = Gateway::start(&config);
    for (path, len, status) in [
        ("/", 11, 413),
        ("/any", 200_000, 200),
        ("/more", 20, 200),
        ("/more", 21, 413),
        ("/less", 5, 200),
        ("/less", 6, 413),
    ] {
        let post = Request::new("POST", path).body("x".repeat(len));
        assert_eq!(gateway.send(&post).status, status, "{path} {len}");
    }
}

#[test]
fn chunked_body_is_cut_off_and_never_ends_cleanly_for_the_upstream() {
    let (address, received) = recorder();
    let gateway = Gateway::start(&with_limits("max_body_bytes = 10", address));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write(b"8\r\n12345678\r\n");
    client.write(b"8\r\n12345678\r\n0\r\n\r\n");
    let refused = client.read_response("POST");
    assert_eq!((refused.status, refused.remaining()), (413, 99));
    assert!(client.is_closed_by_server());
    let seen = received.recv_timeout(TIMEOUT).unwrap();
    let seen = String::from_utf8(seen).unwrap();
    assert!(!seen.contains("0\r\n\r\n"), "{seen}");
    // Charged once.
    let huge = Request::new("POST", "/").body("x".repeat(11));
    assert_eq!(gateway.send(&huge).status, 413);
    let counted = [("status", "413")];
    gateway.wait_for_count("tollgate_requests_total", &counted, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_over_http2_is_cut_off() {
    let (http1, http2) = (Upstream::echo(), PeerServer::node(None));
    let over_http2 = proxy_to(&[http2.address]).replace("[routes", "protocol = \"h2c\"\n[routes");
    for rest in [proxy_to(&[http1.address]), over_http2] {
        let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
        let limits = "[server.limits]\nmax_body_bytes = 10\n";
        let gateway = Gateway::start(&format!("{limits}{listener}{rest}"));
        let mut client = Client::connect(gateway.listener(1)).await;
        let post = || {
            let post = http::Request::builder().method(Method::POST).uri("http://api.test/");
            post.body(()).unwrap()
        };
        let (response, mut upload) = client.send.send_request(post(), false).unwrap();
        upload.send_data(Bytes::from_static(b"123456"), false).unwrap();
        upload.send_data(Bytes::from_static(b"123456"), false).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 413);
        let (response, mut upload) = client.send.send_request(post(), false).unwrap();
        upload.send_data(Bytes::from_static(b"1234567890"), true).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(http1.requests().len(), 1, "only the complete request");
}

#[test]
fn bytes_of_an_upgraded_connection_are_no_body() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway =
        Gateway::start(&with_limits("max_body_bytes = 10", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut bytes = [0; 1000];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..count]).unwrap();
        }
    });
    let mut client = gateway.connect();
    client.write(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let answer = client.read_response("GET");
    assert_eq!(answer.status, 101);
    client.write(&[b'x'; 1000]);
    assert_eq!(client.read_bytes(1000), [b'x'; 1000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_too_many_header_lines_is_431() {
    let config = format!(
        "[server.limits]\nmax_headers = 5\n[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n{DEMO}"
    );
    let gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    let with = |count: usize| {
        (0..count).fold(Request::get("/").without("Host").header("Host", "a"), |request, number| {
            request.header(&format!("X-{number}"), "x")
        })
    };
    assert_eq!(client.send(&with(4)).status, 200);
    let refused = client.send(&with(5));
    assert_eq!(refused.status, 431);
    assert_eq!(refused.json()["detail"], "The request has more than 5 header lines.");
    assert_eq!(client.send(&with(4)).status, 200, "the connection is kept");
    let mut http2 = Client::connect(gateway.listener(1)).await;
    let get = |count: usize| {
        let request = http::Request::builder().uri("http://api.test/");
        (0..count).fold(request, |request, _| request.header("x-line", "x")).body(()).unwrap()
    };
    assert_eq!(http2.send(get(6)).await.unwrap().status(), 431);
    assert_eq!(http2.send(get(4)).await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_closes_after_its_last_request() {
    let config = format!(
        "[server.limits]\nmax_requests_per_connection = 3\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         http2 = true\n{DEMO}"
    );
    let gateway = Gateway::start(&config);
    let mut client = gateway.connect();
    for number in 1..=3 {
        let answer = client.send(&Request::get("/"));
        let closes = answer.header("Connection") == Some("close");
        assert_eq!((answer.status, closes), (200, number == 3), "{number}");
    }
    assert!(client.is_closed_by_server());
    for protocol in ["h2c", "websocket"] {
        let mut client = gateway.connect();
        let upgrade = Request::get("/").header("Connection", "upgrade").header("Upgrade", protocol);
        for number in 1..=3 {
            let answer = client.send(&upgrade);
            let closes = answer.header("Connection") == Some("close");
            assert_eq!((answer.status, closes), (200, number == 3), "{protocol} {number}");
        }
        assert!(client.is_closed_by_server(), "{protocol}");
    }
    let mut http2 = Client::connect(gateway.listener(1)).await;
    let get = || http::Request::builder().uri("http://api.test/").body(()).unwrap();
    for _ in 0..3 {
        assert_eq!(http2.send(get()).await.unwrap().status(), 200);
    }
    // Frames of the client that arrive after the end make the kernel reset the connection.
    let _ = http2.closed().await;
}
