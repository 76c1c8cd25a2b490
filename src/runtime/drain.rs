//! Whether the process drains: it accepts no new connections, completes the requests in flight, and
//! ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Whether the process is draining, and why. `/ready` reports it.
#[derive(Clone, Debug, Default)]
pub struct Draining(Arc<AtomicU8>);

/// Why the process drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainCause {
    /// SIGTERM: it ends.
    Stopped,
    /// Another process has its sockets.
    Replaced,
}

/// How long an HTTP/1 connection waits for another request after its last response, while the
/// process drains. A client that sends requests without a pause then gets `Connection: close` with
/// the next response. If the connection closed at once, its request could be lost.
const LINGER: Duration = Duration::from_millis(500);

/// The same if another process serves new connections: nothing waits for this one to end.
const LINGER_REPLACED: Duration = Duration::from_secs(5);

impl Draining {
    /// Returns whether the process drains.
    pub fn is_draining(&self) -> bool {
        self.cause().is_some()
    }

    /// Returns why the process drains; `None` if it does not.
    pub fn cause(&self) -> Option<DrainCause> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(DrainCause::Stopped),
            _ => Some(DrainCause::Replaced),
        }
    }

    /// Marks the process as draining. The first cause stays.
    pub fn begin(&self, cause: DrainCause) {
        let number = match cause {
            DrainCause::Stopped => 1,
            DrainCause::Replaced => 2,
        };
        let _ = self.0.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns how long an HTTP/1 connection waits for another request while the process drains.
    pub fn linger(&self) -> Duration {
        match self.cause() {
            Some(DrainCause::Replaced) => LINGER_REPLACED,
            Some(DrainCause::Stopped) | None => LINGER,
        }
    }
}
