//! What is handed over: the levels of buckets, the outputs, and the samples.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::upgraded;
use crate::support::{
    Authority, Connection, DEMO, Gateway, Request, Upstream, curl, eventually, is_running, proxy_to,
};

/// Threads that send a request on a new connection each.
const CLIENTS: usize = 4;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Upgrades this many times while clients open a new connection for each request. Returns the
/// number of responses.
fn upgrade_under_new_connections(gateway: &Gateway, rounds: usize) -> usize {
    let (stopped, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let request = Request::get("/").header("Connection", "close");
    let client = || {
        while !stopped.load(Ordering::Relaxed) {
            let response = Connection::open(gateway.address).send(&request);
            assert_eq!(response.status, 200, "{}", response.text());
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let mut serving = gateway.pid();
        for _ in 0..rounds {
            let next = upgraded(gateway);
            let seen = answered.load(Ordering::Relaxed);
            let more = || answered.load(Ordering::Relaxed) > seen + CLIENTS;
            let has_ended = || clients.iter().any(std::thread::ScopedJoinHandle::is_finished);
            eventually("requests", || (more() || has_ended()).then_some(()));
            eventually("the end", || (!is_running(serving)).then_some(()));
            serving = next;
        }
        stopped.store(true, Ordering::Relaxed);
    });
    answered.into_inner()
}

#[test]
fn row_67_quota_is_exact_over_twenty_upgrades() {
    const BURST: u64 = 100_000;
    let upstream = Upstream::responding(OK);
    // Two limits: each has its buckets.
    let rules = format!(
        "[rules.r]\nper = [\"ip\"]\nrate = \"1/d\"\nburst = {BURST}\n\
         [rules.s]\nper = [\"ip\"]\nrate = \"2/d\"\nburst = {}\n",
        2 * BURST
    );
    let gateway = Gateway::start(&format!("{}{rules}", proxy_to(&[upstream.address])));
    let answered = upgrade_under_new_connections(&gateway, 20) as u64;
    let last = gateway.get("/");
    let used = BURST - last.remaining();
    println!("20 upgrades: {answered} requests, {used} tokens");
    assert_eq!(upstream.requests().len() as u64, answered + 1);
    assert_eq!(used, answered + 1);
}

#[test]
fn row_67_access_log_has_each_request_once_over_upgrades() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = format!("[access_log]\noutput = \"{}\"\n", path.display());
    let gateway = Gateway::start(&format!("{DEMO}{log}"));
    let answered = upgrade_under_new_connections(&gateway, 5);
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap();
        (text.lines().count() >= answered && text.ends_with('\n')).then_some(text)
    };
    let text = eventually("all lines", lines);
    assert_eq!(text.lines().count(), answered);
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect(line);
    }
}

#[test]
fn row_67_client_certificates_are_verified_after_an_upgrade() {
    let authority = Authority::new();
    let issued = authority.issue("server", &["localhost"]);
    let client = authority.issue_client("alice");
    let listener = format!(
        "\n[[listeners]]\naddress = \"127.0.0.1:0\"\ncertificates = [{{ cert = \"{}\", key = \"{}\" }}]\n\
         client_ca = \"{}\"\n",
        issued.certificate,
        issued.key,
        authority.ca()
    );
    let mut gateway = Gateway::start(&format!("{listener}{DEMO}"));
    let url = format!("https://localhost:{}/", gateway.listener(1).port());
    upgraded(&gateway);
    assert_eq!(gateway.exit().0, Some(0));
    let ca = authority.ca();
    let base = ["--cacert", &ca, "--connect-to", "::127.0.0.1:", "-o", "/dev/null", &url];
    let own = ["-w", "%{http_code}", "--cert", &client.certificate, "--key", &client.key];
    assert_eq!(curl(&[&base[..], &own].concat()).text(), "200");
    assert_ne!(curl(&base).exit, Some(0));
}

/// The samples of the last hour: the sum of their allowed requests, and when the first one begins.
fn sampled(gateway: &Gateway) -> (u64, u64) {
    let answer = gateway.admin("/api/samples?from=1h");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let range = answer.json();
    let samples = range["samples"].as_array().unwrap();
    let times: Vec<u64> = samples.iter().map(|sample| sample["at_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let first = &samples[0];
    let begin = first["at_ms"].as_u64().unwrap() - first["span_ms"].as_u64().unwrap();
    (range["total"]["requests"]["allowed"].as_u64().unwrap(), begin)
}

#[test]
fn row_67_samples_of_the_time_before_are_shown_after_upgrades() {
    let gateway = Gateway::start(DEMO);
    let send = |count: usize| {
        for _ in 0..count {
            let answer = Connection::open(gateway.address).send(&Request::get("/"));
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    let sampled_once = |count: u64| {
        eventually("the requests in samples", || {
            let answer = gateway.admin("/api/samples?from=1h");
            let all = answer.json()["total"]["requests"]["allowed"].as_u64()?;
            assert!(all <= count, "{all} of {count}");
            (all == count).then(|| sampled(&gateway))
        })
    };
    send(3);
    let (_, begin) = sampled_once(3);
    let mut serving = gateway.pid();
    for round in 1..=2 {
        let next = upgraded(&gateway);
        // Until then, the previous process can still accept a connection.
        eventually("its end", || (!is_running(serving)).then_some(()));
        serving = next;
        // At once: the admin port opens with them.
        let (allowed, first) = sampled(&gateway);
        assert_eq!((allowed, first), (3 * round, begin), "{}", gateway.log());
        send(3);
        assert_eq!(sampled_once(3 * (round + 1)), (3 * (round + 1), begin));
        // The dashboard opens with them, too.
        assert!(gateway.log().contains("the samples of the previous process are taken over"));
    }
    let buckets = gateway.admin("/api/samples?from=1h");
    assert_eq!(buckets.json()["total"]["routes"]["all"]["requests"], 9, "{}", buckets.text());
}
