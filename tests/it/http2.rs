//! HTTP/2 between clients and the gateway, in clear by prior knowledge.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode, Version};
use socket2::{Domain, Socket, Type};

use crate::http2_upstreams::scripted;
use crate::support::{
    Connection, DEMO, Gateway, Latch, PeerServer, TIMEOUT, Upstream, curl, eventually, proxy_to,
    timed, timed_below,
};

/// A listener for HTTP/1.1 and HTTP/2 in clear, after `server`, which continues the `[server]`
/// table.
fn config(server: &str, rest: &str) -> String {
    format!("{server}\n[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n{rest}")
}

/// A connection of a client. The task ends with the connection.
pub(crate) struct Client {
    pub(crate) send: SendRequest<Bytes>,
    task: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (send, connection) = h2::client::handshake(stream).await.unwrap();
        Self { send: send.ready().await.unwrap(), task: tokio::spawn(connection) }
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<()>,
    ) -> Result<Response<RecvStream>, h2::Error> {
        let (response, _) = self.send.send_request(request, true)?;
        tokio::time::timeout(TIMEOUT, response).await.expect("a response in time")
    }

    /// Waits until the connection has ended. Returns whether it ended without an error.
    pub(crate) async fn closed(self) -> Result<(), h2::Error> {
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the end in time").unwrap()
    }
}

fn get(path: &str) -> Request<()> {
    let uri = format!("http://api.test{path}");
    Request::builder().uri(uri).version(Version::HTTP_2).body(()).unwrap()
}

async fn body(response: Response<RecvStream>) -> Vec<u8> {
    let mut stream = response.into_body();
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.unwrap();
        stream.flow_control().release_capacity(chunk.len()).unwrap();
        body.extend_from_slice(&chunk);
    }
    body
}

#[test]
fn http1_and_http2_share_a_port() {
    let gateway = Gateway::start(&config("", DEMO));
    let url = format!("http://{}/x", gateway.listener(1));
    let version = |option: &str| {
        let written = ["--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"];
        curl(&[&[option], &written[..], &[&url]].concat()).text()
    };
    assert_eq!(version("--http2-prior-knowledge"), "2 200");
    assert_eq!(version("--http1.1"), "1.1 200");
    let mut connection = Connection::open(gateway.listener(1));
    connection.write(b"P");
    connection.write(b"UT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(connection.read_response("PUT").status, 200);
}

#[tokio::test]
async fn upstream_of_http1_gets_the_authority_as_host_and_one_cookie_line() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&config("", &proxy_to(&[upstream.address])));
    let mut client = Client::connect(gateway.listener(1)).await;
    let request = Request::builder()
        .uri("http://api.test:8080/path?q=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(())
        .unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), 200);
    let seen = upstream.only_request();
    assert_eq!(seen.line(), "GET /path?q=1 HTTP/1.1");
    assert_eq!(seen.values("host"), ["api.test:8080"]);
    assert_eq!(seen.values("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_the_client_resets_is_counted_once_and_logged_as_closed_by_the_client() {
    let release = Latch::default();
    let waits = release.clone();
    let upstream = Upstream::start(move |_, _| {
        waits.wait();
        false
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let rest = format!(
        "{}[rules.ip]\nper = [\"ip\"]\nrate = \"9/d\"\n[access_log]\noutput = {log:?}\n\
         fields = [\"reason\", \"status\"]\n",
        proxy_to(&[upstream.address])
    );
    let gateway = Gateway::start(&config("", &rest));
    let mut client = Client::connect(gateway.listener(1)).await;
    let (response, mut stream) = client.send.send_request(get("/"), true).unwrap();
    tokio::task::block_in_place(|| eventually("the request", || upstream.requests().pop()));
    stream.send_reset(Reason::CANCEL);
    assert!(response.await.is_err());
    let line = tokio::task::block_in_place(|| {
        eventually("a line", || {
            std::fs::read_to_string(&log).ok().filter(|text| text.ends_with('\n'))
        })
    });
    assert_eq!(line, "{\"reason\":\"client_closed\",\"status\":null}\n");
    assert_eq!(gateway.count("tollgate_decisions_total", &[("rule", "ip")]), 1);
    assert_eq!(upstream.requests().len(), 1);
    release.open();
}

#[test]
fn refused_upload_gets_a_problem_document() {
    let rule = "[rules.all]\nper = []\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&config("", &format!("{DEMO}{rule}")));
    let url = format!("http://{}/x", gateway.listener(1));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    let upload = format!("@{}", file.display());
    let send = |bytes: usize| {
        std::fs::write(&file, "x".repeat(bytes)).unwrap();
        let status = ["--http2-prior-knowledge", "--write-out", "\n%{http_code}", "--data-binary"];
        curl(&[&status[..], &[&upload, &url]].concat()).text()
    };
    // curl would wait forever for a window after a response with status 200 that came too early.
    assert!(send(10_000_000).ends_with("\n200"));
    for bytes in [500_000, 10_000_000] {
        let refused = send(bytes);
        assert!(refused.contains("quota-exceeded") && refused.ends_with("\n429"), "{refused}");
    }
}

/// RFC 9113, section 8.1.
#[tokio::test(flavor = "multi_thread")]
async fn refused_upload_that_continues_is_reset_without_error() {
    let rule = "[rules.all]\nper = []\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&config("", &format!("{DEMO}{rule}")));
    let mut client = Client::connect(gateway.listener(1)).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    let post = || Request::post("http://api.test/").body(()).unwrap();
    // Together more than the window of the connection. The last one is more than the gateway
    // discards.
    let mut uploads = Vec::new();
    for bytes in [0, 200_000, 250_000, 250_000, 250_000, 250_000, 10_000_000] {
        let (response, mut upload) = client.send.send_request(post(), false).unwrap();
        upload.send_data(vec![b'x'; bytes].into(), false).unwrap();
        uploads.push((response, upload));
    }
    for (response, mut upload) in uploads {
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 429);
        let document = String::from_utf8(body(response).await).unwrap();
        assert!(document.contains("quota-exceeded"), "{document}");
        let reset = std::future::poll_fn(|context| upload.poll_reset(context));
        let reason = tokio::time::timeout(TIMEOUT, reset).await.expect("a reset in time").unwrap();
        assert_eq!(reason, Reason::NO_ERROR);
    }
    // What was discarded was given back to the window of the connection.
    let (response, mut upload) = client.send.send_request(post(), false).unwrap();
    upload.send_data(vec![b'x'; 2_000_000].into(), true).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
    assert_eq!(
        (response.status(), body(response).await.is_empty()),
        (StatusCode::TOO_MANY_REQUESTS, false)
    );
}

/// A server that responds to each head of a request, and does not read the body.
fn early_server(response: &'static str) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        let _ = stream.write_all(response.as_bytes());
                    }
                }
            });
        }
    });
    address
}

/// The rest of a request holds no unit of a limit after its response, and its connection to the
/// server for a limited time, even if parts of it arrive.
#[tokio::test(flavor = "multi_thread")]
async fn row_53_client_that_does_not_end_its_request_after_the_response_keeps_nothing() {
    const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
    const EMPTY: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    for (response, length) in [(REFUSED, 2), (EMPTY, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("access.log");
        let one =
            proxy_to(&[early_server(response)]).replace("[routes", "max_connections = 1\n[routes");
        let rest = format!(
            "{one}[rules.one]\nper = []\nkind = \"concurrency\"\nlimit = 1\n\
             [access_log]\noutput = {log:?}\nfields = [\"path\", \"reason\", \"status\", \"bytes_out\"]\n"
        );
        let gateway =
            Gateway::start(&config("read_timeout = \"2s\"\nwrite_timeout = \"2s\"", &rest));
        let get = |path| tokio::task::block_in_place(|| gateway.get(path).status);
        let mut client = Client::connect(gateway.listener(1)).await;
        let post = Request::post("http://api.test/h2").body(()).unwrap();
        let (answer, mut upload) = client.send.send_request(post, false).unwrap();
        let answer = tokio::time::timeout(TIMEOUT, answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), 401);
        assert_eq!(body(answer).await.len(), length);
        // The unit is free at once: not 429, but 503 if the connection is not free within a second.
        assert!([401, 503].contains(&get("/at-once")));
        let ended = std::future::poll_fn(|context| upload.poll_reset(context));
        let reason = tokio::time::timeout(TIMEOUT, ended).await.expect("a reset in time");
        assert_eq!(reason.unwrap(), Reason::NO_ERROR);
        assert_eq!(get("/next"), 401);

        let mut slow = gateway.connect();
        slow.write(b"POST /h1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nbeginning");
        assert_eq!(tokio::task::block_in_place(|| slow.read_response("POST")).status, 401);
        assert!([401, 503].contains(&get("/at-once")));
        assert!(tokio::task::block_in_place(|| slow.is_closed_by_server()));
        assert_eq!(get("/next"), 401);

        let lines = || std::fs::read_to_string(&log).ok().filter(|it| it.lines().count() == 6);
        let text = tokio::task::block_in_place(|| eventually("six lines", lines));
        for (path, count) in [("/h2", 1), ("/h1", 1), ("/next", 2)] {
            let expected = format!(
                "{{\"path\":\"{path}\",\"reason\":null,\"status\":401,\"bytes_out\":{length}}}\n"
            );
            assert_eq!(text.matches(&expected).count(), count, "{expected}{text}");
        }
    }
}

/// A server over HTTP/2 that responds before it has read the request.
#[tokio::test(flavor = "multi_thread")]
async fn early_response_of_an_http2_server_arrives_before_the_reset() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"early"), true).unwrap();
            drop(request);
        }
    });
    let over_http2 = proxy_to(&[address]).replace("[routes", "protocol = \"h2c\"\n[routes");
    let gateway = Gateway::start(&config("", &over_http2));
    let mut client = Client::connect(gateway.listener(1)).await;
    let post = Request::post("http://api.test/").body(()).unwrap();
    let (response, mut upload) = client.send.send_request(post, false).unwrap();
    upload.send_data(vec![b'x'; 1_000_000].into(), false).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(body(response).await, b"early");
    let reset = std::future::poll_fn(|context| upload.poll_reset(context));
    let reason = tokio::time::timeout(TIMEOUT, reset).await.expect("a reset in time").unwrap();
    assert_eq!(reason, Reason::NO_ERROR);
}

/// The gateway reads a part of the rest of the request, for two seconds at most. The stream to the
/// server, and what the request holds, have ended before.
#[tokio::test(flavor = "multi_thread")]
async fn row_53_request_over_http2_keeps_nothing_after_an_early_response() {
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let server = scripted(move |(request, mut respond)| {
        let ends = ends.clone();
        async move {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"early"), true).unwrap();
            let mut upload = request.into_body();
            while let Some(Ok(_)) = upload.data().await {}
            let _ = ends.send(());
        }
    });
    let over_http2 = proxy_to(&[server.await]).replace("[routes", "protocol = \"h2c\"\n[routes");
    let rule = "[rules.one]\nper = []\nkind = \"concurrency\"\nlimit = 1\n";
    let gateway = Gateway::start(&config("", &format!("{over_http2}{rule}")));
    let mut client = Client::connect(gateway.listener(1)).await;
    let post = Request::post("http://api.test/").body(()).unwrap();
    let (response, _upload) = client.send.send_request(post, false).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(body(response).await, b"early");
    tokio::task::block_in_place(|| {
        let end = timed_below(Duration::from_secs(1), || ended.blocking_recv());
        assert!(end.is_some());
        assert_eq!(gateway.get("/next").status, 200);
    });
}

/// The same for responses of the gateway itself: to requests that fail, and of a route.
#[tokio::test(flavor = "multi_thread")]
async fn row_53_request_over_http2_keeps_nothing_after_a_response_of_the_gateway() {
    let server = scripted(|(request, mut respond)| async move {
        let path = request.uri().path().to_owned();
        let mut upload = request.into_body();
        match &*path {
            "/failed" => respond.send_reset(Reason::INTERNAL_ERROR),
            "/next" => drop(respond.send_response(Response::new(()), true).unwrap()),
            _ => while let Some(Ok(_)) = upload.data().await {},
        }
    });
    let over_http2 = proxy_to(&[server.await]).replace("[routes", "protocol = \"h2c\"\n[routes");
    let rest = "[routes.large]\npath = \"/large\"\nupstream = \"api\"\nmax_body_bytes = 5\n\
                [routes.fixed]\npath = \"/fixed\"\nrespond = { body = \"fixed\" }\n\
                [rules.one]\nper = [\"header:x-case\"]\nkind = \"concurrency\"\nlimit = 1\n";
    let gateway = Gateway::start(&config("", &format!("{over_http2}{rest}")));
    let mut client = Client::connect(gateway.listener(1)).await;
    for (path, status) in [("/failed", 502), ("/large", 413), ("/fixed", 200)] {
        let uri = format!("http://api.test{path}");
        let post = Request::post(uri).header("x-case", path).body(()).unwrap();
        let (response, mut upload) = client.send.send_request(post, false).unwrap();
        upload.send_data(Bytes::from_static(b"123456"), false).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), status, "{path}");
        body(response).await;
        // The gateway reads the rest of the request for two seconds.
        let next = crate::support::Request::get("/next").header("X-Case", path);
        let until_allowed = || while gateway.send(&next).status != 200 {};
        tokio::task::block_in_place(|| timed_below(Duration::from_secs(1), until_allowed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_on_one_connection_are_each_counted() {
    let gateway = Gateway::start(&config(
        "",
        &format!("{DEMO}[rules.ip]\nper = [\"ip\"]\nrate = \"50/d\"\n"),
    ));
    let client = Client::connect(gateway.listener(1)).await;
    let requests = (0..80).map(|_| {
        let mut send = client.send.clone();
        tokio::spawn(async move {
            send = send.ready().await.unwrap();
            send.send_request(get("/"), true).unwrap().0.await.unwrap().status()
        })
    });
    let mut allowed = 0;
    for request in requests.collect::<Vec<_>>() {
        allowed += usize::from(request.await.unwrap() == StatusCode::OK);
    }
    assert_eq!(allowed, 50);
    assert_eq!(gateway.count("tollgate_client_connections_total", &[]), 1);
}

#[tokio::test]
async fn connect_is_refused_with_a_problem_document() {
    let gateway = Gateway::start(&config("", DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    let connect = Request::builder().method(Method::CONNECT).uri("api.test:443").body(()).unwrap();
    let response = client.send(connect).await.unwrap();
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    let text = String::from_utf8(body(response).await).unwrap();
    assert!(text.contains("CONNECT is not allowed"), "{text}");
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);

    let mut http1 = Connection::open(gateway.address);
    http1.write(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n");
    let response = http1.read_response("CONNECT");
    assert_eq!((response.status, response.text().contains("CONNECT is not allowed")), (405, true));
    assert!(http1.is_closed_by_server());
}

#[tokio::test]
async fn response_without_a_body_ends_with_its_head() {
    let gateway = Gateway::start(&config("", DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    let head = Request::builder().method(Method::HEAD).uri("http://api.test/").body(()).unwrap();
    let response = client.send(head).await.unwrap();
    assert!(response.body().is_end_stream());
}

/// curl 7.88 can wait for ever if a stream ends without a body while it sends one.
#[tokio::test]
async fn response_without_a_body_comes_after_the_body_of_the_request() {
    let gone = "[routes.gone]\npath = \"/gone\"\nrespond = { status = 204 }\n";
    let gateway = Gateway::start(&config("", &format!("{DEMO}{gone}")));
    let mut client = Client::connect(gateway.listener(1)).await;
    let uri = "http://api.test/gone";
    let post = Request::builder().method(Method::POST).uri(uri).body(()).unwrap();
    let (mut response, mut body) = client.send.send_request(post, false).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), &mut response).await;
    assert!(early.is_err(), "{early:?}");
    body.send_data(Bytes::from_static(b"x"), true).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 204);
    assert!(response.body().is_end_stream());
}

#[tokio::test]
async fn idle_connection_is_closed_with_a_goaway() {
    let server = "[server.http2]\nidle_timeout = \"2s\"\n";
    let gateway = Gateway::start(&config(server, DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    // A connection that breaks off is an error.
    client.closed().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_connection_closes_after_its_requests() {
    let release = Latch::default();
    let waits = release.clone();
    let upstream = Upstream::start(move |_, stream| {
        waits.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let server = "[server.http2]\nmax_connection_age = \"3s\"\n";
    let gateway = Gateway::start(&config(server, &proxy_to(&[upstream.address])));
    let mut client = Client::connect(gateway.listener(1)).await;
    let (response, _) = client.send.send_request(get("/slow"), true).unwrap();
    let mut other = client.send.clone();
    let refused = tokio::time::timeout(TIMEOUT, async {
        // GOAWAY has arrived as soon as the client opens no more streams.
        loop {
            match other.clone().ready().await {
                Ok(ready) => other = ready,
                Err(error) => return error,
            }
            tokio::task::yield_now().await;
        }
    });
    let refused = refused.await.expect("a GOAWAY in time");
    assert!(refused.is_go_away() && refused.reason() == Some(Reason::NO_ERROR), "{refused}");
    release.open();
    let response = response.await.unwrap();
    assert_eq!(body(response).await, b"ok");
    client.closed().await.unwrap();
}

/// `drain_timeout` bounds the drain of the process, not the last requests of a connection.
#[tokio::test(flavor = "multi_thread")]
async fn last_requests_of_a_connection_are_not_cut_off() {
    let release = Latch::default();
    let waits = release.clone();
    let upstream = Upstream::start(move |seen, stream| {
        if seen.line().contains("/slow") {
            waits.wait();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let server = "drain_timeout = \"300ms\"\nlimits.max_requests_per_connection = 2\n";
    let gateway = Gateway::start(&config(server, &proxy_to(&[upstream.address])));
    let mut client = Client::connect(gateway.listener(1)).await;
    let (response, _) = client.send.send_request(get("/slow"), true).unwrap();
    assert_eq!(body(client.send(get("/fast")).await.unwrap()).await, b"ok");
    tokio::time::sleep(Duration::from_secs(2)).await;
    release.open();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap();
    assert_eq!(body(response.unwrap()).await, b"ok");
    // Frames of the client that arrive after the end make the kernel reset the connection.
    let _ = client.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_streams_finish() {
    let release = Latch::default();
    let waits = release.clone();
    let upstream = Upstream::start(move |_, stream| {
        waits.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let mut gateway = Gateway::start(&config("", &proxy_to(&[upstream.address])));
    let mut client = Client::connect(gateway.listener(1)).await;
    let (response, _) = client.send.send_request(get("/slow"), true).unwrap();
    eventually("the request arrives", || (!upstream.requests().is_empty()).then_some(()));
    gateway.terminate();
    eventually("the gateway drains", || gateway.log().contains("draining").then_some(()));
    release.open();
    assert_eq!(body(response.await.unwrap()).await, b"ok");
    assert_eq!(gateway.exit().0, Some(0));
}

#[test]
fn incomplete_preface_is_cut_off() {
    let server = "[server.limits]\nhead_timeout = \"300ms\"\n";
    let gateway = Gateway::start(&config(server, DEMO));
    for first in [&b"PRI * HTTP/2.0\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        let mut connection = Connection::open(gateway.listener(1));
        connection.write(first);
        let (closed, took) = timed(|| connection.is_closed_by_server());
        assert!(closed && took < TIMEOUT / 2, "{took:?}");
    }
    let rejected = [("reason", "head_timeout")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &rejected, 2);
}

#[test]
fn head_that_trickles_is_cut_off() {
    let gateway = Gateway::start(&format!("[server.limits]\nhead_timeout = \"500ms\"\n{DEMO}"));
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
    let closed = eventually("the connection is closed", || {
        // Each part arrives within any timeout between two reads.
        let _ = stream.write_all(b"x: y\r\n");
        match stream.read(&mut [0; 64]) {
            Ok(0) => Some(true),
            Ok(_) => Some(false),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(_) => Some(true),
        }
    });
    assert!(closed);
    let rejected = [("reason", "head_timeout")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &rejected, 1);
    // Time between requests does not count.
    let mut kept = Connection::open(gateway.address);
    for _ in 0..2 {
        assert_eq!(kept.send(&crate::support::Request::get("/")).status, 200);
        crate::support::sleep_for(Duration::from_millis(700));
    }
}

#[tokio::test]
async fn value_with_a_space_around_it_is_malformed() {
    let key = crate::support::key("acme", "secret", "free");
    let gateway = Gateway::start(&config("", &format!("{DEMO}{key}")));
    for (name, value) in [
        ("x-api-key", "secret "),
        ("x-api-key", "secret\t"),
        ("x-api-key", " secret"),
        ("authorization", "Bearer secret "),
        ("x-forwarded-for", "\t192.0.2.1"),
        ("x-any", " "),
    ] {
        let mut client = Client::connect(gateway.listener(1)).await;
        let request = Request::builder().uri("http://api.test/").header(name, value);
        let response = client.send(request.body(()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 400, "{name}: {value:?}");
        let text = String::from_utf8(body(response).await).unwrap();
        assert!(text.contains("begins or ends with a space or a tab"), "{text}");
    }
    // Pingora refuses another host than that of the target, and compares them to the byte.
    for host in ["api.test ", "API.test", "api.test:80"] {
        let mut client = Client::connect(gateway.listener(1)).await;
        let request = Request::builder().uri("http://api.test/").header("host", host);
        let response = client.send(request.body(()).unwrap()).await.unwrap();
        assert_eq!((response.status().as_u16(), body(response).await.len()), (400, 0), "{host}");
    }
    // Also in a part of a cookie, whose lines become one.
    let mut client = Client::connect(gateway.listener(1)).await;
    let request = Request::builder().uri("http://api.test/").header("cookie", "a=1 ");
    let response = client.send(request.header("cookie", "b=2").body(()).unwrap()).await;
    assert_eq!(response.unwrap().status(), 400);
    let rejected = [("reason", "space_around_value")];
    gateway.wait_for_count("tollgate_rejections_total", &rejected, 7);
    let mut client = Client::connect(gateway.listener(1)).await;
    let request = Request::builder().uri("http://api.test/").header("x-api-key", "secret");
    let request = request.header("x-empty", "").header("x-inner", "a b");
    assert_eq!(client.send(request.body(()).unwrap()).await.unwrap().status(), 200);
    // HTTP/1.1 does not count the space to the value.
    let trimmed = crate::support::Request::get("/").header("X-Api-Key", "secret ");
    assert_eq!(gateway.send(&trimmed).status, 200);
}

#[tokio::test]
async fn repeated_malformed_requests_close_the_connection() {
    let gateway = Gateway::start(&config("", DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    let malformed = || {
        let request = Request::builder().uri("http://api.test/");
        request.header("host", "other.test").body(()).unwrap()
    };
    let mut answered = 0;
    while let Ok(response) = client.send(malformed()).await {
        assert_eq!(response.status(), 400);
        answered += 1;
        assert!(answered < 100);
    }
    assert!((20..=32).contains(&answered), "{answered}");
    let rejected = [("reason", "malformed_requests")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &rejected, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_stalls_is_a_408_and_other_streams_continue() {
    let (http1, http2) = (Upstream::echo(), PeerServer::node(None));
    let over_http2 = proxy_to(&[http2.address]).replace("[routes", "protocol = \"h2c\"\n[routes");
    for config_of_upstream in [proxy_to(&[http1.address]), over_http2] {
        let gateway = Gateway::start(&config("read_timeout = \"500ms\"\n", &config_of_upstream));
        let mut client = Client::connect(gateway.listener(1)).await;
        let post =
            Request::builder().method(Method::POST).uri("http://api.test/").body(()).unwrap();
        let (response, mut upload) = client.send.send_request(post, false).unwrap();
        upload.send_data(Bytes::from_static(b"part"), false).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!(response.status(), 408);
        assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_gets_a_reset_and_other_streams_continue() {
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n{}", "x".repeat(500_000));
    let (http1, http2) = (Upstream::responding(large), PeerServer::node(None));
    let over_http2 = proxy_to(&[http2.address]).replace("[routes", "protocol = \"h2c\"\n[routes");
    for config_of_upstream in [proxy_to(&[http1.address]), over_http2] {
        let gateway = Gateway::start(&config("write_timeout = \"500ms\"\n", &config_of_upstream));
        let stream = tokio::net::TcpStream::connect(gateway.listener(1)).await.unwrap();
        let mut client = h2::client::Builder::new();
        let handshake = client.initial_window_size(1_000).handshake::<_, Bytes>(stream);
        let (send, connection) = handshake.await.unwrap();
        let task = tokio::spawn(connection);
        let mut client = Client { send: send.ready().await.unwrap(), task };
        let mut body = client.send(get("/large")).await.unwrap().into_body();
        let ended = tokio::time::timeout(TIMEOUT, async {
            loop {
                match body.data().await {
                    // Its window is not given back.
                    Some(Ok(_)) => {}
                    end => return end,
                }
            }
        });
        let error = ended.await.expect("a reset in time").expect("no complete body").unwrap_err();
        assert!(error.is_reset(), "{error}");
        let head = Request::builder().method(Method::HEAD).uri("http://api.test/large");
        assert_eq!(client.send(head.body(()).unwrap()).await.unwrap().status(), 200);
        gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    }
}

#[tokio::test]
async fn extended_connect_is_not_announced() {
    let gateway = Gateway::start(&config("", DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    // The settings of the gateway come before its first response.
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    assert!(!client.send.is_extended_connect_protocol_enabled());
    // RFC 8441, section 3: `:protocol` is then malformed, as any unknown pseudo-header.
    let mut connect =
        Request::builder().method(Method::CONNECT).uri("http://api.test/").body(()).unwrap();
    connect.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let error = client.send(connect).await.unwrap_err();
    assert!(error.is_reset() && error.reason() == Some(Reason::PROTOCOL_ERROR), "{error}");
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn sigterm_closes_idle_connections_with_a_goaway_and_exits_at_once() {
    let mut gateway = Gateway::start(&config("drain_timeout = \"20s\"\n", DEMO));
    let mut client = Client::connect(gateway.listener(1)).await;
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    gateway.terminate();
    client.closed().await.unwrap();
    assert_eq!(gateway.exit_below(Duration::from_secs(5)), Some(0));
}

/// The preface with windows that no response fills, and `count` times GET.
fn greedy_requests(count: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let header = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&header, payload].concat()
    };
    let window = 0x4000_0000_u32.to_be_bytes();
    let settings = frame(4, 0, 0, &[&[0, 4], &window[..]].concat());
    let update = frame(8, 0, 0, &window);
    // The method, scheme and path of HPACK's static table, and `:authority: a`.
    let get = |number: u32| frame(1, 5, 2 * number + 1, &[0x82, 0x86, 0x84, 0x41, 1, b'a']);
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &update].concat();
    [preface, (0..count).flat_map(get).collect()].concat()
}

/// Bytes of the bodies in these frames, and how many of them are complete.
fn bodies_of(mut frames: &[u8]) -> (usize, usize) {
    let (mut received, mut complete) = (0, 0);
    while let [high, middle, low, kind, flags, _, _, _, _, rest @ ..] = frames {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        if *kind == 0 {
            received += length.min(rest.len());
            complete += usize::from(flags & 1 == 1 && length <= rest.len());
        }
        frames = rest.get(length..).unwrap_or_default();
    }
    (received, complete)
}

/// The end of a response over HTTP/2 is queued after its request is complete.
#[test]
fn sigterm_waits_until_a_slow_client_has_read_the_responses() {
    /// One body fits into the buffer of its stream, and all of them together do not fit into the
    /// kernel's.
    const COUNT: usize = 90;
    const LENGTH: usize = 60_000;
    let body = "x".repeat(LENGTH);
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{body}");
    let upstream = Upstream::responding(large);
    let mut gateway = Gateway::start(&config("", &proxy_to(&[upstream.address])));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&gateway.listener(1).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(&greedy_requests(u32::try_from(COUNT).unwrap())).unwrap();
    gateway.wait_for_count("tollgate_requests_total", &[("status", "200")], COUNT as u64);
    gateway.terminate();
    eventually("the gateway drains", || gateway.log().contains("draining").then_some(()));
    crate::support::sleep_for(Duration::from_millis(500));
    let mut seen = Vec::new();
    // A connection that breaks off may be an error.
    let _ = stream.read_to_end(&mut seen);
    assert_eq!(bodies_of(&seen), (COUNT * LENGTH, COUNT));
    assert_eq!(gateway.exit().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_last_frame_ends_the_body_once() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&config("", &proxy_to(&[upstream.address])));
    let mut client = Client::connect(gateway.listener(1)).await;
    for number in 0..3 {
        let post =
            Request::builder().method(Method::POST).uri("http://api.test/").body(()).unwrap();
        let (response, mut upload) = client.send.send_request(post, false).unwrap();
        // An empty frame in the middle is not the end.
        for part in ["first", "", "last"] {
            upload.send_data(Bytes::from_static(part.as_bytes()), false).unwrap();
        }
        upload.send_data(Bytes::new(), true).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        assert_eq!((number, response.status()), (number, StatusCode::OK));
    }
    let requests = upstream.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    for request in requests {
        assert!(request.head.starts_with("POST / HTTP/1.1\r\n"), "{request:?}");
        assert_eq!((request.connection, &*request.body), (0, &b"firstlast"[..]), "{request:?}");
    }
}

/// A server that stops within its response.
#[tokio::test(flavor = "multi_thread")]
async fn response_that_stalls_is_reset_on_both_sides() {
    let (resets, mut reset) = tokio::sync::mpsc::unbounded_channel();
    let server = scripted(move |(request, mut respond)| {
        let resets = resets.clone();
        async move {
            if request.uri().path() != "/stalled" {
                let _ = respond.send_response(Response::new(()), true);
                return;
            }
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(Bytes::from_static(b"part"), false).unwrap();
            let reason = std::future::poll_fn(|context| body.poll_reset(context)).await;
            resets.send(reason.is_ok()).unwrap();
        }
    });
    let to_server = proxy_to(&[server.await])
        .replace("[routes", "protocol = \"h2c\"\nread_timeout = \"4s\"\n[routes");
    let gateway = Gateway::start(&config("read_timeout = \"2s\"\n", &to_server));
    let mut client = Client::connect(gateway.listener(1)).await;
    // The server's timeout ends the first one, the client's the second one, whose body is open.
    for is_whole in [true, false] {
        let post = Request::post("http://api.test/stalled").body(()).unwrap();
        let (response, _upload) = client.send.send_request(post, is_whole).unwrap();
        let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
        let mut body = response.into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "part");
        let end = tokio::time::timeout(TIMEOUT, body.data()).await.expect("the end in time");
        let error = end.expect("no complete body").unwrap_err();
        assert!(error.is_reset(), "{error}");
        let at_server = tokio::time::timeout(TIMEOUT, reset.recv()).await.expect("a reset in time");
        assert_eq!((is_whole, at_server), (is_whole, Some(true)));
        assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
}

/// A server that gives no window for the rest of an upload.
#[tokio::test(flavor = "multi_thread")]
async fn upload_that_the_server_does_not_read_is_504_after_write_timeout() {
    let server = scripted(|(request, respond)| async move {
        if request.method() == Method::POST {
            let _open = (request, respond);
            return std::future::pending().await;
        }
        let mut respond = respond;
        let _ = respond.send_response(Response::new(()), true);
    });
    let to_server = proxy_to(&[server.await])
        .replace("[routes", "protocol = \"h2c\"\nwrite_timeout = \"500ms\"\n[routes");
    let gateway = Gateway::start(&config("", &to_server));
    let mut client = Client::connect(gateway.listener(1)).await;
    let post = Request::post("http://api.test/").body(()).unwrap();
    let (response, mut upload) = client.send.send_request(post, false).unwrap();
    upload.send_data(vec![b'x'; 2_000_000].into(), true).unwrap();
    let response = tokio::time::timeout(TIMEOUT, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(client.send(get("/")).await.unwrap().status(), 200);
}
