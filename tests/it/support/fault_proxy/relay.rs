//! Relays one connection of a gateway to Redis.

use std::collections::VecDeque;
use std::future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Mode, Shared, Target, resp};

/// End of the key of a bucket of the rule `per-key`, as encoded in a call.
const CLIENT_BUCKET_SUFFIX: &[u8] = b"}:per-key\r\n";

/// A connection to Redis.
trait Server: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Server for T {}

async fn connect(target: &Target) -> std::io::Result<Box<dyn Server>> {
    Ok(match target {
        Target::Socket(path) => Box::new(UnixStream::connect(path).await?),
        Target::Address(address) => Box::new(TcpStream::connect(address).await?),
    })
}

pub(super) struct Relay {
    client: TcpStream,
    server: Option<Box<dyn Server>>,
    mode: watch::Receiver<Mode>,
    shared: Arc<Shared>,
    /// Bytes from the gateway that are not yet a complete request.
    requests: BytesMut,
    /// Bytes from Redis that are not yet a complete reply.
    replies: BytesMut,
    /// Pending requests in order: the canned reply, or `None` if Redis replies.
    pending: VecDeque<Option<&'static str>>,
    /// Replies to send, each with its due time.
    delayed: VecDeque<(Instant, BytesMut)>,
    /// Number of replies so far.
    replied: usize,
}

impl Relay {
    pub(super) fn new(client: TcpStream, mode: watch::Receiver<Mode>, shared: Arc<Shared>) -> Self {
        Self {
            client,
            server: None,
            mode,
            shared,
            requests: BytesMut::new(),
            replies: BytesMut::new(),
            pending: VecDeque::new(),
            delayed: VecDeque::new(),
            replied: 0,
        }
    }

    /// Relays until either side closes or the mode ends the connection.
    pub(super) async fn run(mut self) {
        let mut is_new = true;
        self.server = connect(&self.shared.target).await.ok();
        loop {
            let mode = *self.mode.borrow_and_update();
            is_new &= mode == Mode::Freeze;
            let continues = match mode {
                Mode::Refuse => None,
                Mode::Freeze if !is_new => future::pending().await,
                Mode::Hang => self.mode.changed().await.ok(),
                _ => self.step(mode).await,
            };
            if continues.is_none() {
                return;
            }
        }
    }

    /// Processes the buffered data, then waits for more. `None` ends the connection.
    async fn step(&mut self, mode: Mode) -> Option<()> {
        self.forward_requests(mode).await?;
        self.queue_replies(mode);
        while self.delayed.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            self.send_reply(mode).await?;
        }
        self.wait().await
    }

    /// Waits for data, a due reply or a change of mode. Cancel-safe. `None` if a connection is
    /// closed.
    async fn wait(&mut self) -> Option<()> {
        let due = self.delayed.front().map(|(due, _)| *due);
        let server = &mut self.server;
        let from_server = async {
            match server {
                Some(server) => server.read_buf(&mut self.replies).await,
                None => future::pending().await,
            }
        };
        let until_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => future::pending().await,
            }
        };
        let some = |read: std::io::Result<usize>| read.ok().filter(|read| *read > 0).map(drop);
        tokio::select! {
            changed = self.mode.changed() => changed.ok(),
            read = self.client.read_buf(&mut self.requests) => some(read),
            read = from_server => some(read),
            () = until_due => Some(()),
        }
    }

    async fn forward_requests(&mut self, mode: Mode) -> Option<()> {
        while let Some(end) = resp::end(&self.requests, 0) {
            let request = self.requests.split_to(end);
            let has = |word: &[u8]| request.windows(word.len()).any(|part| part == word);
            if has(CLIENT_BUCKET_SUFFIX) {
                self.shared.client_calls.fetch_add(1, Ordering::SeqCst);
            }
            if let Mode::Canned(reply) = mode {
                self.pending.push_back(Some(if has(b"PING") { "+PONG\r\n" } else { reply }));
            } else {
                self.server.as_mut()?.write_all(&request).await.ok()?;
                self.pending.push_back(None);
            }
        }
        Some(())
    }

    /// Queues the complete replies, each with its due time.
    fn queue_replies(&mut self, mode: Mode) {
        while let Some(reply) = self.pending.front() {
            let reply = match reply {
                Some(canned) => BytesMut::from(canned.as_bytes()),
                None => match resp::end(&self.replies, 0) {
                    Some(end) => self.replies.split_to(end),
                    None => return,
                },
            };
            self.pending.pop_front();
            self.replied += 1;
            let delay = match mode {
                Mode::Delay(delay) => delay,
                Mode::DelayAlternate(delay) if self.replied.is_multiple_of(2) => delay,
                _ => Duration::ZERO,
            };
            self.delayed.push_back((Instant::now() + delay, reply));
        }
    }

    async fn send_reply(&mut self, mode: Mode) -> Option<()> {
        let (_, mut reply) = self.delayed.pop_front()?;
        match mode {
            Mode::CutMidReply => {
                let _ = self.client.write_all(&reply[..reply.len() / 2]).await;
                return None;
            }
            Mode::Flood => return self.flood().await,
            Mode::Garble => reply.iter_mut().for_each(|byte| *byte ^= 0x1f),
            _ => {}
        }
        self.client.write_all(&reply).await.ok()
    }

    /// Sends the header and the bytes of a reply of 1 GiB, until the gateway stops reading.
    async fn flood(&mut self) -> Option<()> {
        self.client.write_all(b"$1073741824\r\n").await.ok()?;
        let part = vec![b'x'; 65_536];
        for _ in 0..16_384 {
            self.client.write_all(&part).await.ok()?;
        }
        None
    }
}
