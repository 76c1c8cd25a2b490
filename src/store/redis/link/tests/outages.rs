//! Servers that become unavailable and available again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::fixture::{Running, Server, eventually, free_port, refusal, settings};
use crate::base::clock;
use crate::store::redis::class::ErrorClass;
use crate::store::redis::fixture::Timer;

/// Redis is down at the start.
#[tokio::test]
async fn row_22_gateway_connects_once_redis_starts() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let running = Running::start(&format!("url = 'unix://{}'", socket.display()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(running.link.current().is_none());
    let _server = Server::start_in(folder, &[]).await;
    running.connection().await;
    assert_eq!(running.write().await, Ok(()));
    assert_eq!(running.link.connections(), 1);
}

#[tokio::test]
async fn row_01_killed_server_is_noticed_within_a_second_and_reconnected() {
    let mut server = Server::start(&[]).await;
    let running = Running::start(&server.url());
    running.connection().await;
    let timer = Timer::start();
    server.kill();
    running.until_down().await;
    // No request used it.
    timer.assert_below(Duration::from_secs(1));
    server.restart().await;
    running.until_writes().await;
}

/// And row 2: a server that does not answer, although its connections are open.
#[tokio::test]
async fn row_18_hanging_server_is_noticed_without_requests() {
    let server = Server::start(&[]).await;
    let running = Running::start(&server.url());
    running.connection().await;
    let timer = Timer::start();
    server.signal(Signal::SIGSTOP);
    running.until_down().await;
    timer.assert_below(Duration::from_secs(3));
    // It accepts connections but does not answer: requests get none of them.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((running.link.current().is_none(), running.link.connections()), (true, 1));
    server.signal(Signal::SIGCONT);
    running.until_writes().await;
    assert_eq!(running.link.connections(), 2);
}

#[tokio::test]
async fn row_02_five_consecutive_timeouts_replace_the_connection() {
    let server = Server::start(&[]).await;
    let running = Running::start(&server.url());
    let connection = running.connection().await;
    server.signal(Signal::SIGSTOP);
    let write = || running.write_within(Duration::from_millis(100));
    for _ in 0..4 {
        assert_eq!(write().await, Err(None));
        assert!(connection.health.broken().is_none());
    }
    assert_eq!(write().await, Err(None));
    assert!(running.link.current().is_none());
    server.signal(Signal::SIGCONT);
    running.until_writes().await;
}

/// The server has become a replica.
#[tokio::test]
async fn row_12_a_replica_is_not_used() {
    let server = Server::start(&[]).await;
    let running = Running::start(&server.url());
    running.connection().await;
    server.ask("REPLICAOF 127.0.0.1 1");
    assert_eq!(running.write().await, Err(Some(ErrorClass::ReadOnly)));
    assert!(running.link.current().is_none());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running.link.connections(), 1, "requests do not reconnect");
    server.ask("REPLICAOF NO ONE");
    running.until_writes().await;
}

/// Names are looked up for every attempt.
#[tokio::test]
async fn row_17_name_is_resolved_for_every_connection() {
    let (first, second) = (free_port(), free_port());
    let mut first_server = Server::start(&["--port", &first.to_string()]).await;
    let addresses: Arc<Mutex<Vec<u16>>> = Arc::default();
    let lookups = Arc::new(AtomicUsize::new(0));
    let resolver = {
        let (addresses, lookups) = (Arc::clone(&addresses), Arc::clone(&lookups));
        Arc::new(move |_: &_| {
            lookups.fetch_add(1, Ordering::Relaxed);
            let ports = addresses.lock().clone();
            let found = ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port)));
            let found: Vec<SocketAddr> = found.collect();
            let found =
                if found.is_empty() { Err(std::io::Error::other("none")) } else { Ok(found) };
            Box::pin(std::future::ready(found)) as _
        })
    };
    let running = Running::start_with(settings("url = 'redis://redis.example'"), resolver);
    eventually("it asks again", async || lookups.load(Ordering::Relaxed) > 2).await;
    assert!(running.link.current().is_none());
    // Only the second address answers.
    *addresses.lock() = vec![free_port(), first];
    running.until_writes().await;
    let _second_server = Server::start(&["--port", &second.to_string()]).await;
    *addresses.lock() = vec![second];
    first_server.kill();
    running.until_down().await;
    running.until_writes().await;
}

/// The server has reached `maxclients`.
#[tokio::test]
async fn row_26_server_at_maxclients_is_retried() {
    let server = Server::start(&["--maxclients", "1"]).await;
    let only_client = only_client(&server).await;
    // Redis sends the reason and closes the connection at once: the reason may not be read.
    let refused = refusal(&server.url()).await.to_lowercase();
    let reasons = ["max number of clients", "broken pipe", "connection reset"];
    assert!(reasons.iter().any(|reason| refused.contains(reason)), "{refused}");
    let running = Running::start(&server.url());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(running.link.current().is_none());
    drop(only_client);
    running.until_writes().await;
}

/// The only client that the server accepts.
async fn only_client(server: &Server) -> UnixStream {
    loop {
        let mut guest = UnixStream::connect(server.socket()).await.unwrap();
        let mut answer = [0; 5];
        if guest.write_all(b"PING\r\n").await.is_ok()
            && guest.read_exact(&mut answer).await.is_ok()
            && answer == *b"+PONG"
        {
            return guest;
        }
    }
}

/// The server closes connections that are idle for a second.
#[tokio::test]
async fn row_26_idle_connection_is_kept_open() {
    let server = Server::start(&["--timeout", "1"]).await;
    let running = Running::start(&server.url());
    running.connection().await;
    let timer = Timer::start();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let found = (running.write().await, running.link.connections());
    if found != (Ok(()), 1) {
        // Two PINGs a second keep it open, unless a busy machine lets none pass for a second.
        let what = format!("the write, and the number of connections: {found:?}");
        timer.inconclusive_if_stalled(&what, Duration::from_millis(500));
    }
}

#[tokio::test]
async fn reconnects_are_delayed_longer_each_time_a_connection_breaks() {
    let server = Server::start(&[]).await;
    let running = Running::start(&server.url());
    let started = clock::now();
    // At least three, however long a busy machine takes for them.
    while clock::now() - started < 3_000_000 || running.link.connections() < 3 {
        if let Some(connection) = running.link.current() {
            connection.health.give_up(super::super::watch::Reason::Closed);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Without growing delays there would be a hundred.
    assert!(running.link.connections() < 40, "{}", running.link.connections());
}
