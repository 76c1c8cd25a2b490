//! Listeners: Unix sockets, the PROXY protocol, and what a reload changes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::json;

use crate::certificates::{Secure, client};
use crate::support::{
    Authority, Connection, DEMO, Gateway, Latch, Request, TIMEOUT, Upstream, check, curl,
    eventually, fetch, full_config, proxy_to, timed,
};

/// A listener at a port that the kernel selects, with more settings.
fn listener(settings: &str) -> String {
    format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n{settings}\n")
}

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1/32\"]\n";

/// Sends bytes to a Unix socket and reads the response to its end.
fn exchange(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

const CLOSING: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn unix_socket_serves_requests_and_its_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    // A file that a process has left behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let upstream = Upstream::echo();
    let unix = format!("[[listeners]]\naddress = \"unix:{}\"\nmode = \"0600\"\n", path.display());
    let rule = "[rules.ip]\nper = [\"ip\"]\nrate = \"1/d\"\n";
    let config = format!("{unix}{}{rule}", proxy_to(&[upstream.address]));
    let mut gateway = Gateway::start(&config);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let statuses: Vec<String> =
        (0..2).map(|_| exchange(&path, CLOSING).lines().next().unwrap().to_owned()).collect();
    assert_eq!(statuses, ["HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"]);
    // The client has no address.
    assert_eq!(upstream.only_request().header("x-forwarded-for"), None);
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    assert!(!path.exists());
}

#[test]
fn proxy_header_names_the_client() {
    let upstream = Upstream::echo();
    let config = format!(
        "{TRUSTED}{}{}[rules.ip]\nper = [\"ip\"]\nrate = \"1/d\"\n",
        listener("proxy_protocol = true\nhttp2 = true"),
        proxy_to(&[upstream.address])
    );
    let gateway = Gateway::start(&config);
    let status = |header: &[u8]| {
        let mut connection = Connection::open(gateway.listener(1));
        connection.write(&[header, CLOSING].concat());
        connection.read_response("GET").status
    };
    let v1 = |client: &str| format!("PROXY TCP4 {client} 192.0.2.1 4000 443\r\n").into_bytes();
    assert_eq!(status(&v1("203.0.113.1")), 200);
    assert_eq!(status(&v1("203.0.113.1")), 429);
    let v2 = |client: [u8; 4]| {
        let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
        [&start[..], &client, &[192, 0, 2, 1], &4000_u16.to_be_bytes(), &443_u16.to_be_bytes()]
            .concat()
    };
    assert_eq!(status(&v2([203, 0, 113, 2])), 200);
    assert_eq!(status(&v2([203, 0, 113, 1])), 429);
    // A health check of the proxy itself.
    assert_eq!(status(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), 200);
    let addresses: Vec<String> = upstream
        .requests()
        .iter()
        .map(|seen| seen.header("x-forwarded-for").unwrap().to_owned())
        .collect();
    assert_eq!(addresses, ["203.0.113.1", "203.0.113.2", "127.0.0.1"]);
}

/// A proxy that passes bytes on has not written the headers of its client, whose address it does
/// not know.
#[test]
fn forwarded_header_is_not_trusted_without_an_address_in_the_proxy_header() {
    let upstream = Upstream::echo();
    let limits = "[server.limits]\nmax_connections_per_ip = 2\n";
    let config = format!(
        "{TRUSTED}{limits}{}{}",
        listener("proxy_protocol = true"),
        proxy_to(&[upstream.address])
    );
    let gateway = Gateway::start(&config);
    let request =
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 9.9.9.9\r\nX-Request-Id: mine\r\n\r\n";
    let headers: [&[u8]; 3] = [
        b"PROXY UNKNOWN\r\n",
        // A client of a Unix socket, and a health check of the proxy.
        &[&b"\r\n\r\n\0\r\nQUIT\n\x21\x31\0\xd8"[..], &[b'a'; 216]].concat(),
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    ];
    for header in headers {
        let mut connection = Connection::open(gateway.listener(1));
        connection.write(&[header, request.as_bytes()].concat());
        assert_eq!(connection.read_response("GET").status, 200);
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_ne!(seen.header("x-request-id"), Some("mine"));
    }
    // They count as connections from the address of the proxy.
    let open = || {
        let mut connection = Connection::open(gateway.listener(1));
        connection.write(&[b"PROXY UNKNOWN\r\n", request.as_bytes()].concat());
        connection
    };
    let is_full = || {
        let mut kept = [open(), open()];
        let are_served = kept.each_mut().map(|kept| kept.try_read_response("GET").is_some());
        let is_refused = open().is_closed_by_server();
        (are_served == [true; 2] && is_refused).then_some(())
    };
    eventually("a third connection to be refused", is_full);
}

#[test]
fn proxy_header_on_a_unix_socket_names_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let upstream = Upstream::echo();
    let address = format!("address = \"unix:{}\"", path.display());
    let config = format!(
        "[[listeners]]\n{address}\nproxy_protocol = true\n{}[rules.ip]\nper = [\"ip\"]\nrate = \"1/d\"\n",
        proxy_to(&[upstream.address])
    );
    let _gateway = Gateway::start(&config);
    let send = |client: &str| {
        let header = format!("PROXY TCP4 {client} 192.0.2.1 4000 443\r\n");
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\nConnection: close\r\n\r\n";
        exchange(&path, format!("{header}{request}").as_bytes())[9..12].to_owned()
    };
    let statuses = ["203.0.113.1", "203.0.113.1", "203.0.113.2"].map(send);
    assert_eq!(statuses, ["200", "429", "200"]);
    let requests = upstream.requests();
    let addresses: Vec<_> = requests.iter().map(|seen| seen.header("x-forwarded-for")).collect();
    assert_eq!(addresses, [Some("203.0.113.1"), Some("203.0.113.2")]);
    // Without the header, the connection is closed.
    assert_eq!(exchange(&path, CLOSING), "");
}

#[test]
fn admin_api_shows_the_settings_of_each_listener() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let tls = format!(
        "certificates = [{}]\nclient_ca = {:?}\nmin_tls = \"1.3\"\nhsts = \"1h\"",
        api.entry(),
        authority.ca()
    );
    let listeners = [&*tls, "redirect = \"https\"", "proxy_protocol = true"].map(listener);
    let gateway = Gateway::start(&format!("{TRUSTED}{}{DEMO}", listeners.concat()));
    let shown = gateway.admin("/api/policy").json()["listeners"].clone();
    let listener = |http2: bool, proxy: bool, redirect: Option<&str>, secure: bool| {
        json!({
            "address": "127.0.0.1:0",
            "http2": http2,
            "proxy_protocol": proxy,
            "redirect": redirect,
            "hsts": secure.then(|| json!({
                "max_age_s": 3600, "include_subdomains": false, "preload": false
            })),
            "tls": secure.then(|| json!({
                "certificates": 1, "acme": false, "min_tls": "1.3", "client_auth": "required"
            })),
        })
    };
    let expected = json!([
        listener(false, false, None, false),
        listener(true, false, None, true),
        listener(false, false, Some("https"), false),
        listener(false, true, None, false),
    ]);
    assert_eq!(shown, expected);
}

#[test]
fn connection_without_a_proxy_header_or_from_a_stranger_is_closed() {
    let listener = listener("proxy_protocol = true");
    let gateway = Gateway::start(&format!(
        "{TRUSTED}{}{listener}{DEMO}",
        "[server.limits]\nhandshake_timeout = \"2s\"\n"
    ));
    let is_closed = |connection: &mut Connection, bytes: &[u8]| {
        connection.write(bytes);
        connection.is_closed_by_server()
    };
    let address = gateway.listener(1);
    assert!(is_closed(&mut Connection::open(address), CLOSING));
    assert!(is_closed(&mut Connection::open(address), b"PROXY TCP4 "));
    let stranger = &mut Connection::open_from("127.0.0.9".parse().unwrap(), address);
    assert!(is_closed(stranger, b"PROXY TCP4 203.0.113.1 192.0.2.1 1 2\r\n"));
    for reason in ["proxy_header", "handshake_timeout", "untrusted_proxy"] {
        let labels = [("reason", reason)];
        gateway.wait_for_count("tollgate_connections_rejected_total", &labels, 1);
    }
}

#[test]
fn reload_applies_the_settings_of_a_listener_to_new_connections() {
    let config = |settings: &str| format!("{TRUSTED}{}{DEMO}", listener(settings));
    let gateway = Gateway::start(&config(""));
    let mut kept = Connection::open(gateway.listener(1));
    assert_eq!(kept.send(&Request::get("/")).status, 200);
    gateway.apply(&config("proxy_protocol = true"));
    assert_eq!(kept.send(&Request::get("/")).status, 200);
    let mut plain = Connection::open(gateway.listener(1));
    plain.write(CLOSING);
    assert!(plain.is_closed_by_server());
    let mut proxied = Connection::open(gateway.listener(1));
    proxied.write(&[b"PROXY UNKNOWN\r\n", CLOSING].concat());
    assert_eq!(proxied.read_response("GET").status, 200);
}

#[test]
fn path_of_a_unix_socket_that_is_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let unix = format!("[[listeners]]\naddress = \"unix:{}\"\n", path.display());
    let file = folder.path().join("gateway.toml");
    let config = full_config(&format!("{unix}{DEMO}"));
    assert_eq!(check(config.as_bytes()).code, Some(0));
    std::fs::write(&file, config).unwrap();
    let outcome = crate::support::tollgate(&["run", "-c", file.to_str().unwrap()], "");
    assert_eq!(outcome.code, Some(69));
    let expected =
        format!("cannot listen on unix:{}: another process listens on it", path.display());
    assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
}

/// The step after the ACME challenge in the list of `decide::step`. The example of docs/acme.md
/// tests that the challenge precedes it.
#[test]
fn redirect_precedes_every_decision_on_the_client() {
    let authority = Authority::new();
    let secure = format!("certificates = [{}]", authority.issue("api", &["api.test"]).entry());
    let listeners = [&*secure, "redirect = \"https\""].map(listener).concat();
    let gateway = Gateway::start(&format!("deny_ips = [\"127.0.0.0/8\"]\n{listeners}{DEMO}"));
    assert_eq!(gateway.get("/").status, 403);
    let mut clear = Connection::open(gateway.listener(2));
    let two_keys = Request::get("/").header("X-Api-Key", "a").header("X-Api-Key", "b");
    assert_eq!(clear.send(&two_keys).status, 308);
    assert_eq!(gateway.count("tollgate_rejections_total", &[("reason", "ip_denied")]), 1);
}

#[test]
fn tls_listener_serves_both_protocols_and_clear_one_redirects() {
    let upstream = Upstream::echo();
    let authority = Authority::new();
    let issued = authority.issue("api", &["api.test"]);
    let secure = format!("certificates = [{}]\nhsts = \"1d\"", issued.entry());
    let config = format!(
        "{}{}{}",
        listener(&secure),
        listener("redirect = \"https\""),
        proxy_to(&[upstream.address])
    );
    let gateway = Gateway::start(&config);
    let port = gateway.listener(1).port();
    let (resolve, url) =
        (format!("api.test:{port}:127.0.0.1"), format!("https://api.test:{port}/x"));
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let arguments = [option, "--cacert", &authority.ca(), "--resolve", &resolve, "--include"];
        let written = ["--write-out", "%{http_version}", &url];
        let text = curl(&[&arguments[..], &written[..]].concat()).text().to_ascii_lowercase();
        assert!(text.starts_with(&format!("http/{version} 200")), "{text}");
        assert!(text.contains("strict-transport-security: max-age=86400\r\n"), "{text}");
        assert!(text.ends_with(version), "{text}");
    }
    for seen in upstream.requests() {
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    }
    let mut clear = Connection::open(gateway.listener(2));
    let redirected = clear.send(&Request::get("/a%20b?c=d"));
    assert_eq!(redirected.status, 308);
    let location = redirected.header("location").unwrap();
    assert!(location.starts_with("https://") && location.ends_with("/a%20b?c=d"), "{location}");
    // Not over a connection that others can change (RFC 6797, section 7.2).
    assert_eq!(redirected.header("strict-transport-security"), None);
    clear.write(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n");
    assert_eq!(clear.read_response("GET").status, 400);
}

#[test]
fn row_57_new_connection_that_sends_nothing_is_closed() {
    let authority = Authority::new();
    let tls = format!("certificates = [{}]", authority.issue("api", &["api.test"]).entry());
    let listeners = ["http2 = false", "http2 = true", &tls].map(listener).concat();
    let limits = "keepalive_timeout = \"1s\"\n[server.limits]\nhandshake_timeout = \"1s\"\n";
    let gateway = Gateway::start(&format!("{limits}{listeners}{DEMO}"));
    let opened: Vec<Connection> =
        (0..4).map(|index| Connection::open(gateway.listener(index))).collect();
    for (index, mut connection) in opened.into_iter().enumerate() {
        let (is_closed, took) = timed(|| connection.is_closed_by_server());
        assert!(is_closed && took < TIMEOUT / 2, "listener {index}: {took:?}");
    }
}

#[test]
fn http1_client_that_reads_nothing_is_closed_after_write_timeout() {
    // More than the kernel buffers.
    let (length, body) = (30_000_000, "x".repeat(30_000_000));
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
    let upstream = Upstream::responding(large);
    let gateway =
        Gateway::start(&format!("write_timeout = \"500ms\"\n{}", proxy_to(&[upstream.address])));
    let mut stalled = gateway.connect();
    stalled.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request", || (!upstream.requests().is_empty()).then_some(()));
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    let response = stalled.read_response("GET");
    assert!(!response.complete && response.body.len() < length, "{}", response.body.len());
}

/// The header comes before the handshake.
#[test]
fn proxy_header_before_a_tls_handshake_names_the_client() {
    let authority = Authority::new();
    let config_of_client = client(&authority);
    let api = authority.issue("a", &["a.example"]);
    let upstream = Upstream::echo();
    let settings = format!("proxy_protocol = true\ncertificates = [{}]", api.entry());
    let config = format!("{TRUSTED}{}{}", listener(&settings), proxy_to(&[upstream.address]));
    let gateway = Gateway::start(&config);
    let v1 = b"PROXY TCP6 2001:db8::1 2001:db8::2 4000 443\r\n".to_vec();
    let v2 =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x02\xc0\0\x02\x01\x0f\xa0\x01\xbb".to_vec();
    for header in [v1, v2] {
        let mut socket = TcpStream::connect(gateway.listener(1)).unwrap();
        socket.write_all(&header).unwrap();
        let mut client = Secure::on(&config_of_client, socket).unwrap();
        client.0.write_all(CLOSING).unwrap();
        let mut response = String::new();
        client.0.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    let requests = upstream.requests();
    let clients: Vec<_> = requests.iter().map(|seen| seen.header("x-forwarded-for")).collect();
    assert_eq!(clients, [Some("2001:db8::1"), Some("203.0.113.2")]);
    // A handshake without the header, and a header after the handshake.
    let mut bare = Connection::open(gateway.listener(1));
    bare.write(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03");
    assert!(bare.is_closed_by_server());
    let rejected = [("reason", "proxy_header")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &rejected, 1);
}

#[test]
fn sigterm_lets_requests_over_tls_finish_and_announces_the_end() {
    let authority = Authority::new();
    let api = authority.issue("api", &["api.test"]);
    let release = Latch::default();
    let waits = release.clone();
    let upstream = Upstream::start(move |_, stream| {
        waits.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let tls = listener(&format!("certificates = [{}]", api.entry()));
    let mut gateway = Gateway::start(&format!("\n{tls}{}", proxy_to(&[upstream.address])));
    let (url, ca) = (format!("https://api.test:{}/", gateway.listener(1).port()), authority.ca());
    let clients = ["--http1.1", "--http2"].map(|version| {
        let (url, ca) = (url.clone(), ca.clone());
        std::thread::spawn(move || fetch(&["--cacert", &ca, version, &url]))
    });
    upstream.wait_for_requests(2);
    gateway.terminate();
    eventually("the gateway drains", || gateway.log().contains("draining").then_some(()));
    release.open();
    let [http1, http2] = clients.map(|client| client.join().unwrap());
    assert_eq!((http1.status, &*http1.body), (200, "ok"));
    assert_eq!(http1.header("connection"), Some("close"));
    assert_eq!((http2.status, &*http2.body), (200, "ok"));
    assert_eq!(http2.header("connection"), None);
    assert_eq!(gateway.exit().0, Some(0));
}
