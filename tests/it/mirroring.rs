//! Copies of requests for a second upstream (`docs/mirroring.md`).

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{
    ClosedPort, CpuWaits, Gateway, HTTP2_LISTENER, Nginx, PeerServer, Request, SilentPort,
    Stopwatch, Upstream, eventually, full_config, grpc_client, inconclusive, proxy_to, proxy_with,
    tollgate,
};

const COPIES: &str = "tollgate_mirrored_requests_total";
const IN_FLIGHT: &str = "tollgate_mirrored_requests_in_flight";

/// One route for all paths to an upstream `api`, whose requests are copied to `shadow`. `mirror`
/// has the settings beside `to`.
fn config(api: SocketAddr, shadow: SocketAddr, mirror: &str) -> String {
    let setting = format!("mirror = {{ to = \"shadow\"{mirror} }}");
    format!("{}[upstreams.shadow]\nservers = [\"{shadow}\"]\n", proxy_with(&[api], &setting))
}

fn wait_for(gateway: &Gateway, result: &str, count: u64) {
    gateway.wait_for_count(COPIES, &[("upstream", "shadow"), ("result", result)], count);
}

fn copies(gateway: &Gateway, result: &str) -> u64 {
    gateway.count(COPIES, &[("upstream", "shadow"), ("result", result)])
}

#[test]
fn copy_is_the_request_as_its_upstream_gets_it() {
    let (api, shadow) = (Upstream::echo(), Upstream::echo());
    let route = "strip_prefix = \"/v1\"\nrequest_headers = { set = { X-Client = \"{route}\" }, remove = [\"Cookie\"] }\n";
    let gateway = Gateway::start(&format!(
        "{}[routes.v1]\npath = \"/v1/*\"\nupstream = \"api\"\n{route}",
        config(api.address, shadow.address, "")
    ));
    let body = vec![b'a'; 65_536];
    let request = Request::new("PUT", "/v1/items?a=b%20c")
        .header("Cookie", "secret=1")
        .header("X-Mirrored-From", "client");
    let answer = gateway.send(&request.body(&body));
    assert_eq!((answer.status, answer.body.len()), (200, body.len()));
    wait_for(&gateway, "2xx", 1);
    let (original, copy) = (api.only_request(), shadow.only_request());
    assert_eq!(copy.line(), "PUT /items?a=b%20c HTTP/1.1");
    assert_eq!((copy.line(), &copy.body), (original.line(), &original.body));
    assert_eq!(copy.header("x-mirrored-from"), Some("api"));
    assert_eq!(original.header("x-mirrored-from"), Some("client"));
    for name in ["host", "x-client", "cookie", "x-request-id", "x-forwarded-for", "content-length"]
    {
        assert_eq!(copy.header(name), original.header(name), "{name}");
    }
    assert_eq!((copy.header("x-client"), copy.header("cookie")), (Some("v1"), None));
}

#[test]
fn bodies_of_copies_are_equal_and_bounded() {
    let (api, shadow) = (Upstream::echo(), Upstream::echo());
    let gateway = Gateway::start(&config(api.address, shadow.address, ", max_body_bytes = 1000"));
    let mut connection = gateway.connect();
    for length in [0, 1, 999, 1_000] {
        let body: Vec<u8> = (0..length).map(|at: u32| at.to_le_bytes()[0]).collect();
        assert_eq!(connection.send(&Request::new("POST", "/").body(&body)).body, body);
    }
    connection.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    assert_eq!(connection.read_response("POST").body, b"abcde");
    assert_eq!(connection.send(&Request::get("/")).status, 200);
    wait_for(&gateway, "2xx", 6);
    for length in [1_001, 200_000] {
        assert_eq!(
            connection.send(&Request::new("POST", "/").body(vec![b'a'; length])).status,
            200
        );
    }
    wait_for(&gateway, "too_large", 2);
    let mut sent: Vec<_> = api.requests().into_iter().map(|seen| seen.body).collect();
    sent.retain(|body| body.len() <= 1_000);
    let mut copied: Vec<_> = shadow.requests().into_iter().map(|seen| seen.body).collect();
    sent.sort();
    copied.sort();
    assert_eq!(sent, copied);
    let chunked = shadow.requests().into_iter().find(|seen| seen.body == b"abcde").unwrap();
    assert_eq!(chunked.header("content-length"), Some("5"));
    assert_eq!(chunked.header("transfer-encoding"), None);
    let get = shadow.requests().into_iter().find(|seen| seen.line().starts_with("GET")).unwrap();
    assert_eq!(get.header("content-length"), None);
}

#[test]
fn copies_share_connections() {
    let (api, shadow) = (Upstream::echo(), Nginx::start());
    std::fs::write(shadow.file("page"), "a".repeat(100_000)).unwrap();
    let node = PeerServer::node_http1();
    for (address, result) in [(shadow.address, "2xx"), (node.address, "2xx")] {
        let gateway = Gateway::start(&config(api.address, address, ""));
        let mut connection = gateway.connect();
        for number in 1..=20 {
            assert_eq!(connection.send(&Request::get("/files/page")).status, 200);
            wait_for(&gateway, result, number);
            gateway.wait_for_count(IN_FLIGHT, &[], 0);
        }
        let open = gateway.count("tollgate_upstream_connections_open", &[("upstream", "shadow")]);
        assert_eq!(open, 1);
    }
    node.wait_for_count("seen GET /files/page", 20);
    assert_eq!(node.count("fault"), 0, "{}", node.log());
}

#[test]
fn requests_do_not_wait_for_a_shadow_that_hangs() {
    let api = Upstream::echo();
    let (shadow, latch) = Upstream::holding();
    let mirror = ", max_in_flight = 5, timeout = \"60s\"";
    let gateway = Gateway::start(&config(api.address, shadow.address, mirror));
    let mut connection = gateway.connect();
    for number in 0..300 {
        let body = format!("request {number}");
        assert_eq!(connection.send(&Request::new("POST", "/").body(&body)).text(), body);
    }
    assert_eq!(copies(&gateway, "dropped"), 295);
    gateway.wait_for_count(IN_FLIGHT, &[], 5);
    shadow.wait_for_requests(5);
    assert_eq!(api.requests().len(), 300);
    latch.open();
    wait_for(&gateway, "2xx", 5);
    gateway.wait_for_count(IN_FLIGHT, &[], 0);
    // There is room for copies again.
    assert_eq!(gateway.get("/").status, 200);
    wait_for(&gateway, "2xx", 6);
}

/// Requests of a measurement.
const MEASURED: u32 = 400;

/// The median time of requests.
fn median(gateway: &Gateway) -> Duration {
    let mut connection = gateway.connect();
    let time = |_| {
        let watch = Stopwatch::start();
        assert_eq!(connection.send(&Request::get("/")).status, 200);
        watch.elapsed()
    };
    let mut times: Vec<Duration> = (0..MEASURED).map(time).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn median_time_of_requests_is_the_same_with_a_silent_shadow() {
    let (api, silent) = (Upstream::echo(), SilentPort::bind());
    let without = Gateway::start(&proxy_to(&[api.address]));
    let with = Gateway::start(&config(api.address, silent.address, ""));
    let waits = CpuWaits::now();
    // In turn, so that a machine that becomes busy delays both.
    let rounds = [(); 3].map(|()| [&without, &with].map(median));
    let least = |which: usize| rounds.iter().map(|medians| medians[which]).min().unwrap();
    // A wait for the shadow would be seconds.
    let (control, took) = (least(0), least(1));
    let limit = control * 3 / 2 + Duration::from_millis(1);
    eprintln!("{took:?}, {control:?} without a shadow");
    if let Some(reason) = waits.judge_median(took, limit, 3 * MEASURED) {
        inconclusive(&reason);
    }
}

#[test]
fn shadow_that_fails_or_is_too_slow_is_counted_and_nothing_else() {
    let api = Upstream::echo();
    let closed = ClosedPort::bind();
    let silent = SilentPort::bind();
    let (held, _latch) = Upstream::holding();
    let broken = Upstream::responding("not HTTP\r\n\r\n");
    let unavailable = Upstream::responding("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n");
    let endless = Upstream::start(|_, stream| {
        let mut part = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n".to_vec();
        while stream.write_all(&part).is_ok() {
            part = vec![b'a'; 65_536];
        }
        false
    });
    for (shadow, result) in [
        (closed.address, "connect"),
        (silent.address, "timeout"),
        (held.address, "timeout"),
        (broken.address, "broken"),
        (unavailable.address, "5xx"),
        (endless.address, "2xx"),
    ] {
        // On a busy machine, even a shadow that answers at once can take longer than the short
        // timeout.
        let timeout = if result == "timeout" { "200ms" } else { "20s" };
        let mirror = format!(", timeout = \"{timeout}\"");
        let gateway = Gateway::start(&config(api.address, shadow, &mirror));
        assert_eq!(gateway.send(&Request::new("POST", "/").body("abc")).text(), "abc");
        wait_for(&gateway, result, 1);
        gateway.wait_for_count(IN_FLIGHT, &[], 0);
        let own = [("upstream", "api"), ("result", "2xx")];
        gateway.wait_for_count("tollgate_upstream_results_total", &own, 1);
        let of_shadow = gateway.count("tollgate_upstream_results_total", &[("upstream", "shadow")]);
        assert_eq!(of_shadow, 0);
        assert!(!gateway.log().contains("request failed"), "{}", gateway.log());
    }
}

#[test]
fn share_is_that_of_the_requests() {
    let (api, shadow) = (Upstream::echo(), Upstream::echo());
    let gateway = Gateway::start(&config(api.address, shadow.address, ", share = \"10%\""));
    let mut connection = gateway.connect();
    for _ in 0..2_000 {
        assert_eq!(connection.send(&Request::get("/")).status, 200);
    }
    gateway.wait_for_count(IN_FLIGHT, &[], 0);
    // Five standard deviations of a binomial distribution.
    let count = copies(&gateway, "2xx");
    assert!((133..=267).contains(&count), "{count}");
    eventually("the copies arrive", || (shadow.requests().len() as u64 == count).then_some(()));
}

#[test]
fn request_that_is_sent_again_has_one_copy() {
    let failing = Upstream::responding("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n");
    let (api, shadow) = (Upstream::echo(), Upstream::echo());
    let retries = "retries = { count = 2, on = [\"503\"], non_idempotent = true }\n\
                   mirror = { to = \"shadow\" }";
    let gateway = Gateway::start(&format!(
        "{}[upstreams.shadow]\nservers = [\"{}\"]\n",
        proxy_with(&[failing.address, api.address], retries),
        shadow.address
    ));
    for number in 0..10 {
        let body = format!("request {number}");
        assert_eq!(gateway.send(&Request::new("POST", "/").body(&body)).text(), body);
    }
    wait_for(&gateway, "2xx", 10);
    assert!(!failing.requests().is_empty());
    let mut bodies: Vec<_> = shadow.requests().into_iter().map(|seen| seen.body).collect();
    bodies.sort();
    let expected: Vec<_> = (0..10).map(|number| format!("request {number}").into_bytes()).collect();
    assert_eq!(bodies, expected);
}

#[test]
fn some_requests_have_no_copy() {
    let shadow = Upstream::echo();
    let upgrading = Upstream::upgrading();
    let api = Upstream::echo();
    let rules = "[routes.off]\npath = \"/off\"\nupstream = \"api\"\nmirror = false\n\
        [routes.own]\npath = \"/own\"\nupstream = \"socket\"\nmirror = { to = \"shadow\" }\n\
        [routes.fixed]\npath = \"/fixed\"\nrespond = {}\n\
        [rules.r]\nper = []\nrate = \"2/d\"\nroutes = [\"all\"]\n";
    let gateway = Gateway::start(&format!(
        "{}[upstreams.socket]\nservers = [\"{}\"]\n{rules}",
        config(api.address, shadow.address, ""),
        upgrading.address
    ));
    let upgrade = Request::get("/own")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(gateway.send(&upgrade).status, 101);
    for (path, status) in [("/off", 200), ("/fixed", 200), ("/", 200), ("/", 200), ("/", 429)] {
        assert_eq!(gateway.get(path).status, status, "{path}");
    }
    // A client that does not send the whole body.
    let mut connection = gateway.connect();
    connection.write(b"POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    upgrading.wait_for_requests(1);
    drop(connection);
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    wait_for(&gateway, "2xx", 2);
    assert_eq!(shadow.requests().len(), 2);
}

#[test]
fn requests_over_http2_are_copied_over_both_versions() {
    let node = PeerServer::node(None);
    let own = Upstream::echo();
    let h2c = |address: SocketAddr| format!("servers = [\"{address}\"]\nprotocol = \"h2c\"\n");
    let http1 = |address: SocketAddr| format!("servers = [\"{address}\"]\n");
    let shadow = PeerServer::node(None);
    let recorded = Upstream::echo();
    for (api, to) in [
        (h2c(node.address), h2c(shadow.address)),
        (http1(own.address), h2c(shadow.address)),
        (h2c(node.address), http1(recorded.address)),
    ] {
        let gateway = Gateway::start(&format!(
            "{HTTP2_LISTENER}[upstreams.api]\n{api}mirror = {{ to = \"shadow\" }}\n[upstreams.shadow]\n{to}\
             [routes.all]\npath = \"/*\"\nupstream = \"api\"\n"
        ));
        let url = format!("http://{}/items?a=b", gateway.listener(1));
        let post = ["--http2-prior-knowledge", "--data-binary", "abc", &url];
        assert_eq!(crate::support::fetch(&post).status, 200);
        assert_eq!(gateway.get("/items?a=b").status, 200);
        wait_for(&gateway, "2xx", 2);
    }
    for method in ["POST", "GET"] {
        assert_eq!(shadow.count(&format!("request {method} /items?a=b")), 2, "{}", shadow.log());
    }
    let mut seen = recorded.requests();
    seen.sort_by_key(|seen| seen.body.clone());
    let lines: Vec<_> = seen.iter().map(|seen| (seen.line(), seen.body.as_slice())).collect();
    assert_eq!(
        lines,
        [("GET /items?a=b HTTP/1.1", &b""[..]), ("POST /items?a=b HTTP/1.1", &b"abc"[..])]
    );
    assert!(seen.iter().all(|seen| seen.header("host").is_some()), "{seen:?}");
}

#[test]
fn grpc_calls_are_copied() {
    let (api, shadow) = (PeerServer::grpc(None), PeerServer::grpc(None));
    let gateway = Gateway::start(&format!(
        "{HTTP2_LISTENER}[upstreams.api]\nservers = [\"{}\"]\nprotocol = \"h2c\"\nmirror = {{ to = \"shadow\" }}\n\
         [upstreams.shadow]\nservers = [\"{}\"]\nprotocol = \"h2c\"\n[routes.all]\npath = \"/*\"\nupstream = \"api\"\n",
        api.address, shadow.address
    ));
    let result = grpc_client(&["unary", &gateway.listener(1).to_string()]);
    assert_eq!(result[0]["code"], "OK", "{result}");
    wait_for(&gateway, "2xx", 1);
}

#[test]
fn process_waits_for_copies_until_its_drain_timeout() {
    let api = Upstream::echo();
    let (shadow, latch) = Upstream::holding();
    let settings = "drain_timeout = \"20s\"\n";
    let start =
        || Gateway::start(&format!("{settings}{}", config(api.address, shadow.address, "")));
    let mut gateway = start();
    assert_eq!(gateway.get("/").status, 200);
    shadow.wait_for_requests(1);
    // A reload keeps the copy, with the connection of its old upstream.
    gateway.apply(&format!("{settings}{}", proxy_to(&[api.address])));
    gateway.terminate();
    eventually("the gateway drains", || gateway.log().contains("draining").then_some(()));
    gateway.wait_for_count(IN_FLIGHT, &[], 1);
    latch.open();
    assert_eq!(gateway.exit_below(Duration::from_secs(15)), Some(0));
}

#[test]
fn explanation_names_the_copies() {
    let address = "127.0.0.1:1".parse().unwrap();
    let routes = "[routes.off]\npath = \"/off\"\nupstream = \"api\"\nmirror = false\n\
        [routes.own]\npath = \"/own\"\nupstream = \"api\"\nmirror = { to = \"shadow\", share = \"0.5%\" }\n";
    let text = format!("{}{routes}", config(address, address, ", share = \"5%\""));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), full_config(&text)).unwrap();
    for (path, expected) in [
        ("/", "mirror: 5% of the requests to shadow\n"),
        ("/off", "mirror: off\n"),
        ("/own", "mirror: 0.5% of the requests to shadow\n"),
    ] {
        let file = file.path().to_str().unwrap();
        let explained = tollgate(&["explain", "-c", file, "--path", path], "").stdout;
        assert!(explained.contains(expected), "{path}: {explained}");
        assert_eq!(explained.matches("mirror").count(), 1, "{explained}");
    }
}
