//! Idle connections to the servers of one upstream, kept for later requests.
//!
//! Pingora 0.9.1 offers a connection to the next request as soon as a response has ended. Bytes
//! that a server sends after that, such as the body of a response to HEAD, would then be the
//! response to the next request, which is another client's. So a connection is reused only if no
//! bytes can be read from it. After a response without a body (to HEAD, 204, 304) it must also have
//! been silent for [`SILENCE_US`]. The same applies after every response of a server that has sent
//! surplus bytes after a body. A connection that is in use all the time rests now and then, see
//! [`Run`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::SockRef;
use tracing::warn;

use super::dial::Endpoint;
use super::gate::{Gate, Permit};
use super::run::Run;
use super::transport::{Probe, Transport};
use crate::base::duration::MICROS_PER_SECOND;
use crate::base::duration::micros;
use crate::base::log_interval::LogInterval;
use crate::base::request_id::RequestId;

/// How long a connection must be silent after a response without a body, in microseconds. A server
/// that sends a body there does so within milliseconds of the head.
const SILENCE_US: u64 = MICROS_PER_SECOND;

/// How long a server that has sent surplus bytes is suspected of sending them after any response,
/// in microseconds.
const SUSPICION_US: u64 = 600 * MICROS_PER_SECOND;

/// Minimum time between two log lines about surplus bytes, in seconds.
const LOG_INTERVAL_S: u64 = 60;

/// Maximum number of idle connections to one server. Connections beyond it are closed, and opened
/// again if more requests are in flight: measured with 128 and 256 clients of one thread, a request
/// then took a quarter more processor time.
const MAX_READY: usize = 1_024;

/// Maximum number of connections to one server that have not been silent for [`SILENCE_US`] yet.
const MAX_WAITING: usize = 256;

/// Idle connections to the servers of one upstream.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    upstream: Arc<str>,
    /// `None` after [`close`](Self::close): no connection is kept any more.
    servers: Mutex<Option<HashMap<Endpoint, Server>>>,
    reports: LogInterval,
    /// Counts all connections to the servers, those in use and over HTTP/2, too.
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Server {
    queue: IdleQueue<Idle>,
    /// Time in microseconds until which every response must be followed by silence.
    suspected_until: u64,
}

/// An idle connection, and what is known of the last request on it.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) stream: Transport,
    /// The last request on it.
    pub(super) request_id: RequestId,
    /// Whether the response to that request had a body.
    pub(super) body: Body,
    /// Its use so far.
    pub(super) run: Run,
}

/// Whether a response had a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// It had one, with a known end.
    Some,
    /// It had none: a response to HEAD, a 204 or a 304.
    None,
}

/// Items that expire, and some of which are not ready at once.
#[derive(Debug)]
struct IdleQueue<T> {
    /// Taken from the end.
    ready: Vec<Kept<T>>,
    /// In the order in which they become ready.
    waiting: VecDeque<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    item: T,
    /// Since when it is kept, in microseconds.
    since: u64,
    /// When it is ready, in microseconds.
    ready_at: u64,
    /// When it expires, in microseconds.
    expires_at: u64,
}

impl IdleConnections {
    /// Creates an empty set for the servers of the upstream with this name.
    pub(super) fn new(upstream: Arc<str>) -> Self {
        Self {
            upstream,
            servers: Mutex::new(Some(HashMap::new())),
            reports: LogInterval::new(LOG_INTERVAL_S),
            gate: Arc::default(),
        }
    }

    /// The number of open connections, in use and idle, over any version of HTTP.
    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// A permit to open a connection while there are fewer than `most`, for which an idle one may
    /// be closed, but for one to `kept` that can be used.
    pub(super) fn permit(&self, most: u32, kept: Option<&Endpoint>) -> Option<Permit> {
        let permit = || self.gate.try_open(most);
        permit().or_else(|| if self.close_one(kept) { permit() } else { None })
    }

    /// Closes an idle connection, if there is one that may be closed.
    fn close_one(&self, kept: Option<&Endpoint>) -> bool {
        let mut guard = self.servers.lock();
        let mut servers = guard.iter_mut().flatten();
        let oldest = servers.find_map(|(endpoint, server)| {
            let queue = &mut server.queue;
            if Some(endpoint) == kept { queue.take_unready() } else { queue.take_oldest() }
        });
        // Not while the lock is held: requests that wait are woken.
        drop(guard);
        oldest.is_some()
    }

    /// Keeps a connection for up to `timeout` from `now` (microseconds). Closes it if too many are
    /// kept.
    pub(super) fn put(&self, server: &Endpoint, idle: Idle, timeout: Duration, now: u64) {
        let mut guard = self.servers.lock();
        let Some(servers) = guard.as_mut() else { return };
        if !servers.contains_key(server) {
            servers.insert(server.clone(), Server::default());
        }
        let Some(server) = servers.get_mut(server) else { return };
        let silence = match idle.body {
            Body::Some if server.suspected_until <= now => 0,
            Body::Some | Body::None => SILENCE_US,
        };
        let rest = if idle.run.is_over(now) { idle.run.rest_us() } else { 0 };
        let kept = Kept {
            item: idle,
            since: now,
            ready_at: now.saturating_add(silence.max(rest)),
            expires_at: now.saturating_add(micros(timeout)),
        };
        let beyond = server.queue.put(kept, now);
        drop(guard);
        self.gate.note_free(None);
        if let Some(idle) = beyond {
            // Closes with a reset, to skip TIME_WAIT, which would hold a local port for a minute:
            // clients determine how many such responses there are.
            let _ = SockRef::from(idle.stream.tcp()).set_linger(Some(Duration::ZERO));
        }
    }

    /// Takes a connection to `server` that is open and silent at `now` (microseconds), with its use
    /// so far.
    pub(super) fn take(&self, server: &Endpoint, now: u64) -> Option<(Transport, Run)> {
        loop {
            let kept = self.servers.lock().as_mut()?.get_mut(server)?.queue.take(now)?;
            let Kept { item: mut idle, since, .. } = kept;
            match idle.stream.probe() {
                Probe::Silent => {
                    let has_rested = now.saturating_sub(since) >= idle.run.rest_us();
                    let run = if has_rested { Run::new(now) } else { idle.run };
                    return Some((idle.stream, run));
                }
                Probe::Closed => {}
                Probe::Surplus => self.record_surplus(server, &idle, now),
            }
        }
    }

    /// Closes connections that have expired, that the server has closed, or that have surplus
    /// bytes.
    pub(super) fn sweep(&self, now: u64) {
        let mut surplus = Vec::new();
        if let Some(servers) = self.servers.lock().as_mut() {
            servers.retain(|endpoint, server| {
                let is_silent = |idle: &mut Idle| idle.stream.probe() == Probe::Silent;
                for mut idle in server.queue.sweep(now, is_silent) {
                    if idle.stream.probe() == Probe::Surplus {
                        surplus.push((endpoint.clone(), idle));
                    }
                }
                !server.queue.is_empty() || now < server.suspected_until
            });
        }
        for (server, idle) in surplus {
            self.record_surplus(&server, &idle, now);
        }
    }

    /// Closes all connections. No connection is kept from now on.
    pub(super) fn close(&self) {
        *self.servers.lock() = None;
    }

    fn record_surplus(&self, server: &Endpoint, idle: &Idle, now: u64) {
        if idle.body == Body::Some
            && let Some(servers) = self.servers.lock().as_mut()
        {
            servers.entry(server.clone()).or_default().suspected_until =
                now.saturating_add(SUSPICION_US);
        }
        let Some(unlogged) = self.reports.count(now) else { return };
        let (upstream, request_id) = (&*self.upstream, idle.request_id.as_str());
        warn!(
            request_id,
            upstream,
            server = %server.address,
            unlogged,
            "the server sent surplus bytes after its response; the connection is closed"
        );
    }
}

impl<T> IdleQueue<T> {
    /// Returns the item if the queue is full.
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
            let place = self.waiting.partition_point(|other| other.ready_at <= kept.ready_at);
            self.waiting.insert(place, kept);
        }
        None
    }

    fn take_oldest(&mut self) -> Option<T> {
        let first = if self.ready.is_empty() { None } else { Some(self.ready.remove(0)) };
        first.map(|kept| kept.item).or_else(|| self.take_unready())
    }

    /// One that cannot be used yet.
    fn take_unready(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|kept| kept.item)
    }

    fn take(&mut self, now: u64) -> Option<Kept<T>> {
        while self.waiting.front().is_some_and(|kept| kept.ready_at <= now) {
            self.ready.extend(self.waiting.pop_front());
        }
        loop {
            let kept = self.ready.pop()?;
            if now < kept.expires_at {
                return Some(kept);
            }
        }
    }

    /// Removes the items that have expired at `now` or that `keep` rejects, and returns them.
    fn sweep(&mut self, now: u64, keep: impl Fn(&mut T) -> bool) -> Vec<T> {
        let all: Vec<_> = self.ready.drain(..).chain(self.waiting.drain(..)).collect();
        let mut removed = Vec::new();
        for mut kept in all {
            if kept.expires_at <= now || !keep(&mut kept.item) {
                removed.push(kept.item);
            } else {
                self.put(kept, now);
            }
        }
        removed
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty()
    }
}

impl<T> Default for IdleQueue<T> {
    fn default() -> Self {
        Self { ready: Vec::new(), waiting: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(queue: &mut IdleQueue<usize>, now: u64) -> Option<usize> {
        queue.take(now).map(|kept| kept.item)
    }

    fn kept(item: usize, ready_at: u64, expires_at: u64) -> Kept<usize> {
        Kept { item, since: 0, ready_at, expires_at }
    }

    #[test]
    fn last_item_is_taken_first() {
        let mut queue = IdleQueue::default();
        for item in 0..3 {
            assert_eq!(queue.put(kept(item, 5, 100), 5), None);
        }
        assert_eq!([(); 4].map(|()| take(&mut queue, 5)), [Some(2), Some(1), Some(0), None]);
        assert!(queue.is_empty());
    }

    #[test]
    fn item_is_taken_only_between_ready_and_expired() {
        let mut queue = IdleQueue::default();
        for (now, expected) in [(9, None), (10, Some(1)), (19, Some(1)), (20, None)] {
            queue.put(kept(1, 10, 20), 0);
            assert_eq!(take(&mut queue, now), expected, "at {now}");
            queue = IdleQueue::default();
        }
        // One that is ready later does not hide one that is ready.
        queue.put(kept(1, 15, 20), 0);
        queue.put(kept(2, 10, 20), 0);
        assert_eq!((take(&mut queue, 10), take(&mut queue, 10)), (Some(2), None));
        queue = IdleQueue::default();
        // An expired item does not hide one that is not.
        queue.put(kept(1, 0, 20), 0);
        queue.put(kept(2, 0, 10), 0);
        assert_eq!(take(&mut queue, 15), Some(1));
    }

    #[test]
    fn items_beyond_the_maximum_are_returned() {
        let mut queue = IdleQueue::default();
        for item in 0..MAX_READY {
            assert_eq!(queue.put(kept(item, 0, 9), 0), None);
        }
        assert_eq!(queue.put(kept(MAX_READY, 0, 9), 0), Some(MAX_READY));
        for item in 0..MAX_WAITING {
            assert_eq!(queue.put(kept(item, 5, 9), 0), None);
        }
        assert_eq!(queue.put(kept(MAX_WAITING, 5, 9), 0), Some(MAX_WAITING));
    }

    #[tokio::test]
    async fn connection_in_use_all_the_time_rests() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (_accepted, _) = listener.accept().await.unwrap();
        let connections = IdleConnections::new("api".into());
        let server = Endpoint { address, host: None, generation: 0 };
        let put = |stream, run, now| {
            let request_id = RequestId::new();
            let idle = Idle { stream, request_id, body: Body::Some, run };
            connections.put(&server, idle, Duration::from_secs(60), now);
        };
        let (mut stream, mut run, mut now) =
            (Transport::clear(stream, connections.gate().open()), Run::new(0), 0);
        let second = MICROS_PER_SECOND;
        // Each request takes 0.6 s.
        while !run.is_over(now) {
            (stream, run) = {
                put(stream, run.add(600_000), now);
                connections.take(&server, now + 1).unwrap()
            };
            now += 600_000;
        }
        assert!(now <= 5 * second + 600_000);
        put(stream, run, now);
        assert!(connections.take(&server, now + 1_199_999).is_none());
        let (stream, run) = connections.take(&server, now + 1_200_000).unwrap();
        assert_eq!(run, Run::new(now + 1_200_000));
        // One that was idle for long enough has rested, too.
        now += 2 * second;
        put(stream, run, now);
        now += 20 * second;
        assert_eq!(connections.take(&server, now).unwrap().1, Run::new(now));
    }

    #[test]
    fn sweep_removes_expired_and_rejected_items() {
        let mut queue = IdleQueue::default();
        for (item, ready_at, expires_at) in
            [(1, 0, 10), (2, 0, 11), (3, 5, 10), (4, 5, 11), (5, 5, 11)]
        {
            queue.put(kept(item, ready_at, expires_at), 0);
        }
        assert_eq!(queue.sweep(10, |item| *item != 5), [1, 3, 5]);
        assert_eq!([(); 3].map(|()| take(&mut queue, 10)), [Some(4), Some(2), None]);
    }
}
