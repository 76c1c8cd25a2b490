//! One connection of a gateway, and the one to Redis behind it.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Mode, Shared, resp};

/// The first bytes of a key's name behind its client part, as they stand in a call.
const CLIENTS_BUCKET: &[u8] = b"}:per-key\r\n";

pub(super) struct Relay {
    client: TcpStream,
    server: Option<UnixStream>,
    mode: watch::Receiver<Mode>,
    shared: Arc<Shared>,
    /// From the gateway, not yet a whole request.
    requests: BytesMut,
    /// From Redis, not yet a whole reply.
    replies: BytesMut,
    /// Who answers the requests that wait, in their order: somebody else, or (none) Redis.
    owed: VecDeque<Option<&'static str>>,
    /// Replies, and when each may leave.
    leaving: VecDeque<(Instant, BytesMut)>,
    /// Replies so far.
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
            owed: VecDeque::new(),
            leaving: VecDeque::new(),
            replied: 0,
        }
    }

    /// Relays until either side closes, or the mode wants it.
    pub(super) async fn run(mut self) {
        let mut is_new = true;
        self.server = UnixStream::connect(&self.shared.target).await.ok();
        loop {
            let mode = *self.mode.borrow_and_update();
            is_new &= mode == Mode::Freeze;
            let goes_on = match mode {
                Mode::Refuse => None,
                Mode::Freeze if !is_new => pending().await,
                Mode::Hang => self.mode.changed().await.ok(),
                _ => self.step(mode).await,
            };
            if goes_on.is_none() {
                return;
            }
        }
    }

    /// Deals with what is there, then waits for more. None ends the connection.
    async fn step(&mut self, mode: Mode) -> Option<()> {
        self.pass_requests_on(mode).await?;
        self.sort_replies(mode);
        while self.leaving.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            self.send_reply(mode).await?;
        }
        self.wait().await
    }

    /// Waits for bytes, for a reply to be due, for another mode. Nothing is lost by dropping this
    /// in between. None where a connection is closed.
    async fn wait(&mut self) -> Option<()> {
        let due = self.leaving.front().map(|(due, _)| *due);
        let server = &mut self.server;
        let from_server = async {
            match server {
                Some(server) => server.read_buf(&mut self.replies).await,
                None => pending().await,
            }
        };
        let until_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
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

    async fn pass_requests_on(&mut self, mode: Mode) -> Option<()> {
        while let Some(end) = resp::end(&self.requests, 0) {
            let request = self.requests.split_to(end);
            let has = |word: &[u8]| request.windows(word.len()).any(|part| part == word);
            if has(CLIENTS_BUCKET) {
                self.shared.client_calls.fetch_add(1, Ordering::SeqCst);
            }
            if let Mode::Canned(reply) = mode {
                self.owed.push_back(Some(if has(b"PING") { "+PONG\r\n" } else { reply }));
            } else {
                self.server.as_mut()?.write_all(&request).await.ok()?;
                self.owed.push_back(None);
            }
        }
        Some(())
    }

    /// Puts the replies that are there in line.
    fn sort_replies(&mut self, mode: Mode) {
        while let Some(owed) = self.owed.front() {
            let reply = match owed {
                Some(canned) => BytesMut::from(canned.as_bytes()),
                None => match resp::end(&self.replies, 0) {
                    Some(end) => self.replies.split_to(end),
                    None => return,
                },
            };
            self.owed.pop_front();
            self.replied += 1;
            let delay = match mode {
                Mode::Delay(delay) => delay,
                Mode::DelayAlternate(delay) if self.replied.is_multiple_of(2) => delay,
                _ => Duration::ZERO,
            };
            self.leaving.push_back((Instant::now() + delay, reply));
        }
    }

    async fn send_reply(&mut self, mode: Mode) -> Option<()> {
        let (_, mut reply) = self.leaving.pop_front()?;
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

    /// The header of a gibibyte, and all of it, as long as it is taken.
    async fn flood(&mut self) -> Option<()> {
        self.client.write_all(b"$1073741824\r\n").await.ok()?;
        let part = vec![b'x'; 65_536];
        for _ in 0..16_384 {
            self.client.write_all(&part).await.ok()?;
        }
        None
    }
}
