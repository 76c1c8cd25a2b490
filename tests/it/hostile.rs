//! Malicious and malformed requests, and clients that disconnect.

use std::io::Write as _;
use std::time::Duration;

use crate::support::{
    ClosedPort, DEMO, Gateway, Latch, Nginx, Request, Stopwatch, Upstream, check, eventually,
    proxy_to, timed_below,
};

#[test]
fn row_31_header_of_ten_megabytes_is_refused_early() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let (before, _) = gateway.memory_bytes();
    for _ in 0..3 {
        let mut client = gateway.connect();
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\nX-Huge: ");
        let part = [b'a'; 16 * 1024];
        (0..640).for_each(|_| client.write(&part));
        client.write(b"\r\n\r\n");
        // A server that closes with unread bytes may lose its response on the way. The request must
        // not be allowed.
        let status = client.try_read_response("GET").map(|answer| answer.status);
        assert!(matches!(status, None | Some(400 | 431)), "{status:?}");
    }
    assert!(upstream.requests().is_empty());
    let grown = gateway.memory_bytes().1.saturating_sub(before) >> 20;
    // The allocator keeps some of the 1 MB buffers, but not three times 10 MB.
    assert!(grown < 20, "memory grew by {grown} MiB");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_31_head_far_over_the_limits_is_read_no_further() {
    let gateway = Gateway::start(&format!("max_header_bytes = 4096\nmax_uri_bytes = 1024\n{DEMO}"));
    let head = |len: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(len));
    let mut client = gateway.connect();
    client.write(format!("{}\r\n\r\n", head(15_000)).as_bytes());
    assert_eq!(client.read_response("GET").status, 431);
    let mut client = gateway.connect();
    client.write(head(40_000).as_bytes());
    assert!(timed_below(Duration::from_secs(8), || client.is_closed_by_server()));
    let counted = [("reason", "head_size")];
    gateway.wait_for_count("tollgate_connections_rejected_total", &counted, 1);
    // A body of any length may follow at once, and requests may follow each other.
    let body = "y".repeat(100_000);
    let post =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut client = gateway.connect();
    client.write(post.repeat(3).as_bytes());
    for _ in 0..3 {
        assert_eq!(client.read_response("POST").status, 200);
    }
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3_000).as_bytes());
    for _ in 0..3_000 {
        assert_eq!(client.read_response("GET").status, 200);
    }
}

/// A smuggled request, hidden after an ambiguous one.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn row_58_ambiguous_requests_are_refused() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    let get = "GET / HTTP/1.1\r\nHost: a\r\n";
    let requests = [
        format!("{post}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{post}Transfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n0\r\n\r\n"),
        format!("{post}Content-Length: 5\r\nContent-Length: 6\r\n\r\nfirst"),
        format!("{post}Content-Length: 5, 6\r\n\r\nfirst"),
        format!("{post}Content-Length: +5\r\n\r\nfirst"),
        format!("{post}Content-Length: -5\r\n\r\n"),
        format!("{post}Content-Length: 0x5\r\n\r\nfirst"),
        format!("{post}Content-Length: 99999999999999999999\r\n\r\n"),
        format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{post}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_string(),
        format!("{get}X-Folded: one\r\n two\r\n\r\n"),
        format!("{get}X-Nul: \0\r\n\r\n"),
        format!("{get}X-Return: a\rb\r\n\r\n"),
        format!("{get}Host: b\r\n\r\n"),
        format!("{get}: no name\r\n\r\n"),
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_string(),
        "GET / HTTP/1.1\r\n\r\n".to_string(),
        "GET /\r\n\r\n".to_string(),
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_string(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_string(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n".to_string(),
    ];
    for request in requests {
        let mut client = gateway.connect();
        client.write(request.as_bytes());
        client.write(SMUGGLED.as_bytes());
        let status = client.try_read_response("POST").map(|answer| answer.status);
        assert!(matches!(status, None | Some(400 | 505)), "{status:?} to {request:?}");
        let seen = upstream.requests();
        assert!(seen.is_empty(), "{request:?} passed as {seen:#?}");
    }
}

#[test]
fn row_58_malformed_chunk_ends_the_request_and_the_connection() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "zz\r\nfirst\r\n0\r\n\r\n",
        "-5\r\nfirst\r\n",
        "5\r\nfirstX\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n",
    ] {
        let mut client = gateway.connect();
        client.write(format!("{head}{chunks}{SMUGGLED}").as_bytes());
        let status = client.try_read_response("POST").map(|answer| answer.status);
        assert!(matches!(status, None | Some(400)), "{status:?} to {chunks:?}");
        assert!(client.is_closed_by_server(), "{chunks:?}");
    }
    // Neither an ambiguous request nor the smuggled one reached the upstream.
    assert!(upstream.requests().is_empty(), "{:#?}", upstream.requests());
}

/// The start of the next request is unknown, also if the body belongs to a denied request.
#[test]
fn row_58_malformed_chunk_after_a_denial_closes_the_connection() {
    let upstream = Upstream::echo();
    let config = proxy_to(&[upstream.address]).replace("path = \"/*\"", "path = \"/api\"");
    let gateway = Gateway::start(&config);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in ["ZZ\r\n", "0x5\r\n", "5\r\nhelloXX", "5\nhello\n0\n\n"] {
        let mut client = gateway.connect();
        client.write(format!("{head}{chunks}").as_bytes());
        let answer = client.read_response("POST");
        assert_eq!(
            (answer.status, answer.header("connection")),
            (404, Some("close")),
            "{chunks:?}"
        );
        client.write(b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.is_closed_by_server(), "{chunks:?}");
    }
    assert!(upstream.requests().is_empty(), "{:#?}", upstream.requests());
}

/// Pingora alone would remove the chunks and forward the rest as plain bytes.
#[test]
fn row_58_unknown_transfer_coding_is_501() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for coding in ["gzip, chunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n");
        let mut client = gateway.connect();
        client.write(format!("{head}5\r\nfirst\r\n0\r\n\r\n").as_bytes());
        assert_eq!(client.read_response("POST").status, 501, "{coding}");
    }
    assert!(upstream.requests().is_empty(), "{:#?}", upstream.requests());
    let plain = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let mut client = gateway.connect();
    client.write(format!("{plain}5\r\nfirst\r\n0\r\n\r\n").as_bytes());
    assert_eq!(client.read_response("POST").text(), "first");
}

/// `Upgrade` is not an upgrade request unless `Connection` names it.
#[test]
fn row_59_upgrade_without_connection_header_is_not_forwarded() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let upgrade = |request: Request| request.header("Upgrade", "websocket");
    let named = |options: &str| upgrade(Request::get("/")).header("Connection", options);
    assert_eq!(gateway.send(&upgrade(Request::get("/"))).status, 200);
    assert_eq!(gateway.send(&named("keep-alive")).status, 200);
    for seen in upstream.requests() {
        assert_eq!((seen.header("upgrade"), seen.header("connection")), (None, None));
    }
    assert_eq!(gateway.send(&named("keep-alive, Upgrade")).status, 200);
    assert_eq!(upstream.requests()[2].header("upgrade"), Some("websocket"));
}

#[test]
fn row_58_equal_content_lengths_are_merged() {
    for lengths in [&["5", "5"][..], &["5, 5"], &["5,5", "5"], &[" 5 ,\t5 , 5"]] {
        let upstream = Upstream::echo();
        let gateway = Gateway::start(&proxy_to(&[upstream.address]));
        let lines = lengths.join("\r\nContent-Length: ");
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {lines}\r\n\r\n");
        let mut client = gateway.connect();
        client.write(format!("{head}first").as_bytes());
        assert_eq!(client.read_response("POST").text(), "first", "{lengths:?}");
        assert_eq!(upstream.only_request().values("content-length"), ["5"], "{lengths:?}");
    }
}

#[test]
fn row_59_bytes_after_a_refused_upgrade_are_not_forwarded_with_it() {
    let upstream = Upstream::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write(format!("GET / HTTP/1.1\r\nHost: a\r\n{upgrade}{SMUGGLED}").as_bytes());
    assert_eq!(client.read_response("GET").status, 200);
    // The upstream did not upgrade; the following bytes are a separate request, or nothing.
    client.finish_writing();
    let _ = client.try_read_response("GET");
    let arrived = upstream.requests();
    assert!(arrived[0].line().starts_with("GET / "));
    // The gateway adds these headers to each request that it forwards. Bytes that it passes on with
    // the first one have none.
    for seen in &arrived {
        for name in ["x-request-id", "x-forwarded-for"] {
            assert!(seen.header(name).is_some(), "{name}: {arrived:#?}");
        }
        assert!(seen.body.is_empty(), "{arrived:#?}");
    }
    // One that the gateway has read is not forwarded if it has seen before that the client is gone.
    eventually("the gateway to count each request that arrived", || {
        let counted = gateway.existing("tollgate_requests_total", &[]).unwrap_or(0);
        (counted >= arrived.len() as u64).then_some(())
    });
}

#[test]
fn row_61_echoed_values_are_escaped() {
    let trusted = "trusted_proxies = [\"127.0.0.1\"]\n";
    let gateway = Gateway::start(&format!("{trusted}{DEMO}"));
    for path in [
        "/%0d%0aX-Injected:%201",
        "/%250d%250aX-Injected:1",
        "/<script>alert(1)</script>",
        "/{}|^`",
        "/\"quoted\"",
        "/\\u0000",
    ] {
        let answer = gateway.get(path);
        assert!(matches!(answer.status, 200 | 400), "{path}: {answer:?}");
        // A body, if any, is complete and valid.
        assert!(answer.body.is_empty() || answer.json().is_object());
        assert_eq!(answer.header("x-injected"), None);
        assert!(!answer.text().contains('\r'), "{answer:?}");
    }

    // An id that cannot be logged or forwarded safely is replaced.
    let id = |given: &[u8]| {
        let answer = gateway.send(&Request::get("/").header("X-Request-Id", given));
        answer.json()["request_id"].as_str().unwrap().to_string()
    };
    assert_eq!(id(b"fine-1"), "fine-1");
    for malformed in [&b"a b"[..], b"a\tb", b"\xff", "ü".as_bytes(), &[b'a'; 129], b""] {
        let own = id(malformed);
        assert!(own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit()), "{own}");
    }
}

#[test]
fn row_61_names_that_are_unsafe_in_headers_are_errors() {
    for name in ["a\\r\\nX: 1", "a\\nb", "a\\\"b", "a\\u0000", "ü", "", "a b"] {
        let rule = format!("[rules.\"{name}\"]\nper = []\nrate = \"1/s\"\n");
        let outcome = check(format!("{DEMO}{rule}").as_bytes());
        assert_eq!(outcome.code, Some(64), "{name}: {outcome:?}");
    }
}

/// Paths that nginx, or another server, serves as `/files/secret`.
const SPELT: [&str; 24] = [
    "/files/secret",
    "/files//secret",
    "//files/secret",
    "/files/./secret",
    "/files/x/../secret",
    "/x/../files/secret",
    "/files/%73ecret",
    "/%66iles/secret",
    "/files%2fsecret",
    "/files%2Fsecret",
    "/files/%2e/secret",
    "/files/x/%2e%2e/secret",
    "/files/x/%2E./secret",
    "/files/x%2f..%2fsecret",
    "/files/x/..%2fsecret",
    "/files\\secret",
    "/files%5csecret",
    "/files/secret;x",
    "/files;x/secret",
    "/files/;/secret",
    "/files/secret?query",
    "/files/secret%3fquery",
    "/files/secret%00",
    "/files/secret#fragment",
];

#[test]
fn row_62_path_spellings_do_not_evade_a_rule() {
    let nginx = Nginx::start();
    std::fs::write(nginx.file("secret"), "the secret").unwrap();
    let limited = r#"
[routes.secret]
path = "/files/secret"
upstream = "api"

[rules.secret]
per = []
routes = ["secret"]
rate = "1/d"
"#;
    let gateway = Gateway::start(&format!("{}{limited}", proxy_to(&[nginx.address])));
    assert_eq!(gateway.get("/files/secret").text(), "the secret");
    for path in SPELT {
        let answer = gateway.get(path);
        let dodged = answer.status == 200 || answer.text().contains("the secret");
        assert!(!dodged, "{path}: {answer:?}");
        // On 404 nginx has no such file, so it is not a spelling of this path.
        assert!(matches!(answer.status, 400 | 404 | 429), "{path}: {answer:?}");
    }
    let absolute = gateway.get("http://api.test/files/secret");
    assert_eq!(absolute.status, 429);
    for method in ["HEAD", "POST", "OPTIONS"] {
        assert_eq!(gateway.send(&Request::new(method, "/files/secret")).status, 429, "{method}");
    }
}

#[test]
fn row_62_trailing_slash_and_head_do_not_evade_a_rule() {
    let limited = "[routes.one]\npath = \"/one\"\nmethods = [\"GET\"]\nupstream = \"api\"\n\
        [rules.one]\nper = []\nroutes = [\"one\"]\nrate = \"1/d\"\n";
    let spelt = [("GET", "/one/"), ("HEAD", "/one"), ("HEAD", "/one/"), ("GET", "/%6fne/")];
    let statuses = |setting: &str| {
        let limited = limited.replace("upstream", &format!("{setting}upstream"));
        let gateway = Gateway::start(&format!("{DEMO}{limited}"));
        assert_eq!(gateway.get("/one").status, 200);
        spelt.map(|(method, path)| gateway.send(&Request::new(method, path)).status)
    };
    assert_eq!(statuses(""), [429; 4]);
    assert_eq!(statuses("trailing_slash = \"distinct\"\n"), [200, 429, 200, 200]);
}

/// Neither the program nor its libraries name themselves, also in responses to what is not HTTP.
#[test]
fn responses_have_no_banner_and_no_internals() {
    let closed = ClosedPort::bind();
    let gateway = Gateway::start(&proxy_to(&[closed.address]));
    for request in [
        "GET / HTTP/9\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        // The upstream cannot be reached.
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = gateway.connect();
        client.write(request.as_bytes());
        let response = client.read_response("GET");
        assert!(response.status >= 400, "{request:?}: {response:?}");
        for name in ["server", "via", "x-powered-by"] {
            assert_eq!(response.header(name), None, "{request:?}: {response:?}");
        }
        let shown = format!("{:?} {}", response.headers, response.text()).to_lowercase();
        for internal in
            ["pingora", "tollgate", "rust", "hyper", "src/", &closed.address.to_string()]
        {
            assert!(!shown.contains(internal), "{request:?}: {shown}");
        }
    }
}

/// A response to TRACE contains the request's headers, with cookies and keys.
#[test]
fn trace_is_405_unless_a_route_names_it() {
    let routes = "[upstreams.api]\nservers = [\"demo\"]\n\
        [routes.all]\npath = \"/all/*\"\n\
        [routes.get]\npath = \"/get\"\nmethods = [\"GET\", \"PURGE\"]\n\
        [routes.trace]\npath = \"/trace\"\nmethods = [\"TRACE\"]\n";
    let gateway = Gateway::start(routes);
    let trace = |path| {
        let answer = gateway.send(&Request::new("TRACE", path));
        (answer.status, answer.header("allow").map(str::to_owned))
    };
    let refused = |allow: &str| (405, Some(allow.to_owned()));
    assert_eq!(trace("/all/x"), refused("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
    assert_eq!(trace("/get"), refused("GET, HEAD, PURGE"));
    assert_eq!(trace("/none"), refused(""));
    assert_eq!(trace("/trace"), (200, None));
}

#[test]
fn row_62_malformed_targets_and_methods_are_400() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let targets = [
        "secret",
        "./secret",
        "?/secret",
        "x:/secret",
        "@api.test/secret",
        "\\secret",
        "foo://api.test/secret",
    ];
    for target in targets {
        assert_eq!(gateway.get(target).status, 400, "{target}");
    }
    for method in ["get", "Get", "gET"] {
        assert_eq!(gateway.send(&Request::new(method, "/secret")).status, 400, "{method}");
    }
    let seen = upstream.requests();
    assert!(seen.is_empty(), "passed: {seen:#?}");
}

#[test]
fn row_62_host_spellings_do_not_evade_a_rule() {
    let upstream = Upstream::echo();
    let limited = "[routes.one]\nhost = \"api.test\"\nupstream = \"api\"\n\
        [rules.one]\nper = []\nroutes = [\"one\"]\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&format!("{}{limited}", proxy_to(&[upstream.address])));
    let from = |head: &str| {
        let mut client = gateway.connect();
        client.write(format!("{head}\r\n\r\n").as_bytes());
        client.read_response("GET").status
    };
    assert_eq!(from("GET / HTTP/1.1\r\nHost: api.test"), 200);
    for host in ["api.test", "API.test", "api.test:80", "api.test.", "api.test.:80", "api.test:"] {
        assert_eq!(from(&format!("GET / HTTP/1.1\r\nHost: {host}")), 429, "{host}");
    }
    for host in ["api.test:80:80", "api.test, b", "b api.test", "u@api.test", "api%2etest"] {
        assert_eq!(from(&format!("GET / HTTP/1.1\r\nHost: {host}")), 400, "{host}");
    }
    assert_eq!(from("GET / HTTP/1.1\r\nHost: api.test.."), 429);
    assert_eq!(from("GET http://api.test/ HTTP/1.0"), 400);
    assert_eq!(from("GET http://api.test/ HTTP/1.0\r\nHost: api.test"), 429);
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(from("GET / HTTP/1.0"), 200, "HTTP/1.0 needs no host");
}

#[test]
fn row_62_ipv6_host_spellings_do_not_evade_a_rule() {
    let limited = "[routes.one]\nhost = \"[2001:DB8:0::1]\"\nupstream = \"api\"\n\
        [rules.one]\nper = []\nroutes = [\"one\"]\nrate = \"1/d\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{limited}"));
    let from =
        |host: &str| gateway.send(&Request::get("/").without("Host").header("Host", host)).status;
    assert_eq!(from("[2001:db8::1]"), 200);
    for host in ["[2001:db8::1]:80", "[2001:0db8:0:0:0:0:0:1]", "[2001:DB8::0.0.0.1]"] {
        assert_eq!(from(host), 429, "{host}");
    }
    assert_eq!(from("[2001:db8::2]"), 200);
}

#[test]
fn row_62_paths_are_case_sensitive_by_default() {
    let limited = "[routes.one]\npath = \"/One\"\nupstream = \"api\"\n\
        [rules.one]\nper = []\nroutes = [\"one\"]\nrate = \"1/d\"\n";
    for (setting, expected) in [("", 200), ("path_case = \"insensitive\"\n", 429)] {
        let gateway = Gateway::start(&format!("{setting}{DEMO}{limited}"));
        assert_eq!(gateway.get("/One").status, 200);
        assert_eq!(gateway.get("/oNE").status, expected, "{setting}");
    }
}

/// A server that answers once the latch is open.
fn answering_after(latch: &Latch) -> Upstream {
    let latch = latch.clone();
    Upstream::start(move |_, stream| {
        latch.wait();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok()
    })
}

#[test]
fn row_64_client_that_disconnects_early_is_charged() {
    let latch = Latch::default();
    let upstream = answering_after(&latch);
    let rule = "[rules.all]\nper = []\nrate = \"100/d\"\n";
    let gateway = Gateway::start(&format!("{}{rule}", proxy_to(&[upstream.address])));
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = gateway.connect();
            client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 10);
    upstream.wait_for_requests(10);
    drop(clients);
    // At once, not after the upstream's response.
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    latch.open();
    assert_eq!(gateway.get("/").remaining(), 89);
}

/// The end of its bytes is all that a client that has left sends, too.
#[test]
fn row_64_client_that_closes_its_sending_side_counts_as_gone() {
    let latch = Latch::default();
    let upstream = answering_after(&latch);
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.wait_for_requests(1);
    client.finish_writing();
    assert!(client.is_closed_by_server());
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    latch.open();
    // Responses of the gateway itself do not wait.
    let rule = "[rules.all]\nper = []\nrate = \"1/365d\"\n";
    let gateway = Gateway::start(&format!("{}{rule}", proxy_to(&[upstream.address])));
    assert_eq!(gateway.get("/").status, 200);
    let mut client = gateway.connect();
    client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.finish_writing();
    assert_eq!(client.read_response("GET").status, 429);
}

#[test]
fn row_64_client_that_disconnects_in_its_body_is_cleaned_up() {
    let upstream = Upstream::echo();
    let gateway = Gateway::start(&proxy_to(&[upstream.address]));
    for _ in 0..10 {
        let mut client = gateway.connect();
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nonly a part");
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    assert!(upstream.requests().is_empty(), "no body came to its end");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_56_stalled_request_body_is_408() {
    let upstream = Upstream::echo();
    let config = proxy_to(&[upstream.address]);
    let gateway = Gateway::start(&format!("read_timeout = \"300ms\"\n{config}"));
    let mut client = gateway.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let answer = timed_below(Duration::from_secs(3), || client.read_response("POST"));
    assert_eq!(answer.status, 408);
    assert!(client.is_closed_by_server());
}

#[test]
fn row_57_idle_connection_is_closed_after_keepalive_timeout() {
    let gateway = Gateway::start(&format!("keepalive_timeout = \"1s\"\n{DEMO}"));
    let mut client = gateway.connect();
    let watch = Stopwatch::start();
    assert_eq!(client.send(&Request::get("/")).status, 200);
    assert!(timed_below(Duration::from_secs(4), || client.is_closed_by_server()));
    assert!(watch.elapsed() >= Duration::from_secs(1), "closed too early");
}

/// Row 73: malformed requests do not make the log grow.
#[test]
fn row_73_malformed_requests_do_not_flood_the_log() {
    let gateway = Gateway::start(DEMO);
    let admin = Request::new("POST", "/api/status").header("Origin", "https://evil.example");
    let garbage = [
        &b"\x16\x03\x01\x02\x00\x01\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx",
    ];
    let before = gateway.log().len();
    let watch = Stopwatch::start();
    for number in 0..10_000 {
        let mut client = gateway.connect();
        client.write(garbage[number % garbage.len()]);
        drop(client);
        if number % 50 == 0 {
            assert_eq!(gateway.send_admin(&admin).status, 403);
            let strange =
                Request::get("/api/status").without("Host").header("Host", "evil.example");
            assert_eq!(gateway.send_admin(&strange).status, 403);
            let mut client = crate::support::Connection::open(gateway.admin);
            client.write(garbage[number / 50 % 4]);
        }
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
    assert_eq!(gateway.get("/").status, 200);
    let log = gateway.log();
    let lines = log[before..].lines().count();
    // A few in each second that a busy machine takes.
    let most = 100 + 2 * usize::try_from(watch.elapsed().as_secs()).unwrap();
    assert!(lines < most, "{lines} lines, such as\n{}", &log[log.len().saturating_sub(2_000)..]);
}
