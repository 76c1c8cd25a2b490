//! Whether a client sends the body of a request too slowly. Times are microseconds of the monotonic
//! clock.
//!
//! Requests see a TLS record or an HTTP/2 frame once it is complete, which takes a slow client
//! longer than the time allowance of a [`RateMeter`]. So bytes also count while they arrive. And
//! while the gateway waits for the client to read the response, it does not read the body.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::rate::RateMeter;

/// What a request has to know about the bytes of its connection. Written by the connection.
#[derive(Debug, Default)]
pub struct Transfer {
    /// Bytes of a TLS record or an HTTP/2 DATA frame that is not complete.
    undelivered: AtomicU64,
    blocked: Mutex<Blocked>,
}

/// How long the kernel has not accepted bytes for the client.
#[derive(Debug, Default)]
struct Blocked {
    /// All earlier times, in microseconds.
    earlier_us: u64,
    /// `None`: it accepts them now.
    since: Option<u64>,
}

/// Measures how fast a client sends the body of one request.
#[derive(Debug)]
pub struct BodyMeter {
    rate: RateMeter,
    transfer: Arc<Transfer>,
    /// Bytes that counted before they were delivered, and were not delivered since.
    ahead: u64,
    /// The time of [`Blocked`] at the last look.
    blocked_us: u64,
}

/// Bytes around those of a body at most, in one delivered part: headers of frames and records, and
/// a part of [`OVERHEAD_SHARE`] for small frames.
const OVERHEAD_BYTES: u64 = 64;

/// See [`OVERHEAD_BYTES`].
const OVERHEAD_SHARE: u64 = 16;

impl Transfer {
    /// Notes how many bytes of an incomplete record or frame have arrived.
    pub fn note_undelivered(&self, bytes: u64) {
        self.undelivered.store(bytes, Ordering::Relaxed);
    }

    /// Notes whether the kernel accepts bytes for the client from `now` on.
    pub fn note_blocked(&self, is_blocked: bool, now: u64) {
        let mut blocked = self.blocked.lock();
        if is_blocked {
            blocked.since.get_or_insert(now);
        } else if let Some(since) = blocked.since.take() {
            blocked.earlier_us += now.saturating_sub(since);
        }
    }

    fn blocked_us(&self, now: u64) -> u64 {
        let blocked = self.blocked.lock();
        blocked.earlier_us + blocked.since.map_or(0, |since| now.saturating_sub(since))
    }
}

impl BodyMeter {
    /// Begins to measure the body of a request on this connection. `min_rate` is in bytes a second.
    pub fn new(min_rate: NonZeroU64, transfer: Arc<Transfer>) -> Self {
        Self { rate: RateMeter::new(min_rate), transfer, ahead: 0, blocked_us: 0 }
    }

    /// See [`RateMeter::wait`].
    pub fn wait(&mut self, now: u64) {
        self.look(now);
        self.rate.wait(now);
    }

    /// See [`RateMeter::pause`].
    pub fn pause(&mut self, now: u64) {
        self.look(now);
        self.rate.pause(now);
    }

    /// Notes that bytes of the body have been delivered.
    pub fn note(&mut self, now: u64, bytes: u64) {
        self.look(now);
        self.rate.note(now, bytes.saturating_sub(self.ahead));
        let delivered = bytes.saturating_add(bytes / OVERHEAD_SHARE + OVERHEAD_BYTES);
        self.ahead = self.ahead.saturating_sub(delivered);
    }

    /// When the client is too slow unless it sends something before; `None` while the gateway does
    /// not wait for it.
    pub fn deadline(&self) -> Option<u64> {
        self.rate.deadline()
    }

    /// Whether the client is too slow.
    pub fn is_too_slow(&mut self, now: u64) -> bool {
        self.look(now);
        self.rate.is_too_slow(now)
    }

    /// Counts what has changed on the connection since the last look. Requests over HTTP/2 share
    /// its bytes: one that gets none of those that were counted for it counts no others, so this
    /// extends its time once.
    fn look(&mut self, now: u64) {
        let blocked_us = self.transfer.blocked_us(now);
        self.rate.skip(now, blocked_us.saturating_sub(self.blocked_us));
        self.blocked_us = blocked_us;
        let undelivered = self.transfer.undelivered.load(Ordering::Relaxed);
        if undelivered > self.ahead {
            self.rate.note(now, undelivered - self.ahead);
            self.ahead = undelivered;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn meter(rate: u64) -> (BodyMeter, Arc<Transfer>) {
        let transfer = Arc::new(Transfer::default());
        (BodyMeter::new(NonZeroU64::new(rate).unwrap(), Arc::clone(&transfer)), transfer)
    }

    /// Sends parts that take `seconds` each, at `bytes_per_second` in packets. Returns when the
    /// client was too slow.
    fn send(bytes_per_second: u64, seconds: u64, parts: u64) -> Option<u64> {
        const PACKET: u64 = 20;
        let (mut meter, transfer) = meter(240);
        meter.wait(0);
        let mut part = 0;
        while part < parts {
            let end = (part + 1) * seconds * SECOND;
            let deadline = meter.deadline().unwrap();
            if deadline >= end {
                transfer.note_undelivered(0);
                meter.note(end, seconds * bytes_per_second - 40);
                part += 1;
                continue;
            }
            let sent = (deadline - part * seconds * SECOND) * bytes_per_second / SECOND;
            transfer.note_undelivered(sent / PACKET * PACKET);
            if meter.is_too_slow(deadline) {
                return Some(deadline);
            }
        }
        None
    }

    #[test]
    fn bytes_count_while_their_record_or_frame_arrives() {
        assert_eq!(send(300, 55, 100), None);
        assert!(send(200, 80, 2).is_some_and(|time| time < 40 * SECOND));
    }

    #[test]
    fn request_without_a_byte_profits_once_from_the_bytes_of_others() {
        let (mut meter, transfer) = meter(240);
        meter.wait(0);
        let mut now = 0;
        while !meter.is_too_slow(now) {
            now += SECOND;
            transfer.note_undelivered(now / SECOND % 20 * 800);
            assert!(now < 60 * SECOND);
        }
        assert!(now > 10 * SECOND);
    }

    #[test]
    fn time_in_which_the_client_does_not_read_is_free() {
        let (mut meter, transfer) = meter(240);
        meter.wait(0);
        transfer.note_blocked(true, SECOND);
        transfer.note_blocked(true, 2 * SECOND);
        assert!(!meter.is_too_slow(60 * SECOND));
        transfer.note_blocked(false, 101 * SECOND);
        assert!(!meter.is_too_slow(104 * SECOND));
        assert_eq!(meter.deadline(), Some(105 * SECOND));
        assert!(meter.is_too_slow(105 * SECOND));
    }
}
