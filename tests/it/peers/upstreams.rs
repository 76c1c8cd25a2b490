//! nginx and Node as upstreams over TLS, HTTP/2 and h2c.

use std::net::SocketAddr;

use serde_json::Value;

use super::Site;
use crate::support::{Authority, Fetched, Issued, Nginx, PeerServer, fetch_all, proxy_to};

/// `[upstreams.api]` with `https://` and these settings.
fn https_to(address: SocketAddr, settings: &str) -> String {
    proxy_to(&[address])
        .replace("[\"127", "[\"https://127")
        .replace("servers", &format!("{settings}\nservers"))
}

fn tls(authority: &Authority, more: &str) -> String {
    format!("tls = {{ ca = {:?}, server_name = \"up.test\"{more} }}", authority.ca())
}

/// The answers of both listeners by every version, for `path`.
#[track_caller]
fn all_ways(site: &Site, path: &str) -> Vec<Fetched> {
    let tls = ["--http1.1", "--http2"].map(|version| site.https(&[version], path));
    let clear = ["--http1.1", "--http2-prior-knowledge"].map(|version| site.http(&[version], path));
    tls.into_iter().chain(clear).collect()
}

#[test]
fn node_is_reached_by_the_configured_protocol() {
    let authority = Authority::new();
    let issued = authority.issue("up", &["up.test"]);
    let clear = PeerServer::node(None);
    let encrypted = PeerServer::node(Some(&issued));
    let h2c = proxy_to(&[clear.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let table = [
        (&clear, h2c, "2.0"),
        (&encrypted, https_to(encrypted.address, &tls(&authority, "")), "2.0"),
        (
            &encrypted,
            https_to(encrypted.address, &format!("{}\nprotocol = \"h2\"", tls(&authority, ""))),
            "2.0",
        ),
        (
            &encrypted,
            https_to(encrypted.address, &format!("{}\nprotocol = \"http1\"", tls(&authority, ""))),
            "1.1",
        ),
    ];
    for (server, config, version) in table {
        let site = Site::start(&config);
        let before = server.count("request GET /some?query");
        for answer in all_ways(&site, "/some?query") {
            let seen = answer.json();
            assert_eq!((answer.status, seen["version"].as_str()), (200, Some(version)), "{seen}");
            assert_eq!(seen["path"], "/some?query", "{seen}");
            assert_eq!(seen["headers"]["x-forwarded-for"], "127.0.0.1", "{seen}");
            let scheme = &seen["headers"]["x-forwarded-proto"];
            assert!(scheme == "http" || scheme == "https", "{seen}");
        }
        server.wait_for_count("request GET /some?query", before + 4);
    }
}

#[test]
fn trailers_of_node_pass_to_a_client_of_http2() {
    let server = PeerServer::node(None);
    let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    let dump = site.authority.path("head");
    let arguments = ["--http2", "--data", "12345", "--dump-header", &dump];
    assert_eq!(site.https(&arguments, "/trailers").status, 200);
    let head = std::fs::read_to_string(dump).unwrap();
    assert!(head.contains("x-sum: 5"), "{head}");
}

#[test]
fn requests_survive_connections_that_node_closes() {
    let server = PeerServer::node(None);
    let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    for number in 0..20 {
        let answer = site.https(&["--http2"], "/goaway");
        assert_eq!(answer.status, 200, "{number}: {answer:?}");
    }
    assert!(server.count("session ") >= 10, "{}", server.log());
}

#[test]
fn streams_to_node_share_connections() {
    let server = PeerServer::node(None);
    let config = proxy_to(&[server.address]).replace("servers", "protocol = \"h2c\"\nservers");
    let site = Site::start(&config);
    let many = ["--http2", "--parallel", "--parallel-max", "40", "--output", "/dev/null"];
    let (ca, url) = (site.authority.ca(), format!("https://api.test:{}/[1-200]", site.tls.port()));
    let answers = fetch_all(&[&many[..], &["--cacert", &ca, &url]].concat());
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 200);
    server.wait_for_count("request GET /", 200);
    let sessions = server.count("session ");
    assert!((1..=10).contains(&sessions), "{sessions} connections for 40 streams at once");
}

/// nginx with a listener of this kind; `/` shows what it received.
fn nginx(listen: &str, issued: &Issued, more: &str) -> Nginx {
    let show = "\"$server_protocol $ssl_protocol $ssl_server_name $ssl_client_s_dn \
                $http_x_forwarded_for $request_uri $proxy_protocol_addr\"";
    Nginx::listening(listen, |folder| {
        format!(
            "ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {}; ssl_certificate_key {}; {more}
             location / {{ return 200 {show}; }}
             location /files/ {{ root {folder}; dav_methods PUT DELETE; }}",
            issued.certificate, issued.key
        )
    })
}

#[test]
fn nginx_is_reached_over_tls_with_both_versions_of_http() {
    let authority = Authority::new();
    let issued = authority.issue("up", &["up.test"]);
    let nginx = nginx("ssl http2", &issued, "");
    for (protocol, version) in [("auto", "HTTP/2.0"), ("h2", "HTTP/2.0"), ("http1", "HTTP/1.1")] {
        let settings = format!("{}\nprotocol = \"{protocol}\"", tls(&authority, ""));
        let site = Site::start(&https_to(nginx.address, &settings));
        for answer in all_ways(&site, "/path?query") {
            let expected = format!("{version} TLSv1.3 up.test  127.0.0.1 /path?query ");
            assert_eq!((answer.status, answer.body), (200, expected), "{protocol}");
        }
        let body = site.authority.path("body");
        std::fs::write(&body, vec![b'y'; 1_000_000]).unwrap();
        let sent = site.https(&["--upload-file", &body], "/files/upload");
        assert!([201, 204].contains(&sent.status), "{protocol}: {sent:?}");
        assert_eq!(std::fs::read(nginx.file("upload")).unwrap().len(), 1_000_000);
        assert_eq!(site.https(&["--http2"], "/files/upload").body.len(), 1_000_000);
    }
}

#[test]
fn nginx_is_reached_by_http2_in_clear() {
    let authority = Authority::new();
    let nginx = nginx("http2", &authority.issue("up", &["up.test"]), "");
    let config = proxy_to(&[nginx.address]).replace("servers", "protocol = \"h2c\"\nservers");
    for answer in all_ways(&Site::start(&config), "/path?query") {
        let expected = "HTTP/2.0    127.0.0.1 /path?query ";
        assert_eq!((answer.status, answer.body.as_str()), (200, expected));
    }
}

#[test]
fn nginx_sees_the_client_certificate_of_the_gateway() {
    let authority = Authority::new();
    let issued = authority.issue("up", &["up.test"]);
    let own = authority.issue_client("gateway");
    let verify = format!("ssl_client_certificate {}; ssl_verify_client on;", authority.ca());
    let nginx = nginx("ssl", &issued, &verify);
    let pair = format!(", cert = {:?}, key = {:?}", own.certificate, own.key);
    let site = Site::start(&https_to(nginx.address, &tls(&authority, &pair)));
    let answer = site.https(&[], "/");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("CN=gateway,O=tests"), "{answer:?}");
    // Without one, nginx answers 400 itself.
    let site = Site::start(&https_to(nginx.address, &tls(&authority, "")));
    assert_eq!(site.https(&[], "/").status, 400);
}

#[test]
fn wrong_certificates_of_nginx_are_refused_with_the_reason() {
    let authority = Authority::new();
    let nginx = nginx("ssl", &authority.issue("up", &["up.test"]), "");
    let other = Authority::new();
    let wrong_name = tls(&authority, "").replace("up.test", "other.test");
    for (settings, reason) in [
        (tls(&other, ""), "UnknownIssuer"),
        (wrong_name, "other.test"),
        (String::new(), "127.0.0.1"),
    ] {
        let site = Site::start(&https_to(nginx.address, &settings));
        let answer = site.https(&[], "/");
        assert_eq!(answer.status, 502, "{settings}: {answer:?}");
        let problem: Value = answer.json();
        assert_eq!(problem["status"], 502, "{problem}");
        let log = site.gateway.log();
        assert!(log.contains("certificate"), "{reason}: {log}");
    }
}

#[test]
fn nginx_receives_the_client_address_by_the_proxy_protocol() {
    let authority = Authority::new();
    let issued = authority.issue("up", &["up.test"]);
    for (listen, version) in [("proxy_protocol ssl", "v1"), ("proxy_protocol ssl http2", "v2")] {
        let nginx = nginx(listen, &issued, "");
        let settings = format!("{}\nproxy_protocol = \"{version}\"", tls(&authority, ""));
        let site = Site::start(&https_to(nginx.address, &settings));
        for client in ["127.0.0.21", "127.0.0.22", "127.0.0.21"] {
            let answer = site.https(&["--interface", client], "/x");
            let body = answer.body.trim_end();
            assert!(body.ends_with(&format!(" {client} /x {client}")), "{listen}: {answer:?}");
        }
    }
}
