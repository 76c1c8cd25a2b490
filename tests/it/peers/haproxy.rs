//! HAProxy sends the PROXY protocol to the gateway.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{clear_listener, file, tls_listener};
use crate::support::{
    Authority, Connection, Gateway, HaProxy, Request, Upstream, curl, eventually, fetch, proxy_to,
};

const TRUST: &str = "trusted_proxies = [\"127.0.0.1\"]";

/// Options of HAProxy's `server` line.
const SENDERS: [&str; 3] = ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"];

/// One token per client address.
const ONE_PER_IP: &str = "[rules.per-ip]\nper = [\"ip\"]\nrate = \"1/d\"\n";

/// Addresses of loopback, which serve as different clients.
const CLIENTS: [&str; 3] = ["127.0.0.11", "127.0.0.12", "127.0.0.11"];

/// Statuses for requests of [`CLIENTS`], each on a new connection.
fn statuses(url: &str, more: &[&str]) -> Vec<u16> {
    let send = |client: &&str| fetch(&[more, &["--interface", client, url]].concat()).status;
    CLIENTS.iter().map(send).collect()
}

#[test]
fn proxy_protocol_names_the_client_on_a_clear_listener() {
    for sender in SENDERS {
        let upstream = Upstream::echo();
        let listener = clear_listener("proxy_protocol = true\nhttp2 = true");
        let config = format!("{}{ONE_PER_IP}", proxy_to(&[upstream.address]));
        let gateway = Gateway::start_full(&file(TRUST, &listener, &config));
        let haproxy = HaProxy::start("tcp", "", gateway.address, sender);
        let url = format!("http://{}/", haproxy.address);
        assert_eq!(statuses(&url, &[]), [200, 200, 429], "{sender}: {}", gateway.log());
        // The same buckets over HTTP/2.
        assert_eq!(statuses(&url, &["--http2-prior-knowledge"]), [429, 429, 429], "{sender}");
        let forwarded: Vec<String> = upstream
            .requests()
            .iter()
            .map(|request| request.header("x-forwarded-for").unwrap().to_owned())
            .collect();
        assert_eq!(forwarded, CLIENTS[..2], "{sender}");
    }
}

#[test]
fn proxy_protocol_names_the_client_on_a_tls_listener() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let upstream = Upstream::echo();
    let listener = format!("{}proxy_protocol = true\n", tls_listener(&[&api]));
    let config = format!("{}{ONE_PER_IP}", proxy_to(&[upstream.address]));
    let gateway = Gateway::start_full(&file(TRUST, &listener, &config));
    let ca = authority.ca();
    for (sender, expected) in SENDERS.into_iter().zip([[200, 200, 429], [429; 3], [429; 3]]) {
        let haproxy = HaProxy::start("tcp", "", gateway.address, sender);
        let url = format!("https://api.test:{}/", haproxy.address.port());
        assert_eq!(statuses(&url, &["--cacert", &ca]), expected, "{sender}");
    }
    assert_eq!(upstream.requests()[0].header("x-forwarded-for"), Some(CLIENTS[0]));
}

#[test]
fn connection_without_the_header_or_from_an_untrusted_peer_is_closed() {
    let listener = clear_listener("proxy_protocol = true");
    let config = crate::support::DEMO;
    let trusting = Gateway::start_full(&file(TRUST, &listener, config));
    let plain = curl(&[&trusting.url("/")]);
    assert_ne!(plain.exit, Some(0), "a request without the header should fail");
    let other = "trusted_proxies = [\"203.0.113.7\"]";
    let distrusting = Gateway::start_full(&file(other, &listener, config));
    let haproxy = HaProxy::start("tcp", "", distrusting.address, "send-proxy-v2");
    let refused = curl(&[&format!("http://{}/", haproxy.address)]);
    assert_ne!(refused.exit, Some(0), "a peer that is not trusted should be refused");
    for gateway in [&trusting, &distrusting] {
        // The client can see the end before it is counted.
        eventually("the connection to be counted", || {
            (gateway.count("tollgate_connections_rejected_total", &[]) >= 1).then_some(())
        });
        assert_eq!(gateway.count("tollgate_requests_total", &[]), 0);
    }
    // curl sends the header itself: version 1.
    assert_eq!(fetch(&["--haproxy-protocol", &trusting.url("/")]).status, 200);
}

#[test]
fn row_66_no_request_fails_behind_a_load_balancer_that_reads_ready() {
    let upstream = Upstream::echo();
    let config = format!("drain_delay = \"3s\"\n{}", proxy_to(&[upstream.address]));
    let [mut leaving, staying] = [(); 2].map(|()| Gateway::start(&config));
    let haproxy = HaProxy::balance(&[&leaving, &staying]);
    let served = |gateway: &Gateway| gateway.count("tollgate_requests_total", &[("status", "200")]);
    let (stopped, address) = (AtomicBool::new(false), haproxy.address);
    let client = || {
        let mut statuses = Vec::new();
        while !stopped.load(Ordering::Relaxed) && statuses.len() < 20_000 {
            statuses.push(Connection::open(address).send(&Request::get("/")).status);
        }
        statuses
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..2).map(|_| scope.spawn(client)).collect();
        eventually("both to serve", || {
            (served(&leaving) > 10 && served(&staying) > 10).then_some(())
        });
        leaving.terminate();
        let (code, _) = leaving.exit();
        let before = served(&staying);
        eventually("the other to serve", || (served(&staying) > before + 20).then_some(()));
        stopped.store(true, Ordering::Relaxed);
        assert_eq!(code, Some(0), "{}", leaving.log());
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let failed = statuses.iter().filter(|status| **status != 200).count();
    println!("{} requests, {failed} failed", statuses.len());
    assert_eq!(failed, 0, "{statuses:?}\n{}", haproxy.log());
}
