//! What is known of one connection: written by requests and by its stream, read by its supervisor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::watch::{Outcome, Reason};

/// So many bytes are read without a single call answered before the other side is taken for
/// something else than Redis. A full batch is answered in some kilobytes.
const MAX_UNASKED_BYTES: usize = 1 << 20;

/// The condition of one connection. It dies with the connection, so that late news of an old one
/// cannot be held against a new one.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Whether a call was answered since the supervisor looked last.
    answered: AtomicBool,
    /// Bytes read since a call was answered.
    unasked_bytes: AtomicUsize,
    /// Why it must be replaced, once it must.
    broken: OnceLock<Reason>,
    /// Wakes the supervisor when it must.
    wake: Notify,
}

impl Health {
    /// Notes what became of a call.
    pub(super) fn note(&self, outcome: Outcome) {
        if outcome == Outcome::Answered {
            // The common case writes to shared memory only where that changes something.
            if !self.answered.load(Ordering::Relaxed) {
                self.answered.store(true, Ordering::Relaxed);
            }
            if self.unasked_bytes.load(Ordering::Relaxed) != 0 {
                self.unasked_bytes.store(0, Ordering::Relaxed);
            }
            return;
        }
        if let Some(reason) = outcome.replaces() {
            self.give_up(reason);
        }
    }

    /// Notes that so many bytes came in; an error when they are more than any call asks for.
    pub(super) fn note_bytes(&self, count: usize) -> std::io::Result<()> {
        let before = self.unasked_bytes.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) <= MAX_UNASKED_BYTES {
            return Ok(());
        }
        self.give_up(Reason::Flood);
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "a reply beyond 1 MiB"))
    }

    /// From now on nobody uses the connection.
    pub(super) fn give_up(&self, reason: Reason) {
        // Only the first reason counts: the others mostly follow from it.
        let _ = self.broken.set(reason);
        self.wake.notify_one();
    }

    /// Why it must be replaced; none while it need not.
    pub(super) fn broken(&self) -> Option<Reason> {
        self.broken.get().copied()
    }

    /// Waits until it must be replaced.
    pub(super) async fn until_broken(&self) -> Reason {
        loop {
            if let Some(reason) = self.broken() {
                return reason;
            }
            self.wake.notified().await;
        }
    }

    /// Whether a call was answered since this was asked last.
    pub(super) fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }
}
