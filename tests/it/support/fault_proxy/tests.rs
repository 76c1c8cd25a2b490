//! Tests of the proxy itself, with a real Redis and a plain TCP client.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{FaultProxy, Mode};
use crate::support::{Redis, eventually, timed};

const TIMEOUT: Duration = Duration::from_secs(20);

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends `ECHO word` and reads the reply. `None` if the connection ends before.
fn echo(stream: &mut TcpStream, word: &str) -> Option<String> {
    send(stream, word);
    receive(stream, format!("${}\r\n{word}\r\n", word.len()).len())
}

fn send(stream: &mut TcpStream, word: &str) {
    let request = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{word}\r\n", word.len());
    let _ = stream.write_all(request.as_bytes());
}

fn receive(stream: &mut TcpStream, length: usize) -> Option<String> {
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn proxy_passes_refuses_and_passes_again() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let mut stream = connect(&proxy);
    assert_eq!(echo(&mut stream, "a").as_deref(), Some("$1\r\na\r\n"));
    proxy.set(Mode::Refuse);
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "an idle connection is closed");
    assert_eq!(echo(&mut connect(&proxy), "b"), None);
    proxy.set(Mode::Pass);
    assert_eq!(echo(&mut connect(&proxy), "c").as_deref(), Some("$1\r\nc\r\n"));
    let arrivals = proxy.arrivals();
    assert_eq!(arrivals.len(), 3);
    assert!(arrivals.is_sorted() && arrivals[2] <= proxy.elapsed());
}

#[test]
fn hanging_connection_continues_where_it_stopped() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let mut old = connect(&proxy);
    assert!(echo(&mut old, "a").is_some());
    proxy.set(Mode::Hang);
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        send(stream, "b");
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(stream.read(&mut [0]).is_err(), "neither a reply nor the end");
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    proxy.set(Mode::Pass);
    for stream in [&mut old, &mut new] {
        assert_eq!(receive(stream, 7).as_deref(), Some("$1\r\nb\r\n"));
    }
}

#[test]
fn frozen_connection_stays_dead_and_new_ones_work() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let mut old = connect(&proxy);
    assert!(echo(&mut old, "a").is_some());
    proxy.set(Mode::Freeze);
    assert!(echo(&mut connect(&proxy), "b").is_some());
    proxy.set(Mode::Pass);
    old.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    send(&mut old, "c");
    assert!(old.read(&mut [0]).is_err());
}

#[test]
fn canned_replies_keep_the_order() {
    let mut redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let mut stream = connect(&proxy);
    redis.pause();
    // Counted once it has arrived at the proxy.
    send(&mut stream, "}:per-key");
    eventually("the request", || (proxy.client_calls() == 1).then_some(()));
    proxy.set(Mode::Canned("-OOM x\r\n"));
    send(&mut stream, "b");
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    redis.resume();
    let replies = "$9\r\n}:per-key\r\n-OOM x\r\n+PONG\r\n";
    assert_eq!(receive(&mut stream, replies.len()).as_deref(), Some(replies));
    // Canned replies do not need Redis.
    redis.kill();
    eventually("a reply without Redis", || {
        (echo(&mut connect(&proxy), "d")?.starts_with("-OOM x")).then_some(())
    });
}

#[test]
fn proxy_delays_truncates_garbles_and_floods() {
    let redis = Redis::start();
    let proxy = FaultProxy::start(&redis);
    let mut stream = connect(&proxy);
    let delay = Duration::from_millis(60);
    proxy.set(Mode::Delay(delay));
    let (answers, took) = timed(|| {
        for word in ["a", "b", "c"] {
            send(&mut stream, word);
        }
        receive(&mut stream, 21)
    });
    assert!(answers.is_some() && took >= delay, "{took:?}");
    proxy.set(Mode::DelayAlternate(delay));
    let late = |word: &str, stream: &mut TcpStream| timed(|| echo(stream, word)).1 >= delay;
    assert!(late("d", &mut stream), "the fourth");
    let _ = echo(&mut stream, "e");
    assert!(late("f", &mut stream), "the sixth");

    proxy.set(Mode::Garble);
    assert!(!echo(&mut stream, "g").unwrap().starts_with('$'));
    proxy.set(Mode::CutMidReply);
    send(&mut stream, "h");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"$1\r");
    proxy.set(Mode::Flood);
    let mut stream = connect(&proxy);
    send(&mut stream, "i");
    assert!(receive(&mut stream, 1_000_000).unwrap().starts_with("$1073741824\r\nxxx"));
}
