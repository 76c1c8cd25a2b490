//! Metrics: every request is counted, by names of the configuration only.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::{
    ClosedPort, DEMO, Gateway, Request, Upstream, eventually, key, proxy_to, send_many, timed_below,
};

#[test]
fn responses_are_counted_by_route_plan_and_status() {
    let config = r#"
[plans.pro]

[routes.limited]
path = "/limited"
upstream = "api"

[rules.limited]
per = ["key"]
routes = ["limited"]
rate = "1/d"
"#;
    let gateway = Gateway::start(&format!("{DEMO}{config}{}", key("acme", "secret", "pro")));
    let acme = |path: &str| Request::get(path).header("X-Api-Key", "secret");
    for request in [
        Request::get("/"),
        acme("/"),
        acme("/limited"),
        acme("/limited"),
        Request::get("/a/../b"),
        acme("/").header("X-Api-Key", "other"),
        Request::get("/").header("X-Api-Key", "unknown"),
    ] {
        gateway.send(&request);
    }
    // A request is counted at its end, shortly after its response.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    // (route, plan, status) -> requests; labels are empty if the request was rejected before.
    let table = [
        (("all", "free", "200"), 1),
        (("all", "pro", "200"), 1),
        (("limited", "pro", "200"), 1),
        (("limited", "pro", "429"), 1),
        (("", "free", "400"), 1),
        (("", "", "400"), 1),
        (("all", "free", "401"), 1),
    ];
    for ((route, plan, status), expected) in table {
        let labels = [("route", route), ("plan", plan), ("status", status)];
        assert_eq!(gateway.count("tollgate_requests_total", &labels), expected, "{labels:?}");
    }
    assert_eq!(gateway.count("tollgate_requests_total", &[]), 7);
    let durations = "tollgate_request_duration_seconds_count";
    assert_eq!(gateway.count(durations, &[("route", "all")]), 3);
    assert_eq!(gateway.count(durations, &[("route", "limited")]), 2);
    assert_eq!(gateway.count(durations, &[("route", "")]), 2);
    assert_eq!(gateway.count("tollgate_check_duration_seconds_count", &[("source", "local")]), 2);
}

#[test]
fn upstream_health_series_follow_ejection_and_reload() {
    let upstream = Upstream::echo();
    let closed = ClosedPort::bind();
    let dead = closed.address;
    let gateway = Gateway::start(&proxy_to(&[upstream.address, dead]));
    let view = || {
        let metrics = gateway.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with("tollgate_upstream_healthy{"));
        lines.map(ToString::to_string).collect::<Vec<_>>()
    };
    let line = |server: &dyn std::fmt::Display, name: &str, value: u8| {
        format!("tollgate_upstream_healthy{{server=\"{server}\",upstream=\"{name}\"}} {value}")
    };
    let of = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let both = |dead_is| of(vec![line(&upstream.address, "api", 1), line(&dead, "api", dead_is)]);
    assert_eq!(of(view()), both(1));
    for _ in 0..4 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(of(view()), both(0));
    // A reload removes the series of removed servers. A name without an address has no server.
    let other = proxy_to(&[upstream.address]).replace("[upstreams.api]", "[upstreams.other]");
    let other = other.replace("upstream = \"api\"", "upstream = \"other\"");
    let nowhere = "[upstreams.nowhere]\nservers = [\"nowhere.invalid:80\"]\n";
    gateway.apply(&format!("{other}{nowhere}"));
    let expected =
        vec![line(&upstream.address, "other", 1), line(&"nowhere.invalid:80", "nowhere", 0)];
    assert_eq!(of(view()), of(expected));
    // The demo upstream has no server.
    gateway.apply(DEMO);
    assert_eq!(view(), [""; 0]);
}

#[test]
fn row_72_clients_add_no_series() {
    let rules = "[rules.r]\nper = [\"key\", \"ip\", \"header:x-tenant\"]\nrate = \"9/d\"\n";
    let trusted = "trusted_proxies = [\"127.0.0.1\"]\n";
    let accept = "[clients]\non_unknown_key = \"accept\"\n";
    let gateway = Gateway::start(&format!("{trusted}{DEMO}{rules}{accept}"));
    let url = gateway.url("/");
    let series = || gateway.metrics().lines().filter(|line| line.starts_with("tollgate")).count();
    let meet = |count: usize| {
        send_many(count, |client, number| {
            client
                .get(format!("{url}path/{number}"))
                .header("x-api-key", format!("key-{number}"))
                .header("x-tenant", format!("tenant-{number}"))
                .header("x-forwarded-for", format!("10.0.{}.{}", number / 256, number % 256))
        })
    };
    meet(1);
    // A request is counted at its end, shortly after its response.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let before = series();
    meet(1_000);
    assert_eq!(series(), before);
}

#[test]
#[ignore = "takes longer than others: `make test-long`"]
fn row_72_metrics_page_does_not_grow_with_100_000_clients() {
    const CLIENTS: usize = 100_000;
    let rules = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"9/d\"\n[rules.all]\nper = []\nrate = \"9/s\"\nmode = \"shadow\"\n";
    let gateway = Gateway::start(&format!("trusted_proxies = [\"127.0.0.1\"]\n{DEMO}{rules}"));
    let url = gateway.url("/");
    let meet = |from: usize, count: usize| {
        send_many(count, |client, number| {
            let [.., a, b, c] = (from + number).to_be_bytes();
            client.get(&url).header("x-forwarded-for", format!("11.{a}.{b}.{c}"))
        })
    };
    meet(0, CLIENTS / 2);
    let (_, before) = gateway.memory_bytes();
    meet(CLIENTS / 2, CLIENTS / 2);
    let page = timed_below(Duration::from_millis(50), || gateway.metrics());
    assert!(page.len() < 200_000, "{} bytes", page.len());
    let top = timed_below(Duration::from_secs(1), || gateway.admin("/api/clients?limit=100"));
    assert!(top.text().len() < 100_000, "{} bytes", top.text().len());
    // The second half needs memory only for its buckets.
    let grown = gateway.memory_bytes().1.saturating_sub(before) >> 20;
    println!("{} bytes of metrics, {} of clients, {grown} MiB more", page.len(), top.text().len());
    assert!(grown < 24, "memory grew by {grown} MiB");
}

/// A client that sends `GET /metrics` and reads nothing. Its small segments keep the gateway's
/// kernel from buffering the page.
fn slow_scraper(gateway: &Gateway) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(1024).unwrap();
    socket.set_tcp_mss(100).unwrap();
    socket.connect(&gateway.admin.into()).unwrap();
    let mut client = TcpStream::from(socket);
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    client
}

#[test]
fn row_72_slow_scrapers_are_cut_off_and_delay_no_other() {
    let routes = (0..100)
        .map(|number| format!("[routes.r{number}]\npath = \"/{number}\"\nupstream = \"api\"\n"));
    let gateway = Gateway::start(&format!("{DEMO}{}", routes.collect::<String>()));
    for number in 0..100 {
        assert_eq!(gateway.get(&format!("/{number}")).status, 200);
    }
    let page = gateway.metrics().len();
    assert!((100_000..300_000).contains(&page), "{page} bytes");
    let (_, before) = gateway.memory_bytes();
    let mut slow: Vec<_> = (0..50).map(|_| slow_scraper(&gateway)).collect();
    let delay = Duration::from_secs(3);
    let other = timed_below(delay, || gateway.metrics().len());
    assert!(other >= page, "{other} bytes");
    let grown = gateway.memory_bytes().1.saturating_sub(before) >> 20;
    assert!(grown < 64, "memory grew by {grown} MiB");
    // A byte that the gateway has not read makes the end of the connection a reset, which fails the
    // next write.
    let cut_off = |client: &mut TcpStream| client.write_all(b"G").is_err();
    eventually("the slow scrapers to be cut off", || slow.iter_mut().all(cut_off).then_some(()));
    timed_below(delay, || gateway.metrics());
}

#[test]
fn refusals_and_near_limit_requests_are_counted_by_rule_and_plan() {
    let rules = "[rules.r]\nper = []\nrate = \"10/d\"\n[rules.wide]\nper = []\nrate = \"1000/d\"\n\
        [rules.known]\nper = [\"key\"]\nroutes = [\"known\"]\non_missing = \"deny\"\nrate = \"9/d\"\n\
        [routes.known]\npath = \"/known\"\nupstream = \"api\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rules}"));
    let mut client = gateway.connect();
    for _ in 0..13 {
        client.send(&Request::get("/"));
    }
    client.send(&Request::get("/known"));
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let of = |rule| [("rule", rule), ("plan", "free")];
    // The ninth and tenth requests left fewer than 2 of 10 tokens.
    assert_eq!(gateway.count("tollgate_near_limit_total", &of("r")), 2);
    assert_eq!(gateway.count("tollgate_near_limit_total", &[]), 2);
    assert_eq!(gateway.count("tollgate_refused_total", &of("r")), 3);
    // The 401 of a rule with `on_missing = "deny"` is not the refusal of a limit.
    assert_eq!(gateway.count("tollgate_refused_total", &[]), 3);
    let denied = [("rule", "known"), ("decision", "deny"), ("source", "policy")];
    assert_eq!(gateway.count("tollgate_decisions_total", &denied), 1);
}

#[test]
fn upstream_results_are_counted_by_upstream() {
    let answering = |status: &str| {
        Upstream::responding(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok"))
    };
    let (good, bad) = (answering("200 OK"), answering("503 Busy"));
    let broken = Upstream::start(|_, stream| stream.write_all(b"what?\r\n\r\n").is_err());
    let cut = Upstream::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok").is_err()
    });
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = ClosedPort::bind();
    let unused_address = closed.address;
    let others = [
        ("bad", bad.address),
        ("broken", broken.address),
        ("cut", cut.address),
        ("silent", silent.local_addr().unwrap()),
        ("unreachable", unused_address),
    ];
    let tables = others.map(|(name, address)| {
        // On a busy machine, even an upstream that answers at once can take longer than the short
        // timeout.
        let timeout = if name == "silent" { "100ms" } else { "20s" };
        format!(
            "[upstreams.{name}]\nservers = [\"{address}\"]\nread_timeout = \"{timeout}\"\n\
             [routes.{name}]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        )
    });
    let gateway = Gateway::start(&format!("{}{}", proxy_to(&[good.address]), tables.concat()));
    gateway.get("/");
    gateway.get("/");
    for (name, _) in others {
        gateway.connect().send(&Request::get(&format!("/{name}")));
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    // A failed connection was retried once.
    let table = [
        ("api", "2xx", 2),
        ("bad", "5xx", 1),
        ("broken", "broken", 1),
        ("cut", "2xx", 1),
        ("cut", "broken", 1),
        ("silent", "timeout", 1),
        ("unreachable", "connect", 2),
    ];
    for (upstream, result, expected) in table {
        let labels = [("upstream", upstream), ("result", result)];
        let count = gateway.count("tollgate_upstream_results_total", &labels);
        assert_eq!(count, expected, "{labels:?}\n{}", gateway.metrics());
    }
    assert_eq!(gateway.count("tollgate_upstream_results_total", &[]), 9);
    let api = [("upstream", "api")];
    assert_eq!(gateway.count("tollgate_upstream_duration_seconds_count", &api), 2);
    let connections = |reused| {
        let labels = [("upstream", "api"), ("reused", reused)];
        gateway.count("tollgate_upstream_connections_total", &labels)
    };
    assert_eq!(connections("false") + connections("true"), 2);
}

#[test]
fn open_connections_are_counted() {
    let gateway = Gateway::start(DEMO);
    let open = "tollgate_client_connections_open";
    let (mut first, mut second) = (gateway.connect(), gateway.connect());
    for _ in 0..3 {
        first.send(&Request::get("/"));
        second.send(&Request::get("/"));
    }
    // Idle connections count as open.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    assert_eq!(gateway.count(open, &[]), 2);
    drop(first);
    gateway.wait_for_count(open, &[], 1);
    second.send(&Request::get("/").header("Connection", "close"));
    gateway.wait_for_count(open, &[], 0);
    assert_eq!(gateway.count("tollgate_client_connections_total", &[]), 2);
}
