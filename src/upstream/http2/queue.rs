//! The requests that wait for a new connection over HTTP/2 to one server, and the connections that
//! are being opened for them: as many as have places for all.
//!
//! No request that could go on is left waiting: one that leaves, for any reason, wakes the next. If
//! that one has to wait again, a connection is being opened, whose end wakes it.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::upstream::gate::Gate;

#[derive(Debug, Default)]
pub(super) struct Queue {
    counts: Mutex<Counts>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    /// Requests without a connection, those that open one, too.
    waiting: usize,
    /// Connections that are being opened, without those that take long.
    opening: usize,
}

impl Counts {
    /// Whether those that are being opened, with this many places each, are too few.
    fn lacks_one(&self, places: usize) -> bool {
        self.waiting > self.opening.saturating_mul(places)
    }
}

/// A request in the queue, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Queue>);

/// A connection that is being opened and will have places for others, until it is dropped.
#[derive(Debug)]
pub(super) struct Opening {
    queue: Arc<Queue>,
    gate: Arc<Gate>,
    server: SocketAddr,
}

/// What a request in the queue does.
#[derive(Debug)]
pub(super) enum Turn<T> {
    /// It waits for a connection that another one opens.
    Waits,
    /// It opens a connection.
    Opens(T, Opening),
    /// A connection is needed, and it cannot open one.
    Cannot,
}

impl Queue {
    /// Wakes a request.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }
}

impl Waiting {
    /// A request that begins to wait.
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        queue.counts.lock().waiting += 1;
        Self(Arc::clone(queue))
    }

    pub(super) fn is_in(&self, queue: &Arc<Queue>) -> bool {
        Arc::ptr_eq(&self.0, queue)
    }

    /// Ends when the request is woken, also by an event between this call and the first poll.
    pub(super) fn woken(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    /// Decides whether the request opens a connection to `server`, for which `prepare` returns what
    /// is needed. A connection of this server has this many places.
    pub(super) fn turn<T>(
        &self,
        places: usize,
        (gate, server): (&Arc<Gate>, SocketAddr),
        prepare: impl FnOnce() -> Option<T>,
    ) -> Turn<T> {
        let queue = &self.0;
        let mut counts = queue.counts.lock();
        if !counts.lacks_one(places) {
            return Turn::Waits;
        }
        let Some(prepared) = prepare() else {
            // Those that wait for a connection that failed cannot open one either.
            queue.wake();
            return Turn::Cannot;
        };
        counts.opening += 1;
        Turn::Opens(prepared, Opening { queue: Arc::clone(queue), gate: Arc::clone(gate), server })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.counts.lock().waiting -= 1;
        self.0.wake();
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.queue.counts.lock().opening -= 1;
        self.queue.wake();
        self.gate.note_free(Some(self.server));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn turn(request: &Waiting, gate: &Arc<Gate>, places: usize) -> Turn<()> {
        request.turn(places, (gate, SERVER), || Some(()))
    }

    #[test]
    fn as_many_connections_are_opened_as_have_places_for_all() {
        for (requests, places, expected) in [(1, 100, 1), (100, 100, 1), (101, 100, 2), (7, 1, 7)] {
            let (queue, gate) = (Arc::default(), Arc::default());
            let all: Vec<_> = (0..requests).map(|_| Waiting::new(&queue)).collect();
            let turns: Vec<_> = all.iter().map(|request| turn(request, &gate, places)).collect();
            let opens = turns.iter().filter(|turn| matches!(turn, Turn::Opens(..))).count();
            assert_eq!(opens, expected, "{requests} {places}");
            assert!(!turns.iter().any(|turn| matches!(turn, Turn::Cannot)));
        }
    }

    #[test]
    fn another_request_opens_one_after_a_failure() {
        let (queue, gate) = (Arc::default(), Arc::default());
        let [first, second] = [(), ()].map(|()| Waiting::new(&queue));
        let opening = turn(&first, &gate, 100);
        assert!(
            matches!(opening, Turn::Opens(..)) && matches!(turn(&second, &gate, 100), Turn::Waits)
        );
        drop(opening);
        drop(first);
        assert!(matches!(turn(&second, &gate, 100), Turn::Opens(..)));
    }

    #[tokio::test]
    async fn request_that_leaves_wakes_the_next() {
        let (queue, gate): (Arc<Queue>, _) = (Arc::default(), Arc::default());
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (request, gate) = (Waiting::new(&queue), Arc::clone(&gate));
                tokio::spawn(async move {
                    loop {
                        let woken = request.woken();
                        match request.turn(100, (&gate, SERVER), || Some(())) {
                            Turn::Waits => woken.await,
                            Turn::Opens(..) | Turn::Cannot => break,
                        }
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let all = futures_util::future::join_all(tasks);
        tokio::time::timeout(std::time::Duration::from_secs(20), all).await.unwrap();
        let counts = queue.counts.lock();
        assert_eq!((counts.waiting, counts.opening), (0, 0));
    }

    #[test]
    fn request_that_cannot_open_one_holds_no_turn() {
        let (queue, gate) = (Arc::default(), Arc::default());
        let [first, second] = [(), ()].map(|()| Waiting::new(&queue));
        assert!(matches!(first.turn(100, (&gate, SERVER), || None::<()>), Turn::Cannot));
        assert!(matches!(turn(&second, &gate, 100), Turn::Opens(..)));
    }
}
