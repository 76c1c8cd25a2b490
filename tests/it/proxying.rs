//! Requests and responses are forwarded unchanged.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use crate::support::{
    ClosedPort, Connection, DEMO, Gateway, Latch, Nginx, PythonServer, Request, Response, TIMEOUT,
    Upstream, curl, proxy_to, send_concurrently, sleep_for,
};

const MIB: usize = 1024 * 1024;

/// Larger than all buffers on the way.
const LARGE: usize = 100 * MIB;

#[test]
fn responses_of_nginx_are_unchanged() {
    let nginx = Nginx::start();
    std::fs::write(nginx.file("hello.txt"), "hello\n").unwrap();
    let gateway = Gateway::start(&proxy_to(&[nginx.address]));
    let requests = [
        Request::get("/files/hello.txt"),
        Request::get("/files/hello.txt").header("Range", "bytes=1-3"),
        Request::new("HEAD", "/files/hello.txt"),
        Request::get("/files/missing"),
        Request::new("POST", "/echo").body("one=1&two=2"),
    ];
    for request in requests {
        let direct = Connection::open(nginx.address).send(&request);
        let through = gateway.send(&request);
        assert_same_answer(&direct, &through);
    }
    let echo = gateway.send(&Request::new("POST", "/echo").body("one=1&two=2"));
    assert_eq!(echo.header("x-body"), Some("one=1&two=2"));
    assert_eq!(gateway.send(&Request::new("DELETE", "/files/hello.txt")).status, 204);
    assert!(!nginx.file("hello.txt").exists());
}

#[test]
fn responses_of_python_http_server_are_unchanged() {
    let python = PythonServer::start();
    let body: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::write(python.file("bytes"), &body).unwrap();
    let gateway = Gateway::start(&proxy_to(&[python.address]));
    let requests = [
        Request::get("/bytes"),
        Request::new("HEAD", "/bytes"),
        Request::get("/"),
        Request::get("/missing?with=query"),
        // The server rejects POST with its own error page.
        Request::new("POST", "/bytes").body("ignored"),
    ];
    for request in requests {
        let direct = Connection::open(python.address).send(&request);
        let through = gateway.send(&request);
        assert_same_answer(&direct, &through);
    }
    assert_eq!(gateway.get("/bytes").body, body);
}

/// Asserts equal status, headers and body, except for hop-by-hop headers.
fn assert_same_answer(direct: &Response, through: &Response) {
    let own = |response: &Response| {
        let of_connection = |name: &str| {
            ["connection", "date", "keep-alive", "transfer-encoding"]
                .contains(&&*name.to_ascii_lowercase())
        };
        let mut headers = response.headers.clone();
        headers.retain(|(name, _)| !of_connection(name));
        for (name, _) in &mut headers {
            name.make_ascii_lowercase();
        }
        headers.sort();
        headers
    };
    assert_eq!(direct.status, through.status);
    assert_eq!(own(direct), own(through));
    assert_eq!(direct.body, through.body);
    assert!(through.complete);
}

#[test]
fn large_upload_is_streamed() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(&proxy_to(&[nginx.address]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large");
    write_large(&file);
    let (before, _) = gateway.memory_bytes();
    for (name, encoding) in [("sized", "X-None: 1"), ("chunked", "Transfer-Encoding: chunked")] {
        let url = gateway.url(&format!("/files/{name}"));
        let upload = ["-T", file.to_str().unwrap(), "-H", encoding, "-w", "%{http_code}", &url];
        assert_eq!(curl(&upload).text(), "201");
        assert_same_content(&file, &nginx.file(name));
    }
    assert_bounded(before, gateway.memory_bytes().1);
}

#[test]
fn large_download_is_streamed() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(&proxy_to(&[nginx.address]));
    write_large(&nginx.file("large"));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let (before, _) = gateway.memory_bytes();
    curl(&["-o", copy.to_str().unwrap(), &gateway.url("/files/large")]).text();
    assert_same_content(&nginx.file("large"), &copy);
    assert_bounded(before, gateway.memory_bytes().1);
}

fn write_large(file: &Path) {
    let mut bytes = Vec::with_capacity(LARGE);
    for number in 0..LARGE as u64 / 8 {
        // No two parts of the file are equal, so that any reordering is detected.
        bytes.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    std::fs::write(file, bytes).unwrap();
}

fn assert_same_content(expected: &Path, found: &Path) {
    let (expected, found) = (std::fs::read(expected).unwrap(), std::fs::read(found).unwrap());
    assert_eq!(expected.len(), found.len());
    assert!(expected == found, "the content differs");
}

fn assert_bounded(before: u64, most: u64) {
    let grown = most.saturating_sub(before) / MIB as u64;
    assert!(grown < 32, "memory grew by {grown} MiB over a body of {} MiB", LARGE / MIB);
}

#[test]
fn response_is_streamed_while_the_upstream_writes_it() {
    let latch = Latch::default();
    let upstream = Upstream::start({
        let latch = latch.clone();
        move |_, stream| {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(format!("{head}5\r\nfirst\r\n").as_bytes()).unwrap();
            latch.wait();
            stream.write_all(b"6\r\nsecond\r\n0\r\n\r\n").is_ok()
        }
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut begin = Vec::new();
    while !begin.ends_with(b"first") {
        begin.extend(client.read_bytes(1));
    }
    latch.open();
    assert_eq!(client.read_bytes(2 + 3 + 8 + 5), b"\r\n6\r\nsecond\r\n0\r\n\r\n");
}

#[test]
fn request_body_is_streamed_while_the_client_writes_it() {
    // Responds after the first part of the body, long before the rest.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&proxy_to(&[listener.local_addr().unwrap()]));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    let (mut stream, _) = listener.accept().unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    client.write(b"6\r\nsecond\r\n0\r\n\r\n");
    let mut rest = [0; 11 + 5];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"6\r\nsecond\r\n0\r\n\r\n");
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
    assert_eq!(client.read_response("POST").text(), "done");
}

#[test]
fn connections_are_reused_on_both_sides() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    for body in ["one", "two", "three"] {
        assert_eq!(client.send(&Request::new("POST", "/").body(body)).text(), body);
    }
    let connections: Vec<usize> = upstream.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0]);
}

#[test]
fn http_1_0_client_gets_no_chunked_response() {
    let upstream = Upstream::responding(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.0\r\n\r\n");
    let answer = client.read_response("GET");
    // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
    assert_eq!((answer.header("transfer-encoding"), answer.text().as_str()), (None, "abc"));
    assert!(client.is_closed_by_server());
    assert_eq!(curl(&["-0", &gateway.url("/")]).text(), "abc");
}

#[test]
fn expect_100_continue_is_answered() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(&proxy_to(&[nginx.address]));
    let mut client = gateway.connect();
    let expectation = "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.write(format!("PUT /files/new HTTP/1.1\r\nHost: a\r\n{expectation}").as_bytes());
    // curl sends the body only after nginx has sent 100.
    assert_eq!(client.read_response("PUT").status, 100);
    client.write(b"hello");
    assert_eq!(client.read_response("PUT").status, 201);
    assert_eq!(std::fs::read(nginx.file("new")).unwrap(), b"hello");
}

/// Upgrades if requested, then echoes; responds with 204 otherwise.
fn echoing_socket() -> Upstream {
    Upstream::start(|seen, stream| {
        if seen.header("upgrade") != Some("websocket") {
            return stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_ok();
        }
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut buffer = [0; 64];
        while let Ok(read) = stream.read(&mut buffer)
            && read > 0
            && stream.write_all(&buffer[..read]).is_ok()
        {}
        false
    })
}

fn upgrade() -> Request {
    Request::get("/socket")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[test]
fn row_65_websocket_is_forwarded_and_is_one_request() {
    let upstream = echoing_socket();
    let rule = "[rules.all]\nper = []\nrate = \"2/d\"\n";
    let gateway = Gateway::start(&(proxy_to(&[upstream.address]) + rule));
    let mut client = gateway.connect();
    assert_eq!(client.send(&upgrade()).status, 101);
    for message in ["first", "a longer second one", "third"] {
        client.write(message.as_bytes());
        assert_eq!(client.read_bytes(message.len()), message.as_bytes());
    }
    drop(client);
    // The whole WebSocket counts as one request.
    assert_eq!(gateway.get("/nothing").remaining(), 0);
    assert_eq!(gateway.send(&upgrade()).status, 429);
}

#[test]
fn websocket_survives_an_immediate_101() {
    // Sequentially: in each attempt, the 101 can arrive before the end of the request.
    let upstream = echoing_socket();
    let closed = ClosedPort::bind();
    let unused_address = closed.address;
    for servers in [&[upstream.address][..], &[unused_address, upstream.address]] {
        let gateway = Gateway::start(&proxy_to(servers));
        for number in 0..50 {
            let mut client = gateway.connect();
            assert_eq!(client.send(&upgrade()).status, 101);
            client.write(b"hello");
            assert_eq!(client.read_bytes(5), b"hello", "connection {number} to {servers:?}");
        }
    }
}

#[test]
fn demo_upstream_echoes_the_request() {
    let gateway = Gateway::start(DEMO);
    let answer = gateway.get("/some/where?api=1").json();
    assert_eq!(answer["path"], "/some/where");
    assert_eq!(answer["route"], "all");
    assert_eq!(answer["client"], "anonymous");
}

#[test]
fn upstream_connections_outlive_a_load_spike() {
    /// More connections than Pingora keeps by default for two threads.
    const AT_ONCE: usize = 400;
    let all_are_here = Barrier::new(AT_ONCE);
    let upstream = Upstream::start(move |_, stream| {
        all_are_here.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let url = gateway.url("/");
    for _ in 0..3 {
        let counts = send_concurrently(AT_ONCE, AT_ONCE, |client, _| client.get(&url));
        assert_eq!(counts.get(&200), Some(&AT_ONCE));
        // A request ends shortly after its response.
        gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    }
    let opened = [("upstream", "api"), ("reused", "false")];
    let opened = gateway.count("tollgate_upstream_connections_total", &opened);
    // The last connections may not be back in the pool when the next round begins.
    let most = AT_ONCE as u64 + 50;
    assert!((AT_ONCE as u64..most).contains(&opened), "{opened}");
}

#[test]
fn upstream_connection_expires_after_idle_timeout() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let config = proxy_to(&[upstream.address])
        .replace("[upstreams.api]", "[upstreams.api]\nidle_timeout = \"1s\"");
    let gateway = Gateway::start(&config);
    for _ in 0..2 {
        assert_eq!(gateway.get("/").status, 200);
        sleep_for(Duration::from_secs(2));
    }
    let connections: Vec<_> = upstream.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 1]);
}

/// The old configuration lives as long as requests that began under it; its connections do not.
#[test]
fn idle_connections_to_a_server_that_a_reload_removed_are_closed() {
    let (old, new) = (TcpListener::bind("127.0.0.1:0").unwrap(), Upstream::echo());
    let gateway = Gateway::start(&proxy_to(&[old.local_addr().unwrap()]));
    let accept = || {
        let (mut stream, _) = old.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_ne!(stream.read(&mut [0; 4_096]).unwrap(), 0);
        stream
    };
    let mut clients = [(); 2].map(|()| gateway.connect());
    let [mut answered, mut waiting] = [0, 1].map(|number: usize| {
        clients[number].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        accept()
    });
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    answered.write_all(ok).unwrap();
    assert_eq!(clients[0].read_response("GET").status, 200);
    gateway.apply(&proxy_to(&[new.address]));
    assert_eq!(answered.read(&mut [0]).unwrap(), 0, "before the reload it was idle");
    waiting.write_all(ok).unwrap();
    assert_eq!(clients[1].read_response("GET").status, 200);
    assert_eq!(waiting.read(&mut [0]).unwrap(), 0, "it became idle after the reload");
}
