//! How far the head of the next request on a connection has been read.
//!
//! Pingora 0.9.1 bounds the time between two reads only, so a client could send a head for hours. With HTTP/2 it
//! bounds nothing.

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

/// Bounds the time of a head, from its first byte. A head that one read returns needs no timer. With HTTP/2, the
/// same for the header of every frame, and for frames other than DATA.
#[derive(Debug)]
pub(super) struct HeadTimer {
    timeout: Duration,
    /// `None` for HTTP/1.
    frames: Option<Frames>,
    begun: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
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

    /// Begins to read the next head, of which a part may have been read together with the request before.
    pub(super) fn carry(&self) {
        self.0.store(CARRIED, Ordering::Relaxed);
    }

    /// Whether nothing of the next head has been read.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WAITING
    }

    /// Whether a head has been read, and its request is being served.
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WHOLE
    }

    /// Whether a head did not arrive in time.
    pub(super) fn has_timed_out(&self) -> bool {
        self.0.load(Ordering::Relaxed) == TIMED_OUT
    }
}

impl HeadTimer {
    pub(super) fn new(timeout: Duration, protocol: ClientProtocol) -> Self {
        let frames = match protocol {
            ClientProtocol::Http1 => None,
            ClientProtocol::Http2 => Some(Frames::new()),
        };
        Self { timeout, frames, begun: None, sleep: None }
    }

    /// Notes that these bytes have been read.
    pub(super) fn note_read(&mut self, progress: &HeadProgress, bytes: &[u8]) {
        if let Some(frames) = &mut self.frames {
            match frames.read(bytes) {
                Unfinished::Nothing => self.restart(None),
                Unfinished::New => self.restart(Some(Instant::now())),
                Unfinished::Same => {}
            }
        } else if matches!(progress.0.load(Ordering::Relaxed), WAITING | CARRIED) {
            self.begin(progress);
        }
    }

    fn begin(&mut self, progress: &HeadProgress) {
        progress.0.store(BEGUN, Ordering::Relaxed);
        self.restart(Some(Instant::now()));
    }

    /// Bytes of an incomplete DATA frame.
    pub(super) fn unfinished_data(&self) -> usize {
        self.frames.map_or(0, |frames| frames.unfinished_data())
    }

    fn restart(&mut self, begun: Option<Instant>) {
        self.begun = begun;
        self.sleep = None;
    }

    /// Is ready once the time is over. Called when no bytes can be read.
    pub(super) fn poll(&mut self, progress: &HeadProgress, context: &mut Context<'_>) -> Poll<()> {
        if progress.0.load(Ordering::Relaxed) == CARRIED {
            self.begin(progress);
        }
        let is_counted = self.frames.is_some() || progress.0.load(Ordering::Relaxed) == BEGUN;
        let Some(begun) = self.begun.filter(|_| is_counted) else {
            self.sleep = None;
            return Poll::Pending;
        };
        let deadline = begun + self.timeout;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(sleep.as_mut().poll(context));
        progress.0.store(TIMED_OUT, Ordering::Relaxed);
        Poll::Ready(())
    }
}
