//! Servers that are not Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::fixture::{Running, eventually};
use crate::store::redis::class::ErrorClass;

/// Timeout of a write that is not answered.
const SOON: Duration = Duration::from_millis(100);

/// A server that answers like Redis, except that it answers a write with `reply` and then `times`
/// times with `then`. Counts the bytes that were accepted.
struct Impostor {
    folder: tempfile::TempDir,
    taken: Arc<AtomicUsize>,
}

impl Impostor {
    fn start(reply: &'static [u8], then: &'static [u8], times: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("redis.sock")).unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        let request = String::from_utf8_lossy(&buffer[..length]).to_string();
                        let is_write = request.contains("SET");
                        let answer = match () {
                            () if is_write => reply,
                            () if request.contains("PING") => b"+PONG\r\n",
                            () if request.contains("~probe") => b"*3\r\n:1\r\n:1\r\n:0\r\n",
                            () => b":1\r\n",
                        };
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                        for _ in 0..if is_write { times } else { 0 } {
                            if stream.write_all(then).await.is_err() {
                                return;
                            }
                            counter.fetch_add(then.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        Self { folder, taken }
    }

    fn link(&self) -> Running {
        Running::start(&format!("url = 'unix://{}/redis.sock'", self.folder.path().display()))
    }
}

#[tokio::test]
async fn row_19_malformed_reply_replaces_the_connection() {
    for reply in [&b"%garbage\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$x\r\n"] {
        let impostor = Impostor::start(reply, b"", 0);
        let running = impostor.link();
        running.connection().await;
        assert_eq!(running.write().await, Err(Some(ErrorClass::Parse)));
        eventually("there is another one", async || running.link.connections() > 1).await;
    }
}

#[tokio::test]
async fn row_19_reply_above_the_bound_is_not_buffered() {
    static PART: [u8; 65_536] = [b'x'; 65_536];
    let impostor = Impostor::start(b"$1073741824\r\n", &PART, 16_384);
    let running = impostor.link();
    let connection = running.connection().await;
    assert!(running.write_within(SOON).await.is_err());
    eventually("the connection is given up", async || connection.health.broken().is_some()).await;
    eventually("there is another one", async || running.link.connections() > 1).await;
    let taken = impostor.taken.load(Ordering::Relaxed);
    assert!(taken < 4 << 20, "{taken} bytes were taken");
}

#[tokio::test]
async fn row_19_unfinished_reply_times_out() {
    for reply in [&b"*1000000000\r\n"[..], b"$1073741824\r\n", b"$5\r\nab"] {
        let impostor = Impostor::start(reply, b"", 0);
        let running = impostor.link();
        running.connection().await;
        // The write times out, or on a slow machine the connection is given up first.
        let write = || running.write_within(SOON);
        let written = write().await;
        assert!(matches!(written, Err(None | Some(ErrorClass::Parse))), "{written:?}");
        eventually("it is given up", async || {
            assert!(write().await.is_err());
            running.link.current().is_none()
        })
        .await;
        eventually("there is another one", async || running.link.connections() > 1).await;
    }
}

#[tokio::test]
async fn row_19_flood_of_unrequested_replies_replaces_the_connection() {
    static PART: [u8; 65_536] = {
        let mut part = [b'+'; 65_536];
        let mut at = 0;
        while at < part.len() {
            (part[at + 1022], part[at + 1023]) = (b'\r', b'\n');
            at += 1024;
        }
        part
    };
    let impostor = Impostor::start(b"+OK\r\n", &PART, 1_024);
    let running = impostor.link();
    running.connection().await;
    let _ = running.write_within(SOON).await;
    eventually("there is another one", async || running.link.connections() > 1).await;
}
