//! The open connections to the servers of one upstream, and the requests that wait for one while
//! there are as many as `max_connections` allows.
//!
//! A connection is counted by its [`Permit`] from before it is opened until it is dropped, used or
//! idle. Requests without a limit are counted, but never wait.
//!
//! No request that could go on is left waiting: an event wakes one request, or finds that all who
//! could use it are awake; one that is awake tries, and whenever one leaves, for any reason, it
//! wakes the next.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::policy::settings::MaxConnections;

#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Open connections, and those that are being opened.
    open: AtomicU32,
    /// Length of `queue`, so that nothing is locked while no request waits.
    waiting: AtomicU32,
    /// Requests that wait for a connection, in the order of their arrival.
    queue: Mutex<VecDeque<Arc<Waiter>>>,
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Gate>);

/// As many requests wait for a connection as may.
#[derive(Debug)]
pub(crate) struct Full;

/// A request that waits.
#[derive(Debug)]
struct Waiter {
    server: SocketAddr,
    /// It is about to try. Changed while the queue is locked.
    is_awake: AtomicBool,
    wake: Notify,
}

/// The place of a request in the queue, until it is dropped.
struct Waiting<'a> {
    gate: &'a Gate,
    waiter: Arc<Waiter>,
}

impl Gate {
    /// Counts a connection.
    pub(super) fn open(self: &Arc<Self>) -> Permit {
        self.open.fetch_add(1, Ordering::AcqRel);
        Permit(Arc::clone(self))
    }

    /// Counts a connection, unless as many as `most` are open.
    pub(super) fn try_open(self: &Arc<Self>, most: u32) -> Option<Permit> {
        let one_more = |open: u32| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Permit(Arc::clone(self)))
    }

    /// Open connections, and requests that wait for one.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.open.load(Ordering::Relaxed), self.waiting.load(Ordering::Relaxed))
    }

    /// Wakes a request that waits, after a connection to `server` was closed, or can be used or
    /// closed by another request: the first one for that server, else the first one.
    pub(super) fn note_free(&self, server: Option<SocketAddr>) {
        // The request that begins to wait tries after a fence, too: one of both sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            wake(&self.queue.lock(), server);
        }
    }

    /// Waits until `take` returns a connection to `server`, or a permit for one. Requests for that
    /// server that came earlier are first. Takes as long as they do.
    ///
    /// # Errors
    /// As many requests wait as `max` allows.
    pub(super) async fn acquire<T>(
        &self,
        server: SocketAddr,
        max: MaxConnections,
        mut take: impl FnMut() -> Option<T>,
    ) -> Result<T, Full> {
        if self.waiting.load(Ordering::Acquire) == 0
            && let Some(taken) = take()
        {
            return Ok(taken);
        }
        let waiting = self.wait(server, max.waiting).ok_or(Full)?;
        loop {
            waiting.until_woken().await;
            if let Some(taken) = take() {
                return Ok(taken);
            }
        }
    }

    /// Adds a request to those that wait, unless there are as many as `most`. It is awake if no
    /// other one waits for its server, since a connection may have become free before.
    fn wait(&self, server: SocketAddr, most: u32) -> Option<Waiting<'_>> {
        let waiter = {
            let mut queue = self.queue.lock();
            if queue.len() >= most as usize {
                return None;
            }
            let is_awake = queue.iter().all(|other| other.server != server);
            let wake = Notify::new();
            if is_awake {
                wake.notify_one();
            }
            let waiter = Arc::new(Waiter { server, is_awake: is_awake.into(), wake });
            queue.push_back(Arc::clone(&waiter));
            self.set_waiting(&queue);
            waiter
        };
        fence(Ordering::SeqCst);
        Some(Waiting { gate: self, waiter })
    }

    fn set_waiting(&self, queue: &VecDeque<Arc<Waiter>>) {
        let length = u32::try_from(queue.len()).unwrap_or(u32::MAX);
        self.waiting.store(length, Ordering::Relaxed);
    }
}

/// Wakes the first request for `server` that is not awake, else the first one.
fn wake(queue: &VecDeque<Arc<Waiter>>, server: Option<SocketAddr>) {
    let asleep = || queue.iter().filter(|waiter| !waiter.is_awake.load(Ordering::Relaxed));
    let of_server = server.and_then(|server| asleep().find(|waiter| waiter.server == server));
    if let Some(waiter) = of_server.or_else(|| asleep().next()) {
        waiter.is_awake.store(true, Ordering::Relaxed);
        waiter.wake.notify_one();
    }
}

impl Waiting<'_> {
    /// An event after it wakes the request again.
    async fn until_woken(&self) {
        self.waiter.wake.notified().await;
        let _queue = self.gate.queue.lock();
        self.waiter.is_awake.store(false, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.gate.queue.lock();
        queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        self.gate.set_waiting(&queue);
        // There may have been more events than requests that were awake.
        wake(&queue, Some(self.waiter.server));
        wake(&queue, None);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.note_free(None);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::*;

    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    const TWO: MaxConnections = MaxConnections { open: 2, waiting: 100 };

    #[tokio::test]
    async fn request_waits_until_a_connection_is_closed() {
        let gate = Arc::new(Gate::default());
        let first = gate.try_open(2).unwrap();
        let _second = gate.acquire(SERVER, TWO, || gate.try_open(2)).await.unwrap();
        assert!(gate.try_open(2).is_none());
        let waits = {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { gate.acquire(SERVER, TWO, || gate.try_open(2)).await })
        };
        tokio::task::yield_now().await;
        assert_eq!(gate.counts(), (2, 1));
        drop(first);
        let _third = waits.await.unwrap().unwrap();
        assert_eq!(gate.counts(), (2, 0));
    }

    #[tokio::test]
    async fn requests_get_a_connection_in_the_order_of_their_arrival() {
        let gate = Arc::new(Gate::default());
        let max = MaxConnections { open: 1, waiting: 100 };
        let mut held = gate.try_open(1).unwrap();
        let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..10 {
            let (gate, served) = (Arc::clone(&gate), served.clone());
            tokio::spawn(async move {
                let permit = gate.acquire(SERVER, max, || gate.try_open(1)).await.unwrap();
                served.send((number, permit)).unwrap();
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(gate.counts(), (1, 10));
        for expected in 0..10 {
            drop(held);
            let (number, permit) = order.recv().await.unwrap();
            assert_eq!(number, expected);
            held = permit;
        }
        drop(held);
    }

    #[tokio::test]
    async fn requests_beyond_the_limit_do_not_wait() {
        let gate = Arc::new(Gate::default());
        let max = MaxConnections { open: 1, waiting: 0 };
        let only = gate.acquire(SERVER, max, || gate.try_open(1)).await.unwrap();
        assert!(gate.acquire(SERVER, max, || gate.try_open(1)).await.is_err());
        drop(only);
        assert!(gate.acquire(SERVER, max, || gate.try_open(1)).await.is_ok());
        assert_eq!(gate.counts(), (0, 0));
    }

    #[tokio::test]
    async fn request_that_leaves_frees_its_place() {
        let gate = Arc::new(Gate::default());
        let _only = gate.open();
        let max = MaxConnections { open: 1, waiting: 1 };
        for _ in 0..3 {
            let wait = gate.acquire(SERVER, max, || gate.try_open(1));
            assert!(tokio::time::timeout(Duration::from_millis(2), wait).await.is_err());
            assert_eq!(gate.counts(), (1, 0));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_request_is_forgotten_and_the_limit_is_never_exceeded() {
        let gate = Arc::new(Gate::default());
        let tasks = (0..64).map(|_| {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move {
                for number in 0..200 {
                    let max = MaxConnections { open: 3, waiting: 64 };
                    let wait = gate.acquire(SERVER, max, || gate.try_open(3));
                    let permit = if number % 7 == 0 {
                        // Some leave while they wait.
                        match tokio::time::timeout(Duration::from_micros(50), wait).await {
                            Ok(permit) => permit.unwrap(),
                            Err(_) => continue,
                        }
                    } else {
                        wait.await.unwrap()
                    };
                    assert!(gate.counts().0 <= 3);
                    tokio::task::yield_now().await;
                    drop(permit);
                }
            })
        });
        let all = futures_util::future::join_all(tasks);
        for task in tokio::time::timeout(Duration::from_secs(20), all).await.unwrap() {
            task.unwrap();
        }
        assert_eq!(gate.counts(), (0, 0));
    }

    /// Places at two servers, as over HTTP/2: those of one server are of no use to requests for the
    /// other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_request_is_forgotten_while_others_wait_for_another_server() {
        let gate = Arc::new(Gate::default());
        let places = Arc::new([AtomicU32::new(3), AtomicU32::new(3)]);
        let tasks = (0..64_u16).map(|task| {
            let (gate, places) = (Arc::clone(&gate), Arc::clone(&places));
            tokio::spawn(async move {
                let places = &places[usize::from(task % 2)];
                let server = SocketAddr::new(SERVER.ip(), task % 2);
                let max = MaxConnections { open: 1, waiting: 64 };
                let take = || {
                    let one_less = |free: u32| free.checked_sub(1);
                    places.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok()
                };
                for number in 0..200 {
                    let wait = gate.acquire(server, max, take);
                    if number % 7 == 0 {
                        // Some leave while they wait.
                        match tokio::time::timeout(Duration::from_micros(50), wait).await {
                            Ok(taken) => taken.unwrap(),
                            Err(_) => continue,
                        };
                    } else {
                        wait.await.unwrap();
                    }
                    tokio::task::yield_now().await;
                    places.fetch_add(1, Ordering::AcqRel);
                    gate.note_free(Some(server));
                }
            })
        });
        let all = futures_util::future::join_all(tasks);
        for task in tokio::time::timeout(Duration::from_secs(20), all).await.unwrap() {
            task.unwrap();
        }
        assert_eq!((gate.counts(), places[0].load(Ordering::Relaxed)), ((0, 0), 3));
    }
}
