//! Pauses the accepting of connections while the buckets in memory are handed over to another
//! process: a request that this process decides after that would not be counted there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use tokio::sync::watch;

use super::open::OpenConnections;
use crate::base::clock;
use crate::base::duration::micros;

/// Whether the listeners accept connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Intake(Arc<Shared>);

/// The listeners accept no connections until it is dropped.
#[derive(Debug)]
pub struct Paused(Option<Intake>);

#[derive(Debug)]
struct Shared {
    is_paused: watch::Sender<bool>,
    /// Listeners that accept connections now.
    accepting: AtomicUsize,
    open: OpenConnections,
}

/// A listener that accepts a connection.
pub(super) struct Accepting<'a>(&'a Intake);

/// Interval at which [`Intake::pause`] looks.
const POLL: Duration = Duration::from_millis(1);

impl Intake {
    /// Creates one for the listeners that add their connections to `open`.
    pub fn new(open: OpenConnections) -> Self {
        let is_paused = watch::Sender::default();
        Self(Arc::new(Shared { is_paused, accepting: AtomicUsize::new(0), open }))
    }

    /// Stops the listeners; connections then wait in the backlog of their sockets. Blocks until the
    /// first request of each connection that was accepted before has been decided, or `longest` has
    /// passed. Connections that have been idle for `idle` are not waited for.
    #[allow(
        clippy::disallowed_methods,
        reason = "on the thread of an upgrade, which serves nothing"
    )]
    pub fn pause(&self, longest: Duration, idle: Duration) -> Paused {
        let Shared { is_paused, accepting, open } = &*self.0;
        is_paused.send_replace(true);
        let paused = Paused(Some(self.clone()));
        let ends = clock::now().saturating_add(micros(longest));
        // Either this sees a listener as accepting, or the listener sees the pause.
        fence(Ordering::SeqCst);
        let is_quiet = || {
            let idle_before = clock::now().saturating_sub(micros(idle));
            accepting.load(Ordering::SeqCst) == 0 && open.undecided(idle_before) == 0
        };
        while !is_quiet() && clock::now() < ends {
            std::thread::sleep(POLL);
        }
        paused
    }

    /// Completes when connections may be accepted. Add the connection to the table of open ones
    /// before the result is dropped.
    pub(super) async fn begin(&self) -> Accepting<'_> {
        loop {
            self.until(false).await;
            self.0.accepting.fetch_add(1, Ordering::SeqCst);
            let accepting = Accepting(self);
            fence(Ordering::SeqCst);
            if !*self.0.is_paused.borrow() {
                return accepting;
            }
        }
    }

    /// Completes when no more connections may be accepted.
    pub(super) async fn paused(&self) {
        self.until(true).await;
    }

    async fn until(&self, wanted: bool) {
        // The sender exists as long as `self`.
        let _ = self.0.is_paused.subscribe().wait_for(|is_paused| *is_paused == wanted).await;
    }
}

impl Paused {
    /// Accepts no connections any more.
    pub fn forever(mut self) {
        self.0 = None;
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(Intake(shared)) = &self.0 {
            shared.is_paused.send_replace(false);
        }
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        self.0.0.accepting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pause_waits_for_listeners_and_first_decisions() {
        let open = OpenConnections::default();
        let intake = Intake::new(open.clone());
        let accepting = intake.begin().await;
        let entry = open.add(10).unwrap();
        let pausing = tokio::task::spawn_blocking({
            let intake = intake.clone();
            move || intake.pause(Duration::from_secs(60), Duration::from_secs(60))
        });
        intake.paused().await;
        drop(accepting);
        assert!(!pausing.is_finished());
        entry.note_decided();
        let paused = pausing.await.unwrap();
        let begin = intake.begin();
        tokio::pin!(begin);
        assert!(futures_util::poll!(&mut begin).is_pending());
        drop(paused);
        drop(begin.await);
        let undecided = open.add(10).unwrap();
        // It does not wait for longer.
        intake.pause(Duration::ZERO, Duration::ZERO).forever();
        intake.paused().await;
        drop(undecided);
    }
}
