//! How far the head of the next request on a connection has been read.
//!
//! Pingora 0.9.1 bounds the time between two reads only, so a client could send a head for hours.
//! With HTTP/2 it bounds nothing. It keeps up to 1 MiB of a head, and parses all of it again after
//! each read.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::ClientProtocol;
use super::frames::{Frames, Unfinished};

/// Shared by the connection and its requests.
#[derive(Debug, Default)]
pub struct HeadProgress(AtomicU8);

/// Nothing of the next head has been read.
const WAITING: u8 = 0;
/// A part of it may have been read, together with the request before.
const CARRIED: u8 = 1;
/// A part of it has been read.
const BEGUN: u8 = 2;
/// It has been read.
const WHOLE: u8 = 3;
/// Its time is over.
const TIMED_OUT: u8 = 4;
/// It is longer than the limit.
const TOO_LARGE: u8 = 5;

/// The limits of the head of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    /// From its first byte to its last.
    pub(super) timeout: Duration,
    /// Bytes that are read of it with HTTP/1. The limits above which requests get 431 or 414 are
    /// lower.
    pub(super) max_bytes: usize,
}

/// Bounds the time of a head, from its first byte. A head that one read returns needs no timer.
/// With HTTP/2, the same for the header of every frame, and for frames other than DATA.
#[derive(Debug)]
pub(super) struct HeadTimer {
    limits: HeadLimits,
    /// Bytes that have been read since the head began.
    bytes: usize,
    /// `None` for HTTP/1.
    frames: Option<Frames>,
    time: Time,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The time of a head.
#[derive(Clone, Copy, Debug)]
enum Time {
    Stopped,
    /// It begins when the rest of the head is waited for: the clock need not be read for a head
    /// that one read returns.
    Begins,
    Since(Instant),
}

impl HeadProgress {
    /// Notes that the head of a request has been read.
    pub fn note_whole(&self) {
        self.0.fetch_max(WHOLE, Ordering::Relaxed);
    }

    /// Begins to wait for the next head.
    pub(super) fn expect(&self) {
        self.0.store(WAITING, Ordering::Relaxed);
    }

    /// Begins to read the next head, of which a part may have been read together with the request
    /// before.
    pub(super) fn carry(&self) {
        self.0.store(CARRIED, Ordering::Relaxed);
    }

    /// Whether nothing of the next head has been read.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WAITING
    }

    /// Whether a part of the next head has been read, and not all of it.
    pub(super) fn is_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BEGUN
    }

    /// Whether a head has been read, and its request is being served.
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WHOLE
    }

    /// Whether a head was longer than the limit.
    pub(super) fn was_too_large(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TOO_LARGE
    }

    /// Whether a head did not arrive in time.
    pub(super) fn has_timed_out(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TIMED_OUT
    }
}

impl HeadTimer {
    pub(super) fn new(limits: HeadLimits, protocol: ClientProtocol) -> Self {
        let frames = match protocol {
            ClientProtocol::Http1 => None,
            ClientProtocol::Http2 => Some(Frames::new()),
        };
        Self { limits, bytes: 0, frames, time: Time::Stopped, sleep: None }
    }

    /// Notes that these bytes have been read.
    pub(super) fn note_read(&mut self, progress: &HeadProgress, bytes: &[u8]) {
        if let Some(frames) = &mut self.frames {
            match frames.read(bytes) {
                Unfinished::Nothing => self.restart(Time::Stopped),
                Unfinished::New => self.restart(Time::Begins),
                Unfinished::Same => {}
            }
        } else if matches!(progress.0.load(Ordering::Relaxed), WAITING | CARRIED) {
            self.begin(progress);
        }
        self.bytes = self.bytes.saturating_add(bytes.len());
    }

    /// Whether the head that is being read is too long to be read further. The bytes of a body do
    /// not count: a read that returned any has ended the head.
    pub(super) fn is_too_large(&self, progress: &HeadProgress) -> bool {
        let is_head = progress.0.load(Ordering::Relaxed) == BEGUN && self.frames.is_none();
        if !is_head || self.bytes <= self.limits.max_bytes {
            return false;
        }
        progress.0.store(TOO_LARGE, Ordering::Relaxed);
        true
    }

    fn begin(&mut self, progress: &HeadProgress) {
        progress.0.store(BEGUN, Ordering::Relaxed);
        self.bytes = 0;
        self.restart(Time::Begins);
    }

    /// Bytes of an incomplete DATA frame.
    pub(super) fn unfinished_data(&self) -> usize {
        self.frames.map_or(0, |frames| frames.unfinished_data())
    }

    fn restart(&mut self, time: Time) {
        self.time = time;
        self.sleep = None;
    }

    /// Is ready once the time is over. Called when no bytes can be read.
    pub(super) fn poll(&mut self, progress: &HeadProgress, context: &mut Context<'_>) -> Poll<()> {
        if progress.0.load(Ordering::Relaxed) == CARRIED {
            self.begin(progress);
        }
        let is_counted = self.frames.is_some() || progress.0.load(Ordering::Relaxed) == BEGUN;
        let begun = match self.time {
            Time::Since(begun) if is_counted => begun,
            Time::Begins if is_counted => Instant::now(),
            _ => {
                self.sleep = None;
                return Poll::Pending;
            }
        };
        self.time = Time::Since(begun);
        let deadline = begun + self.limits.timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(sleep.as_mut().poll(context));
        progress.0.store(TIMED_OUT, Ordering::Relaxed);
        Poll::Ready(())
    }
}
