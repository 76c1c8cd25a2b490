//! WebSocket connections of clients and servers of other projects.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::json;

use crate::support::{
    Connection, Gateway, PeerServer, Upstream, proxy_to, sleep_for, timed, websocket_client,
};

/// A gateway whose upstream is this server, with a limit of `count` connections.
fn gateway_to(server: &PeerServer, count: usize) -> Gateway {
    let rule = format!("[rules.all]\nper = []\nrate = \"{count}/d\"\n");
    Gateway::start(&format!("{}{rule}", proxy_to(&[server.address])))
}

#[test]
fn websocket_is_counted_once_and_refused_at_the_limit() {
    let server = PeerServer::websocket(None);
    let gateway = gateway_to(&server, 2);
    let url = format!("ws://{}/chat", gateway.address);
    for _ in 0..2 {
        let result = websocket_client(&url, None);
        assert_eq!(result["status"], 101, "{result}");
        assert_eq!(result["echoes"], json!([true, true, true]), "{result}");
        assert_eq!(result["subprotocol"], "echo");
    }
    let refused = websocket_client(&url, None);
    assert_eq!(refused["status"], 429, "{refused}");
    assert!(refused["body"].as_str().unwrap().contains("quota-exceeded"), "{refused}");
    assert_eq!(server.count("open /chat"), 2, "{}", server.log());
    let decisions = |decision| gateway.count("tollgate_decisions_total", &[("decision", decision)]);
    assert_eq!((decisions("allow"), decisions("deny")), (2, 1));
}

#[test]
fn websocket_that_is_silent_in_both_directions_is_closed() {
    const IDLE: Duration = Duration::from_millis(1_000);
    let server = Upstream::start(|_, stream| {
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        // Longer than the limit in all: only one direction is silent.
        for _ in 0..6 {
            sleep_for(Duration::from_millis(300));
            let _ = stream.write_all(b"x");
        }
        let _ = stream.read(&mut [0]);
        false
    });
    let config =
        proxy_to(&[server.address]).replace("path = ", "websocket_idle_timeout = \"1s\"\npath = ");
    let gateway = Gateway::start(&config);
    let mut connection = Connection::open(gateway.address);
    connection
        .write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(connection.read_response("GET").status, 101);
    assert_eq!(connection.read_bytes(6), b"xxxxxx");
    let (is_closed, took) = timed(|| connection.is_closed_by_server());
    assert!(is_closed);
    assert!(took >= IDLE - Duration::from_millis(50), "{took:?}");
}
