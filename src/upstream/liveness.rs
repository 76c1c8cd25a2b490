//! Whether the server of an HTTP/2 connection is still there. Pure: times are microseconds.
//!
//! A server that has disappeared without closing its connections, or a firewall that has forgotten
//! them, would otherwise fail each request until the kernel gives up, which it does not if a proxy
//! between them acknowledges the bytes. So a connection on which requests wait is asked by a PING.
//!
//! Servers of gRPC close a connection whose client sends more than two PINGs, each within five
//! minutes of the last one, without a response between them ("too_many_pings"): a stream can be
//! idle by design. So after an answered PING, the next one waits for a response or for
//! [`PING_INTERVAL_US`].

use std::time::Duration;

use crate::base::duration::MICROS_PER_SECOND;

/// Time between two checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long nothing is read from a connection on which requests wait until it is asked, in
/// microseconds.
const SILENCE_US: u64 = 5 * MICROS_PER_SECOND;

/// How long the answer may take, in microseconds.
const ANSWER_US: u64 = 10 * MICROS_PER_SECOND;

/// Time between two PINGs without a response between them, in microseconds.
const PING_INTERVAL_US: u64 = 310 * MICROS_PER_SECOND;

/// What has happened on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// Number of reads of bytes.
    pub(super) reads: u64,
    /// Number of heads and parts of responses.
    pub(super) responses: u64,
    /// Number of requests that have begun.
    pub(super) requests: u64,
    /// Number of requests in flight.
    pub(super) streams: usize,
}

/// What to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ping,
    /// Close it: the server is gone.
    Close,
}

/// The state between two checks of a connection.
#[derive(Debug)]
pub(super) struct Liveness {
    /// The readings when bytes had been read last.
    last: Readings,
    /// Since when nothing has been read although a request waits.
    silent_since: u64,
    /// When the PING was sent that has not been answered.
    asked_at: Option<u64>,
    /// When the last PING was sent, and the number of responses then.
    last_ping: Option<(u64, u64)>,
}

impl Liveness {
    /// A connection that was opened at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { last: Readings::default(), silent_since: now, asked_at: None, last_ping: None }
    }

    /// Checks the connection at `now`. After [`Due::Ping`], a PING must be sent.
    pub(super) fn check(&mut self, now: u64, readings: Readings) -> Due {
        if readings.reads != self.last.reads {
            self.last = readings;
            self.silent_since = now;
            self.asked_at = None;
            return Due::Nothing;
        }
        if let Some(asked_at) = self.asked_at {
            let is_gone = now.saturating_sub(asked_at) >= ANSWER_US;
            return if is_gone { Due::Close } else { Due::Nothing };
        }
        // Requests that have timed out since then count, too.
        if readings.streams == 0 && readings.requests == self.last.requests {
            self.silent_since = now;
            return Due::Nothing;
        }
        let may_ask = self.last_ping.is_none_or(|(at, responses)| {
            responses != readings.responses || now.saturating_sub(at) >= PING_INTERVAL_US
        });
        if now.saturating_sub(self.silent_since) < SILENCE_US || !may_ask {
            return Due::Nothing;
        }
        self.asked_at = Some(now);
        self.last_ping = Some((now, readings.responses));
        Due::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = MICROS_PER_SECOND;

    fn waiting(reads: u64, responses: u64) -> Readings {
        Readings { reads, responses, requests: 1, streams: 1 }
    }

    /// Checks every second from `from` to `until`, and returns what was due when, in seconds.
    fn due(liveness: &mut Liveness, from: u64, until: u64, readings: Readings) -> Vec<(u64, Due)> {
        let checks = (from..=until).map(|at| (at, liveness.check(at * SECOND, readings)));
        checks.filter(|(_, due)| *due != Due::Nothing).collect()
    }

    #[test]
    fn silent_server_is_asked_and_then_given_up() {
        let mut liveness = Liveness::new(0);
        let due = due(&mut liveness, 1, 15, waiting(0, 0));
        assert_eq!(due, [(5, Due::Ping), (15, Due::Close)]);
    }

    #[test]
    fn requests_that_timed_out_count_as_waiting() {
        let mut liveness = Liveness::new(0);
        let readings = Readings { streams: 0, ..waiting(0, 0) };
        assert_eq!(due(&mut liveness, 1, 15, readings), [(5, Due::Ping), (15, Due::Close)]);
    }

    #[test]
    fn connection_without_requests_is_not_asked() {
        let mut liveness = Liveness::new(0);
        assert_eq!(due(&mut liveness, 1, 1_000, Readings::default()), []);
        // The silence begins with the request.
        assert_eq!(due(&mut liveness, 1_001, 1_006, waiting(0, 0)), [(1_005, Due::Ping)]);
    }

    #[test]
    fn idle_stream_is_asked_less_than_once_in_five_minutes() {
        let mut liveness = Liveness::new(0);
        let mut pings = Vec::new();
        let mut reads = 0;
        for at in 1..=1_000 {
            if liveness.check(at * SECOND, waiting(reads, 0)) == Due::Ping {
                pings.push(at);
                // The answer.
                reads += 1;
            }
        }
        assert_eq!(pings, [5, 315, 625, 935]);
    }

    #[test]
    fn response_allows_the_next_ping() {
        let mut liveness = Liveness::new(0);
        assert_eq!(due(&mut liveness, 1, 6, waiting(0, 0)), [(5, Due::Ping)]);
        assert_eq!(due(&mut liveness, 7, 30, waiting(1, 0)), []);
        assert_eq!(due(&mut liveness, 31, 36, waiting(2, 1)), [(36, Due::Ping)]);
    }
}
