//! Idle connections to the servers of one upstream, kept for later requests.
//!
//! Pingora 0.9.1 offers a connection to the next request as soon as a response has ended. Bytes that a
//! server sends after that, such as the body of a response to HEAD, then answer the next request, which is
//! another client's. Here a connection is used again only while nothing can be read from it, and after a
//! response without a body (to HEAD, 204, 304) only when it has been silent for [`SILENCE`]. So it is after
//! every response of a server that has sent surplus after a body.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::TcpStream;
use tracing::warn;

use crate::limit::MICROS_PER_SECOND;
use crate::request_id::RequestId;

/// How long a connection must be silent after a response without a body, in microseconds. A server that
/// sends a body there does so within milliseconds of the head.
const SILENCE: u64 = MICROS_PER_SECOND;

/// How long a server is suspected of sending surplus after any response, in microseconds.
const SUSPICION: u64 = 600 * MICROS_PER_SECOND;

/// How long surplus is not logged again after a line about it, in microseconds.
const LOG_INTERVAL: u64 = 60 * MICROS_PER_SECOND;

/// Connections to one server that are kept at most. Where more requests are on their way at once,
/// connections beyond it are closed, and opened again for the next ones: with 128 and 256 clients of
/// one thread, a request took a quarter more processor time.
const MAX_READY: usize = 1_024;

/// Connections to one server that wait for [`SILENCE`] to pass at most.
const MAX_WAITING: usize = 256;

/// Idle connections to the servers of one upstream.
#[derive(Debug)]
pub struct IdleConnections {
    upstream: Arc<str>,
    /// None: no connection is kept any more.
    servers: Mutex<Option<HashMap<SocketAddr, Server>>>,
    reports: Mutex<Reports>,
}

/// The idle connections of one server.
#[derive(Debug, Default)]
struct Server {
    shelf: Shelf<Idle>,
    /// In microseconds.
    suspected_until: u64,
}

/// An idle connection.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) stream: TcpStream,
    /// The request that was answered on it last.
    pub(super) request_id: RequestId,
    /// Whether that response had one.
    pub(super) body: Body,
}

/// Whether a response had a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// One of a known end.
    Some,
    /// None: a response to HEAD, a 204 or a 304.
    None,
}

/// What can be read from an idle connection.
enum Probe {
    Silent,
    Closed,
    Surplus,
}

/// Items that are kept for a while, some of which cannot be taken at once.
#[derive(Debug)]
struct Shelf<T> {
    /// In the order in which they are taken, from the end.
    ready: Vec<Kept<T>>,
    /// In the order in which they become ready.
    waiting: VecDeque<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    item: T,
    /// In microseconds.
    ready_at: u64,
    /// In microseconds.
    expires_at: u64,
}

/// Bounds the log lines about surplus.
#[derive(Debug, Default)]
struct Reports {
    /// When the last line was written, in microseconds.
    last: Option<u64>,
    unlogged: u64,
}

impl IdleConnections {
    /// No connection yet, to servers of the upstream of that name.
    pub fn new(upstream: Arc<str>) -> Self {
        Self { upstream, servers: Mutex::new(Some(HashMap::new())), reports: Mutex::default() }
    }

    /// Keeps a connection for up to `timeout`, from `now` (microseconds). Closes it where too many are kept.
    pub(super) fn put(&self, server: SocketAddr, idle: Idle, timeout: Duration, now: u64) {
        let mut guard = self.servers.lock();
        let Some(servers) = guard.as_mut() else { return };
        let server = servers.entry(server).or_default();
        let silence = match idle.body {
            Body::Some if server.suspected_until <= now => 0,
            Body::Some | Body::None => SILENCE,
        };
        let timeout = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let kept = Kept {
            item: idle,
            ready_at: now.saturating_add(silence),
            expires_at: now.saturating_add(timeout),
        };
        let beyond = server.shelf.put(kept, now);
        drop(guard);
        if let Some(idle) = beyond {
            // Without a wait in the kernel, which holds a local port for a minute: clients choose
            // how many such responses there are, and ports are few.
            let _ = SockRef::from(&idle.stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// A connection to `server` that is open and silent at `now` (microseconds).
    pub(super) fn take(&self, server: SocketAddr, now: u64) -> Option<TcpStream> {
        loop {
            let idle = self.servers.lock().as_mut()?.get_mut(&server)?.shelf.take(now)?;
            match probe(&idle.stream) {
                Probe::Silent => return Some(idle.stream),
                Probe::Closed => {}
                Probe::Surplus => self.note_surplus(server, &idle, now),
            }
        }
    }

    /// Closes connections that have expired, that the server has closed, or that have surplus.
    pub fn sweep(&self, now: u64) {
        let mut surplus = Vec::new();
        if let Some(servers) = self.servers.lock().as_mut() {
            servers.retain(|address, server| {
                let is_silent = |idle: &Idle| matches!(probe(&idle.stream), Probe::Silent);
                let rejected = server.shelf.sweep(now, is_silent);
                let has_surplus = |idle: &Idle| matches!(probe(&idle.stream), Probe::Surplus);
                let noisy = rejected.into_iter().filter(has_surplus);
                surplus.extend(noisy.map(|idle| (*address, idle)));
                !server.shelf.is_empty() || now < server.suspected_until
            });
        }
        for (server, idle) in surplus {
            self.note_surplus(server, &idle, now);
        }
    }

    /// Closes all connections, and keeps none any more.
    pub fn close(&self) {
        *self.servers.lock() = None;
    }

    fn note_surplus(&self, server: SocketAddr, idle: &Idle, now: u64) {
        if idle.body == Body::Some
            && let Some(servers) = self.servers.lock().as_mut()
        {
            servers.entry(server).or_default().suspected_until = now.saturating_add(SUSPICION);
        }
        let Some(unlogged) = self.reports.lock().count(now) else { return };
        let (upstream, request_id) = (&*self.upstream, idle.request_id.as_str());
        warn!(
            request_id,
            upstream,
            %server,
            unlogged,
            "the server sent surplus bytes after its response; the connection is closed"
        );
    }
}

/// Asks the kernel: tokio learns of bytes only when it next polls.
fn probe(stream: &TcpStream) -> Probe {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Probe::Closed,
        Ok(_) => Probe::Surplus,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Probe::Silent,
        Err(_) => Probe::Closed,
    }
}

impl<T> Shelf<T> {
    /// Returns the item where there is no room for it.
    fn put(&mut self, kept: Kept<T>, now: u64) -> Option<T> {
        if kept.ready_at <= now {
            if self.ready.len() >= MAX_READY {
                return Some(kept.item);
            }
            self.ready.push(kept);
        } else {
            if self.waiting.len() >= MAX_WAITING {
                return Some(kept.item);
            }
            self.waiting.push_back(kept);
        }
        None
    }

    fn take(&mut self, now: u64) -> Option<T> {
        while self.waiting.front().is_some_and(|kept| kept.ready_at <= now) {
            self.ready.extend(self.waiting.pop_front());
        }
        loop {
            let kept = self.ready.pop()?;
            if now < kept.expires_at {
                return Some(kept.item);
            }
        }
    }

    /// Takes out what has expired at `now`, and what is not to be kept.
    fn sweep(&mut self, now: u64, keep: impl Fn(&T) -> bool) -> Vec<T> {
        let goes = |kept: &Kept<T>| kept.expires_at <= now || !keep(&kept.item);
        let all = self.ready.drain(..).chain(self.waiting.drain(..));
        let (gone, stays): (Vec<_>, Vec<_>) = all.partition(goes);
        for kept in stays {
            self.put(kept, now);
        }
        gone.into_iter().map(|kept| kept.item).collect()
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty()
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { ready: Vec::new(), waiting: VecDeque::new() }
    }
}

impl Reports {
    /// Counts one at `now` (microseconds). Returns how many were not logged since the last line where a
    /// line is due.
    fn count(&mut self, now: u64) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_sub(last) < LOG_INTERVAL) {
            self.unlogged += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(item: usize, ready_at: u64, expires_at: u64) -> Kept<usize> {
        Kept { item, ready_at, expires_at }
    }

    #[test]
    fn the_last_that_was_put_is_taken_first() {
        let mut shelf = Shelf::default();
        for item in 0..3 {
            assert_eq!(shelf.put(kept(item, 5, 100), 5), None);
        }
        assert_eq!([(); 4].map(|()| shelf.take(5)), [Some(2), Some(1), Some(0), None]);
        assert!(shelf.is_empty());
    }

    #[test]
    fn an_item_is_taken_between_its_times_only() {
        let mut shelf = Shelf::default();
        for (now, expected) in [(9, None), (10, Some(1)), (19, Some(1)), (20, None)] {
            shelf.put(kept(1, 10, 20), 0);
            assert_eq!(shelf.take(now), expected, "at {now}");
            shelf = Shelf::default();
        }
        // An expired item does not hide one that is not.
        shelf.put(kept(1, 0, 20), 0);
        shelf.put(kept(2, 0, 10), 0);
        assert_eq!(shelf.take(15), Some(1));
    }

    #[test]
    fn items_without_room_are_returned() {
        let mut shelf = Shelf::default();
        for item in 0..MAX_READY {
            assert_eq!(shelf.put(kept(item, 0, 9), 0), None);
        }
        assert_eq!(shelf.put(kept(MAX_READY, 0, 9), 0), Some(MAX_READY));
        for item in 0..MAX_WAITING {
            assert_eq!(shelf.put(kept(item, 5, 9), 0), None);
        }
        assert_eq!(shelf.put(kept(MAX_WAITING, 5, 9), 0), Some(MAX_WAITING));
    }

    #[test]
    fn a_sweep_leaves_what_is_neither_expired_nor_rejected() {
        let mut shelf = Shelf::default();
        for (item, ready_at, expires_at) in
            [(1, 0, 10), (2, 0, 11), (3, 5, 10), (4, 5, 11), (5, 5, 11)]
        {
            shelf.put(kept(item, ready_at, expires_at), 0);
        }
        assert_eq!(shelf.sweep(10, |item| *item != 5), [1, 3, 5]);
        assert_eq!([(); 3].map(|()| shelf.take(10)), [Some(4), Some(2), None]);
    }

    #[test]
    fn surplus_is_logged_once_in_an_interval_with_the_count_of_the_rest() {
        let mut reports = Reports::default();
        let times = [0, 1, LOG_INTERVAL - 1, LOG_INTERVAL, LOG_INTERVAL + 1, 2 * LOG_INTERVAL];
        let lines = times.map(|now| reports.count(now));
        assert_eq!(lines, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
