//! The end of silent WebSocket connections.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::support::{Connection, Gateway, Upstream, proxy_to, sleep_for, timed};

#[test]
fn websocket_that_is_silent_in_both_directions_is_closed() {
    const IDLE: Duration = Duration::from_secs(1);
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
    assert!(took + Duration::from_millis(50) >= IDLE, "{took:?}");
}
