//! Clients that send bodies or read responses slowly: `body_min_rate` and `send_min_rate`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use socket2::{Domain, Socket, Type};

use crate::http2::Client;
use crate::support::{
    Authority, Gateway, PeerServer, Request, Stopwatch, TIMEOUT, Upstream, eventually, proxy_to,
    sleep_for, timed, within,
};

/// The grace of a rate.
const GRACE: Duration = Duration::from_secs(5);

/// Longer than the grace.
const LONG: Duration = Duration::from_secs(7);

/// Rates that a client reaches on no machine, so that 5 s of waiting for it are too many.
const STRICT: &str = "[server.limits]\nbody_min_rate = 1000000000\nsend_min_rate = 1000000000\n";

const REJECTED: &str = "tollgate_connections_rejected_total";

fn config(limits: &str, servers: &[SocketAddr]) -> String {
    let rule = "[rules.all]\nper = []\nrate = \"100/d\"\n";
    let listener = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
    format!("{limits}{listener}{}{rule}", proxy_to(servers))
}

/// A response with a body of this many bytes.
fn large(len: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; len]].concat()
}

/// Sends a request with this header and `part` of its body again and again, until it is refused.
fn trickle(address: SocketAddr, header: &str, part: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{header}\r\n\r\n");
    // From before the head, with which the time of the gateway begins.
    let watch = Stopwatch::start();
    stream.write_all(head.as_bytes()).unwrap();
    let mut read = Vec::new();
    let next = || {
        let _ = stream.write_all(part.as_bytes());
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Some(()),
            Ok(count) => read.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Some(()),
        }
        None
    };
    let ended = within(TIMEOUT, next);
    let took = watch.elapsed();
    let answer = String::from_utf8_lossy(&read);
    assert!(ended.is_some(), "the connection is open after {took:?}: {answer}");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("The body of the request arrived too slowly."), "{answer}");
    assert!(took >= GRACE, "{took:?}");
}

#[test]
fn row_56_body_that_trickles_is_408_and_charged_once() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&config("", &[upstream.address]));
    std::thread::scope(|scope| {
        scope.spawn(|| trickle(gateway.address, "Content-Length: 10000", "x"));
        scope.spawn(|| trickle(gateway.address, "Transfer-Encoding: chunked", "1\r\nx\r\n"));
    });
    gateway.wait_for_count(REJECTED, &[("reason", "body_rate")], 2);
    assert!(upstream.requests().is_empty());
    assert_eq!(gateway.get("/").remaining(), 97);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_56_body_that_trickles_over_http2_is_408_and_other_streams_continue() {
    let (http1, http2) = (Upstream::echo(), PeerServer::node(None));
    let over_http2 = config("", &[http2.address]).replace("[routes", "protocol = \"h2c\"\n[routes");
    for file in [config("", &[http1.address]), over_http2] {
        let gateway = Gateway::start(&file);
        let mut client = Client::connect(gateway.listener(1)).await;
        let post = http::Request::builder().method(Method::POST).uri("http://api.test/");
        let (response, mut upload) =
            client.send.send_request(post.body(()).unwrap(), false).unwrap();
        let trickle = tokio::spawn(async move {
            while upload.send_data(Bytes::from_static(b"x"), false).is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 408);
        let get = http::Request::builder().uri("http://api.test/").body(()).unwrap();
        assert_eq!(client.send(get).await.unwrap().status(), 200);
        gateway.wait_for_count(REJECTED, &[("reason", "body_rate")], 1);
        // It is logged after it is counted.
        let line = "reason=\"body_rate\" count=1";
        eventually(line, || gateway.log().contains(line).then_some(()));
        trickle.abort();
    }
}

#[test]
fn row_56_client_that_does_not_read_is_cut_off() {
    let upstream = Upstream::responding(large(30_000_000));
    let gateway = Gateway::start(&config(STRICT, &[upstream.address]));
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    gateway.wait_for_count(REJECTED, &[("reason", "send_rate")], 1);
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let mut read = Vec::new();
    let end = client.read_to_end(&mut read);
    assert!(end.is_err() || read.len() < 30_000_000, "{end:?}");
    assert_eq!(gateway.get("/").remaining(), 98);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_56_client_of_http2_that_does_not_read_its_socket_is_cut_off() {
    let upstream = Upstream::responding(large(30_000_000));
    let gateway = Gateway::start(&config(STRICT, &[upstream.address]));
    let address = gateway.listener(1);
    // The preface, large windows, and a request for `/`. Nothing is read.
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend_from_slice(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff]);
    bytes.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0, 0, 0]);
    let head = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    bytes.extend_from_slice(&[0, 0, 6, 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(&head);
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(&bytes).unwrap();
    gateway.wait_for_count(REJECTED, &[("reason", "send_rate")], 1);
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
}

#[test]
fn client_that_reads_above_the_minimum_rate_gets_everything() {
    let upstream = Upstream::responding(large(12_000_000));
    let limits = "[server.limits]\nsend_min_rate = 100000\n";
    let gateway = Gateway::start(&config(limits, &[upstream.address]));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // A small window, so that the gateway waits for the client most of the time.
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.connect(&gateway.address.into()).unwrap();
    let mut client = TcpStream::from(socket);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut read = 0;
    let mut part = vec![0; 250_000];
    let (end, took) = timed(|| {
        loop {
            match client.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(count) => read += count,
                Err(error) => return Err(error),
            }
            // At most some 4 MB a second: at least 3 s.
            sleep_for(Duration::from_millis(8));
        }
    });
    assert!(end.is_ok() && read > 12_000_000, "{read} bytes after {took:?}: {end:?}");
}

/// Copies what a client sends to the gateway at `bytes_per_second`, and what it gets at any rate.
fn throttle(gateway: SocketAddr, bytes_per_second: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(gateway).unwrap();
        let (mut to_client, mut from_server) =
            (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
        let mut part = vec![0; bytes_per_second / 5];
        while let Ok(count @ 1..) = client.read(&mut part) {
            if server.write_all(&part[..count]).is_err() {
                return;
            }
            sleep_for(Duration::from_millis(200));
        }
    });
    address
}

/// The gateway gets nothing of a frame or of a record of TLS before it is complete, which takes
/// these clients longer than the grace.
#[test]
fn body_in_large_frames_or_records_at_a_low_rate_is_not_too_slow() {
    let (http1, http2) = (Upstream::echo(), PeerServer::node(None));
    let authority = Authority::new();
    let tls = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{}]\n",
        authority.issue("api", &["api.test"]).entry()
    );
    let file = |address| format!("{tls}{}", config("", &[address]));
    let over_http2 = file(http2.address).replace("[routes", "protocol = \"h2c\"\n[routes");
    let gateways = [Gateway::start(&file(http1.address)), Gateway::start(&over_http2)];
    let body = authority.path("body");
    std::fs::write(&body, "x".repeat(16_000)).unwrap();
    std::thread::scope(|scope| {
        for gateway in &gateways {
            for (scheme, version, listener) in [
                ("http", "--http2-prior-knowledge", 2),
                ("https", "--http2", 1),
                ("https", "--http1.1", 1),
            ] {
                let (body, authority) = (&body, &authority);
                let port = throttle(gateway.listener(listener), 1800).port();
                scope.spawn(move || {
                    // The head first, then the body.
                    let script = format!(
                        "(sleep 1; cat {body}) | curl --disable --silent --max-time 60 --cacert {} \
                         --resolve api.test:{port}:127.0.0.1 {version} --upload-file - \
                         --output /dev/null --write-out '%{{http_code}}' {scheme}://api.test:{port}/",
                        authority.ca()
                    );
                    let run = || Command::new("sh").args(["-c", &script]).output().unwrap();
                    let (output, took) = timed(run);
                    let status = String::from_utf8_lossy(&output.stdout).into_owned();
                    assert_eq!(status, "200", "{scheme} {version} after {took:?}");
                });
            }
        }
    });
}

/// Neither the time of the upstream's response nor that in which it does not accept the body count.
#[test]
fn slow_upstream_is_not_the_fault_of_the_client() {
    let body = 16_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        sleep_for(LONG);
        let mut left = body;
        let mut part = vec![0; 65_536];
        // The head is less than the body's last part.
        while left > 0 {
            match stream.read(&mut part) {
                Ok(count @ 1..) => left -= count.min(left),
                _ => return,
            }
        }
        sleep_for(LONG);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
    });
    let gateway = Gateway::start(&config(STRICT, &[address]));
    let mut client = gateway.connect();
    client
        .write(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {body}\r\n\r\n").as_bytes());
    client.write(&vec![b'x'; body]);
    let answer = client.read_response("POST");
    assert_eq!((answer.status, answer.text()), (200, "done".to_owned()));
}

#[test]
fn upgraded_connection_has_no_minimum_rate() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = 30_000_000;
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(&vec![b'x'; sent]);
        let _ = stream.read(&mut [0]);
    });
    let gateway = Gateway::start(&config(STRICT, &[address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read_response("GET").status, 101);
    sleep_for(LONG);
    let bytes = client.read_bytes(sent);
    assert_eq!(bytes.len(), sent);
    assert!(bytes.iter().all(|byte| *byte == b'x'));
    assert_eq!(gateway.count(REJECTED, &[("reason", "send_rate")]), 0);
}

#[test]
fn client_that_waits_for_a_100_is_not_too_slow() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        sleep_for(LONG);
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0]);
    });
    let gateway = Gateway::start(&config(STRICT, &[address]));
    let mut client = gateway.connect();
    client
        .write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_response("POST").status, 100);
    client.write(b"body");
    assert_eq!(client.read_response("POST").status, 200);
}

#[test]
fn rates_of_zero_are_no_limit() {
    let upstream = Upstream::echo();
    let limits = "[server.limits]\nbody_min_rate = 0\nsend_min_rate = 0\n";
    let gateway = Gateway::start(&config(limits, &[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx");
    sleep_for(LONG);
    client.write(b"y");
    assert_eq!(client.read_response("POST").text(), "xy");
    assert_eq!(gateway.send(&Request::get("/")).status, 200);
}
