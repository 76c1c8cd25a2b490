//! The dashboard and its event stream. `make test-browser` tests it in a browser.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Connection, DEMO, Gateway, Request, eventually};

const LIMIT: &str = "[rules.all]\nper = []\nrate = \"3/d\"\n";

fn gateway() -> Gateway {
    Gateway::start(&format!("{DEMO}{LIMIT}"))
}

/// Opens an event stream and reads the head of the response.
fn listen(gateway: &Gateway) -> Connection {
    listen_from(gateway, 1)
}

/// Opens an event stream from 127.0.0.`host`.
fn listen_from(gateway: &Gateway, host: u8) -> Connection {
    let mut listener = Connection::open_from(Ipv4Addr::new(127, 0, 0, host), gateway.admin);
    listener.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = read_until(&mut listener, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    listener
}

/// Status of a new request for an event stream.
fn event_stream_status(gateway: &Gateway) -> u16 {
    let mut listener = Connection::open(gateway.admin);
    listener.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = read_until(&mut listener, "\r\n\r\n");
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn read_until(connection: &mut Connection, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let byte = connection.read_bytes(1);
        assert!(!byte.is_empty(), "it ended after {text:?}");
        text.push_str(&String::from_utf8_lossy(&byte));
    }
    text
}

/// Name and data of the next event.
fn next(listener: &mut Connection) -> (String, Value) {
    let text = read_until(listener, "\n\n");
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text:?}")).to_string()
    };
    (field("event: "), serde_json::from_str(&field("data: ")).unwrap())
}

#[test]
fn dashboard_uses_only_files_of_the_gateway() {
    let gateway = gateway();
    let page = gateway.admin("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let text = page.text();
    let parts: Vec<&str> = text.split('"').filter(|word| word.starts_with("/page/")).collect();
    assert!(parts.len() > 5, "{parts:?}");
    for part in parts {
        assert_eq!(gateway.admin(part).status, 200, "{part}");
    }
}

#[test]
fn matching_entity_tag_is_304() {
    let gateway = gateway();
    let tag = gateway.admin("/").header("etag").unwrap().to_string();
    let ask = |tag: &str| {
        let request = Request::get("/").header("If-None-Match", tag);
        Connection::open(gateway.admin).send(&request)
    };
    let known = ask(&tag);
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(ask("\"other\"").status, 200);
    let head = Connection::open(gateway.admin).send(&Request::new("HEAD", "/"));
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn samples_count_requests_by_plan_and_decisions_by_rule() {
    let gateway = gateway();
    let mut listener = listen(&gateway);
    assert_eq!(next(&mut listener).0, "history");
    for _ in 0..5 {
        gateway.get("/");
    }
    let (mut allowed, mut refused, mut by_rule) = (0, 0, 0);
    // The requests may fall into two samples, and a request is counted shortly after its response.
    eventually("samples of all requests", || {
        let (name, sample) = next(&mut listener);
        assert_eq!(name, "sample");
        for row in sample["plans"].as_object().unwrap().values() {
            allowed += row["allowed"].as_u64().unwrap();
            refused += row["refused"].as_u64().unwrap();
        }
        by_rule += sample["rules"]["all"]["refused"].as_u64().unwrap_or_default();
        assert_eq!((&sample["breaker"], &sample["gateways"]), (&Value::Null, &Value::Null));
        (allowed + refused == 5).then_some(())
    });
    assert_eq!((allowed, refused, by_rule), (3, 2, 2));
    // A later subscriber gets the history.
    let (name, history) = next(&mut listen(&gateway));
    let refused = |sample: &Value| sample["rules"]["all"]["refused"].as_u64().unwrap_or_default();
    assert_eq!(name, "history");
    assert_eq!(history.as_array().unwrap().iter().map(refused).sum::<u64>(), 2);
}

#[test]
fn event_streams_are_limited_and_a_closed_one_makes_room() {
    let gateway = gateway();
    let mut listeners: Vec<_> =
        (0..32).map(|number| listen_from(&gateway, 2 + number / 8)).collect();
    let full = gateway.admin("/api/events");
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert_eq!(gateway.admin("/live").status, 200);
    listeners.pop();
    // The gateway notices a closed stream when it writes the next event.
    eventually("a place to be free", || (event_stream_status(&gateway) == 200).then_some(()));
}

#[test]
fn event_streams_of_one_address_are_limited() {
    let gateway = gateway();
    let mut listeners: Vec<_> = (0..8).map(|_| listen(&gateway)).collect();
    let full = gateway.admin("/api/events");
    assert_eq!((full.status, full.header("retry-after")), (429, Some("5")), "{}", full.text());
    assert!(full.text().contains("8 open event streams"), "{}", full.text());
    drop(listen_from(&gateway, 2));
    listeners.pop();
    eventually("a place of the same address to be free", || {
        (event_stream_status(&gateway) == 200).then_some(())
    });
}

#[test]
fn open_event_streams_do_not_delay_shutdown() {
    let mut gateway = gateway();
    let mut listener = listen(&gateway);
    next(&mut listener);
    gateway.terminate();
    assert_eq!(gateway.exit_below(Duration::from_secs(5)), Some(0));
}

#[test]
fn events_require_the_token_and_the_page_does_not() {
    let token = "[admin]\ntoken = \"0123456789abcdef\"\n";
    let guarded = Gateway::start(&format!("{DEMO}{LIMIT}{token}"));
    assert_eq!(guarded.admin("/api/events").status, 401);
    assert_eq!(guarded.admin("/").status, 200);
    let open = gateway();
    let by_a_name = Request::get("/api/events").without("Host").header("Host", "elsewhere.example");
    assert_eq!(Connection::open(open.admin).send(&by_a_name).status, 403);
}
