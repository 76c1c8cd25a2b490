//! Where the time of a slow request is shown. In each test one party takes [`DELAY`], and only its own field
//! shows that.
//!
//! The times of a request exclude each other, so if its own field has the delay, another one is long only
//! because the machine is busy: then the measurement is inconclusive.

use std::io::Write as _;
use std::time::Duration;

use super::{lines, place, table};
use crate::support::{
    Connection, DEMO, FaultProxy, Gateway, Mode, Redis, Request, Upstream, eventually,
    inconclusive, proxy_to, sleep_for,
};

const DELAY: Duration = Duration::from_millis(500);

const TIMES: [&str; 6] =
    ["check_ms", "connect_ms", "request_body_ms", "first_byte_ms", "body_ms", "send_ms"];

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";

/// Sends one request by `exchange` to a gateway with this configuration, and checks that the fields `own`
/// together have the delay.
#[track_caller]
fn check(config: &str, own: &[&str], exchange: impl FnOnce(&Gateway, &mut Connection)) {
    let (_folder, path) = place();
    let gateway = Gateway::start(&format!("{config}{}", table(&path, "")));
    let mut client = gateway.connect();
    exchange(&gateway, &mut client);
    let line = lines(&path, 1).remove(0);
    let of = |name: &str| Duration::from_secs_f64(line[name].as_f64().unwrap_or(0.0) / 1e3);
    let total = of("total_ms");
    assert!(TIMES.map(of).iter().sum::<Duration>() <= total + Duration::from_millis(1), "{line}");
    let slow: Duration = own.iter().map(|name| of(name)).sum();
    assert!(slow >= DELAY.mul_f64(0.9), "{own:?} should have the delay: {line}");
    let others = || TIMES.into_iter().filter(|name| !own.contains(name));
    if let Some(other) = others().find(|name| of(name) > DELAY / 2) {
        inconclusive(&format!("{other} is long, too, as the machine is busy: {line}"));
    }
}

fn get(client: &mut Connection) {
    assert_eq!(client.send(&Request::get("/")).status, 200);
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
        eventually("a connection to Redis", || {
            let is_connected = gateway.admin("/api/status").json()["redis"]["connected"] == true;
            is_connected.then_some(())
        });
        proxy.set(Mode::Delay(DELAY));
        get(client);
    });
}
