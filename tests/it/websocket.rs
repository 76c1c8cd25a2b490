//! The end of silent WebSocket connections.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{Connection, Gateway, Stopwatch, Upstream, proxy_to, sleep_for};

#[test]
fn websocket_that_is_silent_in_both_directions_is_closed() {
    // Ten times as long as the pauses between bytes, which a busy machine extends.
    const IDLE: Duration = Duration::from_secs(3);
    let last_sent = Arc::new(Mutex::new(Stopwatch::start()));
    let sent = Arc::clone(&last_sent);
    let server = Upstream::start(move |_, stream| {
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        // Longer than the limit in all: only one direction is silent.
        for _ in 0..12 {
            sleep_for(Duration::from_millis(300));
            *sent.lock() = Stopwatch::start();
            let _ = stream.write_all(b"x");
        }
        let _ = stream.read(&mut [0]);
        false
    });
    let config =
        proxy_to(&[server.address]).replace("path = ", "websocket_idle_timeout = \"3s\"\npath = ");
    let gateway = Gateway::start(&config);
    let mut connection = Connection::open(gateway.address);
    connection
        .write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(connection.read_response("GET").status, 101);
    assert_eq!(connection.read_bytes(12), [b'x'; 12]);
    assert!(connection.is_closed_by_server());
    // From before the last byte: this thread can be late to read it.
    let took = last_sent.lock().elapsed();
    assert!(took + Duration::from_millis(50) >= IDLE, "{took:?}");
}

/// Its first timer begins while the head of the response is expected.
#[test]
fn websocket_that_is_silent_from_its_first_byte_is_closed_as_soon() {
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let server = Upstream::start(move |_, stream| {
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read(&mut [0]);
        false
    });
    // The read timeout of the upstream is a minute.
    let config =
        proxy_to(&[server.address]).replace("path = ", "websocket_idle_timeout = \"1s\"\npath = ");
    let gateway = Gateway::start(&config);
    let mut connection = Connection::open(gateway.address);
    // From before the request: this thread can be late to read the head.
    let watch = Stopwatch::start();
    connection
        .write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(connection.read_response("GET").status, 101);
    assert!(connection.is_closed_by_server());
    let took = watch.elapsed();
    let bounds = Duration::from_millis(950)..Duration::from_secs(10);
    assert!(bounds.contains(&took), "{took:?}");
}
