//! Messages to the service manager: systemd, or another one with the same protocol
//! (`NOTIFY_SOCKET`). Without one, nothing is sent.

use std::time::Duration;

use futures_util::future::BoxFuture;
use pingora::server::ShutdownWatch;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::base::background::Background;

/// Sends keep-alive messages from the threads that serve requests: if all of them are blocked, the
/// messages stop, and systemd restarts the service (`WatchdogSec`).
#[derive(Debug)]
pub struct Watchdog {
    interval: Duration,
}

/// Reports that the process serves, after its start or a reload.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the process drains before it ends.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Reports that the configuration is read again. [`ready`] must follow.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => warn!(%error, "the service manager cannot be notified"),
    }
}

/// Reports that another process is the service now.
pub fn replaced_by(process: u32) {
    send(&[NotifyState::MainPid(process)]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager cannot be notified");
    }
}

impl Watchdog {
    /// Returns a watchdog if the service manager expects one.
    pub fn find() -> Option<Self> {
        // Three messages in the time in which one is expected.
        sd_notify::watchdog_enabled().map(|limit| Self { interval: limit / 3 })
    }
}

impl Background for Watchdog {
    fn start(&self, _shutdown: ShutdownWatch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut pings = interval(self.interval.max(Duration::from_millis(1)));
            pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // Also while the process drains.
            loop {
                pings.tick().await;
                send(&[NotifyState::Watchdog]);
            }
        })
    }
}
