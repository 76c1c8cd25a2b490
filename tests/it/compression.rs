//! Compression of responses (`docs/compression.md`): servers of others, and decoders of others.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use crate::support::{
    Gateway, HTTP2_LISTENER, Latch, Nginx, PeerServer, Request, Response, Upstream, curl,
    eventually, fetch, full_config, proxy_with, tollgate,
};

const ALL: &str = "compress = [\"br\", \"zstd\", \"gzip\"]";
const CODINGS: [&str; 3] = ["br", "zstd", "gzip"];

fn accepting(codings: &str, path: &str) -> Request {
    Request::get(path).header("Accept-Encoding", codings)
}

/// Decodes a body with a program of another project, which fails unless the body is complete.
fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body).unwrap();
    let mut command = match coding {
        "zstd" => {
            let mut zstd = Command::new("zstd");
            zstd.args(["--decompress", "--stdout", "--quiet"]);
            zstd
        }
        "gzip" => {
            let mut python = Command::new("python3");
            let script = "import gzip, sys; sys.stdout.buffer.write(gzip.decompress(open(sys.argv[1], 'rb').read()))";
            python.args(["-c", script]);
            python
        }
        _ => {
            let mut node = Command::new("node");
            let script =
                "process.stdout.write(zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])))";
            node.args(["-e", script]);
            node
        }
    };
    let output = command.arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{coding}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// What a decoder makes of the beginning of a body, which has no end yet.
fn decoded_so_far(coding: &str, body: &[u8]) -> String {
    let script = r"
import sys, zlib
sys.stdout.write(zlib.decompressobj(31).decompress(sys.stdin.buffer.read()).decode())";
    let node = r#"
const decoder = zlib.createBrotliDecompress();
decoder.on("data", (part) => process.stdout.write(part)).on("error", () => {});
process.stdin.pipe(decoder);"#;
    let mut command = match coding {
        "gzip" => Command::new("python3"),
        "br" => Command::new("node"),
        _ => Command::new("zstd"),
    };
    match coding {
        "gzip" => command.args(["-c", script]),
        "br" => command.args(["-e", node]),
        _ => command.args(["--decompress", "--stdout", "--quiet"]),
    };
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

fn text() -> String {
    let lines: Vec<_> = (0..4_000).map(|number| format!("line {number} of a page\n")).collect();
    lines.concat()
}

fn head(status: u16, headers: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}\r\n\r\n")
}

#[test]
fn clients_decode_every_coding_over_both_versions_of_http() {
    let nginx = Nginx::start();
    let page = text();
    std::fs::write(nginx.file("page"), &page).unwrap();
    let config = format!("{HTTP2_LISTENER}{}", proxy_with(&[nginx.address], ALL));
    let gateway = Gateway::start(&config);
    let mut bare = gateway.connect();
    let versions = [
        ("--http1.1", gateway.url("/files/page")),
        ("--http2-prior-knowledge", format!("http://{}/files/page", gateway.listener(1))),
    ];
    for coding in CODINGS {
        let answer = bare.send(&accepting(coding, "/files/page"));
        assert_eq!((answer.status, answer.complete), (200, true));
        assert_eq!(answer.header("content-encoding"), Some(coding));
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.header("content-length"), None);
        assert_eq!(answer.header("accept-ranges"), None);
        let etag = answer.header("etag").unwrap();
        assert!(etag.starts_with("W/\""), "{etag}");
        assert!(answer.body.len() < page.len() / 4, "{coding}: {}", answer.body.len());
        assert!(decoded(coding, &answer.body) == page.as_bytes(), "{coding}");
        // The weak validator is that of the same file.
        let again = accepting(coding, "/files/page").header("If-None-Match", etag);
        let same = bare.send(&again);
        assert_eq!((same.status, same.header("vary")), (304, Some("Accept-Encoding")));
        assert_eq!(same.header("etag"), Some(etag));
        for (version, url) in &versions {
            let accept = format!("Accept-Encoding: {coding}");
            let fetched = fetch(&[version, "--compressed", "--header", &accept, url]);
            assert!(fetched.status == 200 && fetched.body == page, "{coding} {version}");
            assert_eq!(fetched.header("content-encoding"), Some(coding));
        }
    }
    let plain = bare.send(&Request::get("/files/page"));
    assert_eq!((plain.text(), plain.header("vary")), (page, Some("Accept-Encoding")));
    assert!(plain.header("accept-ranges").is_some() && plain.header("content-encoding").is_none());
}

#[test]
fn responses_of_http2_upstreams_are_compressed_and_keep_their_trailers() {
    let server = PeerServer::node(None);
    let setting = format!("protocol = \"h2c\"\n{ALL}");
    let gateway =
        Gateway::start(&format!("{HTTP2_LISTENER}{}", proxy_with(&[server.address], &setting)));
    let mut bare = gateway.connect();
    let url = |path: &str| format!("http://{}{path}", gateway.listener(1));
    for coding in CODINGS {
        let answer = bare.send(&accepting(coding, "/page"));
        assert_eq!((answer.status, answer.header("content-encoding")), (200, Some(coding)));
        assert!(decoded(coding, &answer.body) == "x".repeat(1_000_000).as_bytes(), "{coding}");
        let answer = bare.send(&accepting(coding, "/trailers"));
        assert_eq!(answer.header("content-encoding"), Some(coding));
        let seen: serde_json::Value =
            serde_json::from_slice(&decoded(coding, &answer.body)).unwrap();
        assert_eq!(seen["headers"]["accept-encoding"], coding);
        let accept = format!("Accept-Encoding: {coding}");
        let client = ["--http2-prior-knowledge", "--compressed", "--header", &accept];
        let fetched = fetch(&[&client[..], &[&url("/page")]].concat());
        assert_eq!((fetched.body.len(), fetched.version.as_str()), (1_000_000, "2"));
        let trailers = url("/trailers");
        let shown = curl(&[&client[..], &["--verbose", &trailers]].concat());
        assert_eq!(shown.exit, Some(0), "{}", shown.stderr);
        assert!(shown.stderr.contains("x-sum: 0"), "{}", shown.stderr);
        assert!(shown.text().contains("\"path\":\"/trailers\""), "{}", shown.text());
        // Without a body, there is nothing to compress.
        let empty = bare.send(&accepting(coding, "/empty"));
        assert_eq!((empty.status, empty.header("content-encoding")), (200, None));
        assert!(empty.body.is_empty() && empty.complete);
    }
}

#[test]
fn first_part_of_a_slow_response_arrives_before_the_second_is_sent() {
    let latch = Latch::default();
    let opened = latch.clone();
    let slow = Upstream::start(move |_, stream| {
        let begin = head(200, "Content-Type: text/html\r\nTransfer-Encoding: chunked");
        stream.write_all(format!("{begin}5\r\nfirst\r\n").as_bytes()).unwrap();
        opened.wait();
        stream.write_all(b"7\r\n second\r\n0\r\n\r\n").is_ok()
    });
    let gateway = Gateway::start(&proxy_with(&[slow.address], ALL));
    let mut waiting = Vec::new();
    for coding in CODINGS {
        let mut connection = gateway.connect();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        connection.write(request.as_bytes());
        let (head, part) = connection.read_first_chunk();
        assert!(head.contains(&format!("Content-Encoding: {coding}\r\n")), "{head}");
        assert_eq!(decoded_so_far(coding, &part), "first", "{coding}");
        waiting.push((coding, connection, part));
    }
    latch.open();
    for (coding, mut connection, mut body) in waiting {
        body.extend_from_slice(&connection.read_chunked());
        assert_eq!(decoded(coding, &body), b"first second", "{coding}");
    }
}

#[test]
fn first_part_of_a_slow_http2_response_arrives_before_the_second_is_sent() {
    let server = PeerServer::node(None);
    let setting = format!("protocol = \"h2c\"\n{ALL}");
    let gateway = Gateway::start(&proxy_with(&[server.address], &setting));
    for coding in CODINGS {
        let mut connection = gateway.connect();
        let request =
            format!("GET /parts HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        connection.write(request.as_bytes());
        let (_, mut body) = connection.read_first_chunk();
        assert_eq!(decoded_so_far(coding, &body), "first", "{coding}");
        assert_eq!(gateway.get("/release").status, 200);
        body.extend_from_slice(&connection.read_chunked());
        assert_eq!(decoded(coding, &body), b"first second", "{coding}");
    }
}

/// Answers a request for `/<headers>`, where `;` stands for the end of a line, with a body of 600
/// bytes.
fn by_path() -> Upstream {
    Upstream::start(|seen, stream| {
        let path = seen.line().split(' ').nth(1).unwrap().trim_start_matches('/');
        let (status, headers) = path.split_once('/').unwrap();
        let headers = headers.replace("%20", " ").replace('!', ";").replace('~', "\r\n");
        let body =
            if seen.line().starts_with("HEAD") || status == "304" { "" } else { &"a".repeat(600) };
        let head = head(status.parse().unwrap(), &format!("{headers}\r\nContent-Length: 600"));
        stream.write_all(format!("{head}{body}").as_bytes()).is_ok()
    })
}

#[test]
fn responses_that_must_not_change_pass_unchanged() {
    let upstream = by_path();
    let gateway = Gateway::start(&proxy_with(&[upstream.address], ALL));
    let passes = |answer: &Response, vary: Option<&str>| {
        assert_eq!(answer.header("content-length"), Some("600"), "{answer:?}");
        assert_eq!(answer.header("vary"), vary, "{answer:?}");
        answer.body == "a".repeat(600).as_bytes()
    };
    for path in [
        "/200/Content-Type:image/png",
        "/200/Content-Type:text/event-stream",
        "/200/Content-Type:text/html~Cache-Control:no-transform",
        "/200/Content-Type:text/html~Content-Encoding:x-own",
        "/200/X-Type:text/html",
    ] {
        assert!(passes(&gateway.send(&accepting("gzip, br, zstd", path)), None), "{path}");
    }
    let html = "/200/Content-Type:text/html";
    for request in [
        Request::get(html),
        accepting("deflate", html),
        accepting("gzip;q=0, *;q=0", html),
        accepting("gzip, identity;q=1, br;q=0", html).header("Cache-Control", "no-transform"),
        accepting("gzip", "/206/Content-Type:text/html~Content-Range:bytes%200-599/1000"),
    ] {
        assert!(passes(&gateway.send(&request), Some("Accept-Encoding")), "{request:?}");
    }
    let head = gateway.send(&Request::new("HEAD", html).header("Accept-Encoding", "gzip"));
    assert_eq!(head.header("content-length"), Some("600"));
    assert_eq!(
        (head.header("vary"), head.header("content-encoding")),
        (Some("Accept-Encoding"), None)
    );
}

#[test]
fn clients_of_http_1_0_get_the_length() {
    let upstream = by_path();
    let gateway = Gateway::start(&proxy_with(&[upstream.address], ALL));
    let mut connection = gateway.connect();
    let request =
        "GET /200/Content-Type:text/html HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    connection.write(request.as_bytes());
    let answer = connection.read_response("GET");
    assert_eq!((answer.header("content-length"), answer.body.len()), (Some("600"), 600));
    assert_eq!(answer.header("content-encoding"), None);
    assert!(connection.is_closed_by_server());
}

#[test]
fn headers_that_are_true_of_the_original_only_are_removed() {
    let upstream = by_path();
    let gateway = Gateway::start(&proxy_with(&[upstream.address], "compress = true"));
    let path = "/404/Content-Type:application/problem+json!charset=utf-8~ETag:\"v1\"~Accept-Ranges:bytes~\
                Content-Digest:sha-256=:x:~Repr-Digest:sha-256=:x:~Digest:sha-256=x~Content-MD5:x~Vary:Origin,%20Accept";
    let answer = gateway.send(&accepting("gzip, deflate, br, zstd", path));
    assert_eq!((answer.status, answer.header("content-encoding")), (404, Some("br")));
    assert_eq!(answer.header("vary"), Some("Origin, Accept, Accept-Encoding"));
    assert_eq!(answer.header("etag"), Some("W/\"v1\""));
    for name in [
        "content-length",
        "accept-ranges",
        "content-digest",
        "repr-digest",
        "digest",
        "content-md5",
    ] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(decoded("br", &answer.body), "a".repeat(600).as_bytes());
}

#[test]
fn response_that_is_cut_off_stays_without_an_end() {
    let upstream = Upstream::start(|_, stream| {
        let head = head(200, "Content-Type: text/html\r\nContent-Length: 100000");
        stream.write_all(format!("{head}{}", "a".repeat(50_000)).as_bytes()).unwrap();
        false
    });
    let gateway = Gateway::start(&proxy_with(&[upstream.address], ALL));
    for coding in CODINGS {
        let answer = gateway.send(&accepting(coding, "/"));
        assert_eq!((answer.status, answer.complete), (200, false), "{coding}");
        let so_far = decoded_so_far(coding, &answer.body);
        assert!(so_far.chars().all(|letter| letter == 'a'), "{coding}");
    }
}

#[test]
fn client_that_cancels_ends_the_request() {
    let endless = Upstream::start(|_, stream: &mut TcpStream| {
        let head = head(200, "Content-Type: text/html\r\nTransfer-Encoding: chunked");
        let mut part = head.into_bytes();
        // Ends when the gateway closes the connection.
        while stream.write_all(&part).is_ok() {
            part = format!("{:x}\r\n{}\r\n", 8_000, "ab cd ef".repeat(1_000)).into_bytes();
        }
        false
    });
    let gateway = Gateway::start(&proxy_with(&[endless.address], ALL));
    for coding in CODINGS {
        let mut connection = gateway.connect();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        connection.write(request.as_bytes());
        assert!(connection.read_bytes(20_000).len() == 20_000);
    }
    gateway.wait_for_count("tollgate_requests_in_flight", &[], 0);
}

#[test]
fn setting_of_a_route_replaces_that_of_its_upstream() {
    let upstream = by_path();
    let log = tempfile::NamedTempFile::new().unwrap();
    let config = |compress: &str| {
        format!(
            "[access_log]\noutput = \"{}\"\n{}\
             [routes.off]\npath = \"/200/Content-Type:text/plain\"\ncompress = false\n\
             [routes.none]\npath = \"/200/Content-Type:text/css\"\ncompress = []\n\
             [routes.own]\npath = \"/200/Content-Type:text/html\"\ncompress = [\"gzip\", \"br\"]\n\
             [routes.fixed]\npath = \"/fixed\"\nrespond = {{ body = \"{}\" }}\n",
            log.path().display(),
            proxy_with(&[upstream.address], compress),
            "a".repeat(600),
        )
    };
    let gateway = Gateway::start(&config(ALL));
    let coding = |path: &str| {
        let answer = gateway.send(&accepting("br, zstd, gzip", path));
        assert_eq!(answer.status, 200, "{path}");
        (answer.header("content-encoding").map(str::to_owned), answer.body.len())
    };
    let xml = "/200/Content-Type:text/xml";
    let (br, compressed) = coding(xml);
    assert_eq!(br.as_deref(), Some("br"));
    assert_eq!(coding("/200/Content-Type:text/html").0.as_deref(), Some("gzip"));
    for path in ["/200/Content-Type:text/plain", "/200/Content-Type:text/css", "/fixed"] {
        assert_eq!(coding(path), (None, 600), "{path}");
    }
    let logged = || {
        let text = std::fs::read_to_string(log.path()).ok().filter(|text| text.ends_with('\n'))?;
        let of_route = text.lines().find(|line| line.contains("\"route\":\"all\""))?;
        let line: serde_json::Value = serde_json::from_str(of_route).unwrap();
        line["bytes_out"].as_u64()
    };
    assert_eq!(eventually("a line of the access log", logged), compressed as u64);
    // A reload applies to the next request.
    gateway.apply(&config("compress = [\"zstd\"]"));
    assert_eq!(coding(xml).0.as_deref(), Some("zstd"));
    gateway.apply(&config(""));
    assert_eq!(coding(xml), (None, 600));
    assert_eq!(coding("/200/Content-Type:text/html").0.as_deref(), Some("gzip"));
}

#[test]
fn explanation_names_the_codings() {
    let settings = proxy_with(&["127.0.0.1:1".parse().unwrap()], ALL);
    let file = tempfile::NamedTempFile::new().unwrap();
    let routes = "[routes.off]\npath = \"/off\"\ncompress = false\n[routes.own]\npath = \"/own\"\ncompress = [\"gzip\"]\n";
    std::fs::write(file.path(), full_config(&format!("{settings}{routes}"))).unwrap();
    let explained = |path: &str| {
        let file = file.path().to_str().unwrap();
        tollgate(&["explain", "-c", file, "--path", path], "").stdout
    };
    for (path, expected) in [
        ("/", "compress: br, zstd, gzip\n"),
        ("/off", "compress: off\n"),
        ("/own", "compress: gzip\n"),
    ] {
        let explained = explained(path);
        assert!(explained.contains(expected), "{path}: {explained}");
        assert_eq!(explained.matches("compress").count(), 1, "{explained}");
    }
}
