//! Upstreams that delay responses while sending bytes, and upgrade requests without an upgrade.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::support::{Gateway, Request, Upstream, proxy_to, sleep_for, timed};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Interval at which a slow upstream sends bytes: shorter than the timeout of a read.
const PACE: Duration = Duration::from_millis(100);

/// A configuration with a `read_timeout` of several intervals for the upstream.
fn impatient(server: SocketAddr) -> String {
    proxy_to(&[server]).replace("[upstreams.api]", "[upstreams.api]\nread_timeout = \"1s\"")
}

/// A timeout of several seconds, for what has to go on: a busy machine can delay a byte by one. The
/// request's body may have any rate.
fn patient(server: SocketAddr) -> String {
    let config = impatient(server).replace("\"1s\"", "\"3s\"");
    format!("limits.body_min_rate = 0\n{config}")
}

/// Interval of fifteen bytes that take longer than this timeout in all.
const SLOW_PACE: Duration = Duration::from_millis(250);

/// Sends `part` repeatedly until the other side closes.
fn repeat(stream: &mut TcpStream, part: &[u8]) -> bool {
    while stream.write_all(part).is_ok() {
        sleep_for(PACE);
    }
    false
}

fn upgrade(method: &str) -> Request {
    Request::new(method, "/").header("Connection", "upgrade").header("Upgrade", "anything")
}

fn assert_timed_out(config: &str, request: &Request) {
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    let (answer, took) = timed(|| {
        let mut answer = client.send(request);
        while answer.status == 102 {
            answer = client.read_response("GET");
        }
        answer
    });
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!((1_000..10_000).contains(&took.as_millis()), "{took:?}");
    let timeouts = [("upstream", "api"), ("result", "timeout")];
    gateway.wait_for_count("tollgate_upstream_results_total", &timeouts, 1);
    assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 0);
}

#[test]
fn trickling_head_is_504_after_the_read_timeout() {
    for request in [Request::get("/"), Request::new("POST", "/").body("x"), upgrade("GET")] {
        let upstream = Upstream::start(|_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").is_ok() && repeat(stream, b"a")
        });
        assert_timed_out(&impatient(upstream.address), &request);
    }
}

#[test]
fn interim_responses_do_not_extend_the_read_timeout() {
    for request in [Request::get("/"), upgrade("GET")] {
        let upstream =
            Upstream::start(|_, stream| repeat(stream, b"HTTP/1.1 102 Processing\r\n\r\n"));
        assert_timed_out(&impatient(upstream.address), &request);
    }
}

#[test]
fn too_many_interim_responses_are_502() {
    let upstream = Upstream::start(|_, stream| {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1_000);
        let _ = stream.write_all(format!("{hints}{OK}").as_bytes());
        false
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    let mut answer = client.send(&Request::get("/"));
    let mut hints = 0;
    while answer.status == 103 {
        hints += 1;
        answer = client.read_response("GET");
    }
    assert_eq!(answer.status, 502);
    assert!(hints <= 32, "{hints} of them reached the client");
}

/// The time of the client's upload does not count for the upstream.
#[test]
fn upload_can_take_longer_than_the_read_timeout() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&patient(upstream.address));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n");
    for _ in 0..15 {
        sleep_for(SLOW_PACE);
        client.write(b"x");
    }
    assert_eq!(client.read_response("POST").text(), "x".repeat(15));
}

/// Only `server.read_timeout` limits the pause between two parts of a request.
#[test]
fn pause_in_an_upload_does_not_time_out_the_upstream() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&patient(upstream.address));
    let uploads = [
        ("Content-Length: 6", "one", "two"),
        ("Transfer-Encoding: chunked", "3\r\none\r\n", "3\r\ntwo\r\n0\r\n\r\n"),
        ("Content-Length: 6\r\nConnection: upgrade\r\nUpgrade: anything", "one", "two"),
    ];
    let begun = uploads.map(|(headers, first, second)| {
        let mut client = gateway.connect();
        client.write(format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{first}").as_bytes());
        (headers, client, second)
    });
    sleep_for(15 * SLOW_PACE);
    for (headers, mut client, second) in begun {
        client.write(second.as_bytes());
        let answer = client.read_response("POST");
        assert_eq!((answer.status, answer.text()), (200, "onetwo".into()), "{headers}");
    }
}

#[test]
fn read_timeout_begins_at_the_end_of_an_upload() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.read(&mut [0]);
        false
    });
    let gateway = Gateway::start(&impatient(upstream.address));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx");
    sleep_for(15 * PACE);
    let (answer, took) = timed(|| {
        client.write(b"x");
        client.read_response("POST")
    });
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!((1_000..10_000).contains(&took.as_millis()), "{took:?}");
}

/// The total time of a body that keeps arriving is not limited.
#[test]
fn response_can_take_longer_than_the_read_timeout() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n");
        (0..15).all(|_| {
            sleep_for(SLOW_PACE);
            stream.write_all(b"x").is_ok()
        })
    });
    let gateway = Gateway::start(&patient(upstream.address));
    for request in [Request::get("/"), upgrade("GET")] {
        let answer = gateway.send(&request);
        assert_eq!((answer.text(), answer.complete), ("x".repeat(15), true), "{request:?}");
    }
}

#[test]
fn upgrade_request_keeps_the_upstream_timeouts() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_timed_out(&impatient(silent.local_addr().unwrap()), &upgrade("GET"));
    // A denied request with a stalled body.
    let stalls = Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
        let _ = stream.read(&mut [0]);
        false
    });
    let gateway = Gateway::start(&impatient(stalls.address));
    let (answer, took) = timed(|| gateway.send(&upgrade("GET")));
    assert_eq!((answer.text().as_str(), answer.complete), ("half", false));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn upgrade_request_keeps_the_client_timeouts() {
    let upstream = Upstream::echo();
    let config = proxy_to(&[upstream.address]);
    let gateway = Gateway::start(&format!("read_timeout = \"300ms\"\n{config}"));
    let mut client = gateway.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: anything\r\n";
    client.write(format!("{head}Content-Length: 10\r\n\r\nhalf").as_bytes());
    let (answer, took) = timed(|| client.read_response("POST"));
    assert_eq!(answer.status, 408);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn upgraded_connection_outlives_the_read_timeouts() {
    let upstream = Upstream::upgrading();
    let config = impatient(upstream.address);
    let gateway = Gateway::start(&format!("read_timeout = \"300ms\"\n{config}"));
    let mut client = gateway.connect();
    let request = Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket");
    assert_eq!(client.send(&request).status, 101);
    for byte in [b"1", b"2"] {
        client.write(byte);
        assert_eq!(client.read_bytes(1), byte);
        sleep_for(Duration::from_secs(2));
    }
}
