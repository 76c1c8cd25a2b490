//! Whether a client reads its responses too slowly.
//!
//! The kernel buffers megabytes, and accepts more only after the client has read a large part of
//! them. So the time in which the kernel accepts nothing counts as waiting for the client, but the
//! bytes that count are those that the client's kernel has acknowledged.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::base::clock;
use crate::net::rate::RateMeter;
use crate::net::socket::Socket;

/// Bounds the slowness of the client of one connection.
#[derive(Debug)]
pub(super) struct SendGuard {
    /// `None`: any rate will do, or it cannot be measured.
    min_rate: Option<NonZeroU64>,
    /// `None`: the kernel has always accepted what was to be sent.
    blocked: Option<Box<Blocked>>,
}

/// A connection whose kernel has not accepted all bytes at once.
#[derive(Debug)]
struct Blocked {
    meter: RateMeter,
    /// Bytes that the client had acknowledged when they were last counted.
    acknowledged: u64,
    /// Wakes the task not later than the client is too slow.
    timer: Option<Pin<Box<Sleep>>>,
}

impl SendGuard {
    /// Requires this rate, in bytes a second; `None`: any.
    pub(super) fn new(min_rate: Option<NonZeroU64>) -> Self {
        Self { min_rate, blocked: None }
    }

    /// Notes that the kernel has accepted bytes.
    pub(super) fn note_accepted(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.meter.pause(clock::now());
        }
    }

    /// Is ready once the client is too slow. Called when the kernel accepts no bytes.
    pub(super) fn poll_slow(&mut self, socket: &Socket, context: &mut Context<'_>) -> Poll<()> {
        let Some(min_rate) = self.min_rate else { return Poll::Pending };
        let Some(acknowledged) = self
            .blocked
            .as_ref()
            .map_or_else(|| socket.acknowledged_bytes(), |blocked| Some(blocked.acknowledged))
        else {
            // A Unix socket, or an old kernel. `server.write_timeout` bounds each write.
            self.min_rate = None;
            return Poll::Pending;
        };
        let blocked = self.blocked.get_or_insert_with(|| {
            Box::new(Blocked { meter: RateMeter::new(min_rate), acknowledged, timer: None })
        });
        blocked.poll_slow(socket, context)
    }
}

impl Blocked {
    fn poll_slow(&mut self, socket: &Socket, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = clock::now();
            self.meter.wait(now);
            if self.meter.is_too_slow(now) {
                self.count(socket, now);
            }
            let Some(deadline) = self.meter.deadline() else { return Poll::Pending };
            if now >= deadline {
                return Poll::Ready(());
            }
            let left = Duration::from_micros(deadline - now);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(left)));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
    }

    /// Counts what the client has read since the last call.
    fn count(&mut self, socket: &Socket, now: u64) {
        let acknowledged = socket.acknowledged_bytes().unwrap_or(self.acknowledged);
        self.meter.note(now, acknowledged.saturating_sub(self.acknowledged));
        self.acknowledged = acknowledged;
    }
}
