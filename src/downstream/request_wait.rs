//! How long an HTTP/1 connection waits for its next request.
//!
//! What ends the wait is registered once for a connection: registering it for each request costs
//! several reads of the clock, locks and allocations.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pingora::server::ShutdownWatch;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::ConnectionInfo;
use crate::runtime::drain::Draining;

/// Ends the waits of one connection for requests.
pub(super) struct RequestWait {
    connection: Arc<ConnectionInfo>,
    draining: Draining,
    drain: Drain,
    /// `None` before the first wait. Ends not later than the longest wait that it was set for.
    timer: Option<Pin<Box<Sleep>>>,
    set_for: Duration,
}

/// Whether the process drains.
enum Drain {
    /// Not yet: the future completes when it does.
    Awaited(Pin<Box<dyn Future<Output = ()> + Send>>),
    Begun,
}

impl RequestWait {
    pub(super) fn new(
        connection: Arc<ConnectionInfo>,
        shutdown: &ShutdownWatch,
        draining: Draining,
    ) -> Self {
        let mut shutdown = shutdown.clone();
        let begins = async move {
            // An error means that the server has ended.
            let _ = shutdown.wait_for(|is_draining| *is_draining).await;
        };
        let drain = Drain::Awaited(Box::pin(begins));
        Self { connection, draining, drain, timer: None, set_for: Duration::MAX }
    }

    /// Is ready when the connection has been idle for `longest`, or for a shorter time if the
    /// process drains.
    pub(super) fn poll_end(&mut self, longest: Duration, context: &mut Context<'_>) -> Poll<()> {
        if let Drain::Awaited(begins) = &mut self.drain
            && begins.as_mut().poll(context).is_ready()
        {
            self.drain = Drain::Begun;
        }
        let longest = match self.drain {
            Drain::Awaited(_) => longest,
            Drain::Begun => longest.min(self.draining.linger()),
        };
        if self.set_for > longest {
            self.timer = None;
        }
        loop {
            let left = || longest.saturating_sub(self.connection.idle_time());
            let timer = self.timer.get_or_insert_with(|| {
                self.set_for = longest;
                Box::pin(sleep(left()))
            });
            ready!(timer.as_mut().poll(context));
            // It may have been set for an earlier wait.
            let left = left();
            if left.is_zero() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + left);
            self.set_for = longest;
        }
    }
}
