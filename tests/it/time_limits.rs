//! `first_byte_timeout`, `try_timeout` and `timeout`, over both versions of HTTP.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;

use crate::http2::Client;
use crate::http2_upstreams::scripted;
use crate::support::{
    Authority, Gateway, HTTP2_LISTENER, Issued, Nginx, Request, Upstream, proxy_with, sleep_for,
    timed,
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";

/// One route to this server, with `settings` of the upstream, and a listener for HTTP/2.
fn config(server: SocketAddr, settings: &str) -> String {
    HTTP2_LISTENER.to_owned() + &proxy_with(&[server], settings)
}

fn milliseconds(path: &str) -> Duration {
    let digits = path.trim_matches(|letter: char| !letter.is_ascii_digit());
    Duration::from_millis(digits.parse().unwrap_or(0))
}

/// Waits before the head for the milliseconds in the path, or in the body if the path begins with
/// `/body`.
fn slow_over_http1() -> Upstream {
    Upstream::start(|seen, stream| {
        let path = seen.line().split(' ').nth(1).unwrap().to_owned();
        let pause = milliseconds(&path);
        let is_body = path.starts_with("/body");
        if !is_body {
            sleep_for(pause);
        }
        let _ = stream.write_all(HEAD);
        if is_body {
            let _ = stream.write_all(b"o");
            sleep_for(pause);
            return stream.write_all(b"k").is_ok();
        }
        stream.write_all(b"ok").is_ok()
    })
}

/// The same over HTTP/2.
async fn slow_over_http2() -> SocketAddr {
    scripted(|(request, mut respond)| async move {
        let path = request.uri().path().to_owned();
        let pause = milliseconds(&path);
        let is_body = path.starts_with("/body");
        let mut body = request.into_body();
        while let Some(Ok(chunk)) = body.data().await {
            let _ = body.flow_control().release_capacity(chunk.len());
        }
        if !is_body {
            tokio::time::sleep(pause).await;
        }
        let Ok(mut send) = respond.send_response(http::Response::new(()), false) else { return };
        let _ = send.send_data(Bytes::from_static(b"o"), false);
        if is_body {
            tokio::time::sleep(pause).await;
        }
        let _ = send.send_data(Bytes::from_static(b"k"), true);
    })
    .await
}

/// The two servers, each with the settings that select its version of HTTP.
async fn servers() -> (Upstream, [(SocketAddr, &'static str); 2]) {
    let http1 = slow_over_http1();
    let both = [(http1.address, ""), (slow_over_http2().await, "protocol = \"h2c\"\n")];
    (http1, both)
}

fn reason(gateway: &Gateway, reason: &str) -> u64 {
    gateway.count("tollgate_rejections_total", &[("reason", reason)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_152_head_that_is_late_is_a_504_by_the_time_limit_of_the_attempt() {
    let (_http1, servers) = servers().await;
    for (address, protocol) in servers {
        for limit in ["first_byte_timeout", "try_timeout"] {
            // A busy machine can delay each answer by more than a third of a second.
            let settings = format!("{protocol}{limit} = \"700ms\"");
            let gateway = Gateway::start(&config(address, &settings));
            for request in [Request::get("/4000"), Request::new("POST", "/4000").body("x")] {
                let (answer, took) = timed(|| gateway.send(&request));
                assert_eq!(answer.status, 504, "{settings}");
                assert!((680..3_900).contains(&took.as_millis()), "{settings}: {took:?}");
            }
            assert_eq!(
                (reason(&gateway, "upstream_timeout"), reason(&gateway, "request_timeout")),
                (2, 0)
            );
        }
        // Neither limits the body. Longer ones, since a busy machine can delay a head by a second.
        let limits = "first_byte_timeout = \"2500ms\"\ntry_timeout = \"2500ms\"";
        let gateway = Gateway::start(&config(address, &format!("{protocol}{limits}")));
        for path in ["/10", "/body3000"] {
            let answer = gateway.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, "ok"), "{path} {protocol}");
        }
        let rejected = ["upstream_timeout", "request_timeout"].map(|name| reason(&gateway, name));
        assert_eq!(rejected, [0, 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_152_time_limits_of_a_route_replace_those_of_its_upstream() {
    let (_http1, servers) = servers().await;
    for (address, protocol) in servers {
        let settings = format!("{protocol}first_byte_timeout = \"2500ms\"\ntimeout = \"15s\"");
        let routes = "[routes.long]\npath = \"/3000\"\nupstream = \"api\"\nfirst_byte_timeout = \"8s\"\n\
                      [routes.short]\npath = \"/1500\"\nupstream = \"api\"\ntimeout = \"50ms\"\n";
        let gateway = &Gateway::start(&(config(address, &settings) + routes));
        // At once, since two of them take seconds.
        std::thread::scope(|scope| {
            let send = |(path, expected): (&'static str, u16)| {
                (path, expected, scope.spawn(move || gateway.get(path).status))
            };
            let all = [("/3000", 200), ("/6000", 504), ("/1500", 504), ("/10", 200)].map(send);
            for (path, expected, sent) in all {
                assert_eq!(sent.join().unwrap(), expected, "{path} {protocol}");
            }
        });
        assert_eq!(
            (reason(gateway, "upstream_timeout"), reason(gateway, "request_timeout")),
            (1, 1)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_153_timeout_ends_the_whole_request() {
    let (_http1, servers) = servers().await;
    for (address, protocol) in servers {
        let settings = format!("{protocol}timeout = \"700ms\"\nread_timeout = \"20s\"");
        let gateway = Gateway::start(&config(address, &settings));
        // Before the head: 504.
        let (answer, took) = timed(|| gateway.get("/5000"));
        assert_eq!(answer.status, 504, "{protocol}");
        assert_eq!(answer.json()["detail"], "The request took longer than its time limit.");
        assert!((680..4_000).contains(&took.as_millis()), "{took:?}");
        // While the client sends its body.
        let mut connection = gateway.connect();
        connection.write(b"PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
        assert_eq!(connection.read_response("PUT").status, 504, "{protocol}");
        // It is counted when the gateway no longer waits for the rest of the body.
        let own = [("reason", "request_timeout")];
        gateway.wait_for_count("tollgate_rejections_total", &own, 2);
        assert_eq!(reason(&gateway, "upstream_timeout"), 0);
        // After the head: the response is cut off, also over HTTP/2. A longer limit, since a busy
        // machine can delay a head by a second.
        let gateway = Gateway::start(&config(address, &settings.replace("700ms", "2500ms")));
        let (answer, took) = timed(|| gateway.get("/body8000"));
        assert_eq!((answer.status, answer.complete, answer.text().as_str()), (200, false, "o"));
        assert!((2_450..7_900).contains(&took.as_millis()), "{took:?}");
        let mut client = Client::connect(gateway.listener(1)).await;
        let request = http::Request::builder().uri("http://api.test/body8000").body(()).unwrap();
        let mut body = client.send(request).await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "o");
        assert!(body.data().await.unwrap().is_err());
        gateway.wait_for_count("tollgate_rejections_total", &own, 2);
        assert_eq!(reason(&gateway, "upstream_timeout"), 0);
        assert_eq!(gateway.get("/1").status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_153_timeout_includes_the_retries() {
    let (_http1, servers) = servers().await;
    for (address, protocol) in servers {
        // Six attempts and a part of one. A busy machine can miss the end of some.
        let settings = format!(
            "{protocol}timeout = \"2500ms\"\ntry_timeout = \"400ms\"\n\
             retries = {{ count = 10, on = [\"timeout\"], budget = \"1000%\" }}"
        );
        let gateway = Gateway::start(&config(address, &settings));
        let (answer, took) = timed(|| gateway.get("/8000"));
        assert_eq!(answer.status, 504, "{protocol}");
        assert!((2_450..6_000).contains(&took.as_millis()), "{took:?}");
        let retried = gateway.count("tollgate_upstream_retries_total", &[("reason", "timeout")]);
        assert!((1..=6).contains(&retried), "{retried}");
        assert_eq!(reason(&gateway, "request_timeout"), 1);
    }
}

/// The time that a client takes for its upload is not that of an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_and_head_are_timed_from_the_end_of_the_upload() {
    let (_http1, servers) = servers().await;
    // The head that is in time has a longer limit, and a longer upload, since a busy machine can
    // delay it by a second.
    let cases = [("/1", 200, "2500ms", 3), ("/3000", 504, "600ms", 1)];
    for (address, protocol) in servers {
        for (path, status, limit, upload) in cases {
            let settings =
                format!("{protocol}first_byte_timeout = \"{limit}\"\ntry_timeout = \"{limit}\"");
            // After five seconds without a byte, it would be too slow.
            let any_rate = "limits.body_min_rate = 0\n".to_owned();
            let gateway = Gateway::start(&(any_rate + &config(address, &settings)));
            let mut client = gateway.connect();
            client.write(
                format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
                    .as_bytes(),
            );
            sleep_for(Duration::from_secs(upload));
            client.write(b"cd");
            assert_eq!(client.read_response("POST").status, status, "{path} {protocol}");
        }
    }
}

/// Passes connections on to a server, each after a pause.
fn delayed(server: SocketAddr, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let pass_on = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                sleep_for(pause);
                let server = TcpStream::connect(server).unwrap();
                let (back, other) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || pass_on(back, other));
                pass_on(client, server);
            });
        }
    });
    address
}

/// Also if the TLS handshake, which selects HTTP/1.1, is a part of the attempt.
#[test]
fn attempt_is_timed_from_the_selection_of_its_server() {
    let authority = Authority::new();
    let Issued { certificate, key } = authority.issue("api", &["api.test"]);
    let slow = slow_over_http1();
    let tls = Nginx::listening("ssl", |_| {
        format!(
            "ssl_certificate {certificate};\nssl_certificate_key {key};\n\
             location / {{ proxy_pass http://{}; }}",
            slow.address
        )
    });
    let server = delayed(tls.address, Duration::from_secs(1));
    // A busy machine has three seconds for the handshakes and the answer.
    for (path, status, limit) in [("/1", 200, "4s"), ("/2000", 504, "2500ms")] {
        let settings = format!(
            "tls = {{ ca = {:?}, server_name = \"api.test\" }}\nconnect_timeout = \"5s\"\n\
             try_timeout = \"{limit}\"",
            authority.ca()
        );
        let config = config(server, &settings).replace("[\"127", "[\"https://127");
        assert_eq!(Gateway::start(&config).get(path).status, status, "{path}");
    }
}

/// Nothing was sent, and a server that is away is found in no other way.
#[test]
fn attempt_that_ends_while_connecting_is_retried_as_a_connection_that_failed() {
    // Accepts connections, and never answers a handshake.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for protocol in ["http1", "auto", "h2"] {
        for max in ["", "max_connections = 5\n"] {
            let settings = format!(
                "{max}protocol = {protocol:?}\ntls = {{ server_name = \"api.test\" }}\n\
                 connect_timeout = \"20s\"\ntry_timeout = \"200ms\""
            );
            let config = config(silent.local_addr().unwrap(), &settings);
            let gateway = Gateway::start(&config.replace("[\"127", "[\"https://127"));
            assert_eq!(gateway.get("/").status, 504, "{settings}");
            assert_eq!(reason(&gateway, "upstream_connect_timeout"), 1, "{settings}");
            let retried =
                gateway.count("tollgate_upstream_retries_total", &[("reason", "connect")]);
            let results = ["timeout", "connect"]
                .map(|it| gateway.count("tollgate_upstream_results_total", &[("result", it)]));
            assert_eq!((retried, results), (1, [0, 2]), "{settings}");
            assert_eq!(gateway.endpoints()[0]["state"], "unreachable", "{settings}");
        }
    }
}

#[test]
fn upgraded_connection_outlives_all_time_limits() {
    let upstream = Upstream::upgrading();
    let limits = "timeout = \"1s\"\ntry_timeout = \"1s\"\nfirst_byte_timeout = \"1s\"";
    let gateway = Gateway::start(&config(upstream.address, limits));
    let mut client = gateway.connect();
    let request = Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket");
    assert_eq!(client.send(&request).status, 101);
    for byte in [b"1", b"2", b"3"] {
        client.write(byte);
        assert_eq!(client.read_bytes(1), byte);
        sleep_for(Duration::from_millis(700));
    }
}

/// An upgrade that is not answered is timed.
#[test]
fn unanswered_upgrade_is_a_504() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for limit in ["timeout", "try_timeout", "first_byte_timeout"] {
        let gateway =
            Gateway::start(&config(silent.local_addr().unwrap(), &format!("{limit} = \"200ms\"")));
        let request =
            Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket");
        assert_eq!(gateway.send(&request).status, 504, "{limit}");
    }
}

/// A server that does not read: the write is blocked, and nothing is read meanwhile.
#[test]
fn timeout_ends_an_upload_that_the_server_does_not_read() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&config(silent.local_addr().unwrap(), "timeout = \"300ms\""));
    let mut client = gateway.connect();
    let ((), took) = timed(|| {
        client.write(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n");
        client.write(&vec![b'x'; 50_000_000]);
    });
    assert!(took < Duration::from_secs(10), "{took:?}");
    gateway.wait_for_count("tollgate_rejections_total", &[("reason", "request_timeout")], 1);
}
