//! Connections with bytes of responses that the kernel does not accept yet, because the client
//! reads slowly.
//!
//! HTTP/2 queues the end of a response, so its request can be complete before the response is
//! written. The drain waits for such connections, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts such connections. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Unwritten(Arc<AtomicUsize>);

/// Counts one connection while its last write was not complete.
#[derive(Debug)]
pub(super) struct WriteProgress {
    unwritten: Unwritten,
    is_counted: bool,
}

impl Unwritten {
    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl WriteProgress {
    pub(super) fn new(unwritten: Unwritten) -> Self {
        Self { unwritten, is_counted: false }
    }

    /// Notes whether a write or flush has to be continued. Returns whether that has changed.
    pub(super) fn note(&mut self, is_pending: bool) -> bool {
        if is_pending == self.is_counted {
            return false;
        }
        self.is_counted = is_pending;
        if is_pending {
            self.unwritten.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.unwritten.0.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for WriteProgress {
    fn drop(&mut self) {
        self.note(false);
    }
}
