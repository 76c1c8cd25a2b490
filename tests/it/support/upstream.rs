//! An upstream server that records requests byte for byte and responds by script.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Latch, eventually};

/// A running server; stops when dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Request line and headers, with their line breaks.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Number of the connection, from 0.
    pub(crate) connection: usize,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

/// Writes the response to a request. Returns whether to keep the connection.
type Script = dyn Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync;

impl Upstream {
    /// Starts a server that responds by `script`, which writes to the connection and returns
    /// whether to keep it.
    pub(crate) fn start(
        script: impl Fn(&ReceivedRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let script: Arc<Script> = Arc::new(script);
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared, &script)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Starts a server that sends the same bytes for every request and keeps the connection.
    pub(crate) fn responding(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| stream.write_all(&answer).is_ok())
    }

    /// Starts a server that holds each request until the latch opens, then responds `ok`.
    pub(crate) fn holding() -> (Self, Latch) {
        let latch = Latch::default();
        let held = latch.clone();
        let upstream = Self::start(move |_, stream| {
            held.wait();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
        });
        (upstream, latch)
    }

    /// Starts a server that responds with 200 and the request's body.
    pub(crate) fn echo() -> Self {
        Self::start(|seen, stream| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len());
            stream.write_all(&[head.as_bytes(), &seen.body].concat()).is_ok()
        })
    }

    /// Starts a server that upgrades each connection, and then sends back every byte.
    pub(crate) fn upgrading() -> Self {
        Self::start(|_, stream| {
            let upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                Upgrade: websocket\r\n\r\n";
            stream.write_all(upgraded.as_bytes()).unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            false
        })
    }

    /// Requests received so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.seen.lock().clone()
    }

    /// Waits until it has received this many requests.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        eventually("the requests arrive", || (self.requests().len() == count).then_some(()));
    }

    /// The single request received so far.
    #[track_caller]
    pub(crate) fn only_request(&self) -> ReceivedRequest {
        let mut seen = self.requests();
        assert_eq!(seen.len(), 1, "requests that arrived: {seen:#?}");
        seen.remove(0)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for connection in self.shared.connections.lock().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Whether the other end has closed the connection, read to its end or not.
pub(crate) fn is_closed_by_peer(connection: &TcpStream) -> bool {
    let mut watched = [PollFd::new(connection, PollFlags::RDHUP)];
    poll(&mut watched, Some(&Timespec::default())).unwrap();
    watched[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

impl ReceivedRequest {
    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// All values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers
            .filter(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// The value of a header. Panics if there are two.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let values = self.values(name);
        assert!(values.len() < 2, "two headers {name}: {values:?}");
        values.first().copied()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, script: &Arc<Script>) {
    for (number, stream) in listener.incoming().enumerate() {
        let Ok(stream) = stream else { continue };
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(handle) = stream.try_clone() {
            shared.connections.lock().push(handle);
        }
        let (shared, script) = (shared.clone(), script.clone());
        std::thread::spawn(move || serve(stream, number, &shared, &*script));
    }
}

fn serve(mut stream: TcpStream, connection: usize, shared: &Shared, script: &Script) {
    let mut unread = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut unread, connection) {
        shared.seen.lock().push(seen.clone());
        if !script(&seen, &mut stream) {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_request(
    stream: &mut TcpStream,
    unread: &mut Vec<u8>,
    connection: usize,
) -> Option<ReceivedRequest> {
    let end = loop {
        if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        fill(stream, unread)?;
    };
    let head = String::from_utf8_lossy(&unread.drain(..end).collect::<Vec<u8>>()).into_owned();
    let mut seen = ReceivedRequest { head, body: Vec::new(), connection };
    if seen.values("transfer-encoding").contains(&"chunked") {
        loop {
            let end = loop {
                if let Some(end) = unread.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                fill(stream, unread)?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&unread[..end]).ok()?, 16).ok()?;
            while unread.len() < end + 2 + size + 2 {
                fill(stream, unread)?;
            }
            seen.body.extend_from_slice(&unread[end + 2..end + 2 + size]);
            unread.drain(..end + 2 + size + 2);
            if size == 0 {
                return Some(seen);
            }
        }
    }
    let lengths = seen.values("content-length");
    let length = lengths.first().map_or(0, |length| length.parse().unwrap());
    while unread.len() < length {
        fill(stream, unread)?;
    }
    seen.body = unread.drain(..length).collect();
    Some(seen)
}

fn fill(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 * 1024];
    let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
    unread.extend_from_slice(&buffer[..read]);
    Some(())
}
