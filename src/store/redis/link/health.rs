//! State of one connection: written by requests and by its stream, read by the supervisor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::watch::{CallResult, Reason};

/// Maximum number of bytes that are read before a call is answered. A peer that sends more is not
/// Redis: the reply to a full batch has some kilobytes.
const MAX_UNANSWERED_BYTES: usize = 1 << 20;

/// State of one connection. A new connection has a new one, so that late results of an old
/// connection do not count for it.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Whether a call was answered since the last check of the supervisor.
    answered: AtomicBool,
    /// Bytes read since a call was answered.
    unanswered_bytes: AtomicUsize,
    /// Reason to replace the connection.
    broken: OnceLock<Reason>,
    /// Wakes the supervisor to replace it.
    wake: Notify,
}

impl Health {
    /// Records the result of a call.
    pub(super) fn note(&self, outcome: CallResult) {
        if outcome == CallResult::Answered {
            // The common case writes to shared memory only if that changes a value.
            if !self.answered.load(Ordering::Relaxed) {
                self.answered.store(true, Ordering::Relaxed);
            }
            if self.unanswered_bytes.load(Ordering::Relaxed) != 0 {
                self.unanswered_bytes.store(0, Ordering::Relaxed);
            }
            return;
        }
        if let Some(reason) = outcome.replaces() {
            self.give_up(reason);
        }
    }

    /// Records that `count` bytes were read. An error if they exceed [`MAX_UNANSWERED_BYTES`].
    pub(super) fn note_bytes(&self, count: usize) -> std::io::Result<()> {
        let before = self.unanswered_bytes.fetch_add(count, Ordering::Relaxed);
        if before.saturating_add(count) <= MAX_UNANSWERED_BYTES {
            return Ok(());
        }
        self.give_up(Reason::ReplyTooLarge);
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "a reply beyond 1 MiB"))
    }

    /// Marks the connection as broken: it is not used any more.
    pub(super) fn give_up(&self, reason: Reason) {
        // The first reason counts: later ones usually follow from it.
        let _ = self.broken.set(reason);
        self.wake.notify_one();
    }

    /// Reason to replace it; `None` while it works.
    pub(super) fn broken(&self) -> Option<Reason> {
        self.broken.get().copied()
    }

    /// Waits until it has to be replaced.
    pub(super) async fn until_broken(&self) -> Reason {
        loop {
            if let Some(reason) = self.broken() {
                return reason;
            }
            self.wake.notified().await;
        }
    }

    /// Whether a call was answered since the previous call of this function.
    pub(super) fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }
}
