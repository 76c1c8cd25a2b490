//! What a process that drains waits for. By default, Pingora sleeps for its whole grace period.

use std::time::Duration;

use prometheus::IntGauge;

use crate::downstream::open::OpenConnections;
use crate::downstream::unwritten::Unwritten;

/// What the process waits for while it drains.
pub struct Busy {
    /// Requests that are being served.
    pub in_flight: IntGauge,
    /// Copies of requests that a second upstream gets.
    pub mirrored: IntGauge,
    /// Connections with the end of a response that is not written yet.
    pub unwritten: Unwritten,
    /// Client connections.
    pub open: OpenConnections,
}

/// Interval at which the requests in flight are counted while draining.
const POLL: Duration = Duration::from_millis(10);

/// How long no request must have been in flight before draining is complete: a request whose head
/// is being read is not counted yet.
const QUIET: Duration = Duration::from_millis(50);

/// The same while connections are open: their clients may be about to send a request, or have not
/// received GOAWAY yet.
const QUIET_CONNECTIONS: Duration = Duration::from_secs(2);

impl Busy {
    /// Number of requests in flight, of their copies, or of connections whose response is not
    /// written: the largest of these.
    fn count(&self) -> i64 {
        let unwritten = i64::try_from(self.unwritten.count()).unwrap_or(i64::MAX);
        self.in_flight.get().max(self.mirrored.get()).max(unwritten)
    }

    /// Blocks until no request has been in flight for 50 ms, all responses are written and all
    /// connections are closed, or `drain_timeout` has passed. Connections without a request are
    /// waited for `linger` and 2 s. Returns how many requests are left.
    #[allow(
        clippy::disallowed_methods,
        reason = "runs on the main thread, which serves no requests"
    )]
    pub fn wait_until_idle(&self, drain_timeout: Duration, linger: Duration) -> i64 {
        let mut waited = Duration::ZERO;
        let mut quiet = Duration::ZERO;
        while waited < drain_timeout {
            let needed = if self.open.count() == 0 { QUIET } else { linger + QUIET_CONNECTIONS };
            if quiet >= needed {
                break;
            }
            std::thread::sleep(POLL);
            waited += POLL;
            quiet = if self.count() == 0 { quiet + POLL } else { Duration::ZERO };
        }
        self.count()
    }
}
