//! Bodies of errors by status and media type (`docs/errors.md`).

use std::net::TcpListener;
use std::path::Path;

use crate::support::{
    ClosedPort, DEMO, Fetched, Gateway, Request, Response, Upstream, check_file, curl, eventually,
    fetch, key, replace_file, tollgate,
};

const BROWSER: (&str, &str) =
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
const HTTP2: &str = "[[listeners]]\naddress = \"127.0.0.1:0\"\nhttp2 = true\n";
const RULE: &str = "[rules.once]\nper = []\nroutes = [\"all\"]\nrate = \"1/d\"\n";

fn get(path: &str, (name, value): (&str, &str)) -> Request {
    Request::get(path).header(name, value)
}

/// The demo upstream on `/v1/*`, and nothing elsewhere.
fn demo() -> String {
    DEMO.replace("/*", "/v1/*")
}

#[track_caller]
fn assert_page(page: &Response, status: u16) {
    assert_eq!(page.status, status, "{}", page.text());
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("content-length"), Some(&*page.body.len().to_string()));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(page.text().starts_with(&format!("<h1>{status} ")), "{}", page.text());
}

#[test]
fn error_has_the_body_of_its_status_for_what_the_client_accepts() {
    let errors = "[cors]\norigins = [\"https://app.test\"]\n\
        [errors.429]\n\"text/html\" = \"<h1>{status} {title}</h1><p>{detail}</p>{request.id} {retry_after}\"\n\
        [errors.4xx]\n\"text/html\" = \"<h1>{status} </h1>{path}\"\n\"text/plain\" = \"{status} {detail}\"\n";
    let gateway = Gateway::start(&format!("{}{RULE}{errors}", demo()));
    assert_eq!(gateway.get("/v1/").status, 200);
    let origin = ("Origin", "https://app.test");
    let page = gateway.send(&get("/v1/", BROWSER).header(origin.0, origin.1));
    assert_page(&page, 429);
    let text = page.text();
    let start = "<h1>429 Too Many Requests</h1><p>Limit &quot;once&quot; (1/d";
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with(&format!(" {}", page.header("retry-after").unwrap())), "{text}");
    assert_eq!(page.remaining(), 0);
    assert_eq!(page.header("x-ratelimit-reason"), Some("once"));
    assert_eq!(page.header("access-control-allow-origin"), Some("https://app.test"));
    let head = gateway.send(&Request::new("HEAD", "/v1/").header(BROWSER.0, BROWSER.1));
    assert_eq!((head.status, head.body.len()), (429, 0));
    assert_eq!(head.header("content-type"), page.header("content-type"));
    let length = |response: &Response| -> usize {
        response.header("content-length").unwrap().parse().unwrap()
    };
    // The time until a retry may have lost a digit.
    assert!(length(&page).abs_diff(length(&head)) < 4);
    // Of the class.
    let plain = gateway.send(&get("/v1/", ("Accept", "text/plain")));
    assert!(plain.text().starts_with("429 Limit \"once\" (1/d"), "{}", plain.text());
    assert_eq!(gateway.send(&get("/none", BROWSER)).text(), "<h1>404 </h1>/none");
    for accept in
        ["*/*", "application/json", "application/problem+json", "image/png", "text/html;q=0"]
    {
        let problem = gateway.send(&get("/none", ("Accept", accept)));
        assert_eq!(problem.header("content-type"), Some("application/problem+json"), "{accept}");
        assert_eq!(problem.json()["status"], 404);
    }
    assert_eq!(gateway.get("/none").json()["status"], 404);
    let call = Request::new("POST", "/v1/").header("content-type", "application/grpc-web");
    let call = gateway.send(&call.header(BROWSER.0, BROWSER.1).body("x"));
    assert_eq!((call.status, call.header("grpc-status"), call.body.len()), (200, Some("8"), 0));
}

/// Two upstreams that fail, and a route for each error.
fn failing(dead: &ClosedPort, late: &TcpListener) -> String {
    format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{HTTP2}\
         [errors.4xx]\n\"text/html\" = \"<h1>{{status}} {{title}}</h1>{{detail}}\"\n\
         [errors.5xx]\n\"text/html\" = \"<h1>{{status}} {{title}}</h1>{{detail}}\"\n\
         [upstreams.demo]\nservers = [\"demo\"]\n[upstreams.dead]\nservers = [\"{}\"]\n\
         [upstreams.late]\nservers = [\"{}\"]\nread_timeout = \"200ms\"\n\
         [routes.all]\npath = \"/v1/*\"\nupstream = \"demo\"\nmax_body_bytes = 5\ndeny_ips = [\"192.0.2.7\"]\n\
         [routes.dead]\npath = \"/dead\"\nupstream = \"dead\"\n\
         [routes.late]\npath = \"/late\"\nupstream = \"late\"\n\
         [routes.down]\npath = \"/down\"\nupstream = \"demo\"\nmaintenance = {{ retry_after = \"7s\" }}\n{RULE}{}",
        dead.address,
        late.local_addr().unwrap(),
        key("acme", "secret", "default"),
    )
}

#[test]
fn refusals_and_failures_have_bodies_over_http1_and_http2() {
    let dead = ClosedPort::bind();
    // Accepts connections, and never sends a byte.
    let late = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(&failing(&dead, &late));
    assert_eq!(gateway.get("/v1/").status, 200);
    let html = "Accept: text/html";
    let cases: [(u16, &str, &[&str]); 8] = [
        (401, "/v1/", &["-H", "X-Api-Key: guess"]),
        (403, "/v1/", &["-H", "X-Forwarded-For: 192.0.2.7"]),
        (404, "/none", &[]),
        (413, "/v1/", &["-d", "too long"]),
        (429, "/v1/", &[]),
        (502, "/dead", &[]),
        (503, "/down", &[]),
        (504, "/late", &[]),
    ];
    let plain = format!("http://{}", gateway.address);
    let http2 = format!("http://{}", gateway.listener(1));
    for (status, path, arguments) in cases {
        for (base, version) in [(&plain, "--http1.1"), (&http2, "--http2-prior-knowledge")] {
            let url = format!("{base}{path}");
            let own = [&[version, "-H", html], arguments, &[&url]].concat();
            let page: Fetched = fetch(&own);
            assert_eq!(page.status, status, "{version} {page:?}");
            assert!(page.body.starts_with(&format!("<h1>{status} ")), "{version} {page:?}");
            assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(page.header("content-length"), Some(&*page.body.len().to_string()));
            assert_eq!(page.header("cache-control"), Some("no-store"));
            assert!(!page.body.contains("guess"), "{page:?}");
            assert_eq!(page.header("retry-after").is_some(), matches!(status, 429 | 503));
            assert_eq!(page.header("www-authenticate").is_some(), status == 401);
            // A request with a body is no HEAD request.
            if status == 413 {
                continue;
            }
            let head = fetch(&[&["--head"], &own[..]].concat());
            assert_eq!(
                (head.status, head.header("content-type")),
                (status, page.header("content-type"))
            );
            let length: usize = head.header("content-length").unwrap().parse().unwrap();
            assert!(length.abs_diff(page.body.len()) < 4, "{version} {status}: {length}");
        }
        let problem =
            curl(&[&["--http2-prior-knowledge"], arguments, &[&format!("{http2}{path}")]].concat());
        let problem: serde_json::Value = serde_json::from_str(&problem.text()).unwrap();
        assert_eq!(problem["status"], status);
    }
    let url = format!("{http2}/v1/");
    let grpc = [
        "--http2-prior-knowledge",
        "-H",
        html,
        "-H",
        "content-type: application/grpc",
        // Without a body: curl 7.88 can miss the end of trailers that come while it sends one.
        "-X",
        "POST",
        &url,
    ];
    let call = fetch(&grpc);
    assert_eq!((call.status, call.header("content-type")), (200, Some("application/grpc")));
    assert_eq!((call.header("grpc-status"), &*call.body), (Some("8"), ""));
}

#[test]
fn answers_that_are_no_errors_of_the_gateway_stay_as_they_are() {
    let own = "HTTP/1.1 503 No\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\nown";
    let upstream = Upstream::responding(own);
    let errors = "[errors.4xx]\n\"text/html\" = \"page\"\n[errors.5xx]\n\"text/html\" = \"page\"\n";
    let config = format!(
        "{errors}[upstreams.api]\nservers = [\"{}\"]\n[routes.all]\n\
         [routes.gone]\npath = \"/gone\"\nrespond = {{ status = 410, body = \"gone\" }}\n",
        upstream.address
    );
    let gateway = Gateway::start(&config);
    let answer = gateway.send(&get("/", BROWSER));
    assert_eq!((answer.status, &*answer.text()), (503, "own"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    let gone = gateway.send(&get("/gone", BROWSER));
    assert_eq!((gone.status, &*gone.text()), (410, "gone"));
}

#[test]
fn values_of_the_client_are_escaped() {
    let errors = "[errors.4xx]\n\"text/html\" = \"<a title='{path}'>{path}{host}{method}</a>\"\n\
        \"application/json\" = '{\"error\": {\"path\": \"{path}\", \"host\": \"{host}\", \"status\": {status}, \"retry\": {retry_after}}}'\n";
    let gateway = Gateway::start(&format!("{}{errors}", demo()));
    let target = "/alert('x')\"{status}\\?api_key=secret";
    let page = gateway.send(&get(target, BROWSER)).text();
    assert!(page.matches(['<', '>']).count() == 4 && page.contains("{status}"), "{page}");
    assert_eq!((page.matches('\'').count(), page.matches('"').count()), (2, 0), "{page}");
    assert!(!page.contains("secret"), "{page}");
    // A host that is none is refused, and shown.
    let host = Request::new("A'&", "/")
        .without("host")
        .header("Host", "<script>'\"")
        .header("Accept", "text/html");
    let page = gateway.send(&host);
    assert_eq!(page.status, 400);
    let escaped = "<a title='/'>/&lt;script&gt;&#39;&quot;A&#39;&amp;</a>";
    assert_eq!(page.text(), escaped);
    let json = gateway.send(&Request::get(target));
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(json.json()["error"]["status"], 404);
    assert_eq!(json.json()["error"]["retry"], serde_json::Value::Null);
    assert_eq!(json.json()["error"]["path"], "/alert('x')\"{status}\\");
    let long = format!("/{}", "'".repeat(8_000));
    let page = gateway.send(&get(&long, BROWSER));
    assert!(page.status == 404 && page.body.len() < 12_000, "{}", page.body.len());
}

#[test]
fn accept_header_that_is_long_or_broken_does_not_harm() {
    let errors = "[errors.4xx]\n\"text/html\" = \"page\"\n\"application/json\" = '{}'\n";
    let gateway = Gateway::start(&format!("{}{errors}", demo()));
    let of = |accept: &[u8]| gateway.send(&Request::get("/none").header("Accept", accept)).text();
    let longest = |item: &str| item.repeat(30_000 / item.len());
    // Only the first items are read.
    assert_eq!(of(format!("{}text/html", longest("a/b,")).as_bytes()), "{}");
    for accept in [longest(","), longest(";q=1,"), longest("*/*;"), longest("\"")] {
        assert_eq!(of(accept.as_bytes()), "{}", "{}", &accept[..20]);
        assert_eq!(of(format!("text/html,{accept}").as_bytes()), "page", "{}", &accept[..20]);
    }
    assert_eq!(of(b"text/html;q=1.0000000000000000000000000001"), "{}");
    assert_eq!(of(b"text/html;q=99999999999999999999, */*;q=-1"), "{}");
    assert_eq!(of(b"text/html\xff"), "{}");
    assert_eq!(of(b"<script>/html, text/html;charset=\"<b>\""), "page");
}

#[test]
fn file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("404.html");
    std::fs::write(&page, "<p>one\n").unwrap();
    let errors =
        |path: &Path| format!("[errors.404]\n\"text/html\" = \"file:{}\"\n", path.display());
    let gateway = Gateway::start(&format!("{}{}", demo(), errors(&page)));
    let text = || gateway.send(&get("/none", BROWSER)).text();
    assert_eq!(text(), "<p>one\n");
    replace_file(&page, "<p>two {status}\n");
    eventually("the page", || (text() == "<p>two 404\n").then_some(()));
    let words = "errors.404.text/html: the file changed";
    eventually("the change in the log", || gateway.log().contains(words).then_some(()));
    replace_file(&page, "<p>{statsu}\n");
    eventually("the rejected reload", || (gateway.reloads("rejected") > 0).then_some(()));
    assert_eq!(text(), "<p>two 404\n");
    let words = "did you mean `{status}`?";
    eventually("the error in the log", || gateway.log().contains(words).then_some(()));
    replace_file(&page, "x".repeat((64 << 10) + 1));
    eventually("the rejected reload", || (gateway.reloads("rejected") > 1).then_some(()));
    assert_eq!(text(), "<p>two 404\n");
}

#[test]
fn relative_path_begins_at_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, format!("{DEMO}[errors.429]\n\"text/html\" = \"file:429.html\"\n"))
        .unwrap();
    let missing = check_file(&file).stderr;
    assert!(missing.contains("cannot read") && missing.contains("429.html"), "{missing}");
    let elsewhere = tollgate(&["check", "--no-env", "-c", file.to_str().unwrap()], "");
    assert_eq!(elsewhere.code, Some(0), "{}", elsewhere.stderr);
    std::fs::write(folder.path().join("429.html"), "x".repeat((64 << 10) + 1)).unwrap();
    let large = check_file(&file).stderr;
    assert!(large.contains("is larger than 64 KiB"), "{large}");
    std::fs::write(folder.path().join("429.html"), "<p>{detail}").unwrap();
    assert_eq!(check_file(&file).code, Some(0));
}
