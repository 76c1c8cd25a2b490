//! Upstream servers that refuse connections, hang, close early or send malformed responses.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::SockRef;

use crate::support::{
    ClosedPort, DEMO, Gateway, Request, SilentPort, Upstream, curl, eventually, proxy_to,
    send_many, timed, timed_below,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn post() -> Request {
    Request::new("POST", "/").body("order one coffee")
}

#[test]
fn row_50_server_that_refuses_connections_costs_one_attempt() {
    let (closed, upstream) = (ClosedPort::bind(), Upstream::responding(OK));
    let gateway = Gateway::start(&proxy_to(&[closed.address, upstream.address]));
    // POST is retried as well: nothing was sent when the connection was refused.
    for number in 0..20 {
        let request = if number % 2 == 0 { Request::get("/") } else { post() };
        assert_eq!(gateway.send(&request).status, 200);
    }
    assert_eq!(upstream.requests().len(), 20);
    // An ejected server is skipped for a while.
    let retries = gateway.count("tollgate_upstream_retries_total", &[("upstream", "api")]);
    assert!((1..=5).contains(&retries), "{retries}");
    let url = gateway.url("/");
    assert_eq!(send_many(200, |client, _| client.get(&url)).get(&200), Some(&200));
    let retries = gateway.count("tollgate_upstream_retries_total", &[("upstream", "api")]);
    assert!((1..=20).contains(&retries), "{retries}");
}

#[test]
fn row_50_all_servers_down_is_502() {
    let closed = [(); 3].map(|()| ClosedPort::bind());
    let gateway = Gateway::start(&proxy_to(&closed.each_ref().map(|port| port.address)));
    let answer = gateway.send(&post());
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["status"], 502);
    assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 1);
    let id = answer.json()["request_id"].to_string();
    // The log line is written after the response.
    let is_logged = || gateway.log().contains(id.trim_matches('"')).then_some(());
    eventually("a line of the log with the id", is_logged);
}

/// Pingora closes the connection after a failure. The response must announce that, so that the
/// client sends no further request on it.
#[test]
fn row_50_502_announces_that_the_connection_closes() {
    let closed = ClosedPort::bind();
    let gateway = Gateway::start(&proxy_to(&[closed.address]));
    let mut client = gateway.connect();
    let answer = client.send(&Request::get("/"));
    assert_eq!((answer.status, answer.header("connection")), (502, Some("close")));
    assert!(client.is_closed_by_server());
}

/// A request that reached no server gets its tokens back. A connection that is not made in time may
/// be the fault of the network between, and keeps them by default.
#[test]
fn row_50_unreachable_server_gives_tokens_back() {
    let (silent, closed) = (SilentPort::bind(), ClosedPort::bind());
    let other = |name: &str, server: &str| {
        format!(
            "[upstreams.{name}]\nservers = [\"{server}\"]\nconnect_timeout = \"300ms\"\n\
             [routes.{name}]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        )
    };
    let config = [
        DEMO.to_owned(),
        other("nameless", "nowhere.invalid:80"),
        other("silent", &silent.address.to_string()),
        other("closed", &closed.address.to_string()),
        "[rules.all]\nper = []\nrate = \"100/d\"\n".to_owned(),
    ];
    let gateway = Gateway::start(&config.concat());
    let failing = [("/nameless", 502), ("/silent", 504), ("/closed", 502)];
    for ((path, status), left) in failing.into_iter().zip([99, 97, 96]) {
        let answer = timed_below(Duration::from_secs(5), || gateway.get(path));
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.json()["status"], status, "{path}");
        assert_eq!(gateway.get("/").remaining(), left, "{path}");
    }
}

/// An interim response is not a response: the client still waits for the final one.
#[test]
fn row_52_connection_closed_after_early_hints_is_502() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        false
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response("GET").status, 103);
    assert_eq!(client.read_response("GET").status, 502);
}

#[test]
fn row_51_server_without_a_response_is_504() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = proxy_to(&[silent.local_addr().unwrap()])
        .replace("[upstreams.api]", "[upstreams.api]\nread_timeout = \"200ms\"");
    let gateway = Gateway::start(&config);
    for request in [Request::get("/"), post()] {
        let (answer, took) =
            timed_below(Duration::from_secs(2), || timed(|| gateway.send(&request)));
        assert_eq!(answer.status, 504);
        // Only once, because the first server may have processed the request.
        assert!(took.as_millis() >= 200, "{took:?}");
    }
    assert_eq!(gateway.count("tollgate_upstream_retries_total", &[]), 0);
}

#[test]
fn row_52_truncated_body_is_never_a_complete_response() {
    let cuts = [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly a part",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nonly a part",
    ];
    for cut in cuts {
        let upstream = Upstream::start(move |_, stream| {
            stream.write_all(cut.as_bytes()).unwrap();
            false
        });
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        let mut client = gateway.connect();
        let answer = client.send(&Request::get("/"));
        assert_eq!(answer.status, 200);
        assert!(!answer.complete, "{cut:?} ended as if it were whole: {answer:?}");
        assert!(client.is_closed_by_server());
        // Exit codes of curl: 18 is a partial file, 56 a broken connection.
        let exit = curl(&[&gateway.url("/")]).exit;
        assert!(matches!(exit, Some(18 | 56)), "{cut:?}: curl was content, {exit:?}");
    }
}

#[test]
fn row_52_reset_in_a_body_is_never_a_complete_response() {
    let upstream = Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart").unwrap();
        // A close then sends RST.
        SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
        false
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for _ in 0..5 {
        let mut client = gateway.connect();
        let answer = client.send(&Request::get("/"));
        // The reset can overtake the head of the response.
        assert!(answer.status == 502 || !answer.complete, "{answer:?}");
        assert!(client.is_closed_by_server());
    }
}

#[test]
fn row_52_stalled_body_closes_the_connection() {
    let latch = crate::support::Latch::default();
    let upstream = Upstream::start({
        let latch = latch.clone();
        move |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").unwrap();
            latch.wait();
            false
        }
    });
    let config = proxy_to(&[upstream.address])
        .replace("[upstreams.api]", "[upstreams.api]\nread_timeout = \"200ms\"");
    let gateway = Gateway::start(&config);
    let answer = timed_below(Duration::from_secs(3), || gateway.get("/"));
    assert_eq!((answer.text().as_str(), answer.complete), ("half", false));
    latch.open();
}

#[test]
fn row_53_ambiguous_responses_are_502() {
    let huge =
        format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(2 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", "X-Many: 1\r\n".repeat(300));
    let bad = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nfirst".to_string(),
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_string(),
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nfirst".to_string(),
        "HTTP/1.1 2000 OK\r\n\r\n".to_string(),
        "\r\n\r\n\r\n".to_string(),
        huge,
        many,
    ];
    for answer in bad {
        let shown: String = answer.chars().take(80).collect();
        let upstream = Upstream::start(move |_, stream| {
            let _ = stream.write_all(answer.as_bytes());
            false
        });
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        assert_eq!(gateway.get("/").status, 502, "{shown:?}");
    }
}

/// RFC 9112, section 6.3: the chunks count. What follows them is no response to another request.
#[test]
fn row_53_response_with_both_lengths_is_read_by_its_chunks() {
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nfirst\r\n0\r\n\r\n";
    let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    let upstream = Upstream::responding(format!("{both}{smuggled}"));
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    for _ in 0..3 {
        let answer = client.send(&Request::get("/"));
        assert_eq!((answer.text().as_str(), answer.complete), ("first", true), "{answer:?}");
        assert_eq!(answer.header("content-length"), None, "{answer:?}");
    }
}

#[test]
fn row_53_space_after_a_header_name_is_not_forwarded() {
    // RFC 9112, section 5.1: a proxy removes the space, so that recipients agree on the name.
    let upstream =
        Upstream::responding("HTTP/1.1 200 OK\r\nX-Odd : value\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    assert_eq!(gateway.get("/").header("x-odd"), Some("value"));
}

#[test]
fn row_53_interim_responses_are_forwarded() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n".repeat(20);
    let upstream = Upstream::responding(format!("{interim}{OK}"));
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    for _ in 0..3 {
        let mut answer = client.send(&Request::get("/"));
        while answer.status == 103 {
            answer = client.read_response("GET");
        }
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    }
}

/// Such a 101 is neither interim nor final: the client would parse the following bytes as another
/// protocol.
#[test]
fn unrequested_upgrade_is_502() {
    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\n\r\n";
    let upstream = Upstream::responding(format!("{upgraded}{OK}"));
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for request in [Request::get("/"), post()] {
        assert_eq!(gateway.send(&request).status, 502, "{request:?}");
    }
}

#[test]
fn row_53_early_response_to_a_large_body_reaches_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&proxy_to(&[listener.local_addr().unwrap()]));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbeginning");
    let (mut stream, _) = listener.accept().unwrap();
    let early =
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlong";
    stream.write_all(early.as_bytes()).unwrap();
    let answer = client.read_response("POST");
    assert_eq!((answer.status, answer.text().as_str()), (413, "long"));
}

/// Closes the first reused connection once, as a server does whose idle timeout ends at that
/// moment.
fn hangs_up_on_reuse() -> Upstream {
    let used = parking_lot::Mutex::new(HashSet::new());
    let has_hung_up = AtomicBool::new(false);
    Upstream::start(move |seen, stream| {
        let is_new = used.lock().insert(seen.connection);
        let goes_on = is_new || has_hung_up.swap(true, Ordering::SeqCst);
        goes_on && stream.write_all(OK.as_bytes()).is_ok()
    })
}

/// Sends requests, each to a different path, until one is sent on a reused connection: the first
/// request may come before the connection is kept. Returns the status of that request, and how
/// often each request arrived.
fn until_hung_up(method: &str) -> (u16, Vec<usize>) {
    let upstream = hangs_up_on_reuse();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for number in 0..1_000 {
        let status = gateway.send(&Request::new(method, &format!("/{number}/")).body("x")).status;
        let seen = upstream.requests();
        let mut connections = HashSet::new();
        if seen.iter().any(|seen| !connections.insert(seen.connection)) {
            let arrivals = |number: usize| {
                let path = format!(" /{number}/ ");
                seen.iter().filter(|seen| seen.line().contains(&path)).count()
            };
            return (status, (0..=number).map(arrivals).collect());
        }
    }
    panic!("no connection was used twice");
}

#[test]
fn row_54_post_on_a_dead_connection_is_not_retried() {
    let (status, arrivals) = until_hung_up("POST");
    // The upstream may have processed the request before it closed.
    assert_eq!((status, arrivals.last()), (502, Some(&1)));
    assert!(arrivals.iter().all(|arrivals| *arrivals == 1), "{arrivals:?}");
}

#[test]
fn row_54_idempotent_request_on_a_dead_connection_is_retried() {
    let (status, arrivals) = until_hung_up("PUT");
    assert_eq!((status, arrivals.last()), (200, Some(&2)));
}

/// A server that closes with unread bytes resets the connection: the gateway can notice that while
/// it writes the body or while it reads the response.
#[test]
fn row_54_idempotent_request_is_retried_after_a_failed_body_write() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\nx") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    request.extend(byte);
                }
                let _ = stream.write_all(OK.as_bytes());
                let _ = stream.read(&mut [0]);
            });
        }
    });
    let gateway = Gateway::start(&proxy_to(&[address]));
    let statuses = [(); 100].map(|()| gateway.send(&Request::new("PUT", "/").body("x")).status);
    assert_eq!(statuses, [200; 100]);
    assert_ne!(gateway.count("tollgate_upstream_retries_total", &[]), 0);
}
