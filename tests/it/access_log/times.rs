//! Where the time of a slow request is shown. In each test one party takes [`DELAY`], and only its
//! own field shows that.
//!
//! The times of a request exclude each other, so if its own field has the delay, another one is
//! long only if the machine is busy: then the measurement is inconclusive.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::{lines, place, table};
use crate::support::{
    Connection, CpuWaits, DEMO, FaultProxy, Gateway, Mode, Redis, Request, Upstream, eventually,
    inconclusive_if_stalled, proxy_to, sleep_for,
};

const DELAY: Duration = Duration::from_millis(500);

const TIMES: [&str; 6] =
    ["check_ms", "connect_ms", "request_body_ms", "first_byte_ms", "body_ms", "send_ms"];

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";

/// Asserts that in this line, the fields `own` together have the delay, and no other field. What
/// differs may be due to waits for a CPU since `waits`: then the measurement is inconclusive.
#[track_caller]
fn judge(line: &Value, own: &[&str], waits: &CpuWaits) {
    let of = |name: &str| Duration::from_secs_f64(line[name].as_f64().unwrap_or(0.0) / 1e3);
    let sum: Duration = TIMES.map(of).iter().sum();
    assert!(sum <= of("total_ms") + Duration::from_millis(1), "{line}");
    let slow: Duration = own.iter().map(|name| of(name)).sum();
    let mut others = TIMES.into_iter().filter(|name| !own.contains(name));
    if slow < DELAY.mul_f64(0.9) {
        // A pause of the gateway itself may precede a delay of the client.
        let why = format!("{own:?} should have the delay: {line}");
        inconclusive_if_stalled(&why, waits.stall(), DELAY.saturating_sub(slow));
    } else if let Some(other) = others.find(|name| of(name) > DELAY / 2) {
        let why = format!("{other} is long, too: {line}");
        inconclusive_if_stalled(&why, waits.stall(), of(other));
    }
}

/// Sends a request by `exchange` to a gateway with this configuration, which must show the delay in
/// the fields `own` only.
#[track_caller]
fn check(config: &str, own: &[&str], exchange: impl FnOnce(&Gateway, &mut Connection)) {
    let (_folder, path) = place();
    let gateway = Gateway::start(&format!("{config}{}", table(&path, "")));
    let waits = CpuWaits::now();
    exchange(&gateway, &mut gateway.connect());
    judge(&lines(&path, 1)[0], own, &waits);
}

fn get(client: &mut Connection) {
    assert_eq!(client.send(&Request::get("/")).status, 200);
}

/// A listener with room for one connection in its queue, and a connection that takes this room.
fn full_listener() -> (TcpListener, SocketAddr, TcpStream) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    (listener, address, TcpStream::connect(address).unwrap())
}

/// The kernel drops the gateway's first SYN, because the queue is full, and the next one comes a
/// second later.
#[test]
fn slow_connection_to_the_upstream_is_in_connect_ms_only() {
    let (listener, address, first) = full_listener();
    let config = proxy_to(&[address])
        .replace("[upstreams.api]", "[upstreams.api]\nconnect_timeout = \"30s\"");
    let server = std::thread::spawn(move || {
        // The gateway waits from its first SYN on. In `/proc/net/tcp`, 02 is SYN_SENT.
        let waiting = format!("0100007F:{:04X} 02 ", address.port());
        eventually("the gateway's SYN", || {
            std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&waiting).then_some(())
        });
        sleep_for(DELAY);
        let _accepted = listener.accept().unwrap();
        drop(first);
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        stream.write_all(&[HEAD, b"done"].concat()).unwrap();
        stream
    });
    let (_folder, path) = place();
    let gateway = Gateway::start(&format!("{config}{}", table(&path, "")));
    let waits = CpuWaits::now();
    get(&mut gateway.connect());
    judge(&lines(&path, 1)[0], &["connect_ms"], &waits);
    drop(server.join().unwrap());
}

#[test]
fn slow_response_of_the_upstream_is_in_first_byte_ms_only() {
    let upstream = Upstream::start(|_, stream| {
        sleep_for(DELAY);
        stream.write_all(&[HEAD, b"done"].concat()).is_ok()
    });
    check(&proxy_to(&[upstream.address]), &["first_byte_ms"], |_, client| get(client));
}

#[test]
fn slow_body_of_the_upstream_is_in_body_ms_only() {
    let upstream = Upstream::start(|_, stream| {
        let begun = stream.write_all(&[HEAD, b"do"].concat()).is_ok();
        sleep_for(DELAY);
        begun && stream.write_all(b"ne").is_ok()
    });
    check(&proxy_to(&[upstream.address]), &["body_ms"], |_, client| get(client));
}

#[test]
fn slow_upload_of_the_client_is_in_request_body_ms_only() {
    let upstream = Upstream::echo();
    check(&proxy_to(&[upstream.address]), &["request_body_ms"], |_, client| {
        client.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsl");
        sleep_for(DELAY);
        client.write(b"ow");
        assert_eq!(client.read_response("POST").text(), "slow");
    });
}

/// The response is larger than all buffers on its way, so the gateway also reads it slowly.
#[test]
fn slow_reader_of_a_large_response_is_in_body_ms_and_send_ms_only() {
    const SIZE: usize = 32 << 20;
    let upstream = Upstream::responding(
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n").into_bytes(), vec![0; SIZE]]
            .concat(),
    );
    check(&proxy_to(&[upstream.address]), &["body_ms", "send_ms"], |_, client| {
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        sleep_for(DELAY);
        assert_eq!(client.read_response("GET").body.len(), SIZE);
    });
}

#[test]
fn slow_redis_is_in_check_ms_only() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let rule = "[rules.all]\nper = []\nrate = \"9/s\"\n";
    let config = format!("{DEMO}{}{rule}", proxy.table("1s"));
    check(&config, &["check_ms"], |gateway, client| {
        gateway.wait_for_redis();
        proxy.set(Mode::Delay(DELAY));
        get(client);
    });
}
