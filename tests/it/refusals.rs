//! Connection and body after a denied request.

use std::time::Duration;

use crate::support::{
    Connection, DEMO, Gateway, Request, Upstream, curl, proxy_to, timed_below, wait_retry_after,
};

/// A gateway that denies every request to `/limited` and allows all others.
fn refusing() -> (Gateway, Upstream) {
    let upstream = Upstream::echo();
    let config = r#"
[routes.limited]
path = "/limited"
upstream = "api"

[rules.limited]
per = []
routes = ["limited"]
rate = "1/d"
"#;
    let gateway = Gateway::start(&format!("{}{config}", proxy_to(&[upstream.address])));
    assert_eq!(gateway.get("/limited").status, 200);
    (gateway, upstream)
}

/// Asserts that the connection still works, with an allowed request.
#[track_caller]
fn assert_kept(client: &mut Connection) {
    let answer = client.send(&Request::new("POST", "/free").body("still here"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "still here"));
}

#[test]
fn denied_client_keeps_its_connection() {
    let (gateway, upstream) = refusing();
    let mut client = gateway.connect();
    for _ in 0..3 {
        let refused = client.send(&Request::get("/limited"));
        assert_eq!(refused.status, 429);
        assert_ne!(refused.header("connection"), Some("close"));
        assert_kept(&mut client);
    }
    // No denied request has reached the upstream.
    assert_eq!(
        upstream.requests().iter().filter(|seen| seen.line().contains("limited")).count(),
        1
    );
}

#[test]
fn denied_head_request_has_headers_and_no_body() {
    let (gateway, _upstream) = refusing();
    let mut client = gateway.connect();
    let refused = client.send(&Request::new("HEAD", "/limited"));
    assert_eq!(refused.status, 429);
    assert_ne!(refused.header("content-length"), Some("0"));
    assert_kept(&mut client);
}

#[test]
fn row_63_small_body_is_drained_and_the_connection_kept() {
    let (gateway, _upstream) = refusing();
    for length in [0, 1, 1_000, 64 * 1024] {
        let mut client = gateway.connect();
        let request = Request::new("POST", "/limited").body("x".repeat(length));
        assert_eq!(client.send(&request).status, 429, "{length} bytes");
        assert_kept(&mut client);
    }
}

#[test]
fn row_63_chunked_body_is_drained_and_the_connection_kept() {
    let (gateway, _upstream) = refusing();
    let mut client = gateway.connect();
    client.write(b"POST /limited HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.write(b"5\r\nfirst\r\n");
    client.write(b"6\r\nsecond\r\n0\r\n\r\n");
    assert_eq!(client.read_response("POST").status, 429);
    assert_kept(&mut client);
}

#[test]
fn row_63_client_that_sends_a_large_body_can_read_the_429() {
    let (gateway, _upstream) = refusing();
    let mut client = gateway.connect();
    let request = Request::new("POST", "/limited").body("x".repeat(1024 * 1024));
    let refused = client.send(&request);
    assert_eq!((refused.status, refused.complete), (429, true));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(timed_below(Duration::from_secs(3), || client.is_closed_by_server()));
}

#[test]
fn row_63_denied_body_that_never_arrives_closes_the_connection() {
    let (gateway, _upstream) = refusing();
    let mut client = gateway.connect();
    client.write(b"POST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nnot all");
    let refused = timed_below(Duration::from_secs(4), || client.read_response("POST"));
    assert_eq!(refused.status, 429);
    assert!(client.is_closed_by_server());
}

#[test]
fn expect_100_continue_of_a_denied_request_is_429() {
    let (gateway, _upstream) = refusing();
    let mut client = gateway.connect();
    let head = "Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n";
    client.write(format!("POST /limited HTTP/1.1\r\nHost: a\r\n{head}").as_bytes());
    assert_eq!(client.read_response("POST").status, 429);
    assert!(client.is_closed_by_server());
}

#[test]
fn curl_reads_the_429_of_an_upload() {
    let (gateway, _upstream) = refusing();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![b'x'; 1024 * 1024]).unwrap();
    let url = gateway.url("/limited");
    let body = format!("@{}", file.display());
    for expect in ["Expect: 100-continue", "Expect:"] {
        let arguments = ["-H", expect, "--data-binary", &body, "-w", "%{http_code}", &url];
        let answer = curl(&arguments);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(text.ends_with("429"), "{text} {}", answer.stderr);
    }
}

#[test]
fn waiting_for_retry_after_is_enough() {
    let rule = "[rules.all]\nper = []\nrate = \"2/500ms\"\n";
    let gateway = Gateway::start(&format!("{DEMO}{rule}"));
    let mut client = gateway.connect();
    let mut waits = 0;
    for _ in 0..30 {
        let answer = client.send(&Request::get("/"));
        if answer.status == 200 {
            continue;
        }
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(seconds >= 1);
        let milliseconds = answer.json()["retry_after_ms"].as_u64().unwrap();
        assert!((1..=250).contains(&milliseconds), "{milliseconds}");
        // The exact time in the body, and once the header's whole seconds, which take longer.
        let exact = Duration::from_millis(milliseconds);
        wait_retry_after(if waits == 0 { Duration::from_secs(seconds) } else { exact });
        waits += 1;
        assert_eq!(client.send(&Request::get("/")).status, 200);
    }
    assert!(waits > 0, "a bucket of 2 should have been empty once in 30 requests");
}

#[test]
fn retry_after_is_the_refill_time_of_the_bucket() {
    // (rate, burst, cost, seconds of Retry-After with an empty bucket)
    let table = [("1/h", 1, 1, 3_600), ("60/h", 2, 2, 120), ("1/d", 5, 5, 432_000)];
    for (rate, burst, cost, expected) in table {
        let config = DEMO.replace("path", &format!("cost = {cost}\npath"));
        let rule = format!("[rules.all]\nper = []\nrate = \"{rate}\"\nburst = {burst}\n");
        let gateway = Gateway::start(&format!("{config}{rule}"));
        assert_eq!(gateway.get("/").status, 200);
        let seconds: u64 = gateway.get("/").header("retry-after").unwrap().parse().unwrap();
        assert!((expected - 20..=expected).contains(&seconds), "{rate}: {seconds}");
    }
}
