//! Requests that are sent again: to which server, how often, and what they are charged.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::http2::Client;
use crate::http2_upstreams::{Exchange, scripted};
use crate::shared::is_decided_locally;
use crate::support::{
    ClosedPort, Collector, CpuWaits, Gateway, HTTP2_LISTENER, Nginx, Redis, Request, Upstream,
    eventually, full_config, proxy_with, send_concurrently, send_many, timed,
};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";

fn retries(gateway: &Gateway, reason: &str) -> u64 {
    gateway.count("tollgate_upstream_retries_total", &[("reason", reason)])
}

/// A server that answers every second request with 503.
fn failing_half() -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::start(move |_, stream| {
        let is_failing = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        stream.write_all(if is_failing { UNAVAILABLE } else { OK }).is_ok()
    })
}

/// nginx that answers all requests with this status.
fn nginx(status: u16) -> Nginx {
    Nginx::listening("", |_| format!("location / {{ return {status} \"nginx\"; }}"))
}

#[test]
fn status_sends_requests_to_the_servers_where_they_have_not_failed() {
    let servers = [nginx(503), nginx(200), nginx(500)];
    let addresses = servers.each_ref().map(|server| server.address);
    let on = "retries = { count = 2, on = [\"503\", \"500\"], budget = \"1000%\" }";
    for balance in ["round_robin", "least_request", "random_two", "hash:ip"] {
        let gateway =
            Gateway::start(&proxy_with(&addresses, &format!("{on}\nbalance = {balance:?}")));
        for _ in 0..30 {
            assert_eq!(gateway.get("/").status, 200, "{balance}");
        }
        // `hash:ip` may have found the good one at once.
        assert!(retries(&gateway, "status") > 0 || balance == "hash:ip");
        let results =
            |label| gateway.count("tollgate_upstream_results_total", &[("result", label)]);
        assert_eq!((results("2xx"), results("5xx")), (30, retries(&gateway, "status")));
    }
}

#[test]
fn response_is_passed_on_if_no_retry_is_left() {
    let upstream = Upstream::responding(UNAVAILABLE);
    for (settings, expected) in [
        ("", 1),
        ("retries = { on = [\"502\", \"reset\"] }", 1),
        ("retries = { count = 0, on = [\"5xx\"] }", 1),
        ("retries = { on = [\"5xx\"] }", 2),
        ("retries = { count = 3, on = [\"503\"] }", 4),
    ] {
        let gateway = Gateway::start(&proxy_with(&[upstream.address], settings));
        let before = upstream.requests().len();
        let answer = gateway.get("/");
        assert_eq!((answer.status, answer.text().as_str()), (503, "busy"), "{settings}");
        assert_eq!(upstream.requests().len() - before, expected, "{settings}");
        assert_eq!(retries(&gateway, "status"), expected as u64 - 1, "{settings}");
    }
}

#[test]
fn route_replaces_the_retries_of_its_upstream() {
    let upstream = Upstream::responding(UNAVAILABLE);
    let routes = "[routes.never]\npath = \"/never\"\nupstream = \"api\"\nretries = { count = 0 }\n\
                  [routes.often]\npath = \"/often\"\nupstream = \"api\"\nretries = { count = 2, on = [\"503\"] }\n";
    let on = "retries = { on = [\"503\"] }";
    let gateway = Gateway::start(&(proxy_with(&[upstream.address], on) + routes));
    for (path, expected) in [("/never", 1), ("/other", 2), ("/often", 3)] {
        let before = upstream.requests().len();
        assert_eq!(gateway.get(path).status, 503);
        assert_eq!(upstream.requests().len() - before, expected, "{path}");
    }
}

#[test]
fn row_150_upstream_that_fails_half_gets_at_most_a_fifth_more_requests() {
    const REQUESTS: usize = 2_000;
    let upstream = failing_half();
    let gateway =
        Gateway::start(&proxy_with(&[upstream.address], "retries = { count = 3, on = [\"5xx\"] }"));
    let url = gateway.url("/");
    let counts = send_concurrently(16, REQUESTS, |client, _| client.get(&url));
    let arrived = upstream.requests().len();
    assert!(arrived <= REQUESTS * 12 / 10, "{arrived} of {REQUESTS}");
    assert!(arrived > REQUESTS * 11 / 10, "{arrived} of {REQUESTS}");
    assert_eq!(retries(&gateway, "status"), (arrived - REQUESTS) as u64);
    let refused = gateway.count("tollgate_upstream_retries_over_budget_total", &[]);
    // A few may have failed four times.
    let failed = *counts.get(&503).unwrap_or(&0) as u64;
    assert!((failed * 9 / 10..=failed).contains(&refused), "{refused} {counts:?}");
    assert_eq!(counts.values().sum::<usize>(), REQUESTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_150_http2_upstream_that_fails_half_gets_at_most_a_fifth_more_requests() {
    const REQUESTS: usize = 1_000;
    let count = Arc::new(AtomicUsize::new(0));
    let arrived = Arc::clone(&count);
    let address = scripted(move |(_, mut respond)| {
        let is_failing = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        async move {
            let status = if is_failing { 503 } else { 200 };
            let head = http::Response::builder().status(status).body(()).unwrap();
            let _ = respond.send_response(head, true);
        }
    })
    .await;
    let settings = "protocol = \"h2c\"\nretries = { on = [\"5xx\"] }";
    let gateway = Gateway::start(&proxy_with(&[address], settings));
    let url = gateway.url("/");
    let counts = tokio::task::spawn_blocking(move || {
        send_concurrently(16, REQUESTS, |client, _| client.get(&url))
    });
    let counts = counts.await.unwrap();
    let arrived = arrived.load(Ordering::SeqCst);
    assert!(arrived <= REQUESTS * 12 / 10, "{arrived} {counts:?}");
    assert!(arrived > REQUESTS * 11 / 10, "{arrived} {counts:?}");
    assert_eq!(retries(&gateway, "status"), (arrived - REQUESTS) as u64);
}

/// Fails each request that it sees for the first time, in this way, and echoes the others.
fn failing_first(
    fail: impl Fn(&mut std::net::TcpStream) -> bool + Send + Sync + 'static,
) -> Upstream {
    let seen = Mutex::new(HashSet::new());
    Upstream::start(move |request, stream| {
        if seen.lock().insert(request.line().to_owned()) {
            return fail(stream);
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
        stream.write_all(&[head.as_bytes(), &request.body].concat()).is_ok()
    })
}

/// The statuses of requests with these methods, sent at once: each may take as long as a timeout.
fn statuses<const N: usize>(gateway: &Gateway, methods: [&str; N], body: &str) -> [u16; N] {
    std::thread::scope(|scope| {
        let send = |method: &str| {
            gateway.send(&Request::new(method, &format!("/{method}")).body(body)).status
        };
        let requests = methods.map(|method| scope.spawn(move || send(method)));
        requests.map(|one| one.join().unwrap())
    })
}

#[test]
fn row_151_request_that_is_not_idempotent_is_not_sent_twice_unless_the_file_says_so() {
    let fails: [fn(&mut std::net::TcpStream) -> bool; 3] = [
        |stream| stream.write_all(UNAVAILABLE).is_ok(),
        |_| false,
        |_| {
            crate::support::sleep_for(Duration::from_secs(5));
            false
        },
    ];
    for (fail, failed) in fails.into_iter().zip([503, 502, 504]) {
        // On a busy machine, even a server that answers at once can take longer than a short
        // timeout.
        let timeout = if failed == 504 { "2500ms" } else { "20s" };
        let base = format!(
            "read_timeout = \"{timeout}\"\n\
             retries = {{ count = 3, on = [\"connect\", \"reset\", \"timeout\", \"5xx\"]"
        );
        let upstream = failing_first(fail);
        let careful = Gateway::start(&proxy_with(&[upstream.address], &format!("{base} }}")));
        assert_eq!(statuses(&careful, ["POST", "PATCH"], "order one coffee"), [failed; 2]);
        assert_eq!(upstream.requests().len(), 2, "{failed}");
        let any = format!("{base}, non_idempotent = true }}");
        let bold = Gateway::start(&proxy_with(&[upstream.address], &any));
        let answer = bold.send(&Request::new("POST", "/bold").body("order"));
        assert_eq!((answer.status, answer.text().as_str()), (200, "order"), "{failed}");
        let idempotent = ["GET", "PUT", "DELETE", "OPTIONS"];
        assert_eq!(statuses(&careful, idempotent, "x"), [200; 4], "after {failed}");
        let reason = match failed {
            503 => "status",
            502 => "reset",
            _ => "timeout",
        };
        assert_eq!((retries(&bold, reason), retries(&careful, reason)), (1, 4));
    }
}

/// A body that shows which part of it is missing.
fn body(bytes: usize) -> Vec<u8> {
    (0_u32..).flat_map(u32::to_be_bytes).take(bytes).collect()
}

/// Sends a PUT over HTTP/2, and returns the status and the body of its response.
async fn put_over_http2(client: &mut Client, path: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let uri = format!("http://api.test{path}");
    let request = http::Request::builder().method("PUT").uri(uri).body(()).unwrap();
    let (response, mut send) = client.send.send_request(request, false).unwrap();
    let upload = async {
        let mut rest = Bytes::from(body);
        if rest.is_empty() {
            let _ = send.send_data(Bytes::new(), true);
        }
        while !rest.is_empty() {
            send.reserve_capacity(rest.len());
            let Some(Ok(room)) = std::future::poll_fn(|context| send.poll_capacity(context)).await
            else {
                return;
            };
            let part = rest.split_to(room.min(rest.len()));
            let is_last = rest.is_empty();
            if send.send_data(part, is_last).is_err() {
                return;
            }
        }
    };
    let received = async {
        let response = response.await.unwrap();
        let status = response.status().as_u16();
        let (mut body, mut seen) = (response.into_body(), Vec::new());
        while let Some(Ok(chunk)) = body.data().await {
            let _ = body.flow_control().release_capacity(chunk.len());
            seen.extend_from_slice(&chunk);
        }
        (status, seen)
    };
    tokio::join!(upload, received).1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_151_body_of_up_to_64_kib_is_replayed_and_a_longer_one_is_not() {
    let over_http1 = failing_first(|stream| stream.write_all(UNAVAILABLE).is_ok());
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let over_http2 = scripted(move |(request, mut respond)| {
        let is_first = seen.lock().insert(request.uri().path().to_owned());
        async move {
            let (mut body, mut seen) = (request.into_body(), Vec::new());
            while let Some(Ok(chunk)) = body.data().await {
                let _ = body.flow_control().release_capacity(chunk.len());
                seen.extend_from_slice(&chunk);
            }
            let status = if is_first { 503 } else { 200 };
            let head = http::Response::builder().status(status).body(()).unwrap();
            let Ok(mut send) = respond.send_response(head, is_first) else { return };
            if !is_first {
                send.send_data(seen.into(), true).unwrap();
            }
        }
    })
    .await;
    for (address, protocol) in [(over_http1.address, "http1"), (over_http2, "h2c")] {
        let settings = format!("protocol = {protocol:?}\nretries = {{ on = [\"5xx\"] }}");
        let gateway =
            Gateway::start(&(HTTP2_LISTENER.to_owned() + &proxy_with(&[address], &settings)));
        let mut client = Client::connect(gateway.listener(1)).await;
        for (length, status) in [(0, 200), (1, 200), (60 * 1024, 200), (70 * 1024, 503)] {
            let sent = body(length);
            let request = Request::new("PUT", &format!("/one/{length}")).body(&sent);
            let answer = gateway.send(&request);
            assert_eq!(answer.status, status, "{length} bytes over HTTP/1.1 to {protocol}");
            assert!(status != 200 || answer.body == sent, "{length} bytes to {protocol}");
            let path = format!("/two/{length}");
            let (own, seen) = put_over_http2(&mut client, &path, sent.clone()).await;
            assert_eq!(own, status, "{length} bytes over HTTP/2 to {protocol}");
            assert!(status != 200 || seen == sent, "{length} bytes over HTTP/2 to {protocol}");
        }
        assert_eq!(retries(&gateway, "status"), 6);
    }
}

/// A server that answers before it has the body: what comes later belongs to the next attempt, too.
#[test]
fn early_response_to_an_upload_is_retried_with_the_whole_body() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let early = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(UNAVAILABLE);
        }
    });
    let echo = Upstream::echo();
    let gateway = Gateway::start(&proxy_with(
        &[early, echo.address],
        "retries = { on = [\"503\", \"reset\"] }",
    ));
    for _ in 0..4 {
        let mut client = gateway.connect();
        client.write(b"PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
        crate::support::sleep_for(Duration::from_millis(50));
        client.write(b"after");
        let answer = client.read_response("PUT");
        assert_eq!((answer.status, answer.text().as_str()), (200, "firstafter"));
    }
}

#[test]
fn closed_connection_and_silence_are_retried_at_another_server() {
    let closes = Upstream::start(|_, _| false);
    // Accepts connections, and never sends a byte.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let good = Upstream::responding(OK);
    // A busy machine can delay the good one by a second.
    let on = "read_timeout = \"2500ms\"\n\
              retries = { count = 2, on = [\"reset\", \"timeout\"], budget = \"1000%\" }";
    let servers = [closes.address, silent.local_addr().unwrap(), good.address];
    let gateway = Gateway::start(&proxy_with(&servers, on));
    for _ in 0..6 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert!(retries(&gateway, "reset") >= 2 && retries(&gateway, "timeout") >= 2);
    let results = |label| gateway.count("tollgate_upstream_results_total", &[("result", label)]);
    assert_eq!(results("broken"), retries(&gateway, "reset"));
    assert_eq!(results("timeout"), retries(&gateway, "timeout"));
}

#[test]
fn response_that_has_begun_is_not_retried() {
    let upstream = Upstream::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart");
        false
    });
    let on = "retries = { count = 3, on = [\"reset\", \"timeout\", \"5xx\"] }";
    let gateway = Gateway::start(&proxy_with(&[upstream.address], on));
    let answer = gateway.get("/");
    assert_eq!((answer.status, answer.complete, answer.text().as_str()), (200, false, "part"));
    assert_eq!((upstream.requests().len(), retries(&gateway, "reset")), (1, 0));
}

#[test]
fn connection_failures_are_retried_without_a_budget() {
    let closed = [ClosedPort::bind(), ClosedPort::bind()];
    let good = Upstream::responding(OK);
    let servers = [closed[0].address, closed[1].address, good.address];
    let gateway = Gateway::start(&proxy_with(&servers, "retries = { count = 2 }"));
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(retries(&gateway, "connect"), 2);
    let none = Gateway::start(&proxy_with(&servers[..1], "retries = { on = [\"5xx\"] }"));
    assert_eq!(none.get("/").status, 502);
    assert_eq!(retries(&none, "connect"), 0);
}

#[test]
fn only_server_gets_its_retries_after_pauses() {
    let upstream = Upstream::responding(UNAVAILABLE);
    let on = "retries = { count = 10, on = [\"503\"], budget = \"1000%\" }";
    let gateway = Gateway::start(&proxy_with(&[upstream.address], on));
    let (status, took) = timed(|| gateway.get("/").status);
    assert_eq!((status, upstream.requests().len()), (503, 11));
    // 2.2 s at most; half of that on average.
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

/// The number of requests that pass is exact, whatever the number of attempts: judged by what the
/// upstream has seen.
#[test]
fn row_151_two_gateways_keep_an_exact_limit_while_they_retry() {
    const LIMIT: usize = 300;
    let (redis, upstream) = (Redis::start(), failing_half());
    let on = "retries = { count = 3, on = [\"5xx\"], budget = \"100%\" }";
    let rule = format!("[rules.all]\nper = []\nrate = \"{LIMIT}/365d\"\n");
    let config = proxy_with(&[upstream.address], on) + &rule + &redis.table();
    let gateways = [(); 2].map(|()| Gateway::start_full(&full_config(&config)));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let urls = gateways.each_ref().map(|gateway| gateway.url("/"));
    let waits = CpuWaits::now();
    let counts =
        send_many(2 * LIMIT, |client, number| client.get(format!("{}{number}", urls[number % 2])));
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(counts.get(&429), Some(&LIMIT), "{counts:?}");
    let seen = upstream.requests();
    let lines: HashSet<&str> = seen.iter().map(crate::support::ReceivedRequest::line).collect();
    assert_eq!(lines.len(), LIMIT);
    let retried: u64 = gateways.iter().map(|gateway| retries(gateway, "status")).sum();
    assert!(retried > 0);
    assert_eq!(seen.len(), LIMIT + usize::try_from(retried).unwrap());
}

#[test]
fn retried_request_holds_one_unit_and_one_place() {
    let upstream = failing_first(|stream| stream.write_all(UNAVAILABLE).is_ok());
    let on = "retries = { on = [\"5xx\"] }\nmax_in_flight = 1";
    let rule = "[rules.one]\nper = []\nkind = \"concurrency\"\nlimit = 1\n\
                [rules.rate]\nper = []\nrate = \"100/365d\"\n";
    let gateway = Gateway::start(&(proxy_with(&[upstream.address], on) + rule));
    for number in 1..=5 {
        let answer = gateway.get(&format!("/{number}"));
        assert_eq!(answer.status, 200);
        gateway.wait_for_count("tollgate_upstream_in_flight", &[("upstream", "api")], 0);
    }
    assert_eq!(retries(&gateway, "status"), 5);
    let rate = gateway.admin("/api/upstreams").text();
    assert!(rate.contains("\"in_flight\":0") || rate.contains("\"in_flight\": 0"), "{rate}");
}

#[test]
fn attempts_are_in_the_access_log_and_in_the_trace() {
    let collector = Collector::start();
    let (bad, good) = (Upstream::responding(UNAVAILABLE), Upstream::responding(OK));
    let log = "\n[access_log]\nfields = [\"attempts\", \"status\", \"server\"]\n";
    let servers = format!(
        "servers = [\"{}\", {{ address = \"{}\", backup = true }}]",
        bad.address, good.address
    );
    let config = proxy_with(&[bad.address], "retries = { on = [\"503\"] }");
    let config = config.replace(&format!("servers = [\"{}\"]", bad.address), &servers);
    let gateway = Gateway::start(&(config + log + &collector.table("")));
    assert_eq!(gateway.get("/").status, 200);
    let is_line = |line: &&str| line.starts_with("{\"attempts\"");
    let line = || gateway.log().lines().find(is_line).map(str::to_owned);
    let line: serde_json::Value = serde_json::from_str(&eventually("a line", line)).unwrap();
    let server = good.address.to_string();
    assert_eq!(line, serde_json::json!({"attempts": 2, "status": 200, "server": server}));
    let spans = collector.wait_for(2);
    let call = spans.iter().find(|span| span.kind == "Client").unwrap();
    assert_eq!(call.get("http.request.resend_count"), 1);
    assert_eq!(call.get("server.port"), good.address.port());
    let [(name, event)] = &*call.events else { panic!("{:?}", call.events) };
    assert_eq!((&**name, &event["error.type"]), ("retry", &serde_json::json!("status")));
    assert_eq!(event["http.response.status_code"], 503);
    assert_eq!(event["server.port"], bad.address.port());
}

/// A call is unavailable by its trailers, which come without a message: as a 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_call_of_grpc_is_retried_as_a_503() {
    let calls = Arc::new(Mutex::new(HashMap::new()));
    let counted = Arc::clone(&calls);
    let address = scripted(move |(request, mut respond): Exchange| {
        let path = request.uri().path().to_owned();
        let is_first = {
            let mut calls = counted.lock();
            let count = calls.entry(path).or_insert(0);
            *count += 1;
            *count == 1
        };
        async move {
            let status = if is_first { "14" } else { "0" };
            let head = http::Response::builder().header("content-type", "application/grpc");
            let head = head.header("grpc-status", status).body(()).unwrap();
            let _ = respond.send_response(head, true);
        }
    })
    .await;
    for (more, expected) in [("", "14"), (", non_idempotent = true", "0")] {
        let settings = format!("protocol = \"h2c\"\nretries = {{ on = [\"503\"]{more} }}");
        let gateway =
            Gateway::start(&(HTTP2_LISTENER.to_owned() + &proxy_with(&[address], &settings)));
        let mut client = Client::connect(gateway.listener(1)).await;
        let request = http::Request::builder().method("POST").uri("http://api.test/a.B/C");
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], expected);
        let attempts: u64 = calls.lock().drain().map(|(_, count)| count).sum();
        let answered = gateway.count("tollgate_upstream_results_total", &[("result", "2xx")]);
        assert_eq!(answered, attempts);
    }
}
